"""``bench fold`` and ``bench recover``: recorded events to state beside a bare reader; seconds until ready."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

from connectors.follower import LogFollower
from connectors.kafka import ensure_topics
from connectors.ports import Clock, Outgoing, Record
from connectors.settings import Settings
from infra.bench import stacks
from infra.bench.histories import Owned, encoded_events
from infra.bench.report import Report, Spread, Target, say
from infra.stack_options import Addresses, StackError
from schemas.codec import JOURNAL_EVENTS, decode_event
from streams.core.conversation import JournalState
from streams.serving import Memory, Shard

EVENTS_S_MIN = 10_000.0
EMBEDDER = "bench-embedder"
CONSUME = 500
READY_S_MAX = 600.0
SNAPSHOT_S_MAX = 30.0
EMPTY_PREFIX = "empty."


class _NoLog:
    """A log that nothing is appended to: folding has no effects here."""

    async def append(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        raise AssertionError(f"the fold appended to {outgoing.topic}")

    async def partitions(self, topic: str) -> int:
        return 1


class _NoEmbedder:
    name = EMBEDDER
    dimension = 384

    async def embed(self, texts: Sequence[str], input_type: str) -> Any:
        raise AssertionError(f"the fold embedded {len(texts)} {input_type} texts")


def new_memory(kafka: str = "") -> tuple[Memory, Shard]:
    """Memory of a worker with one empty shard, effects not started."""

    def broken(error: BaseException) -> None:
        raise error

    memory = Memory(Settings(kafka=kafka or "none:0"), _NoLog(), _NoEmbedder(), Clock(lambda: 0), broken)
    shard = memory.shards[0] = Shard(JournalState(0, EMBEDDER))
    return memory, shard


def records_of(values: Sequence[bytes]) -> list[Record]:
    """Values as the follower would hand them over."""
    return [Record("journal", 0, offset, 0, None, value) for offset, value in enumerate(values)]


def bare_consume(kafka: str, topic: str, count: int, parse: Callable[[bytes], Any] | None) -> None:
    """Read ``count`` records by librdkafka, in batches, and parse each value."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "bench-bare",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 16 * 1024 * 1024,
            "fetch.max.bytes": 64 * 1024 * 1024,
            "queued.max.messages.kbytes": 64 * 1024,
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    until = time.monotonic() + READY_S_MAX
    while read < count:
        messages = consumer.consume(CONSUME, 0.2)
        if not messages and time.monotonic() > until:
            raise StackError(f"{topic} gave {read} of {count} records")
        for message in messages:
            if message.error() is None:
                read += 1
                if parse is not None:
                    parse(message.value() or b"")
    consumer.close()


async def follow(kafka: str, topic: str, count: int) -> Memory:
    """Fold a topic by the follower, as the memory worker does."""
    memory, shard = new_memory(kafka)
    failed: list[BaseException] = []
    follower = LogFollower(kafka, topic, memory.apply_journal, failed.append, group="bench-follow")
    followed = follower.follow(0)
    async with asyncio.timeout(READY_S_MAX):
        while not followed.caught_up.is_set() and not failed:
            await asyncio.wait([asyncio.ensure_future(followed.caught_up.wait())], timeout=0.5)
    await follower.stop()
    if failed:
        raise StackError(f"the follower of {topic} stopped: {failed[0]!r}")
    if shard.state.next_offset < count:
        raise StackError(f"the fold is at {shard.state.next_offset}, expected {count}")
    return memory


async def fold_records(records: Sequence[Record]) -> Memory:
    """Fold records in memory, in the follower's batches."""
    memory, _ = new_memory()
    for start in range(0, len(records), CONSUME):
        await memory.apply_journal(0, records[start : start + CONSUME])
    return memory


def in_memory(records: Sequence[Record]) -> dict[str, Callable[[], object]]:
    """What is measured without Kafka."""
    events = [decode_event(record.value, JOURNAL_EVENTS) for record in records]

    def apply() -> None:
        state = JournalState(0, EMBEDDER)
        for offset, event in enumerate(events):
            state.apply(offset, event)

    return {
        "memory: fold (decode + apply)": lambda: asyncio.run(fold_records(records)),
        "memory: decode alone": lambda: [decode_event(record.value, JOURNAL_EVENTS) for record in records],
        "memory: apply alone": apply,
        "memory: orjson.loads alone": lambda: [orjson.loads(record.value or b"") for record in records],
    }


def measure(steps: dict[str, Callable[[], object]], count: int, repeats: int) -> list[dict[str, Any]]:
    """Run all steps in turn, ``repeats`` times; a row for each."""
    wall: dict[str, list[float]] = {name: [] for name in steps}
    cpu: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            begun, used = time.perf_counter(), time.process_time()
            step()
            wall[name].append(count / (time.perf_counter() - begun))
            cpu[name].append(count / max(1e-9, time.process_time() - used))
    return [
        {"step": name, "events": count, "events/s": Spread.of(wall[name]), "events/CPU-s": Spread.of(cpu[name])}
        for name in steps
    ]


