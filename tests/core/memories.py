"""Builders for tests of the core: turns, embedded by a toy embedder, and documents."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from schemas.recalls import Limits
from streams.core.candidates import RecallQuery
from streams.core.chunking import parents
from streams.core.experience import Experience, TurnView
from streams.core.knowledge import ChildView, ParentView, RevisionView
from streams.core.text import tokens

DIMENSION = 64
START_MS = 1_779_235_200_000
HOUR_MS = 3_600_000


def embedded(text: str) -> np.ndarray:
    """A bag of hashed terms: texts that share words are near each other."""
    out = np.zeros(DIMENSION)
    for term in tokens(text):
        out[zlib.crc32(term.encode()) % DIMENSION] += 30
    return np.clip(out, -127, 127).astype(np.int8)


def turn(offset: int, text: str, **given: Any) -> TurnView:
    """The turn at an offset: one an hour, users and assistants by turns, all named t<offset>."""
    values: dict[str, Any] = {
        "offset": offset,
        "turn_id": f"t{offset}",
        "session_id": "s1",
        "speaker": "user",
        "text": text,
        "occurred_at": "2026-05-20T08:00:00+08:00",
        "occurred_ms": START_MS + offset * HOUR_MS,
        "round": offset // 2 + 1,
    }
    return TurnView(**{**values, **given})


def experience(texts: list[str], *, embed: bool = True) -> Experience:
    """Turns at even offsets, their vectors at the odd ones."""
    memory = Experience()
    for index, text in enumerate(texts):
        memory.append(turn(2 * index, text))
        if embed:
            memory.embed(f"t{2 * index}", embedded(text), 2 * index + 1)
    return memory


def query(text: str, **given: Any) -> RecallQuery:
    """A question a day after the start, with its vector."""
    values: dict[str, Any] = {
        "text": text,
        "vector": embedded(text),
        "now_ms": START_MS + 24 * HOUR_MS,
        "round": 12,
        "user_id": "u",
        "role_id": "lin",
        "limits": Limits(),
    }
    return RecallQuery(**{**values, **given})


def revision(text: str, **given: Any) -> RevisionView:
    """A document cut and embedded."""
    cut = tuple(
        ParentView(
            index=parent.index,
            start=parent.start,
            text=parent.text,
            children=tuple(ChildView(start=c.start, end=c.end, vector=embedded(c.text)) for c in parent.children),
        )
        for parent in parents(text)
    )
    values: dict[str, Any] = {"revision_id": f"r-{text[:8]}", "occurred_at": "2026-05-01T00:00:00Z", "parents": cut}
    return RevisionView(**{**values, **given})
