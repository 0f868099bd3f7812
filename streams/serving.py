"""What ``memory`` does, without Faust around it: follow the logs, compute effects, answer requests.

Invariants: a partition is answered for only by the worker that holds it, and only when its journal has been read up
to the end that it had at the assignment. An effect (embedding, refusal) is computed for causes without a result, and
counts when it comes back through the journal, not before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from connectors import metrics
from connectors.ports import Clock, Embedder, EmbedderChanged, Log, Outgoing, Record, Reranker, Unavailable
from connectors.settings import Settings
from schemas.codec import JOURNAL_EVENTS, LIBRARY_EVENTS, decode_event, encode, turn_of
from schemas.envelope import ContractError, cloud_event_headers, derived_id, instant_of
from schemas.memories import ConflictArbitrated, MemoriesExtracted, MemoryEmbedded
from schemas.recalls import RecallAnswered
from schemas.topics import owner_key
from schemas.turns import TurnEmbedded, TurnRecorded, TurnRefused
from streams.checking import RecordedRecalls
from streams.core import intake
from streams.core.conversation import JournalState, Owner, OwnerKey
from streams.core.engines import WordsEngine
from streams.core.library import LibraryState
from streams.core.vectors import encode as encode_vector
from streams.judging import ModelJudge
from streams.letters import outgoing
from streams.reembedding import Reembedding, refuses_only_this

log = structlog.get_logger("memory")

MemoryEffect = MemoriesExtracted | MemoryEmbedded | ConflictArbitrated
"""Effects of user memory."""
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
APPLY_SLICE = 100
"""Events folded before the event loop gets a turn: about 5 ms, so that requests never wait long behind a replay."""


class PartitionLost(RuntimeError):
    """The partition of a request went to another worker, which answers it: it was not committed here."""


@dataclass(slots=True)
class Shard:
    """One partition of memory that this worker holds."""

    state: JournalState
    last: Record | None = None
    """The record that was folded last; None: none since the snapshot or the start."""
    snapshot_offset: int = 0
    """``next_offset`` of the newest snapshot; 0: there is none."""
    snapshot_tried: int = 0
    """``next_offset`` at the last try to write one."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    held: bool = True
    """False between revocation and the next assignment: neither answers nor effects."""
    lost: bool = False
    """Whether an assignment went by without this partition: what waits for the shard waits in vain."""
    in_work: set[tuple[OwnerKey, str]] = field(default_factory=set)
    wanted: dict[tuple[OwnerKey, str], None] = field(default_factory=dict)
    """Turns that a request waits for (``after``): embedded before the backlog."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Tell everybody who waits for this shard to look again."""
        self.changed.set()
        self.changed = asyncio.Event()


