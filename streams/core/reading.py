"""Reads of memory that search nothing: facts, conflicts, summaries, the persona, the turns of a session.

Invariant: a read sees the prefix of the logs that its reply's watermark names. As of an event time (``occurred_at``)
it tells what was true by then by all that has been learnt since; as of any other coordinate, what was known then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.memories import Conflict, Fact, Summary
from schemas.personas import Persona
from schemas.recalls import Request, TurnShown
from streams.core.visibility import Cut

if TYPE_CHECKING:
    from streams.core.conversation import Owner
    from streams.core.library import LibraryState

TURNS_MAX = 2_000
"""Turns of one reply; the newest of a longer session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a read found; fields of kinds that were not asked for are None."""

    facts: tuple[Fact, ...] | None = None
    conflicts: tuple[Conflict, ...] | None = None
    summaries: tuple[Summary, ...] | None = None
    persona: Persona | None = None
    turns: tuple[TurnShown, ...] | None = None


def read(
    owner: Owner, library: LibraryState, request: Request, journal: Cut, at_library: Cut, *, now_ms: int, days: float
) -> Reading:
    """Answer a request whose kind is a read.

    Parameters
    ----------
    journal, at_library : Cut
    now_ms : int
        Summaries older than ``days`` have expired.
    days : float
    """
    history, memory = bool(request.history), owner.memory
    if request.kind == "facts":
        found = memory.facts.facts(journal, live_only=not history, history=history) if memory else []
        return Reading(facts=tuple(found), conflicts=tuple(memory.facts.conflicts_at(journal)) if memory else ())
    if request.kind == "conflicts":
        return Reading(conflicts=tuple(memory.facts.conflicts_at(journal)) if memory else ())
    if request.kind == "summaries":
        return Reading(summaries=tuple(memory.summaries(journal, now_ms, days)) if memory else ())
    if request.kind == "persona":
        anchor = library.anchor(request.role_id, at_library)
        return Reading(persona=anchor.persona if anchor else None)
    shown = [
        TurnShown(
            turn_id=view.turn_id,
            session_id=view.session_id,
            speaker=view.speaker,
            name=view.name,
            text=view.text,
            occurred_at=view.occurred_at,
            round=view.round,
            offset=view.offset,
        )
        for view in owner.views[: owner.visible(journal.offset)]
        if (request.session_id is None or view.session_id == request.session_id)
        and (journal.event_ms is None or view.occurred_ms <= journal.event_ms)
    ]
    return Reading(turns=tuple(shown[-TURNS_MAX:]))
