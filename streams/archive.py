"""The raw transcript's part in ``analytics``: an archiver for each partition of the logs that this worker holds.

Reads by log followers of its own, outside Faust, so an object store that is away holds up neither ClickHouse nor
answers. It resumes from the store, never from committed offsets. ``library`` has one partition that no group shares
out; the worker that holds partition 0 of ``journal`` archives it.

Invariant: a partition is archived by the worker that holds it, in the order of its log. Two workers at once, after a
rebalance, write the same records; see the chain rule in ``streams.core.chains``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from connectors import metrics
from connectors.follower import LogFollower
from connectors.log_reader import LogReader
from connectors.ports import Apply, Clock, NoSuchObject, Objects, Record, Unavailable
from connectors.settings import Settings
from streams.archiver import Archiver, Limits
from streams.segment_store import ArchiveError, SegmentStore

log = structlog.get_logger("archive")

ARCHIVED = ("journal", "library", "dead-letters")
"""Topics without prefix that can't be derived from others: with them everything else can be made again."""
TICK_S = 0.25
EXPIRE_S = 3600.0
RESTART_S = 2.0
_FOLLOWER = -1
"""In place of a partition: what is wrong with the follower of a topic."""
FETCH_WAIT_MS = 500
FETCH_BYTES_MIN = 64 * 1024
"""The archiver is in no hurry: larger and fewer fetches cost the broker and this process less."""


class Follower(Protocol):
    """What of ``LogFollower`` is used."""

    def follow(self, partition: int, start: int = 0) -> Any:
        """Begin at an offset."""
        ...

    def unfollow(self, partition: int) -> None:
        """Stop following."""
        ...

    def end(self, partition: int) -> int | None:
        """Offset after the last record that was heard of."""
        ...

    async def stop(self) -> None:
        """End."""
        ...


@dataclass(frozen=True, slots=True)
class LogAccess:
    """How the archive reads a log; topics with their full names."""

    follower: Callable[[str, Apply, Callable[[BaseException], None]], Follower]
    record_at: Callable[[str, int, int], Awaitable[Record | None]]
    ends: Callable[[str], Awaitable[Mapping[int, int]]]
    partitions: Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """How far the archive is, by topic without prefix and partition."""

    archived_to: Mapping[str, Mapping[str, int]]
    lag: Mapping[str, Mapping[str, int]]
    problem: str | None


