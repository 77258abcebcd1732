"""What all sections share, and those of the data: sources, corpora, SentencePiece.

Import sections from `nmt.config`. The shipped files in `configs/` explain the same settings beside each key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from nmt.config_parsing import KeyPath, Problem, problems_error


def whole(value: Any) -> Any:
    """Take 2e4 for 20000: YAML reads it as a float, people mean a count."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Mistaken for codes of languages that BLEU has tokenizers of their own for: its scores would be wrong.
_MISTAKEN = {"cn": "zh", "chi": "zh", "chinese": "zh", "jp": "ja", "japanese": "ja", "kr": "ko", "korean": "ko"}
_OTHERWISE = {"kr": " (and kau for Kanuri)"}


def _language(code: str) -> str:
    """Refuse what cannot name a language, a column and a file."""
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_-]*", code):
        raise ValueError(f"must be a language code such as en or pt-BR, not {code!r}")
    meant = _MISTAKEN.get(re.split("[-_]", code.lower())[0])
    if meant is not None:
        raise ValueError(
            f"must be the code of the language: write {meant}, not {code!r}{_OTHERWISE.get(code.lower(), '')}; columns "
            "of that name are given by src_column and tgt_column"
        )
    return code


def _name(text: str) -> str:
    """Refuse what cannot name a file, a column or a data set."""
    if not text or "\0" in text:
        raise ValueError(
            "must not be empty: give a name, or leave the key out" if not text else "holds a NUL character"
        )
    return text


DEVICES = "auto, cpu, cuda, or one GPU such as cuda:1"


def is_device(device: str) -> bool:
    """Tell whether this names a device as DEVICES describes; not whether it is there."""
    return re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", device) is not None