class Memory:
    """State of a worker: its shards, the library, and the loop that computes effects."""

    def __init__(
        self,
        settings: Settings,
        log_port: Log,
        embedder: Embedder,
        clock: Clock,
        on_broken: Callable[[BaseException], None],
        words: WordsEngine | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        self.settings = settings
        self.log = log_port
        self.embedder = embedder
        self.previous: Embedder | None = None
        """The embedder before, once it has answered: for questions to owners that are not embedded anew yet."""
        self.clock = clock
        self.shards: dict[int, Shard] = {}
        self.words = words
        self.reranker = reranker
        self.library = LibraryState(embedder.name, words)
        self.library_ready = asyncio.Event()
        self.lease: Callable[[], bool] = lambda: True
        """Whether this process has run without a pause so long that its partitions may have gone to another worker."""
        self.on_memory: Callable[[MemoryEffect], None] = lambda event: None
        """Told of the effects of user memory that came back through the journal."""
        self.recalls = RecordedRecalls()
        self.judge: ModelJudge | None = None
        """Asked beside the rules whether an answer keeps to its persona."""
        self.reembedding = Reembedding(self)
        self._on_broken = on_broken
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def config(self) -> dict[str, str]:
        """What decides an answer besides its settings and the logs: part of its configuration's digest."""
        engine = {"knowledge_engine": self.words.name} if self.words else {}
        return {"embedder": self.embedder.name} | engine

    def embedder_of(self, in_use: Sequence[str]) -> Embedder | None:
        """Who embeds a query that is to be compared with vectors of these embedders, the first of more weight.

        None: nobody who is left; words must do.
        """
        known = {embedder.name: embedder for embedder in (self.previous, self.embedder) if embedder is not None}
        found = [known[name] for name in in_use if name in known]
        return found[0] if found else (None if in_use else self.embedder)

    def lose(self, partition: int) -> None:
        """Let go of a partition that another worker holds now; whoever waits for it here hears so at once."""
        shard = self.shards.pop(partition)
        shard.held, shard.lost = False, True
        shard.wake()

    # -- the logs ---------------------------------------------------------------------------------------------------

    async def apply_journal(self, partition: int, records: Sequence[Record]) -> None:
        """``ports.Apply`` of the journal follower. What breaks it ends the role: half a memory must not answer."""
        with self._breaking():
            await self._apply_journal(partition, records)

    async def _apply_journal(self, partition: int, records: Sequence[Record]) -> None:
        shard = self.shards.get(partition)
        if shard is None:
            return
        applied = 0
        for start in range(0, len(records), APPLY_SLICE):
            for record in records[start : start + APPLY_SLICE]:
                event = self._decode(record, JOURNAL_EVENTS)
                shard.state.apply(record.offset, event)
                shard.last = record
                applied += event is not None
                if isinstance(event, TurnEmbedded):
                    item = ((event.user_id, event.role_id), event.turn_id)
                    # One that did not count (of another embedder, say) says nothing about the one in work.
                    if event.use:
                        shard.in_work.discard((item[0], ""))
                    elif not shard.state.awaits_vector(*item):
                        shard.in_work.discard(item)
                elif isinstance(event, MemoryEffect):
                    self.on_memory(event)
                elif isinstance(event, RecallAnswered):
                    self.recalls.folded(event)
            await asyncio.sleep(0)
        metrics.record("memory", "journal", "applied", applied)
        metrics.record("memory", "journal", "passed_over", len(records) - applied)
        shard.wake()
        state = shard.state
        if state.unembedded or state.outdated or state.conflicts or state.switchable:
            self._work.set()

    async def apply_library(self, _partition: int, records: Sequence[Record]) -> None:
        """``ports.Apply`` of the library follower; see ``apply_journal``."""
        with self._breaking():
            for record in records:
                self.library.apply(record.offset, self._decode(record, LIBRARY_EVENTS))
                await asyncio.sleep(0)
        metrics.record("memory", "library", "applied", len(records))
        if self.library.outdated or self.library.switchable_to(self.embedder.name):
            self._work.set()

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._on_broken(error)
            raise

    def _decode(self, record: Record, known: dict[str, type]) -> Any:
        try:
            return decode_event(record.value, known)
        except ContractError as error:
            if error.code == "unknown_version":
                # A newer program writes here: folding on without it would answer from half a memory.
                raise
            log.error(
                "unreadable_event",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                code=error.code,
                error=error.message,
            )
            return None

    # -- effects ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to compute effects."""
        self._tasks.append(asyncio.create_task(self._guard(self._effects())))

    async def stop(self) -> None:
        """End the effects loop; what it had in work is an outstanding effect of the next holder."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guard(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the outermost loop: stop the role rather than go on half
            self._on_broken(error)

    def poke(self) -> None:
        """Have the effects loop look again."""
        self._work.set()

    async def _effects(self) -> None:
        attempt = 0
        while True:
            await self._work.wait()
            self._work.clear()
            busy = True
            while busy:
                await self._refuse_conflicts()
                await self._use_complete()
                batch = self._next_batch()
                try:
                    if batch:
                        await self._embed(batch)
                    busy = await self.reembedding.step() or bool(batch)
                    attempt = 0
                except Unavailable as error:
                    metrics.retry("embeddings")
                    pause = RETRY_S[min(attempt, len(RETRY_S) - 1)]
                    log.warning("embedder_unavailable", error=str(error), waiting=len(batch), retry_in_s=pause)
                    attempt += 1
                    await asyncio.sleep(pause)

    def _next_batch(self) -> list[tuple[Shard, OwnerKey, str]]:
        """The turns to embed next: those that somebody waits for, then the oldest of each shard, then outdated ones."""
        limit = self.settings.embed_batch
        batch: list[tuple[Shard, OwnerKey, str]] = []
        shards = [shard for shard in self.shards.values() if shard.held and shard.ready.is_set()]
        for shard in shards:
            for item in [item for item in shard.wanted if item in shard.state.unembedded]:
                if len(batch) < limit and item not in shard.in_work:
                    batch.append((shard, *item))
        for shard in shards:
            share = max(1, limit // max(1, len(shards)))
            taken = 0
            for item in shard.state.unembedded:
                if taken >= share or len(batch) >= limit:
                    break
                if item not in shard.in_work and item not in shard.wanted:
                    batch.append((shard, *item))
                    taken += 1
        for shard in shards:
            # Owner by owner, since an owner is answered from the new vectors as soon as it has all of them.
            waiting = ((key, turn_id) for key, turn_ids in shard.state.outdated.items() for turn_id in turn_ids)
            free = (item for item in waiting if item not in shard.in_work)
            batch += [(shard, *item) for item in islice(free, limit - len(batch))]
        for shard, key, turn_id in batch:
            shard.in_work.add((key, turn_id))
        return batch

    async def _embed(self, batch: list[tuple[Shard, OwnerKey, str]]) -> None:
        """Embed turns and append their vectors."""
        try:
            try:
                await self._embed_and_append(batch)
            except EmbedderChanged:
                raise
            except ValueError:
                for item in batch:
                    await self._embed_one(item)
        except BaseException:
            for shard, key, turn_id in batch:
                shard.in_work.discard((key, turn_id))
            raise

    async def _embed_one(self, item: tuple[Shard, OwnerKey, str]) -> None:
        """Embed a turn whose batch was refused; one that is itself refused stays ``in_work``, so it is not retried.

        One that another embedder has taken gets a vector of zeros, near to nothing: else its owner would wait for it
        forever.
        """
        try:
            await self._embed_and_append([item])
        except EmbedderChanged:
            raise
        except ValueError as error:
            shard, key, turn_id = item
            log.error("turn_not_embeddable", user_id=key[0], role_id=key[1], turn_id=turn_id, error=str(error))
            outdated = turn_id in shard.state.outdated.get(key, ())
            if outdated and await refuses_only_this(self.embedder, user_id=key[0], role_id=key[1], turn_id=turn_id):
                await self._append_vectors([item], np.zeros((1, self.embedder.dimension), dtype=np.int8))

    async def _embed_and_append(self, batch: list[tuple[Shard, OwnerKey, str]]) -> None:
        texts = [shard.state.owners[key].experience.passage(turn_id) for shard, key, turn_id in batch]
        begun = time.perf_counter()
        vectors = await self.embedder.embed(texts, "passage")
        metrics.embedded("passage", len(texts), time.perf_counter() - begun)
        await self._append_vectors(batch, vectors)

    async def _append_vectors(self, batch: list[tuple[Shard, OwnerKey, str]], vectors: NDArray[np.int8]) -> None:
        futures = []
        for (shard, key, turn_id), vector in zip(batch, vectors, strict=True):
            encoded = encode_vector(vector)
            event = self._turn_embedded(shard.state.owners[key], key, turn_id, encoded)
            futures.append(await self.append_journal(shard.state.partition, event))
        await asyncio.gather(*futures)

    def _turn_embedded(
        self, owner: Owner, key: OwnerKey, turn_id: str, vector: str, *, use: bool | None = None
    ) -> TurnEmbedded:
        now, cause = instant_of(self.clock.now_ms()), owner.turns[turn_id].event_id
        return TurnEmbedded(
            event_id=derived_id(cause, "TurnEmbedded", self.embedder.name, *(["use"] if use else [])),
            occurred_at=now,
            recorded_at=now,
            user_id=key[0],
            role_id=key[1],
            turn_id=turn_id,
            embedder=self.embedder.name,
            vector=vector,
            use=use,
            causation_id=cause,
        )

    async def _use_complete(self) -> None:
        """Have vectors used that are complete already: after a change back there is nothing left to embed."""
        for shard in list(self.shards.values()):
            if not (shard.held and shard.ready.is_set()):
                continue
            for key in [key for key in shard.state.switchable if (key, "") not in shard.in_work]:
                shard.in_work.add((key, ""))
                owner = shard.state.owners[key]
                event = self._turn_embedded(owner, key, owner.views[-1].turn_id, "", use=True)
                await (await self.append_journal(shard.state.partition, event))

    async def _refuse_conflicts(self) -> None:
        for shard in list(self.shards.values()):
            if shard.held and shard.ready.is_set():
                for event in list(shard.state.conflicts.values()):
                    await self._refuse(shard, event)

    async def _refuse(self, shard: Shard, event: TurnRecorded) -> None:
        key = (event.user_id, event.role_id)
        if (key, event.event_id) in shard.in_work:
            return
        shard.in_work.add((key, event.event_id))
        error = ContractError(
            "conflicting_duplicate",
            f"turn {event.turn_id!r} of user {event.user_id!r}, role {event.role_id!r} is in the journal with other "
            f"content; expected a new turn_id, or the same content again",
        )
        now = instant_of(self.clock.now_ms())
        letter = intake.dead_letter(
            error, event.source, key=owner_key(*key), value=encode(turn_of(event)), headers=(), at=now
        )
        sent = await self.log.append(outgoing(self.settings, letter))
        await sent
        metrics.dead_letter(error.code)
        refused = TurnRefused(
            event_id=derived_id(event.event_id, "TurnRefused"),
            occurred_at=now,
            recorded_at=now,
            user_id=event.user_id,
            role_id=event.role_id,
            turn_id=event.turn_id,
            dead_letter_id=letter.dead_letter_id,
            causation_id=event.event_id,
        )
        await (await self.append_journal(shard.state.partition, refused))

    async def append_journal(self, partition: int, event: Any) -> asyncio.Future[Any]:
        """Append an event of an owner to the partition that its memory is folded from."""
        return await self.log.append(
            Outgoing(
                topic=self.settings.topic("journal"),
                value=encode(event),
                key=owner_key(event.user_id, event.role_id),
                partition=partition,
                headers=tuple(cloud_event_headers(event.type, event.version, event.event_id, event.occurred_at)),
            )
        )
