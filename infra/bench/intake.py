"""``bench intake``: turns a second through one ingest worker, beside bare consume-produce loops."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from connectors.kafka import ensure_topics
from infra.bench import stacks
from infra.bench.histories import Owned, turns
from infra.bench.report import Report, Spread, Target, say
from infra.stack_options import Addresses, StackError
from schemas.codec import encode
from schemas.topics import owner_key, partition_of

TURNS_S_MIN = 2000.0
OWNERS = 100
PARTITIONS = 4
WAIT_S_MAX = 180.0
LOOPS = {
    "ingest's code, no Faust": ("intake", ""),
    "bare aiokafka loop": ("aiokafka", "feedback"),
    "bare confluent loop": ("confluent", "requests"),
}
"""Name, client, and what it appends to: any topic of as many partitions."""


def run(*, broker: str, count: int, repeats: int) -> Report:
    """Run the benchmark."""
    report = Report("intake")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ("ingest worker", *LOOPS)}
    with stacks.stack(broker, "broker") as addresses:
        for repeat in range(repeats):
            prefix = f"r{repeat}."
            ensure_topics(addresses.kafka, prefix, PARTITIONS, 1)
            produced = stacks.produce(addresses.kafka, prefix + "turns", intake_turns(count))
            say(f"repeat {repeat + 1} of {repeats}: {produced} turns")
            found["ingest worker"].append(_ingest(addresses, prefix, count))
            for name, (client, sink) in LOOPS.items():
                found[name].append(_loop(addresses, prefix, client, prefix + sink, count))
    report.rows = rows_of(found, count)
    report.targets.append(
        Target.at_least("turns/s of one ingest worker (median)", report.rows[0]["turns/s"].median, TURNS_S_MIN)
    )
    by_cpu = report.rows[0]["turns/CPU-s"].median
    report.targets.append(Target.at_least("turns a CPU second of one ingest worker (median)", by_cpu, TURNS_S_MIN))
    report.notes.append(f"broker {broker}, {PARTITIONS} partitions, broker and worker share the cores")
    return report


def rows_of(found: dict[str, list[tuple[float, float]]], count: int) -> list[dict[str, Any]]:
    """A row for each loop, with its ratio to the bare aiokafka loop of the same repeat."""
    bare = found["bare aiokafka loop"]
    return [
        {
            "loop": name,
            "turns": count,
            "turns/s": Spread.of(rate for rate, _ in rates),
            "turns/CPU-s": Spread.of(rate for _, rate in rates),
            "of bare aiokafka": Spread.of(rate / of for (rate, _), (of, _) in zip(rates, bare, strict=True)),
            "CPU of bare aiokafka": Spread.of(rate / of for (_, rate), (_, of) in zip(rates, bare, strict=True)),
        }
        for name, rates in found.items()
    ]


def intake_turns(count: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Records of ``turns`` as a producer posts them: (partition, value, key)."""
    for turn in turns(count, [Owned(f"u{number}") for number in range(OWNERS)]):
        partition = partition_of(turn.user_id, turn.role_id, PARTITIONS)
        yield partition, encode(turn), owner_key(turn.user_id, turn.role_id)


def _ingest(addresses: Addresses, prefix: str, count: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = stacks.role_environment(addresses, folder, PARTITIONS) | {"MNEMOLOG_PREFIX": prefix}
        log = folder / "ingest.log"
        with stacks.child("infra.worker", "ingest", env=env, log=log) as worker:
            try:
                taken = journal_times(addresses.kafka, prefix + "journal", count, pid=worker.pid)
            except TimeoutError as error:
                tail = log.read_text("utf-8", "replace")[-500:]
                raise StackError(
                    f"{error}; the worker is {worker.poll() or 'running'}; its log ends {tail!r}"
                ) from None
    return count / max(1e-3, (taken.last_ms - taken.first_ms) / 1000), taken.records_per_cpu_s


@dataclass(frozen=True, slots=True)
class Taken:
    """Record times of the first and the last record, and records a CPU second of the process that wrote them."""

    first_ms: int
    last_ms: int
    records_per_cpu_s: float


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used; NaN where that can't be told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def journal_times(kafka: str, topic: str, count: int, *, pid: int, seconds_max: float = WAIT_S_MAX) -> Taken:
    """When ``count`` records were written, and the CPU time that it took their writer.

    Raises
    ------
    TimeoutError
        They don't come.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "bench-journal",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "log_level": 3,
            "error_cb": lambda _error: None,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        seen, first, last = 0, 2**62, 0
        from_seen, from_cpu = 0, math.nan
        until = time.monotonic() + seconds_max
        while seen < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{topic} has {seen} of {count} records after {seconds_max:g} s")
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    seen += 1
                    at = message.timestamp()[1]
                    first, last = min(first, at), max(last, at)
                elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise StackError(f"{topic}: {error}")
            if seen and math.isnan(from_cpu):
                from_seen, from_cpu = seen, cpu_s(pid)
        used = cpu_s(pid) - from_cpu
        return Taken(first, last, (count - from_seen) / used if used > 0 else math.nan)
    finally:
        consumer.close()


def _loop(addresses: Addresses, prefix: str, client: str, sink: str, count: int) -> tuple[float, float]:
    arguments = ("infra.bench.loops", client, addresses.kafka, prefix + "turns", sink, str(count))
    with stacks.child(*arguments) as process:
        found = json.loads(stacks.read_line(process))
    return count / float(found["seconds"]), count / float(found["cpu_seconds"])
