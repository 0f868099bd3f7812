"""The in-process ports keep their ports' contracts, and can be made to fail."""

import asyncio
from collections.abc import Callable

import pytest

from connectors.inprocess import HashEmbedder, InProcessLog, ManualClock, MemoryWarehouse
from connectors.ports import Embedder, Outgoing, Unavailable
from schemas.topics import MESSAGE_BYTES_MAX
from tests.contracts import EmbedderContract, LogContract, LogSubject, WarehouseContract, WarehouseSubject


class TestInProcessLog(LogContract):
    @pytest.fixture
    def subject(self) -> LogSubject:
        log = InProcessLog(ManualClock().port, {"t": 4})

        async def read(topic: str, partition: int) -> list:
            return log.read(topic, partition)

        return LogSubject(log, "t", 4, read)


class TestScheduledLog(LogContract):
    """The same with every write and acknowledgement made later by the event loop."""

    @pytest.fixture
    async def subject(self) -> LogSubject:
        loop = asyncio.get_running_loop()

        def schedule(step: Callable[[], None]) -> None:
            loop.call_soon(step)

        log = InProcessLog(ManualClock().port, {"t": 4}, schedule=schedule)

        async def read(topic: str, partition: int) -> list:
            return log.read(topic, partition)

        return LogSubject(log, "t", 4, read)


class TestHashEmbedder(EmbedderContract):
    @pytest.fixture
    def subject(self) -> Embedder:
        return HashEmbedder()

    @pytest.fixture
    def unavailable(self) -> Embedder:
        embedder = HashEmbedder()
        embedder.away = True
        return embedder


class TestMemoryWarehouse(WarehouseContract):
    @pytest.fixture
    def subject(self) -> WarehouseSubject:
        warehouse = MemoryWarehouse()

        async def rows(table: str, user_id: str) -> list:
            return [row for row in warehouse.rows(table) if row["user_id"] == user_id]

        return WarehouseSubject(warehouse, rows)


async def test_append_counts_only_when_the_scheduler_says_so() -> None:
    steps: list[Callable[[], None]] = []
    log = InProcessLog(ManualClock().port, {"t": 1}, schedule=steps.append)
    future = await log.append(Outgoing(topic="t", value=b"a"))
    assert (log.end("t", 0), future.done()) == (0, False)
    steps.pop(0)()
    assert (log.end("t", 0), future.done()) == (1, False)
    steps.pop(0)()
    assert future.result() == 0


async def test_killed_producer_loses_the_end_of_what_was_pending_and_never_the_middle() -> None:
    log = InProcessLog(ManualClock().port, {"t": 1})
    dying = log.connect(lambda step: None)
    for value in (b"a", b"b", b"c"):
        await dying.append(Outgoing(topic="t", value=value))
    dying.lose(lambda pending: pending - 1)
    assert [record.value for record in log.read("t", 0)] == [b"a", b"b"]
    with pytest.raises(Unavailable):
        await dying.append(Outgoing(topic="t", value=b"d"))


async def test_reader_can_wait_for_an_offset() -> None:
    log = InProcessLog(ManualClock().port, {"t": 1})
    waiting = asyncio.ensure_future(log.arrived("t", 0, 1))
    log.put("t", 0, b"a")
    await asyncio.sleep(0)
    assert not waiting.done()
    log.put("t", 0, b"b")
    await asyncio.wait_for(waiting, 1)


async def test_record_too_large_for_kafka_is_too_large_here() -> None:
    log = InProcessLog(ManualClock().port, {"t": 1})
    with pytest.raises(Unavailable, match="bytes"):
        await log.append(Outgoing(topic="t", value=b"x" * MESSAGE_BYTES_MAX))


async def test_refusal_of_a_text_is_terminal() -> None:
    embedder = HashEmbedder()
    embedder.refuses = lambda text: "bad" in text
    with pytest.raises(ValueError, match="bad"):
        await embedder.embed(["good", "bad"], "passage")


async def test_absent_warehouse_is_told_as_transient() -> None:
    warehouse = MemoryWarehouse()
    warehouse.away = True
    with pytest.raises(Unavailable):
        await warehouse.offsets()
