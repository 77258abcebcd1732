"""Inflection tables of the demo grammar: German articles, adjectives, nouns and verbs; English verbs."""

from __future__ import annotations

from dataclasses import dataclass, field

CASES = ("nom", "acc", "dat", "gen")
# Columns of every table below: masculine, feminine, neuter, plural.
COLUMNS = {"m": 0, "f": 1, "n": 2, "pl": 3}

DEFINITE = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "den"),
    "gen": ("des", "der", "des", "der"),
}
EIN_ENDINGS = {
    "nom": ("", "e", "", "e"),
    "acc": ("en", "e", "", "e"),
    "dat": ("em", "er", "em", "en"),
    "gen": ("es", "er", "es", "er"),
}
DIESER_ENDINGS = {
    "nom": ("er", "e", "es", "e"),
    "acc": ("en", "e", "es", "e"),
    "dat": ("em", "er", "em", "en"),
    "gen": ("es", "er", "es", "er"),
}
WEAK = {
    "nom": ("e", "e", "e", "en"),
    "acc": ("en", "e", "e", "en"),
    "dat": ("en", "en", "en", "en"),
    "gen": ("en", "en", "en", "en"),
}
MIXED = {
    "nom": ("er", "e", "es", "en"),
    "acc": ("en", "e", "es", "en"),
    "dat": ("en", "en", "en", "en"),
    "gen": ("en", "en", "en", "en"),
}
STRONG = {
    "nom": ("er", "e", "es", "e"),
    "acc": ("en", "e", "es", "e"),
    "dat": ("em", "er", "em", "en"),
    "gen": ("en", "er", "en", "er"),
}
ADJECTIVE_ENDINGS = {"weak": WEAK, "mixed": MIXED, "strong": STRONG}
RELATIVE = {
    "nom": ("der", "die", "das", "die"),
    "acc": ("den", "die", "das", "die"),
    "dat": ("dem", "der", "dem", "denen"),
    "gen": ("dessen", "deren", "dessen", "deren"),
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}
# Persons: 0 I, 1 you, 2 he/she/NP, 3 we, 4 they/NP.
HABEN = ("habe", "hast", "hat", "haben", "haben")
SEIN = ("bin", "bist", "ist", "sind", "sind")
WAR = ("war", "warst", "war", "waren", "waren")
HATTE = ("hatte", "hattest", "hatte", "hatten", "hatten")
REFLEXIVE = ("mich", "dich", "sich", "uns", "sich")
INSEPARABLE = ("be", "ver", "er", "ent", "zer", "gehör")


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun with its gender and the forms that cannot be derived."""

    cls: str
    en_sg: str
    en_pl: str
    gender: str
    de_sg: str
    de_pl: str
    gen: str
    weak: bool = False

    @property
    def mass(self) -> bool:
        """Say whether the noun has no plural."""
        return self.en_pl == "-"

    def english(self, plural: bool) -> str:
        """Return the English form."""
        return self.en_pl if plural else self.en_sg

    def german(self, case: str, plural: bool) -> str:
        """Return the German form of a case and number."""
        if plural:
            return self.de_pl + "n" if case == "dat" and self.de_pl[-1] not in "ns" else self.de_pl
        if case == "nom":
            return self.de_sg
        if self.weak or case == "gen":
            return self.gen
        return self.de_sg

    def column(self, plural: bool) -> int:
        """Return the table column of the noun's gender or of the plural."""
        return COLUMNS["pl" if plural else self.gender]


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective, the classes of nouns it fits and its comparative."""

    en: str
    de: str
    stem: str
    classes: tuple[str, ...]
    en_comp: str
    de_comp: str

    def german(self, kind: str, case: str, column: int) -> str:
        """Return the attributive form under a weak, mixed or strong pattern."""
        return self.stem + ADJECTIVE_ENDINGS[kind][case][column]


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb pair with its forms, governed arguments and options."""

    frame: str
    en: tuple[str, ...]
    past: tuple[str, ...]
    pp: tuple[str, ...]
    prefix: str
    infinitive: str
    present: tuple[str, ...]
    participle: str
    aux: tuple[str, ...]
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    options: tuple[str, ...] = ()
    preterite: tuple[str, ...] = ()
    manner: tuple[str, ...] = ()
    prep: tuple[str, ...] = ()
    accusative: tuple[str, ...] = field(default=())

    def english_present(self, person: int) -> tuple[str, ...]:
        """Return the English simple present, particles included."""
        if self.en[0] == "be":
            return (("am", "are", "is", "are", "are")[person],)
        return (third_person(self.en[0]) if person == 2 else self.en[0], *self.en[1:])

    def english_past(self, person: int) -> tuple[str, ...]:
        """Return the English simple past, particles included."""
        if self.en[0] == "be":
            return ("was" if person in (0, 2) else "were",)
        return self.past


def third_person(base: str) -> str:
    """Return the English third person singular of a base form."""
    if base == "have":
        return "has"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    if base.endswith(("s", "sh", "ch", "x", "z", "o")):
        return base + "es"
    return base + "s"


def german_stem(infinitive: str) -> str:
    """Return the present stem of an infinitive."""
    return infinitive[:-1] if infinitive.endswith(("ern", "eln")) else infinitive[:-2]


def regular_forms(prefix: str, infinitive: str) -> tuple[str, str, str]:
    """Return the du form, the er form and the participle of a regular verb."""
    stem = german_stem(infinitive)
    link = "e" if stem.endswith(("t", "d", "chn", "ffn")) else ""
    second = stem + ("t" if stem.endswith(("s", "ß", "z", "x")) else link + "st")
    plain = infinitive.endswith("ieren") or (not prefix and infinitive.startswith(INSEPARABLE))
    return second, stem + link + "t", prefix + ("" if plain else "ge") + stem + link + "t"


def german_present(prefix: str, infinitive: str, forms: str) -> tuple[tuple[str, ...], str]:
    """Return the five present forms (no prefix) and the participle; `forms` is "-" or lists the irregular ones."""
    given = forms.split(",") if forms != "-" else list(regular_forms(prefix, infinitive))
    first = given[3] if len(given) > 3 else german_stem(infinitive) + "e"
    if infinitive == "haben":
        first = "habe"
    return (first, given[0], given[1], infinitive, infinitive), given[2]
