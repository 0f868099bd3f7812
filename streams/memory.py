"""The ``memory`` role: answers requests from state that it folds from ``journal`` and ``library``.

Faust gives group membership and the requests; the logs are read by the follower, outside of Faust. State is never
restored from committed offsets, so there is nothing to lose: kill -9 at any point repeats work.
"""

from __future__ import annotations

import asyncio
import gc
import time
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from connectors.embeddings import HttpEmbedder
from connectors.faust_transport import RoleApp, create_app, held, lag, on, raw_topic, record_of
from connectors.follower import Followed, LogFollower
from connectors.kafka import KafkaLog
from connectors.llm import HttpChatModel
from connectors.log_reader import LogReader
from connectors.lucene import Lucene
from connectors.metrics import RoleStatus
from connectors.ports import Clock, Record, Unavailable
from connectors.rerank import HttpReranker
from connectors.settings import Settings
from streams.arbitration import ModelArbiter
from streams.core.conversation import FOLD_VERSION, JournalState
from streams.core.engines import WordsEngine
from streams.core.settings import Catalogue
from streams.extraction import Extractor
from streams.judging import ModelJudge
from streams.modelling import ModelExtraction
from streams.presets import catalogue_of
from streams.requests import Responder
from streams.serving import Memory, PartitionLost, Shard
from streams.snapshots import Header, SnapshotStore, record_sha256

log = structlog.get_logger("memory")

EMBEDDER_RETRY_S = 1.0
SNAPSHOT_CHECK_S = 2.0
SNAPSHOT_EVENTS_MIN_AT_END = 1_000
"""At the end of the process: fewer are replayed in a fraction of a second."""
TICK_S = 0.25
"""How often the event loop proves that it runs; a gap of a session between two ticks ends the lease."""


