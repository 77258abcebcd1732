"""A run's folder: created once, opened when it is one, and files that are whole or absent."""

from __future__ import annotations

import errno
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import cast

import pytest

from nmt import failures
from nmt.config import load_config
from nmt.errors import NmtError, room, unwritable
from nmt.run_dir import RunDir, refuse_unwritable, replacing, write_atomic


def make_run(path: Path, time: float | None = None) -> RunDir:
    run = RunDir.create(path)
    run.config.write_text("data: {}\n", encoding="utf-8")
    if time is not None:
        os.utime(run.config, (time, time))
    return run


def test_names_are_those_of_the_design() -> None:
    run = RunDir(Path("runs/a"))
    names = {
        "config": "config.yaml",
        "meta": "meta.json",
        "data_report": "data_report.json",
        "tokenizer": "tokenizer",
        "checkpoints": "checkpoints",
        "best": "checkpoints/best.pt",
        "last": "checkpoints/last.pt",
        "metrics": "metrics.jsonl",
        "tensorboard": "tensorboard",
        "dev": "dev",
        "eval": "eval",
    }
    assert {name: getattr(run, name) for name in names} == {name: Path("runs/a") / file for name, file in names.items()}


@pytest.mark.parametrize(("path", "parent"), [("runs/a", "runs"), (".", ".."), ("a/..", ".."), ("a", ".")])
def test_prepared_data_lies_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, parent: str
) -> None:
    (tmp_path / "here" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert RunDir(Path(path)).cache_root == (tmp_path / "here" / parent).resolve() / ".nmt-cache"


def test_create_makes_the_folders_and_open_finds_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "deep" / "a")
    assert run.checkpoints.is_dir()
    assert RunDir.open(run.path) == run


def test_an_existing_run_is_refused_and_the_ways_out_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    with pytest.raises(NmtError) as caught:
        RunDir.create(run.path)
    for part in (str(run.path), "--resume", "--run-dir"):
        assert part in str(caught.value)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(NmtError, match="holds other files"):
        RunDir.create(tmp_path)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NmtError, match="this is a file"):
        RunDir.create(tmp_path / "a")


def test_a_folder_under_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NmtError, match="the folder of the run cannot be made"):
        RunDir.create(tmp_path / "a" / "b")


def test_a_run_that_never_began_does_not_block_its_name(tmp_path: Path) -> None:
    RunDir.create(tmp_path / "a")
    assert RunDir.create(tmp_path / "a").checkpoints.is_dir()


def test_a_run_killed_before_its_config_was_written_does_not_block_its_name(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "a")
    left = [run.meta, run.data_report, run.tokenizer / "src.model"]
    left += [run.path / f".{name}.123.tmp" for name in ("meta.json", "data_report.json", "config.yaml")]
    for file in left:
        file.write_text("{}")
    RunDir.create(run.path)
    assert not any(file.exists() for file in left), "the new run begins with nothing of the old one"


@pytest.mark.parametrize("name", ["meta.json", ".thesis.tex.123.tmp"])
def test_a_file_of_that_name_alone_is_not_taken_for_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(NmtError, match="holds other files"):
        RunDir.create(tmp_path)
    assert (tmp_path / name).exists()


def test_an_empty_folder_is_accepted(tmp_path: Path) -> None:
    assert RunDir.create(tmp_path).path == tmp_path


def test_open_of_no_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="there is no such run"):
        RunDir.open(tmp_path / "none")


def test_open_of_something_else_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    with pytest.raises(NmtError, match=r"it has no config\.yaml, no checkpoints\."):
        RunDir.open(tmp_path)


def test_open_of_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NmtError, match="this is a file"):
        RunDir.open(tmp_path / "a")


def test_newest_is_the_run_trained_last_not_scored_last(tmp_path: Path) -> None:
    make_run(tmp_path / "z", time=1000)
    newest = make_run(tmp_path / "a", time=2000)
    make_run(tmp_path / "m", time=1500)
    (tmp_path / "z" / "eval" / "test.json").touch()
    (tmp_path / ".nmt-cache").mkdir()
    (tmp_path / "notes").mkdir()
    assert RunDir.newest(tmp_path) == newest


def test_newest_looks_at_checkpoints(tmp_path: Path) -> None:
    old = make_run(tmp_path / "old", time=1000)
    make_run(tmp_path / "new", time=2000)
    old.last.touch()
    os.utime(old.last, (3000, 3000))
    assert RunDir.newest(tmp_path) == old


