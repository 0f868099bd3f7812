"""Arbitration of a conflict by a model: what it is asked, and what of its answer is believed.

Invariant: a model can only name a side of the conflict, or none; anything else leaves the conflict open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.recalls import Message
from streams.core.prompt import escaped
from streams.core.wording import wording

QUOTE_CHARACTERS_MAX = 300
REASON_CHARACTERS_MAX = 300
ANSWER_TOKENS_MAX = 200
SCHEMA: dict[str, Any] = {
    "title": "verdict",
    "type": "object",
    "properties": {"winner": {"type": "integer"}, "reason": {"type": "string"}},
    "required": ["winner", "reason"],
    "additionalProperties": False,
}
"""JSON Schema of the answer."""


@dataclass(frozen=True, slots=True)
class Side:
    """One value of a contested fact, and what the user said."""

    memory_id: str
    text: str
    said: tuple[tuple[str, str], ...]
    """(date, words of the clause), oldest first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The side that holds; None: nobody can tell."""

    winner: str | None
    reason: str


def request(sides: Sequence[Side], tongue: str) -> tuple[Message, ...]:
    """Messages that ask which side holds."""
    lines = []
    for number, side in enumerate(sides, start=1):
        lines.append(f"{number}. {escaped(side.text)}")
        lines += [f"   {date}: {escaped(words[:QUOTE_CHARACTERS_MAX])}" for date, words in side.said]
    system = Message(role="system", content=wording("arbiter", tongue).template)
    return system, Message(role="user", content="\n".join(lines))


def read(answer: str, sides: Sequence[Side]) -> Verdict | None:
    """A model's verdict; None: it can't be read.

    >>> sides = [Side("f-1", "home: Rome", ()), Side("f-2", "home: Oslo", ())]
    >>> read('```json\\n{"winner": 2, "reason": "moved"}\\n```', sides)
    Verdict(winner='f-2', reason='moved')
    >>> read('{"winner": 0, "reason": "unclear"}', sides).winner, read('{"winner": 3}', sides), read("Oslo!", sides)
    (None, None, None)
    """
    found = re.search(r"\{.*\}", answer, re.DOTALL)
    try:
        raw = json.loads(found[0]) if found else None
    except ValueError:
        return None
    if not isinstance(raw, Mapping):
        return None
    winner = raw.get("winner")
    if isinstance(winner, bool) or not isinstance(winner, int) or not 0 <= winner <= len(sides):
        return None
    reason = " ".join(str(raw.get("reason") or "").split())[:REASON_CHARACTERS_MAX]
    return Verdict(sides[winner - 1].memory_id if winner else None, reason)
