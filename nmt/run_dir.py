"""The folder of a run: names every file in it, creates it, opens it, refuses what is not one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nmt import run_lock
from nmt.errors import NmtError, unwritable

if TYPE_CHECKING:
    from nmt.config import Config

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_NO_FOLDER = "the folder of the run cannot be made"
_LONGEST_NAMES = 80  # characters of the names of an ensemble's other runs in that of a file
_SCORES_TAKE = 60.0  # seconds that a temporary file in eval/ may be another command's at work


@dataclass(frozen=True)
class RunDir:
    """One run's folder. The properties name files and folders; they need not exist yet."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved settings, defaults written out; training from this file repeats the run."""
        return self.path / "config.yaml"

    @property
    def meta(self) -> Path:
        """Versions, git commit, command line, seed and times."""
        return self.path / "meta.json"

    @property
    def data_report(self) -> Path:
        """Pairs kept and dropped, by reason."""
        return self.path / "data_report.json"

    @property
    def tokenizer(self) -> Path:
        """The folder of the SentencePiece models."""
        return self.path / "tokenizer"

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """The checkpoint with the best score on the development set."""
        return self.checkpoints / "best.pt"

    def settings(self) -> Config:
        """Return the run's configuration, for whatever does not train.

        Raises:
            NmtError: as `load_config`.
        """
        from nmt.config import load_config

        return load_config(str(self.config), stored=True)

    @property
    def name(self) -> str:
        """What the run's folder is called, also when it was named as `.` or through a link."""
        return self.path.resolve().name

    @property
    def last(self) -> Path:
        """The checkpoint that training resumes from."""
        return self.checkpoints / "last.pt"

    @property
    def metrics(self) -> Path:
        """Everything measured in training, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The folder of the TensorBoard event files."""
        return self.path / "tensorboard"

    @property
    def dev(self) -> Path:
        """The folder of each validation's translations."""
        return self.path / "dev"

    @property
    def eval(self) -> Path:
        """The folder of scores, tables and plots."""
        return self.path / "eval"

    @property
    def lock(self) -> Path:
        """What a training holds locked for as long as it runs; the file itself stays."""
        return self.path / ".lock"

    @property
    def failed_batch(self) -> Path:
        """The text of the batch at which training gave up for want of a finite gradient."""
        return self.path / "failed_batch.tsv"

    def settings_stamp(self) -> tuple[int, int] | None:
        """Return what is another whenever config.yaml has been written anew; None where there is none."""
        try:
            status = self.config.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    @property
    def quoted(self) -> str:
        """The folder as a shell takes it, for the commands in messages."""
        return shlex.quote(str(self.path))

    @property
    def cache_root(self) -> Path:
        """The folder of prepared data, shared by the runs that lie side by side; never inside the run."""
        return self.path.resolve().parent / ".nmt-cache"

    @classmethod
    def create(cls, path: str | Path) -> RunDir:
        """Make the folder of a new run and the folders inside it.

        Raises:
            NmtError: if a run or anything else is already there, or the folder cannot be made.
        """
        run = cls(Path(path))
        run._refuse_taken()
        try:
            for file in run._left_before_the_start():
                file.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(run.path, error, what=_NO_FOLDER) from error
        run._make(run.path, *run._folders())
        return run

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Keep every other training out of the folder, which is made if need be, for the time of the block.

        Gives False where the file system has no locks. Other commands read a run while it is trained.

        Raises:
            NmtError: if another process trains here, named in the message, or the folder cannot be written.
        """
        self._make(self.path)
        with run_lock.held(self.lock) as locked:
            yield locked

    def refuse_existing(self) -> None:
        """Refuse a folder in which a new run has no place; called before long work as well.

        Raises:
            NmtError: if a run or anything else is already there, or another process is about to begin one.
        """
        run_lock.refuse_held(self.lock)
        self._refuse_taken()

    def _refuse_taken(self) -> None:
        if self.config.exists() or self.last.exists():
            raise NmtError(
                f"{self.path}: there is a run here already. Go on with it with --resume, "
                "or choose another folder with --run-dir."
            )
        if self.path.exists() and not self.path.is_dir():
            raise NmtError(f"{self.path}: this is a file. Choose a folder with --run-dir.")
        ours = {*self._folders(), *self._left_before_the_start(), self.lock}
        if self.path.is_dir() and not ours.issuperset(self.path.iterdir()):
            raise NmtError(f"{self.path}: the folder holds other files. Choose a new or empty one with --run-dir.")

    def _make(self, *folders: Path) -> None:
        try:
            for folder in folders:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error, what=_NO_FOLDER) from error

    def clear_after(self, step: int) -> None:
        """Remove what killed processes left, and translations of later validations; for the holder of the lock.

        Raises:
            NmtError: if something cannot be removed.
        """
        later = [
            file for file in self.dev.glob("step_*.txt") if (number := file.stem[5:]).isdecimal() and int(number) > step
        ]
        folders = (self.path, self.checkpoints, self.dev, self.eval)
        parts = [part for folder in folders for part in folder.glob(".*.tmp") if _TEMPORARY.fullmatch(part.name)]
        for file in (*later, *parts):
            try:
                # `nmt eval` needs no lock, and may be writing.
                if file.parent != self.eval or time.time() - file.stat().st_mtime > _SCORES_TAKE:
                    file.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise unwritable(file, error, what="cannot be removed") from error

    def _folders(self) -> tuple[Path, ...]:
        """The folders that a run begins with."""
        return self.tokenizer, self.checkpoints, self.dev, self.eval

    def _left_before_the_start(self) -> list[Path]:
        """List the files of a run that was killed before its config.yaml, the last of the first files, was written."""
        if self.config.exists() or not all(folder.is_dir() for folder in self._folders()):
            return []
        whole = (self.data_report, self.meta)
        parts = [part for file in (*whole, self.config) for part in self.path.glob(f".{file.name}.*.tmp")]
        models = [self.tokenizer / f"{side}.model" for side in ("joint", "src", "tgt")]
        return [file for file in (*whole, *parts, *models) if file.is_file()]

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """Return the run in an existing folder.

        Raises:
            NmtError: if there is no such folder, or it is not a run's; the message names what is missing.
        """
        run = cls(Path(path))
        if not run.path.exists():
            raise NmtError(
                f"{run.path}: there is no such run. "
                "Name the folder of one (--run; for training, --run-dir), or train one with `nmt train`."
            )
        if not run.path.is_dir():
            raise NmtError(f"{run.path}: this is a file; a run is a folder.")
        missing = [part.name for part in (run.config, run.tokenizer, run.checkpoints) if not part.exists()]
        if missing:
            raise NmtError(
                f"{run.path}: this is not the folder of a run: it has no {', no '.join(missing)}. "
                "A run is what `nmt train` makes."
            )
        return run

    def needs(self, path: Path) -> bool:
        """Tell whether a file is one of those without which this is no run, the record of its training, or its scores.

        All of eval/ is: `nmt compare` takes the translations there for the run's own, and `nmt info` reads its JSON.
        """
        files = (self.config, self.meta, self.data_report, self.metrics)
        folders = (self.tokenizer, self.checkpoints, self.tensorboard, self.eval)
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(os.path.realpath(part)) for part in (*files, *folders))

    def evaluation_name(
        self,
        name: str,
        checkpoint: Path | None = None,
        *,
        others: Sequence[RunDir] = (),
        search: Sequence[str] = (),
        int8: bool = False,
    ) -> str:
        """Return what the files of an evaluation are called: `name`, the test set's, for the run as it is.

        Another checkpoint's name follows, as in `test.last`, so that its scores never stand for those of the best one.
        That of a checkpoint from elsewhere has its run or folder before it, as in `test.luong.last`. The `others` are
        the runs that make up an ensemble with it, as in `test+luong`; their number and a hash stand for many names.
        Then come the settings of the `search` that are not the run's own, as in `test.beam1`; and `int8` ends the name
        where the search multiplied in 8 bits.
        """
        if checkpoint is not None and os.path.realpath(checkpoint) != os.path.realpath(self.best):
            home = Path(os.path.realpath(checkpoint.parent))
            if home != Path(os.path.realpath(self.checkpoints)):
                name = f"{name}.{(home.parent if home.name == self.checkpoints.name else home).name}"
            name = f"{name}.{checkpoint.stem}"
        names = "+".join(sorted(other.name for other in others))
        if len(names) > _LONGEST_NAMES:
            names = f"{len(others)}-{hashlib.blake2b(names.encode(), digest_size=4).hexdigest()}"
        name = f"{name}+{names}" if others else name
        name = ".".join([name, *search])
        return f"{name}.int8" if int8 else name

    def inside(self, path: Path) -> str:
        """Return a file's path in the run, such as `checkpoints/best.pt`, or the whole path of one from elsewhere."""
        try:
            return path.resolve().relative_to(self.path.resolve()).as_posix()
        except ValueError:
            return str(path)

    def refuse_links_out(self, *folders: Path) -> None:
        """Refuse links in these folders of the run that lead out of it; called before anything is written there.

        A run may come from a stranger, and a link in it could name any file of this user. To keep a run on another
        disk, link the whole folder: `self.path` itself may be a link.

        Raises:
            NmtError: naming the link.
        """
        home = os.path.realpath(self.path)
        for folder in folders:
            inside = (Path(above, name) for above, some, others in os.walk(folder) for name in (*some, *others))
            for path in (folder, *inside):
                if path != self.path and path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):
                    raise NmtError(
                        f"{path}: this link leads out of the run, to {os.path.realpath(path)}, and nothing is written "
                        "through it. Put a folder or file in its place, or remove it."
                    )

    @classmethod
    def newest(cls, root: str | Path = Path("runs")) -> RunDir:
        """Return the run under `root` that was trained last.

        Raises:
            NmtError: if there is none.
        """
        folder = Path(root)
        runs = [cls(config.parent) for config in folder.glob("*/config.yaml")] if folder.is_dir() else []
        runs = [run for run in runs if run.checkpoints.is_dir()]
        if not runs:
            raise NmtError(
                f"{folder}: there is no run here. "
                "Name the folder of one (--run; for training, --run-dir), or train one with `nmt train`."
            )
        return cls.open(max(runs, key=lambda run: (run._last_trained(), run.path.name)).path)

    def _last_trained(self) -> float:
        """Time of the newest file that only training writes; scoring an old run does not make it the newest."""
        files = (self.config, self.meta, self.metrics, self.last, self.best)
        return max(file.stat().st_mtime for file in files if file.exists())


