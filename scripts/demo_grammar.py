"""The synchronous grammar: draws clauses that mean the same in English and German."""

from __future__ import annotations

from demo_arguments import HUMAN, Arguments
from demo_clauses import Clause, english, english_infinitive, german_final, german_infinitive
from demo_lexicon import BE
from demo_morph import RELATIVE, Noun, Verb
from demo_phrases import COMMA, NP, PLAIN_DETS, Bi

ANIMATE = ("per", "kin", "ani")
FRAMES = {"T": 36, "I": 13, "D": 9, "G": 11, "O": 12, "L": 8, "R": 9, "B": 5, "P": 8, "C": 5, "N": 6}
RELATIVE_FRAMES = {"T": 30, "I": 14, "D": 9, "G": 7, "O": 12, "L": 12, "R": 6, "P": 10}
INFINITIVE_FRAMES = {"T": 40, "I": 12, "D": 10, "G": 14, "O": 14, "R": 10, "B": 4}
# Frames of deeds with a purpose.
ACTIONS = "TIDGRB"
PRICES = {
    "veh": tuple(range(1000, 10000, 500)),
    "dear": tuple(range(100, 1000, 50)),
    "thing": tuple(range(5, 100, 5)),
}
PREDICATE_DETS = {"def": 46, "poss": 20, "dies": 10, "jeder": 3, "quant": 8, "owner": 6}
STATES = ("tired", "happy", "sad", "sick", "hungry", "angry", "nervous", "quiet")
COST = Verb(
    frame="N",
    en=("cost",),
    past=("cost",),
    pp=("cost",),
    prefix="",
    infinitive="kosten",
    present=("koste", "kostest", "kostet", "kosten", "kosten"),
    participle="gekostet",
    aux=("habe", "hast", "hat", "haben", "haben"),
    subjects=(),
    objects=(),
)


def age_range(noun: Noun | None) -> tuple[int, int]:
    """Return the youngest and the oldest age in years that suit a noun."""
    if noun is None:
        return 18, 89
    if noun.cls == "ani":
        return 2, 12
    ranges = {"child": (6, 16), "boy": (6, 16), "girl": (6, 16), "pupil": (6, 16), "student": (18, 30)}
    ranges.update({"son": (2, 50), "daughter": (2, 50), "grandmother": (60, 89), "grandfather": (60, 89)})
    return ranges.get(noun.en_sg, (20, 70))


