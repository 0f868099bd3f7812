"""From a request to a reply: pure, so that the answer of a live worker and that of a replay are the same bytes.

Invariant: whatever an answer holds was found in the prefix of the logs that its watermark names, in the memory of
the owner that the request names.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.envelope import derived_id, instant_ms, instant_of
from schemas.positions import Position, Watermark
from schemas.recalls import AsOf, EvidenceRecord, Failure, Limits, RecallAnswered, Reply, Request
from streams.core import prompt, ranking
from streams.core.conversation import JournalState, Owner
from streams.core.experience import Cut, TurnView
from streams.core.library import LibraryState
from streams.core.ranking import RecallQuery
from streams.core.settings import Settings, as_dict, digest


class Refused(ValueError):
    """A request that can't be answered; ``failure`` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Moment:
    """What a request is answered from: prefixes of both logs, the time it is now, and the round it is in."""

    journal: Cut
    library: Cut
    now_ms: int
    round: int
    visible: int
    """Turns of the owner at or before the journal's cut."""
    own_turn: TurnView | None
    """The turn that is the query itself, if it was posted before the request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply, and the event that records it."""

    reply: Reply
    event: RecallAnswered


_NOBODY = Owner()


_parameters = lru_cache(maxsize=64)(as_dict)
"""Parameters of the settings in use: the same few, an eighth of an answer's time if made anew each time."""


def moment_of(journal: JournalState, library: LibraryState, request: Request, record_ms: int) -> Moment:
    """Resolve ``as_of`` and ``now`` of a request.

    Raises
    ------
    Refused
        ``bad_request`` for an ``as_of`` turn that this owner doesn't have.
    """
    owner = journal.owners.get((request.user_id, request.role_id), _NOBODY)
    record_ms = instant_ms(instant_of(record_ms))  # the sender's clock, brought within the years that we know
    if request.as_of is None:
        journal_cut = Cut(journal.watermark, None)
        library_cut = Cut(library.watermark, None)
        default_now = record_ms
    else:
        journal_cut = Cut(*_journal_cut(journal, owner, request.as_of))
        library_cut = Cut(_library_offset(journal, library, journal_cut.offset, request.as_of), journal_cut.event_ms)
        default_now = _time_of(owner, journal_cut, request.as_of, record_ms)
    visible = owner.visible(journal_cut.offset)
    last = _last_visible(owner, visible, journal_cut.event_ms)
    own = last if last is not None and _is_query(last, request.query) else None
    rounds = last.round if last is not None else 0
    return Moment(
        journal=journal_cut,
        library=library_cut,
        now_ms=instant_ms(request.now) if request.now else default_now,
        round=rounds if own is not None else rounds + 1,
        visible=visible,
        own_turn=own,
    )


def names_at(journal: JournalState, request: Request, moment: Moment) -> tuple[str, ...]:
    """Names of the participants that were known at a moment."""
    owner = journal.owners.get((request.user_id, request.role_id), _NOBODY)
    return owner.experience.names(moment.journal)


def _journal_cut(journal: JournalState, owner: Owner, as_of: AsOf) -> tuple[int, int | None]:
    if as_of.offset is not None:
        return min(as_of.offset, journal.watermark), None
    if as_of.recorded_at is not None:
        return journal.recorded.offset_at(instant_ms(as_of.recorded_at)), None
    if as_of.occurred_at is not None:
        at_ms = instant_ms(as_of.occurred_at)
        offsets = [view.offset for view in owner.views if view.occurred_ms <= at_ms]
        return (offsets[-1] if offsets else -1), at_ms
    if as_of.round is not None:
        offsets = [view.offset for view in owner.views if view.round <= as_of.round]
        return (offsets[-1] if offsets else -1), None
    entry = owner.turns.get(as_of.turn_id or "")
    if entry is None:
        raise Refused(
            Failure(
                code="bad_request",
                message=f"`as_of` names turn {as_of.turn_id!r}, which this owner doesn't have; expected a turn_id of "
                f"its own that is in memory",
            )
        )
    return entry.offset, None


def _library_offset(journal: JournalState, library: LibraryState, journal_offset: int, as_of: AsOf) -> int:
    if as_of.recorded_at is not None:
        return library.recorded.offset_at(instant_ms(as_of.recorded_at))
    if journal_offset >= journal.watermark:
        return library.watermark
    recorded_ms = journal.recorded.time_at(journal_offset)
    return library.recorded.offset_at(recorded_ms) if recorded_ms is not None else -1


def _time_of(owner: Owner, cut: Cut, as_of: AsOf, record_ms: int) -> int:
    # Decay is measured from the point that is asked about, not from the day somebody asks.
    if cut.event_ms is not None:
        return cut.event_ms
    if as_of.recorded_at is not None:
        return instant_ms(as_of.recorded_at)
    last = _last_visible(owner, owner.visible(cut.offset), None)
    return last.occurred_ms if last is not None else record_ms


def _last_visible(owner: Owner, visible: int, event_ms: int | None) -> TurnView | None:
    for view in reversed(owner.views[:visible]):
        if event_ms is None or view.occurred_ms <= event_ms:
            return view
    return None


def _is_query(view: TurnView, query: str) -> bool:
    return view.speaker == "user" and bool(query.strip()) and view.text.strip() == query.strip()


