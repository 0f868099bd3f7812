"""What is checked of an archive before anything is written, and what is read of it."""

from __future__ import annotations

import random

import pytest

from connectors.ports import Record
from streams.restore import check_archive, has_archive
from streams.segment_store import ArchiveError
from tests.streams.archives import JOURNAL, PREFIX, Bench, quick


async def _bench() -> Bench:
    bench = Bench(quick(bytes_max=3_000))
    rng = random.Random(1)
    for number in range(120):
        bench.say(1, partition=number % 4, text=rng.randbytes(1_000).hex())
    bench.log.put("mnemolog.library", 0, b"{}")
    archive = bench.archive()
    archive.hold({"journal": (0, 1, 2, 3), "dead-letters": (0,)})
    assert await archive.finish(10)
    await archive.stop()
    return bench


async def _records(partition, start: int) -> list[Record]:
    return [record async for records in partition.records(start) for record in records]


async def test_all_partitions_are_read_back_from_any_offset() -> None:
    bench = await _bench()
    counts, checked = await check_archive(bench.objects, PREFIX)
    assert counts == {"journal": 4, "library": 1, "dead-letters": 1}
    assert [(partition.store.topic, partition.end) for partition in checked] == [
        *[(JOURNAL, 30)] * 4,
        ("mnemolog.library", 1),
        ("mnemolog.dead-letters", 0),
    ]
    for partition in checked:
        logged = bench.log.read(partition.store.topic, partition.partition)
        for start in (0, 1, 17, 29, partition.end):
            assert await _records(partition, start) == logged[start:]
    assert (await checked[2].record_at(13)).value == bench.log.read(JOURNAL, 2)[13].value


async def test_overlapping_segments_are_read_once() -> None:
    bench = Bench()
    first, second = await bench.archiver(), await bench.archiver()
    for count in (3, 4, 5):
        bench.say(count)
        await bench.feed(first)
        await first.write()
        bench.say(2)
        await bench.feed(second)
        await second.write()
    await bench.store.declare(4)
    _, checked = await check_archive(bench.objects, PREFIX)
    assert await _records(checked[0], 0) == bench.log.read(JOURNAL, 0)


async def test_no_archive_is_told_with_what_is_there() -> None:
    bench = await _bench()
    assert await has_archive(bench.objects, PREFIX)
    assert not await has_archive(bench.objects, "other.")
    with pytest.raises(ArchiveError, match=r"no archive of other.journal: archive/ holds mnemolog.dead-letters, "):
        await check_archive(bench.objects, "other.")


async def test_missing_and_damaged_objects_are_told_before_anything_is_written() -> None:
    bench = await _bench()
    paths = [path for path in bench.objects.objects if path.startswith(f"archive/{JOURNAL}/1/")]
    lost = bench.objects.objects.pop(sorted(paths)[0])
    with pytest.raises(ArchiveError, match=r"mnemolog.journal\[1\] is not whole: offsets 0 to \d+ are missing"):
        await check_archive(bench.objects, PREFIX)
    damaged = bytearray(lost)
    damaged[len(lost) // 3] ^= 1
    bench.objects.objects[sorted(paths)[0]] = bytes(damaged)
    with pytest.raises(ArchiveError, match="damaged"):
        await check_archive(bench.objects, PREFIX)


async def test_a_hole_in_the_log_is_told() -> None:
    bench = Bench()
    bench.say(6)
    archiver = await bench.archiver()
    records = bench.log.read(JOURNAL, 0)
    await archiver.take([*records[:2], *records[4:]])
    await archiver.write()
    await bench.store.declare(4)
    with pytest.raises(ArchiveError, match="has 4 records for offsets 0 to 5: the log had holes"):
        await check_archive(bench.objects, PREFIX)


async def test_an_archive_of_an_unknown_format_is_refused() -> None:
    bench = await _bench()
    bench.objects.objects[f"archive/{JOURNAL}/topic.json"] = b'{"format": 2, "partitions": 4}'
    with pytest.raises(ArchiveError, match="has format 2, expected 1"):
        await check_archive(bench.objects, PREFIX)
