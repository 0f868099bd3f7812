"""Intake, memory and responder on in-process ports, driven step by step: a topology test without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from connectors.inprocess import HashEmbedder, InProcessLog, ManualClock
from connectors.ports import Record
from connectors.settings import Settings
from schemas.headers import CORRELATION_ID
from schemas.topics import owner_key, partition_of
from streams.core.conversation import JournalState
from streams.intake import Intake
from streams.requests import Responder
from streams.serving import Memory, Shard
from tests import builders

PARTITIONS = 3
PREFIX = "mnemolog."


class Stage:
    """One ingest and one memory worker that hold everything; nothing happens until a test says so."""

    def __init__(
        self, *, embedder: HashEmbedder | None = None, log: InProcessLog | None = None, **settings: Any
    ) -> None:
        self.settings = Settings(partitions=PARTITIONS, prefix=PREFIX, **settings)
        self.clock = ManualClock()
        self.log = log or InProcessLog.with_contract_topics(self.clock.port, prefix=PREFIX, partitions=PARTITIONS)
        self.embedder = embedder or HashEmbedder()
        self.broken: list[BaseException] = []
        self.intake = Intake(self.settings, self.log, self.embedder, self.clock.port)
        self.memory = Memory(self.settings, self.log, self.embedder, self.clock.port, self.broken.append)
        self.memory.library_ready.set()
        for partition in range(PARTITIONS):
            self.hold(partition)
        self.responder = Responder(self.memory)

    def hold(self, partition: int) -> Shard:
        """Give a partition to the memory worker, read to its end."""
        shard = self.memory.shards[partition] = Shard(JournalState(partition, self.embedder.name))
        shard.ready.set()
        return shard

    def put(self, topic: str, value: Any, *, partition: int = 0, **given: Any) -> Record:
        """Write a record to a topic (without prefix); what is not bytes is written as JSON."""
        raw = value if isinstance(value, bytes) or value is None else orjson.dumps(value)
        offset = self.log.put(PREFIX + topic, partition, raw, **given)
        return self.log.read(PREFIX + topic, partition, offset, 1)[0]

    async def post(self, topic: str, value: Any, **given: Any) -> Record:
        """Write a record and have ingest take it to its end."""
        record = self.put(topic, value, **given)
        await (await self.intake.take(record))
        return record

    async def catch_up(self) -> None:
        """Have memory read its logs to their ends."""
        for partition, shard in self.memory.shards.items():
            records = self.log.read(PREFIX + "journal", partition, shard.state.next_offset)
            await self.memory.apply_journal(partition, records)
        await self.memory.apply_library(0, self.log.read(PREFIX + "library", 0, self.memory.library.next_offset))

    async def embed_all(self) -> None:
        """Have memory compute its effects, and read them."""
        self.memory.start()
        for _ in range(200):
            self.memory.poke()
            await asyncio.sleep(0)
            await self.catch_up()
            states = [shard.state for shard in self.memory.shards.values()]
            if not self.memory.library.outdated and not any(s.unembedded or s.outdated or s.conflicts for s in states):
                break
        await self.memory.stop()

    def home(self, user_id: str = "u42", role_id: str = "lin") -> int:
        """Partition of an owner."""
        return partition_of(user_id, role_id, PARTITIONS)

    def request(self, body: Any, **given: Any) -> Record:
        """A record of ``requests`` at its owner's partition, with a correlation id."""
        if isinstance(body, dict):
            owner = (str(body.get("user_id", "u42")), str(body.get("role_id", "lin")))
            given.setdefault("partition", self.home(*owner))
            given.setdefault("key", owner_key(*owner))
        given.setdefault("headers", builders.request_headers())
        return self.put("requests", body, **given)

    async def ask(self, body: Any, **given: Any) -> dict[str, Any]:
        """Serve a request; its one reply."""
        correlation = dict(given.get("headers") or builders.request_headers()).get(CORRELATION_ID)
        before = len(self.replies(correlation))
        await self.responder.serve(self.request(body, **given))
        found = self.replies(correlation)[before:]
        assert len(found) == 1, found
        return found[0]

    def replies(self, correlation: bytes | None = b"c-0", topic: str = "replies") -> list[dict[str, Any]]:
        """Replies with a correlation id, oldest first."""
        return [
            orjson.loads(record.value or b"")
            for record in self.log.read_all(PREFIX + topic)
            if dict(record.headers).get(CORRELATION_ID) == correlation
        ]

    def events(self, topic: str = "journal") -> list[dict[str, Any]]:
        """Events of a topic, partition by partition."""
        return [orjson.loads(record.value or b"") for record in self.log.read_all(PREFIX + topic)]

    def letters(self) -> list[dict[str, Any]]:
        """Dead letters, oldest first."""
        return self.events("dead-letters")
