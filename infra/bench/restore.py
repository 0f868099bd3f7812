"""``bench restore`` and ``bench archive``: the raw transcript's speed, and what it costs intake."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from connectors.kafka import ensure_topics
from connectors.objects import open_objects
from connectors.ports import Clock, Objects, Record
from infra.bench import stacks
from infra.bench.histories import Owned, encoded_events
from infra.bench.intake import PARTITIONS, cpu_s, intake_turns, journal_times
from infra.bench.report import Report, Spread, Target, say
from infra.stack_options import Addresses
from schemas.topics import owner_key, partition_of
from streams.archiver import Archiver, Limits
from streams.restore import check_archive, restore
from streams.segment_store import SegmentStore
from streams.transcript import Session, TranscriptReader

EVENTS_S_MIN = 20_000.0
INTAKE_SHARE_MIN = 0.95
BATCH = 500
LOOKUPS = 50

Timed = tuple[float, float]
"""Events a second by the wall clock, and by this process's CPU time."""


def run(*, broker: str, turns: int, owners: int, repeats: int) -> Report:
    """Run ``bench restore``."""
    report = Report("restore")
    found: dict[str, list[Timed]] = {name: [] for name in ("archive", "check", "restore", "bare producer")}
    lookups: list[float] = []
    events = 2 * turns
    everyone = [Owned(f"u{number}") for number in range(owners)]
    with stacks.stack(broker, "broker") as addresses, tempfile.TemporaryDirectory() as folder:
        objects = open_objects(folder)
        for repeat in range(repeats):
            say(f"repeat {repeat + 1} of {repeats}: {events} events")
            prefix = f"r{repeat}."
            records = _records(prefix + "journal", turns, everyone)
            found["archive"].append(_timed(events, lambda r=records, p=prefix: asyncio.run(_archive(objects, p, r))))
            found["check"].append(_timed(events, lambda p=prefix: asyncio.run(check_archive(objects, p))))
            embedded = addresses.broker == "embedded"
            found["restore"].append(
                _timed(
                    events,
                    lambda p=prefix, e=embedded: asyncio.run(restore(objects, addresses.kafka, p, embedded=e, say=say)),
                )
            )
            ensure_topics(addresses.kafka, f"bare{repeat}.", PARTITIONS, 1)
            values = [(record.partition, record.value or b"", record.key) for part in records for record in part]
            topic = f"bare{repeat}.journal"
            found["bare producer"].append(
                _timed(events, lambda v=values, t=topic: stacks.produce(addresses.kafka, t, v))
            )
            lookups.append(asyncio.run(_lookups(objects, prefix, everyone)))
        stored = sum(file.stat().st_size for file in Path(folder).rglob("*.zst")) / repeats
    raw = sum(len(record.value or b"") for part in records for record in part)
    report.rows = [
        {
            "step": name,
            "events": events,
            "events/s": Spread.of(rate for rate, _ in rates),
            "events/CPU-s": Spread.of(rate for _, rate in rates),
        }
        for name, rates in found.items()
    ]
    restored = Spread.of(rate for rate, _ in found["restore"]).median
    report.targets.append(Target.at_least("events/s restored (median)", restored, EVENTS_S_MIN))
    report.notes.append(f"transcript of a session of 20 turns: {Spread.of(lookups)} ms a lookup")
    report.notes.append(f"{raw / 1e6:.1f} MB of values became {stored / 1e6:.1f} MB; broker {broker}")
    return report


def _records(topic: str, turns: int, owners: list[Owned]) -> list[list[Record]]:
    parts: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for number, (user_id, value) in enumerate(encoded_events(turns, owners, "bench-embedder")):
        part = parts[partition_of(user_id, "lin", PARTITIONS)]
        at = 1_700_000_000_000 + number
        headers = (("ce_id", b"0" * 36), ("ce_type", b"mnemolog.TurnRecorded.v1"))
        partition = partition_of(user_id, "lin", PARTITIONS)
        part.append(Record(topic, partition, len(part), at, owner_key(user_id, "lin"), value, headers))
    return parts


