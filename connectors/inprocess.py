"""Every port in plain Python: a log, an embedder, a warehouse and a clock that tests and simulations own.

Invariant: each keeps the promises of its port as the contract suites in tests/contracts.py state them, so what is
proven with these holds for the real ones as far as those suites reach. Nothing here reads a real clock.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import zlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.ports import (
    Clock,
    Completion,
    InputType,
    NoSuchObject,
    Outgoing,
    Record,
    StoredObject,
    Unavailable,
    UnknownTopic,
)
from schemas.recalls import Message
from schemas.topics import MESSAGE_BYTES_MAX, TOPICS, murmur2

START_MS = 1_779_235_200_000
"""2026-05-20T00:00:00Z, where clocks of tests begin."""

RECORD_OVERHEAD_BYTES = 100
"""What Kafka adds to key, value and headers of a record that travels alone: 61 of the batch and some varints."""

Schedule = Callable[[Callable[[], None]], None]
"""Called with a step that must be made later, once; steps of one partition are handed over in order."""


class ManualClock:
    """A clock that stands until it is moved.

    >>> clock = ManualClock(1000)
    >>> clock.advance(250)
    >>> clock.now_ms()
    1250
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Move on; never back."""
        if milliseconds < 0:
            raise ValueError(f"a clock does not go back, got {milliseconds} ms")
        self._now_ms += milliseconds

    @property
    def port(self) -> Clock:
        """``ports.Clock`` that reads this one."""
        return Clock(self.now_ms)


@dataclass(slots=True)
class _Partition:
    records: list[Record] = field(default_factory=list)
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)


class InProcessLog:
    """``ports.Log`` and its reading side: topics of partitions of records, kept in memory.

    Parameters
    ----------
    clock : ports.Clock
        Gives records their timestamps.
    topics : mapping of full name to partition count
    schedule : callable, optional
        Who decides when an append is written and when it is acknowledged (two steps). By default both at once.
    """

    def __init__(self, clock: Clock, topics: Mapping[str, int], *, schedule: Schedule | None = None) -> None:
        self._clock = clock
        self._topics = {name: [_Partition() for _ in range(count)] for name, count in topics.items()}
        self._schedule: Schedule = schedule or (lambda step: step())
        self._pending: dict[tuple[str, int], deque[tuple[Outgoing, asyncio.Future[Any]]]] = defaultdict(deque)
        self._turn = itertools.count()
        self.repeat: Callable[[Outgoing], bool] = lambda outgoing: False
        """Whether a record is written twice, as by a producer that lost an acknowledgement and tries again."""
        self.away = False
        """True: appends raise ``Unavailable``."""

    @classmethod
    def with_contract_topics(
        cls, clock: Clock, *, prefix: str = "mnemolog.", partitions: int = 4, schedule: Schedule | None = None
    ) -> InProcessLog:
        """A log with the topics of the wire contract."""
        topics = {prefix + topic.name: partitions if topic.partitioned else 1 for topic in TOPICS}
        return cls(clock, topics, schedule=schedule)

    def add_topic(self, name: str, partitions: int) -> None:
        """Make a topic, such as one that a client reads its replies from."""
        self._topics.setdefault(name, [_Partition() for _ in range(partitions)])

    def connect(self, schedule: Schedule) -> InProcessLog:
        """Another producer on the same topics, with its own order and its own delays."""
        other = InProcessLog(self._clock, {}, schedule=schedule)
        other._topics = self._topics
        return other

    # -- ports.Log --------------------------------------------------------------------------------------------------

    async def append(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        """See ``ports.Log``. The future holds the offset."""
        if self.away:
            raise Unavailable("the log is away")
        count = await self.partitions(outgoing.topic)
        size = _bytes(outgoing)
        if size > MESSAGE_BYTES_MAX:
            raise Unavailable(f"a record of {size} bytes for {outgoing.topic}; at most {MESSAGE_BYTES_MAX} are taken")
        partition = self._partition_of(outgoing, count)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[outgoing.topic, partition].append((outgoing, future))
        self._schedule(lambda: self._write(outgoing.topic, partition))
        return future

    async def partitions(self, topic: str) -> int:
        """See ``ports.Log``."""
        found = self._topics.get(topic)
        if found is None:
            raise UnknownTopic(f"the log has no topic {topic!r}")
        return len(found)

    def _partition_of(self, outgoing: Outgoing, count: int) -> int:
        if outgoing.partition is not None:
            if not 0 <= outgoing.partition < count:
                raise Unavailable(f"{outgoing.topic} has {count} partitions, no {outgoing.partition}")
            return outgoing.partition
        if outgoing.key is None:
            return next(self._turn) % count
        return (murmur2(outgoing.key) & 0x7FFFFFFF) % count

    def _write(self, topic: str, partition: int) -> None:
        pending = self._pending[topic, partition]
        if not pending:
            return
        outgoing, future = pending.popleft()
        offset = self.put(topic, partition, outgoing.value, key=outgoing.key, headers=outgoing.headers)
        if self.repeat(outgoing):
            self.put(topic, partition, outgoing.value, key=outgoing.key, headers=outgoing.headers)
        self._schedule(lambda: None if future.done() else future.set_result(offset))

    @property
    def pending(self) -> int:
        """Records that were handed over and are not written yet."""
        return sum(len(queue) for queue in self._pending.values())

    def lose(self, kept: Callable[[int], int]) -> None:
        """End this producer as ``kill -9`` does: of what is pending per partition only the first may be written.

        Parameters
        ----------
        kept : callable
            From the number of pending records of a partition to how many of them still reach the log.
        """
        for topic, partition in list(self._pending):
            pending = self._pending[topic, partition]
            for _ in range(kept(len(pending))):
                outgoing, _future = pending.popleft()
                self.put(topic, partition, outgoing.value, key=outgoing.key, headers=outgoing.headers)
            pending.clear()
        self.away = True

    # -- reading ----------------------------------------------------------------------------------------------------

    def put(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
    ) -> int:
        """Write a record at once, whatever it is; its offset."""
        place = self._topics[topic][partition]
        offset = len(place.records)
        when = self._clock.now_ms() if timestamp is None else timestamp
        place.records.append(Record(topic, partition, offset, when, key, value, tuple(headers)))
        arrived = [future for wanted, future in place.waiting if wanted <= offset]
        place.waiting = [(wanted, future) for wanted, future in place.waiting if wanted > offset]
        for future in arrived:
            if not future.done():
                future.set_result(None)
        return offset

    def read(self, topic: str, partition: int, start: int = 0, count: int | None = None) -> list[Record]:
        """Records from an offset on, at most ``count`` of them."""
        records = self._topics[topic][partition].records
        return records[start:] if count is None else records[start : start + count]

    def read_all(self, topic: str) -> list[Record]:
        """All records of a topic, partition by partition."""
        return [record for partition in self._topics[topic] for record in partition.records]

    def count(self, topic: str) -> int:
        """Partition count of a topic that there is."""
        return len(self._topics[topic])

    def end(self, topic: str, partition: int) -> int:
        """Offset after the last record."""
        return len(self._topics[topic][partition].records)

    async def arrived(self, topic: str, partition: int, offset: int) -> None:
        """Wait until there is a record at an offset."""
        place = self._topics[topic][partition]
        if len(place.records) <= offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            place.waiting.append((offset, future))
            await future


def _bytes(outgoing: Outgoing) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in outgoing.headers)
    return len(outgoing.value) + len(outgoing.key or b"") + headers + RECORD_OVERHEAD_BYTES


class HashEmbedder:
    """``ports.Embedder``: counts of hashed words and Chinese characters, so texts that share words are near.

    >>> import asyncio
    >>> rows = asyncio.run(HashEmbedder().embed(["red tea", "Red, tea!", "吃馄饨"], "passage"))
    >>> bool((rows[0] == rows[1]).all()), rows.dtype.name, rows.shape
    (True, 'int8', (3, 64))
    """

    def __init__(self, name: str = "hash-64#0", dimension: int = 64) -> None:
        self.name = name
        self.dimension = dimension
        self.away = False
        """True: raises ``Unavailable``."""
        self.refuses: Callable[[str], bool] = lambda text: False
        """Texts that are refused for good, with ``ValueError``."""
        self.delay: Callable[[], float] | None = None
        """Seconds that a call takes, on the running loop's clock."""
        self.calls = 0

    async def embed(self, texts: Sequence[str], input_type: InputType) -> NDArray[np.int8]:
        """See ``ports.Embedder``. Queries and passages are embedded alike."""
        self.calls += 1
        if self.delay is not None:
            await asyncio.sleep(self.delay())
        if self.away:
            raise Unavailable("the embedder is away")
        for text in texts:
            if self.refuses(text):
                raise ValueError(f"this embedder refuses {text[:40]!r}")
        rows = np.zeros((len(texts), self.dimension), dtype=np.int64)
        for row, text in zip(rows, texts, strict=True):
            for token in _TOKEN.findall(text.casefold()):
                row[zlib.crc32(token.encode("utf-8", "surrogatepass")) % self.dimension] += 30
        return np.clip(rows, -127, 127).astype(np.int8)