class Grammar(Arguments):
    """Draw clauses from the lexicon."""

    def new_clause(self, verb: Verb, subj: NP, negation: float) -> Clause:
        """Start a clause, negated in the given share of cases."""
        c = Clause(subj, verb, "pres", self.key(), self.key(), person=subj.person)
        quantified = any(tok[0] in ("every", "no", "all", "many", "some") for tok in subj.en[:1])
        if self.chance(negation) and not quantified:
            c.negation = self.key()
        return c

    def verb_of(self, frame: str, animate_only: bool = False) -> Verb:
        """Draw a verb of a frame."""
        return self.pick([v for v in self.by_frame[frame] if not animate_only or "only" not in v.options])

    def clause(
        self,
        group: str = "",
        subj: NP | None = None,
        room: int = 1,
        front: bool = True,
        relatives: float = 0.16,
        negation: float = 0.16,
        frames: str = "TIDGOLRBPCN",
    ) -> Clause:
        """Draw a full clause; a given subject must be human. Without a group the sentence's own tense rules."""
        group = group or self.mood
        frame = self.weighted({f: w for f, w in FRAMES.items() if f in frames and (subj is None or f not in "CN")})
        if frame in "PCN":
            return self.predicate(frame, group, subj, front)
        verbs = [v for v in self.by_frame[frame] if subj is None or "per" in v.subjects]
        if frames == ACTIONS:
            verbs = [v for v in verbs if "nomod" not in v.options and "nopurpose" not in v.options]
        verb = self.pick(verbs)
        if subj is None:
            subj = self.subject(verb.subjects)
            if subj.noun and subj.simple and self.chance(relatives):
                subj = self.with_relative(subj)
        c = self.new_clause(verb, subj, 0 if frames == ACTIONS else negation)
        self.choose_tense(c, group, "per" in verb.subjects)
        if c.tense == "perf" or (c.tense == "past" and not c.verb.preterite):
            self.tag("perfect tense")
        ends_in_noun = frame in "TDO" and self.chance(relatives * 1.6)
        self.arguments(c, relatives=1.0 if ends_in_noun else 0.0)
        self.finish(c, room, front)
        return c

    def finish(self, c: Clause, room: int, front: bool, timed: bool = True) -> None:
        """Add adverbials and record what the clause shows."""
        if c.tail.en:
            self.adverbials(c, 0, front, timed)
        else:
            self.adverbials(c, room + int(self.chance(0.3)), front, timed)
        if c.negation and not c.absorbed:
            self.tag("negation: nicht")
        if c.verb.prefix:
            self.tag("separable verb")
        if c.reflexive:
            self.tag("reflexive verb")

    def with_relative(self, subj: NP) -> NP:
        """Return a subject with a relative clause."""
        assert subj.noun is not None
        clause = self.relative(subj.noun, subj.plural)
        subj.en = subj.en + clause.en
        subj.de = [*subj.de, COMMA, *clause.de, COMMA]
        return subj

    def predicate(self, frame: str, group: str, subj: NP | None, front: bool) -> Clause:
        """Return "is tired", "is older than ...", "costs 50 euros" or "is 34 years old"."""
        if frame == "N":
            return self.number_clause(group)
        if subj is None:
            classes = ANIMATE if self.chance(0.6) else ("thing", "cloth", "veh", "read", "plin", "food", "abs", "pub")
            tags = list(self.tags)
            subj = self.subject(classes, PREDICATE_DETS)
            while subj.described:
                self.tags = list(tags)
                subj = self.subject(classes, PREDICATE_DETS)
        c = self.new_clause(BE, subj, 0.14 if frame == "P" else 0)
        self.choose_tense(c, group if group != "any" else self.pick(("pre", "past")), False)
        cls = subj.noun.cls if subj.noun else "per"
        fitting = self.fitting(subj.noun) if subj.noun else [a for a in self.lex.adjectives if cls in a.classes]
        if c.modal:
            fitting = [a for a in fitting if a.en not in ("old", "young", "new")]
        compared = [a for a in fitting if a.de_comp != "-" and cls in a.classes]
        if frame == "C" and subj.noun and not subj.noun.mass and compared:
            fitting = compared
            adjective = self.pick(fitting)
            than = self.word("than", "als")
            others = [n for n in self.lex.nouns if n.cls == cls and n != subj.noun and adjective in self.fitting(n)]
            other = self.np(others, "nom", PLAIN_DETS, share=0.15)
            pair = self.word(adjective.de_comp, adjective.de_comp)
            en = [(w, pair.de[0][1]) for w in adjective.en_comp.split()]
            c.complement, c.than = Bi(en, pair.de), than + Bi(other.en, other.de)
            self.tag("comparative")
        else:
            adjective = self.pick(fitting)
            c.complement = self.word(adjective.en, adjective.de)
            self.tag("predicative adjective")
        if c.negation:
            self.tag("negation: nicht")
        if frame == "P" and self.chance(0.25) and cls in ANIMATE and adjective.en in STATES:
            c.time = self.time(self.tense_group(c))
            if front and self.chance(0.4):
                c.front = "time"
                self.tag("fronted adverbial")
        return c

    def number_clause(self, group: str) -> Clause:
        """Return a clause about a price or an age."""
        if self.chance(0.5):
            subj = self.person(PLAIN_DETS)
            if self.chance(0.3):
                subj = self.np(self.lex.matching(("ani",)), "nom", {"def": 1, "poss": 1})
            c = self.new_clause(BE, subj, 0)
            low, high = age_range(subj.noun)
            age = low + int(self.rng.random() * (high - low + 1))
            c.tense = "past" if group == "past" else "pres"
            c.complement = self.digits(age) + self.word("years", "Jahre") + self.word("old", "alt")
            return c
        goods = self.lex.matching(("thing", "cloth", "veh", "surf", "dev", "cont"))
        subj = self.np(goods, "nom", {"def": 60, "dies": 40})
        c = self.new_clause(COST, subj, 0.1)
        c.tense = "past" if group == "past" and (c.negation or not subj.plural) else "pres"
        if c.negation:
            self.tag("negation: nicht")
        if c.tense == "past":
            self.tag("perfect tense")
        assert subj.noun is not None
        dear = subj.noun.cls in ("dev", "surf") or subj.noun.en_sg in ("piano", "guitar", "clock")
        prices = PRICES["veh" if subj.noun.cls == "veh" else "dear" if dear else "thing"]
        c.complement = self.digits(self.pick(prices)) + self.word("euros", "Euro")
        return c

    # Relative clauses

    def relative(self, noun: Noun, plural: bool) -> Bi:
        """Draw a relative clause about a noun."""
        self.tag("relative clause")
        human = noun.cls in HUMAN
        weights = {"subj": 50, "acc": 28}
        if human:
            weights.update({"dat": 10, "gen": 10, "prep": 6})
        elif noun.cls in ("plin",):
            weights["loc"] = 40
        else:
            weights["prep"] = 8
        kind = self.weighted(weights)
        verbs = self.gap_verbs(noun, kind)
        if kind in ("acc", "dat", "prep") and not verbs:
            kind = "subj"
        column = noun.column(plural)
        if kind == "subj":
            return self.subject_relative(noun, plural, column)
        if kind == "gen":
            return self.whose(column)
        return self.object_relative(noun, kind, column, verbs)

    def gap_verbs(self, noun: Noun, kind: str) -> list[Verb]:
        """Return the verbs whose object a relative pronoun may stand for."""
        frames = {"acc": ("T", "G"), "dat": ("D",), "prep": ("O",), "loc": ("L",)}.get(kind, ())
        result = []
        for frame in frames:
            for verb in self.by_frame[frame]:
                objects = verb.accusative if frame == "G" else verb.objects
                if (noun.cls in objects or "=" + noun.en_sg in objects) and "only" not in verb.options:
                    result.append(verb)
        return result

    def subject_relative(self, noun: Noun, plural: bool, column: int) -> Bi:
        """Return "who lives in Berlin"."""
        pair = self.word("who" if noun.cls in HUMAN else "that", RELATIVE["nom"][column])
        subj = NP(pair.en, pair.de, person=4 if plural else 2, pronoun="-")
        verbs = [
            v
            for v in self.lex.verbs
            if v.frame in "TIDOLRG"
            and "once" not in v.options
            and (noun.cls in v.subjects or "=" + noun.en_sg in v.subjects)
        ]
        if self.fitting(noun) and (not verbs or self.chance(0.12)):
            return self.predicate_relative(noun, subj)
        frames = {f: w for f, w in RELATIVE_FRAMES.items() if any(v.frame == f for v in verbs)}
        frame = self.weighted(frames)
        c = self.new_clause(self.pick([v for v in verbs if v.frame == frame]), subj, 0.1)
        self.choose_tense(c, "any", False)
        self.arguments(c)
        self.finish(c, 1, False)
        return Bi(english(c), german_final(c))

    def predicate_relative(self, noun: Noun, subj: NP) -> Bi:
        """Return "that is old"."""
        c = self.new_clause(BE, subj, 0)
        self.choose_tense(c, self.pick(("pre", "past")), False)
        adjective = self.pick(self.fitting(noun))
        c.complement = self.word(adjective.en, adjective.de)
        self.tag("predicative adjective")
        return Bi(english(c), german_final(c))

    def whose(self, column: int) -> Bi:
        """Return "whose brother lives in Berlin"."""
        self.tag("genitive")
        whose = self.word("whose", RELATIVE["gen"][column])
        noun = self.pick(self.lex.matching(("kin",)))
        plural = noun.en_sg not in ("mother", "father") and self.chance(0.25)
        # No article: the relative pronoun stands in its place, and an adjective is strong.
        kin = self.assemble(Bi(), "strong", noun, "nom", plural, 0.15)
        pair = whose + Bi(kin.en, kin.de)
        subj = NP(pair.en, pair.de, person=kin.person, noun=kin.noun)
        c = self.clause("any", subj, 0, front=False, relatives=0)
        return Bi(english(c), german_final(c))

    def object_relative(self, noun: Noun, kind: str, column: int, verbs: list[Verb]) -> Bi:
        """Return "whom the teacher helps", "for which the teacher waits", "in which he lives"."""
        which = "whom" if noun.cls in HUMAN else ("that" if kind == "acc" else "which")
        if kind == "loc":
            verbs = [v for v in verbs if v.en[0] in ("live", "stay", "sit")]
        verb = self.pick(verbs)
        case = {"acc": "acc", "dat": "dat", "loc": "dat"}.get(kind, verb.prep[2] if verb.prep else "")
        pronoun = self.word(which, RELATIVE[case][column])
        if kind == "prep":
            pronoun = self.word(verb.prep[0], verb.prep[1]) + pronoun
        if kind == "loc":
            pronoun = self.word("in", "in") + pronoun
        subj = self.subject(tuple(k for k in verb.subjects if k in ANIMATE))
        c = self.new_clause(verb, subj, 0.1)
        c.lead = pronoun
        self.choose_tense(c, "any", False)
        self.arguments(c, gap=kind)
        self.finish(c, 1, False)
        return Bi(english(c), german_final(c))

    # Infinitive phrases

    def infinitive(self, subj: NP, lead: Bi, marker: int) -> Bi:
        """Return an infinitive phrase about the subject of the clause before."""
        frame = self.weighted(INFINITIVE_FRAMES)
        verbs = [v for v in self.by_frame[frame] if "per" in v.subjects and "nomod" not in v.options]
        verbs = [v for v in verbs if "nopurpose" not in v.options or v.en[0] in ("understand", "sleep")]
        if lead.de:
            # No "um um ... zu".
            verbs = [v for v in verbs if v.prep[1:2] != ("um",)]
        c = self.new_clause(self.pick(verbs), subj, 0)
        c.lead = lead
        self.arguments(c)
        # No time behind "um": "um um 9 Uhr ... zu".
        self.finish(c, 1, False, timed=not lead.de and self.chance(0.25))
        c.frequency = Bi()
        return Bi(lead.en + english_infinitive(c, marker), german_infinitive(c, marker))
