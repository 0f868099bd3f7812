"""The raw transcript's writer: records of one partition to the object store, in segments that grow and are replaced.

How a segment grows: what has come since the last write is stored as a small segment after ``seconds_max``; after
``PARTS_MAX`` of them, or at ``bytes_max``, one segment of all is stored and the small ones are deleted. So a partition
has few objects, and at most ``bytes_max`` are written again in ``PARTS_MAX`` writes. Everything is put if absent and
deleted only when another segment holds it, so a crash at any point, or two workers at once, leave neither gap nor
double: see the chain rule in ``streams.core.chains``.

Invariants: an object store that is away or full stops the archive and nothing else; what is kept meanwhile is bounded.
An archive is only continued from the log that it was written from: the last archived record must be in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from connectors import metrics
from connectors.ports import Clock, NoSuchObject, Record, Unavailable
from streams.core.chains import (
    Link,
    Span,
    chain_of,
    superfluous,
)
from streams.core.segments import (
    BLOCK_BYTES,
    ArchivedRecord,
    Block,
)
from streams.segment_store import ArchiveError, SegmentStore, archived, block_of

log = structlog.get_logger("archive")

PARTS_MAX = 16
"""Small segments before one of all replaces them: 16 reads of a tail are as quick as one on any store."""
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
DAY_MS = 24 * 3600 * 1000

T = TypeVar("T")
RecordAt = Callable[[str, int, int], Awaitable[Record | None]]
"""From (topic, partition, offset) to the record that the log has there."""


class ForeignArchive(ArchiveError):
    """An archive that was not written from this log."""


class _Closed(Exception):
    """The partition was given up while the store was away."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When segments are written, and how long they are kept."""

    bytes_max: int = 4 * 1024 * 1024
    seconds_max: float = 10.0
    retention_days: int | None = None
    """None: for ever."""