class MemoryRole:
    """Wires followers, memory and responder to the partitions that Faust gives to this worker."""

    def __init__(
        self, app: RoleApp, settings: Settings, catalogue: Catalogue, words: WordsEngine | None = None
    ) -> None:
        self._app = app
        self._settings = settings
        self._catalogue = catalogue
        self._words = words
        self._kafka = KafkaLog(settings.kafka)
        self._embedder = HttpEmbedder.from_settings(settings)
        self._previous = HttpEmbedder.previous(settings)
        self._reranker = HttpReranker.from_settings(settings)
        self._starting = asyncio.Lock()
        self._memory: Memory | None = None
        self._journal: LogFollower | None = None
        self._library: LogFollower | None = None
        self._snapshots: SnapshotStore | None = None
        self._watchers: set[asyncio.Task[None]] = set()
        self.responder: Responder | None = None
        self.extractor: Extractor | None = None
        self.modelling: ModelExtraction | None = None
        self._chat: HttpChatModel | None = None
        self._tick_s = time.monotonic()

    def _lease(self) -> bool:
        return time.monotonic() - self._tick_s < self._settings.session_ms / 1000

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if not self._lease():
                self._app.broken(Unavailable("this worker was suspended for longer than its group session"))
                return
            self._tick_s = time.monotonic()

    async def started(self) -> Responder:
        """Connect on first use; waits for an embedder, since the state is of one embedder."""
        async with self._starting:
            if self.responder is None:
                await self._kafka.start()
                await self._await_embedder()
                clock = Clock(lambda: time.time_ns() // 1_000_000)
                memory = Memory(
                    self._settings,
                    self._kafka,
                    self._embedder,
                    clock,
                    self._app.broken,
                    words=self._words,
                    reranker=self._reranker,
                )
                self._journal = self._follower("journal", memory.apply_journal)
                self._library = self._follower("library", memory.apply_library)
                self._watch(self._library_caught_up(memory, self._library.follow(0)))
                if self._previous is not None:
                    self._watch(self._await_previous(memory, self._previous))
                memory.lease = self._lease
                memory.recalls.read_at = self._record_at
                self._tick_s = time.monotonic()
                self._watch(self._keep_lease())
                memory.start()
                self._chat = HttpChatModel.from_settings(self._settings)
                if self._chat is not None and self._settings.judge:
                    memory.judge = ModelJudge(self._chat, self._settings.judge_timeout_s)
                if self._settings.extraction:
                    self.extractor = self._extractor(memory, self._chat)
                    self._watch(self._extracting(self.extractor))
                if self._settings.broker == "kafka" and self._settings.data and self._settings.snapshot_events:
                    directory = Path(self._settings.data) / "snapshots"
                    self._snapshots = SnapshotStore(directory, self._settings.topic("journal"), self._embedder.name)
                    self._watch(self._write_snapshots_often())
                self._memory = memory
                self.responder = Responder(memory, self._catalogue)
            return self.responder

    def _extractor(self, memory: Memory, chat: HttpChatModel | None) -> Extractor:
        """By rules, or with a chat model that extracts and settles conflicts within one budget."""
        if chat is None:
            return Extractor(memory)
        self.modelling = ModelExtraction(chat, self._settings, memory.clock)
        extractor = Extractor(memory, self.modelling, ModelArbiter(chat, self._settings, self.modelling.budget))
        extractor.on_spent = self.modelling.spent
        return extractor

    async def _extracting(self, extractor: Extractor) -> None:
        try:
            await extractor.run()
        except Exception as error:  # noqa: BLE001 - the outermost loop: stop the role rather than go on half
            self._app.broken(error)

    async def _await_embedder(self) -> None:
        while True:
            try:
                await self._embedder.start()
                return
            except Unavailable as error:
                log.warning("embedder_unavailable", error=str(error), retry_in_s=EMBEDDER_RETRY_S)
                await asyncio.sleep(EMBEDDER_RETRY_S)

    async def _await_previous(self, memory: Memory, previous: HttpEmbedder) -> None:
        """Learn who the embedder before was; until then, and where it never answers, words must do."""
        while True:
            try:
                await previous.start()
                break
            except Unavailable:
                await asyncio.sleep(EMBEDDER_RETRY_S)
            except ValueError as error:
                log.error("previous_embedder_unusable", error=str(error), action="words alone decide until the switch")
                return
        memory.previous = previous
        log.info("previous_embedder", embedder=previous.name)

    def _follower(self, name: str, apply: Any) -> LogFollower:
        return LogFollower(
            self._settings.kafka,
            self._settings.topic(name),
            apply,
            self._app.broken,
            group=f"{self._settings.prefix}follow-{name}",
            fetch_wait_ms=self._settings.fetch_wait_ms,
        )

    def status(self) -> RoleStatus:
        """What this worker is doing; see ``metrics``."""
        memory, responder = self._memory, self.responder
        shards = memory.shards if memory else {}
        library_end = self._library.end(0) if self._library else None
        lags = lag(self._app, self._settings.prefix)
        if self._journal is not None:
            ends = {partition: self._journal.end(partition) for partition in shards}
            lags["journal"] = {
                str(partition): max(0, end - shards[partition].state.next_offset)
                for partition, end in ends.items()
                if end is not None
            }
        if memory is not None and library_end is not None:
            lags["library"] = {"0": max(0, library_end - memory.library.next_offset)}
        states = [shard.state for shard in shards.values()]
        return RoleStatus(
            role="memory",
            ready=memory is not None
            and memory.library_ready.is_set()
            and all(shard.held and shard.ready.is_set() for shard in shards.values()),
            partitions=held(self._app, self._settings.prefix)
            | {"journal": tuple(sorted(number for number, shard in shards.items() if shard.held))},
            lag=lags,
            watermarks={
                "journal": {str(number): shard.state.watermark for number, shard in sorted(shards.items())},
                "library": {"0": memory.library.watermark} if memory else {},
            },
            owners=sum(len(state.owners) for state in states),
            turns=sum(len(owner.turns) for state in states for owner in state.owners.values()),
            effects_outstanding=sum(
                len(state.unembedded) + sum(map(len, state.outdated.values())) + len(state.conflicts)
                for state in states
            )
            + (memory.reembedding.outstanding if memory else 0),
            extractions_outstanding=self.extractor.outstanding if self.extractor else 0,
            model=self.modelling.status() if self.modelling else None,
            in_work=responder.open if responder else 0,
            oldest_unanswered_seconds=round(responder.oldest_s, 3) if responder else 0.0,
            embedder=self._embedder.name,
            fold_version=FOLD_VERSION,
            snapshots={
                str(number): shard.snapshot_offset for number, shard in sorted(shards.items()) if shard.snapshot_offset
            },
        )

    def revoked(self) -> None:
        """Stop answering and computing for all partitions until it is known which ones stay."""
        for shard in self._memory.shards.values() if self._memory else ():
            shard.held = False
            shard.wake()

    async def assigned(self, partitions: set[int]) -> None:
        """Hold exactly these partitions: go on with those that were held, drop others, read new ones."""
        await self.started()
        assert self._memory is not None
        assert self._journal is not None
        for partition in set(self._memory.shards) - partitions:
            self._journal.unfollow(partition)
            self._memory.lose(partition)
        for partition in sorted(partitions):
            shard = self._memory.shards.get(partition)
            if shard is None:
                shard = Shard(JournalState(partition, self._embedder.name))
                self._memory.shards[partition] = shard
                self._watch(self._begin(shard))
            shard.held = True
        self._memory.poke()
        self._watch(self._tell_ready())

    async def stop(self) -> None:
        """End everything in the order that loses nothing: effects, followers, producer, embedder."""
        watchers = list(self._watchers)
        for task in watchers:
            task.cancel()
        # A snapshot that is broken off removes its unfinished file, which must not be that of the last one.
        await asyncio.gather(*watchers, return_exceptions=True)
        if self._memory:
            await self._memory.stop()
        for follower in (self._journal, self._library):
            if follower:
                await follower.stop()
        if self._snapshots is not None and self._memory is not None:
            shards = self._memory.shards.values()
            await self._snapshots.write_due(shards, SNAPSHOT_EVENTS_MIN_AT_END, last_chance=True)
        await self._kafka.stop()
        await self._embedder.stop()
        if self._previous is not None:
            await self._previous.stop()
        if self._chat is not None:
            await self._chat.stop()
        if self._reranker is not None:
            await self._reranker.stop()

    def _watch(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _library_caught_up(self, memory: Memory, followed: Followed) -> None:
        await followed.caught_up.wait()
        memory.library_ready.set()
        log.info("library_ready", watermark=memory.library.watermark)

    async def _begin(self, shard: Shard) -> None:
        """Read a partition: from its newest snapshot, if there is one, to the end that the journal has now."""
        assert self._memory is not None
        assert self._journal is not None
        partition = shard.state.partition
        if self._snapshots is not None:
            try:
                snapshot = await asyncio.to_thread(self._snapshots.newest, partition, self._is_of_log)
            except Exception as error:  # noqa: BLE001 - the outermost level of this task
                self._app.broken(error)
                return
            if snapshot is not None:
                shard.state, shard.snapshot_offset = snapshot.state, snapshot.header.next_offset
        if self._memory.shards.get(partition) is not shard:
            return  # taken away meanwhile
        await self._journal.follow(partition, shard.state.next_offset).caught_up.wait()
        shard.ready.set()
        log.info("partition_ready", partition=partition, watermark=shard.state.watermark)
        self._memory.poke()

    async def _record_at(self, partition: int, offset: int) -> Record | None:
        """A record of the journal: an answered request that is asked about long after."""
        return await asyncio.to_thread(self._read_one, partition, offset)

    def _read_one(self, partition: int, offset: int) -> Record | None:
        with LogReader(self._settings.kafka) as reader:
            return reader.record_at(self._settings.topic("journal"), partition, offset)

    def _is_of_log(self, header: Header) -> bool:
        """Whether the journal still holds the last record that a snapshot has folded. Blocks."""
        with LogReader(self._settings.kafka) as reader:
            last = reader.record_at(header.topic, header.partition, header.next_offset - 1)
        return last is not None and record_sha256(last) == header.last_record

    async def _write_snapshots_often(self) -> None:
        while True:
            await asyncio.sleep(SNAPSHOT_CHECK_S)
            if self._snapshots is not None and self._memory is not None:
                await self._snapshots.write_due(self._memory.shards.values(), self._settings.snapshot_events)

    async def _tell_ready(self) -> None:
        assert self._memory is not None
        await self._memory.library_ready.wait()
        for shard in list(self._memory.shards.values()):
            await shard.ready.wait()
        # What has been read stays for the life of the process: collections need not walk it (a full one takes 0.1 s).
        gc.collect()
        gc.freeze()
        if self._settings.ready_file:
            Path(self._settings.ready_file).write_text("ready\n", "utf-8")
        log.info("ready", partitions=sorted(self._memory.shards))


def create(settings: Settings) -> RoleApp:
    """The Faust app of ``memory``.

    Raises
    ------
    BadSetting
        The file of presets can't be used.
    LuceneMissing
        Lucene is asked for and can't be used.
    """
    catalogue = catalogue_of(settings.presets)
    words = Lucene() if settings.knowledge_engine == "lucene" else None
    app = create_app("memory", settings)
    requests = settings.topic("requests")
    roles: list[MemoryRole] = []

    def role() -> MemoryRole:
        if not roles:
            roles.append(MemoryRole(app, settings, catalogue, words))
        return roles[0]

    app.mnemolog_status = lambda: role().status()

    def finish(event: Any, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            event.ack()
        elif not isinstance(error, PartitionLost):
            app.broken(error)

    @app.agent(raw_topic(app, requests), name="memory-requests")
    async def answer_requests(stream: Any) -> None:
        responder = await role().started()
        async for event in stream.noack().events():
            task = asyncio.create_task(responder.serve(record_of(event)))
            task.add_done_callback(partial(finish, event))

    @on(app.on_partitions_revoked)
    async def _revoked(app: Any, *_: Any, **__: Any) -> None:
        role().revoked()

    @on(app.on_rebalance_complete)
    async def _assigned(app: Any, *_: Any, **__: Any) -> None:
        await role().assigned({tp.partition for tp in app.consumer.assignment() if tp.topic == requests})

    @on(app.on_before_shutdown)
    async def _stopping(app: Any, *_: Any, **__: Any) -> None:
        await role().stop()

    return app
