"""``bench answer``: what an answer costs beyond a bare Kafka echo, idle and while turns pour in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from connectors.client import Client
from connectors.errors import MnemologError
from connectors.kafka import create_topics
from infra.bench import natural, stacks
from infra.bench.histories import Owned, encoded_events
from infra.bench.report import Report, Spread, Target, blocks, quantiles_ms, say
from infra.stack_options import Addresses
from schemas.topics import owner_key, partition_of

ECHO_PREFIX = "echo."
REPEATS = 3
OVERHEAD_MS_MAX = 10.0
P99_MS_MAX = 100.0
WARM_UP = 8
TIMEOUT_MS = 20_000

OWNER = Owned("ada")


class Asked:
    """Seconds of each operation, in the order asked, and what the replies say of their stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"echo": [], "recall": [], "assemble": []}
        self.stages: dict[str, list[dict[str, float]]] = {"recall": [], "assemble": []}
        self.failed = 0

    def overhead_ms(self, operation: str) -> list[float]:
        """Answer minus its query embedding minus the echo asked just before it, in ms."""
        return [
            (answer - echo) * 1e3 - stage["embed"]
            for answer, echo, stage in zip(
                self.seconds[operation], self.seconds["echo"], self.stages[operation], strict=True
            )
        ]


async def ask_in_turn(memory: Client, echo: Client, samples: int, texts: Iterator[str]) -> Asked:
    """Echo, recall and assemble, ``samples`` times."""
    asked = Asked()
    for _ in range(samples):
        query = next(texts)
        times: dict[str, float] = {}
        stages: dict[str, dict[str, float]] = {}
        try:
            for operation, ask in (("echo", echo.recall), ("recall", memory.recall), ("assemble", memory.assemble)):
                begun = time.perf_counter()
                # The texts differ, so that no cache of the embedder makes the second question cheaper.
                reply = await ask(f"{query} {operation}", user_id=OWNER.user_id, role_id="lin", timeout_ms=TIMEOUT_MS)
                times[operation] = time.perf_counter() - begun
                if operation != "echo":
                    stages[operation] = dict(reply.timings_ms or {"embed": 0.0})
        except MnemologError:
            asked.failed += 1
            continue
        for operation, seconds in times.items():
            asked.seconds[operation].append(seconds)
        for operation, stage in stages.items():
            asked.stages[operation].append(stage)
    return asked


def rows_of(asked: Asked, state: str) -> list[dict[str, Any]]:
    """A row for each operation."""
    rows = []
    for operation, seconds in asked.seconds.items():
        parts = [quantiles_ms(part)["p50"] for part in blocks(seconds, REPEATS)]
        whole = quantiles_ms(seconds)
        stages = asked.stages.get(operation, [])
        row: dict[str, Any] = {
            "state": state,
            "operation": operation,
            "n": len(seconds),
            "p50 ms": Spread(whole["p50"], min(parts), max(parts), len(parts)) if parts else Spread.of([]),
            "p90 ms": whole["p90"],
            "p99 ms": whole["p99"],
        }
        for stage in ("wait", "embed", "search", "prompt"):
            values = [found[stage] / 1e3 for found in stages if stage in found]
            row[f"{stage} p50"] = quantiles_ms(values)["p50"] if values else None
        if operation != "echo":
            alone = [spent - stage["embed"] / 1e3 for spent, stage in zip(seconds, stages, strict=True)]
            row["p99 without embed"] = quantiles_ms(alone)["p99"]
            row["over echo+embed"] = Spread.of(
                quantiles_ms([value / 1e3 for value in part])["p50"]
                for part in blocks(asked.overhead_ms(operation), REPEATS)
            )
            row["times echo"] = whole["p50"] / quantiles_ms(asked.seconds["echo"])["p50"]
        rows.append(row)
    return rows


