"""Analytics under faults: offsets are never ahead of rows, whatever is away or cancelled."""

import asyncio

import orjson
import pytest

from connectors.inprocess import MemoryWarehouse
from schemas.codec import encode
from streams.warehousing import Warehousing
from tests import builders

JOURNAL = "mnemolog.journal"
LETTERS = "mnemolog.dead-letters"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.warehousing.RETRY_S", (0.0,))


def _add(warehousing: Warehousing, sequence: int) -> None:
    value = encode(builders.turn_recorded(sequence))
    warehousing.add(builders.record(JOURNAL, value, offset=sequence))


async def test_cancelled_flush_keeps_its_rows_for_the_next_one() -> None:
    warehouse = MemoryWarehouse()
    warehousing = Warehousing(warehouse, dead_letters=LETTERS)
    _add(warehousing, 0)
    warehouse.away = True
    flushing = asyncio.ensure_future(warehousing.flush())
    await asyncio.sleep(0.01)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    warehouse.away = False
    _add(warehousing, 1)
    await warehousing.flush()
    assert [row["turn_id"] for row in warehouse.rows("turns_rows")] == ["t-0", "t-1"]
    assert await warehouse.offsets() == {(JOURNAL, 0): 2}
    assert warehousing.waiting == 0


async def test_group_waits_for_the_warehouse_when_partitions_move() -> None:
    warehouse = MemoryWarehouse()
    warehousing = Warehousing(warehouse, dead_letters=LETTERS)
    warehouse.away = True
    resuming = asyncio.ensure_future(warehousing.resume())
    await asyncio.sleep(0.01)
    assert not resuming.done()
    warehouse.away = False
    assert await resuming == {}


async def test_offset_is_stored_only_after_the_rows_before_it() -> None:
    warehouse = MemoryWarehouse()
    warehousing = Warehousing(warehouse, dead_letters=LETTERS)
    order: list[str] = []
    insert = warehouse.insert

    async def noted(table: str, *rest: object) -> None:
        order.append(table)
        await insert(table, *rest)  # type: ignore[arg-type]

    warehouse.insert = noted  # type: ignore[method-assign, assignment]
    _add(warehousing, 0)
    await warehousing.flush()
    assert order == ["turns_rows", "kafka_offsets"]


@pytest.mark.parametrize("topic", [JOURNAL, LETTERS])
@pytest.mark.parametrize("value", [b"not json", None, b'{"type": []}', b"{}", b'{"type": "dead_letter", "at": 5}'])
async def test_record_that_nobody_can_read_is_passed_over(topic: str, value: bytes | None) -> None:
    warehouse = MemoryWarehouse()
    warehousing = Warehousing(warehouse, dead_letters=LETTERS)
    warehousing.add(builders.record(topic, value, offset=4))
    await warehousing.flush()
    assert await warehouse.offsets() == {(topic, 0): 5}


async def test_dead_letter_with_a_time_that_does_not_exist_is_passed_over() -> None:
    warehouse = MemoryWarehouse()
    warehousing = Warehousing(warehouse, dead_letters=LETTERS)
    letter = {
        "dead_letter_id": "x",
        "at": "2026-02-30T00:00:00Z",
        "source": {"topic": "t", "partition": 0, "offset": 1},
        "error": {"code": "invalid", "message": "m"},
    }
    warehousing.add(builders.record(LETTERS, letter))
    event = orjson.loads(encode(builders.turn_recorded(0))) | {"occurred_at": "2026-13-01T00:00:00Z"}
    warehousing.add(builders.record(JOURNAL, event))
    await warehousing.flush()
    assert warehouse.rows("dead_letters_rows") == warehouse.rows("turns_rows") == []


async def test_event_of_a_newer_version_is_not_skipped() -> None:
    warehousing = Warehousing(MemoryWarehouse(), dead_letters=LETTERS)
    event = orjson.loads(encode(builders.turn_recorded(0))) | {"version": 2}
    with pytest.raises(ValueError, match="version"):
        warehousing.add(builders.record(JOURNAL, event))
