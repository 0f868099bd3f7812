"""Waiting before an answer: for the partition to be read, for the turns of ``after``, for what a record depends on.

Invariant: a wait ends at the request's deadline, or as soon as its partition has gone to another worker.
"""

from __future__ import annotations

import asyncio
from typing import Any

from schemas.recalls import Failure, Request
from streams.core.answer import Refused
from streams.serving import Memory, PartitionLost, Shard

POLL_S = 0.02
EMBED_SHARE = 0.8
"""Share of the time to the deadline that ``after`` waits for vectors, once the turns themselves are there."""


class Waiting:
    """Waits on the shards and the library of a ``Memory``."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def recallable(self, partition: int, request: Request, deadline: int) -> tuple[Shard, tuple[str, ...]]:
        """The shard once it holds the turns of ``after``, and those of them that only words can find yet.

        A rebalance takes every partition away for a moment: the wait goes on with whatever shard is given then.
        """
        while True:
            shard = await self._ready(partition, deadline)
            not_embedded = await self._after(shard, request, deadline)
            if not_embedded is not None:
                return shard, not_embedded

    async def _ready(self, partition: int, deadline: int) -> Shard:
        first: Shard | None = None
        while True:
            # Looked up each time: a partition that went and came back is another shard.
            shard = self._memory.shards.get(partition)
            first = first or shard
            if first is not None and first.lost:
                # Even if it came back meanwhile: then the request has been read anew.
                raise _lost(partition)
            if shard is not None and shard.held and shard.ready.is_set() and self._memory.library_ready.is_set():
                return shard
            left_s = self._left_s(deadline)
            if left_s <= 0:
                message = f"partition {partition} is still being read from its journal; try again"
                raise Refused(Failure(code="not_ready", message=message))
            await asyncio.sleep(min(POLL_S, left_s))

    async def _after(self, shard: Shard, request: Request, deadline: int) -> tuple[str, ...] | None:
        """Wait until the turns of ``after`` are recallable; returns those that only words can find yet.

        None: the shard was taken away meanwhile.
        """
        if not request.after:
            return ()
        key = (request.user_id, request.role_id)
        items = [(key, turn_id) for turn_id in request.after]
        shard.wanted.update(dict.fromkeys(items))
        self._memory.poke()
        embed_until = self._memory.clock.now_ms() + EMBED_SHARE * (deadline - self._memory.clock.now_ms())
        try:
            while True:
                if shard.lost:
                    raise _lost(shard.state.partition)
                if not shard.held or self._memory.shards.get(shard.state.partition) is not shard:
                    return None
                owner = shard.state.owners.get(key)
                unseen = [turn_id for turn_id in request.after if owner is None or turn_id not in owner.turns]
                pending = [item[1] for item in items if item in shard.state.unembedded]
                now_ms = self._memory.clock.now_ms()
                if owner is not None and not unseen and (not pending or now_ms >= embed_until):
                    return tuple(turn_id for turn_id in request.after if not owner.experience.searchable(turn_id))
                if unseen and now_ms >= deadline:
                    raise Refused(_not_seen(request, unseen, shard))
                changed = shard.changed
                await _until(changed.wait(), ((deadline if unseen else embed_until) - now_ms) / 1000)
        finally:
            for item in items:
                shard.wanted.pop(item, None)

    async def held(self, partition: int, deadline: int) -> None:
        """Wait out a rebalance, before what was computed is told: another worker may be about to answer."""
        shard = self._memory.shards.get(partition)
        if shard is None:
            raise _lost(partition)
        if not shard.held:
            await self._ready(partition, deadline)

    async def folded(self, shard: Shard, deadline: int, *, journal: int = -1, library: int = -1) -> None:
        """Wait until the logs are folded up to these offsets."""
        while shard.state.watermark < journal or self._memory.library.watermark < library:
            if shard.lost:
                raise _lost(shard.state.partition)
            if self._left_s(deadline) <= 0:
                raise Refused(Failure(code="not_ready", message="its recorded answer is still being read; try again"))
            await asyncio.sleep(POLL_S)

    def _left_s(self, deadline: int) -> float:
        return (deadline - self._memory.clock.now_ms()) / 1000


def _lost(partition: int) -> PartitionLost:
    return PartitionLost(f"partition {partition} of requests is held by another worker")


def _not_seen(request: Request, unseen: list[str], shard: Shard) -> Failure:
    return Failure(
        code="turn_not_seen",
        message=f"turns {unseen} of `after` did not arrive before the deadline; were they posted for user "
        f"{request.user_id!r}, role {request.role_id!r}?",
        details={"missing": unseen, "watermark": {"journal": {str(shard.state.partition): shard.state.watermark}}},
    )


async def _until(waiting: Any, seconds: float) -> bool:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await waiting
    except TimeoutError:
        return False
    return True
