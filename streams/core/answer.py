"""From a request to a reply: pure, so that the answer of a live worker and that of a replay are the same bytes.

Invariant: whatever an answer holds was found in the prefix of the logs that its watermark names, in the memory of
the owner that the request names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.envelope import derived_id, instant_ms, instant_of
from schemas.personas import Persona
from schemas.positions import Position, Watermark
from schemas.recalls import SEARCHING, AsOf, EvidenceRecord, Failure, Limits, RecallAnswered, Reply, Request
from streams.core import prompt, ranking, vectors
from streams.core.conversation import JournalState, Owner
from streams.core.experience import Cut, TurnView
from streams.core.library import LibraryState
from streams.core.ranking import RecallQuery, Recollection
from streams.core.reading import Reading, read
from streams.core.reranking import Opinion
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
    anchor: Persona | None = None
    """That stands in the system message."""
    recent: tuple[TurnView, ...] = ()
    """The turns that the prompt shows in full."""


SCENE_TURNS = 6
"""Turns whose mean vector is the scene: three rounds."""

_NOBODY = Owner()


_parameters = lru_cache(maxsize=64)(as_dict)
"""Parameters of the settings in use: the same few, an eighth of an answer's time if made anew each time."""


@lru_cache(maxsize=64)
def _digest(settings: Settings, config: tuple[tuple[str, Any], ...]) -> str:
    """``settings.digest`` of the few settings in use: a tenth of a millisecond each time."""
    return digest(settings, dict(config))


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
        if request.kind not in SEARCHING and request.as_of.occurred_at is not None:
            # What was true then, by all that has been learnt since: extraction comes after the turns that it is of.
            journal_cut = Cut(journal.watermark, journal_cut.event_ms)
        library_cut = Cut(_library_offset(journal, library, journal_cut.offset, request.as_of), journal_cut.event_ms)
        default_now = _time_of(owner, journal_cut, request.as_of, record_ms)
    now_ms = instant_ms(request.now) if request.now else default_now
    return _moment(owner, request, journal_cut, library_cut, now_ms)


def moment_at(
    journal: JournalState,
    request: Request,
    *,
    journal_offset: int,
    library_offset: int,
    event_ms: int | None,
    now_ms: int,
) -> Moment:
    """The moment of a request that was answered from known prefixes of the logs."""
    owner = journal.owners.get((request.user_id, request.role_id), _NOBODY)
    return _moment(owner, request, Cut(journal_offset, event_ms), Cut(library_offset, event_ms), now_ms)


def _moment(owner: Owner, request: Request, journal_cut: Cut, library_cut: Cut, now_ms: int) -> Moment:
    visible = owner.visible(journal_cut.offset)
    last = _last_visible(owner, visible, journal_cut.event_ms)
    own = last if last is not None and _is_query(last, request.query) else None
    rounds = last.round if last is not None else 0
    return Moment(
        journal=journal_cut,
        library=library_cut,
        now_ms=now_ms,
        round=rounds if own is not None else rounds + 1,
        visible=visible,
        own_turn=own,
    )


def embedders_at(journal: JournalState, library: LibraryState, request: Request, moment: Moment) -> tuple[str, ...]:
    """Embedders whose vectors are in use at a moment, that of the owner's turns first; empty: there are no vectors."""
    owner = journal.owners.get((request.user_id, request.role_id), _NOBODY)
    return tuple(dict.fromkeys(name for name in _in_use(owner, library, moment).values() if name is not None))


def _in_use(owner: Owner, library: LibraryState, moment: Moment) -> dict[str, str | None]:
    """Embedder by path."""
    offset = moment.journal.offset
    return {
        "experience": owner.experience.vectors.uses.at(offset),
        "memory": owner.memory.vectors.uses.at(offset) if owner.memory is not None else None,
        "knowledge": library.knowledge.uses.at(moment.library.offset),
    }


