"""The fold of the journal: one partition's events to the memory of its owners.

``JournalState.apply`` is pure and total: same events, same state, byte for byte. It ignores offsets it has seen,
duplicate posts, and effects whose cause already has one. Everything that depends on time comes from the events.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from schemas.codec import JournalEvent
from schemas.envelope import instant_ms
from schemas.feedback import FeedbackRecorded
from schemas.memories import ConflictArbitrated, MemoriesExtracted, MemoryEmbedded, Policy
from schemas.recalls import RecallAnswered
from schemas.responses import AtomDistilled
from schemas.turns import TurnEmbedded, TurnRecorded, TurnRefused
from streams.core import vectors
from streams.core.experience import Experience, TurnView
from streams.core.segmenting import Segments, asks_to_remember
from streams.core.usermemory import UserMemory

FOLD_VERSION = 3
"""Raised whenever ``apply`` would make another state of the same events; snapshots of others are not read."""

OwnerKey = tuple[str, str]


@dataclass(slots=True)
class TurnEntry:
    """What is known of a turn id: the event of its first content, and where that stands."""

    event_id: str
    offset: int


@dataclass(slots=True)
class Owner:
    """Memory of one (user_id, role_id). Nothing in it refers to another owner."""

    experience: Experience = field(default_factory=Experience)
    turns: dict[str, TurnEntry] = field(default_factory=dict)
    views: list[TurnView] = field(default_factory=list)
    rounds: int = 0
    feedback: dict[str, int] = field(default_factory=dict)
    recalls: dict[str, int] = field(default_factory=dict)
    segments: Segments = field(default_factory=Segments)
    memory: UserMemory | None = None
    """Facts, summaries and atoms; None until there is one."""

    def view(self, turn_id: str) -> TurnView:
        """A turn of this owner."""
        return self.views[self.visible(self.turns[turn_id].offset) - 1]

    def visible(self, offset: int) -> int:
        """How many turns stand at or before an offset."""
        return bisect_right(self.views, offset, key=lambda view: view.offset)


class RecordTimes:
    """Record times of a log, never falling, so that a time and an offset map to each other both ways.

    Workers' clocks may disagree by a little; the running maximum makes "recorded by then" a prefix.
    """

    def __init__(self) -> None:
        self._offsets = array("q")
        self._times = array("q")

    def add(self, offset: int, recorded_ms: int) -> None:
        """Note an event; offsets rise."""
        self._offsets.append(offset)
        self._times.append(max(recorded_ms, self._times[-1] if self._times else recorded_ms))

    def columns(self) -> tuple[bytes, bytes]:
        """Offsets and times as bytes, for ``restored``."""
        return self._offsets.tobytes(), self._times.tobytes()

    @classmethod
    def restored(cls, offsets: bytes, times: bytes) -> RecordTimes:
        """What ``add`` had built."""
        recorded = cls()
        recorded._offsets.frombytes(offsets)
        recorded._times.frombytes(times)
        return recorded

    def offset_at(self, recorded_ms: int) -> int:
        """Last offset recorded at or before a time; -1: none."""
        index = bisect_right(self._times, recorded_ms) - 1
        return self._offsets[index] if index >= 0 else -1

    def time_at(self, offset: int) -> int | None:
        """Record time in ms of the last event at or before an offset; None: none."""
        index = bisect_right(self._offsets, offset) - 1
        return self._times[index] if index >= 0 else None


class JournalState:
    """State of one journal partition.

    Parameters
    ----------
    partition : int
    embedder : str
        Name of the embedder that passages are to have vectors of. It decides only what is outstanding: all recorded
        vectors are kept, and which are searched at an offset follows from the journal alone (see ``VectorSets``).
    """

    def __init__(self, partition: int, embedder: str) -> None:
        self.partition = partition
        self.embedder = embedder
        self.next_offset = 0
        self.owners: dict[OwnerKey, Owner] = {}
        self.unembedded: dict[tuple[OwnerKey, str], None] = {}
        """Turns without any vector, in journal order: the outstanding embedding effects."""
        self.outdated: dict[OwnerKey, dict[str, None]] = {}
        """Turns by owner that have vectors of other embedders only: effects too, which come after those."""
        self.switchable: dict[OwnerKey, None] = {}
        """Owners whose vectors of the embedder are complete and not in use: effects as well."""
        self.conflicts: dict[str, TurnRecorded] = {}
        """Turns whose id was taken by other content, by event id: the outstanding refusals."""
        self.refused: set[str] = set()
        self.recorded = RecordTimes()
        self.segments_due: dict[tuple[OwnerKey, str], None] = {}
        """Closed segments by owner and id, in order of closing: the outstanding extractions."""
        self.sessions_open: dict[tuple[OwnerKey, str], int] = {}
        """Record time in ms of the last turn of each open segment by owner and session, longest idle first."""
        self.memories_unembedded: dict[tuple[OwnerKey, str], None] = {}
        """Facts, summaries and atoms without a vector of the embedder."""
        self.facts_changed: dict[tuple[OwnerKey, str], tuple[int, str]] = {}
        """Owners' keys that the topic ``facts`` has not been told of: offset and record time of the change."""
        self.conflicts_due: dict[tuple[OwnerKey, str], str] = {}
        """Ids of the open conflicts that a model is to settle, by owner and key of the fact."""

    @property
    def watermark(self) -> int:
        """Last applied offset; -1: none."""
        return self.next_offset - 1

    def awaits_vector(self, key: OwnerKey, turn_id: str) -> bool:
        """Whether a turn has no vector of the embedder."""
        return (key, turn_id) in self.unembedded or turn_id in self.outdated.get(key, ())

    def find_outstanding(self) -> None:
        """Make ``unembedded`` and ``outdated`` anew from what the owners hold."""
        waiting: list[tuple[int, tuple[OwnerKey, str]]] = []
        self.outdated = {}
        for key, owner in self.owners.items():
            self._note_switchable(key, owner)
            vectors = owner.experience.vectors
            for view in (owner.views[index] for index in vectors.lacking(self.embedder)):
                if owner.experience.embedded(view.turn_id):
                    self.outdated.setdefault(key, {})[view.turn_id] = None
                else:
                    waiting.append((view.offset, (key, view.turn_id)))
        self.unembedded = dict.fromkeys(item for _, item in sorted(waiting))

    def apply(self, offset: int, event: JournalEvent | None) -> None:
        """Fold one event. None: an event of a type that this program doesn't know, which is passed over."""
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        if event is None:
            return
        self.recorded.add(offset, instant_ms(event.recorded_at))
        key = (event.user_id, event.role_id)
        match event:
            case TurnRecorded():
                self._turn_recorded(offset, key, event)
            case TurnEmbedded():
                self._turn_embedded(offset, key, event)
            case TurnRefused():
                self.refused.add(event.causation_id)
                self.conflicts.pop(event.causation_id, None)
            case FeedbackRecorded():
                self._feedback_recorded(offset, key, event)
            case MemoriesExtracted():
                self._memories_extracted(offset, key, event)
            case MemoryEmbedded():
                self._memory_embedded(offset, key, event)
            case AtomDistilled():
                self._atom_distilled(offset, key, event)
            case ConflictArbitrated():
                self._conflict_arbitrated(offset, key, event)
            case RecallAnswered():
                self._owner(key).recalls.setdefault(event.recall_id, offset)

    def _owner(self, key: OwnerKey) -> Owner:
        owner = self.owners.get(key)
        if owner is None:
            owner = self.owners[key] = Owner()
        return owner

    def _turn_recorded(self, offset: int, key: OwnerKey, event: TurnRecorded) -> None:
        owner = self._owner(key)
        known = owner.turns.get(event.turn_id)
        if known is not None:
            if known.event_id != event.event_id and event.event_id not in self.refused:
                self.conflicts.setdefault(event.event_id, event)
            return
        if event.speaker == "user":
            owner.rounds += 1
        view = TurnView(
            offset=offset,
            turn_id=event.turn_id,
            session_id=event.session_id,
            speaker=event.speaker,
            name=event.name,
            text=event.text,
            captions=event.captions or (),
            occurred_at=event.occurred_at,
            occurred_ms=instant_ms(event.occurred_at),
            round=owner.rounds,
        )
        owner.turns[event.turn_id] = TurnEntry(event.event_id, offset)
        owner.views.append(view)
        owner.experience.append(view)
        self.unembedded[key, event.turn_id] = None
        recorded_ms = instant_ms(event.recorded_at)
        owner.segments.turn(
            len(owner.views) - 1,
            event.event_id,
            event.session_id,
            view.occurred_ms,
            recorded_ms,
            remember=event.speaker == "user" and asks_to_remember(event.text),
        )
        self._segments_changed(key, owner, event.session_id, recorded_ms)

    def _segments_changed(self, key: OwnerKey, owner: Owner, session_id: str | None, recorded_ms: int) -> None:
        """Note what an owner's last change closed and left open. A session moves to the end: it is the least idle."""
        for segment in owner.segments.closed:
            self.segments_due[key, segment.id] = None
            if segment.session_id not in owner.segments.open:
                self.sessions_open.pop((key, segment.session_id), None)
        owner.segments.closed.clear()
        if session_id is not None:
            self.sessions_open.pop((key, session_id), None)
            if session_id in owner.segments.open:
                self.sessions_open[key, session_id] = recorded_ms

    def _feedback_recorded(self, offset: int, key: OwnerKey, event: FeedbackRecorded) -> None:
        owner = self._owner(key)
        if event.feedback_id in owner.feedback:
            return
        owner.feedback[event.feedback_id] = offset
        target = event.target
        if event.kind in ("session_end", "remember"):
            session = target.session_id if target else None
            if target is not None and target.turn_id in owner.turns:
                session = owner.view(target.turn_id).session_id
            for session_id in [session] if session else list(owner.segments.open):
                if event.kind == "session_end":
                    owner.segments.end(session_id, offset, instant_ms(event.occurred_at))
                else:
                    owner.segments.close(session_id, "remember")
            self._segments_changed(key, owner, None, 0)
        if event.kind in ("confirm", "deny", "remember") and target is not None and owner.memory is not None:
            kind = "deny" if event.kind == "deny" else "confirm"
            named = [target.memory_id] if target.memory_id else owner.memory.facts.of_turn(target.turn_id or "")
            for memory_id in named:
                owner.memory.feedback(kind, memory_id, offset, event.occurred_at, event.author)
            self._facts_changed(key, owner.memory, offset, event.recorded_at)

    def _facts_changed(
        self, key: OwnerKey, memory: UserMemory, offset: int, recorded_at: str, policy: Policy | None = None
    ) -> None:
        for fact_key in memory.facts.changed_at(offset):
            self.facts_changed[key, fact_key] = (offset, recorded_at)
            conflict = memory.facts.open_conflict(fact_key)
            if conflict is None:
                self.conflicts_due.pop((key, fact_key), None)
            elif policy == "model":
                self.conflicts_due[key, fact_key] = conflict.conflict_id

    def _conflict_arbitrated(self, offset: int, key: OwnerKey, event: ConflictArbitrated) -> None:
        owner = self.owners.get(key)
        if owner is None or owner.memory is None:
            return
        facts = owner.memory.facts
        conflict = facts.conflicts.get(event.conflict_id)
        if conflict is None or len(conflict.sides) != len(event.memory_ids):
            return  # a side came meanwhile: the arbiter is asked again
        self.conflicts_due.pop((key, conflict.key), None)
        owner.memory.arbitrated(event, offset)
        self._facts_changed(key, owner.memory, offset, event.recorded_at)

    def _memories_extracted(self, offset: int, key: OwnerKey, event: MemoriesExtracted) -> None:
        owner = self.owners.get(key)
        segment = owner.segments.find(event.segment_id) if owner else None
        if owner is None or segment is None or not 0 < event.turns <= len(segment.views):
            return
        left = owner.views[segment.views[event.turns]] if event.turns < len(segment.views) else None
        owner.segments.extracted(segment, event.turns, owner.turns[left.turn_id].event_id if left else None)
        self.segments_due.pop((key, segment.id), None)
        if segment.session_id not in owner.segments.open:
            self.sessions_open.pop((key, segment.session_id), None)
        self._segments_changed(key, owner, None, 0)
        if owner.memory is None:
            owner.memory = UserMemory(key)
        for memory_id in owner.memory.extracted(event, offset):
            self.memories_unembedded[key, memory_id] = None
        self._facts_changed(key, owner.memory, offset, event.recorded_at, event.policy)

    def _atom_distilled(self, offset: int, key: OwnerKey, event: AtomDistilled) -> None:
        owner = self._owner(key)
        if owner.memory is None:
            owner.memory = UserMemory(key)
        if owner.memory.distilled(event, offset):
            self.memories_unembedded[key, event.memory_id] = None

    def _memory_embedded(self, offset: int, key: OwnerKey, event: MemoryEmbedded) -> None:
        owner = self.owners.get(key)
        if owner is None or owner.memory is None:
            return
        try:
            vector = vectors.decode(event.vector)
        except ValueError:
            return
        if owner.memory.embed(event.memory_id, vector, offset, event.embedder) and event.embedder == self.embedder:
            self.memories_unembedded.pop((key, event.memory_id), None)
        self._note_switchable(key, owner)

    def _note_switchable(self, key: OwnerKey, owner: Owner) -> None:
        self.switchable.pop(key, None)
        memory = owner.memory is not None and owner.memory.vectors.usable(self.embedder)
        if memory or owner.experience.vectors.usable(self.embedder):
            self.switchable[key] = None

    def _turn_embedded(self, offset: int, key: OwnerKey, event: TurnEmbedded) -> None:
        owner = self.owners.get(key)
        entry = owner.turns.get(event.turn_id) if owner else None
        if owner is None or entry is None or event.causation_id != entry.event_id:
            return
        if event.use:
            for sets in (owner.experience.vectors, owner.memory.vectors if owner.memory is not None else None):
                if sets is not None:
                    sets.use(event.embedder, offset)
            self._note_switchable(key, owner)
            return
        try:
            vector = vectors.decode(event.vector)
        except ValueError:
            return
        if not owner.experience.embed(event.turn_id, vector, offset, event.embedder):  # empty, or another dimension
            return
        self.unembedded.pop((key, event.turn_id), None)
        outdated = self.outdated.setdefault(key, {})
        if event.embedder == self.embedder:
            outdated.pop(event.turn_id, None)
        elif not owner.experience.embedded(event.turn_id, self.embedder):
            outdated[event.turn_id] = None
        if not outdated:
            del self.outdated[key]
        self._note_switchable(key, owner)

    def digest(self) -> str:
        """SHA-256 over the whole state in canonical order: equal states, equal digests."""
        sha = hashlib.sha256(f"{FOLD_VERSION}|{self.partition}|{self.embedder}|{self.next_offset}".encode())
        for key in sorted(self.owners):
            owner = self.owners[key]
            sha.update(
                repr((key, owner.rounds, sorted(owner.feedback.items()), sorted(owner.recalls.items()))).encode()
            )
            for view in owner.views:
                entry = owner.turns[view.turn_id]
                sha.update(repr((view, entry)).encode())
            segments = [
                (s.id, s.views, s.reason) for s in (*owner.segments.open.values(), *owner.segments.due.values())
            ]
            vectors = owner.experience.vectors.dumped(self.watermark)
            memory = owner.memory.dumped(self.watermark) if owner.memory else None
            sha.update(repr((segments, vectors, memory)).encode())
        outdated = {key: sorted(turn_ids) for key, turn_ids in sorted(self.outdated.items())}
        sha.update(
            repr(
                (sorted(self.switchable), list(self.unembedded), outdated, sorted(self.conflicts), sorted(self.refused))
            ).encode()
        )
        return sha.hexdigest()
