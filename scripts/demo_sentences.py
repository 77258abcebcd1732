"""Sentences of the demo grammar: clauses joined by subordination and coordination, rendered as text with links."""

from __future__ import annotations

from dataclasses import dataclass

from demo_clauses import Clause, english, english_question, german_final, german_main
from demo_grammar import ACTIONS, Grammar
from demo_lexicon import Conjunction
from demo_phrases import COMMA, NP, Bi, Tok

UNITS = {"main": 40, "sub": 20, "that": 12, "whether": 4, "so": 5, "try": 6, "purpose": 5, "shared": 9}
SHARED_DETS = {"def": 46, "poss": 20, "indef": 9, "dies": 8, "quant": 8}
QUESTION_WORDS = (("why", "warum"), ("when", "wann"))


@dataclass(frozen=True)
class Pair:
    """A finished sentence pair with its links and constructions."""

    en: str
    de: str
    links: tuple[tuple[int, int], ...]
    tags: tuple[str, ...]

    @property
    def length(self) -> int:
        """Return the number of English words."""
        return len(self.en.split())


def render(toks: list[Tok], mark: str) -> tuple[str, list[tuple[int, ...]]]:
    """Attach punctuation to the words and capitalise the first; return the text and the keys of each word."""
    words: list[str] = []
    keys: list[tuple[int, ...]] = []
    for text, key in toks:
        if text != ",":
            words.append(text)
            keys.append(key)
        elif words and not words[-1].endswith(","):
            words[-1] += ","
    words[-1] = words[-1].rstrip(",") + mark
    words[0] = words[0][0].upper() + words[0][1:]
    return " ".join(words), keys


def finish(bi: Bi, tags: list[str], mark: str) -> Pair:
    """Turn a linked pair of token lists into text with links; every English word must have one."""
    en, en_keys = render(bi.en, mark)
    de, de_keys = render(bi.de, mark)
    places: dict[int, list[int]] = {}
    for j, keys in enumerate(de_keys):
        for key in keys:
            places.setdefault(key, []).append(j)
    links = [(i, j) for i, keys in enumerate(en_keys) for j in sorted({j for key in keys for j in places.get(key, [])})]
    if len({i for i, _ in links}) != len(en_keys):
        raise ValueError(f"an English word got lost in German: {en!r}, {de!r}")
    return Pair(en, de, tuple(links), tuple(tags))