# No size or count in use comes near this; the bound turns a slip of the finger into a message.
_MOST = 2**40
Count = Annotated[int, BeforeValidator(whole), Field(ge=1, le=_MOST)]
CountOrZero = Annotated[int, BeforeValidator(whole), Field(ge=0, le=_MOST)]
Size = Annotated[int, BeforeValidator(whole), Field(ge=1, le=65536)]
Layers = Annotated[int, BeforeValidator(whole), Field(ge=1, le=32)]
Positive = Annotated[float, Field(gt=0)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Language = Annotated[str, AfterValidator(_language)]
Name = Annotated[str, AfterValidator(_name)]
Cell = Literal["gru", "lstm"]


class Section(BaseModel):
    """What all sections share: no unknown keys, no change after loading, no guessing at types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# --- data ---------------------------------------------------------------------------------------------------------

SourceKind = Literal["text", "tsv", "jsonl", "csv", "parquet", "hub"]
FILE_KEYS = ("src", "tgt", "tsv", "jsonl", "csv", "parquet")
_COLUMNED = ("jsonl", "csv", "parquet", "hub")


class Source(Section):
    """Where pairs come from: exactly one of two aligned text files, one file with two columns, or a hub data set."""

    src: Name | None = None
    """Text file of the source side, one sentence a line; with `tgt`."""
    tgt: Name | None = None
    """Text file of the target side, aligned with `src` line by line."""
    tsv: Name | None = None
    """File with source and target on each line, a tab between; no quoting."""
    jsonl: Name | None = None
    """File with one JSON object a line."""
    csv: Name | None = None
    """CSV file whose first line names the columns."""
    parquet: Name | None = None
    """Parquet file."""
    hub: Name | None = None
    """Id of a data set on the Hugging Face hub, or a local folder in the same layout."""
    name: Name | None = None
    """Configuration of the hub data set, such as `de-en`."""
    split: Name | None = None
    """Split of the hub data set, such as `train`; required with `hub`."""
    revision: Name | None = None
    """Branch, tag or commit of the hub data set."""
    src_column: Name | None = None
    """Column of the source side; by default the one called as `src_lang`."""
    tgt_column: Name | None = None
    """Column of the target side; by default the one called as `tgt_lang`."""
    substitutions: Annotated[int, BeforeValidator(whole), Field(ge=1, le=10_000_000)] | None = None
    """So many more training pairs, made from those of the source: phrases between the same words change places."""

    @property
    def kind(self) -> SourceKind:
        """Say which of the forms this is."""
        if self.src is not None:
            return "text"
        given: tuple[SourceKind, ...] = ("tsv", "jsonl", "csv", "parquet")
        return next((kind for kind in given if getattr(self, kind) is not None), "hub")

    @model_validator(mode="after")
    def _one_form(self) -> Source:
        given = [key for key in ("tsv", *_COLUMNED) if getattr(self, key) is not None]
        sides = [key for key in ("src", "tgt") if getattr(self, key) is not None]
        problems: list[Problem] = []
        if len(given) + bool(sides) != 1:
            has = f"this one has {', '.join(sides + given)}" if sides or given else "this one has none of them"
            forms = "{src, tgt}, {tsv}, {jsonl}, {csv}, {parquet} or {hub}"
            problems.append(Problem((), f"a source is exactly one of {forms}; {has}"))
        elif len(sides) == 1:
            other = "tgt" if sides == ["src"] else "src"
            problems.append(Problem((other,), f"is missing: {sides[0]} needs {other}, the file of the other side"))
        elif sides or given == ["tsv"]:
            why = "only jsonl, csv, parquet and hub have named columns: exchange the sides themselves"
            problems += self._unused(("src_column", "tgt_column"), why)
        if given == ["hub"] and self.split is None:
            problems.append(
                Problem(("split",), "is missing: say which split of the data set, for example split: train")
            )
        if "hub" not in given:
            problems += self._unused(("name", "split", "revision"), "only for a hub data set")
        if problems:
            raise problems_error(problems)
        return self

    def _unused(self, keys: Sequence[str], why: str) -> list[Problem]:
        return [Problem((key,), why) for key in keys if getattr(self, key) is not None]


def _one_or_more(value: Any) -> Any:
    """Take one SOURCE for a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


class DataConfig(Section):
    """Languages, corpora, and which training pairs are left out."""

    src_lang: Language
    """Code of the language translated from."""
    tgt_lang: Language
    """Code of the language translated to; sacreBLEU chooses its tokenizer by it."""
    train: Annotated[tuple[Source, ...], Field(min_length=1, strict=False), BeforeValidator(_one_or_more)]
    """Where the training pairs come from: one SOURCE, or a list read one after the other."""
    dev: Source
    """Pairs that training is validated on."""
    test: Source | None = None
    """Pairs scored at the end, and by `nmt eval`."""
    train_alignments: Name | None = None
    """File of word alignments of the training pairs, a Pharaoh line each; a blank line where none is known."""
    max_length: Count = 100
    """Training pairs with more pieces on either side are dropped and counted."""
    max_ratio: Annotated[float, Field(ge=1)] | None = None
    """Training pairs whose longer side has more than this many times the pieces of the other are dropped."""
    drop_duplicates: bool = False
    """Whether a training pair that has occurred before is dropped."""
    remove_overlap: bool = False
    """Whether a training pair is dropped one of whose sides is a source sentence of dev or test, case, blanks and
    punctuation aside."""

    @model_validator(mode="after")
    def _sources_make_sense(self) -> DataConfig:
        """Refuse a source whose sides are one file or one column, a model of it would learn to copy; and made pairs
        to score on."""
        places: list[tuple[KeyPath, Source | None]] = [(("dev",), self.dev), (("test",), self.test)]
        several = len(self.train) > 1
        places += [(("train", place) if several else ("train",), source) for place, source in enumerate(self.train)]
        problems = []
        for path, source in places:
            if source is None:
                continue
            if source.substitutions and path[0] != "train":
                problems.append(Problem((*path, "substitutions"), "scores are of real pairs: only data.train takes it"))
            sides = source.src, source.tgt
            if source.kind in _COLUMNED:
                sides = source.src_column or self.src_lang, source.tgt_column or self.tgt_lang
            if sides[0] is not None and sides[0] == sides[1]:
                what = "column" if source.kind in _COLUMNED else "file"
                keys = "src_column and tgt_column" if what == "column" else "src and tgt"
                problems.append(Problem(path, f"source and target are the same {what}, {sides[0]}: set {keys}"))
        if self.train_alignments is not None and any(source.substitutions for source in self.train):
            text = "has no lines for the pairs that substitutions adds: leave one of the two out"
            problems.append(Problem(("train_alignments",), text))
        if problems:
            raise problems_error(problems)
        return self


class TokenizerConfig(Section):
    """How SentencePiece is trained."""

    vocab_size: Annotated[int, BeforeValidator(whole), Field(ge=8, le=1_000_000)] = 8000
    """Number of pieces, the four special ones included; of each side when not joint."""
    model_type: Literal["unigram", "bpe"] = "unigram"
    """How pieces are learnt."""
    joint: bool = True
    """Whether both languages share one vocabulary."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 1.0
    """Share of the corpus' characters that get a piece; the rest is unknown."""
    byte_fallback: bool = False
    """Whether unknown characters are spelt in bytes."""
    sampling_alpha: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Training pairs are segmented anew in each epoch (Kudo 2018); unigram: exponent of a segmentation's probability,
    smaller is more varied; bpe: probability that a merge is left out, larger is more varied; 0: one segmentation."""
    sample_sentences: Count = 1_000_000
    """Pieces are learnt from at most that many lines."""