def targets_of(idle: Asked, loaded: Asked | None) -> list[Target]:
    """Issue 4's two targets."""
    targets = []
    p50 = {operation: quantiles_ms(seconds)["p50"] for operation, seconds in idle.seconds.items()}
    for operation in ("recall", "assemble"):
        embed = quantiles_ms([stage["embed"] / 1e3 for stage in idle.stages[operation]])["p50"]
        over = p50[operation] - p50["echo"] - embed
        targets.append(Target.at_most(f"idle {operation} p50 - echo p50 - embed p50, ms", over, OVERHEAD_MS_MAX))
    if loaded is not None:
        for operation in ("recall", "assemble"):
            p99 = quantiles_ms(loaded.seconds[operation])["p99"]
            targets.append(Target.at_most(f"{operation} p99 under load, ms", p99, P99_MS_MAX))
    return targets


def run(*, broker: str, samples: int, rate: float, history: int) -> Report:
    """Run the benchmark on a stack of its own."""
    report = Report("answer")
    with stacks.stack(broker) as addresses:
        asyncio.run(_measure(addresses, report, samples, rate, history))
    report.notes.append(f"broker {broker}; one memory worker; {history} turns of the asking owner")
    return report


async def _measure(addresses: Addresses, report: Report, samples: int, rate: float, history: int) -> None:
    await create_topics(addresses.kafka, ECHO_PREFIX, 1, 1)
    name = await stacks.embedder_name(addresses)
    await asyncio.to_thread(_write_history, addresses, name, history)
    with ExitStack() as children:
        process = children.enter_context(stacks.child("infra.bench.echo", addresses.kafka, ECHO_PREFIX))
        await asyncio.to_thread(stacks.read_line, process)
        async with (
            Client(addresses.kafka, prefix=addresses.prefix) as memory,
            Client(addresses.kafka, prefix=ECHO_PREFIX) as echo,
        ):
            await stacks.first_answer(memory)
            texts = natural.questions()
            await ask_in_turn(memory, echo, WARM_UP, texts)
            say(f"idle: {samples} times echo, recall, assemble")
            idle = await ask_in_turn(memory, echo, samples, texts)
            report.rows += rows_of(idle, "idle")
            loaded = None
            if rate > 0:
                loaded = await _under_load(addresses, report, memory, echo, samples, rate, texts)
                report.rows += rows_of(loaded, f"{rate:g} turns/s")
            report.targets = targets_of(idle, loaded)
            failed = idle.failed + (loaded.failed if loaded else 0)
            if failed:
                report.notes.append(f"{failed} rounds had a request without an answer and are left out")


async def _under_load(
    addresses: Addresses, report: Report, memory: Client, echo: Client, samples: int, rate: float, texts: Iterator[str]
) -> Asked:
    arguments = ("infra.bench.load", addresses.kafka, addresses.prefix, str(rate), "3600", "50")
    with stacks.child(*arguments) as process:
        await asyncio.to_thread(stacks.read_line, process)
        await ask_in_turn(memory, echo, WARM_UP, texts)
        before, begun = stacks.status_of(addresses, "memory").get("effects_outstanding", 0), time.monotonic()
        say(f"under {rate:g} turns/s: {samples} times echo, recall, assemble")
        loaded = await ask_in_turn(memory, echo, samples, texts)
        seconds = time.monotonic() - begun
        status = stacks.status_of(addresses, "memory")
        process.terminate()
        posted = await asyncio.to_thread(stacks.read_line, process)
    lag = sum(sum(parts.values()) for parts in status.get("lag", {}).values())
    report.notes.append(
        f"under load: {posted} turns were acknowledged; turns without a vector went from {before} to "
        f"{status.get('effects_outstanding')} in {seconds:.0f} s; lag of the memory worker at the end {lag}"
    )
    return loaded


def _write_history(addresses: Addresses, embedder: str, history: int) -> None:
    partition = partition_of(OWNER.user_id, OWNER.role_id, 4)
    key = owner_key(OWNER.user_id, OWNER.role_id)
    records = ((partition, value, key) for _, value in encoded_events(history, [OWNER], embedder))
    stacks.produce(addresses.kafka, addresses.prefix + "journal", records)