_TOKEN = re.compile(r"[a-z0-9]+|[^\W\d_a-z]")


class ScriptedChatModel:
    """``ports.ChatModel``: answers as a function says.

    >>> import asyncio
    >>> model = ScriptedChatModel(lambda messages: messages[-1].content.upper())
    >>> said = [Message(role="user", content="hello")]
    >>> asyncio.run(model.complete(said, temperature=0.0, max_tokens=9)).text
    'HELLO'
    """

    def __init__(self, answer: Callable[[Sequence[Message]], str], name: str = "scripted") -> None:
        self.name = name
        self.answer = answer
        """From the messages to the answer; what it raises, the call raises."""
        self.away = False
        """True: raises ``Unavailable``."""
        self.delay: Callable[[], float] | None = None
        """Seconds that a call takes, on the running loop's clock; longer than its time-out: ``Unavailable``."""
        self.asked: list[tuple[Message, ...]] = []
        """The messages of each call."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        temperature: float,
        max_tokens: int,
        response_schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Completion:
        """See ``ports.ChatModel``. A token is a word or a Chinese character."""
        self.asked.append(tuple(messages))
        delay_s = self.delay() if self.delay is not None else 0.0
        if delay_s:
            await asyncio.sleep(min(delay_s, timeout_s or delay_s))
        if self.away or (timeout_s is not None and delay_s > timeout_s):
            raise Unavailable("the model is away")
        text = self.answer(messages)
        read = sum(len(_TOKEN.findall(message.content.casefold())) for message in messages)
        written = len(_TOKEN.findall(text.casefold()))
        return Completion(text, read, written, delay_s * 1000, self.name, "stop")

    async def stream(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float | None = None
    ) -> AsyncIterator[str]:
        """See ``ports.ChatModel``."""
        done = await self.complete(messages, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s)
        for piece in re.findall(r"\S+\s*|\s+", done.text):
            await asyncio.sleep(0)
            yield piece


class OverlapReranker:
    """``ports.Reranker``: the share of a query's words that a text holds.

    >>> import asyncio
    >>> asyncio.run(OverlapReranker().rerank("red tea", ["Tea!", "red tea", "馄饨"]))
    [0.5, 1.0, 0.0]
    """

    name = "overlap"

    def __init__(self) -> None:
        self.away = False
        """True: raises ``Unavailable``."""
        self.delay: Callable[[], float] | None = None
        """Seconds that a call takes, on the running loop's clock."""
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        """Query and documents of each call."""

    async def rerank(self, query: str, documents: Sequence[str]) -> list[float]:
        """See ``ports.Reranker``."""
        self.asked.append((query, tuple(documents)))
        if self.delay is not None:
            await asyncio.sleep(self.delay())
        if self.away:
            raise Unavailable("the reranker is away")
        wanted = set(_TOKEN.findall(query.casefold()))
        return [len(wanted & set(_TOKEN.findall(text.casefold()))) / max(1, len(wanted)) for text in documents]