class Archiver:
    """Archives one partition.

    Parameters
    ----------
    store : SegmentStore
    partition : int
    clock : ports.Clock
        For age and retention.
    sleep : callable
        Awaited between two tries.
    """

    def __init__(
        self,
        store: SegmentStore,
        partition: int,
        limits: Limits,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self.partition = partition
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._writing = asyncio.Lock()
        self._sealed: list[Block] = []
        """Closed blocks of the segment that grows, stored or not."""
        self._sealed_bytes = 0
        self._tail: list[ArchivedRecord] = []
        self._tail_bytes = 0
        self._tail_first = 0
        self._parts: list[Span] = []
        """What is stored of the segment that grows."""
        self._oldest_ms: int | None = None
        """When the oldest record that is not stored came."""
        self.next_offset = 0
        """Of the next record that is taken."""
        self.archived_to = 0
        """All records below are in the store."""
        self.waiting_since_ms: int | None = None
        """Since when the store is away."""
        self.closed = False
        """True: this worker holds the partition no longer."""

    @property
    def topic(self) -> str:
        """Full name of the archived topic."""
        return self._store.topic

    async def resume(self, record_at: RecordAt) -> int:
        """Find out where to go on; returns the offset. Waits while the store is away.

        Raises
        ------
        ForeignArchive
            The log has another record where the archive ends, or none.
        ArchiveError
            The archive is damaged.
        """
        while True:
            try:
                return await self._resume(record_at)
            except NoSuchObject:  # another worker has just put a larger one in its place
                continue

    async def _resume(self, record_at: RecordAt) -> int:
        spans = await self._patiently(lambda: self._store.spans(self.partition))
        links = chain_of(spans)
        if not links:
            return 0
        newest = links[-1].span
        last = await self._patiently(lambda: self._last_record(newest, spans[newest]))
        found = await self._patiently(lambda: record_at(self.topic, self.partition, last.offset))
        if found is None or archived(found) != last:
            there = "no record" if found is None else "another record"
            raise ForeignArchive(
                f"the archive of {self.topic}[{self.partition}] ends with offset {last.offset}, where the log has "
                f"{there}: it is of another log; restore it into an empty broker (mnemolog restore), or set another "
                "MNEMOLOG_OBJECTS"
            )
        await self._sweep(superfluous(spans, links))
        await self._reopen(links, spans)
        self.next_offset = self.archived_to = newest.next
        return self.next_offset

    async def _last_record(self, span: Span, size: int) -> ArchivedRecord:
        directory = await self._store.directory(self.partition, span, size)
        return (await self._store.block(self.partition, span, directory.blocks[-1]))[-1]

    async def _reopen(self, links: Sequence[Link], sizes: Mapping[Span, int]) -> None:
        """Take small segments at the end back into the growing one, so that restarts don't leave many of them."""
        chosen: list[Span] = []
        total = 0
        for link in reversed(links):
            total += sizes[link.span]
            if total >= self._limits.bytes_max:
                break
            chosen.insert(0, link.span)
        blocks: list[Block] = []
        parts: list[Span] = []
        for span in chosen:
            found = await self._patiently(partial(self._store.blocks, self.partition, span, sizes[span]))
            # A later part begins anew with the block that was open when the part before it was written.
            while blocks and blocks[-1].first >= found[0].first:
                blocks.pop()
            if blocks and blocks[-1].next != found[0].first:
                blocks, parts = [], []
            blocks += found
            parts.append(span)
        self._parts = parts
        if blocks and blocks[-1].raw_bytes < BLOCK_BYTES:
            last = blocks.pop()
            self._tail = self._store.records(self.partition, last)
            self._tail_bytes = sum(record.size for record in self._tail)
            self._tail_first = last.first
        self._sealed = blocks
        self._sealed_bytes = sum(len(block.data) for block in blocks)

    async def take(self, records: Sequence[Record]) -> None:
        """Take records in order of offset; those that were taken are passed over. Waits while too much is unwritten."""
        async with self._writing:
            for record in records:
                if record.offset < self.next_offset or self.closed:
                    continue
                self._add(archived(record))
                if self._sealed_bytes >= self._limits.bytes_max:
                    await self._write()

    def _add(self, record: ArchivedRecord) -> None:
        if not self._tail:
            self._tail_first = self.next_offset
        self._tail.append(record)
        self._tail_bytes += record.size
        self.next_offset = record.offset + 1
        if self._oldest_ms is None:
            self._oldest_ms = self._clock.now_ms()
        if self._tail_bytes >= BLOCK_BYTES:
            self._seal()

    def _seal(self) -> None:
        block = block_of(self._tail, self._tail_first)
        self._sealed.append(block)
        self._sealed_bytes += len(block.data)
        self._tail, self._tail_bytes = [], 0

    @property
    def due(self) -> bool:
        """Whether a record has waited long enough to be stored."""
        waited_ms = 0 if self._oldest_ms is None else self._clock.now_ms() - self._oldest_ms
        return self._oldest_ms is not None and waited_ms >= self._limits.seconds_max * 1000

    async def write(self) -> None:
        """Store all that was taken. Waits while the store is away."""
        async with self._writing:
            await self._write()

    async def _write(self) -> None:
        if self.next_offset == self.archived_to or self.closed:
            return
        blocks = [*self._sealed, *([block_of(self._tail, self._tail_first)] if self._tail else [])]
        is_full = self._sealed_bytes >= self._limits.bytes_max
        if not is_full and len(self._parts) < PARTS_MAX:
            blocks = [block for block in blocks if block.next > self.archived_to]
        try:
            span, size = await self._patiently(lambda: self._store.put(self.partition, blocks))
        except _Closed:
            return
        replaced = [part for part in self._parts if span.covers(part) and part != span]
        self._parts = [part for part in self._parts if part not in replaced and part != span] + [span]
        self.archived_to, self._oldest_ms = self.next_offset, None
        metrics.archived(size)
        await self._sweep(replaced)
        if is_full:
            self._sealed, self._sealed_bytes, self._parts = [], 0, []
            self._tail, self._tail_bytes = [], 0

    async def _sweep(self, spans: Sequence[Span]) -> None:
        """Delete what another segment holds; what stays by a fault goes at the next resume."""
        if not spans:
            return
        try:
            await self._store.delete(self.partition, spans)
        except Unavailable as error:
            log.warning("archive_sweep_failed", topic=self.topic, partition=self.partition, error=str(error))

    async def expire(self) -> int:
        """Delete segments whose newest record is older than the retention; returns how many.

        From the oldest on, to the first that is young enough, so that what stays has no hole; the last one stays
        always, since it says where the archive ends.
        """
        if self._limits.retention_days is None:
            return 0
        before_ms = self._clock.now_ms() - self._limits.retention_days * DAY_MS
        async with self._writing:
            spans = await self._store.spans(self.partition)
            links = chain_of(spans)
            expired: list[Span] = []
            for link in links[:-1]:
                directory = await self._store.directory(self.partition, link.span, spans[link.span])
                if directory.time_max >= before_ms:
                    break
                expired.append(link.span)
            if expired:
                end = expired[-1].next
                await self._store.delete(self.partition, [span for span in spans if span.next <= end])
                self._parts = [part for part in self._parts if part.next > end]
                log.info("archive_expired", topic=self.topic, partition=self.partition, first_offset_kept=end)
            return len(expired)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try until the store answers."""
        attempt = 0
        while True:
            try:
                result = await work()
            except Unavailable as error:
                metrics.retry("objects")
                pause = RETRY_S[min(attempt, len(RETRY_S) - 1)]
                if self.waiting_since_ms is None:
                    self.waiting_since_ms = self._clock.now_ms()
                log.warning(
                    "objects_unavailable", topic=self.topic, partition=self.partition, error=str(error),
                    unarchived=self.next_offset - self.archived_to, retry_in_s=pause,
                )  # fmt: skip
                attempt += 1
                await self._sleep(pause)
                if self.closed:
                    raise _Closed from error
                continue
            self.waiting_since_ms = None
            return result
