"""Persona anchors: who the assistant is. Never retrieved, never mixed with user data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from schemas.envelope import NO_NUL, Id, Instant, ShortText, instant_ms
from schemas.positions import Position

AnchorText = Annotated[str, msgspec.Meta(min_length=1, max_length=8_000, pattern=NO_NUL)]
Boundary = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, pattern=NO_NUL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """How the persona addresses the user and itself."""

    user: ShortText | None = None
    self: ShortText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Preferences of expression."""

    tone: ShortText | None = None
    sentence_length: ShortText | int | float | None = None
    emoji: ShortText | float | bool | None = None
    words_preferred: tuple[ShortText, ...] | None = None
    words_avoided: tuple[ShortText, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """The anchor of one role. A newer one replaces the older from then on."""

    role_id: Id
    name: ShortText
    core: AnchorText
    boundaries: tuple[Boundary, ...]
    declared_at: Instant
    occupation: ShortText | None = None
    address: Address | None = None
    style: Style | None = None
    language: ShortText | None = None
    notes: AnchorText | None = None
    type: Literal["persona"] = "persona"
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("`name` is empty; expected what the persona is called")
        instant_ms(self.declared_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaDeclared:
    """A validated anchor in the library."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    role_id: Id
    persona: Persona
    source: Position
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["PersonaDeclared"] = "PersonaDeclared"
    version: Literal[1] = 1
