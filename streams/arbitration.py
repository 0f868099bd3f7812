"""Arbitration as a recorded effect: conflicts under the policy ``model`` are settled by a chat model, or stay open.

Invariant: never raises but for cancellation and a log that is away. A model that is away or answers rubbish leaves the
conflict contested, which the event says; a side that comes meanwhile makes the verdict void, and it is asked again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog

from connectors.ports import ChatModel, Completion
from connectors.settings import Settings
from schemas.envelope import derived_id, instant_of
from schemas.memories import ConflictArbitrated
from streams.asking import Asker, Unanswered
from streams.core import arbiting
from streams.core.arbiting import Side, Verdict
from streams.core.budget import Budget
from streams.core.conversation import Owner, OwnerKey
from streams.core.facttable import ConflictEntry
from streams.core.text import language
from streams.serving import Shard

log = structlog.get_logger("memory")

SAID_MAX = 3
"""Statements of each side that the arbiter sees, the newest."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """An open conflict as it stood when its arbitration began."""

    shard: Shard
    key: OwnerKey
    conflict: ConflictEntry
    sides: tuple[Side, ...]
    newest_at: str


def dispute_of(shard: Shard, key: OwnerKey, conflict_id: str) -> Dispute | None:
    """What an arbiter is told of a conflict; None: it is settled."""
    owner = shard.state.owners[key]
    assert owner.memory is not None
    conflict = owner.memory.facts.conflicts[conflict_id]
    if conflict.closed is not None:
        return None
    sides = tuple(_side(owner, memory_id) for _, memory_id in conflict.sides)
    return Dispute(shard, key, conflict, sides, conflict.sides[-1][0].instant)


def _side(owner: Owner, memory_id: str) -> Side:
    assert owner.memory is not None
    entry = owner.memory.facts.entries[memory_id]
    said = []
    for _, source in entry.sources[-SAID_MAX:]:
        words = owner.view(source.turn_id).text[source.start : source.end]
        said.append((source.said_at[:10], words))
    return Side(memory_id, entry.text, tuple(said))


class ModelArbiter:
    """Asks a chat model which side of a conflict holds."""

    def __init__(self, model: ChatModel, settings: Settings, budget: Budget) -> None:
        self._asker = Asker(model, settings, budget)
        self._timeout_s = settings.model_timeout_s

    async def settle(self, dispute: Dispute, now_ms: int) -> ConflictArbitrated:
        """The verdict as an event."""
        begun = time.perf_counter()
        verdict, fallback, spent = await self._ask(dispute, now_ms)
        conflict = dispute.conflict
        return ConflictArbitrated(
            event_id=derived_id(conflict.conflict_id, "ConflictArbitrated", str(len(dispute.sides))),
            occurred_at=dispute.newest_at,
            recorded_at=instant_of(now_ms),
            user_id=dispute.key[0],
            role_id=dispute.key[1],
            conflict_id=conflict.conflict_id,
            memory_ids=tuple(side.memory_id for side in dispute.sides),
            winner=verdict.winner if verdict is not None else None,
            reason=verdict.reason if verdict is not None else "",
            method=self._asker.method,
            latency_ms=round((time.perf_counter() - begun) * 1000, 3),
            fallback=fallback,
            **self._asker.cost(spent),
        )

    async def _ask(self, dispute: Dispute, now_ms: int) -> tuple[Verdict | None, str | None, list[Completion]]:
        """Verdict, why there is none, and the answers that were paid for."""
        try:
            done = await self._asker.ask(
                dispute.key,
                now_ms,
                arbiting.request(dispute.sides, language(dispute.sides[-1].text)),
                max_tokens=arbiting.ANSWER_TOKENS_MAX,
                response_schema=arbiting.SCHEMA,
                timeout_s=self._timeout_s,
            )
        except Unanswered as error:
            return None, str(error), []
        verdict = arbiting.read(done.text, dispute.sides)
        if verdict is None:
            log.warning("verdict_unreadable", conflict_id=dispute.conflict.conflict_id, answer=done.text[:200])
        return verdict, None if verdict else "the answer names no side", [done]
