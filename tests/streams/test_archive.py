"""The archive of a worker: it follows what is held, hinders nothing, and ends with the last record stored."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys

import pytest
from pydantic import ValidationError

from connectors.settings import Settings
from streams.archiver import DAY_MS
from tests.streams.archives import Bench, quick


async def _until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_the_holder_of_journal_0_archives_the_library_too() -> None:
    bench = Bench()
    bench.say(5, partition=0)
    bench.say(3, partition=2)
    bench.log.put("mnemolog.library", 0, b'{"type":"PersonaDeclared"}')
    bench.log.put("mnemolog.dead-letters", 0, b"{}")
    first, second = bench.archive(), bench.archive()
    first.hold({"journal": (0, 1), "requests": (0, 1)})
    second.hold({"journal": (2, 3), "dead-letters": (0,)})
    assert await first.finish(10)
    assert await second.finish(10)
    assert await bench.stored(0) == bench.logged(0)
    assert await bench.stored(2) == bench.logged(2)
    for topic in ("mnemolog.library", "mnemolog.dead-letters"):
        assert await bench.stored(0, topic) == bench.logged(0, topic) != []
    assert first.status().archived_to == {"journal": {"0": 5, "1": 0}, "library": {"0": 1}}
    await first.stop()
    await second.stop()


async def test_finish_stores_what_came_last() -> None:
    bench = Bench(quick(seconds_max=1e9))
    archive = bench.archive()
    archive.hold({"journal": (0,)})
    bench.say(40)
    assert await archive.finish(10)
    assert await bench.stored() == bench.logged()
    assert archive.status().lag == {"journal": {"0": 0}, "library": {"0": 0}}
    await archive.stop()


async def test_a_partition_moves_from_worker_to_worker_and_back() -> None:
    bench = Bench(quick(bytes_max=3_000))
    first, second = bench.archive(), bench.archive()
    first.hold({"journal": (1,)})
    for number in range(6):
        bench.say(10, partition=1)
        holder, other = (first, second) if number % 2 == 0 else (second, first)
        holder.hold({"journal": (1,)})  # before the other one lets go: both write
        bench.say(10, partition=1)
        assert await holder.finish(10)
        other.hold({})
    assert await bench.stored(1) == bench.logged(1)
    await first.stop()
    await second.stop()


async def test_a_store_that_is_away_is_told_and_hinders_nobody() -> None:
    bench = Bench()
    bench.objects.away = True
    archive = bench.archive(sleep=lambda seconds: asyncio.sleep(0 if seconds < 5 else 3600))
    archive.hold({"journal": (0,)})
    bench.say(5)
    await _until(lambda: archive.status().problem)
    assert "away" in (archive.status().problem or "")
    assert not await archive.finish(0.05)
    await archive.stop()


async def test_an_archive_of_another_cluster_is_told_and_left_alone() -> None:
    bench = Bench()
    bench.say(5)
    archive = bench.archive()
    archive.hold({"journal": (0,)})
    assert await archive.finish(10)
    await archive.stop()
    other = Bench(partitions=8)
    other.objects = bench.objects
    again = other.archive()
    again.hold({"journal": (0,)})
    await _until(lambda: again.status().problem)
    assert "has 4 partitions, the broker has 8" in (again.status().problem or "")
    await again.stop()
    assert await bench.stored() == bench.logged()


async def test_a_reader_that_broke_begins_again_where_the_archiver_is() -> None:
    bench = Bench(quick(bytes_max=64 * 1024, seconds_max=1e9))
    archive = bench.archive()
    archive.hold({"journal": (0,)})
    bench.say(5)
    await _until(lambda: archive.status().lag.get("journal") is not None)
    broken: list[str] = []

    def fault(operation: str, path: str) -> None:
        if operation == "put" and not broken:
            broken.append(path)
            raise KeyError("a fault of ours")

    bench.say(100)
    await _until(lambda: archive.status().lag["journal"]["0"] == 105)
    bench.objects.fault = fault
    bench.say(20, text=random.Random(1).randbytes(60_000).hex())
    await _until(lambda: broken)
    assert await archive.finish(10)
    assert await bench.stored() == bench.logged()
    await archive.stop()


async def test_a_worker_deletes_what_is_older_than_the_retention() -> None:
    bench = Bench(quick(bytes_max=3_000, retention_days=90))
    rng = random.Random(1)
    for days, oldest in ((0, 0), (91, 1), (50, 1)):
        bench.clock.advance(days * DAY_MS)
        for _ in range(60):
            bench.say(1, text=rng.randbytes(2_000).hex())
        archive = bench.archive()
        archive.hold({"journal": (0,)})
        assert await archive.finish(10)
        await _until(lambda oldest=oldest: bench.segments()[0] >= f"{oldest:020d}")
        await archive.stop()
    kept = await bench.stored()
    assert kept == bench.logged()[kept[0].offset :]
    assert 0 < kept[0].offset <= 60
    assert len(kept) >= 120


@pytest.mark.parametrize("days", [1, 89, 0, -5])
def test_a_retention_below_90_days_is_refused(days: int) -> None:
    with pytest.raises(ValidationError, match=f"archive_retention_days must be at least 90, got {days}"):
        Settings(archive_retention_days=days)


def test_90_days_and_for_ever_are_taken() -> None:
    assert Settings(archive_retention_days=90).archive_retention_days == 90
    assert Settings().archive_retention_days is None


def test_the_embedded_broker_keeps_its_only_copy() -> None:
    with pytest.raises(ValidationError, match="embedded broker"):
        Settings(broker="embedded", archive_retention_days=365)


ARCHIVE = (
    "connectors.objects",
    "obstore",
    "streams.archive",
    "streams.archiver",
    "streams.restore",
    "streams.segment_store",
    "streams.transcript",
)
SERVING = ("streams.core.answer", "streams.core.prompt", "streams.requests", "streams.serving", "streams.memory")


def test_what_makes_prompts_cannot_reach_the_archive() -> None:
    """In a process of its own: none of the modules that answer requests imports the archive, however indirectly."""
    program = (
        f"import importlib, sys\nfor name in {SERVING!r}: importlib.import_module(name)\n"
        f"print([name for name in {ARCHIVE!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