class MemoryObjects:
    """``ports.Objects`` in a dictionary.

    Attributes
    ----------
    fault : callable
        Called with (operation, path) before each operation takes effect; may raise what a store raises.
    after : callable
        The same after it took effect: a crash there is one that the caller never hears the result of.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.away = False
        """True: raises ``Unavailable``."""
        self.fault: Callable[[str, str], None] = lambda operation, path: None
        self.after: Callable[[str, str], None] = lambda operation, path: None
        self.reads: list[tuple[str, int]] = []
        """Path and bytes of each read; a listing has the folder's path and 0."""

    async def put_new(self, path: str, data: bytes) -> bool:
        """See ``ports.Objects``."""
        await self._begin("put", path)
        is_new = path not in self.objects
        if is_new:
            self.objects[path] = bytes(data)
        self.after("put", path)
        return is_new

    async def get(self, path: str) -> bytes:
        """See ``ports.Objects``."""
        await self._begin("get", path)
        found = self._found(path)
        self.reads.append((path, len(found)))
        return found

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """See ``ports.Objects``."""
        await self._begin("get", path)
        found = self._found(path)[start : start + length]
        self.reads.append((path, len(found)))
        return found

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        """See ``ports.Objects``."""
        await self._begin("list", prefix)
        folder = prefix.rstrip("/") + "/" if prefix else ""
        self.reads.append((folder, 0))
        found = sorted((path, len(data)) for path, data in self.objects.items() if path.startswith(folder))
        return [StoredObject(path, size) for path, size in found]

    async def delete(self, paths: Sequence[str]) -> None:
        """See ``ports.Objects``."""
        for path in paths:
            await self._begin("delete", path)
            self.objects.pop(path, None)
            self.after("delete", path)

    async def _begin(self, operation: str, path: str) -> None:
        await asyncio.sleep(0)  # as a real one, it lets others run
        if self.away:
            raise Unavailable("the object store is away")
        self.fault(operation, path)

    def _found(self, path: str) -> bytes:
        if path not in self.objects:
            raise NoSuchObject(f"no object {path!r}")
        return self.objects[path]


