"""Noun phrases, prepositional phrases and adverbials of the demo grammar, as linked pairs of token lists."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeVar

from demo_lexicon import Lexicon, Phrase
from demo_morph import CONTRACTIONS, DEFINITE, DIESER_ENDINGS, EIN_ENDINGS, STRONG, Adjective, Noun

T = TypeVar("T")
# A token is a word with the keys of the lexical items it stands for: words sharing a key are linked.
Tok = tuple[str, tuple[int, ...]]
COMMA: Tok = (",", ())
COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "gray")
BEFORE_COLOUR = ("old", "new", "big", "small", "beautiful", "ugly", "expensive", "cheap", "dirty", "young")
QUANTIFIERS = (("many", "viel"), ("some", "einig"), ("all", "all"))
PRONOUNS = {
    "I": (0, "ich", "me", "mich", "mir"),
    "you": (1, "du", "you", "dich", "dir"),
    "he": (2, "er", "him", "ihn", "ihm"),
    "she": (2, "sie", "her", "sie", "ihr"),
    "we": (3, "wir", "us", "uns", "uns"),
    "they": (4, "sie", "them", "sie", "ihnen"),
}
POSSESSIVES = (("my", "mein"), ("your", "dein"), ("his", "sein"), ("her", "ihr"), ("our", "unser"), ("their", "ihr"))
SUBJECT_DETS = {"def": 46, "poss": 17, "indef": 9, "dies": 8, "jeder": 4, "quant": 10, "kein": 3, "owner": 3}
OBJECT_DETS = {"def": 38, "poss": 15, "indef": 24, "dies": 6, "bare": 7, "quant": 8, "owner": 8}
PLAIN_DETS = {"def": 60, "poss": 22, "dies": 10, "owner": 6}
ONLY_DEF = {"def": 1}


@dataclass
class Bi:
    """A linked pair of token lists."""

    en: list[Tok] = field(default_factory=list)
    de: list[Tok] = field(default_factory=list)

    def __add__(self, other: Bi) -> Bi:
        return Bi(self.en + other.en, self.de + other.de)


@dataclass
class NP(Bi):
    """A noun phrase in one German case, with what clauses need to know about it."""

    person: int = 2
    pronoun: str = ""
    noun: Noun | None = None
    plural: bool = False
    contracts: bool = False
    negated: bool = False
    simple: bool = False
    described: bool = False  # by an adjective


class Phrases:
    """Draw phrases from the lexicon; keys link the words, tags record the constructions used."""

    def __init__(self, rng: random.Random, lex: Lexicon) -> None:
        self.rng = rng
        self.lex = lex
        self.last_key = 0
        self.tags: list[str] = []
        self.fitting_cache: dict[str, list[Adjective]] = {}

    def key(self) -> int:
        """Return a fresh link key."""
        self.last_key += 1
        return self.last_key

    def tag(self, name: str) -> None:
        """Record a construction of the sentence in the making."""
        if name not in self.tags:
            self.tags.append(name)

    def chance(self, share: float) -> bool:
        """Return true in the given share of calls."""
        return self.rng.random() < share

    def pick(self, items: list[T] | tuple[T, ...]) -> T:
        """Draw one item; only random() is used, whose output is the same in every Python version."""
        return items[int(self.rng.random() * len(items))]

    def weighted(self, weights: dict[str, int]) -> str:
        """Draw a key of `weights` by its weight."""
        point = self.rng.random() * sum(weights.values())
        for name, weight in weights.items():
            point -= weight
            if point < 0:
                return name
        return name

    def word(self, en: str, de: str) -> Bi:
        """Return a pair of phrases, every word of one linked to every word of the other."""
        key = (self.key(),)
        if " " not in en and " " not in de:
            return Bi([(en, key)], [(de, key)])
        return Bi([(w, key) for w in en.split()], [(w, key) for w in de.split()])

    def fixed(self, phrase: Phrase) -> Bi:
        """Return a fixed adverbial with the links of the lexicon."""
        en: list[tuple[int, ...]] = [() for _ in phrase.en]
        de: list[tuple[int, ...]] = [() for _ in phrase.de]
        for i, j in phrase.links:
            key = self.key()
            en[i] += (key,)
            de[j] += (key,)
        return Bi(list(zip(phrase.en, en)), list(zip(phrase.de, de)))

    # Noun phrases

    def adjectives(self, noun: Noun, share: float = 0.33) -> list[Adjective]:
        """Draw no, one or two adjectives that fit the noun."""
        if not self.chance(share):
            return []
        fitting = self.fitting(noun)
        if not fitting:
            return []
        self.tag("attributive adjective")
        first = self.pick(fitting)
        colours = [a for a in fitting if a.en in COLOURS]
        if first.en in BEFORE_COLOUR and colours and self.chance(0.3):
            return [first, self.pick(colours)]
        return [first]

    def fitting(self, noun: Noun) -> list[Adjective]:
        """Return the adjectives that fit a noun."""
        if noun.en_sg not in self.fitting_cache:
            fits = [a for a in self.lex.adjectives if noun.cls in a.classes or "=" + noun.en_sg in a.classes]
            self.fitting_cache[noun.en_sg] = fits
        return self.fitting_cache[noun.en_sg]

    def determiner(self, det: str, case: str, noun: Noun, plural: bool, negation: int) -> tuple[Bi, str]:
        """Return the article pair and the adjective pattern it asks for."""
        column = noun.column(plural)
        if det == "def":
            return self.word("the", DEFINITE[case][column]), "weak"
        if det == "indef":
            return self.word("a", "ein" + EIN_ENDINGS[case][column]), "mixed"
        if det == "neg":
            # "not ... a" and "kein" are one item: both English words link to it.
            key = self.key()
            en: list[Tok] = [] if plural or noun.mass else [("a", (key,))]
            return Bi(en, [("kein" + EIN_ENDINGS[case][column], (key, negation))]), "mixed"
        if det == "kein":
            self.tag("negation: kein")
            return self.word("no", "kein" + EIN_ENDINGS[case][column]), "mixed"
        if det == "poss":
            self.tag("possessive")
            en_poss, de_poss = self.pick(POSSESSIVES)
            return self.word(en_poss, de_poss + EIN_ENDINGS[case][column]), "mixed"
        if det == "dies":
            return self.word("these" if plural else "this", "dies" + DIESER_ENDINGS[case][column]), "weak"
        if det == "jeder":
            return self.word("every", "jed" + DIESER_ENDINGS[case][column]), "weak"
        if det == "quant":
            return self.quantifier(case)
        return Bi(), "strong"

    def quantifier(self, case: str) -> tuple[Bi, str]:
        """Return a number word or a quantifier of a plural noun."""
        if self.chance(0.55):
            self.tag("number word")
            en, de = self.pick(self.lex.numbers)
            return self.word(en, de), "strong"
        en, de = self.pick(QUANTIFIERS)
        return self.word(en, de + STRONG[case][3]), "weak" if en == "all" else "strong"

    def choose_determiner(self, noun: Noun, dets: dict[str, int], negation: int) -> tuple[str, bool]:
        """Choose a determiner and a number that go together."""
        if negation:
            return "neg", not noun.mass and self.chance(0.25)
        if noun.mass:
            mass = {"def": 40, "bare": 40 if "bare" in dets else 0, "poss": 10 if "poss" in dets else 0}
            return self.weighted(mass), False
        det = self.weighted(dets)
        if noun.cls == "kin" and (det not in ("def", "dies", "owner") or self.chance(0.75)):
            det = "poss"
        if noun.cls == "pub" and det in ("owner", "poss"):
            det = "def"
        if det in ("owner", "poss") and noun.cls in ("plin", "plat", "per") and noun.en_sg not in OWNED:
            det = "def"
        if noun.en_sg in ("mother", "father"):
            return det, False
        if det in ("quant", "bare"):
            return det, True
        return det, det not in ("indef", "jeder", "kein") and self.chance(0.22)

    def np(self, nouns: list[Noun], case: str, dets: dict[str, int], negation: int = 0, share: float = 0.33) -> NP:
        """Draw a noun phrase in a case; a negation key asks for "kein"."""
        noun = self.pick(nouns)
        det, plural = self.choose_determiner(noun, dets, negation)
        if det == "owner":
            return self.owned(noun, case, plural)
        pair, kind = self.determiner(det, case, noun, plural, negation)
        result = self.assemble(pair, kind, noun, case, plural, share)
        result.contracts, result.negated = det == "def", bool(negation)
        result.simple = det in ("def", "dies", "indef", "quant")
        return result

    def assemble(self, det: Bi, kind: str, noun: Noun, case: str, plural: bool, share: float) -> NP:
        """Put article, adjectives and noun together."""
        words = Bi()
        adjectives = self.adjectives(noun, share)
        for adjective in adjectives:
            words = words + self.word(adjective.en, adjective.german(kind, case, noun.column(plural)))
        words = words + self.word(noun.english(plural), noun.german(case, plural))
        en = det.en + words.en
        if en[0][0] == "a" and takes_an(words.en[0][0]):
            en[0] = ("an", en[0][1])
        self.tag(f"noun phrase: {CASE_NAMES[case]}")
        result = NP(en, det.de + words.de, person=4 if plural else 2, noun=noun, plural=plural)
        result.described = bool(adjectives)
        return result

    def owned(self, noun: Noun, case: str, plural: bool) -> NP:
        """Return "Anna's car / Annas Auto" or "the teacher's car / das Auto des Lehrers"."""
        self.tag("genitive")
        if self.chance(0.5):
            name = self.pick(self.lex.names)
            self.tag("person name")
            return self.assemble(self.word(name + "'s", name + "s"), "strong", noun, case, plural, 0.3)
        head = self.assemble(Bi([], [(DEFINITE[case][noun.column(plural)], ())]), "weak", noun, case, plural, 0.25)
        person = self.pick(self.lex.matching(("per",)))
        owner = self.np([person], "gen", {"def": 50, "poss": 30, "dies": 10}, share=0.15)
        while owner.plural:
            owner = self.np([person], "gen", ONLY_DEF, share=0.15)
        last, keys = owner.en[-1]
        head.en = [*owner.en[:-1], (last + "'s", keys), *head.en]
        head.de = head.de + owner.de
        head.contracts = True
        return head

    def name(self) -> NP:
        """Draw a person name."""
        self.tag("person name")
        name = self.pick(self.lex.names)
        pair = self.word(name, name)
        return NP(pair.en, pair.de, pronoun="")

    def pronoun(self, english: str, case: str) -> NP:
        """Return a personal pronoun in a case."""
        person, nom, en_object, acc, dat = PRONOUNS[english]
        pair = self.word(english if case == "nom" else en_object, {"nom": nom, "acc": acc, "dat": dat}[case])
        return NP(pair.en, pair.de, person=person, pronoun=english)

    def coordinated(self, case: str, dets: dict[str, int]) -> NP:
        """Return two persons joined by "and"."""
        self.tag("coordination of phrases")
        persons = self.lex.matching(("per", "kin"))
        first = self.name() if self.chance(0.4) else self.np(persons, case, dets, share=0.15)
        second = self.name() if self.chance(0.4) else self.np(persons, case, dets, share=0.15)
        pair = first + self.word("and", "und") + second
        return NP(pair.en, pair.de, person=4)

    # Prepositional phrases and adverbials

    def pp(self, en: str, de: str, phrase: NP) -> Bi:
        """Join a preposition and a noun phrase; German contracts it with a definite article."""
        prep = self.word(en, de)
        contracted = CONTRACTIONS.get((de, phrase.de[0][0])) if phrase.contracts else None
        if contracted:
            self.tag("contraction")
            keys = prep.de[0][1] + phrase.de[0][1]
            return Bi(prep.en + phrase.en, [(contracted, keys), *phrase.de[1:]])
        return prep + Bi(phrase.en, phrase.de)

    def city(self, en: str, de: str) -> Bi:
        """Return a preposition with the name of a city or country."""
        self.tag("place name")
        city = self.pick(self.lex.cities)
        return self.word(en, de) + self.word(*city)

    def place(self, share_of_cities: float = 0.35, inside: tuple[str, ...] = ("plin",)) -> Bi:
        """Return where something happens."""
        if self.chance(share_of_cities):
            return self.city("in", "in")
        if inside == ("plin",) and self.chance(0.25):
            return self.pp("at", "an", self.np(self.lex.matching(("plat",)), "dat", ONLY_DEF, share=0.1))
        dets = {"def": 60, "indef": 12, "poss": 8, "dies": 8, "owner": 6}
        return self.pp("in", "in", self.np(self.lex.matching(inside), "dat", dets, share=0.25))

    def direction(self, objects: tuple[str, ...]) -> Bi:
        """Return where somebody goes."""
        kind = self.pick([o for o in objects if o in ("city", "to", "into")])
        if kind == "city":
            return self.city("to", "nach")
        places = self.lex.matching(("plin", "plat") if kind == "to" else ("plin",))
        if kind == "to":
            places = [noun for noun in places if noun.en_sg not in ("kitchen", "room", "city")]
        noun_phrase_dets = {"def": 70, "owner": 8, "dies": 10}
        if kind == "to":
            return self.pp("to", "zu", self.np(places, "dat", noun_phrase_dets, share=0.2))
        return self.pp("into", "in", self.np(places, "acc", {**noun_phrase_dets, "indef": 15}, share=0.2))

    def arrival(self) -> Bi:
        """Return where somebody or something arrives."""
        if self.chance(0.6):
            return self.city("in", "in")
        goals = self.lex.matching(("=station", "=airport", "=beach"))
        return self.pp("at", "an", self.np(goals, "dat", ONLY_DEF, share=0.1))

    def companion(self) -> Bi:
        """Return "with" and a person or persons."""
        persons = self.lex.matching(("per", "kin"))
        dets = {"def": 30, "poss": 40, "indef": 12, "bare": 12, "quant": 8}
        phrase = self.name() if self.chance(0.3) else self.np(persons, "dat", dets, share=0.3)
        return self.pp("with", "mit", phrase)

    def digits(self, number: int) -> Bi:
        """Return a number in digits."""
        self.tag("number in digits")
        return self.word(str(number), str(number))

    def time(self, tense: str) -> Bi:
        """Return a time adverbial that goes with the tense: pre, past or fut."""
        kinds = {"fixed": 50, "clock": 10, "event": 14, "cause": 12}
        if tense == "past":
            kinds.update({"ago": 8, "year": 14})
        kind = self.weighted(kinds)
        if kind == "clock":
            number = 1 + int(self.rng.random() * 12)
            return self.word("at", "um") + self.digits(number) + self.word("o'clock", "Uhr")
        if kind == "year":
            year = 1960 + int(self.rng.random() * 60)
            return self.word("in", "im") + Bi([], [("Jahr", ())]) + self.digits(year)
        if kind == "ago":
            self.tag("number word")
            unit, _, dative = self.pick(self.lex.units)
            count = self.word(*self.pick(self.lex.numbers))
            ago, noun = self.word("ago", "vor"), self.word(unit, dative)
            return Bi(count.en + noun.en + ago.en, ago.de + count.de + noun.de)
        if kind == "event":
            return self.event()
        if kind == "cause":
            self.tag("genitive")
            en, de = self.pick((("because of", "wegen"), ("despite", "trotz")))
            return self.pp(en, de, self.np(self.lex.matching(("cause",)), "gen", ONLY_DEF, share=0))
        return self.fixed(self.pick([t for t in self.lex.times if tense in t.tenses]))

    def event(self) -> Bi:
        """Return "after the concert" and the like."""
        en, de, case = self.pick((("after", "nach", "dat"), ("before", "vor", "dat"), ("during", "während", "gen")))
        if case == "gen":
            self.tag("genitive")
        return self.pp(en, de, self.np(self.lex.matching(("event",)), case, {"def": 70, "dies": 10}, share=0.15))

    def duration(self) -> Bi:
        """Return "for three hours / drei Stunden lang"."""
        self.tag("number word")
        unit, nominative, _ = self.pick(self.lex.units)
        number, noun = self.word(*self.pick(self.lex.numbers)), self.word(unit, nominative)
        span = self.word("for", "lang")
        return Bi(span.en + number.en + noun.en, number.de + noun.de + span.de)


# Places and persons that go with possessives.
OWNED = (
    *("house", "garden", "kitchen", "office", "room", "apartment", "hotel", "restaurant", "café", "school"),
    *("teacher", "doctor", "student", "neighbor", "child", "friend", "cook", "lawyer", "customer", "colleague"),
    *("boss", "guest", "professor", "gardener"),
)


def takes_an(word: str) -> bool:
    """Say whether the English article before a word is "an"."""
    return word == "honest" or (word[0] in "aeiou" and not word.startswith("universit"))


CASE_NAMES = {"nom": "nominative", "acc": "accusative", "dat": "dative", "gen": "genitive"}
