"""A sentence as readers of its clauses see it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from streams.core.facts.found import Find, Kind, Plain


@dataclass(frozen=True, slots=True)
class Predicate:
    """A sentence and what readers of its clauses have to know.

    Attributes
    ----------
    sentence : str
        Plain; in English with a blank before it, so that its first word is like any other.
    offset : int
        Place of its first character in the plain text of the turn.
    capitals : bool
        Whether the speaker spells capitals at all.
    greeted : bool
        Whether the turn greets: "hi, I'm Bob" is a name.
    family, negated : bool
        Whether the clause at hand is about somebody of the family, and whether it is negated.
    """

    plain: Plain
    sentence: str
    offset: int
    said_on: dt.date
    capitals: bool = True
    greeted: bool = False
    family: bool = False
    negated: bool = False

    def original(self, start: int, end: int) -> str:
        """What was said at ``[start, end)`` of the sentence."""
        return self.plain.original(start + self.offset, end + self.offset)

    def find(self, key: str, value: str, kind: Kind, begin: int, end: int, rule: str, confidence: float = 0.85) -> Find:
        """A find in the clause ``[begin, end)`` of the sentence."""
        return Find(
            key=key,
            value=value,
            kind=kind,
            start=begin + self.offset,
            end=end + self.offset,
            rule=rule,
            confidence=confidence,
        )