def _timed(events: int, work: Any) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return events / (time.perf_counter() - wall), events / max(1e-6, time.process_time() - cpu)


async def _archive(objects: Objects, prefix: str, parts: list[list[Record]]) -> None:
    store = SegmentStore(objects, prefix + "journal")
    await store.declare(PARTITIONS)
    for partition, records in enumerate(parts):
        archiver = Archiver(store, partition, Limits(), Clock(lambda: time.time_ns() // 1_000_000))
        for start in range(0, len(records), BATCH):
            await archiver.take(records[start : start + BATCH])
        await archiver.write()


async def _lookups(objects: Objects, prefix: str, owners: list[Owned]) -> float:
    reader = TranscriptReader(SegmentStore(objects, prefix + "journal"))
    begun = time.perf_counter()
    for number in range(LOOKUPS):
        owner = owners[number % len(owners)]
        session = Session(owner.user_id, owner.role_id, f"s{number % 5}")
        partition = partition_of(owner.user_id, owner.role_id, PARTITIONS)
        await reader.read(session, partition, await reader.archived(session, partition))
    return (time.perf_counter() - begun) / LOOKUPS * 1000


def run_intake(*, broker: str, count: int, repeats: int) -> Report:
    """Run ``bench archive``."""
    report = Report("archive")
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "archiving": []}
    with stacks.stack(broker, "broker", "clickhouse") as addresses:
        for repeat in range(repeats):
            for name in ("alone", "archiving") if repeat % 2 == 0 else ("archiving", "alone"):
                say(f"repeat {repeat + 1} of {repeats}: {name}")
                found[name].append(_intake(addresses, f"{name}{repeat}.", count, archiving=name == "archiving"))
    alone = found["alone"]
    report.rows = [
        {
            "analytics": name,
            "turns": count,
            "turns/s": Spread.of(rate for rate, _ in rates),
            "of alone": Spread.of(rate / of for (rate, _), (of, _) in zip(rates, alone, strict=True)),
            "CPU s of analytics": Spread.of(cpu for _, cpu in rates),
        }
        for name, rates in found.items()
    ]
    share = report.rows[1]["of alone"].median
    report.targets.append(
        Target.at_least("turns/s of ingest while archiving, of alone (median)", share, INTAKE_SHARE_MIN)
    )
    report.notes.append(f"broker {broker}; ingest, analytics, ClickHouse and broker share the cores")
    return report


def _intake(addresses: Addresses, prefix: str, count: int, *, archiving: bool) -> tuple[float, float]:
    ensure_topics(addresses.kafka, prefix, PARTITIONS, 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = stacks.role_environment(addresses, folder, PARTITIONS) | {"MNEMOLOG_PREFIX": prefix}
        ready = folder / "ready"
        env_analytics = env | {
            "MNEMOLOG_CLICKHOUSE": addresses.clickhouse,
            "MNEMOLOG_READY_FILE": str(ready),
            "MNEMOLOG_OBJECTS": str(folder / "objects") if archiving else "",
        }
        with stacks.child("infra.worker", "analytics", env=env_analytics, log=folder / "analytics.log") as analytics:
            _await(ready)
            stacks.produce(addresses.kafka, prefix + "turns", intake_turns(count))
            before = cpu_s(analytics.pid)
            with stacks.child("infra.worker", "ingest", env=env, log=folder / "ingest.log") as worker:
                taken = journal_times(addresses.kafka, prefix + "journal", count, pid=worker.pid)
            used = cpu_s(analytics.pid) - before
    return count / max(1e-3, (taken.last_ms - taken.first_ms) / 1000), used


def _await(ready: Path) -> None:
    until = time.monotonic() + stacks.CHILD_S_MAX
    while not ready.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"analytics was not ready within {stacks.CHILD_S_MAX:g} s")
        time.sleep(0.05)
