"""Read the lexicon of the demo grammar (demo_lexicon.tsv)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from demo_morph import HABEN, HATTE, SEIN, WAR, Adjective, Noun, Verb, german_present

LEXICON_FILE = Path(__file__).with_name("demo_lexicon.tsv")


@dataclass(frozen=True)
class Phrase:
    """A fixed adverbial with its links and the tenses it goes with."""

    en: tuple[str, ...]
    de: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    tenses: tuple[str, ...]


@dataclass(frozen=True)
class Modal:
    """A modal verb with its German forms by person."""

    en: tuple[str, ...]
    base: tuple[str, ...]
    forms: tuple[str, ...]
    tense: str
    kind: str
    negatable: bool


@dataclass(frozen=True)
class Conjunction:
    """A subordinating conjunction, the tenses it allows and whether English sets a comma."""

    en: tuple[str, ...]
    de: str
    relation: str
    comma: bool
    weight: int


@dataclass
class Lexicon:
    """All entries, in the order of the file."""

    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nouns: list[Noun] = field(default_factory=list)
    adjectives: list[Adjective] = field(default_factory=list)
    verbs: list[Verb] = field(default_factory=list)
    modals: list[Modal] = field(default_factory=list)
    times: list[Phrase] = field(default_factory=list)
    frequencies: list[Phrase] = field(default_factory=list)
    manners: dict[str, str] = field(default_factory=dict)
    units: list[tuple[str, str, str]] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    conjunctions: list[Conjunction] = field(default_factory=list)
    cities: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    matches: dict[tuple[str, ...], list[Noun]] = field(default_factory=dict)

    def matching(self, classes: tuple[str, ...]) -> list[Noun]:
        """Return the nouns of the given classes; "=word" names a single noun."""
        if classes not in self.matches:
            fitting = [noun for noun in self.nouns if noun.cls in classes or "=" + noun.en_sg in classes]
            self.matches[classes] = fitting
        return self.matches[classes]

    def expand(self, text: str) -> tuple[str, ...]:
        """Replace aliases by the classes they stand for."""
        result: list[str] = []
        for word in text.replace(",", " ").split():
            parts = self.expand(" ".join(self.aliases[word])) if word in self.aliases else (word,)
            result.extend(part for part in parts if part != "-")
        return tuple(result)


def parse_verb(lex: Lexicon, row: list[str]) -> Verb:
    """Build a verb from its columns."""
    frame, base, past, pp, german, forms, aux, subjects, objects, options = row
    prefix, _, infinitive = german.rpartition("+")
    present, participle = german_present(prefix, infinitive, forms)
    flags, values = [], {"man": "", "prep": "", "acc": "", "pret": ""}
    for word in options.split():
        name, equals, value = word.partition("=")
        if equals:
            values[name] = value
        elif word != "-":
            flags.append(word)
    return Verb(
        frame=frame,
        en=tuple(base.split()),
        past=tuple(past.split()),
        pp=tuple(pp.split()),
        prefix=prefix,
        infinitive=infinitive,
        present=present,
        participle=participle,
        aux=SEIN if aux == "s" else HABEN,
        subjects=lex.expand(subjects),
        objects=lex.expand(objects),
        options=tuple(flags),
        preterite=HATTE if values["pret"] else (),
        manner=tuple(values["man"].split(",")) if values["man"] else (),
        prep=tuple(values["prep"].split(",")) if values["prep"] else (),
        accusative=lex.expand(values["acc"]),
    )


def parse_phrase(row: list[str]) -> Phrase:
    """Build a fixed adverbial from its columns."""
    links = [tuple(map(int, link.split("-"))) for link in row[2].split()]
    return Phrase(tuple(row[0].split()), tuple(row[1].split()), tuple((a, b) for a, b in links), tuple(row[3].split()))


def parse_modal(row: list[str]) -> Modal:
    """Build a modal verb from its columns."""
    forms = row[2].split(",")
    return Modal(tuple(row[0].split()), tuple(row[1].split()), (*forms, forms[3]), row[3], row[4], row[5] == "neg")


def add_row(lex: Lexicon, kind: str, row: list[str]) -> None:
    """Add one line of the file to the lexicon."""
    if kind == "alias":
        lex.aliases[row[0]] = tuple(row[1].split())
    elif kind == "noun":
        cls, en_sg, en_pl, gender, de_sg, de_pl, gen = row[:7]
        lex.nouns.append(Noun(cls, en_sg, en_pl, gender, de_sg, de_pl, de_sg if gen == "-" else gen, len(row) > 7))
    elif kind == "adj":
        stem = row[1] if row[2] == "-" else row[2]
        lex.adjectives.append(Adjective(row[0], row[1], stem, lex.expand(row[3]), row[4], row[5]))
    elif kind == "verb":
        lex.verbs.append(parse_verb(lex, row))
    elif kind == "modal":
        lex.modals.append(parse_modal(row))
    elif kind == "time":
        lex.times.append(parse_phrase(row))
    elif kind == "freq":
        lex.frequencies.append(parse_phrase([row[0], row[1], "0-0", row[2]]))
    elif kind == "manner":
        lex.manners[row[0]] = row[1]
    elif kind == "unit":
        lex.units.append((row[0], row[1], row[2]))
    elif kind == "number":
        lex.numbers.append((row[0], row[1]))
    elif kind == "conj":
        lex.conjunctions.append(Conjunction(tuple(row[0].split()), row[1], row[2], row[3] == ",", int(row[4])))
    elif kind == "city":
        lex.cities.append((row[0], row[1]))
    elif kind == "name":
        lex.names.append(row[0])
    else:
        raise ValueError(f"unknown kind of lexicon line: {kind}")


def check(lex: Lexicon) -> None:
    """Refuse class names that no noun carries, which would silently narrow the grammar."""
    known = {noun.cls for noun in lex.nouns} | {"=" + noun.en_sg for noun in lex.nouns} | {"city", "to", "into"}
    for verb in lex.verbs:
        for cls in (*verb.subjects, *verb.objects, *verb.accusative):
            if cls not in known:
                raise ValueError(f"verb {' '.join(verb.en)}: unknown class {cls}")
    for adjective in lex.adjectives:
        for cls in adjective.classes:
            if cls not in known:
                raise ValueError(f"adjective {adjective.en}: unknown class {cls}")


def load(path: Path = LEXICON_FILE) -> Lexicon:
    """Read and check the lexicon."""
    lex = Lexicon()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            kind, *row = line.split("\t")
            add_row(lex, kind, row)
    check(lex)
    return lex


BE = Verb(
    frame="P",
    en=("be",),
    past=("was",),
    pp=("been",),
    prefix="",
    infinitive="sein",
    present=SEIN,
    participle="gewesen",
    aux=SEIN,
    subjects=(),
    objects=(),
    preterite=WAR,
)
