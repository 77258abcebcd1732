"""Clauses of the demo grammar and their English and German word order."""

from __future__ import annotations

from dataclasses import dataclass, field

from demo_lexicon import Modal
from demo_morph import REFLEXIVE, Verb, third_person
from demo_phrases import COMMA, NP, Bi, Tok

DO = ("do", "do", "does", "do", "do")
HAVE = ("have", "have", "has", "have", "have")


@dataclass
class Clause:
    """A clause before it gets a word order."""

    subj: NP
    verb: Verb
    tense: str  # pres, past, perf or modal
    key: int
    aux_key: int
    modal: Modal | None = None
    negation: int = 0
    absorbed: bool = False  # the negation went into "kein"
    lead: Bi = field(default_factory=Bi)  # conjunction or relative pronoun
    pronouns: list[Bi] = field(default_factory=list)
    datives: list[Bi] = field(default_factory=list)  # receivers and names: before the German adverbs
    objects: list[Bi] = field(default_factory=list)  # after the German adverbs
    english_objects: list[Bi] = field(default_factory=list)
    manner: Bi = field(default_factory=Bi)
    complement: Bi = field(default_factory=Bi)  # preposition object, direction or predicate
    than: Bi = field(default_factory=Bi)  # stands behind the German verb
    place: Bi = field(default_factory=Bi)
    duration: Bi = field(default_factory=Bi)
    time: Bi = field(default_factory=Bi)
    frequency: Bi = field(default_factory=Bi)
    tail: Bi = field(default_factory=Bi)  # relative clause of the last noun phrase
    front: str = ""  # what stands before the verb instead of the subject: time or place
    person: int = 2

    @property
    def reflexive(self) -> bool:
        """Say whether the German verb takes a reflexive pronoun."""
        return "refl" in self.verb.options

    def tok(self, text: str) -> Tok:
        """Return a token of the main verb."""
        return (text, (self.key,))

    def aux(self, text: str) -> Tok:
        """Return a token of the auxiliary."""
        return (text, (self.aux_key,))


def toks(words: tuple[str, ...], key: int) -> list[Tok]:
    """Return tokens that carry one key."""
    return [(word, (key,)) for word in words]


def english_verb(c: Clause, question: bool = False) -> tuple[list[Tok], list[Tok]]:
    """Return the English auxiliaries (with "not") and the rest of the verb."""
    no: list[Tok] = [("not", (c.negation,))] if c.negation else []
    if c.modal and c.tense == "modal":
        return english_modal(c, c.modal, no)
    if c.verb.en[0] == "be":
        form = c.verb.english_past(c.person) if c.tense == "past" else c.verb.english_present(c.person)
        return [c.tok(form[0]), *no], []
    if c.tense == "perf":
        return [c.aux(HAVE[c.person]), *no], toks(c.verb.pp, c.key)
    support = bool(no) or question
    if c.tense == "past":
        if support:
            key = c.key if c.verb.preterite else c.aux_key
            return [("did", (key,)), *no], toks(c.verb.en, c.key)
        return [], toks(c.verb.english_past(c.person), c.key)
    if support:
        return [c.tok(DO[c.person]), *no], toks(c.verb.en, c.key)
    return [], toks(c.verb.english_present(c.person), c.key)


def english_modal(c: Clause, modal: Modal, no: list[Tok]) -> tuple[list[Tok], list[Tok]]:
    """Return the English verb group with a modal."""
    main = toks(c.verb.en, c.key)
    if modal.en == ("can",) and no:
        return [("cannot", (c.aux_key, c.negation))], main
    if modal.kind == "plain":
        return [c.aux(modal.en[0]), *no], toks(modal.en[1:], c.aux_key) + main
    base = modal.base if modal.kind == "past" else modal.en
    if no:
        support = "did" if modal.kind == "past" else DO[c.person]
        return [c.aux(support), *no], toks(base, c.aux_key) + main
    if modal.kind == "past":
        return [], toks(modal.en, c.aux_key) + main
    first = third_person(modal.en[0]) if c.person == 2 else modal.en[0]
    return [], toks((first, *modal.en[1:]), c.aux_key) + main


