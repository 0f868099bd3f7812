"""Turns at a steady rate from a process of its own: ``python -m infra.bench.load KAFKA PREFIX RATE SECONDS OWNERS``.

Prints `posting` when it begins, and how many were acknowledged when it ends, by itself or by SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import Any

from connectors.client import Client
from infra.bench import natural
from schemas.envelope import instant_of
from schemas.turns import Turn

TICK_S = 0.02


async def post(kafka: str, prefix: str, rate: float, seconds: float, owners: int) -> int:
    """Post until the time is over; the number of turns that the broker acknowledged."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    texts = natural.sentences()
    futures: list[asyncio.Future[Any]] = []
    async with Client(kafka, prefix=prefix) as client:
        print("posting", flush=True)
        begun = time.monotonic()
        for index in range(int(rate * seconds)):
            while (ahead := index / rate - (time.monotonic() - begun)) > 0 and not stopping.is_set():
                await asyncio.sleep(min(TICK_S, ahead))
            if stopping.is_set():
                break
            futures.append(await client.post(_turn(index, index % owners, next(texts))))
        await asyncio.gather(*futures)
    return len(futures)


def _turn(index: int, owner: int, text: str) -> Turn:
    return Turn(
        turn_id=f"t{index}",
        user_id=f"load{owner}",
        role_id="lin",
        session_id="s1",
        speaker="user" if index % 2 else "assistant",
        text=text,
        occurred_at=instant_of(time.time_ns() // 1_000_000),
    )


if __name__ == "__main__":
    kafka, prefix, rate, seconds, owners = sys.argv[1:6]
    print(asyncio.run(post(kafka, prefix, float(rate), float(seconds), int(owners))))
