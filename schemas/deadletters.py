"""Records that could not be taken: kept whole, with their cause, so that they can be mended and retried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from schemas.envelope import Instant, instant_ms
from schemas.positions import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Machine-readable code and a sentence for a person."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A poisonous record. ``dead_letter_id`` derives from its source position: sent twice it is one."""

    dead_letter_id: str
    at: Instant
    source: Position
    error: Cause
    headers: dict[str, str | None] = field(default_factory=dict)
    """Header values in base64; null where the header had no value."""
    key_base64: str | None = None
    value_base64: str | None = None
    attempts: int = 1
    type: Literal["dead_letter"] = "dead_letter"
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        instant_ms(self.at)