@pytest.mark.parametrize("folder", ["none", "."])
def test_newest_of_nothing_says_what_to_do(tmp_path: Path, folder: str) -> None:
    with pytest.raises(NmtError, match=r"there is no run here.*--run.*nmt train"):
        RunDir.newest(tmp_path / folder)


def test_write_atomic_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_atomic(file, "old\n")
    write_atomic(file, "new\r\n\N{SNOWMAN}")
    assert file.read_bytes() == "new\r\n\N{SNOWMAN}".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_atomic(file, "old")
    with pytest.raises(TypeError), replacing(file) as stream:
        stream.write(b"half" + cast(bytes, "text"))
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_replacing_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_replacing_writes_a_device_directly() -> None:
    with replacing("/dev/null") as stream:
        stream.write(b"gone")
    assert Path("/dev/null").is_char_device()


def test_two_writers_of_a_file_do_not_share_what_they_write(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    with replacing(file) as first:
        first.write(b"first")
        with replacing(file) as second:
            second.write(b"second, longer")
        assert file.read_bytes() == b"second, longer"
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_kill_leaves_of_a_file_has_the_name_that_a_new_run_looks_for(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "a")
    with replacing(run.meta):
        [left] = [path for path in run.path.iterdir() if path.is_file()]
        assert fnmatch(left.name, ".meta.json.*.tmp")
        run.refuse_existing()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("none/a.txt", "cannot be written: No such file"),
        ("file/a.txt", "cannot be written: Not a directory"),
        (".", "this is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_and_when_it_is(tmp_path: Path, name: str, part: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NmtError, match=part) as late, replacing(tmp_path / name):
        pass
    with pytest.raises(NmtError) as early:
        refuse_unwritable(tmp_path / name)
    assert str(early.value) == str(late.value)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_told_beforehand(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(
        NmtError, match=r"cannot be written: Permission denied\. Make its folder writable, or write elsewhere"
    ):
        refuse_unwritable(tmp_path / "a.txt")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", ["new.txt", "old.txt", "/dev/null"])
def test_a_place_that_can_be_written_is_not_touched_beforehand(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.txt").write_text("old")
    refuse_unwritable(tmp_path / name)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("idle", "told"),
    [
        ("model: {annotation_dropout: 0.2, decoder: {kind: none}}", "reads no annotations"),
        ("training: {schedule: {kind: inverse_sqrt}}", "falls from the end of the warm-up"),
    ],
)
def test_a_trained_run_whose_settings_would_be_refused_now_for_doing_nothing_is_read(
    tmp_path: Path, idle: str, told: str
) -> None:
    run = RunDir.create(tmp_path / "run")
    files = "{src: a.en, tgt: a.de}"
    run.config.write_text(f"data: {{src_lang: en, tgt_lang: de, train: {files}, dev: {files}}}\n{idle}\n")
    assert run.settings().data.src_lang == "en"
    with pytest.raises(NmtError, match=told):
        load_config(run.config)
    run.config.write_text(run.config.read_text() + "search: {beam_size: 0}\n")
    with pytest.raises(NmtError, match="beam_size"):
        run.settings()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_no_room_is_said_of_a_disk_a_quota_and_a_largest_file(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert failures._outside_cause(error) == f"{os.strerror(number)}. Free some disk space, or write elsewhere."


def test_what_is_to_be_made_writable_is_a_folder_itself_or_the_one_that_a_file_is_in(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for path, what in ((tmp_path, "that folder"), (tmp_path / "a", "that file and its folder"), ("b", "its folder")):
        assert f". Make {what} writable, or" in str(unwritable(path, OSError(errno.EACCES, "no")))


def test_room_is_told_in_units_that_are_read() -> None:
    units = {77_643_600_000: "77.6 GB", 2_345_678: "2.3 MB", 1000: "1.0 kB", 999: "999 bytes"}
    for count, text in units.items():
        assert room(".", count).startswith(f"about {text} are needed")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_what_may_not_be_written_has_a_way_on(number: int) -> None:
    message = str(unwritable("a", OSError(number, os.strerror(number))))
    assert message == f"a: cannot be written: {os.strerror(number)}. Make its folder writable, or write elsewhere."


def test_a_folder_that_turns_read_only_in_the_middle_of_a_file_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(NmtError, match=r"a: cannot be written: .* Make its folder writable"):
        write_atomic(tmp_path / "a", "x")
