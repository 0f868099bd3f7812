"""What a user's turn states about the user, by rules.

Invariants: a function of its arguments; an assistant's turn states nothing, nor does a turn that repeats a memory, so
what was recalled never comes back as news; every statement knows the exact clause that states it. Takes time linear in
the turn's length (``streams.core.facts.found``).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streams.core.facts import chinese, chinese_meant, english, english_meant
from streams.core.facts.dates import day_said, period_of
from streams.core.facts.found import Find, Kind, Plain, Sentence, plain_of, sentences, without_quotes
from streams.core.facts.values import normalise
from streams.core.facts.vocabulary import key_of
from streams.core.text import folded

STATEMENTS_MAX = 24
"""Statements of one turn; more are a pasted list."""
RECALLED_LENGTH_MIN = 8
"""Letters of a recalled text from which its words in a turn are a quotation; shorter ones are common coin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One fact, as one clause of a turn states it.

    Attributes
    ----------
    key : str
        Canonical (``streams.core.facts.vocabulary``), made of person and attribute (``sister_occupation``), or free.
    value : str
        As said; dates as ISO (``1991-05-03``, ``--05-03``, ``1990``), ages and counts in digits; of animals and
        relatives ``name (kind)``. Empty in a retraction of whatever the value was.
    kind : str
        ``assert``; ``retract``: it isn't so, or no longer; ``correct``: it is so, and the turn itself says that
        something else was believed or held before.
    old_value : str or None
        What a correction replaces, where the turn names it.
    start, end : int
        The clause, ``[start, end)`` in the turn's text.
    confidence : float
        0 to 1, by the rule; less without a subject of its own or inside a question.
    importance : int
        1 to 5, by the key.
    valid_from, valid_to : str or None
        ISO date as exact as it was said, resolved against the turn's time.
    rule : str
        Name of the rule, for audit.
    """

    key: str
    value: str
    kind: Kind
    old_value: str | None = None
    start: int
    end: int
    confidence: float
    importance: int
    valid_from: str | None = None
    valid_to: str | None = None
    rule: str


def extract(
    text: str, *, occurred_at: str, speaker: str = "user", recalled: Sequence[str] = ()
) -> tuple[Statement, ...]:
    """Facts that a turn states about its speaker.

    Parameters
    ----------
    text : str
        The turn, Chinese or English or both.
    occurred_at : str
        When it was said: "yesterday" is resolved against it.
    speaker : str
        Only ``user`` states facts.
    recalled : sequence of str
        Texts of memories that were shown lately; a sentence that holds one of them states nothing.

    Returns
    -------
    tuple of Statement
        In order of appearance, each key and value once.

    >>> at = "2026-05-20T10:00:00Z"
    >>> [(s.key, s.value, s.kind) for s in extract("I'm 34 and I moved to Lisbon last month.", occurred_at=at)]
    [('age', '34', 'assert'), ('home', 'Lisbon', 'correct')]
    >>> [(s.key, s.value, s.valid_from) for s in extract("我去年搬到了成都", occurred_at=at)]
    [('home', '成都', '2025')]
    >>> extract("If I lived in Rome, I'd be happy", occurred_at=at), extract("我是医生，开玩笑的", occurred_at=at)
    ((), ())
    """
    if speaker != "user":
        return ()
    plain = plain_of(text)
    speaks_english, speaks_chinese = english.SPEAKS.search(plain.text), chinese.SPEAKS.search(plain.text)
    if not speaks_english and not speaks_chinese:
        return ()
    said_on = day_said(occurred_at)
    found: list[tuple[Sentence, list[Find]]] = []
    for sentence, finds in _by_sentence(plain, said_on):
        if finds is None:  # A joke takes back what was said just before.
            while found:
                if found.pop()[1]:
                    break
            continue
        if finds and recalled and _quotes(plain.text[sentence.start : sentence.end], recalled):
            continue
        found.append((sentence, finds))
    flat = [(sentence, find) for sentence, finds in found for find in finds]
    return tuple(_statements(plain, _settled(flat), occurred_at))[:STATEMENTS_MAX]


def _by_sentence(plain: Plain, said_on: dt.date) -> Iterator[tuple[Sentence, list[Find] | None]]:
    """Finds of each sentence; None for a joke that takes back what stands before it."""
    text = without_quotes(plain.text)
    greeted = bool(english.GREETS.search(text[:80]) or chinese.GREETS.search(text[:40]))
    chinese_turn = chinese.Turn()
    for sentence in sentences(text):
        body = text[sentence.start : sentence.end]
        if english_meant.role_play(body) or chinese_meant.role_play(body):
            return
        stops = english_meant.task(body) or chinese_meant.task(body)
        finds = list(english.finds(plain, text, sentence, said_on, greeted=greeted))
        finds += chinese.finds(plain, text, sentence, said_on, chinese_turn, greeted=greeted)
        joke = english_meant.JOKES.search(body) or chinese_meant.JOKES.search(body)
        if joke is not None:
            before = [find for find in finds if find.start < sentence.start + joke.start()]
            after = [find for find in finds if find.start >= sentence.start + joke.start()]
            if not before:
                yield sentence, None
            yield sentence, after
        else:
            yield sentence, finds
        if stops:
            return


_SPACES = re.compile(r"[\W_]+")


def _quotes(sentence: str, recalled: Sequence[str]) -> bool:
    """Whether a sentence holds a recalled text, word for word."""
    bare = _SPACES.sub("", folded(sentence))
    for text in recalled:
        memory = _SPACES.sub("", folded(text))
        if len(memory) >= RECALLED_LENGTH_MIN and memory in bare:
            return True
    return False


def _settled(found: list[tuple[Sentence, Find]]) -> list[Find]:
    """Finds seen beside each other: what is said twice counts once, and what follows a retraction corrects it."""
    kept: list[Find] = []
    seen: set[tuple[str, str, str]] = set()
    retracted: dict[str, Find] = {}
    for _, find in found:
        if find.key == "marital_status" and find.kind != "retract" and normalise(find.key, find.value) == "divorced":
            spouse = Find(
                key="spouse", value="", kind="retract", start=find.start, end=find.end, rule=find.rule, confidence=0.85
            )
            kept.append(spouse)
        single = not key_of(find.key).multi
        if find.kind == "retract":
            retracted[find.key] = find
        elif find.kind == "assert" and single and find.key in retracted:
            find.kind = "correct"
        if find.kind == "correct" and find.old is None and single and find.key in retracted:
            find.old = retracted[find.key].value or None
        mark = (find.key, normalise(find.key, find.value), find.kind)
        if mark not in seen:
            seen.add(mark)
            kept.append(find)
    named = {find.key for find in kept if find.kind == "retract" and find.value}
    kept = [find for find in kept if find.kind != "retract" or find.value or find.key not in named]
    return sorted(kept, key=lambda find: (find.start, find.end))


_SINCE = re.compile(r"\bsince\b|从.{1,10}(?:开始|起)|以来|就")
_UNTIL = re.compile(r"\b(?:until|till)\b|直到|截止|为止")


def _statements(plain: Plain, finds: list[Find], occurred_at: str) -> Iterator[Statement]:
    for find in finds:
        first = max(0, find.start)
        while first < find.end and plain.text[first] in " ,;:":
            first += 1
        start, end = plain.span(first, find.end)
        begins, ends = _validity(plain, find, occurred_at)
        yield Statement(
            key=find.key,
            value=find.value,
            kind=find.kind,
            old_value=find.old,
            start=start,
            end=end,
            confidence=round(min(1.0, max(0.0, find.confidence)), 2),
            importance=key_of(find.key).importance,
            valid_from=begins,
            valid_to=ends,
            rule=find.rule,
        )


def _validity(plain: Plain, find: Find, occurred_at: str) -> tuple[str | None, str | None]:
    """From when and until when it holds, where the clause says so."""
    if find.key in ("birthday", "anniversary", "age", "routine", "education") or find.key.endswith("_birthday"):
        return None, None
    clause = _clause_around(plain.text, find.start, find.end)
    named = period_of(clause, occurred_at, ahead=find.key == "plan")
    if named is None:
        return None, None
    if find.kind == "retract" or _UNTIL.search(clause):
        return None, named
    return named, None


_BREAKS = re.compile(r"[,.;:!?。！？；\n]|\b(?:but|and i|so i)\b")


def _clause_around(text: str, start: int, end: int) -> str:
    """The clause that holds a find: a little of what stands before it and after, up to the next mark."""
    before = text[max(0, start - 24) : start]
    breaks = [mark.end() for mark in _BREAKS.finditer(before)]
    after = text[end : end + 32]
    stop = _BREAKS.search(after)
    return before[breaks[-1] if breaks else 0 :] + text[start:end] + (after[: stop.start()] if stop else after)
