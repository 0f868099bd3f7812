"""English turns: who each clause is about, and what its predicate states.

A sentence is walked from left to right. A clause is read only where its subject is the speaker, somebody of the
speaker's family, or a noun that a fact is known by ("my shoe size"), and where what stands before the subject lets it
be a plain statement: "and I", "because I", never "if I", "the book I", "she thinks I". Everything else says nothing.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import replace

from streams.core.facts import english_doing as doing
from streams.core.facts import english_reading as reading
from streams.core.facts.dates import date_of
from streams.core.facts.english_meant import HEDGE, before_question, meant
from streams.core.facts.english_my import kin, my_noun, whole_sentence
from streams.core.facts.english_rules import FIRST_PERSON, OFTEN_FIRST, THIRD_PERSON
from streams.core.facts.found import Find, Kind, Plain, Sentence
from streams.core.facts.predicate import Predicate
from streams.core.facts.rule import Rule, found_by
from streams.core.facts.vocabulary import ATTRIBUTES_EN, key_of
from streams.core.facts.words import PERSONS_EN, alternatives

SPEAKS = re.compile(r"\b(?:i|im|ive|my|we|our|me|allergic|name|born|moved|diagnosed)\b")
"""What a sentence without which states nothing."""
GREETS = re.compile(
    r"\b(?:hi|hello|hey|hiya|howdy|greetings|nice to meet|good (?:morning|evening|afternoon)|pleased to meet|yo)\b"
)

_ADVERBS = (
    r"(?:also|currently|still|now|just|really|usually|always|actually|already|both|only|mostly|absolutely|honestly"
    r"|recently|originally|finally|officially|actively|happily|truly|totally|generally|normally|typically|sometimes"
    r"|often"
    r"|even|secretly|definitely|personally|basically|presently|temporarily|deathly|severely|so|very|quite|proudly"
    r"|kinda|literally|simply|particularly|especially|have to say|must say|do|genuinely|not|never|no longer)"
)
_PARTICIPLE = (
    r"(?= (?:\w+ ){0,2}?(?:been|lived|worked|moved|had|got|started|quit|become|gone|switched|decided|bought|adopted"
    r"|sold"
    r"|given|stopped|studied|graduated|lost|broken|relocated|joined|split|retired|planned)\b)"
)
_HEAD = re.compile(
    rf"(?:(?P<be>'?m\b| am\b|'re\b| are\b|'s\b| is\b)|(?P<was> was\b| were\b)"
    rf"|(?P<skip>'ll\b| will\b|'d\b| would\b| could\b| might\b| may\b| should\b| must\b| did\b(?!n't| not)| wanna\b"
    rf"| want\b)"
    rf"|(?P<have>(?:'?ve\b| have\b| has\b)(?:n't\b)?{_PARTICIPLE})|(?P<used> used to\b(?: be\b)?)"
    rf"|(?P<dont> (?:do|does|did)(?:n'?t\b| not\b)))?(?P<adverbs>(?: {_ADVERBS}\b)*)"
)
_NOT = re.compile(r"n'?t\b|\b(?:not|never|no longer)\b")
_BE_NOT = re.compile(r"(?: is| are)n'?t\b")

_BEFORE = re.compile(
    r"(?:^|[,;:()\-*] ?|\b(?:and|but|so|because|cause|cuz|since|also|plus|btw|fyi|yes|yeah|yep|no|nope|nah|hi|hello"
    r"|hey|well"
    r"|ok|okay|oh|ah|um|uh|actually|honestly|anyway|now|then|today|yesterday|currently|remember|meant|fact|lately"
    r"|recently"
    r"|nowadays|originally|basically|sorry|lol|haha|sure|what|though|however|still|ago|(?<!when )(?:days?|weeks?"
    r"|months?"
    r"|years?|mornings?|evenings?|nights?|afternoons?|weekends?)|work|spring|summer|autumn|fall|winter|(?:mon|tues"
    r"|wednes"
    r"|thurs|fri|satur|sun)days?|january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:19|20)\d\d|moment|(?:remember|note|meant|mean|forget|mention|fact|thing is|fact is|and) that|thing is) )$"
)
_WHAT = re.compile(r"(?<!guess )\bwhat $")
_STARTS = re.compile(
    rf"\b(?P<i>i|we)(?=['\s]|m\b|ve\b)|\b(?P<my>my|our) (?P<far>(?:late|ex|former|old|imaginary|future|first"
    rf"|friend's|host)[ -])?"
    rf"(?:(?:older|younger|elder|little|big|twin|dear|lovely|eldest|youngest|oldest|only|new|amazing|wonderful|beloved"
    rf"|own|sweet|poor) )*"
    rf"(?:(?P<person>{alternatives(PERSONS_EN)})(?P<of>'?s)?(?![\w-])"
    rf"|(?P<pet>{reading.SPECIES})(?:'?s)?(?![\w])"
    rf"|(?P<favourite>favou?rite (?P<thing>[a-z]+(?: [a-z]+)?))|(?P<noun>{alternatives(ATTRIBUTES_EN)})(?!\w))"
    rf"|(?P<other>\b(?:he|she|they|it|you|this|that|there|who|people|someone)\b)"
    rf"|(?P<joint>(?:, (?:and |but )?| and | but | & )(?:also |then )?)"
)
_SUBJECT_NEXT = re.compile(r"(?:i|we|im|ive|my|our|he|she|they|it|you|this|that|there|who|the|his|her|their|your)\b")
_CHANGED = re.compile(
    r"\b(?:now|actually|these days|nowadays|no longer|finally|from now on|instead)\b|(?:^ ?|[,;] ?)no\b"
)
_CORRECTED = re.compile(
    r"\b(?:correction|meant|misspoke|mistaken|mistake|told you wrong|said wrong|got (?:it|that) wrong|typo"
    r"|you're wrong|that's wrong|not true)\b"
)
_NOT_TAIL = re.compile(
    r",? (?:and |it's |i'm )?(?:not|instead of|rather than) (?:in |at |from |on |as |the |an? )*(?P<o>[^,;:!?"
    r"()\"]{1,30}?)(?=\s*(?:[,;:!?()\"]|$)"
    r"| (?:any ?more|like|as|and|but)\b)"
)
_ANYMORE = re.compile(r"\b(?:any ?more|any longer|no longer)\b")


def finds(plain: Plain, text: str, sentence: Sentence, said_on: dt.date, *, greeted: bool) -> Iterator[Find]:
    """Facts that a sentence states.

    Parameters
    ----------
    text : str
        The plain text of the turn without quotations.
    greeted : bool
        Whether the turn greets.
    """
    body = text[sentence.start : sentence.end]
    if not SPEAKS.search(body):
        return
    body = meant(body)
    if sentence.asks:
        body = before_question(body)
    if not body.strip(" ;"):
        return
    capitals = any(character.isupper() for character in plain.said[:400])
    said = Predicate(plain, " " + body, sentence.start - 1, said_on, capitals, greeted)
    for find in _walk(said):
        _judge_change(said, find)
        if sentence.asks:
            find.confidence -= 0.1
        yield find


def _judge_change(said: Predicate, find: Find) -> None:
    """Whether a sentence says that something else held before: then the find corrects it."""
    text, begin, end = said.sentence, find.start - said.offset, find.end - said.offset
    if find.kind == "retract":
        return
    tail = _NOT_TAIL.match(text, end)
    single = not key_of(find.key).multi
    if tail and (single or find.key in ("child", "pet", "sibling")):
        first, last = tail.span("o")
        old = said.original(first, last)
        if find.key in ("birthday", "anniversary"):
            old = date_of(text[first:last], said.said_on) or old
        find.kind, find.old, find.confidence = "correct", old, 0.95
    elif single and (
        _CHANGED.search(text, max(0, begin - 12), begin + 1)
        or _CHANGED.search(text, begin, end)
        or re.match(r"[^,;]{0,8}?\b(?:now|these days|nowadays)\b", text[end : end + 24])
        or _CORRECTED.search(text, 0, end)
        or text[max(0, begin - 3) : begin].startswith(";;")
    ):
        find.kind = "correct"


def _walk(said: Predicate) -> Iterator[Find]:
    text = said.sentence
    yield from whole_sentence(said)
    subject, person, mode, done = "", "", "", 0
    begun = False
    for start in _STARTS.finditer(text):
        if not begun and start.start() > 1:
            yield from _bare(said)
        begun = True
        if start.start() < done:
            continue
        if start["i"]:
            subject, person, mode = "", "", ""
            if _stands(text, start.start()) and not HEDGE.search(text, max(0, start.start() - 14), start.end() + 12):
                subject = "i"
                found, mode = _clause(said, start.end(), start.start())
                yield from found
                done = max([done, *(find.end - said.offset for find in found)])
        elif start["my"]:
            subject, person, mode = "", "", ""
            if start["far"] or not (_stands(text, start.start()) or start["pet"]):
                continue
            if not start["person"]:
                yield from my_noun(said, start)
                continue
            found, done = kin(said, start)
            yield from found
            subject, person = "person", PERSONS_EN[start["person"]]
            at = done if done > start.end("person") else start.end("person")
            found, mode = _clause(said, at, start.start(), person)
            yield from found
        elif start["other"]:
            if person and start["other"] in ("he", "she", "they"):
                found, mode = _clause(said, start.end(), start.start(), person)
                yield from found
            else:
                subject, person, mode = "", "", ""
        elif subject and mode and not _SUBJECT_NEXT.match(text, start.end()):
            at = start.end() - 1
            head = _HEAD.match(text, at)
            if head and (head["used"] or head["dont"]):
                found, _ = _clause(said, at, at + 1, person)
                yield from found
            else:
                found = list(_predicate(said, at, at + 1, mode, person=person, inherited=True, comma=start[0] == ", "))
                yield from found
                done = max([done, *(find.end - said.offset for find in found)])
    if not begun:
        yield from _bare(said)


_OPENING = re.compile(
    r"(?: (?:ok|okay|so|well|oh|and|just|finally|recently|actually|also|btw|hi|hey|hello|yes|yeah|no|omg|update|ps"
    r"|sorry)[,:!]?)*(?= )"
)


def _bare(said: Predicate) -> Iterator[Find]:
    """Finds of a sentence that leaves its subject out: "Just moved to Leeds"."""
    opening = _OPENING.match(said.sentence)
    yield from _predicate(said, opening.end() if opening else 0, 1, "bare")


def _stands(text: str, at: int) -> bool:
    """Whether what stands before a subject lets its clause be a plain statement."""
    before = text[max(0, at - 24) : at]
    return at <= 1 or (bool(_BEFORE.search(before)) and not _WHAT.search(before))


_HABIT = re.compile(rf"{doing.DOES}[^,;:!?()\"]{{0,60}}?{reading.END}")


def _clause(said: Predicate, at: int, begin: int, person: str = "") -> tuple[list[Find], str]:
    """Finds of a predicate with a subject, and the mode in which another may follow after "and"."""
    text = said.sentence
    not_be = _BE_NOT.match(text, at)
    head = _HEAD.match(text, not_be.end() if not_be else at)
    if head is None or head["skip"]:
        return [], ""
    negated = bool(not_be or _NOT.search(head[0]))
    used = bool(head["used"])
    if not_be or head["be"]:
        mode = "b"
    elif head["was"]:
        mode = "w"
    elif head["have"]:
        mode = "h"
    else:
        mode = "b" if used and head["used"].endswith("be") else "v"
    found = list(_predicate(said, head.end(), begin, mode, person=person, negated=negated, used=used))
    often = OFTEN_FIRST.search(text, 0, begin) if not person and mode == "v" and not negated and not found else None
    if often and often.end() == begin:
        routine = _HABIT.match(text, head.end())
        if routine:
            begin, end = often.start("v"), routine.end()
            found = [said.find("routine", said.original(begin, end), "assert", begin, end, "en.often", 0.8)]
    return found, mode


def _predicate(
    said: Predicate, at: int, begin: int, mode: str, *, person: str = "", negated: bool = False, used: bool = False,
    inherited: bool = False, comma: bool = False,
) -> Iterator[Find]:  # fmt: skip
    """Finds of the first rule that reads something in the predicate at a place."""
    table = THIRD_PERSON if person else FIRST_PERSON
    about = replace(said, family=bool(person), negated=negated)
    modes = ("v", "w") if mode == "bare" else (mode, "v") if inherited and mode != "v" else (mode,)
    for letter in modes:
        for rule, pattern in table[letter]:
            if (
                (mode == "bare" and not rule.bare)
                or (inherited and rule.name in _NEVER_INHERITED)
                or (comma and rule.name == "likes")
            ):
                continue
            match = pattern.match(said.sentence, at)
            if match is None:
                continue
            found = list(_read(about, rule, match, begin, person=person, negated=negated, used=used))
            if found:
                for find in found:
                    if inherited or mode == "bare":
                        find.confidence -= 0.1
                    yield find
                return


_NEVER_INHERITED = frozenset(("introduced", "nationality", "will", "in_now"))


def _read(
    said: Predicate, rule: Rule, match: re.Match[str], begin: int, *, person: str, negated: bool, used: bool
) -> Iterator[Find]:
    """A rule's values as finds, with the kind that negation and tense give them."""
    if not rule.speaks(negated=negated):
        return
    if person and used:
        return
    for about, value, end in rule.read(said, match):
        key = about
        kind: Kind = "assert"
        if rule.kind == "retract" or used or (negated and rule.negated == "retract"):
            kind = "retract"
        elif rule.kind == "event" and key != "birthday" and not key_of(key).multi:
            kind = "correct"
        if negated and rule.negated == "opposite":
            if _ANYMORE.search(said.sentence, begin, min(len(said.sentence), end + 12)):
                kind = "retract"
            else:
                key = "dislikes"
        find = found_by(said, f"en.{rule.name}", key, value, kind, begin, end, person=person)
        if find is not None:
            yield find
