"""The Protocols that the roles are written against. ``inprocess`` has each of them in plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.recalls import Message

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


class EmbedderChanged(ValueError):
    """An embedder that gives vectors of another dimension than when it was started. Terminal: start anew."""


class Embedder(Protocol):
    """Texts to recorded vectors."""

    name: str
    """Model and calibration, as recorded in events."""
    dimension: int

    async def embed(self, texts: Sequence[str], input_type: InputType) -> NDArray[np.int8]:
        """``(n, d) int8``; raises ``Unavailable`` for what may pass, ``ValueError`` for what won't."""
        ...


class Reranker(Protocol):
    """A cross-encoder: how well each of some texts answers a query."""

    name: str
    """As told in explanations."""

    async def rerank(self, query: str, documents: Sequence[str]) -> list[float]:
        """A finite score for each document, in their order, greater is better; the scale is the model's own.

        Raises ``Unavailable`` for what may pass, ``ValueError`` for what won't.
        """
        ...


@dataclass(frozen=True, slots=True)
class Completion:
    """What a chat model answered, and what it took."""

    text: str
    """Empty where the model said nothing."""
    tokens_in: int
    tokens_out: int
    latency_ms: float
    """Of the answer that counted, without earlier tries."""
    model: str
    """As the endpoint names it."""
    finish_reason: str
    """``stop``, ``length`` (cut at ``max_tokens``), ``content_filter``, …; empty where it wasn't told."""
    estimated: bool = False
    """Whether tokens were guessed from bytes, since the endpoint told none."""


class ModelRefused(ValueError):
    """A chat model that won't answer this request, whoever asks how often. Terminal."""


class ChatModel(Protocol):
    """Messages to an answer."""

    name: str
    """As recorded in events."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        temperature: float,
        max_tokens: int,
        response_schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Completion:
        """The whole answer. A JSON Schema asks for JSON of that form; an endpoint may not keep to it, so validate.

        Raises ``Unavailable`` for what may pass (within ``timeout_s`` it has been tried again), ``ModelRefused`` for
        what won't.
        """
        ...

    def stream(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float | None = None
    ) -> AsyncIterator[str]:
        """The answer in pieces, none of them empty; errors as ``complete``, ``Unavailable`` also in the middle."""
        ...


class Warehouse(Protocol):
    """Tables of analytics. Inserts are at least once; the tables make reads exactly once."""

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows; raises ``Unavailable`` if the server is away."""
        ...

    async def offsets(self) -> Mapping[tuple[str, int], int]:
        """Next offset by (topic, partition)."""
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that a listing shows."""

    path: str
    size: int
    """Bytes."""


class NoSuchObject(LookupError):
    """An object that the store doesn't have (any more)."""


class Objects(Protocol):
    """An object store. Paths have parts joined by ``/``. Everything raises ``Unavailable`` for what may pass."""

    async def put_new(self, path: str, data: bytes) -> bool:
        """Store under a path that is free; False: it is taken, and nothing has changed. Never half an object."""
        ...

    async def get(self, path: str) -> bytes:
        """The whole object; raises ``NoSuchObject``."""
        ...

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """Bytes from ``start`` on, fewer where the object ends; raises ``NoSuchObject``."""
        ...

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        """All objects under a folder, in order of their paths."""
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are gone already don't matter."""
        ...


@dataclass(slots=True)
class Clock:
    """Milliseconds since the epoch. Injected, so that tests own time."""

    now_ms: Callable[[], int] = field(default=lambda: 0)


Apply = Callable[[int, Sequence[Record]], Awaitable[None]]
"""Called with (partition, records in offset order); returns when they are applied."""
