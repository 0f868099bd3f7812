"""User memory: what was extracted from a segment of conversation, its vectors, and facts as others read them.

Invariant: an extraction is recorded whole (normalised values, texts, policy), so the fold needs neither rules nor
vocabulary nor a model, and replay gives the memory that there was, whatever has been improved since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from schemas.envelope import Id, Instant
from schemas.positions import Position

StatementKind = Literal["assert", "retract", "correct"]
Policy = Literal["newest_explicit", "confidence", "model", "manual"]
SegmentReason = Literal["session_end", "idle", "window", "remember"]
FactStatus = Literal["active", "contested", "superseded", "retracted", "denied"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Importance = Annotated[int, msgspec.Meta(ge=1, le=5)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactStatement:
    """One thing that a user said about themselves, with the exact span of the turn that says it."""

    key: str
    value: str
    norm: str
    """Value in the form in which paraphrases are equal; empty in a retraction of whatever the value was."""
    kind: StatementKind
    multi: bool
    """Whether the key takes several values at a time: two hobbies are no conflict."""
    text: str
    """A sentence for prompts and embeddings."""
    confidence: Share
    importance: Importance
    turn_id: str
    start: int
    end: int
    said_at: Instant
    old_norm: str | None = None
    valid_from: str | None = None
    """ISO date, as exact as it was said: 2026, 2026-05, 2026-05-20."""
    valid_to: str | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A confirmation or denial that a user spoke. Without a key it is about nothing that memory knows."""

    kind: Literal["confirm", "deny"]
    turn_id: str
    said_at: Instant
    key: str | None = None
    norm: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryWritten:
    """A segment in 200 to 800 characters, without personal identifiers."""

    memory_id: str
    text: str
    importance: Importance


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoriesExtracted:
    """The effect of a closed segment. ``segment_id`` derives from its first turn, so a repeated effect is dropped."""

    event_id: str
    occurred_at: Instant
    """Of the segment's last turn."""
    recorded_at: Instant
    user_id: Id
    role_id: Id
    segment_id: str
    session_id: str
    reason: SegmentReason
    first_turn_id: str
    last_turn_id: str
    turns: int
    """Turns of the session that it covers, from the first of the segment on."""
    method: str
    """``rules`` or ``model:<name>``."""
    policy: Policy
    facts: tuple[FactStatement, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    summary: SummaryWritten | None = None
    redacted: dict[str, int] = field(default_factory=dict)
    """Identifiers that were removed, by kind."""
    latency_ms: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    fallback: str | None = None
    """Why the rules had to do what a model was asked for."""
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["MemoriesExtracted"] = "MemoriesExtracted"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictArbitrated:
    """What a model said of a conflict (policy ``model``). ``winner`` null: nobody can tell, so it stays contested."""

    event_id: str
    occurred_at: Instant
    """Event time of the statement that opened the conflict or joined it last."""
    recorded_at: Instant
    user_id: Id
    role_id: Id
    conflict_id: str
    memory_ids: tuple[str, ...]
    """Sides that it was asked about."""
    winner: str | None
    reason: str
    method: str
    latency_ms: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    fallback: str | None = None
    """Why there is no verdict: the model was away, refused, or answered rubbish."""
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["ConflictArbitrated"] = "ConflictArbitrated"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEmbedded:
    """The recorded vector of a fact, summary or atom; ``causation_id`` is the digest of the text that it is of."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    user_id: Id
    role_id: Id
    memory_id: str
    embedder: str
    vector: str
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["MemoryEmbedded"] = "MemoryEmbedded"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FactChange:
    """One entry of a fact's history: from this offset on it stood like this."""

    offset: int
    at: Instant
    """Event time of what changed it."""
    status: FactStatus
    why: str
    confirmation: int
    valid_to: str | None = None
    conflict_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSource:
    """A turn that states a fact."""

    turn_id: str
    start: int
    end: int
    said_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact as of a point: bitemporal (``valid_*``: when it is true; offsets: when memory learnt it)."""

    memory_id: str
    key: str
    value: str
    status: FactStatus
    confidence: float
    importance: int
    confirmation: int
    learnt_offset: int
    said_at: Instant
    last_verified_at: Instant
    sources: tuple[FactSource, ...]
    valid_from: str | None = None
    valid_to: str | None = None
    conflict_id: str | None = None
    multi: bool = False
    history: tuple[FactChange, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Values of one key that can't all be true, and how it was settled; the loser stays in history."""

    conflict_id: str
    key: str
    status: Literal["open", "closed"]
    opened_at: Instant
    opened_offset: int
    memory_ids: tuple[str, ...]
    values: tuple[str, ...]
    winner: str | None = None
    """memory_id; null while open, or where no side was left."""
    closed_at: Instant | None = None
    closed_offset: int | None = None
    closed_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary as of a point."""

    memory_id: str
    text: str
    session_id: str
    first_turn_id: str
    last_turn_id: str
    occurred_at: Instant
    importance: int
    learnt_offset: int
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOfKey:
    """Message of the compacted topic ``facts``: everything that is known of one key of one owner, newest first."""

    user_id: Id
    role_id: Id
    key: str
    value: str | None
    """Newest value that holds; null: none does, or it is contested."""
    facts: tuple[Fact, ...]
    conflicts: tuple[Conflict, ...]
    position: Position
    """Of the journal event that changed it."""
    recorded_at: Instant
    type: Literal["facts_of_key"] = "facts_of_key"
    version: Literal[1] = 1