class Sentences(Grammar):
    """Draw whole sentences."""

    def sentence(self, low: int, high: int) -> Pair | None:
        """Draw a sentence of low to high English words; None when the draw missed the range."""
        self.tags = []
        self.last_key = 0
        self.mood = self.weighted({"pre": 38, "past": 34, "any": 28})
        if high <= 20 and self.chance(0.13):
            bi = self.question()
            return finish(bi, self.tags, "?") if low <= len(words(bi)) <= high else None
        target = low + int(self.rng.random() * (high - low + 1))
        bi = self.unit(short=high < 10)
        while len(words(bi)) < min(target, high - 3):
            tags = list(self.tags)
            longer = self.join(bi)
            if len(words(longer)) <= high:
                bi = longer
                continue
            # Too long: keep what fits already, else try another clause.
            self.tags = tags
            if len(words(bi)) >= low:
                break
        return finish(bi, self.tags, ".") if low <= len(words(bi)) <= high else None

    def join(self, bi: Bi) -> Bi:
        """Add a main clause with "and" or "but"."""
        self.tag("coordination of clauses")
        link = self.word("and", "und") if self.chance(0.75) else self.word("but", "aber")
        comma = Bi([COMMA], [COMMA])
        return bi + comma + link + self.unit()

    def unit(self, short: bool = False) -> Bi:
        """Draw a main clause with or without clauses that depend on it."""
        kind = self.weighted({**UNITS, "main": 110} if short else UNITS)
        if kind == "sub":
            return self.subordination(short)
        if kind in ("that", "whether"):
            return self.report(kind, short)
        if kind == "so":
            return self.consequence()
        if kind == "try":
            return self.attempt()
        if kind == "purpose":
            return self.purpose()
        if kind == "shared":
            return self.shared_subject(short)
        return self.main(self.clause(room=0 if short else 1))

    @staticmethod
    def main(c: Clause) -> Bi:
        """Return a main clause."""
        return Bi(english(c), german_main(c))

    def dependent(self, c: Clause, lead: Bi) -> Bi:
        """Return a clause behind a conjunction, verb last in German."""
        self.tag("subordinate clause")
        c.lead = lead
        return Bi(english(c), german_final(c))

    def choose_conjunction(self) -> Conjunction:
        """Draw a subordinating conjunction by its weight."""
        weights = {str(i): conj.weight for i, conj in enumerate(self.lex.conjunctions)}
        return self.lex.conjunctions[int(self.weighted(weights))]

    def subordination(self, short: bool) -> Bi:
        """Return a main clause with a subordinate clause before or behind it."""
        conj = self.choose_conjunction()
        group = self.pick(("now", "past")) if conj.relation == "same" else conj.relation
        if conj.relation in ("past", "same") and group == "past":
            main_group, sub_group = "past", "done"
        elif conj.relation == "pre":
            main_group, sub_group = "pre", "now"
        else:
            mood = self.mood if self.mood != "any" else self.pick(("pre", "past"))
            main_group, sub_group = ("now", "now") if group == "now" else (mood, mood)
        room = 0 if short else 1
        first = self.chance(0.4)
        deeds = "TIDGOLRBPC" if conj.relation == "any" else "TIDGORB"
        main = self.clause(main_group, room=room, front=not first, relatives=0.06, frames=deeds)
        lead = self.word(" ".join(conj.en), conj.de)
        loose = conj.relation == "any"
        clause = self.clause(
            sub_group,
            room=room if loose else 0,
            front=False,
            relatives=0.06,
            negation=0.16 if loose or conj.de == "wenn" else 0,
            frames="TIDGOLRBP" if loose else "TIDGORB",
        )
        if not loose:
            clause.frequency = Bi()
        sub = self.dependent(clause, lead)
        comma = Bi([COMMA], [COMMA])
        if first:
            self.tag("subordinate clause first")
            return sub + comma + Bi(english(main), german_main(main, verb_first=True))
        between = comma if conj.comma else Bi([], [COMMA])
        return self.main(main) + between + sub

    def matrix(self, frame: str, front: bool = True) -> Clause:
        """Return the clause that a that-clause, a whether-clause or an infinitive depends on."""
        verb = self.verb_of(frame)
        share = 0.12 if "deny" in verb.options or frame == "Z" else 0
        c = self.new_clause(verb, self.person(), 1.0 if "neg" in verb.options else share)
        if "neg" in verb.options and not c.negation:
            c.negation = 0
            c.verb = next(v for v in self.by_frame[frame] if "neg" not in v.options)
        self.choose_tense(c, {"pre": "now", "past": "past"}.get(self.mood) or self.pick(("now", "past")), False)
        if front and c.tense == "past" and self.chance(0.2):
            c.time = self.time(self.tense_group(c))
            c.front = "time"
            self.tag("fronted adverbial")
        if c.negation:
            self.tag("negation: nicht")
        return c

    def report(self, kind: str, short: bool) -> Bi:
        """Return "He says that ..." or "She asks whether ..."."""
        matrix = self.matrix("S" if kind == "that" else "W")
        lead = self.word("that", "dass") if kind == "that" else self.word("whether", "ob")
        self.tag("that-clause" if kind == "that" else "whether-clause")
        room = 0 if short else 1
        result = self.main(matrix) + Bi([], [COMMA])
        group = "past" if matrix.tense == "past" else ""
        result = result + self.dependent(self.clause(group, room=room, front=False, relatives=0.06), lead)
        if not short and self.chance(0.15):
            again = self.word("that", "dass") if kind == "that" else self.word("whether", "ob")
            link = self.word("and", "und")
            self.tag("coordination of clauses")
            result = strip_comma(result) + link
            result = result + self.dependent(self.clause(group, room=room, front=False, relatives=0), again)
        return Bi(result.en, [*result.de, COMMA])

    def consequence(self) -> Bi:
        """Return "..., so ... / ..., deshalb ..." with inversion."""
        self.tag("consequence")
        first, second = self.clause(room=0), self.clause(room=0, front=False)
        so = self.word("so", "deshalb")
        result = self.main(first) + Bi([COMMA], [COMMA]) + so
        return result + Bi(english(second), german_main(second, verb_first=True))

    def attempt(self) -> Bi:
        """Return "He tries to ..."."""
        self.tag("infinitive with zu")
        matrix = self.matrix("Z")
        phrase = self.infinitive(controller(matrix.subj), Bi(), self.key())
        return self.main(matrix) + Bi([], [COMMA]) + phrase + Bi([], [COMMA])

    def purpose(self) -> Bi:
        """Return "... in order to ... / ..., um ... zu ..."."""
        self.tag("infinitive with zu")
        main = self.clause(subj=self.person(), room=0, relatives=0, frames=ACTIONS)
        lead = self.word("in order", "um")
        phrase = self.infinitive(controller(main.subj), lead, self.key())
        return self.main(main) + Bi([], [COMMA]) + phrase + Bi([], [COMMA])

    def shared_subject(self, short: bool) -> Bi:
        """Return two predicates of one subject."""
        self.tag("coordination of phrases")
        room = 0 if short else 1
        subj = self.person(SHARED_DETS)
        tags = list(self.tags)
        first = self.clause(subj=subj, room=room, relatives=0.06)
        while first.modal:
            self.tags = list(tags)
            # "They can sing and dance" would leave open whether the second verb depends on the modal.
            first = self.clause(subj=subj, room=room, relatives=0.06)
        group = {"pre": "now", "past": "past", "perf": "past", "fut": ""}[self.tense_group(first)]
        second = self.clause(group, subj=controller(subj), room=room, front=False, relatives=0.06)
        if first.time.en:
            second.time = Bi()
        return self.main(first) + self.word("and", "und") + self.main(second)

    def question(self) -> Bi:
        """Return a question."""
        self.tag("question")
        tags = list(self.tags)
        c = self.clause("any", room=0, front=False, relatives=0)
        while c.tail.en or c.negation or (c.modal and (c.modal.kind != "plain" or len(c.modal.en) > 1)):
            self.tags = list(tags)
            c = self.clause("any", room=0, front=False, relatives=0)
        if self.chance(0.4) and not c.time.en and c.verb.frame not in "PNL":
            c.lead = self.word(*self.pick(QUESTION_WORDS))
        c.front = "question"
        return Bi(english_question(c), c.lead.de + german_main(c, verb_first=True))


def controller(subj: NP) -> NP:
    """Return an unspoken subject with the person of another one."""
    return NP(person=subj.person, pronoun=subj.pronoun, noun=subj.noun)


def strip_comma(bi: Bi) -> Bi:
    """Drop a trailing German comma."""
    de = bi.de[:-1] if bi.de and bi.de[-1] == COMMA else bi.de
    return Bi(bi.en, de)


def words(bi: Bi) -> list[Tok]:
    """Return the English words, without the punctuation."""
    return [tok for tok in bi.en if tok[0] != ","]
