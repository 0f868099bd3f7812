"""Turns: what a producer posts (``Turn``) and what the journal keeps of it (``TurnRecorded``, ``TurnEmbedded``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.envelope import Id, Instant, Metadata, ShortText, Text, instant_ms
from schemas.positions import Position

Speaker = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One utterance with its speaker. (user_id, role_id, turn_id) is the idempotency key."""

    turn_id: Id
    user_id: Id
    role_id: Id
    session_id: Id
    speaker: Speaker
    text: Text
    occurred_at: Instant
    name: ShortText | None = None
    model: ShortText | None = None
    recall_id: Id | None = None
    captions: tuple[ShortText, ...] | None = None
    metadata: Metadata | None = None
    type: Literal["turn"] = "turn"
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("`text` is empty; expected what was said")
        instant_ms(self.occurred_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecorded:
    """A turn that was accepted into the journal. ``event_id`` derives from owner, turn_id and content."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    user_id: Id
    role_id: Id
    turn_id: Id
    session_id: Id
    speaker: Speaker
    text: Text
    source: Position
    name: ShortText | None = None
    model: ShortText | None = None
    recall_id: Id | None = None
    captions: tuple[ShortText, ...] | None = None
    metadata: Metadata | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["TurnRecorded"] = "TurnRecorded"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEmbedded:
    """The recorded effect of embedding a turn: a vector of int8 (base64), embedder and calibration digest."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    user_id: Id
    role_id: Id
    turn_id: Id
    embedder: str
    vector: str
    """``(d,)`` int8, base64; see connectors.embeddings.Calibration."""
    causation_id: str
    use: bool | None = None
    """True: no vector, but the wish that the owner's vectors of this embedder be used again from here on, where they
    are complete: after a change back, nothing is left to embed that would say so."""
    correlation_id: str | None = None
    type: Literal["TurnEmbedded"] = "TurnEmbedded"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRefused:
    """The recorded effect of refusing a turn whose id was taken by other content; a dead letter was sent before."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    user_id: Id
    role_id: Id
    turn_id: Id
    dead_letter_id: str
    causation_id: str
    correlation_id: str | None = None
    type: Literal["TurnRefused"] = "TurnRefused"
    version: Literal[1] = 1
