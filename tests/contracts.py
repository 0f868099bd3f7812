"""One abstract suite a port. Every implementation inherits it: the in-process ones in tests/connectors, the real ones
in tests/integration.

A subclass overrides the fixture ``subject`` (async where it must be) and is named ``Test…``. Names of topics, texts
and rows are made unique per test, so that a suite may run against a server that other tests use.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from connectors.ports import Embedder, Log, Outgoing, Record, Unavailable, UnknownTopic, Warehouse
from schemas.topics import murmur2

WAIT_S = 30.0
"""Longest wait for a real server; in-process ones answer at once."""


@dataclass(slots=True)
class LogSubject:
    """A log under test, and how to read back what it holds."""

    log: Log
    topic: str
    """A topic with ``partitions`` partitions (3 or more are best)."""
    partitions: int
    read: Callable[[str, int], Awaitable[Sequence[Record]]]
    """(topic, partition) to all of its records."""


class LogContract:
    """``ports.Log``."""

    @pytest.fixture
    def subject(self) -> LogSubject:
        raise NotImplementedError

    async def _append(self, subject: LogSubject, value: bytes, **given: Any) -> Any:
        return await (await subject.log.append(Outgoing(topic=subject.topic, value=value, **given)))

    async def _values(self, subject: LogSubject, marker: bytes) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for partition in range(subject.partitions):
            for record in await subject.read(subject.topic, partition):
                if record.value is not None and record.value.startswith(marker):
                    found.setdefault(partition, []).append(record.value)
        return found

    async def test_record_is_there_once_its_future_is_done(self, subject: LogSubject) -> None:
        marker = _marker()
        await asyncio.wait_for(self._append(subject, marker, partition=1 % subject.partitions), WAIT_S)
        assert await self._values(subject, marker) == {1 % subject.partitions: [marker]}

    async def test_order_within_a_partition_is_the_order_of_calls(self, subject: LogSubject) -> None:
        marker = _marker()
        wanted = [marker + str(number).encode() for number in range(50)]
        futures = [await subject.log.append(Outgoing(topic=subject.topic, value=v, partition=0)) for v in wanted]
        await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
        assert (await self._values(subject, marker))[0] == wanted

    async def test_offsets_rise_and_records_keep_key_headers_and_bytes(self, subject: LogSubject) -> None:
        marker = _marker()
        headers = (("a", b"\x00\xff"), ("empty", b""), ("a", b"second"))
        for number in range(3):
            value = marker + bytes([number, 0, 255])
            await asyncio.wait_for(self._append(subject, value, key=b"k\x00", partition=0, headers=headers), WAIT_S)
        records = [r for r in await subject.read(subject.topic, 0) if (r.value or b"").startswith(marker)]
        assert [record.value for record in records] == [marker + bytes([n, 0, 255]) for n in range(3)]
        assert all(record.key == b"k\x00" and record.headers == headers for record in records)
        assert all(record.topic == subject.topic and record.partition == 0 for record in records)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        times = [record.timestamp for record in records]
        assert times == sorted(times)
        assert times[0] > 0

    async def test_key_decides_the_partition_as_java_does(self, subject: LogSubject) -> None:
        marker = _marker()
        keys = [f"u{number}/林".encode() for number in range(12)]
        for key in keys:
            await asyncio.wait_for(self._append(subject, marker + key, key=key), WAIT_S)
        expected: dict[int, list[bytes]] = {}
        for key in keys:
            place = (murmur2(key) & 0x7FFFFFFF) % subject.partitions
            expected.setdefault(place, []).append(marker + key)
        assert await self._values(subject, marker) == expected

    async def test_named_partition_wins_over_the_key(self, subject: LogSubject) -> None:
        marker = _marker()
        for partition in range(subject.partitions):
            value = marker + str(partition).encode()
            await asyncio.wait_for(self._append(subject, value, key=b"same", partition=partition), WAIT_S)
        assert await self._values(subject, marker) == {
            partition: [marker + str(partition).encode()] for partition in range(subject.partitions)
        }

    async def test_partition_counts_are_known_and_unknown_topics_are_told(self, subject: LogSubject) -> None:
        assert await subject.log.partitions(subject.topic) == subject.partitions
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            await subject.log.partitions("no-such-topic-" + uuid.uuid4().hex)


class EmbedderContract:
    """``ports.Embedder``."""

    @pytest.fixture
    def subject(self) -> Embedder:
        raise NotImplementedError

    @pytest.fixture
    def unavailable(self) -> Embedder | None:
        """The same kind of embedder while its server is away; None where that can't be made."""
        return None

    async def test_vectors_are_int8_rows_of_one_dimension(self, subject: Embedder) -> None:
        rows = await subject.embed(["昨天吃了馄饨", "I live in Paris", "👍"], "passage")
        assert rows.dtype == np.int8
        assert rows.shape == (3, subject.dimension)
        assert int(rows.min()) >= -127

    async def test_no_texts_give_no_rows(self, subject: Embedder) -> None:
        rows = await subject.embed([], "query")
        assert rows.shape == (0, subject.dimension)
        assert rows.dtype == np.int8

    async def test_same_text_gives_the_same_vector(self, subject: Embedder) -> None:
        first = await subject.embed(["我住在上海", "my cat is called Mi"], "passage")
        again = await subject.embed(["我住在上海", "my cat is called Mi"], "passage")
        assert np.array_equal(first, again)

    async def test_related_texts_are_nearer_than_unrelated_ones(self, subject: Embedder) -> None:
        query = (await subject.embed(["what is my cat called"], "query"))[0].astype(np.int64)
        rows = (await subject.embed(["my cat is called Mi", "the tram was late again"], "passage")).astype(np.int64)
        near, far = (float(row @ query) / float(np.linalg.norm(row) * np.linalg.norm(query)) for row in rows)
        assert near > far

    async def test_name_is_known_after_the_first_vectors(self, subject: Embedder) -> None:
        await subject.embed(["x"], "passage")
        name = subject.name
        await subject.embed(["y"], "query")
        assert name
        assert subject.name == name

    async def test_absence_is_told_as_transient(self, unavailable: Embedder | None) -> None:
        if unavailable is None:
            pytest.skip("this embedder can't be taken away")
        with pytest.raises(Unavailable):
            await unavailable.embed(["x"], "query")


