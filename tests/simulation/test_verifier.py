"""The simulation notices faults: each is put in on purpose, and some history among the first must fail for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from connectors.ports import Record
from schemas.turns import TurnRecorded
from streams.core.conversation import JournalState
from streams.intake import Intake
from streams.requests import Responder
from streams.serving import Memory
from streams.waiting import Waiting
from streams.warehousing import Warehousing
from tests.simulation.history import run
from tests.simulation.verifier import verify

SEEDS = range(60)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)


def commits_before_the_log_has_it(patch: pytest.MonkeyPatch) -> None:
    take = Intake.take

    async def early(self: Intake, record: Record) -> asyncio.Future[Any]:
        future = await take(self, record)
        if isinstance(future, asyncio.Task):
            return future
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    patch.setattr(Intake, "take", early)


def stores_offsets_before_rows(patch: pytest.MonkeyPatch) -> None:
    flush = Warehousing.flush

    async def early(self: Warehousing) -> None:
        offsets, self._next = self._next, {}
        await self._insert("kafka_offsets", [(topic, part, offset) for (topic, part), offset in offsets.items()])
        await flush(self)

    patch.setattr(Warehousing, "flush", early)


def answers_without_waiting_for_turns(patch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Waiting, *_: Any) -> tuple[str, ...]:
        return ()

    patch.setattr(Waiting, "_after", at_once)


def counts_a_repeated_turn_again(patch: pytest.MonkeyPatch) -> None:
    apply = JournalState.apply

    def again(self: JournalState, offset: int, event: Any) -> None:
        owner = self.owners.get((event.user_id, event.role_id)) if event else None
        if owner and isinstance(event, TurnRecorded) and event.turn_id in owner.turns and event.speaker == "user":
            owner.rounds += 1
        apply(self, offset, event)

    patch.setattr(JournalState, "apply", again)


def joins_owners_by_their_kafka_key(patch: pytest.MonkeyPatch) -> None:
    apply = JournalState.apply

    def joined(self: JournalState, offset: int, event: Any) -> None:
        apply(self, offset, event)
        for key in list(self.owners):
            for other in self.owners:
                if key != other and "/".join(key) == "/".join(other):
                    self.owners[key] = self.owners[other]

    patch.setattr(JournalState, "apply", joined)


def forgets_the_reply_now_and_then(patch: pytest.MonkeyPatch) -> None:
    reply = Responder._reply

    async def forgetful(self: Responder, record: Record, *rest: Any) -> None:
        if record.offset % 5 != 3:
            await reply(self, record, *rest)

    patch.setattr(Responder, "_reply", forgetful)


def buries_a_conflict_under_a_new_id(patch: pytest.MonkeyPatch) -> None:
    refuse = Memory._refuse

    async def twice(self: Memory, shard: Any, event: TurnRecorded) -> None:
        await refuse(self, shard, event)
        other = {**{name: getattr(event, name) for name in event.__slots__}, "event_id": event.event_id + "x"}
        other["source"] = type(event.source)(topic="t", partition=0, offset=0)
        await refuse(self, shard, TurnRecorded(**other))

    patch.setattr(Memory, "_refuse", twice)


@pytest.mark.parametrize(
    "fault",
    [
        commits_before_the_log_has_it,
        stores_offsets_before_rows,
        answers_without_waiting_for_turns,
        counts_a_repeated_turn_again,
        joins_owners_by_their_kafka_key,
        forgets_the_reply_now_and_then,
        buries_a_conflict_under_a_new_id,
    ],
)
def test_fault_is_noticed(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    for seed in SEEDS:
        try:
            verify(run(seed))
        except AssertionError:
            return
    pytest.fail(f"{fault.__name__} went unnoticed in {len(SEEDS)} histories")