def run_fold(*, broker: str, turns: int, owners: int, repeats: int) -> Report:
    """Run ``bench fold``."""
    report = Report("fold")
    values = [value for _, value in encoded_events(turns, _owners(owners), EMBEDDER)]
    records = records_of(values)
    count = len(values)
    with stacks.stack(broker, "broker") as addresses:
        ensure_topics(addresses.kafka, addresses.prefix, 1, 1)
        topic = addresses.prefix + "journal"
        stacks.produce(addresses.kafka, topic, ((0, value, None) for value in values))
        kafka = addresses.kafka
        say(f"{count} events are in {topic}; {repeats} repeats")
        steps: dict[str, Callable[[], object]] = {
            "Kafka: librdkafka consume": lambda: bare_consume(kafka, topic, count, None),
            "Kafka: consume + orjson.loads": lambda: bare_consume(kafka, topic, count, orjson.loads),
            "Kafka: LogFollower + fold": lambda: asyncio.run(follow(kafka, topic, count)),
            **in_memory(records),
        }
        report.rows = measure(steps, count, repeats)
    _ratios(report.rows, "Kafka: consume + orjson.loads")
    by_step = {row["step"]: row for row in report.rows}
    for step in ("Kafka: LogFollower + fold", "memory: fold (decode + apply)"):
        rate = by_step[step]["events/CPU-s"].median
        report.targets.append(Target.at_least(f"{step}, events/s of a core (CPU time)", rate, EVENTS_S_MIN))
    report.notes.append(f"broker {broker}; {owners} owners; {sum(map(len, values)) / count:.0f} bytes an event")
    return report


def _ratios(rows: list[dict[str, Any]], bare: str) -> None:
    of = next(row["events/s"].median for row in rows if row["step"] == bare)
    for row in rows:
        row["of bare"] = row["events/s"].median / of


def _owners(count: int) -> list[Owned]:
    return [Owned(f"u{number}") for number in range(count)]


def run_recover(*, broker: str, sizes: Sequence[int], owners: int) -> Report:
    """Run ``bench recover``."""
    report = Report("recover")
    for events in sizes:
        with stacks.stack(broker, "broker", "embeddings", partitions=1) as addresses:
            ensure_topics(addresses.kafka, addresses.prefix, 1, 1)
            name = asyncio.run(stacks.embedder_name(addresses))
            topic = addresses.prefix + "journal"
            records = ((0, value, None) for _, value in encoded_events(events // 2, _owners(owners), name))
            count = stacks.produce(addresses.kafka, topic, records)
            say(f"{count} events are in {topic}")
            begun = time.perf_counter()
            asyncio.run(follow(addresses.kafka, topic, count))
            report.rows.append(_recover_row(addresses, count, time.perf_counter() - begun))
    report.notes.append(f"broker {broker}, one partition, {owners} owners")
    if not any(row["snapshot MB"] for row in report.rows):
        why = "no snapshots yet" if find_spec("streams.snapshots") is None else "no snapshot was written"
        report.notes.append(f"{why}: the second start replays the whole journal")
    return report


def _recover_row(addresses: Addresses, count: int, fold_s: float) -> dict[str, Any]:
    ensure_topics(addresses.kafka, EMPTY_PREFIX, 1, 1)
    with tempfile.TemporaryDirectory() as folder:
        nothing = worker_ready_s(addresses, Path(folder), prefix=EMPTY_PREFIX)
    with tempfile.TemporaryDirectory() as folder:
        first = worker_ready_s(addresses, Path(folder))
        files = [path.stat().st_size for path in snapshots(Path(folder))]
        second = worker_ready_s(addresses, Path(folder))
    return {
        "events": count,
        "fold s": fold_s,
        "events/s": count / fold_s,
        "worker ready s, nothing to read": nothing,
        "without snapshot": first,
        "with snapshot": second if files else None,
        "second start": second,
        "snapshot MB": max(files, default=0) / 1e6,
    }


def worker_ready_s(addresses: Addresses, folder: Path, *, prefix: str | None = None) -> float:
    """Seconds from the start of a memory worker's process until it says that it is ready."""
    ready, log = folder / "ready", folder / "memory.log"
    ready.unlink(missing_ok=True)
    env = stacks.role_environment(addresses, folder, 1, MNEMOLOG_READY_FILE=str(ready))
    env["MNEMOLOG_PREFIX"] = prefix or addresses.prefix
    begun = time.perf_counter()
    with stacks.child("infra.worker", "memory", env=env, log=log) as worker:
        while not ready.exists():
            if worker.poll() is not None or time.perf_counter() - begun > READY_S_MAX:
                tail = log.read_text("utf-8", "replace")[-500:]
                raise StackError(f"the memory worker did not get ready (exit {worker.poll()}); its log ends {tail!r}")
            time.sleep(0.02)
        seconds = time.perf_counter() - begun
        _await_snapshot(folder, expected=prefix is None)
    return seconds


def snapshots(folder: Path) -> list[Path]:
    """Finished snapshots in a worker's data directory."""
    return sorted(Path(folder, "snapshots").rglob("*.snapshot"))


def _await_snapshot(folder: Path, *, expected: bool) -> None:
    """Let the worker write its snapshot, if it writes any, before it is stopped."""
    until = time.monotonic() + SNAPSHOT_S_MAX
    while expected and not snapshots(folder) and time.monotonic() < until:
        time.sleep(0.1)