@dataclass(slots=True)
class WarehouseSubject:
    """A warehouse under test with the project's tables, and how a reader sees them."""

    warehouse: Warehouse
    rows: Callable[[str, str], Awaitable[list[dict[str, Any]]]]
    """(rows table, user_id) to the rows of that user that its view shows: name of the ``…_rows`` table."""


class WarehouseContract:
    """``ports.Warehouse``."""

    @pytest.fixture
    def subject(self) -> WarehouseSubject:
        raise NotImplementedError

    @staticmethod
    def turn_row(user_id: str, turn_id: str, offset: int, text: str = "你好") -> dict[str, Any]:
        """A row of ``turns_rows``."""
        moment = dt.datetime(2026, 5, 20, 11, 3, 11, 250_000, tzinfo=dt.UTC)
        return {
            "user_id": user_id, "role_id": "lin", "turn_id": turn_id, "session_id": "s", "speaker": "user",
            "text": text, "occurred_at": moment, "recorded_at": moment, "name": None, "model": None,
            "recall_id": None, "captions": ["a bowl"], "metadata": "", "event_id": f"e-{offset}",
            "kafka_topic": "mnemolog.journal", "kafka_partition": 0, "kafka_offset": offset,
        }  # fmt: skip

    async def _insert(self, subject: WarehouseSubject, rows: list[dict[str, Any]]) -> None:
        await subject.warehouse.insert("turns_rows", tuple(rows[0]), [tuple(row.values()) for row in rows])

    async def test_rows_come_back_as_they_went_in(self, subject: WarehouseSubject) -> None:
        user = _marker().decode()
        row = self.turn_row(user, "t1", 7, "he said 'x'\n\\ 👍 昨天")
        await self._insert(subject, [row])
        found = await subject.rows("turns_rows", user)
        assert [{name: item[name] for name in row} for item in found] == [row]

    async def test_repeats_fold_into_the_first(self, subject: WarehouseSubject) -> None:
        user = _marker().decode()
        await self._insert(subject, [self.turn_row(user, "t1", 9, "later"), self.turn_row(user, "t2", 10)])
        await self._insert(subject, [self.turn_row(user, "t1", 5, "first")])
        await self._insert(subject, [self.turn_row(user, "t1", 5, "first"), self.turn_row(user, "t1", 12, "latest")])
        found = await subject.rows("turns_rows", user)
        assert sorted((row["turn_id"], row["text"], row["kafka_offset"]) for row in found) == [
            ("t1", "first", 5),
            ("t2", "你好", 10),
        ]

    async def test_no_rows_are_no_error(self, subject: WarehouseSubject) -> None:
        await subject.warehouse.insert("turns_rows", ("user_id",), [])

    async def test_offsets_are_the_greatest_that_were_stored(self, subject: WarehouseSubject) -> None:
        topic = _marker().decode()
        columns = ("kafka_topic", "kafka_partition", "next_offset")
        assert (topic, 0) not in await subject.warehouse.offsets()
        for offset in (5, 9, 7):
            await subject.warehouse.insert("kafka_offsets", columns, [(topic, 0, offset), (topic, 1, 2 * offset)])
        offsets = await subject.warehouse.offsets()
        assert (offsets[topic, 0], offsets[topic, 1]) == (9, 18)

    async def test_unknown_table_is_told(self, subject: WarehouseSubject) -> None:
        with pytest.raises(ValueError, match="no_such_table"):
            await subject.warehouse.insert("no_such_table", ("a",), [(1,)])


def _marker() -> bytes:
    return f"m{uuid.uuid4().hex}-".encode()
