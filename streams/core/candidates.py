"""What goes into a search and what comes out: the query and scored candidates, before they become evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.recalls import Limits, Path
from streams.core.fusion import SCORE_DECIMALS
from streams.core.timephrases import Span
from streams.core.visibility import Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    """One question to memory, with everything that it depends on but the logs.

    Parameters
    ----------
    text : str
    vector : (d,) int8 or None
        Of ``ranking.query_text``; None: the embedder is away, words alone decide.
    embedder : str
        Of ``vector``: it is compared with vectors of this embedder only.
    now_ms : int
        Milliseconds since the epoch; decay and time window are measured from here.
    round : int
        The current round.
    names : tuple of str
        The participants' names.
    exclude : frozenset of str
        Turn ids that are never evidence: the query's own turn.
    """

    text: str
    vector: npt.NDArray[np.int8] | None
    now_ms: int
    round: int
    user_id: str
    role_id: str
    session_id: str | None = None
    names: tuple[str, ...] = ()
    exclude: frozenset[str] = frozenset()
    embedder: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A turn or a parent with its score and every component of it; evidence once it is within the limits."""

    id: str
    path: Path
    text: str
    score: float
    parts: dict[str, float]
    offset: int
    occurred_at: str
    occurred_ms: int
    speaker: str | None = None
    name: str | None = None
    source: str | None = None
    turn_id: str | None = None
    document_id: str | None = None
    title: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Candidates of one path, best first, and what an explanation tells besides."""

    candidates: list[Candidate]
    considered: int = 0
    """Entries that were visible and inside the time window."""
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    """What one search scores: turns (ascending), the engines' lists, words of all turns, times that are asked for."""

    ids: npt.NDArray[np.int64]
    lists: list[npt.NDArray[np.int64]]
    words: npt.NDArray[np.float64]
    mask: Mask
    spans: tuple[Span, ...]


def parts_of(
    columns: Mapping[str, npt.NDArray[np.float64] | None], rows: npt.NDArray[np.int64]
) -> list[dict[str, float]]:
    """Some rows of the columns that there are, rounded to 1e-6; a NaN is a component that a row doesn't have.

    >>> parts_of({"vector": np.array([0.12345678, np.nan]), "bm25": None, "z": np.ones(2)}, np.array([1, 0]))
    [{'z': 1.0}, {'vector': 0.123457, 'z': 1.0}]
    """
    there = {name: column for name, column in columns.items() if column is not None}
    if not there or not len(rows):
        return [{} for _ in rows]
    table = np.round(np.stack([column[rows] for column in there.values()], axis=1), SCORE_DECIMALS) + 0.0
    return [
        {name: value for name, value in zip(there, values, strict=True) if value == value}  # noqa: PLR0124
        for values in table.tolist()
    ]
