"""What ``analytics`` does, without Faust around it: records to rows, in batches, never ahead of the offsets.

Invariant: an offset is stored in ClickHouse after the rows before it, so a restart repeats rows (the tables fold
them into one) and skips none. While ClickHouse is away the group waits; nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import structlog

from connectors import metrics
from connectors.ports import Record, Unavailable, Warehouse
from schemas.codec import JOURNAL_EVENTS, decode, decode_event
from schemas.envelope import ContractError
from streams.core.rows import COLUMNS, rows_of

log = structlog.get_logger("analytics")

RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
BUFFER_RECORDS_MAX = 5_000


class Warehousing:
    """Buffers records and flushes them.

    Parameters
    ----------
    warehouse : Warehouse
    dead_letters, facts : str
        Full names of the public topics that are stored beside the journal.
    """

    def __init__(self, warehouse: Warehouse, *, dead_letters: str, facts: str = "") -> None:
        self._warehouse = warehouse
        self._public = {dead_letters: "dead-letters", facts: "facts"}
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._next: dict[tuple[str, int], int] = {}
        self._flushing = asyncio.Lock()
        self.waiting = 0

    def add(self, record: Record) -> None:
        """Take a record into the buffer."""
        event = self._event(record)
        topic = self._public.get(record.topic, "journal")
        metrics.record("analytics", topic, "taken" if event is not None else "passed_over")
        for table, row in rows_of(event, record.topic, record.partition, record.offset):
            self._rows[table].append(row)
        key = (record.topic, record.partition)
        self._next[key] = max(self._next.get(key, 0), record.offset + 1)
        self.waiting += 1

    @property
    def full(self) -> bool:
        """Whether reading should pause until a flush."""
        return self.waiting >= BUFFER_RECORDS_MAX

    def _event(self, record: Record) -> Any:
        try:
            if record.topic in self._public:
                return decode(self._public[record.topic], record.value)
            return decode_event(record.value, JOURNAL_EVENTS)
        except ContractError as error:
            if error.code == "unknown_version":
                raise
            log.error(
                "unreadable_event", topic=record.topic, partition=record.partition, offset=record.offset,
                code=error.code, error=error.message,
            )  # fmt: skip
            return None

    async def flush(self) -> None:
        """Insert what is buffered, then the offsets; waits while ClickHouse is away."""
        async with self._flushing:
            rows, self._rows = self._rows, defaultdict(list)
            offsets, self._next = self._next, {}
            taken, self.waiting = self.waiting, 0
            try:
                for table, batch in rows.items():
                    await self._insert(table, batch)
                stored = [(topic, partition, offset) for (topic, partition), offset in offsets.items()]
                await self._insert("kafka_offsets", stored)
            except BaseException:  # also when cancelled: a later flush must not store offsets beyond these rows
                for table, batch in rows.items():
                    self._rows[table] = batch + self._rows[table]
                self._next = {**offsets, **self._next}
                self.waiting += taken
                raise

    async def resume(self) -> Mapping[tuple[str, int], int]:
        """Next offset by (topic, partition), with everything that was taken stored; waits while ClickHouse is away."""
        await self.flush()
        attempt = 0
        while True:
            try:
                return await self._warehouse.offsets()
            except Unavailable as error:
                attempt = await self._pause(attempt, error, 0)

    async def _insert(self, table: str, batch: list[tuple[Any, ...]]) -> None:
        attempt = 0
        while batch:
            try:
                await self._warehouse.insert(table, COLUMNS[table], batch)
                metrics.rows(table, len(batch))
                return
            except Unavailable as error:
                attempt = await self._pause(attempt, error, len(batch))

    async def _pause(self, attempt: int, error: Unavailable, rows: int) -> int:
        metrics.retry("clickhouse")
        pause = RETRY_S[min(attempt, len(RETRY_S) - 1)]
        log.warning("clickhouse_unavailable", error=str(error), rows=rows, retry_in_s=pause)
        await asyncio.sleep(pause)
        return attempt + 1
