"""Subjects, objects, tenses and adverbials of clauses."""

from __future__ import annotations

import random

from demo_clauses import Clause
from demo_lexicon import Lexicon
from demo_morph import Noun, Verb
from demo_phrases import NP, OBJECT_DETS, PLAIN_DETS, PRONOUNS, SUBJECT_DETS, Bi, Phrases

HUMAN = ("per", "kin")
FIRST_PERSON = ("I", "we")
NO_RELATIVES = ("open", "cause", "bill")


class Arguments(Phrases):
    """Draw the parts of a clause; the clauses themselves come from Grammar."""

    def __init__(self, rng: random.Random, lex: Lexicon) -> None:
        super().__init__(rng, lex)
        self.mood = "any"
        self.by_frame: dict[str, list[Verb]] = {}
        for verb in lex.verbs:
            self.by_frame.setdefault(verb.frame, []).append(verb)

    # Subjects and objects

    def subject(self, classes: tuple[str, ...], dets: dict[str, int] = SUBJECT_DETS) -> NP:
        """Draw a subject of the given classes."""
        self_classes = tuple(c for c in classes if c not in HUMAN)
        human = any(c in HUMAN for c in classes)
        if human and not (self_classes and self.chance(0.15)):
            return self.person(dets)
        return self.np(self.lex.matching(self_classes), "nom", {"def": 55, "poss": 15, "dies": 15, "owner": 8})

    def person(self, dets: dict[str, int] = SUBJECT_DETS) -> NP:
        """Draw a human subject."""
        kind = self.weighted({"pronoun": 30, "name": 18, "np": 42, "pair": 8})
        if kind == "pronoun":
            return self.pronoun(self.pick(tuple(PRONOUNS)), "nom")
        if kind == "name":
            return self.name()
        if kind == "pair":
            return self.coordinated("nom", {"def": 50, "poss": 35})
        return self.np(self.lex.matching(HUMAN), "nom", dets)

    def object(self, c: Clause, classes: tuple[str, ...], case: str, dets: dict[str, int], pronoun: bool = True) -> NP:
        """Draw an object; human ones may be names and pronouns."""
        if any(k in HUMAN for k in classes) and not self.chance(0.45 if len(classes) > 2 else 0):
            kind = self.weighted({"pronoun": 22 if pronoun else 0, "name": 20, "np": 50, "pair": 5})
            fitting = [p for p in PRONOUNS if p != c.subj.pronoun and not {p, c.subj.pronoun} <= set(FIRST_PERSON)]
            if kind == "pronoun" and c.subj.pronoun != "-":
                return self.pronoun(self.pick(fitting), case)
            if kind == "name":
                return self.name()
            if kind == "pair":
                return self.coordinated(case, {"def": 50, "poss": 40})
            classes = HUMAN
        negation = c.negation if case == "acc" and not c.absorbed and "indef" in dets and self.chance(0.55) else 0
        if c.negation and not negation:
            dets = PLAIN_DETS
        nouns = [noun for noun in self.lex.matching(classes) if noun != c.subj.noun]
        result = self.np(nouns, case, dets, negation)
        if negation:
            c.absorbed = True
            self.tag("negation: kein")
        return result

    # Tense, negation, adverbials

    def choose_tense(self, c: Clause, group: str, animate: bool) -> None:
        """Set tense and modal within a group (pre, past, fut or any)."""
        verb = c.verb
        modal = 0 if not animate or "nomod" in verb.options else 20
        weights = {"pres": 40, "past": 30, "perf": 8, "modal": modal, "will": 7}
        allowed = {
            "pre": ("pres", "modal", "will"),
            "past": ("past", "modal"),
            "done": ("past",),
            "now": ("pres",),
            "any": tuple(weights),
        }[group]
        if verb.en[0] == "be" or verb.preterite:
            allowed = tuple(t for t in allowed if t != "perf")
        choice = self.weighted({t: w for t, w in weights.items() if t in allowed})
        if choice in ("modal", "will"):
            modals = [m for m in self.lex.modals if (m.tense == "fut") == (choice == "will")]
            modals = [m for m in modals if group == "any" or m.tense in (group, "fut")]
            if c.negation:
                modals = [m for m in modals if m.negatable]
            c.modal, c.tense = self.pick(modals), "modal"
            self.tag("future" if choice == "will" else "modal verb")
            return
        # "They read": a past that looks like the present would make the German ambiguous.
        if choice == "past" and verb.past == verb.en and c.person != 2 and not c.negation:
            if group in ("past", "done"):
                c.modal, c.tense = self.pick([m for m in self.lex.modals if m.tense == "past"]), "modal"
                self.tag("modal verb")
                return
            choice = "pres"
        if choice in ("past", "perf") and not (verb.preterite and choice == "past"):
            self.tag("perfect tense")
        c.tense = choice

    @staticmethod
    def tense_group(c: Clause) -> str:
        """Return what time adverbials the clause takes."""
        if c.modal:
            return c.modal.tense
        return {"pres": "pre", "past": "past", "perf": "perf"}[c.tense]

    def adverbials(self, c: Clause, room: int, front: bool, timed: bool = True) -> None:
        """Add up to `room` adverbials and perhaps front one of them."""
        group, options = self.tense_group(c), c.verb.options
        plain = "once" not in options and (not c.modal or (c.modal.kind == "plain" and c.modal.en[0] != "would"))
        plain = plain and all(word not in ("every", "no") for word, _ in c.subj.en[:1])
        if (self.chance(0.5) if c.tense == "perf" else timed and self.chance(0.12)) and plain and not c.negation:
            fitting = [f for f in self.lex.frequencies if group in f.tenses and c.tense != "modal"]
            if fitting:
                c.frequency = self.fixed(self.pick(fitting))
                room -= 1
        if c.verb.manner and room > 0 and self.chance(0.3) and c.verb.frame in "ITDR":
            manner = self.pick(c.verb.manner)
            c.manner = self.word(manner, self.lex.manners[manner])
            room -= 1
        if "place" in options and room > 0 and self.chance(0.35):
            c.place = self.place()
            room -= 1
        elif "with" in options and room > 0 and self.chance(0.4) and c.subj.pronoun != "-":
            c.place = self.companion()
            room -= 1
        elif "arr" in options and room > 0 and self.chance(0.5):
            c.place = self.arrival()
        elif "dur" in options and room > 0 and self.chance(0.4) and not c.frequency.en and c.tense != "pres":
            c.duration = self.duration()
            room -= 1
        timed = timed and "notime" not in options
        if c.tense != "perf" and room > 0 and self.chance(0.45) and not c.frequency.en and not c.duration.en and timed:
            c.time = self.time(group)
        if front and c.time.en and self.chance(0.5):
            c.front = "time"
        elif front and c.place.en and c.place.en[0][0] in ("in", "at") and self.chance(0.25):
            c.front = "place"
        if c.front:
            self.tag("fronted adverbial")

    # Argument frames

    def arguments(self, c: Clause, gap: str = "", relatives: float = 0.0) -> None:
        """Fill in the arguments of the verb; `gap` names the one a relative pronoun stands for."""
        frame, verb = c.verb.frame, c.verb
        if frame == "T" and gap != "acc":
            phrase = self.object(c, verb.objects, "acc", OBJECT_DETS, "nopron" not in verb.options)
            self.add_object(c, phrase, relatives)
        elif frame == "D" and gap != "dat":
            self.add_object(c, self.object(c, verb.objects, "dat", PLAIN_DETS), relatives)
        elif frame == "G":
            self.ditransitive(c, gap)
        elif frame == "O" and gap != "prep":
            en, de, case = verb.prep
            dets = {**PLAIN_DETS, "indef": 15, "quant": 5}
            phrase = self.object(c, verb.objects, case, dets if not c.negation else PLAIN_DETS)
            c.complement = self.pp(en, de, phrase)
            self.tag("prepositional object")
            self.relative_tail(c, phrase, relatives)
        elif frame == "L" and gap != "loc":
            c.complement = self.location(c)
        elif frame == "R":
            c.complement = self.direction(verb.objects)
        elif frame == "B":
            self.put(c)

    def add_object(self, c: Clause, phrase: NP, relatives: float = 0.0) -> None:
        """Add the only object of a clause."""
        bi = Bi(phrase.en, phrase.de)
        c.english_objects = [bi]
        if phrase.pronoun:
            c.pronouns = [bi]
        elif c.verb.frame == "D" or not phrase.noun:
            c.datives = [bi]
            self.relative_tail(c, phrase, relatives)
        else:
            c.objects = [bi]
            self.relative_tail(c, phrase, relatives)

    def relative_tail(self, c: Clause, phrase: NP, share: float) -> None:
        """Perhaps hang a relative clause on the last noun phrase of the clause."""
        if not phrase.noun or phrase.noun.cls in NO_RELATIVES or phrase.negated or not phrase.simple:
            return
        if self.chance(share):
            c.tail = self.relative(phrase.noun, phrase.plural)

    def ditransitive(self, c: Clause, gap: str) -> None:
        """Add receiver and thing."""
        to = "to" in c.verb.options
        receiver = self.object(c, c.verb.objects, "dat", PLAIN_DETS, pronoun=True)
        dets = {"def": 40, "poss": 15, "indef": 30, "dies": 5}
        thing = NP() if gap == "acc" else self.object(c, c.verb.accusative, "acc", dets, pronoun=False)
        english_receiver = self.receiver(receiver, to or gap == "acc")
        order = [Bi(thing.en, thing.de), english_receiver]
        c.english_objects = order if to else order[::-1]
        receiver_bi = Bi(english_receiver.en, receiver.de)
        if receiver.pronoun:
            c.pronouns, c.objects = [receiver_bi], [order[0]]
        else:
            c.datives, c.objects = [receiver_bi], [order[0]]
        self.tag("two objects")

    def receiver(self, receiver: NP, to: bool) -> Bi:
        """Return the English receiver, with "to" where the verb or the gap asks for it."""
        if not to:
            return Bi(receiver.en, receiver.de)
        key = self.key()
        word, keys = receiver.de[0]
        receiver.de = [(word, (*keys, key)), *receiver.de[1:]]
        return Bi([("to", (key,)), *receiver.en], receiver.de)

    def location(self, c: Clause) -> Bi:
        """Return where somebody or something lies, sits, lives."""
        if "surf" in c.verb.objects and not ("plin" in c.verb.objects and self.chance(0.55)):
            inside = "cont" in c.verb.objects and self.chance(0.4)
            nouns = self.lex.matching(("cont",) if inside else ("surf",))
            dets = {"def": 60, "poss": 15, "dies": 8, "indef": 10, "owner": 6} if not c.negation else PLAIN_DETS
            prep = ("in", "in") if inside else self.pick((("on", "auf"), ("next to", "neben"), ("on", "auf")))
            if c.verb.en[0] == "lie" and not inside:
                prep = self.pick((("on", "auf"), ("under", "unter"), ("next to", "neben")))
            return self.pp(*prep, self.np(nouns, "dat", dets, share=0.25))
        classes = ("plin",) if "plin" in c.verb.objects else c.verb.objects
        return self.place(0.45 if "city" in c.verb.objects else 0, classes)

    def put(self, c: Clause) -> None:
        """Add what is put and where to."""
        self.add_object(c, self.object(c, c.verb.objects, "acc", {"def": 50, "poss": 20, "indef": 25}, False))
        inside = self.chance(0.4)
        nouns = self.lex.matching(("cont",) if inside else ("surf",))
        prep = ("into", "in") if inside else self.pick((("on", "auf"), ("under", "unter"), ("next to", "neben")))
        c.complement = self.pp(*prep, self.np(nouns, "acc", {"def": 60, "poss": 15, "dies": 8, "owner": 5}, share=0.2))

    def relative(self, noun: Noun, plural: bool) -> Bi:
        """Draw a relative clause about a noun."""
        raise NotImplementedError
