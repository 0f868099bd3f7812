"""``bench embed``: the embedder's speed, a query's latency alone and beside passages, posted-to-recallable."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any

from connectors.client import Client
from connectors.embeddings import HttpEmbedder
from connectors.errors import MnemologError
from infra.bench import natural, stacks
from infra.bench.embedded import MODEL
from infra.bench.report import Report, Spread, blocks, quantiles_ms, say
from infra.stack_options import Addresses

BATCH = 16
PARTS = 3
TIMEOUT_MS = 60_000


async def passages(embedder: HttpEmbedder, seconds: float) -> list[float]:
    """Passages a second of each batch, for so long."""
    source = natural.sentences()
    rates = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        batch = [next(source) for _ in range(BATCH)]
        begun = time.perf_counter()
        await embedder.embed(batch, "passage")
        rates.append(BATCH / (time.perf_counter() - begun))
    return rates


async def queries(embedder: HttpEmbedder, count: int) -> list[float]:
    """Seconds of each query, one at a time."""
    source = natural.questions()
    seconds = []
    for _ in range(count):
        begun = time.perf_counter()
        await embedder.embed([next(source)], "query")
        seconds.append(time.perf_counter() - begun)
    return seconds


async def recallable(client: Client, rate: float, seconds: float) -> tuple[list[float], int]:
    """Seconds from each post to the reply that knows the turn; and how many failed."""
    source = natural.sentences()
    found: list[float] = []
    failed = 0

    async def one(number: int) -> None:
        nonlocal failed
        user = f"p{number % 20}"
        begun = time.perf_counter()
        try:
            turn = await client.post_turn(
                user_id=user, role_id="lin", session_id="s", speaker="user", text=next(source)
            )
            reply = await client.recall("", user_id=user, role_id="lin", after=[turn], timeout_ms=TIMEOUT_MS)
        except MnemologError:
            failed += 1
            return
        if reply.not_embedded:
            failed += 1
        else:
            found.append(time.perf_counter() - begun)

    begun = time.monotonic()
    tasks = []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, number / rate - (time.monotonic() - begun)))
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    return found, failed


def latency_row(what: str, seconds: Sequence[float], rate: float | None = None) -> dict[str, Any]:
    """A row of latencies."""
    whole = quantiles_ms(seconds)
    parts = [quantiles_ms(part)["p50"] for part in blocks(seconds, PARTS)]
    return {
        "what": what,
        "n": len(seconds),
        "at a second": rate,
        "p50 ms": Spread(whole["p50"], min(parts), max(parts), len(parts)) if parts else Spread.of([]),
        "p95 ms": _p95_ms(seconds),
        "p99 ms": whole["p99"],
    }


def _p95_ms(seconds: Sequence[float]) -> float:
    ordered = sorted(seconds)
    return ordered[math.ceil(0.95 * len(ordered)) - 1] * 1e3 if ordered else math.nan


def run(*, broker: str, seconds: float, count: int, rate: float | None) -> Report:
    """Run the benchmark on a stack of its own."""
    report = Report("embed")
    with stacks.stack(broker) as addresses:
        asyncio.run(_measure(addresses, report, seconds, count, rate))
    report.notes.append(f"broker {broker}; embedder {MODEL}")
    return report


async def _measure(addresses: Addresses, report: Report, seconds: float, count: int, rate: float | None) -> None:
    embedder = HttpEmbedder(addresses.embeddings, MODEL)
    try:
        await embedder.embed(["warm"] * BATCH, "passage")
        await embedder.embed(["warm"], "query")
        say(f"passages for {seconds:g} s")
        rates = await passages(embedder, seconds)
        speeds = Spread.of(BATCH * len(part) / sum(BATCH / one for one in part) for part in blocks(rates, PARTS))
        report.rows.append({"what": "passages", "n": BATCH * len(rates), "passages/s": speeds})
        say(f"{count} queries, alone and beside passages")
        report.rows.append(latency_row("query alone", await queries(embedder, count)))
        backlog = asyncio.create_task(passages(embedder, 3600))
        report.rows.append(latency_row("query beside passages", await queries(embedder, count)))
        backlog.cancel()
        await asyncio.gather(backlog, return_exceptions=True)
    finally:
        await embedder.stop()
    held = rate or max(0.5, speeds.median / 2)
    async with Client(addresses.kafka, prefix=addresses.prefix) as client:
        await stacks.first_answer(client)
        say(f"posted to recallable at {held:.1f} turns/s for {seconds:g} s")
        found, failed = await recallable(client, held, seconds)
    report.rows.append(latency_row("posted to recallable", found, round(held, 1)))
    if failed:
        report.notes.append(f"{failed} turns were not recallable by their vector within the deadline and are left out")
