"""Positions in logs: where a record stands, and which prefix of each log an answer was computed from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A record's place: full topic name, or ``journal``/``library`` without the prefix in evidence."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None
    """Milliseconds since the epoch, as Kafka gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The last offset of each partition that an answer was computed from; -1: nothing yet."""

    journal: dict[str, int]
    library: dict[str, int]
