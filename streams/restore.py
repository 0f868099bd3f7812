"""From the raw transcript back to a log: the same records at the same offsets, so the same state and the same answers.

Everything that is derived (memory, ClickHouse, facts) follows from ``journal`` and ``library``; a position in them is
part of what is derived, so the offsets must be equal, not just the order.

Invariants: nothing is written before all chains and digests have been checked. A topic is continued only where what it
holds is the beginning of the archive, as after a restore that was cut; anything else is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from connectors.kafka import create_topics
from connectors.log_reader import LogReader
from connectors.log_writer import LogWriter
from connectors.ports import Objects, Record, Unavailable
from streams.archive import ARCHIVED
from streams.core.chains import (
    BrokenChain,
    Link,
    Span,
    whole_chain,
)
from streams.segment_store import ROOT, ArchiveError, SegmentStore, archived, archived_topics

REPORT_EVERY_S = 5.0
LEADER_S_MAX = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CheckedPartition:
    """An archived partition whose chain and digests are whole."""

    store: SegmentStore
    partition: int
    links: tuple[Link, ...]
    sizes: Mapping[Span, int]

    @property
    def end(self) -> int:
        """Offset after the last archived record."""
        return self.links[-1].span.next if self.links else 0

    async def records(self, start: int) -> AsyncIterator[list[Record]]:
        """Records from an offset on, block by block; the segment after is fetched meanwhile."""
        links = [link for link in self.links if link.span.next > start]
        ahead = [asyncio.create_task(self._blocks(link)) for link in links[:1]]
        for number, link in enumerate(links):
            blocks = await ahead.pop()
            ahead += [asyncio.create_task(self._blocks(following)) for following in links[number + 1 : number + 2]]
            first = max(start, link.start)
            for block in blocks:
                if block.next <= first:
                    continue
                found = self.store.records(self.partition, block)
                yield [
                    Record(self.store.topic, self.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                    for r in found
                    if r.offset >= first
                ]

    async def _blocks(self, link: Link) -> list:
        return await self.store.blocks(self.partition, link.span, self.sizes[link.span])

    async def record_at(self, offset: int) -> Record:
        """One record; the offset is archived."""
        async for records in self.records(offset):
            return records[0]
        raise ArchiveError(f"{self.store.topic}[{self.partition}] has no archived offset {offset}")


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """What was done to a partition."""

    topic: str
    partition: int
    archived_to: int
    already: int
    """Records that were there, from a restore before."""
    written: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done."""

    partitions: tuple[RestoredPartition, ...]
    seconds: float

    @property
    def written(self) -> int:
        """Records that were written."""
        return sum(partition.written for partition in self.partitions)


async def has_archive(objects: Objects, prefix: str) -> bool:
    """Whether there is something to restore."""
    return await SegmentStore(objects, f"{prefix}journal").partitions() is not None


async def check_archive(objects: Objects, prefix: str) -> tuple[dict[str, int], list[CheckedPartition]]:
    """All that is archived under a prefix, once chains and digests are known to be whole.

    Returns
    -------
    dict and list
        Partition counts by topic without prefix, and the partitions.

    Raises
    ------
    ArchiveError
        There is no archive, or it is damaged or has holes.
    """
    counts: dict[str, int] = {}
    checked: list[CheckedPartition] = []
    for name in ARCHIVED:
        store = SegmentStore(objects, prefix + name)
        count = await store.partitions()
        if count is None:
            continue
        counts[name] = count
        for partition in range(count):
            checked.append(await _check_partition(store, partition))
    if "journal" not in counts:
        others = ", ".join(await archived_topics(objects)) or "nothing"
        raise ArchiveError(
            f"there is no archive of {prefix}journal: {ROOT}/ holds {others}; check the URL and --prefix"
        )
    return counts, checked


async def _check_partition(store: SegmentStore, partition: int) -> CheckedPartition:
    sizes = await store.spans(partition)
    what = f"the archive of {store.topic}[{partition}]"
    try:
        links = whole_chain(sizes, first=0)
    except BrokenChain as error:
        raise ArchiveError(
            f"{what} is not whole: {error}, so later records would get other offsets; bring back the objects that are "
            f"missing from {ROOT}/{store.topic}/{partition}/ (were they deleted by the retention?)"
        ) from error
    for link in links:
        for block in await store.blocks(partition, link.span, sizes[link.span]):
            if block.count != block.next - block.first:
                raise ArchiveError(
                    f"{what} has {block.count} records for offsets {block.first} to {block.next - 1}: the log had "
                    "holes (transactions?), which can't be written anew"
                )
    return CheckedPartition(store, partition, links, sizes)


async def restore(
    objects: Objects, bootstrap: str, prefix: str, *, replication: int = 1, embedded: bool = False, say: Say = print
) -> Restored:
    """Fill an empty broker from the archive, or go on where a restore was cut.

    Raises
    ------
    ArchiveError
        The archive can't be used, or the broker holds something else.
    Unavailable
        Broker or object store don't answer.
    """
    begun = time.monotonic()
    counts, checked = await check_archive(objects, prefix)
    total = sum(partition.end for partition in checked)
    say(f"archive checked: {total} records of {', '.join(prefix + name for name in counts)}")
    await _topics(bootstrap, prefix, counts["journal"], replication)
    with LogReader(bootstrap) as reader:
        starts = [await _start(partition, reader) for partition in checked]
    done: list[RestoredPartition] = []
    with LogWriter(bootstrap, embedded=embedded) as writer:
        told = time.monotonic()
        written = 0
        for partition, start in zip(checked, starts, strict=True):
            writer.begin(partition.store.topic, partition.partition, start)
            async for records in partition.records(start):
                writer.append(records)
                written += len(records)
                if time.monotonic() - told > REPORT_EVERY_S:
                    told = time.monotonic()
                    say(f"{written} records written, {total - sum(starts) - written} to go")
            topic = partition.store.topic
            done.append(RestoredPartition(topic, partition.partition, partition.end, start, partition.end - start))
        writer.flush()
    return Restored(tuple(done), time.monotonic() - begun)


async def _topics(bootstrap: str, prefix: str, partitions: int, replication: int) -> None:
    try:
        await create_topics(bootstrap, prefix, partitions, replication)
    except ValueError as error:
        raise ArchiveError(f"the archive has {partitions} partitions: {error}") from error


async def _ends(topic: str, reader: LogReader) -> dict[int, int]:
    """Where a topic ends; one that was just made needs a moment until its partitions have leaders."""
    until = time.monotonic() + LEADER_S_MAX
    while True:
        try:
            return await asyncio.to_thread(reader.ends, topic)
        except Unavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


async def _start(partition: CheckedPartition, reader: LogReader) -> int:
    """Where to begin to write: 0, or the end of what an earlier restore has written."""
    topic, number = partition.store.topic, partition.partition
    end = (await _ends(topic, reader))[number]
    if end == 0:
        return 0
    holds = f"{topic}[{number}] is not empty: it holds {end} records"
    if end > partition.end:
        raise ArchiveError(f"{holds}, the archive {partition.end}; restore into an empty broker, or another --prefix")
    last = await asyncio.to_thread(reader.record_at, topic, number, end - 1)
    if last is None or archived(last) != archived(await partition.record_at(end - 1)):
        raise ArchiveError(
            f"{holds}, and the last one is not the archive's; restore into an empty broker, or another --prefix"
        )
    return end
