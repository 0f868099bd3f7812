"""Recall: each path searched and scored apart, its best candidates marked as evidence; merged only in the prompt.

Invariant: a function of its arguments. Evidence of one path never displaces that of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.positions import Position
from schemas.recalls import Evidence
from streams.core import text
from streams.core.candidates import Candidate, Found, RecallQuery
from streams.core.experience import Experience
from streams.core.knowledge import Knowledge
from streams.core.settings import Settings
from streams.core.visibility import Cut

__all__ = ["RecallQuery", "Recollection", "query_passage", "recall"]

DROPPED_MAX = 50
"""Dropped candidates that an explanation lists for each path."""
_SUMMANDS = (
    "z_bm25",
    "z_vector",
    "z_neighbours",
    "bonus_speaker",
    "bonus_when",
    "time_match",
    "malus_question",
    "rrf",
    "b_session",
    "b_source",
    "b_character",
    "w",
    "correction",
)
"""Components that an explanation compares; those that are made of others (``z``, ``base``) are left out."""


@dataclass(frozen=True, slots=True)
class Recollection:
    """Evidence by path, best first, and on request why it is that."""

    evidence: tuple[Evidence, ...]
    explain: dict[str, Any] | None


def query_passage(
    query: str, names: Sequence[str], settings: Settings, *, user: str | None = None, assistant: str | None = None
) -> str:
    """The text of a query that is embedded.

    Parameters
    ----------
    query : str
    names : sequence of str
        The participants', as of the cut.
    settings : Settings
        ``query.augment``: ``names_out`` takes the participants' names out, since a bare sentence vector ranks turns
        that address a person above that person's own; ``prefix`` is ARPM's q' = [User_u][Assistant_a] + q; ``none``.
    user, assistant : str, optional
        u and a of the prefix.

    >>> from streams.core.settings import resolve
    >>> query_passage("What does Mel like?", ["Mel"], resolve())
    'What does like?'
    >>> query_passage("你好", [], resolve("arpm"), user="u42", assistant="lin")
    '[User_u42][Assistant_lin] 你好'
    """
    query = query[: text.QUERY_CHARACTERS_MAX]
    if settings.query.augment == "names_out":
        return text.without_names(query, names)
    if settings.query.augment == "prefix" and query.strip():
        prefix = (f"[User_{user}]" if user else "") + (f"[Assistant_{assistant}]" if assistant else "")
        return f"{prefix} {query}" if prefix else query
    return query


def recall(
    experience: Experience | None,
    knowledge: Knowledge,
    query: RecallQuery,
    settings: Settings,
    cut_journal: Cut,
    cut_library: Cut,
    *,
    journal_partition: int,
    explain: bool = False,
) -> Recollection:
    """Evidence for a query.

    Parameters
    ----------
    experience : Experience or None
        The owner's; None: this owner has none.
    knowledge : Knowledge
    query : RecallQuery
    settings : Settings
    cut_journal, cut_library : Cut
        What of each log may be seen.
    journal_partition : int
        Partition of the journal that holds this owner.
    explain : bool
        Tell candidates that were dropped, with reason and components.

    Returns
    -------
    Recollection
        Marks E1… for experience, K1… for knowledge.
    """
    evidence: list[Evidence] = []
    paths: dict[str, Any] = {}
    for path, mark, limit, chosen in (
        ("knowledge", "K", query.limits.knowledge, settings.knowledge),
        ("experience", "E", query.limits.experience, settings.experience),
    ):
        if not chosen.enabled or not limit:
            paths[path] = {"enabled": chosen.enabled, "limit": limit, "considered": 0, "dropped": []}
            continue
        count = limit + DROPPED_MAX if explain else limit
        if path == "knowledge":
            found = knowledge.search(query, settings, cut_library, query.role_id, count=count)
            topic, partition = "library", 0
        else:
            found = _experience(experience, query, settings, cut_journal, count)
            topic, partition = "journal", journal_partition
        evidence += [
            _evidence(candidate, f"{mark}{number}", topic, partition, query)
            for number, candidate in enumerate(found.candidates[:limit], start=1)
        ]
        paths[path] = _explained(found, limit, query) if explain else None
    if not explain:
        return Recollection(tuple(evidence), None)
    paths["memory"] = {"enabled": settings.memory.enabled, "limit": query.limits.memory, "considered": 0, "dropped": []}
    return Recollection(tuple(evidence), {"vector": query.vector is not None, "paths": paths})


def _experience(experience: Experience | None, query: RecallQuery, settings: Settings, cut: Cut, count: int) -> Found:
    if experience is None:
        return Found(candidates=[])
    return experience.search(query, settings, cut, count=count)


def _evidence(candidate: Candidate, mark: str, topic: str, partition: int, query: RecallQuery) -> Evidence:
    return Evidence(
        mark=mark,
        id=candidate.id,
        path=candidate.path,
        text=candidate.text,
        score=candidate.score,
        parts=candidate.parts,
        position=Position(topic=topic, partition=partition, offset=candidate.offset),
        speaker=candidate.speaker,
        name=candidate.name,
        source=candidate.source,
        turn_id=candidate.turn_id,
        document_id=candidate.document_id,
        title=candidate.title,
        occurred_at=candidate.occurred_at,
        round=candidate.round,
        rounds_ago=None if candidate.round is None else query.round - candidate.round,
    )


def _explained(found: Found, limit: int, query: RecallQuery) -> dict[str, Any]:
    last = found.candidates[min(limit, len(found.candidates)) - 1] if found.candidates else None
    dropped = [
        {
            "id": candidate.id,
            "reason": f"ranked {rank}, limit {limit}{_behind(candidate, last)}",
            "score": candidate.score,
            "parts": candidate.parts,
            "offset": candidate.offset,
        }
        for rank, candidate in enumerate(found.candidates[limit:], start=limit + 1)
    ]
    never = {
        "the query's own turn": len(query.exclude),
        f"older than the window of {found.notes.get('window_days', 0):g} days before the latest turn": found.notes.get(
            "outside_window", 0
        ),
        "outside the pool: neither words nor vector near enough, nor of a time that is asked for": found.notes.get(
            "not_near_enough", 0
        ),
    }
    return {
        "enabled": True,
        "limit": limit,
        "considered": found.considered,
        **found.notes,
        "never_ranked": {reason: count for reason, count in never.items() if count},
        "dropped": dropped,
    }


def _behind(candidate: Candidate, last: Candidate | None) -> str:
    """How far behind the last that was kept, and which summand of the score cost the most."""
    if last is None:
        return ""
    told = f"; {last.score - candidate.score:.6f} behind the last kept"
    gaps = {name: last.parts.get(name, 0.0) - candidate.parts.get(name, 0.0) for name in _SUMMANDS}
    most = max(gaps, key=lambda name: gaps[name])
    return f"{told}, most of it {most} ({gaps[most]:.3f} less)" if gaps[most] > 0 else told
