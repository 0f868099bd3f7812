"""A small world to run mnemolog's roles in: groups, workers that crash, a log with delays. No threads, no broker.

The roles' logic is the real one (Intake, Memory, Responder, Warehousing); what Faust and the follower do around it is
modelled here from design 4: a record is committed when everything before it is acknowledged, a worker that dies
loses its state and the end of what it was writing, and what it had not committed is read again by another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from connectors.inprocess import START_MS, HashEmbedder, InProcessLog, MemoryWarehouse
from connectors.ports import Clock, Record, Unavailable
from connectors.settings import Settings
from streams.core.conversation import JournalState
from streams.intake import Intake
from streams.requests import Responder
from streams.serving import Memory, PartitionLost, Shard
from streams.warehousing import Warehousing

PARTITIONS = 3
PREFIX = "mnemolog."
CLIENT_REPLIES = "client-replies"
FLUSH_S = 0.25

Place = tuple[str, int]


class World:
    """Everything that there is, and the one source of chance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = asyncio.get_running_loop()
        self.clock = Clock(lambda: START_MS + round(self.loop.time() * 1000))
        self.settings = Settings(
            partitions=PARTITIONS, embed_batch=4, request_tasks_max=1000, ingest_in_flight_max=50, prefix=PREFIX
        )
        self.log = InProcessLog.with_contract_topics(self.clock, prefix=PREFIX, partitions=PARTITIONS)
        self.log.add_topic(CLIENT_REPLIES, 2)
        self.embedder = HashEmbedder()
        self.embedder.delay = lambda: self.latency_s(0.02)
        self.previous: HashEmbedder | None = None
        self.warehouse = MemoryWarehouse()
        self.warehouse.delay = lambda: self.latency_s(0.02)
        self.slow = 1.0
        self.trace: list[str] = []
        self.unexpected: list[BaseException] = []
        self.ingest = Group(self, "ingest", ("turns", "feedback", "documents", "personas"), IngestWorker)
        self.memory = Group(self, "memory", ("requests",), MemoryWorker)
        self.analytics = Group(self, "analytics", ("journal", "dead-letters"), AnalyticsWorker)

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.ingest, self.memory, self.analytics

    def change_embedder(self) -> None:
        """Whoever starts from now on has another one; where chance wants it, the old endpoint stays configured."""
        old, self.embedder = self.embedder, HashEmbedder("hash-16#1", 16)
        self.embedder.delay = old.delay
        self.previous = old if self.rng.random() < 0.5 else None
        self.note(f"the embedder is {self.embedder.name}, before it {self.previous and old.name}")

    def latency_s(self, typical_s: float) -> float:
        """A delay: mostly about the typical one, now and then a hundred times that."""
        return self.slow * typical_s * (self.rng.random() if self.rng.random() < 0.95 else 100 * self.rng.random())

    def note(self, what: str) -> None:
        """Remember for the report of a failure."""
        self.trace.append(f"{self.loop.time():9.3f}  {what}")

    def topic(self, name: str) -> str:
        return PREFIX + name