@contextmanager
def replacing(path: str | Path, size: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for bytes that takes its name only when the block ends well; until then the older one stays.

    A device or a pipe, such as `/dev/null`, is written directly, and a link is followed.

    Raises:
        NmtError: if it cannot be written; the bytes it needs are named if `size` is given.
    """
    target = Path(os.path.realpath(path))
    special = target.exists() and not target.is_file()
    temporary = target if special else temporary_beside(target)
    if target.is_dir():
        raise _is_folder(path)
    try:
        stream = temporary.open("wb")
    except OSError as error:
        raise unwritable(path, error, size) from error
    try:
        with stream:
            yield stream
            stream.flush()
            if not special:
                os.fsync(stream.fileno())
        if not special:
            os.replace(temporary, target)
            flush_folder(target.parent)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None or (error.filename is not None and str(error.filename) != str(temporary)):
            raise  # of something else that the block does
        if not special:
            _discard(temporary)  # before the room that is free is told
        raise unwritable(path, error, size) from error
    finally:
        if not special:
            _discard(temporary)


def _discard(temporary: Path) -> None:
    with suppress(OSError):  # of a folder that is read-only by now, which is told already
        temporary.unlink(missing_ok=True)


def temporary_beside(target: Path) -> Path:
    """Return a name for what is to become `target`, which nobody else has, here or on another machine."""
    return target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")


def flush_folder(folder: Path) -> None:
    """Have the names in a folder on the disk before anything that comes after, as a loss of power could undo them.

    Windows cannot open folders, and keeps their order by itself; some network file systems refuse.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def refuse_repeated(runs: Sequence[RunDir]) -> None:
    """Refuse runs of which one is named twice.

    Raises:
        NmtError: naming it.
    """
    real = [run.path.resolve() for run in runs]
    for number, path in enumerate(real):
        if path in real[:number]:
            raise NmtError(f"{runs[number].path}: this run is named twice. Give each run once.")


def refuse_unwritable(path: str | Path) -> None:
    """Refuse a path that `replacing` could not write; called before long work.

    Raises:
        NmtError: as `replacing` has it.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise _is_folder(path)
    try:
        # The dot makes it an error that the parent is a file.
        os.stat(os.path.join(target.parent, "."))
        with suppress(FileNotFoundError):
            os.lstat(temporary_beside(target))  # an error if that name is too long
        if (target.is_file() or not target.exists()) and not os.access(target.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise unwritable(path, error) from error


def _is_folder(path: str | Path) -> NmtError:
    return NmtError(f"{path}: this is a folder; name a file to write.")


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a crash leaves the old one or the new one, never a part.

    Raises:
        NmtError: if it cannot be written.
    """
    content = text.encode()
    with replacing(path, len(content)) as stream:
        stream.write(content)


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a run; an empty one where there is no such file.

    Raises:
        NmtError: if it cannot be read, or holds anything else.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{path}: not valid JSON ({error}). Remove it, or train or evaluate again.") from error
    except OSError as error:
        raise NmtError(f"{path}: cannot be read: {error.strerror or error}.") from error
    if not isinstance(content, dict):
        raise NmtError(f"{path}: not a JSON object. Remove it, or train or evaluate again.")
    return content


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
