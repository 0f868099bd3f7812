"""Feedback of users and reviewers, and its record in the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from schemas.envelope import Id, Instant, ShortText, instant_ms
from schemas.positions import Position

FeedbackKind = Literal["confirm", "deny", "complaint", "review", "remember", "session_end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a feedback is about: exactly one of the four."""

    memory_id: Id | None = None
    turn_id: Id | None = None
    recall_id: Id | None = None
    session_id: Id | None = None

    def __post_init__(self) -> None:
        named = [field for field in ("memory_id", "turn_id", "recall_id", "session_id") if getattr(self, field)]
        if len(named) != 1:
            raise ValueError(
                f"expected exactly one of memory_id, turn_id, recall_id, session_id, got {named or 'none'}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Confirmation, denial, complaint, review, a wish to remember, or the end of a session."""

    feedback_id: Id
    user_id: Id
    role_id: Id
    kind: FeedbackKind
    occurred_at: Instant
    target: Target | None = None
    value: Any = None
    text: ShortText | None = None
    author: ShortText | None = None
    type: Literal["feedback"] = "feedback"
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        instant_ms(self.occurred_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRecorded:
    """A feedback that was accepted into the journal."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    user_id: Id
    role_id: Id
    feedback_id: Id
    kind: FeedbackKind
    source: Position
    target: Target | None = None
    value: Any = None
    text: ShortText | None = None
    author: ShortText | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["FeedbackRecorded"] = "FeedbackRecorded"
    version: Literal[1] = 1