class Group:
    """A consumer group: who holds which partition, and up to where it was committed."""

    def __init__(self, world: World, name: str, topics: Sequence[str], make: Callable[[Group, str], Worker]) -> None:
        self.world = world
        self.name = name
        self.make = make
        self.places: list[Place] = [
            (world.topic(topic), partition)
            for topic in topics
            for partition in range(world.log.count(world.topic(topic)))
        ]
        self.members: list[Worker] = []
        self.committed: dict[Place, int] = dict.fromkeys(self.places, 0)
        self.owner: dict[Place, Worker] = {}
        self.generation = 0
        self._count = 0

    def add(self) -> Worker:
        """Start a worker."""
        worker = self.make(self, f"{self.name}-{self._count}")
        self._count += 1
        self.members.append(worker)
        self.world.note(f"{worker.name} starts")
        self.rebalance()
        return worker

    def rebalance(self, stale: Worker | None = None) -> None:
        """Give the partitions out anew. ``stale`` is thought dead by the group, goes on, and hears of it later."""
        rng = self.world.rng
        self.generation += 1
        members = [member for member in self.members if member.alive and member is not stale]
        self.owner = {}
        if stale is not None:
            self.world.note(f"{stale.name} is stale")
            self.world.loop.call_later(rng.uniform(0.1, 10), self._back, stale)
        for member in members:
            member.revoked()
        if not members:
            return
        rng.shuffle(members)
        # Partition p of all topics goes to one worker, as co-partitioning demands.
        self.owner = {place: members[place[1] % len(members)] for place in self.places}
        generation = self.generation
        for member in members:
            self.world.loop.call_later(rng.uniform(0, 0.5), self._assign, member, generation)

    def _assign(self, member: Worker, generation: int) -> None:
        if member.alive and generation == self.generation:
            places = [place for place in self.places if self.owner.get(place) is member]
            self.world.note(f"{member.name} holds {[f'{t.removeprefix(PREFIX)}/{p}' for t, p in places]}")
            member.assigned(places)

    def _back(self, stale: Worker) -> None:
        if stale.alive:
            self.world.note(f"{stale.name} hears that it was stale")
            stale.revoked()
            self.rebalance()

    def commit(self, worker: Worker, place: Place, offset: int) -> None:
        """Refused of a worker that does not hold the partition, as the broker fences old generations."""
        if worker.alive and self.owner.get(place) is worker:
            self.committed[place] = max(self.committed[place], offset)


class Consumption:
    """A partition as a worker reads it: in order, finished in any order, committed up to the first unfinished."""

    def __init__(self, worker: Worker, place: Place, start: int) -> None:
        self.worker = worker
        self.place = place
        self.next = start
        self._finished: set[int] = set()
        self.task = worker.spawn(self._run(start))

    async def _run(self, start: int) -> None:
        world, offset = self.worker.world, start
        while True:
            await world.log.arrived(*self.place, offset)
            await asyncio.sleep(world.latency_s(0.01))
            for record in world.log.read(*self.place, offset, world.rng.randint(1, 8)):
                await self.worker.handle(record, self)
                offset = record.offset + 1

    def finish(self, offset: int) -> None:
        """Acknowledge a record."""
        self._finished.add(offset)
        while self.next in self._finished:
            self._finished.discard(self.next)
            self.next += 1
        self.worker.group.commit(self.worker, self.place, self.next)


class Worker:
    """A process of a role."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.world = group.world
        self.name = name
        self.alive = True
        self.tasks: dict[asyncio.Future[Any], None] = {}
        self.log = self.world.log.connect(self._later)
        self.log.repeat = lambda outgoing: self.world.rng.random() < 0.03
        self.consumed: dict[Place, Consumption] = {}

    def _later(self, step: Callable[[], None]) -> None:
        self.world.loop.call_later(self.world.latency_s(0.01), lambda: step() if self.alive else None)

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """A task that ends with the worker."""
        task = asyncio.ensure_future(work)
        self.tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self.tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PartitionLost):
            self.broken(error)

    def broken(self, error: BaseException) -> None:
        """Stop without a commit, as ``RoleApp.broken``; a supervisor starts another."""
        if not self.alive:
            return
        self.world.note(f"{self.name} is broken: {error!r}")
        if not isinstance(error, Unavailable):
            self.world.unexpected.append(error)
        self.crash()

    def crash(self) -> None:
        """``kill -9``: state gone, the end of what was being written lost."""
        if not self.alive:
            return
        self.world.note(f"{self.name} dies")
        self.alive = False
        self.log.lose(lambda pending: self.world.rng.randint(0, pending))
        self.group.members.remove(self)
        for task in list(self.tasks):
            task.cancel()
        self.group.rebalance()
        self.world.loop.call_later(self.world.rng.uniform(0.1, 3), self.group.add)

    # -- what the group says ----------------------------------------------------------------------------------------

    def revoked(self) -> None:
        """The partitions are being given out anew."""

    def assigned(self, places: list[Place]) -> None:
        """These are held now: those that stay go on or are read again from the commit, others begin there."""
        for place in list(self.consumed):
            if place not in places or self.world.rng.random() < 0.5:
                self.consumed.pop(place).task.cancel()
        for place in places:
            if place not in self.consumed:
                self.consumed[place] = Consumption(self, place, self.group.committed[place])

    async def handle(self, record: Record, consumption: Consumption) -> None:
        """Take a record."""
        raise NotImplementedError

    def finish_with(self, future: asyncio.Future[Any], record: Record, consumption: Consumption) -> None:
        """Acknowledge a record once its future is done."""

        def done(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                consumption.finish(record.offset)
            elif not isinstance(error, PartitionLost):
                self.broken(error)

        future.add_done_callback(done)


class IngestWorker(Worker):
    """``streams.ingest`` without Faust."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name)
        self.intake = Intake(self.world.settings, self.log, self.world.embedder, self.world.clock)

    async def handle(self, record: Record, consumption: Consumption) -> None:
        future = await self.intake.take(record)
        if isinstance(future, asyncio.Task):
            self.tasks[future] = None
            future.add_done_callback(lambda done: self.tasks.pop(done, None))
        self.finish_with(future, record, consumption)


