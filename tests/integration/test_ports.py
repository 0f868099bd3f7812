"""The real ports keep the same contracts as the in-process ones that the simulation runs on."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from connectors.clickhouse import AsyncWarehouse, ClickHouse
from connectors.embeddings import HttpEmbedder
from connectors.kafka import KafkaLog
from connectors.log_reader import LogReader
from connectors.ports import Embedder, Record
from tests.contracts import EmbedderContract, LogContract, LogSubject, WarehouseContract, WarehouseSubject

pytestmark = pytest.mark.integration

MODEL = "multilingual-e5-small-q4"


class TestKafkaLog(LogContract):
    @pytest.fixture
    async def subject(self, stack: Any) -> AsyncIterator[LogSubject]:
        addresses = stack.addresses
        topic = addresses.prefix + "measures"  # partitioned, and nobody reads it yet
        log = KafkaLog(addresses.kafka)
        await log.start()

        def all_of(topic: str, partition: int) -> Sequence[Record]:
            with LogReader(addresses.kafka) as reader:
                return list(reader.read(topic, {partition: 0}, seconds_max=20))

        async def read(topic: str, partition: int) -> Sequence[Record]:
            return await asyncio.to_thread(all_of, topic, partition)

        yield LogSubject(log, topic, await log.partitions(topic), read)
        await log.stop()


class TestHttpEmbedder(EmbedderContract):
    @pytest.fixture
    async def subject(self, embedded: Any) -> AsyncIterator[Embedder]:
        embedder = HttpEmbedder(embedded.addresses.embeddings, MODEL)
        await embedder.start()
        yield embedder
        await embedder.stop()

    @pytest.fixture
    async def unavailable(self) -> AsyncIterator[Embedder]:
        embedder = HttpEmbedder("http://127.0.0.1:9/v1", MODEL)  # the discard port: nobody listens
        yield embedder
        await embedder.stop()


class TestClickHouse(WarehouseContract):
    @pytest.fixture
    def subject(self, embedded: Any) -> Iterator[WarehouseSubject]:
        clickhouse = ClickHouse(embedded.addresses.clickhouse, "mnemolog")

        def of_user(table: str, user_id: str) -> list[dict[str, Any]]:
            view = table.removesuffix("_rows")
            names, found = clickhouse.query(f"SELECT * FROM {view} WHERE user_id = {{user:String}}", {"user": user_id})
            return [{name: _utc(value) for name, value in zip(names, row, strict=True)} for row in found]

        async def rows(table: str, user_id: str) -> list[dict[str, Any]]:
            return await asyncio.to_thread(of_user, table, user_id)

        yield WarehouseSubject(AsyncWarehouse(clickhouse), rows)
        clickhouse.close()


def _utc(value: Any) -> Any:
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is None else value
