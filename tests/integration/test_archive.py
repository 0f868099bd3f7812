"""The raw transcript on real brokers: nothing is missing after kill -9, and a restored log gives the same memory."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.client import SyncClient
from connectors.log_reader import LogReader
from connectors.log_writer import LogWriter
from connectors.objects import open_objects
from connectors.ports import Clock, Record, Unavailable, UnknownTopic
from infra.stack import running_stack
from infra.stack_options import Addresses, UpOptions
from schemas.codec import JOURNAL_EVENTS, LIBRARY_EVENTS, decode_event
from streams.archiver import Archiver, Limits
from streams.core.conversation import JournalState
from streams.core.library import LibraryState
from streams.segment_store import SegmentStore
from tests.integration.conftest import RunningStack

pytestmark = pytest.mark.integration

OWNER = {"user_id": "ada", "role_id": "lin"}
TOPICS = ("journal", "library", "dead-letters")
WAIT_S = 60.0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _until(condition: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < until, f"not within {WAIT_S} s: {what}"
        time.sleep(0.1)
    return found


def _mnemolog(addresses: Addresses, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return RunningStack(addresses, Path()).mnemolog(*args, check=check)


def _records(addresses: Addresses, name: str) -> list[Record]:
    topic = addresses.prefix + name
    with LogReader(addresses.kafka) as reader:
        starts = dict.fromkeys((number for number, end in reader.ends(topic).items() if end), 0)
        found = list(reader.read(topic, starts, seconds_max=30)) if starts else []
    return sorted(found, key=lambda record: (record.partition, record.offset))


def _digests(records: dict[str, list[Record]]) -> dict[str, str]:
    """State hash of each partition, by the fold itself."""
    embedders = [json.loads(r.value or b"{}").get("embedder") for r in records["journal"]]
    embedder = next((name for name in embedders if name), "none")
    states: dict[int, JournalState] = {}
    for record in records["journal"]:
        state = states.setdefault(record.partition, JournalState(record.partition, embedder))
        state.apply(record.offset, decode_event(record.value, JOURNAL_EVENTS))
    library = LibraryState(embedder)
    for record in records["library"]:
        library.apply(record.offset, decode_event(record.value, LIBRARY_EVENTS))
    return {str(number): state.digest() for number, state in states.items()} | {"library": library.digest()}


def _post(client: SyncClient, numbers: range, user: str = "ada") -> list[str]:
    return [
        client.post_turn(
            user_id=user,
            role_id="lin",
            turn_id=f"t-{number}",
            session_id=f"s{number // 10}",
            text=f"boat {number} 钥匙 {number}",
            speaker=("user", "assistant")[number % 2],
            occurred_at=f"2026-05-{1 + number // 60:02d}T10:{number % 60:02d}:00Z",
        )
        for number in numbers
    ]


def _hashes(client: SyncClient) -> list[Any]:
    replies = [
        client.assemble(query, **OWNER, as_of={"turn_id": "t-19"}, now="2026-06-01T10:00:00Z", timeout_ms=30_000)
        for query in ("what about boat 17?", "钥匙在哪")
    ]
    return [(reply.messages_sha256, [item.score for item in reply.evidence or ()]) for reply in replies]


def _document(client: SyncClient, document_id: str, text: str) -> None:
    # Of a role of its own: other tests ask on the same stack.
    client.learn(document_id=document_id, text=text, role_id="archivist")


def _knows(client: SyncClient, word: str, document_id: str) -> bool:
    owner = {"user_id": "ada", "role_id": "archivist"}
    reply = client.recall(f"who speaks of {word}?", **owner, limits={"knowledge": 5}, timeout_ms=30_000)
    return any(item.document_id == document_id for item in reply.evidence or ())


def _lag(addresses: Addresses) -> int:
    report = json.loads(_mnemolog(addresses, "status", "--json", check=False).stdout)["archive"]
    return sum(entry["lag"] for partitions in report.values() for entry in partitions.values())


@pytest.mark.timeout(400)
def test_what_was_said_to_the_embedded_stack_survives_its_restarts(tmp_path: Path) -> None:
    options = UpOptions(data=tmp_path / "data")
    with running_stack(options, say=_say) as addresses, SyncClient(addresses.kafka, prefix=addresses.prefix) as client:
        last = _post(client, range(30))[-1]
        _document(client, "d-1", "The lighthouse keeper counts the gannets.")
        _until(lambda: _knows(client, "gannets", "d-1"), "the document is known")
        client.recall("boat?", **OWNER, after=[last], timeout_ms=30_000)
        hashes = _hashes(client)
        before = {name: _records(addresses, name) for name in TOPICS}
    with running_stack(options, say=_say) as addresses, SyncClient(addresses.kafka, prefix=addresses.prefix) as client:
        after = {name: _records(addresses, name) for name in TOPICS}
        for name in TOPICS:  # what the roles recorded while they stopped comes after
            kept = {(record.partition, record.offset): record for record in after[name]}
            assert [kept.get((record.partition, record.offset)) for record in before[name]] == before[name]
        assert _hashes(client) == hashes
        assert _knows(client, "gannets", "d-1")
        # The input topics begin anew: another document at the same offset is another one.
        _document(client, "d-2", "The ferry carries oranges.")
        _until(lambda: _knows(client, "oranges", "d-2"), "a document after the restart is known")
        said = json.loads(
            _mnemolog(addresses, "transcript", "--user", "ada", "--role", "lin", "--session", "s1", "--json").stdout
        )
        assert [turn["turn_id"] for turn in said["turns"]] == [f"t-{number}" for number in range(10, 20)]
        assert all(turn["source"] == "archive" for turn in said["turns"])
    _after_kill(options.data or Path())


def _after_kill(data: Path) -> None:
    """kill -9 of a third run: what was archived by then is there in the fourth."""
    command = [sys.executable, "-m", "infra.cli", "up", "--json", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        addresses = Addresses(**json.loads(process.stdout.readline()))
        with SyncClient(addresses.kafka, prefix=addresses.prefix) as client:
            last = _post(client, range(30, 60))[-1]
            client.recall("boat?", **OWNER, after=[last], timeout_ms=30_000)
            _until(lambda: _lag(addresses) == 0, "all is archived")
            before = _records(addresses, "journal")
        process.send_signal(signal.SIGKILL)
    with running_stack(UpOptions(data=data), say=_say) as addresses:
        after = {(record.partition, record.offset): record for record in _records(addresses, "journal")}
        # A record of the last moment (the recall's own) may have come after the look at the lag.
        missing = [record for record in before if (record.partition, record.offset) not in after]
        assert len(missing) <= 1
        assert all(after[r.partition, r.offset] == r for r in before if r not in missing)
        said = _mnemolog(
            addresses, "transcript", "--user", "ada", "--role", "lin", "--session", "s5", "--around", "t-55"
        )
        assert len(said.stdout.splitlines()) == 10
        _clear_errors(addresses)


def _clear_errors(addresses: Addresses) -> None:
    for args, sentence in (
        (("--user", "ada", "--role", "mei", "--session", "s1"), "no turn of user 'ada' with role 'mei' is known"),
        (("--user", "ada", "--role", "lin", "--session", "s99"), "has no session 's99'"),
        (("--user", "ada", "--role", "lin", "--session", "s1", "--around", "t-55"), "none of them 't-55'"),
    ):
        done = _mnemolog(addresses, "transcript", *args, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert sentence in done.stderr


@pytest.mark.kafka
@pytest.mark.timeout(400)
def test_killed_archivers_lose_nothing_and_an_empty_kafka_gets_the_same_state(
    on_kafka: RunningStack, tmp_path: Path
) -> None:
    addresses = on_kafka.addresses
    archiving = next(worker for worker in on_kafka.workers if worker.role == "analytics")
    with SyncClient(addresses.kafka, prefix=addresses.prefix) as client:
        for number in range(4):
            for user in ("ada", "bo", "cy", "di"):
                last = _post(client, range(10 * number, 10 * number + 10), user)[-1]
            archiving.kill()
            archiving.start()
        client.recall("boat?", user_id="di", role_id="lin", after=[last], timeout_ms=60_000)
        _document(client, "d-archive", "The lighthouse keeper counts the gannets.")
        _until(lambda: _knows(client, "gannets", "d-archive"), "the document is known")
    archiving.await_ready()
    _until(lambda: _lag(addresses) == 0, "all is archived")
    before = {name: _records(addresses, name) for name in TOPICS}
    with running_stack(UpOptions(broker="kafka", data=tmp_path / "data", only=("broker",)), say=_say) as empty:
        _as_if_cut(addresses, empty.kafka, before["journal"])
        args = ("restore", "--from", addresses.objects, "--kafka", empty.kafka, "--prefix", addresses.prefix)
        done = orjson.loads(on_kafka.mnemolog(*args, "--json").stdout)
        assert sum(partition["already"] for partition in done["partitions"]) == 5
        restored = Addresses(empty.kafka, "", "", "", addresses.prefix, "")
        after = {name: _records(restored, name) for name in TOPICS}
        assert after == before
        assert _digests(after) == _digests(before)
        assert "0 records in" in on_kafka.mnemolog(*args).stdout
        with LogWriter(empty.kafka) as writer:
            topic = addresses.prefix + "library"
            writer.begin(topic, 0, len(before["library"]))
            writer.append([Record(topic, 0, 0, 1, None, b"{}")])
            writer.flush()
        refused = on_kafka.mnemolog(*args, check=False)
        assert refused.returncode == 1
        assert f"library[0] is not empty: it holds {len(before['library']) + 1} records" in refused.stderr


def _as_if_cut(addresses: Addresses, kafka: str, journal: list[Record]) -> None:
    """The first five records of a partition, as a restore that was killed would have left them."""
    from connectors.kafka import ensure_topics

    ensure_topics(kafka, addresses.prefix, 4, 1)
    partition = max(record.partition for record in journal)
    with LogWriter(kafka) as writer:
        writer.begin(addresses.prefix + "journal", partition, 0)
        writer.append([record for record in journal if record.partition == partition][:5])
        writer.flush()


@pytest.mark.parametrize("broker", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
@pytest.mark.timeout(300)
async def test_a_restore_that_is_killed_goes_on_where_it_was(broker: str, tmp_path: Path) -> None:
    if broker == "kafka" and (shutil.which("java") is None or shutil.which("mvn") is None) and not os.environ.get("CI"):
        pytest.skip("Apache Kafka needs java and mvn on PATH")
    objects, prefix = str(tmp_path / "objects"), "k."
    parts = await _made_up_archive(objects, prefix)
    await asyncio.to_thread(_kill_and_go_on, broker, tmp_path, objects, prefix, parts)


async def _made_up_archive(url: str, prefix: str) -> list[list[Record]]:
    store = SegmentStore(open_objects(url), prefix + "journal")
    await store.declare(2)
    parts = [
        [
            Record(store.topic, number, offset, 1_700_000_000_000 + offset, b"k", random.Random(offset).randbytes(700))
            for offset in range(40_000)
        ]
        for number in range(2)
    ]
    for partition, records in enumerate(parts):
        archiver = Archiver(store, partition, Limits(), Clock())
        await archiver.take(records)
        await archiver.write()
    return parts


def _is_short_of(reader: LogReader, topic: str, least: int) -> bool:
    try:
        return sum(reader.ends(topic).values()) < least
    except (Unavailable, UnknownTopic):  # the restore makes the topics first
        return True


def _kill_and_go_on(broker: str, folder: Path, objects: str, prefix: str, parts: list[list[Record]]) -> None:
    with running_stack(UpOptions(broker=broker, data=folder / "data", only=("broker",)), say=_say) as addresses:
        args = ("restore", "--from", objects, "--kafka", addresses.kafka, "--prefix", prefix, "--json")
        env = {**os.environ, "MNEMOLOG_BROKER": broker}
        command = [sys.executable, "-m", "infra.cli", *args]
        kills = 0
        for least in (1, 20_000, 45_000):
            with (
                subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process,
                LogReader(addresses.kafka) as reader,
            ):
                is_short = partial(_is_short_of, reader, prefix + "journal", least)
                _until(lambda p=process, short=is_short: p.poll() is not None or not short(), f"{least} records")
                kills += process.poll() is None
                process.kill()
        done = json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
        assert kills > 0
        assert sum(partition["already"] for partition in done["partitions"]) > 0
        restored = Addresses(addresses.kafka, "", "", "", prefix, "")
        assert _records(restored, "journal") == [record for records in parts for record in records]
