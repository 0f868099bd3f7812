"""One history: people talk, ask and post nonsense while workers die and systems go away; then everything is healed.

All chance comes from the seed, so a history is what its seed says, to the byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import orjson

import streams.intake
import streams.requests
import streams.serving
import streams.warehousing
from connectors.ports import Outgoing
from schemas.headers import CORRELATION_ID
from schemas.topics import owner_key, partition_of
from tests import builders
from tests.simulation.loop import VirtualLoop
from tests.simulation.world import CLIENT_REPLIES, PARTITIONS, MemoryWorker, World

TALK_S = 40.0
SETTLE_S_MAX = 900.0
PATIENT_MS = 3_600_000
"""Deadline of most requests, from their sending: longer than any history."""

OWNERS = (
    ("u", "lin"),
    ("u/lin", "x"),
    ("u", "lin/x"),
    ("U", "lin"),
    ("ｕ", "lin"),
    ("u1", "林"),
    ("u11", "林"),
    ("u 1", "林 "),
)
"""Ids that hold separators, look alike, or begin alike. ("u/lin", "x") and ("u", "lin/x") share their Kafka key."""

NONSENSE = (
    b"not json",
    b"[]",
    b"",
    b'{"turn_id": "t"}',
    b'{"type": "turn", "version": 99}',
    b'{"type": "request"}',
    b'\xff\xfe{"a": 1}',
    b"[" * 10_000,
)
WORDS = [
    "river",
    "bicycle",
    "lantern",
    "馄饨",
    "上海",
    "guitar",
    "雨伞",
    "museum",
    "ginger",
    "火车",
    "garden",
    "violin",
    "月亮",
    "harbour",
]


@dataclass(slots=True)
class Asked:
    """A request that a client sent and the log acknowledged."""

    correlation: bytes
    owner: tuple[str, str]
    deadline_ms: int
    body: dict[str, Any]


@dataclass(slots=True)
class Known:
    """What the clients know: what they posted and was acknowledged to them."""

    turns: list[dict[str, Any]] = field(default_factory=list)
    ordered: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Turn ids in order of posting, of owners that post keyed and one after the other."""
    nonsense: list[tuple[str, int, int]] = field(default_factory=list)
    """(topic, partition, offset) of records that nobody can take."""
    feedback: list[dict[str, Any]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    final: list[Asked] = field(default_factory=list)
    """Requests for everything of an owner, after all was healed."""


class History:
    """The actors of one history."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.known = Known()
        self.log = world.log.connect(lambda step: _later(world, step))
        self.log.repeat = lambda outgoing: world.rng.random() < 0.03
        self.owners = self.rng.sample(OWNERS, self.rng.randint(2, 4))
        self._number = 0

    def marker(self, owner: tuple[str, str]) -> str:
        """A word that stands in every turn of an owner and nowhere else."""
        return f"mark{OWNERS.index(owner)}zz"

    async def run(self) -> None:
        """People and chaos, then healing, then one question to each owner's whole memory."""
        for group in self.world.groups:
            for _ in range(self.rng.randint(1, 2)):
                group.add()
        chaos = asyncio.ensure_future(self._chaos())
        upgrade = asyncio.ensure_future(self._change_embedder())
        people = [self._talk(owner) for owner in self.owners] + [self._ask(owner) for owner in self.owners]
        await asyncio.gather(*people, self._publish(), self._babble())
        await asyncio.gather(chaos, upgrade)
        await self._settle()
        for owner in self.owners:
            await self._ask_for_all(owner)
        await self._settle()

    # -- people -----------------------------------------------------------------------------------------------------

    async def _send(
        self,
        topic: str,
        value: Any,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Any = (),
    ) -> asyncio.Future[Any]:
        raw = value if isinstance(value, bytes) else orjson.dumps(value)
        name = self.world.topic(topic)
        return await self.log.append(Outgoing(topic=name, value=raw, key=key, partition=partition, headers=headers))

    async def _talk(self, owner: tuple[str, str]) -> None:
        rng, user_id, role_id = self.rng, *owner
        keyed = rng.random() < 0.6
        waiting: list[asyncio.Future[Any]] = []
        if keyed:
            self.known.ordered[owner] = []
        for number in range(rng.randint(3, 10)):
            await asyncio.sleep(rng.uniform(0, TALK_S / 6))
            text = f"{self.marker(owner)} token{OWNERS.index(owner)}n{number} " + " ".join(rng.sample(WORDS, 3))
            turn = builders.turn(
                number,
                user_id=user_id,
                role_id=role_id,
                text=text,
                session_id=f"s{number // 4}",
                name=rng.choice(["Anna", "Bo", None]),
            )
            posts = [turn]
            while rng.random() < 0.2:
                posts.append(turn)
            if rng.random() < 0.15:
                other = turn | {"text": text + f" changed {rng.randint(0, 1)}"}
                posts += [other] * rng.randint(1, 2)
            for post in posts:
                # An owner in order: the partition of its key, one acknowledgement after the other or pipelined.
                place = None if keyed else rng.randrange(PARTITIONS)
                future = await self._send("turns", post, owner_key(*owner), place)
                waiting.append(future)
                future.add_done_callback(partial(self._posted, post))
            if keyed:
                self.known.ordered[owner].append(turn["turn_id"])
            if rng.random() < 0.2:
                feedback = builders.feedback(
                    number, user_id=user_id, role_id=role_id, target={"turn_id": turn["turn_id"]}
                )
                await (await self._send("feedback", feedback, owner_key(*owner)))
                self.known.feedback.append(feedback)
        await asyncio.gather(*waiting)

    def _posted(self, turn: dict[str, Any], _: asyncio.Future[Any]) -> None:
        self.known.turns.append(turn)

    async def _ask(self, owner: tuple[str, str]) -> None:
        for _ in range(self.rng.randint(1, 5)):
            await asyncio.sleep(self.rng.uniform(0, TALK_S / 4))
            await self._request(owner, self._question(owner), self.known.asked)

    def _question(self, owner: tuple[str, str]) -> dict[str, Any]:
        rng = self.rng
        body: dict[str, Any] = {
            "kind": rng.choice(["assemble", "recall"]),
            "query": " ".join(rng.sample(WORDS, 2)) + rng.choice(["", " Anna", f" {self.marker(owner)}"]),
            "preset": rng.choice([None, "arpm", "no_bm25", "full"]),
            "explain": rng.random() < 0.3,
            "limits": {"experience": rng.choice([2, 10, 200])},
        }
        mine = [turn for turn in self.known.turns if (turn["user_id"], turn["role_id"]) == owner]
        if mine and rng.random() < 0.6:
            body["after"] = [rng.choice(mine)["turn_id"]]
        elif rng.random() < 0.3:
            body["as_of"] = {"offset": rng.randint(0, 40)}
        return body

    async def _request(self, owner: tuple[str, str], body: dict[str, Any], sent: list[Asked]) -> None:
        rng = self.rng
        self._number += 1
        correlation = f"c{self._number}".encode()
        patient = sent is self.known.final or rng.random() < 0.85
        deadline = self.world.clock.now_ms() + (PATIENT_MS if patient else rng.randint(1, 5000))
        topic = rng.choice([None, None, CLIENT_REPLIES])
        headers = builders.request_headers(
            correlation=correlation,
            topic=topic,
            partition=rng.choice([None, 0, 1]) if topic else None,
            deadline_ms=deadline,
        )
        request = builders.request(self._number, user_id=owner[0], role_id=owner[1]) | body
        # Any partition will do: a request that arrives on another's is forwarded.
        await (await self._send("requests", request, owner_key(*owner), rng.choice([None, rng.randrange(3)]), headers))
        sent.append(Asked(correlation, owner, deadline, request))

    async def _ask_for_all(self, owner: tuple[str, str]) -> None:
        mine = {t["turn_id"]: t["text"] for t in self.known.turns if (t["user_id"], t["role_id"]) == owner}
        body = {
            "kind": "recall",
            "query": " ".join(text.split()[1] for text in mine.values()) + " " + self.marker(owner),
            "limits": {"experience": 200},
            "after": list(mine),
        }
        await self._request(owner, body, self.known.final)

    async def _publish(self) -> None:
        """Documents that change and go away, and personas."""
        rng = self.rng
        for number in range(rng.randint(0, 5)):
            await asyncio.sleep(rng.uniform(0, TALK_S / 5))
            identity = rng.choice(["d1", "d2"])
            role = self.rng.choice([None, "lin", "林"])
            text = f"revision {number} of {identity} for role-{role}\n\n" + " ".join(rng.choices(WORDS, k=40))
            document = builders.document(document_id=identity, text=text, role_id=role)
            if rng.random() < 0.25:
                document |= {"deleted": True}
            await (await self._send("documents", document, identity.encode()))
            if rng.random() < 0.5:
                persona = builders.persona(number, role_id=rng.choice(["lin", "林"]), core=f"core {number}")
                await (await self._send("personas", persona, persona["role_id"].encode()))

    async def _babble(self) -> None:
        """Records that nobody can take."""
        for _ in range(self.rng.randint(0, 4)):
            await asyncio.sleep(self.rng.uniform(0, TALK_S / 4))
            topic = self.rng.choice(["turns", "feedback", "documents", "personas"])
            partition = self.rng.randrange(self.world.log.count(self.world.topic(topic)))
            offset = await (await self._send(topic, self.rng.choice(NONSENSE), None, partition))
            self.known.nonsense.append((self.world.topic(topic), partition, offset))

    # -- chaos ------------------------------------------------------------------------------------------------------

    async def _chaos(self) -> None:
        rng, world = self.rng, self.world
        until = world.loop.time() + TALK_S
        while world.loop.time() < until:
            await asyncio.sleep(rng.expovariate(0.5))
            group = rng.choice(world.groups)
            alive = [member for member in group.members if member.alive]
            kind = rng.choice(["crash", "kill", "kill", "rebalance", "stale", "away", "grow", "log", "slow"])
            world.note(f"chaos: {kind}")
            if kind == "crash" and alive:
                rng.choice(alive).crash()
            elif kind == "kill":
                await self._kill_while_writing()
            elif kind == "rebalance":
                group.rebalance()
            elif kind == "stale" and alive:
                if len(alive) < 2:
                    group.add()
                group.rebalance(stale=rng.choice(alive))
            elif kind == "away":
                target: Any = rng.choice([world.embedder, world.warehouse])
                target.away = True
                world.loop.call_later(rng.uniform(0.1, 15), _back, target)
            elif kind == "grow" and len(alive) < 3:
                group.add()
            elif kind == "log" and alive:
                victim = rng.choice(alive)
                victim.log.away = True
                world.loop.call_later(rng.uniform(0.01, 1), _back, victim.log)
            elif kind == "slow":
                world.slow = rng.choice([0.2, 1.0, 5.0])
        world.slow = 1.0

    async def _change_embedder(self) -> None:
        """In half of the histories; workers with either embedder go on beside each other for a while."""
        if self.rng.random() < 0.5:
            return
        await asyncio.sleep(self.rng.uniform(0, TALK_S))
        self.world.change_embedder()
        for worker in [*self.world.ingest.members, *self.world.memory.members]:
            await asyncio.sleep(self.rng.uniform(0, 8))
            worker.crash()

    async def _kill_while_writing(self) -> None:
        """``kill -9`` at the worst moment: something is handed over and not written yet."""
        world = self.world
        for _ in range(200):
            busy = [member for group in world.groups for member in group.members if member.log.pending]
            if busy:
                self.rng.choice(busy).crash()
                return
            await asyncio.sleep(0.01)

    async def _settle(self) -> None:
        """Wait until nothing is left to do."""
        world = self.world
        world.embedder.away = world.warehouse.away = False
        until = world.loop.time() + SETTLE_S_MAX
        while True:
            await asyncio.sleep(1.0)
            left = self.left_to_do()
            if not left:
                return
            if world.loop.time() > until:
                raise AssertionError(f"not settled after {SETTLE_S_MAX} s: {left}")

    def left_to_do(self) -> list[str]:
        """What keeps the world from being at rest."""
        world, left = self.world, []
        for group in world.groups:
            if not group.members:
                left.append(f"{group.name} has no worker")
        for group in (world.ingest, world.memory):
            left += [
                f"{group.name} {place} is at {offset} of {world.log.end(*place)}"
                for place, offset in group.committed.items()
                if offset < world.log.end(*place)
            ]
        stored = {(r["kafka_topic"], r["kafka_partition"]): r["next_offset"] for r in _offsets(world)}
        left += [f"rows of {place}" for place in world.analytics.places if stored.get(place, 0) < world.log.end(*place)]
        for worker in world.memory.members:
            assert isinstance(worker, MemoryWorker)
            for partition, shard in worker.memory.shards.items():
                state = shard.state
                behind = world.log.end(world.topic("journal"), partition) - state.next_offset
                effects = bool(state.unembedded or state.outdated or state.switchable or state.conflicts)
                if behind or effects or not shard.held or not shard.ready.is_set():
                    left.append(
                        f"{worker.name}/{partition}: {behind} behind, {len(state.unembedded)} unembedded, "
                        f"{len(state.conflicts)} conflicts, held {shard.held}"
                    )
            library = worker.memory.library
            unused = library.outdated or library.switchable_to(world.embedder.name)
            if unused or library.next_offset < world.log.end(world.topic("library"), 0):
                left.append(f"{worker.name}: library")
        return left


def _offsets(world: World) -> list[dict[str, Any]]:
    return world.warehouse.rows("kafka_offsets")


def _back(target: Any) -> None:
    target.away = False


def _later(world: World, step: Any) -> None:
    world.loop.call_later(world.latency_s(0.01), step)


@contextmanager
def _virtual_time(loop: VirtualLoop) -> Iterator[None]:
    """Timings in events are virtual too, so that a seed gives the same bytes each time."""
    clock = SimpleNamespace(perf_counter=loop.time)
    with (
        mock.patch.object(streams.requests, "time", clock),
        mock.patch.object(streams.serving, "time", clock),
        mock.patch.object(streams.intake, "time", clock),
        mock.patch.object(streams.warehousing, "BUFFER_RECORDS_MAX", 7),
    ):
        yield


def run(seed: int) -> History:
    """The history of a seed, run to its end."""
    histories: list[History] = []

    async def main() -> None:
        history = History(World(seed))
        histories.append(history)
        await history.run()

    loop = VirtualLoop()
    try:
        with _virtual_time(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(main())
    except BaseException as error:
        if histories:
            error.add_note("\n".join(["trace:", *histories[0].world.trace[-60:]]))
        raise
    return histories[0]


def home(owner: tuple[str, str]) -> int:
    """Partition of an owner."""
    return partition_of(*owner, PARTITIONS)


def correlation_of(headers: Any) -> bytes | None:
    """Correlation id of a reply."""
    return dict(headers).get(CORRELATION_ID)
