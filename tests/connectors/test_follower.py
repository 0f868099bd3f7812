"""The follower's hand-over, on a consumer that a test steps: no broker, no race left to luck."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors import follower as module
from connectors.follower import LogFollower


class Message:
    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"{}"

    def headers(self) -> list[Any]:
        return []

    def error(self) -> None:
        return None


class Consumer:
    """Gives each batch once; the first ``poll`` of a batch waits until the test has queued it."""

    def __init__(self, _config: dict[str, Any]) -> None:
        self.batches: list[list[Message]] = []
        self.current: list[Message] = []
        self.assigned: list[tuple[int, int]] = []

    def poll(self, _seconds: float) -> Message | None:
        if self.batches:
            self.current = self.batches.pop(0)
            return self.current.pop(0)
        return None

    def consume(self, _count: int, _seconds: float) -> list[Message]:
        rest, self.current = self.current, []
        return rest

    def incremental_assign(self, places: list[Any]) -> None:
        self.assigned += [(place.partition, place.offset) for place in places]

    def incremental_unassign(self, places: list[Any]) -> None:
        self.assigned = [entry for entry in self.assigned if entry[0] not in {place.partition for place in places}]

    def get_watermark_offsets(self, _place: Any, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, 100

    def close(self) -> None:
        return


@pytest.fixture
def consumer(monkeypatch):
    made: list[Consumer] = []

    def make(config: dict[str, Any]) -> Consumer:
        made.append(Consumer(config))
        return made[-1]

    monkeypatch.setattr(module, "Consumer", make)
    return made


async def _until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_partition_that_left_and_came_back_is_not_given_records_from_the_middle(consumer):
    applied: list[tuple[int, list[int]]] = []
    go = asyncio.Event()

    async def apply(partition: int, records: Any) -> None:
        applied.append((partition, [record.offset for record in records]))
        if partition == 0:
            await go.wait()

    errors: list[BaseException] = []
    followed = LogFollower("b", "t", apply, errors.append, group="g")
    followed.follow(0)
    followed.follow(1)
    await _until(lambda: len(consumer[0].assigned) == 2)
    # One poll brings records of both; while those of partition 0 are applied, partition 1 leaves and comes back.
    consumer[0].batches.append([Message(0, 0), Message(1, 40), Message(1, 41)])
    await _until(lambda: applied)
    followed.unfollow(1)
    followed.follow(1, 0)
    go.set()
    await _until(lambda: (1, 0) in consumer[0].assigned)
    consumer[0].batches.append([Message(1, 0), Message(1, 1)])
    await _until(lambda: len(applied) == 2)
    await followed.stop()
    assert applied == [(0, [0]), (1, [0, 1])]
    assert errors == []


async def test_a_fault_of_the_reader_is_reported_not_swallowed(consumer):
    async def apply(partition: int, records: Any) -> None:
        raise KeyError("a fault of ours")

    errors: list[BaseException] = []
    followed = LogFollower("b", "t", apply, errors.append, group="g")
    followed.follow(0)
    await _until(lambda: consumer[0].assigned)
    consumer[0].batches.append([Message(0, 0)])
    await _until(lambda: errors)
    await followed.stop()
    assert isinstance(errors[0], KeyError)