def _embedders_told(owner: Owner, library: LibraryState, moment: Moment, embedder: str) -> dict[str, Any]:
    """What an explanation says of embedders: a path whose vectors are of another is matched by words only."""
    in_use = _in_use(owner, library, moment)
    notes = [
        f"{path} is matched by words only: its vectors in use at that point are of {name}, and a query can't be "
        f"compared with them that {embedder} embedded"
        for path, name in in_use.items()
        if name not in (None, embedder)
    ]
    return {"query": embedder, **in_use, **({"notes": notes} if notes else {})}


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
    for view in _newest_first(owner, visible):
        if event_ms is None or view.occurred_ms <= event_ms:
            return view
    return None


def _newest_first(owner: Owner, visible: int) -> Iterator[TurnView]:
    # Not a slice: it would copy every turn of the owner for each answer, 1.9 ms at 100,000.
    views = owner.views
    return (views[index] for index in range(visible - 1, -1, -1))


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
    rerank: Opinion | None = None,
    config_digest: str | None = None,
    lap: Callable[[str], None] = lambda stage: None,
) -> Answer:
    """Evidence, messages and the record of the answer.

    Parameters
    ----------
    vector : (d,) int8 or None
        The query's recorded vector; None: the embedder was away, words alone decide.
    config : dict
        What besides ``settings`` decides the answer: part of the digest. ``embedder`` names that of ``vector``, by
        default the one in use; vectors of others are not searched.
    rerank : Opinion, optional
        What a reranker said of the ``shortlist``; recorded, so that a replay needs no model.
    config_digest : str, optional
        As it was recorded, where an answer is computed again; by default it is worked out.
    lap : callable
        Told the name of each stage when it ends, so that a caller with a clock can time it.
    """
    owner = journal.owners.get((request.user_id, request.role_id), _NOBODY)
    embedder = config.get("embedder") or next(iter(embedders_at(journal, library, request, moment)), "")
    query = _query_of(owner, request, vector, moment, embedder)
    found, told = Recollection((), None), Reading()
    recent: tuple[TurnView, ...] = ()
    if request.kind in SEARCHING:
        recent, scene = _latest(owner, moment, request, settings)
        found = ranking.recall(
            owner.experience,
            library.knowledge,
            query,
            settings,
            moment.journal,
            moment.library,
            journal_partition=journal.partition,
            memory=owner.memory,
            scene=scene,
            recent=frozenset(turn.turn_id for turn in recent),
            explain=bool(request.explain),
            rerank=rerank,
        )
    else:
        days = settings.memory.summary_days
        told = read(owner, library, request, moment.journal, moment.library, now_ms=moment.now_ms, days=days)
    lap("search")
    anchor = library.anchor(request.role_id, moment.library)
    persona = anchor.persona if anchor else None
    assembly = None
    if request.kind == "assemble":
        assembly = prompt.assemble(
            query=query,
            evidence=found.evidence,
            recent=recent,
            anchor=persona,
            settings=settings,
        )
        lap("prompt")
    config_digest = config_digest or _digest(settings, tuple(sorted(config.items())))
    recall_id = recall_id_of(source)
    messages = assembly.messages if assembly else None
    watermark = Watermark(journal={str(journal.partition): moment.journal.offset}, library={"0": moment.library.offset})
    explain = {**(found.explain or {}), **({"prompt": assembly.trace} if assembly else {})} if request.explain else None
    if explain:
        explain["embedder"] = _embedders_told(owner, library, moment, embedder)
    reply = Reply(
        request_id=request.request_id,
        status="ok",
        recall_id=recall_id,
        messages=messages,
        evidence=found.evidence if request.kind in SEARCHING else None,
        facts=told.facts,
        conflicts=told.conflicts,
        summaries=told.summaries,
        persona=told.persona,
        turns=told.turns,
        watermark=watermark,
        preset=settings.preset,
        config_digest=config_digest,
        messages_sha256=prompt.messages_sha256(messages) if messages is not None else None,
        temperature=assembly.temperature if assembly else None,
        round=moment.round,
        anchor=anchor.event_id if anchor else None,
        anchor_repeated=assembly.anchor_repeated if assembly else None,
        serious_topics=(assembly.serious_topics or None) if assembly else None,
        explain=explain,
    )
    event = _event(reply, request, source, settings, vector, moment, recorded_at, rerank)
    return Answer(reply, replace(event, query_embedder=embedder or None), persona, recent)


