"""The Protocols that the roles are written against. ``inprocess`` has each of them in plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Header = tuple[str, bytes | None]
InputType = Literal["query", "passage"]


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a log as it was read. ``timestamp`` in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to append. ``partition`` None: the key decides, by murmur2."""

    topic: str
    value: bytes
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[Header, ...] = ()


class Log(Protocol):
    """Appends to topics. A record counts only when the returned future is done."""

    async def append(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        """Hand over a record; order within a partition is the order of calls. The future holds its offset."""
        ...

    async def partitions(self, topic: str) -> int:
        """Partition count of a topic; raises ``UnknownTopic`` where there is none."""
        ...


class UnknownTopic(LookupError):
    """A topic that the broker doesn't have."""


class Unavailable(RuntimeError):
    """An outside system that can't be reached or is overloaded. Transient: worth another try."""


class Embedder(Protocol):
    """Texts to recorded vectors."""

    name: str
    """Model and calibration, as recorded in events."""
    dimension: int

    async def embed(self, texts: Sequence[str], input_type: InputType) -> NDArray[np.int8]:
        """``(n, d) int8``; raises ``Unavailable`` for what may pass, ``ValueError`` for what won't."""
        ...


class Warehouse(Protocol):
    """Tables of analytics. Inserts are at least once; the tables make reads exactly once."""

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows; raises ``Unavailable`` if the server is away."""
        ...

    async def offsets(self) -> Mapping[tuple[str, int], int]:
        """Next offset by (topic, partition)."""
        ...


@dataclass(slots=True)
class Clock:
    """Milliseconds since the epoch. Injected, so that tests own time."""

    now_ms: Callable[[], int] = field(default=lambda: 0)


Apply = Callable[[int, Sequence[Record]], Awaitable[None]]
"""Called with (partition, records in offset order); returns when they are applied."""
