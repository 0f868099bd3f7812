"""An archive under test: an in-process log and store, archivers that a test steps, and a reader of what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from connectors.inprocess import InProcessLog, ManualClock, MemoryObjects
from connectors.ports import Apply, Record
from schemas.codec import encode
from streams.archive import Archive, LogAccess
from streams.archiver import Archiver, Limits
from streams.core.chains import (
    chain_of,
)
from streams.core.segments import (
    ArchivedRecord,
)
from streams.segment_store import SegmentStore, archived
from tests.builders import turn_recorded

PREFIX = "mnemolog."
JOURNAL = "mnemolog.journal"


class Killed(BaseException):
    """The process ends here, as by kill -9."""


def quick(bytes_max: int = 100_000, seconds_max: float = 10.0, retention_days: int | None = None) -> Limits:
    return Limits(bytes_max, seconds_max, retention_days)


async def no_sleep(_seconds: float) -> None:
    await asyncio.sleep(0)


class Bench:
    """A log of one clock and a store."""

    def __init__(self, limits: Limits | None = None, partitions: int = 4) -> None:
        self.clock = ManualClock()
        self.log = InProcessLog.with_contract_topics(self.clock.port, partitions=partitions)
        self.objects = MemoryObjects()
        self.store = SegmentStore(self.objects, JOURNAL)
        self.limits = limits or quick()
        self._sequence = 0

    def say(self, count: int = 1, partition: int = 0, **given: Any) -> None:
        """Turns into the journal."""
        for _ in range(count):
            turn = turn_recorded(self._sequence, **({"turn_id": f"t{self._sequence}"} | given))
            self._sequence += 1
            self.clock.advance(1000)
            key = f"{turn.user_id}/{turn.role_id}".encode()
            self.log.put(JOURNAL, partition, encode(turn), key=key, headers=(("ce_id", b"\x00\xff"), ("none", None)))

    async def record_at(self, topic: str, partition: int, offset: int) -> Record | None:
        found = self.log.read(topic, partition, offset, 1)
        return found[0] if found else None

    async def archiver(self, partition: int = 0, sleep: Callable[[float], Awaitable[None]] = no_sleep) -> Archiver:
        archiver = Archiver(self.store, partition, self.limits, self.clock.port, sleep)
        await archiver.resume(self.record_at)
        return archiver

    async def feed(self, archiver: Archiver, count: int | None = None) -> None:
        """Hand over what the log has and the archiver hasn't."""
        await archiver.take(self.log.read(archiver.topic, archiver.partition, archiver.next_offset, count))

    async def stored(self, partition: int = 0, topic: str = JOURNAL) -> list[ArchivedRecord]:
        """All records that a reader of the chain gets."""
        store = SegmentStore(self.objects, topic)
        sizes = await store.spans(partition)
        found: list[ArchivedRecord] = []
        links = chain_of(sizes)
        ends = [link.start for link in links[1:]] + [link.span.next for link in links[-1:]]
        for link, end in zip(links, ends, strict=True):
            for block in await store.blocks(partition, link.span, sizes[link.span]):
                found += [r for r in store.records(partition, block) if link.start <= r.offset < end]
        return found

    def logged(self, partition: int = 0, topic: str = JOURNAL) -> list[ArchivedRecord]:
        """The same of the log."""
        return [archived(record) for record in self.log.read(topic, partition)]

    def segments(self, partition: int = 0) -> list[str]:
        folder = f"archive/{JOURNAL}/{partition}/"
        return [path.removeprefix(folder) for path in sorted(self.objects.objects) if path.startswith(folder)]

    def access(self) -> LogAccess:
        async def ends(topic: str) -> Mapping[int, int]:
            return {number: self.log.end(topic, number) for number in range(self.log.count(topic))}

        return LogAccess(lambda *given: LogFeed(self.log, *given), self.record_at, ends, self.log.partitions)

    def archive(self, sleep: Callable[[float], Awaitable[None]] = no_sleep) -> Archive:
        return Archive(PREFIX, self.objects, self.access(), self.limits, self.clock.port, sleep)


class LogFeed:
    """A follower of an in-process log."""

    def __init__(self, log: InProcessLog, topic: str, apply: Apply, on_error: Callable[[BaseException], None]) -> None:
        self._log, self._topic, self._apply, self._on_error = log, topic, apply, on_error
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def follow(self, partition: int, start: int = 0) -> None:
        self._tasks[partition] = asyncio.create_task(self._run(partition, start))

    async def _run(self, partition: int, at: int) -> None:
        try:
            while True:
                await self._log.arrived(self._topic, partition, at)
                records = self._log.read(self._topic, partition, at, 7)
                await self._apply(partition, records)
                at += len(records)
        except Exception as error:  # noqa: BLE001 - as the thread of the real one
            self._on_error(error)

    def unfollow(self, partition: int) -> None:
        self._tasks.pop(partition).cancel()

    def end(self, partition: int) -> int | None:
        return self._log.end(self._topic, partition)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