def shortlist(
    journal: JournalState,
    library: LibraryState,
    request: Request,
    settings: Settings,
    vector: NDArray[np.int8] | None,
    moment: Moment,
    embedder: str,
) -> dict[str, str]:
    """Text by evidence id of the candidates that a reranker is asked about: the best of each path."""
    owner = journal.owners.get((request.user_id, request.role_id), _NOBODY)
    query = _query_of(owner, request, vector, moment, embedder)
    return ranking.shortlist(owner.experience, library.knowledge, query, settings, moment.journal, moment.library)


def _query_of(
    owner: Owner, request: Request, vector: NDArray[np.int8] | None, moment: Moment, embedder: str
) -> RecallQuery:
    return RecallQuery(
        text=request.query,
        vector=vector,
        embedder=embedder,
        now_ms=moment.now_ms,
        round=moment.round,
        session_id=request.session_id,
        user_id=request.user_id,
        role_id=request.role_id,
        names=owner.experience.names(moment.journal),
        exclude=frozenset({moment.own_turn.turn_id}) if moment.own_turn else frozenset(),
        limits=request.limits or Limits(),
    )


def _event(
    reply: Reply,
    request: Request,
    source: Position,
    settings: Settings,
    vector: NDArray[np.int8] | None,
    moment: Moment,
    recorded_at: str,
    rerank: Opinion | None,
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
        query_vector=vectors.encode(vector) if vector is not None else None,
        rerank=dict(rerank.scores) or None if rerank is not None else None,
        messages_sha256=reply.messages_sha256,
        temperature=reply.temperature,
        anchor=reply.anchor,
        anchor_repeated=reply.anchor_repeated,
        round=moment.round,
        correlation_id=request.request_id,
    )


def _latest(
    owner: Owner, moment: Moment, request: Request, settings: Settings
) -> tuple[tuple[TurnView, ...], NDArray[np.int8] | None]:
    """The turns that the prompt shows in full, and the mean vector of the last of them: what is being talked about.

    None for the vector: nobody asks for it, or it can't be compared with memories, since they are of another embedder.
    """
    offset, memory = moment.journal.offset, owner.memory
    weighed = memory is not None and settings.memory.enabled and settings.memory.scene_weight > 0
    if memory is not None and owner.experience.vectors.uses.at(offset) != memory.vectors.uses.at(offset):
        weighed = False
    shown = settings.prompt.recent_turns if request.kind == "assemble" else 0
    latest = _recent(owner, moment, request, max(shown, SCENE_TURNS if weighed else 0))
    scene = (
        owner.experience.scene([turn.turn_id for turn in latest[-SCENE_TURNS:]], moment.journal) if weighed else None
    )
    return latest[max(0, len(latest) - shown) :], scene


def recall_id_of(source: Position) -> str:
    """Id of the recall that answers the request at a position.

    With its time: after a restore ``requests`` begins anew, and other requests stand at the same offsets.
    """
    return "r-" + derived_id("recall", source.topic, source.partition, source.offset, source.timestamp or 0)


def _recent(owner: Owner, moment: Moment, request: Request, wanted: int) -> tuple[TurnView, ...]:
    """The newest turns of the session (without one: of the owner), without the query's own."""
    recent: list[TurnView] = []
    for view in _newest_first(owner, moment.visible):
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
    return replace(
        answered,
        reply=replace(answered.reply, timings_ms=timings_ms, not_embedded=not_embedded or None),
        event=replace(answered.event, timings_ms=timings_ms),
    )
