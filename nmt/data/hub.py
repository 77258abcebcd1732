"""Data sets of the Hugging Face hub, and local folders in the same layout, through the `datasets` library."""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmt.config import Source
from nmt.data.sources import ROWS_AT_ONCE, Pair, table_pairs, top_columns
from nmt.data.text import file_stamp
from nmt.errors import NmtError

# What a library in between raises when there is no connection; some of these classes are private to their packages.
_NO_CONNECTION = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectError", "ConnectTimeout", "ReadTimeout")

_READERS = ("arrow", "csv", "json", "pandas", "parquet", "text", "webdataset", "xml")  # of any `datasets`


class HubData:
    """One split of a data set: what identifies its version, and its pairs."""

    def __init__(self, source: Source) -> None:
        assert source.hub is not None
        self.source = source
        self.id = source.hub
        self.is_local = Path(self.id).is_dir()
        self.label = f"{self.id}{f' ({source.name})' if source.name else ''}, split {source.split}"
        # Asked of the hub once, then kept: every pass over the pairs reads the same version.
        self._builder: Any = None
        self._dataset: Any = None

    def stamp(self) -> list[Any]:
        """Return what changes whenever the data may have: the files of a local folder, the commit of a hub data set.

        Raises:
            NmtError: if there is no such data set or the hub cannot be reached.
        """
        if self.is_local:
            files = sorted(path for path in Path(self.id).rglob("*") if path.is_file() and ".git" not in path.parts)
            return [file_stamp(path) for path in files]
        with _quiet(), self._errors():
            builder = self._opened_builder()
            return [self.id, str(builder.config.name), str(builder.hash)]

    def pairs(self, wanted: Pair) -> Iterator[Pair]:
        """Yield two columns of the split, flat or inside its `translation` column.

        Raises:
            NmtError: if the data set, split or column does not exist, cannot be fetched, or holds no text there.
        """
        if self._dataset is None:
            with _quiet(), self._errors():
                builder = self._opened_builder()
                builder.download_and_prepare()
                self._dataset = builder.as_dataset(split=self.source.split)
        columns = top_columns(self._dataset.features.arrow_schema, wanted, self.label)
        tables = self._dataset.select_columns(columns).with_format("arrow").iter(batch_size=ROWS_AT_ONCE)
        first_row = 1
        for table in tables:
            yield from table_pairs(table, wanted, self.label, first_row)
            first_row += table.num_rows

    def _opened_builder(self) -> Any:
        """Return the builder that `datasets.load_dataset` would use; no code of the data set is ever run."""
        if self._builder is not None:
            return self._builder
        if not self.is_local and (self.id.startswith(("/", ".", "~")) or self.id.count("/") > 1):
            raise NmtError(f"{self.id}: no such folder. `hub` is the id of a data set (owner/name) or a local folder")
        import datasets

        readers = getattr(importlib.import_module("datasets.packaged_modules"), "_PACKAGED_DATASETS_MODULES", _READERS)
        if not self.is_local and self.id in readers:
            # `datasets` would read whatever files of that kind lie in the current folder.
            raise NmtError(
                f"hub: {self.id} is the name of a reader of files, not of a data set. Write the files as a source of "
                "their own, such as {csv: FILE}, or give owner/name"
            )
        arguments = {"path": self.id, "name": self.source.name, "revision": self.source.revision}
        builder = datasets.load_dataset_builder(**arguments)
        # CSV goes through pandas, which takes the texts "NA" and "null" for missing values unless told otherwise.
        if hasattr(builder.config, "keep_default_na"):
            builder = datasets.load_dataset_builder(**arguments, keep_default_na=False)
        self._builder = builder
        return builder

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn whatever `datasets` raises into a message: the data set is the user's choice, and so are its faults."""
        try:
            yield
        except NmtError:
            raise
        except Exception as error:
            raise NmtError(self._explain(error)) from error

    def _explain(self, error: Exception) -> str:
        """Return what is wrong with the data set and what to do."""
        chain = list(_causes(error))
        texts = [str(link).strip() for link in chain]
        if any(re.search("Dataset scripts are no longer|loading script|trust_remote_code", text) for text in texts):
            return (
                f"{self.id} needs a loading script, a program that comes with the data set; such programs are not run."
                f" The hub keeps a copy without one: add `revision: refs/convert/parquet` to the source. {_LOCAL_FILES}"
            )
        if any(
            isinstance(link, ConnectionError | TimeoutError) or type(link).__name__ in _NO_CONNECTION for link in chain
        ):
            return (
                f"the hub cannot be reached, so {self.id} cannot be fetched ({_first_line(texts[0])})."
                f" Try again with a connection, or give local files. {_LOCAL_FILES}"
            )
        if type(error).__name__ == "DatasetNotFoundError":
            return f"{_first_line(texts[0])} Look the id up on the hub, or give local files. {_LOCAL_FILES}"
        if isinstance(error, ValueError) and re.search("split|instruction", texts[0]):
            return f"{self.id}: {texts[0].rstrip('.')}. Change `split` of the source ({self.source.split})"
        if isinstance(error, ValueError) and re.search("[Cc]onfig", texts[0]):
            return f"{self.id}: {texts[0]}. Set `name` of the source to one of them"
        causes = [_first_line(text).rstrip(".") or type(link).__name__ for link, text in zip(chain, texts)]
        return f"{self.label} cannot be read: {': '.join(dict.fromkeys(causes[-2:]))}. {_LOCAL_FILES}"


_LOCAL_FILES = "Local files are given like this: train: {src: train.en, tgt: train.de}, dev and test likewise"


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].strip()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and those that led to it."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars and warnings of the hub's libraries off the terminal, and put everything back afterwards."""
    import datasets

    hub: Any = importlib.import_module("huggingface_hub.utils")
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub", "fsspec", "httpx", "filelock")]
    levels = [logger.level for logger in loggers]
    bars = (datasets.are_progress_bars_disabled(), hub.are_progress_bars_disabled())
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        datasets.disable_progress_bars()
        hub.disable_progress_bars()
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
        if not bars[0]:
            datasets.enable_progress_bars()
        if not bars[1]:
            hub.enable_progress_bars()
