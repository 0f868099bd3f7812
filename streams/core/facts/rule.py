"""What the rules of both languages have in common: their form, the readers that every language needs, their finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from streams.core.facts.dates import date_of
from streams.core.facts.found import Find, Kind
from streams.core.facts.predicate import Predicate
from streams.core.facts.words import listed

Value = tuple[str, str, int]
"""Key, value as said, and where it ends in the sentence."""
Read = Callable[[Predicate, re.Match[str]], Iterator[Value]]

Ends = Literal["", "event", "retract"]
Negated = Literal["retract", "nothing", "opposite", "only"]

_FAMILY_KEYS = listed("occupation employer home origin age diet allergy health likes dislikes birthday")
"""What is kept of somebody of the family."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern for a predicate, and how its match is read.

    Attributes
    ----------
    modes : str
        Of English, the forms of the predicate that it reads: b "am", v plain verb, h "have" with a participle, w "was".
    pattern : str
        Matched where the predicate begins, never searched for.
    kind : str
        ``event``: what was before is over, so a single-valued key is corrected; ``retract``: it is over.
    negated : str
        What a negation makes of it: a retraction, nothing, its opposite; ``only``: it is stated by negations alone.
    family : bool
        Whether it holds of somebody of the family too.
    bare : bool
        Whether it may open a sentence without a subject.
    """

    name: str
    modes: str
    pattern: str
    read: Read
    kind: Ends = ""
    negated: Negated = "retract"
    family: bool = False
    bare: bool = False

    def speaks(self, *, negated: bool) -> bool:
        """Whether it says anything of a predicate that is negated, or isn't."""
        return self.negated != "nothing" if negated else self.negated != "only"


def one_of(trim: Callable[[Predicate, int, int], tuple[int, int]]) -> Callable[[str], Read]:
    """A maker of readers that take the group ``v`` as the value of a key, trimmed as a language has it."""

    def one(key: str) -> Read:
        def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
            start, end = trim(said, *match.span("v"))
            if start < end:
                yield key, said.original(start, end), end

        return read

    return one


def whole(key: str, value: str) -> Read:
    """A value that the rule itself gives."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        yield key, value, match.end()

    return read


def nothing(key: str) -> Read:
    """An empty value: whatever it was."""
    return whole(key, "")


def date(key: str) -> Read:
    """The day in the group ``v``, as ISO."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        found = date_of(match["v"], said.said_on)
        if found:
            yield key, found, match.end("v")

    return read


def found_by(
    said: Predicate, rule: str, key: str, value: str, kind: Kind, begin: int, end: int, *, person: str
) -> Find | None:
    """A rule's value as a find, about somebody of the family where it is; None where that isn't kept of them."""
    if person and key not in _FAMILY_KEYS:
        return None
    about = f"{person}_{key}" if person else key
    return said.find(about, value, kind, begin, end, rule, 0.9 if kind == "correct" else 0.85)
