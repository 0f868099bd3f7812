"""A journal's state as a sequence of small sections of plain data, and back.

Invariants: ``restored(sections(state))`` equals ``state`` in everything that can be asked of it, now and after any
further events. ``sections`` describes the state at the offset at which it was begun, even if events are folded in
while it is read: all that it reads grows at the end only, so a prefix stands still. Each section takes a few
milliseconds to make, so that a worker can answer in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.codec import JOURNAL_EVENTS, decode_event, encode
from streams.core.conversation import JournalState, Owner, OwnerKey, RecordTimes, TurnEntry
from streams.core.experience import Experience, TurnView
from streams.core.segmenting import Segment
from streams.core.usermemory import UserMemory

LAYOUT_VERSION = 3
"""Raised when sections change."""

TURNS_PER_SECTION = 500
TERMS_PER_SECTION = 2000
VECTORS_PER_SECTION = 1000
"""1.5 MB of float32 on the way at 384 dimensions."""

Section = tuple[Any, ...]
"""Its kind, then strings, integers, bytes and lists of them."""


class UnreadableSnapshot(ValueError):
    """Sections that describe no state."""


def sections(state: JournalState) -> Iterator[Section]:
    """The state as of now: what is folded in while the iterator is read is left out."""
    last = state.watermark
    owners = list(state.owners.items())
    yield (
        "journal",
        state.partition,
        state.embedder,
        state.next_offset,
        *state.recorded.columns(),
        sorted(state.refused),
        [encode(event) for event in state.conflicts.values()],
        # Segments come and go: they are copied at once, not read while others are folded in.
        [_segment_row(key, state.owners[key].segments.due[name]) for key, name in state.segments_due],
        [_segment_row(key, state.owners[key].segments.open[name]) for key, name in state.sessions_open],
        [[*key, fact_key, *at] for (key, fact_key), at in state.facts_changed.items()],
        [[*key, fact_key, conflict_id] for (key, fact_key), conflict_id in state.conflicts_due.items()],
    )
    for key, owner in owners:
        yield from _owner_sections(key, owner, last)


def _owner_sections(key: OwnerKey, owner: Owner, last: int) -> Iterator[Section]:
    size = owner.visible(last)
    feedback = [item for item in owner.feedback.items() if item[1] <= last]
    recalls = [item for item in owner.recalls.items() if item[1] <= last]
    uses, sets = owner.experience.vectors.described(last)
    ends = [[session, *end] for session, all_ in owner.segments.ends.items() for end in all_ if end[0] <= last]
    yield "owner", *key, feedback, recalls, uses, ends
    if owner.memory is not None:
        yield "memory", owner.memory.dumped(last)
    for start in range(0, size, TURNS_PER_SECTION):
        views = owner.views[start : min(size, start + TURNS_PER_SECTION)]
        yield "turns", [_row(view, owner.turns[view.turn_id]) for view in views]
    experience = owner.experience
    yield "lengths", experience.postings.lengths(size).astype(np.int64).tobytes()
    terms = experience.postings.terms() if size else []
    for start in range(0, len(terms), TERMS_PER_SECTION):
        kept, counts, pairs = experience.postings.dumped(terms[start : start + TERMS_PER_SECTION], size)
        yield "terms", kept, counts.tobytes(), pairs.tobytes()
    for name, embedded, turns, offsets in sets:
        for start in range(0, len(turns), VECTORS_PER_SECTION):
            end = min(len(turns), start + VECTORS_PER_SECTION)
            rows = embedded.rows(start, end)
            arrivals = turns[start:end].tobytes(), offsets[start:end].tobytes()
            yield "vectors", name, rows.shape[1], *arrivals, rows.tobytes()


def _segment_row(key: OwnerKey, segment: Segment) -> list[Any]:
    views = np.array(segment.views, dtype=np.int64).tobytes()
    return [*key, segment.id, segment.session_id, views, segment.last_ms, segment.recorded_ms, segment.reason]


def _segments_restored(
    state: JournalState, due: list[Any], still_open: list[Any], changed: list[Any], conflicts: list[Any]
) -> None:
    for user_id, role_id, segment_id, session_id, views, last_ms, recorded_ms, reason in (*due, *still_open):
        key = (user_id, role_id)
        indexes = np.frombuffer(views, dtype=np.int64).tolist()
        segment = Segment(segment_id, session_id, indexes, last_ms, recorded_ms, reason)
        if reason is None:
            state.owners[key].segments.open[session_id] = segment
            state.sessions_open[key, session_id] = recorded_ms
        else:
            state.owners[key].segments.due[segment_id] = segment
            state.segments_due[key, segment_id] = None
    state.facts_changed = {((user, role), fact_key): (offset, at) for user, role, fact_key, offset, at in changed}
    state.conflicts_due = {((user, role), fact_key): conflict_id for user, role, fact_key, conflict_id in conflicts}
    waiting = [
        (owner.memory.learnt(memory_id), (key, memory_id))
        for key, owner in state.owners.items()
        if owner.memory is not None
        for memory_id in owner.memory.without_vector(state.embedder)
    ]
    state.memories_unembedded = dict.fromkeys(item for _, item in sorted(waiting, key=lambda item: item[0]))


def _row(view: TurnView, entry: TurnEntry) -> tuple[Any, ...]:
    return (
        view.offset,
        view.turn_id,
        view.session_id,
        view.speaker,
        view.text,
        view.occurred_at,
        view.occurred_ms,
        view.round,
        view.name,
        list(view.captions),
        entry.event_id,
    )


@dataclass(slots=True)
class _Restoring:
    """One owner whose sections are being read."""

    key: OwnerKey
    owner: Owner = field(default_factory=Owner)
    lengths: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    terms: dict[str, array] = field(default_factory=dict)
    uses: list[tuple[int, str]] = field(default_factory=list)
    vectors: list[tuple[str, int, bytes, bytes, bytes]] = field(default_factory=list)

    def read(self, section: Section) -> None:
        match section:
            case ("memory", dumped):
                self.owner.memory = UserMemory.restored(self.key, dumped)
            case ("turns", rows):
                for row in rows:
                    self._turn(row)
            case ("lengths", lengths):
                self.lengths = np.frombuffer(lengths, dtype=np.int64)
            case ("terms", terms, counts, pairs):
                flat = array("i")
                flat.frombytes(pairs)
                start = 0
                for term, count in zip(terms, np.frombuffer(counts, dtype=np.int64).tolist(), strict=True):
                    self.terms[term] = flat[start : start + 2 * count]
                    start += 2 * count
            case ("vectors", embedder, dimension, turns, offsets, rows):
                self.vectors.append((embedder, dimension, turns, offsets, rows))
            case _:
                raise UnreadableSnapshot(f"unknown section {section[0]!r}")

    def _turn(self, row: tuple[Any, ...]) -> None:
        *fields, event_id = row
        offset, turn_id, session_id, speaker, text, occurred_at, occurred_ms, number, name, captions = fields
        self.owner.turns[turn_id] = TurnEntry(event_id, offset)
        self.owner.views.append(
            TurnView(
                offset=offset,
                turn_id=turn_id,
                session_id=session_id,
                speaker=speaker,
                text=text,
                occurred_at=occurred_at,
                occurred_ms=occurred_ms,
                round=number,
                name=name,
                captions=tuple(captions),
            )
        )

    def finish(self) -> Owner:
        owner = self.owner
        owner.rounds = owner.views[-1].round if owner.views else 0
        owner.experience = Experience.restored(owner.views, self.terms, self.lengths)
        owner.experience.vectors.fill(self.uses, self.vectors)
        return owner


def restored(read: Iterable[Section]) -> JournalState:
    """The state that ``sections`` was read from.

    Raises
    ------
    UnreadableSnapshot
        The sections are not in the form that ``sections`` gives them.
    """
    reader = iter(read)
    try:
        kind, partition, embedder, next_offset, offsets, times, refused, conflicts, *segments = next(reader)
        if kind != "journal":
            raise UnreadableSnapshot(f"begins with {kind!r}, expected 'journal'")
        state = JournalState(partition, embedder)
        state.next_offset = next_offset
        state.recorded = RecordTimes.restored(offsets, times)
        state.refused = set(refused)
        for event in (decode_event(value, JOURNAL_EVENTS) for value in conflicts):
            state.conflicts[event.event_id] = event
        restoring: _Restoring | None = None
        for section in reader:
            if section[0] != "owner":
                if restoring is None:
                    raise UnreadableSnapshot(f"{section[0]!r} before the first owner")
                restoring.read(section)
                continue
            if restoring is not None:
                state.owners[restoring.key] = restoring.finish()
            _, user_id, role_id, feedback, recalls, uses, ends = section
            owner = Owner(feedback=dict(feedback), recalls=dict(recalls))
            for session_id, offset, occurred_ms in ends:
                owner.segments.ends.setdefault(session_id, []).append((offset, occurred_ms))
            restoring = _Restoring((user_id, role_id), owner, uses=uses)
        if restoring is not None:
            state.owners[restoring.key] = restoring.finish()
        _segments_restored(state, *segments)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, StopIteration) as error:
        raise UnreadableSnapshot(f"not a journal's state: {error!r}") from error
    state.find_outstanding()
    return state