class MemoryWorker(Worker):
    """``streams.memory`` without Faust and librdkafka."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name)
        world = self.world
        self.memory = Memory(world.settings, self.log, world.embedder, world.clock, self.broken)
        self.memory.previous = world.previous
        self.responder = Responder(self.memory)
        self.following: dict[int, asyncio.Future[Any]] = {}
        self.spawn(self._follow("library", 0, self.memory.apply_library, self.memory.library_ready.set))
        self.memory.start()
        self.tasks.update(dict.fromkeys(self.memory._tasks))

    def revoked(self) -> None:
        for shard in self.memory.shards.values():
            shard.held = False
            shard.wake()

    def assigned(self, places: list[Place]) -> None:
        partitions = sorted(partition for _, partition in places)
        for partition in [partition for partition in self.memory.shards if partition not in partitions]:
            self.following.pop(partition).cancel()
            self.memory.lose(partition)
        for partition in partitions:
            shard = self.memory.shards.get(partition)
            if shard is None:
                shard = self.memory.shards[partition] = Shard(JournalState(partition, self.memory.embedder.name))
                self.following[partition] = self.spawn(
                    self._follow("journal", partition, self.memory.apply_journal, shard.ready.set)
                )
            shard.held = True
        self.memory.poke()
        super().assigned(places)

    async def _follow(self, name: str, partition: int, apply: Any, caught_up: Callable[[], None]) -> None:
        world, topic, offset = self.world, self.world.topic(name), 0
        end = world.log.end(topic, partition)
        while True:
            if offset >= end:
                caught_up()
                self.memory.poke()
            await world.log.arrived(topic, partition, offset)
            await asyncio.sleep(world.latency_s(0.005))
            batch = world.log.read(topic, partition, offset, world.rng.randint(1, 40))
            await apply(partition, batch)
            offset += len(batch)
            if world.rng.random() < 0.05:
                offset -= world.rng.randint(0, offset)  # a fetch that is made again

    async def handle(self, record: Record, consumption: Consumption) -> None:
        self.finish_with(self.spawn(self.responder.serve(record)), record, consumption)


class AnalyticsWorker(Worker):
    """``streams.analytics`` without Faust."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name)
        self.warehousing = Warehousing(self.world.warehouse, dead_letters=self.world.topic("dead-letters"))
        self._seeking: asyncio.Future[Any] | None = None
        self.spawn(self._flush_often())

    def revoked(self) -> None:
        for consumption in self.consumed.values():
            consumption.task.cancel()
        self.consumed.clear()

    def assigned(self, places: list[Place]) -> None:
        if self._seeking is not None:
            self._seeking.cancel()
        self._seeking = self.spawn(self._seek(places))

    async def _seek(self, places: list[Place]) -> None:
        offsets = await self.warehousing.resume()
        for place in places:
            self.consumed[place] = Consumption(self, place, offsets.get(place, 0))

    async def handle(self, record: Record, consumption: Consumption) -> None:
        self.warehousing.add(record)
        while self.warehousing.full:
            await self.warehousing.flush()
        consumption.finish(record.offset)

    async def _flush_often(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            if self.warehousing.waiting:
                await self.warehousing.flush()