def answer(
    journal: JournalState,
    library: LibraryState,
    request: Request,
    source: Position,
    settings: Settings,
    vector: NDArray[np.int8] | None,
    *,
    moment: Moment,
    config: dict[str, Any],
    recorded_at: str,
    lap: Callable[[str], None] = lambda stage: None,
) -> Answer:
    """Evidence, messages and the record of the answer.

    Parameters
    ----------
    vector : (d,) int8 or None
        The query's recorded vector; None: the embedder was away, words alone decide.
    config : dict
        What besides ``settings`` decides the answer (embedder and calibration): part of the digest.
    lap : callable
        Told the name of each stage when it ends, so that a caller with a clock can time it.
    """
    owner = journal.owners.get((request.user_id, request.role_id), _NOBODY)
    limits = request.limits or Limits()
    query = RecallQuery(
        text=request.query,
        vector=vector,
        now_ms=moment.now_ms,
        round=moment.round,
        session_id=request.session_id,
        user_id=request.user_id,
        role_id=request.role_id,
        names=owner.experience.names(moment.journal),
        exclude=frozenset({moment.own_turn.turn_id}) if moment.own_turn else frozenset(),
        limits=limits,
    )
    found = ranking.recall(
        owner.experience,
        library.knowledge,
        query,
        settings,
        moment.journal,
        moment.library,
        journal_partition=journal.partition,
        explain=bool(request.explain),
    )
    lap("search")
    anchor = library.anchor(request.role_id, moment.library)
    assembly = None
    if request.kind == "assemble":
        assembly = prompt.assemble(
            query=query,
            evidence=found.evidence,
            recent=_recent(owner, moment, request, settings),
            anchor=anchor.persona if anchor else None,
            settings=settings,
        )
        lap("prompt")
    config_digest = digest(settings, config)
    recall_id = "r-" + derived_id("recall", source.topic, source.partition, source.offset)
    messages = assembly.messages if assembly else None
    watermark = Watermark(journal={str(journal.partition): moment.journal.offset}, library={"0": moment.library.offset})
    explain = {**(found.explain or {}), **({"prompt": assembly.trace} if assembly else {})} if request.explain else None
    reply = Reply(
        request_id=request.request_id,
        status="ok",
        recall_id=recall_id,
        messages=messages,
        evidence=found.evidence,
        watermark=watermark,
        preset=settings.preset,
        config_digest=config_digest,
        messages_sha256=prompt.messages_sha256(messages) if messages is not None else None,
        temperature=assembly.temperature if assembly else None,
        round=moment.round,
        anchor=anchor.event_id if anchor else None,
        explain=explain,
    )
    return Answer(reply, _event(reply, request, source, settings, vector, moment, recorded_at))


def _event(
    reply: Reply,
    request: Request,
    source: Position,
    settings: Settings,
    vector: NDArray[np.int8] | None,
    moment: Moment,
    recorded_at: str,
) -> RecallAnswered:
    assert reply.recall_id is not None
    assert reply.watermark is not None
    assert reply.config_digest is not None
    return RecallAnswered(
        event_id=derived_id("RecallAnswered", reply.recall_id),
        occurred_at=request.now or instant_of(moment.now_ms),
        recorded_at=recorded_at,
        user_id=request.user_id,
        role_id=request.role_id,
        recall_id=reply.recall_id,
        request=request,
        source=source,
        watermark=reply.watermark,
        preset=settings.preset,
        parameters=_parameters(settings),
        config_digest=reply.config_digest,
        evidence=tuple(
            EvidenceRecord(
                mark=item.mark,
                id=item.id,
                path=item.path,
                score=item.score,
                parts=item.parts,
                position=item.position,
                speaker=item.speaker,
                source=item.source,
                turn_id=item.turn_id,
                document_id=item.document_id,
                occurred_at=item.occurred_at,
                round=item.round,
                rounds_ago=item.rounds_ago,
            )
            for item in reply.evidence or ()
        ),
        query_vector=base64.b64encode(vector.tobytes()).decode() if vector is not None else None,
        messages_sha256=reply.messages_sha256,
        temperature=reply.temperature,
        anchor=reply.anchor,
        round=moment.round,
        correlation_id=request.request_id,
    )


def _recent(owner: Owner, moment: Moment, request: Request, settings: Settings) -> tuple[TurnView, ...]:
    """The newest turns of the session (without one: of the owner), without the query's own."""
    wanted = settings.prompt.recent_turns
    recent: list[TurnView] = []
    for view in reversed(owner.views[: moment.visible]):
        if len(recent) >= wanted:
            break
        if moment.journal.event_ms is not None and view.occurred_ms > moment.journal.event_ms:
            continue
        if view is moment.own_turn or (request.session_id is not None and view.session_id != request.session_id):
            continue
        recent.append(view)
    return tuple(reversed(recent))


def with_timings(answered: Answer, timings_ms: dict[str, float], not_embedded: tuple[str, ...] = ()) -> Answer:
    """The same answer with how long its stages took."""
    return Answer(
        replace(answered.reply, timings_ms=timings_ms, not_embedded=not_embedded or None),
        replace(answered.event, timings_ms=timings_ms),
    )
