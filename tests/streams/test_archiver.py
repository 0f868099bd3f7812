"""One partition's archiver: whatever is killed or away, and whoever else writes, the store holds the log's prefix."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.inprocess import START_MS
from connectors.ports import Unavailable
from streams.archiver import DAY_MS, PARTS_MAX, ForeignArchive
from streams.segment_store import ArchiveError
from tests.streams.archives import JOURNAL, Bench, Killed, no_sleep, quick


async def test_every_record_is_stored_as_it_was_and_in_order() -> None:
    bench = Bench()
    bench.say(30)
    bench.log.put(JOURNAL, 0, None, key=None)
    bench.log.put(JOURNAL, 0, b"\xff not json", key=b"", timestamp=5)
    archiver = await bench.archiver()
    await bench.feed(archiver)
    await archiver.write()
    assert await bench.stored() == bench.logged()
    assert archiver.archived_to == 32


async def test_records_wait_no_longer_than_they_may() -> None:
    bench = Bench(quick(seconds_max=10))
    archiver = await bench.archiver()
    assert not archiver.due
    bench.say(1)
    await bench.feed(archiver)
    assert not archiver.due
    bench.clock.advance(9_999)
    assert not archiver.due
    bench.clock.advance(1)
    assert archiver.due
    await archiver.write()
    assert not archiver.due


async def test_a_segment_closes_at_its_size_without_waiting() -> None:
    bench = Bench(quick(bytes_max=5_000))
    archiver = await bench.archiver()
    rng = random.Random(1)
    for _ in range(200):
        bench.say(1, text=rng.randbytes(2_000).hex())
    await bench.feed(archiver)
    assert archiver.archived_to > 150
    assert len(bench.segments()) > 3
    await archiver.write()
    assert await bench.stored() == bench.logged()


async def test_small_segments_are_replaced_by_one() -> None:
    bench = Bench()
    archiver = await bench.archiver()
    rng = random.Random(2)
    most = 0
    for _ in range(5 * PARTS_MAX):
        bench.say(1, text=rng.randbytes(20_000).hex())
        await bench.feed(archiver)
        await archiver.write()
        most = max(most, len(bench.segments()))
    assert most <= PARTS_MAX + 1 + archiver.archived_to * 20_000 // bench.limits.bytes_max
    assert await bench.stored() == bench.logged()


async def test_restarts_do_not_leave_many_small_segments() -> None:
    bench = Bench()
    rng = random.Random(3)
    for _ in range(60):
        archiver = await bench.archiver()
        bench.say(2, text=rng.randbytes(15_000).hex()[:20_000])
        await bench.feed(archiver)
        await archiver.write()
    assert await bench.stored() == bench.logged()
    assert len(bench.segments()) <= PARTS_MAX + 1 + 60 * 2 * 20_000 // bench.limits.bytes_max


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_kills_and_rebalances_leave_neither_gap_nor_double(seed: int) -> None:
    asyncio.run(_kills_and_rebalances(random.Random(seed)))


async def _kills_and_rebalances(rng: random.Random) -> None:
    """Two workers take turns and overlap; each may be killed before or after any operation of the store."""
    bench = Bench(quick(bytes_max=rng.choice((3_000, 20_000, 100_000))))
    deadly = [0.0]

    def maybe(operation: str, path: str) -> None:
        if rng.random() < deadly[0]:
            raise Killed

    bench.objects.fault = bench.objects.after = maybe
    workers = [await bench.archiver(), await bench.archiver()]
    promised = 0
    for _ in range(60):
        bench.say(rng.randrange(4), text=rng.randbytes(rng.choice((50, 3_000))).hex())
        number = rng.randrange(2)
        deadly[0] = rng.choice((0.0, 0.2))
        try:
            await bench.feed(workers[number], rng.randrange(1, 9))
            if rng.random() < 0.6:
                await workers[number].write()
            promised = max(promised, workers[number].archived_to)
            if rng.random() < 0.1:
                workers[number] = await bench.archiver()
        except Killed:
            deadly[0] = 0.0
            workers[number] = await bench.archiver()
        deadly[0] = 0.0
        stored = await bench.stored()
        assert stored == bench.logged()[: len(stored)]
        assert len(stored) >= promised
    for worker in workers:
        await bench.feed(worker)
        await worker.write()
    assert await bench.stored() == bench.logged()


async def test_a_store_that_is_away_is_waited_for_and_nothing_is_lost() -> None:
    bench = Bench()
    bench.say(3)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        bench.objects.away = len(pauses) < 9
        await asyncio.sleep(0)

    archiver = await bench.archiver(sleep=sleep)
    await bench.feed(archiver)
    bench.objects.away = True
    await archiver.write()
    assert pauses == [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 30.0, 30.0]
    assert archiver.waiting_since_ms is None
    assert await bench.stored() == bench.logged()


async def test_a_full_disk_stops_the_archiver_until_there_is_room() -> None:
    bench = Bench()
    bench.say(3)
    full = [5]

    def fault(operation: str, path: str) -> None:
        if operation == "put" and full[0]:
            full[0] -= 1
            raise Unavailable("object store /x: No space left on device (os error 28)")

    bench.objects.fault = fault
    archiver = await bench.archiver()
    await bench.feed(archiver)
    await archiver.write()
    assert full == [0]
    assert await bench.stored() == bench.logged()


async def test_a_partition_that_was_given_up_while_the_store_is_away_lets_go() -> None:
    bench = Bench()
    bench.say(3)
    waiting = asyncio.Event()
    archiver = None

    async def sleep(_seconds: float) -> None:
        assert archiver is not None
        archiver.closed = True
        waiting.set()

    archiver = await bench.archiver(sleep=sleep)
    await bench.feed(archiver)
    bench.objects.away = True
    await asyncio.wait_for(archiver.write(), 5)
    assert waiting.is_set()
    assert archiver.archived_to == 0


async def test_what_is_kept_while_the_store_is_away_is_bounded() -> None:
    bench = Bench(quick(bytes_max=10_000))
    archiver = await bench.archiver(sleep=lambda seconds: asyncio.sleep(3600))
    bench.objects.away = True
    rng = random.Random(4)
    for _ in range(100):
        bench.say(1, text=rng.randbytes(2_000).hex())
    feeding = asyncio.ensure_future(bench.feed(archiver))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not feeding.done()
    assert 0 < archiver.next_offset < 60
    feeding.cancel()


async def test_an_archive_of_another_log_is_never_continued() -> None:
    bench = Bench()
    bench.say(5)
    archiver = await bench.archiver()
    await bench.feed(archiver)
    await archiver.write()
    other = Bench()
    other.objects = bench.objects
    other.store = bench.store
    with pytest.raises(ForeignArchive, match=r"mnemolog.journal\[0\] ends with offset 4, where the log has no record"):
        await other.archiver()
    other.say(9, text="another log")
    with pytest.raises(ForeignArchive, match="the log has another record"):
        await other.archiver()
    assert await bench.stored() == bench.logged()


async def test_a_damaged_end_of_the_archive_is_told_with_its_object() -> None:
    bench = Bench()
    bench.say(5)
    archiver = await bench.archiver()
    await bench.feed(archiver)
    await archiver.write()
    path = f"archive/{JOURNAL}/0/{bench.segments()[-1]}"
    bench.objects.objects[path] = bench.objects.objects[path][:-3]
    with pytest.raises(ArchiveError, match=bench.segments()[-1]):
        await bench.archiver()


async def test_records_that_are_lost_in_the_store_are_archived_again_from_the_log() -> None:
    bench = Bench(quick(bytes_max=5_000))
    archiver = await bench.archiver()
    rng = random.Random(5)
    for _ in range(200):
        bench.say(1, text=rng.randbytes(2_000).hex())
    await bench.feed(archiver)
    await archiver.write()
    lost = bench.segments()[2]
    await bench.objects.delete([f"archive/{JOURNAL}/0/{lost}"])
    assert len(await bench.stored()) < 200
    again = await bench.archiver()
    await bench.feed(again)
    await again.write()
    assert await bench.stored() == bench.logged()


async def test_nothing_younger_than_the_retention_is_deleted_and_what_is_older_is() -> None:
    bench = Bench(quick(bytes_max=5_000, retention_days=90))
    archiver = await bench.archiver()
    rng = random.Random(6)
    for _day in range(200):
        bench.say(3, text=rng.randbytes(2_000).hex())
        bench.clock.advance(DAY_MS)
        await bench.feed(archiver)
        await archiver.write()
        await archiver.expire()
        stored = await bench.stored()
        kept_from = stored[0].offset
        assert stored == bench.logged()[kept_from:]
        cut_ms = bench.clock.now_ms() - 90 * DAY_MS
        assert all(record.timestamp < cut_ms for record in bench.logged()[:kept_from])
    assert stored[0].timestamp > START_MS + 100 * DAY_MS
    again = await bench.archiver()
    assert again.archived_to == 600


async def test_the_newest_segment_stays_however_old_it_is() -> None:
    bench = Bench(quick(retention_days=90))
    bench.say(3)
    archiver = await bench.archiver()
    await bench.feed(archiver)
    await archiver.write()
    bench.clock.advance(1000 * DAY_MS)
    assert await archiver.expire() == 0
    assert (await bench.archiver()).next_offset == 3


async def test_nothing_expires_by_itself() -> None:
    bench = Bench(quick(bytes_max=5_000))
    archiver = await bench.archiver(sleep=no_sleep)
    rng = random.Random(7)
    for _ in range(100):
        bench.say(1, text=rng.randbytes(2_000).hex())
    await bench.feed(archiver)
    bench.clock.advance(10_000 * DAY_MS)
    assert await archiver.expire() == 0
    await archiver.write()
    assert await bench.stored() == bench.logged()
