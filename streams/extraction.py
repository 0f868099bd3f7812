"""Extraction as recorded effects: segments to facts and summaries, memories to vectors, changed keys to ``facts``.

Off the answering path: a slice of a segment is extracted between two turns of the event loop, and a model is waited
for in a task of its own. Invariants: an extraction counts when it comes back through the journal; one that is
repeated names a segment that is gone, and is dropped by the fold. A model that is away, refuses or answers rubbish
costs its summary's wording, never the segment: the rules do it, and the event says why (``fallback``).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from connectors import metrics
from connectors.ports import Outgoing, Unavailable
from schemas.codec import encode
from schemas.envelope import cloud_event_headers, derived_id, instant_ms, instant_of
from schemas.memories import ConflictArbitrated, FactsOfKey, MemoriesExtracted, MemoryEmbedded, SegmentReason
from schemas.positions import Position
from schemas.topics import owner_key
from streams.arbitration import Dispute, ModelArbiter, dispute_of
from streams.asking import FALLBACK_CHARACTERS_MAX
from streams.core import extracting
from streams.core.conversation import OwnerKey
from streams.core.experience import TurnView
from streams.core.extracting import Extraction, Known
from streams.core.segmenting import Segment
from streams.core.usermemory import UserMemory
from streams.core.vectors import encode as encode_vector
from streams.core.visibility import Cut
from streams.serving import RETRY_S, Memory, MemoryEffect, Shard

log = structlog.get_logger("memory")

POLL_S = 1.0
"""How often open segments are looked at for idleness; changes of the journal wake the loop at once."""
KNOWN_MAX = 200
"""Facts of the owner that a user may be quoting, confirming or denying."""
OVER_IDLE_MS = 2_000
"""Silence after which a session that is over is extracted, where its end overtook its last turns."""
TURN_CHARACTERS_AT_ONCE = 1_000
"""A longer turn is extracted in a thread: 10 µs a character, more in Chinese, would hold up every answer meanwhile."""
KEYS_PER_ROUND = 200
"""Changed keys told to ``facts`` before other work gets a turn."""


@dataclass(frozen=True, slots=True)
class Job:
    """A segment as it stood when its extraction began."""

    shard: Shard
    key: OwnerKey
    segment: Segment
    reason: SegmentReason
    views: tuple[TurnView, ...]


@dataclass(frozen=True, slots=True)
class Extracted:
    """What came of a job, and what it cost."""

    extraction: Extraction
    method: str = "rules"
    fallback: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0


Model = Callable[[Job, Extraction], Awaitable[Extracted]]
"""Asks a model about a job, given what the rules found; never raises but for cancellation."""


def known_of(memory: UserMemory | None) -> list[Known]:
    """The newest facts of an owner that hold."""
    entries = [entry for entry in memory.facts.entries.values() if entry.live] if memory is not None else []
    return [Known(entry.key, entry.norm, entry.value, entry.text) for entry in entries[-KNOWN_MAX:]]


class Extractor:
    """Computes the effects of user memory for the shards of a ``Memory``."""

    def __init__(self, memory: Memory, model: Model | None = None, arbiter: ModelArbiter | None = None) -> None:
        self._memory = memory
        self._settings = memory.settings
        self._model = model
        self._arbiter = arbiter
        memory.on_memory = self.folded
        self.on_spent: Callable[[OwnerKey, int, int], None] = lambda key, at_ms, tokens: None
        """Told of tokens that somebody else spent for an owner: (owner, record time in ms, tokens)."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.in_work: set[tuple[OwnerKey, str]] = set()
        """Segments whose extraction was begun and is not back through the journal."""

    @property
    def outstanding(self) -> int:
        """Closed segments that are not extracted yet, memories without vector, keys that ``facts`` is not told of."""
        states = [shard.state for shard in self._memory.shards.values()]
        return sum(len(s.segments_due) + len(s.memories_unembedded) + len(s.facts_changed) for s in states)

    async def run(self) -> None:
        """Work until cancelled. Vectors are a line of their own: an embedder that is slow or away holds up no fact."""
        lines = [asyncio.create_task(self._repeat(work)) for work in (self.extract, self._embed)]
        try:
            await asyncio.gather(*lines)
        finally:
            for task in (*lines, *self._tasks):
                task.cancel()
            await asyncio.gather(*lines, *self._tasks, return_exceptions=True)

    async def _repeat(self, work: Callable[[], Awaitable[bool]]) -> None:
        attempt = 0
        while True:
            try:
                busy = await work()
                attempt = 0
            except Unavailable as error:
                pause = RETRY_S[min(attempt, len(RETRY_S) - 1)]
                attempt += 1
                log.warning("extraction_waits", error=str(error), retry_in_s=pause)
                await asyncio.sleep(pause)
                continue
            if not busy:
                await self._idle()

    async def _idle(self) -> None:
        changed = [asyncio.create_task(shard.changed.wait()) for shard in self._held()]
        if not changed:
            await asyncio.sleep(POLL_S)
            return
        try:
            await asyncio.wait(changed, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in changed:
                task.cancel()

    async def step(self) -> bool:
        """Do what is due, vectors last; False: nothing was."""
        busy = await self.extract()
        return await self._embed() or busy

    async def extract(self) -> bool:
        """Do what is due but vectors: one segment and one conflict of each shard, changed keys. False: nothing was."""
        busy = False
        for shard in self._held():
            job = self._next(shard)
            if job is not None:
                busy = True
                await self._begin(job)
            busy |= await self._tell(shard)
            busy |= self._arbitrate(shard)
        return busy

    def _held(self) -> list[Shard]:
        if not self._memory.lease():
            return []  # suspended past the session: another worker tells, and from a newer state
        return [shard for shard in self._memory.shards.values() if shard.held and shard.ready.is_set()]

    # -- segments ---------------------------------------------------------------------------------------------------

    def _next(self, shard: Shard) -> Job | None:
        """The oldest closed segment, else one whose session has been silent; None too while the model has enough."""
        if len(self._tasks) >= self._settings.model_concurrency:
            return None  # what waits for a slot of the model would use up its time there
        state = shard.state
        for key, segment_id in state.segments_due:
            if (key, segment_id) not in self.in_work:
                segment = state.owners[key].segments.due[segment_id]
                assert segment.reason is not None
                return self._job(shard, key, segment, segment.reason)
        now_ms = self._memory.clock.now_ms()
        silent_ms = round(self._settings.segment_idle_s * 1000)
        for (key, session_id), recorded_ms in state.sessions_open.items():
            if now_ms - recorded_ms < min(silent_ms, OVER_IDLE_MS):
                return None  # longest silent first: all others are younger
            over = state.owners[key].segments.over(session_id)
            segment = state.owners[key].segments.open[session_id]
            if (key, segment.id) not in self.in_work and (over or now_ms - recorded_ms >= silent_ms):
                return self._job(shard, key, segment, "session_end" if over else "idle")
        return None

    def _job(self, shard: Shard, key: OwnerKey, segment: Segment, reason: SegmentReason) -> Job:
        views = shard.state.owners[key].views
        return Job(shard, key, segment, reason, tuple(views[index] for index in segment.views))

    async def _begin(self, job: Job) -> None:
        self.in_work.add((job.key, job.segment.id))
        begun = time.perf_counter()
        found = await self._by_rules(job)
        if self._model is None:
            await self._append(job, Extracted(found), begun)
            return
        task = asyncio.create_task(self._by_model(job, found, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _by_rules(self, job: Job) -> Extraction:
        extractor = extracting.ByRules(known_of(job.shard.state.owners[job.key].memory))
        for view in job.views:
            if len(view.text) <= TURN_CHARACTERS_AT_ONCE:
                extractor.turn(view)
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(extractor.turn, view)
        return await asyncio.to_thread(extractor.finish, job.segment.id)

    async def _by_model(self, job: Job, found: Extraction, begun: float) -> None:
        assert self._model is not None
        try:
            done = await self._model(job, found)
        except Exception as error:
            log.exception("extraction_broke", segment_id=job.segment.id)
            done = Extracted(found, fallback=f"a fault of mnemolog: {error!r}"[:FALLBACK_CHARACTERS_MAX])
        try:
            await self._append(job, done, begun)
        except Unavailable as error:  # the log is away: the segment is due again
            log.warning("extraction_not_appended", segment_id=job.segment.id, error=str(error))
            self.in_work.discard((job.key, job.segment.id))

    async def _append(self, job: Job, done: Extracted, begun: float) -> None:
        state = job.shard.state
        now = instant_of(self._memory.clock.now_ms())
        last = job.views[-1]
        cause = state.owners[job.key].turns[last.turn_id].event_id
        event = MemoriesExtracted(
            event_id=derived_id(job.segment.id, "MemoriesExtracted"),
            occurred_at=last.occurred_at,
            recorded_at=now,
            user_id=job.key[0],
            role_id=job.key[1],
            segment_id=job.segment.id,
            session_id=job.segment.session_id,
            reason=job.reason,
            first_turn_id=job.views[0].turn_id,
            last_turn_id=last.turn_id,
            turns=len(job.views),
            method=done.method,
            policy=self._settings.conflict_policy,
            facts=done.extraction.facts,
            judgements=done.extraction.judgements,
            summary=done.extraction.summary,
            redacted=done.extraction.redacted,
            latency_ms=round((time.perf_counter() - begun) * 1000, 3),
            tokens_in=done.tokens_in,
            tokens_out=done.tokens_out,
            cost=done.cost,
            fallback=done.fallback,
            causation_id=cause,
        )
        try:
            await (await self._memory.append_journal(state.partition, event))
        except BaseException:
            self.in_work.discard((job.key, job.segment.id))
            raise
        metrics.extracted(done.method, len(job.views), len(event.facts))

    def folded(self, event: MemoryEffect) -> None:
        """An effect came back through the journal."""
        key = (event.user_id, event.role_id)
        match event:
            case MemoriesExtracted():
                if (key, event.segment_id) not in self.in_work:
                    # Another worker's, or ours from before a restart: its tokens are of the owner's budget too.
                    self.on_spent(key, instant_ms(event.recorded_at), event.tokens_in + event.tokens_out)
                self.in_work.discard((key, event.segment_id))
            case MemoryEmbedded():
                self.in_work.discard((key, event.memory_id))
            case ConflictArbitrated():
                self.in_work.discard((key, event.conflict_id))

    # -- conflicts --------------------------------------------------------------------------------------------------

    def _arbitrate(self, shard: Shard) -> bool:
        """Begin to settle one conflict of a shard, in a task of its own."""
        if self._arbiter is None or len(self._tasks) >= self._settings.model_concurrency:
            return False
        for (key, _), conflict_id in shard.state.conflicts_due.items():
            if (key, conflict_id) in self.in_work:
                continue
            dispute = dispute_of(shard, key, conflict_id)
            if dispute is not None:
                self.in_work.add((key, conflict_id))
                task = asyncio.create_task(self._settle(self._arbiter, dispute))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return True
        return False

    async def _settle(self, arbiter: ModelArbiter, dispute: Dispute) -> None:
        try:
            event = await arbiter.settle(dispute, self._memory.clock.now_ms())
            await (await self._memory.append_journal(dispute.shard.state.partition, event))
        except Unavailable as error:  # the log is away: it is due again
            log.warning("verdict_not_appended", conflict_id=dispute.conflict.conflict_id, error=str(error))
            self.in_work.discard((dispute.key, dispute.conflict.conflict_id))

    # -- vectors ----------------------------------------------------------------------------------------------------

    async def _embed(self) -> bool:
        """Embed a batch of memories."""
        batch: list[tuple[Shard, OwnerKey, str]] = []
        for shard in self._held():
            for key, memory_id in shard.state.memories_unembedded:
                if len(batch) >= self._settings.embed_batch:
                    break
                if (key, memory_id) not in self.in_work:
                    batch.append((shard, key, memory_id))
        if not batch:
            return False
        self.in_work.update((key, memory_id) for _, key, memory_id in batch)
        try:
            try:
                await self._embed_batch(batch)
            except ValueError:
                for item in batch:
                    await self._embed_one(item)
        except BaseException:
            self.in_work.difference_update((key, memory_id) for _, key, memory_id in batch)
            raise
        return True

    async def _embed_one(self, item: tuple[Shard, OwnerKey, str]) -> None:
        """Embed a memory whose batch was refused; one that is itself refused stays ``in_work``: words must do."""
        try:
            await self._embed_batch([item])
        except ValueError as error:
            log.error("memory_not_embeddable", memory_id=item[2], error=str(error))

    async def _embed_batch(self, batch: Sequence[tuple[Shard, OwnerKey, str]]) -> None:
        passages = []
        for shard, key, memory_id in batch:
            memory = shard.state.owners[key].memory
            assert memory is not None
            passages.append(memory.passage(memory_id))
        embedder = self._memory.embedder
        vectors = await embedder.embed(passages, "passage")
        now = instant_of(self._memory.clock.now_ms())
        futures = []
        for (shard, key, memory_id), passage, vector in zip(batch, passages, vectors, strict=True):
            cause = hashlib.sha256(passage.encode()).hexdigest()
            event = MemoryEmbedded(
                event_id=derived_id(memory_id, "MemoryEmbedded", embedder.name),
                occurred_at=now,
                recorded_at=now,
                user_id=key[0],
                role_id=key[1],
                memory_id=memory_id,
                embedder=embedder.name,
                vector=encode_vector(vector),
                causation_id=cause,
            )
            futures.append(await self._memory.append_journal(shard.state.partition, event))
        await asyncio.gather(*futures)

    # -- the topic of facts -----------------------------------------------------------------------------------------

    async def _tell(self, shard: Shard) -> bool:
        """Tell ``facts`` of keys that changed; a key stays noted until the log has acknowledged it."""
        told = list(shard.state.facts_changed.items())[:KEYS_PER_ROUND]
        sent = [await self._memory.log.append(self._of_key(shard, *item)) for item in told]
        await asyncio.gather(*sent)
        for changed, at in told:
            if shard.state.facts_changed.get(changed) == at:  # it may have changed again meanwhile
                del shard.state.facts_changed[changed]
        return bool(told)

    def _of_key(self, shard: Shard, changed: tuple[OwnerKey, str], at: tuple[int, str]) -> Outgoing:
        (user_id, role_id), key = changed
        offset, recorded_at = at
        memory = shard.state.owners[user_id, role_id].memory
        assert memory is not None
        facts, conflicts = memory.facts.of_key(key, Cut(shard.state.watermark))
        active = [fact for fact in facts if fact.status == "active"]
        event = FactsOfKey(
            user_id=user_id,
            role_id=role_id,
            key=key,
            value=active[0].value if active else None,
            facts=tuple(facts),
            conflicts=tuple(conflicts),
            position=Position(topic="journal", partition=shard.state.partition, offset=offset),
            recorded_at=recorded_at,
        )
        event_id = derived_id("FactsOfKey", user_id, role_id, key, offset)
        return Outgoing(
            topic=self._settings.topic("facts"),
            value=encode(event),
            key=owner_key(user_id, role_id) + b"/" + key.encode(),
            partition=shard.state.partition,
            headers=tuple(cloud_event_headers(event.type, event.version, event_id, recorded_at)),
        )