def german_verb(c: Clause) -> tuple[Tok, list[Tok], list[Tok]]:
    """Return the finite verb, the end of a main clause's bracket and the cluster of a verb-final clause."""
    verb = c.verb
    if c.modal and c.tense == "modal":
        finite = c.aux(c.modal.forms[c.person])
        rest = [c.tok(verb.prefix + verb.infinitive)]
        return finite, rest, [*rest, finite]
    if c.tense in ("past", "perf") and not (verb.preterite and c.tense == "past"):
        # The simple past is a German perfect: without an English auxiliary both words belong to the verb.
        keyed = c.aux_key if c.tense == "perf" or c.negation or c.front == "question" else c.key
        finite = (verb.aux[c.person], (keyed,))
        rest = [c.tok(verb.participle)]
        return finite, rest, [*rest, finite]
    forms = verb.preterite if c.tense == "past" else verb.present
    finite = c.tok(forms[c.person])
    if verb.prefix:
        return finite, [c.tok(verb.prefix)], [c.tok(verb.prefix + forms[c.person])]
    return finite, [], [finite]


def english(c: Clause) -> list[Tok]:
    """Return the English clause, subject before verb."""
    aux, main = english_verb(c)
    fronted: list[Tok] = []
    place, time = c.place.en, c.time.en
    if c.front == "time":
        fronted, time = time, []
    elif c.front == "place":
        fronted, place = place, []
    if len(fronted) > 2:
        fronted = [*fronted, COMMA]
    body = english_rest(c, place, time)
    return c.lead.en + fronted + c.subj.en + aux + c.frequency.en + main + body


def english_rest(c: Clause, place: list[Tok], time: list[Tok]) -> list[Tok]:
    """Return what follows the English verb."""
    objects = [tok for part in c.english_objects for tok in part.en]
    return objects + c.manner.en + c.complement.en + c.than.en + place + c.duration.en + time + c.tail.en


def english_question(c: Clause) -> list[Tok]:
    """Return the English question."""
    aux, main = english_verb(c, question=True)
    body = english_rest(c, c.place.en, c.time.en)
    return c.lead.en + aux[:1] + c.subj.en + aux[1:] + c.frequency.en + main + body


def english_infinitive(c: Clause, marker: int) -> list[Tok]:
    """Return "to" and the English infinitive phrase."""
    return [("to", (marker,)), *toks(c.verb.en, c.key), *english_rest(c, c.place.en, c.time.en)]


def middle(c: Clause, with_subject: bool) -> list[Tok]:
    """Return the German middle field."""
    reflexive: list[Tok] = [c.tok(REFLEXIVE[c.person])] if c.reflexive else []
    subject = c.subj.de if with_subject else []
    # "sich" goes before a full subject and after a pronoun.
    full = bool(c.subj.noun) or not c.subj.pronoun
    first = reflexive + subject if with_subject and subject and full else subject + reflexive
    pronouns = [tok for part in c.pronouns for tok in part.de]
    datives = [tok for part in c.datives for tok in part.de]
    objects = [tok for part in c.objects for tok in part.de]
    no: list[Tok] = [("nicht", (c.negation,))] if c.negation and not c.absorbed else []
    time = [] if c.front == "time" else c.time.de
    place = [] if c.front == "place" else c.place.de
    adverbs = time + c.frequency.de + c.duration.de
    return first + pronouns + datives + adverbs + objects + no + c.manner.de + place + c.complement.de


def german_tail(c: Clause) -> list[Tok]:
    """Return the relative clause of the last noun phrase, which German puts behind the verb."""
    return c.than.de + ([COMMA, *c.tail.de, COMMA] if c.tail.de else [])


def german_main(c: Clause, verb_first: bool = False) -> list[Tok]:
    """Return a verb-second clause; `verb_first` leaves the first position to what the caller puts there."""
    finite, end, _ = german_verb(c)
    fronted = {"time": c.time.de, "place": c.place.de}.get(c.front, [])
    if verb_first or fronted:
        return [*fronted, finite, *middle(c, True), *end, *german_tail(c)]
    return [*c.lead.de, *c.subj.de, finite, *middle(c, False), *end, *german_tail(c)]


def german_final(c: Clause) -> list[Tok]:
    """Return a verb-final clause."""
    return c.lead.de + middle(c, True) + german_verb(c)[2] + german_tail(c)


def german_infinitive(c: Clause, marker: int) -> list[Tok]:
    """Return the infinitive phrase with "zu", which goes inside a separable verb."""
    verb = c.verb
    if verb.prefix:
        last: list[Tok] = [(verb.prefix + "zu" + verb.infinitive, (marker, c.key))]
    else:
        last = [("zu", (marker,)), c.tok(verb.infinitive)]
    return c.lead.de + middle(c, False) + last + german_tail(c)