class MemoryWarehouse:
    """``ports.Warehouse``: tables that fold rows of one key into the first, as the views of ClickHouse do.

    The row with the lowest ``kafka_offset`` wins, as ``kafka_first`` makes it in infra/clickhouse/0001_tables.sql;
    ``kafka_offsets`` keeps the greatest.
    """

    KEYS: Mapping[str, tuple[str, ...]] = {
        "turns_rows": ("user_id", "role_id", "turn_id"),
        "recalls_rows": ("recall_id",),
        "recall_evidence_rows": ("recall_id", "mark"),
        "dead_letters_rows": ("dead_letter_id",),
        "facts_rows": ("user_id", "role_id", "memory_id", "change_number"),
        "conflicts_rows": ("conflict_id",),
        "summaries_rows": ("memory_id",),
        "extractions_rows": ("segment_id",),
        "responses_rows": ("response_id",),
        "atoms_rows": ("memory_id",),
        "reviews_rows": ("feedback_id",),
        "kafka_offsets": ("kafka_topic", "kafka_partition"),
    }

    def __init__(self) -> None:
        self.away = False
        """True: raises ``Unavailable``."""
        self.delay: Callable[[], float] | None = None
        self.inserts = 0
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """See ``ports.Warehouse``."""
        if self.delay is not None:
            await asyncio.sleep(self.delay())
        if self.away:
            raise Unavailable("the warehouse is away")
        if table not in self.KEYS:
            raise ValueError(f"unknown table {table!r}; expected one of {', '.join(self.KEYS)}")
        self.inserts += 1
        self._rows[table] += [dict(zip(columns, row, strict=True)) for row in rows]

    async def offsets(self) -> Mapping[tuple[str, int], int]:
        """See ``ports.Warehouse``."""
        if self.away:
            raise Unavailable("the warehouse is away")
        return {(row["kafka_topic"], row["kafka_partition"]): row["next_offset"] for row in self.rows("kafka_offsets")}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """What a reader of the table's view sees, in order of the key."""
        folded: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in self._rows[table]:
            key = tuple(row[name] for name in self.KEYS[table])
            known = folded.get(key)
            if known is None or _version(table, row) > _version(table, known):
                folded[key] = row
        found = [folded[key] for key in sorted(folded)]
        if table == "recall_evidence_rows":
            first = {row["recall_id"]: row["kafka_offset"] for row in self.rows("recalls_rows")}
            found = [row for row in found if first.get(row["recall_id"]) == row["kafka_offset"]]
        return found


def _version(table: str, row: Mapping[str, Any]) -> int:
    if table in ("facts_rows", "conflicts_rows"):  # told whole each time: the newest counts
        return int(row["kafka_offset"])
    return int(row["next_offset"]) if table == "kafka_offsets" else -int(row["kafka_offset"])