class Archive:
    """The archivers of one worker.

    Parameters
    ----------
    prefix : str
        Of topic names.
    sleep : callable
        Awaited between two looks at what is due, and between two tries.
    """

    def __init__(
        self,
        prefix: str,
        objects: Objects,
        access: LogAccess,
        limits: Limits,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._prefix = prefix
        self._access = access
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._stores = {name: SegmentStore(objects, prefix + name) for name in ARCHIVED}
        self._followers: dict[str, Follower] = {}
        self._archivers: dict[tuple[str, int], Archiver] = {}
        self._following: set[tuple[str, int]] = set()
        self._problems: dict[tuple[str, int], str] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._restarts: set[asyncio.Task[None]] = set()

    @classmethod
    def from_settings(cls, settings: Settings, objects: Objects) -> Archive:
        """The archive of a worker, on a real log."""
        limits = Limits(settings.archive_segment_bytes, settings.archive_seconds, settings.archive_retention_days)
        return cls(settings.prefix, objects, log_access(settings), limits, Clock(lambda: time.time_ns() // 1_000_000))

    def hold(self, held: Mapping[str, Collection[int]]) -> None:
        """Archive exactly these partitions, by topic without prefix; go on with those that were held already."""
        wanted = {(name, number) for name, numbers in held.items() if name in ARCHIVED for number in numbers}
        if ("journal", 0) in wanted:
            wanted.add(("library", 0))
        for place in set(self._archivers) - wanted:
            self._release(place)
        for place in sorted(wanted - set(self._archivers)):
            name, number = place
            archiver = Archiver(self._stores[name], number, self._limits, self._clock, self._sleep)
            self._archivers[place] = archiver
            self._tasks[place] = asyncio.create_task(self._run(place, archiver))

    def _release(self, place: tuple[str, int]) -> None:
        name, number = place
        self._archivers.pop(place).closed = True
        self._tasks.pop(place).cancel()
        self._problems.pop(place, None)
        if place in self._following:
            self._following.discard(place)
            self._followers[name].unfollow(number)

    async def _run(self, place: tuple[str, int], archiver: Archiver) -> None:
        """From where the store ends to the end of the log, and on as it grows."""
        name, number = place
        try:
            await self._begin(place, archiver)
            slept_s = EXPIRE_S  # at once: a worker may never live for an hour
            while True:
                await self._sleep(TICK_S)
                slept_s += TICK_S
                if archiver.due:
                    await archiver.write()
                if slept_s >= EXPIRE_S:
                    slept_s = 0.0
                    await self._expire(archiver)
        except ArchiveError as error:
            self._problems[place] = str(error)
            log.error("archive_stopped", topic=self._prefix + name, partition=number, error=str(error))
        except Exception as error:  # the task's outermost level: the archive must stop nothing else
            self._problems[place] = repr(error)
            log.exception("archive_broken", topic=self._prefix + name, partition=number)

    async def _begin(self, place: tuple[str, int], archiver: Archiver) -> None:
        name, number = place
        store = self._stores[name]
        while True:
            try:
                await store.declare(await self._access.partitions(store.topic))
                start = await archiver.resume(self._access.record_at)
                break
            except Unavailable as error:
                metrics.retry("objects")
                log.warning("archive_waits", topic=store.topic, partition=number, error=str(error))
                self._problems[place] = str(error)
                await self._sleep(RESTART_S)
        self._problems.pop(place, None)
        self._follower(name).follow(number, start)
        self._following.add(place)
        log.info("archive_resumed", topic=store.topic, partition=number, next_offset=start)

    async def _expire(self, archiver: Archiver) -> None:
        try:
            await archiver.expire()
        except (Unavailable, NoSuchObject) as error:  # an hour later is as good
            log.warning("archive_expiry_put_off", topic=archiver.topic, error=str(error))

    def _follower(self, name: str) -> Follower:
        if name not in self._followers:

            async def apply(partition: int, records: Any) -> None:
                archiver = self._archivers.get((name, partition))
                if archiver is not None:
                    await archiver.take(records)
                    self._problems.pop((name, _FOLLOWER), None)

            self._followers[name] = self._access.follower(
                self._prefix + name, apply, lambda error: self._lost(name, error)
            )
        return self._followers[name]

    def _lost(self, name: str, error: BaseException) -> None:
        """A follower has ended by an error: begin another one where each archiver is."""
        self._problems[name, _FOLLOWER] = f"{self._prefix}{name} can't be followed: {error!r}"
        log.warning("archive_follower_lost", topic=self._prefix + name, error=repr(error), again_in_s=RESTART_S)
        task = asyncio.ensure_future(self._restart(name))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _restart(self, name: str) -> None:
        follower = self._followers.pop(name)
        places = [place for place in self._following if place[0] == name]
        self._following.difference_update(places)
        await follower.stop()
        await self._sleep(RESTART_S)
        for place in places:
            archiver = self._archivers.get(place)
            if archiver is not None:
                self._follower(name).follow(place[1], archiver.next_offset)
                self._following.add(place)

    def status(self) -> ArchiveStatus:
        """How far it is."""
        archived_to: dict[str, dict[str, int]] = {}
        behind: dict[str, dict[str, int]] = {}
        problems = dict(self._problems)
        for place, archiver in sorted(self._archivers.items()):
            name, number = place
            archived_to.setdefault(name, {})[str(number)] = archiver.archived_to
            end = self._followers[name].end(number) if place in self._following else None
            if end is not None:
                behind.setdefault(name, {})[str(number)] = max(end, archiver.next_offset) - archiver.archived_to
            if archiver.waiting_since_ms is not None:
                waited_s = (self._clock.now_ms() - archiver.waiting_since_ms) // 1000
                problems.setdefault(place, f"{name}[{number}]: the object store has been away for {waited_s} s")
        return ArchiveStatus(archived_to, behind, next(iter(problems.values()), None))

    async def finish(self, seconds_max: float) -> bool:
        """Archive up to the end that the logs have now; whether that was done within the time."""
        try:
            async with asyncio.timeout(seconds_max):
                names = sorted({name for name, _ in self._archivers})
                ends = dict(
                    zip(names, await asyncio.gather(*(self._access.ends(self._prefix + n) for n in names)), strict=True)
                )
                waiting = [
                    self._reach(archiver, ends[name].get(number, 0))
                    for (name, number), archiver in self._archivers.items()
                    if (name, number) not in self._problems
                ]
                await asyncio.gather(*waiting)
        except (TimeoutError, Unavailable) as error:
            log.warning("archive_not_finished", error=repr(error), lag=self.status().lag)
            return False
        return not self._problems

    async def _reach(self, archiver: Archiver, end: int) -> None:
        while archiver.next_offset < end:
            await self._sleep(0.01)
        await archiver.write()

    async def stop(self) -> None:
        """End without writing what is left."""
        for place in list(self._archivers):
            self._release(place)
        for task in self._restarts:
            task.cancel()
        for follower in self._followers.values():
            await follower.stop()


def log_access(settings: Settings) -> LogAccess:
    """A log on a Kafka broker."""

    def follower(topic: str, apply: Apply, on_error: Callable[[BaseException], None]) -> Follower:
        return LogFollower(
            settings.kafka,
            topic,
            apply,
            on_error,
            group=f"{settings.prefix}archive",
            fetch_wait_ms=FETCH_WAIT_MS,
            fetch_bytes_min=FETCH_BYTES_MIN,
        )

    async def asked(work: Callable[[LogReader], Any]) -> Any:
        def ask() -> Any:
            with LogReader(settings.kafka) as reader:
                return work(reader)

        return await asyncio.to_thread(ask)

    return LogAccess(
        follower,
        lambda topic, partition, offset: asked(lambda reader: reader.record_at(topic, partition, offset)),
        lambda topic: asked(lambda reader: reader.ends(topic)),
        lambda topic: asked(lambda reader: reader.partitions(topic)),
    )
