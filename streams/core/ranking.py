"""Recall: each path searched and scored apart, its best candidates marked as evidence; merged only in the prompt.

Invariant: a function of its arguments. Evidence of one path never displaces that of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.positions import Position
from schemas.recalls import Evidence
from streams.core import text
from streams.core.candidates import Candidate, Found, RecallQuery
from streams.core.experience import Experience
from streams.core.knowledge import Knowledge
from streams.core.reranking import Opinion, blended
from streams.core.settings import MemorySettings, Settings
from streams.core.usermemory import UserMemory
from streams.core.visibility import Cut

__all__ = ["RecallQuery", "Recollection", "query_passage", "recall", "shortlist"]

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
    "spread",
    "correction",
    "rerank_norm",
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
    memory: UserMemory | None = None,
    scene: npt.NDArray[np.int8] | None = None,
    recent: frozenset[str] = frozenset(),
    explain: bool = False,
    rerank: Opinion | None = None,
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
    memory : UserMemory, optional
        The owner's facts, summaries and atoms; None: there are none.
    scene : (d,) int8, optional
        What is being talked about: see ``UserMemory.search``.
    recent : frozenset of str
        Turns that the prompt shows anyway.
    explain : bool
        Tell candidates that were dropped, with reason and components.
    rerank : Opinion, optional
        Of a reranker on the ``shortlist``; counts as ``settings.rerank`` says.

    Returns
    -------
    Recollection
        Marks E1… for experience, K1… for knowledge, M1… for user memory.
    """
    evidence: list[Evidence] = []
    paths: dict[str, Any] = {}
    for path, mark, limit, chosen in (
        ("knowledge", "K", query.limits.knowledge, settings.knowledge),
        ("experience", "E", query.limits.experience, settings.experience),
        ("memory", "M", query.limits.memory, settings.memory),
    ):
        if not chosen.enabled or not limit:
            paths[path] = {"enabled": chosen.enabled, "limit": limit, "considered": 0, "dropped": []}
            continue
        count = limit + DROPPED_MAX if explain else limit
        scores = rerank.scores if rerank is not None and settings.rerank.weight else {}
        if scores:
            count = max(count, settings.rerank.candidates)
        if path == "knowledge":
            found = knowledge.search(query, settings, cut_library, query.role_id, count=count)
            topic, partition = "library", 0
        elif path == "memory":
            assert isinstance(chosen, MemorySettings)
            shown = recent.union(item.turn_id for item in evidence if item.path == "experience" and item.turn_id)
            found = _NOTHING
            if memory is not None:
                found = memory.search(query, chosen, cut_journal, scene=scene, shown=shown, count=count)
            topic, partition = "journal", journal_partition
        else:
            found = _experience(experience, query, settings, cut_journal, count)
            topic, partition = "journal", journal_partition
        if scores:
            found = replace(found, candidates=blended(found.candidates, scores, settings.rerank))
        evidence += [
            _evidence(candidate, f"{mark}{number}", topic, partition, query)
            for number, candidate in enumerate(found.candidates[:limit], start=1)
        ]
        paths[path] = _explained(found, limit, len(query.exclude) if path == "experience" else 0) if explain else None
    if not explain:
        return Recollection(tuple(evidence), None)
    told = {"vector": query.vector is not None, "paths": paths}
    if settings.rerank.weight:
        told["rerank"] = {
            "weight": settings.rerank.weight,
            "scored": len(rerank.scores) if rerank is not None else 0,
            "note": rerank.note if rerank is not None else "there is no reranker: the first search alone decides",
        }
    return Recollection(tuple(evidence), told)


_NOTHING = Found(candidates=[])


def shortlist(
    experience: Experience | None,
    knowledge: Knowledge,
    query: RecallQuery,
    settings: Settings,
    cut_journal: Cut,
    cut_library: Cut,
) -> dict[str, str]:
    """Text by id of the candidates that a reranker is asked about: the best ``rerank.candidates`` of each path.

    Empty where its opinion counts nothing.
    """
    count = settings.rerank.candidates
    if not settings.rerank.weight:
        return {}
    texts: dict[str, str] = {}
    if settings.knowledge.enabled and query.limits.knowledge:
        found = knowledge.search(query, settings, cut_library, query.role_id, count=count)
        texts |= {candidate.id: candidate.text for candidate in found.candidates}
    if settings.experience.enabled and query.limits.experience:
        found = _experience(experience, query, settings, cut_journal, count)
        texts |= {candidate.id: candidate.text for candidate in found.candidates}
    return texts


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


def _explained(found: Found, limit: int, excluded: int) -> dict[str, Any]:
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
        "the query's own turn": excluded,
        f"older than the window of {found.notes.get('window_days', 0):g} days before the latest turn": found.notes.get(
            "outside_window", 0
        ),
        "outside the pool: neither words nor vector near enough, nor of a time that is asked for": found.notes.get(
            "not_near_enough", 0
        ),
        "removed or replaced by then": found.notes.get("removed", 0),
    }
    ranked = found.considered - found.notes.get("not_near_enough", 0) if found.candidates else 0
    return {
        "enabled": True,
        "limit": limit,
        "considered": found.considered,
        **found.notes,
        "never_ranked": {reason: count for reason, count in never.items() if count},
        # Of documents: children below the listed parents, or of a parent that a better child stands for.
        "ranked": ranked,
        "ranked_unlisted": ranked - len(found.candidates),
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
