"""Snapshot files: what is read back, what is refused, what a crash or a full disk leaves behind."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.ports import Record
from schemas.envelope import derived_id, instant_of
from schemas.positions import Position
from schemas.turns import TurnRecorded
from streams import snapshots
from streams.core.conversation import JournalState
from streams.serving import Shard
from streams.snapshots import MAGIC, Header, SnapshotStore, record_sha256

TOPIC = "mnemolog.journal"


def record(offset: int, value: bytes = b"v") -> Record:
    return Record(TOPIC, 0, offset, 1_700_000_000_000, b"k", value)


def fold(count: int, state: JournalState | None = None) -> JournalState:
    state = state or JournalState(0, "e5#1")
    for offset in range(state.next_offset, count):
        at = instant_of(1_700_000_000_000 + offset)
        event = TurnRecorded(
            event_id=derived_id(offset), occurred_at=at, recorded_at=at, user_id=f"u{offset % 3}", role_id="r",
            turn_id=f"t{offset}", session_id="s", speaker="user", text=f"tea {offset}",
            source=Position(topic="turns", partition=0, offset=offset),
        )  # fmt: skip
        state.apply(offset, event)
    return state


def write(store: SnapshotStore, count: int) -> Path:
    return asyncio.run(store.write(fold(count), record(count - 1)))


def newest(store: SnapshotStore, partition: int = 0, is_of_log: Any = lambda _header: True) -> JournalState | None:
    found = store.newest(partition, is_of_log)
    return found.state if found else None


@pytest.fixture
def store(tmp_path):
    return SnapshotStore(tmp_path, TOPIC, "e5#1")


def test_what_was_written_is_read_back_and_goes_on(store):
    assert newest(store) is None
    write(store, 10)
    state = newest(store)
    assert state.digest() == fold(10).digest()
    assert fold(20, state).digest() == fold(20).digest()


def test_two_are_kept_and_the_newest_is_read(store, tmp_path):
    for count in (5, 10, 15):
        write(store, count)
    assert [file.name for file in sorted((tmp_path / TOPIC).iterdir())] == [
        f"0-{10:020d}.snapshot",
        f"0-{15:020d}.snapshot",
    ]
    assert newest(store).next_offset == 15


def test_partitions_are_apart(store):
    write(store, 5)
    assert newest(store, 1) is None


@pytest.mark.parametrize("position", [0, len(MAGIC) + 2, 200, -40, -1])
def test_a_flipped_bit_anywhere_falls_back_to_the_one_before(store, position):
    write(store, 5)
    file = write(store, 10)
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    assert newest(store).next_offset == 5


@pytest.mark.parametrize("kept", [0, 1, len(MAGIC), 30, 200, -33, -32, -1])
def test_a_cut_file_falls_back_to_the_one_before(store, kept):
    write(store, 5)
    file = write(store, 10)
    file.write_bytes(file.read_bytes()[:kept])
    assert newest(store).next_offset == 5


def test_of_two_damaged_ones_none_is_read(store):
    for count in (5, 10):
        file = write(store, count)
        file.write_bytes(file.read_bytes() + b"x")
    assert newest(store) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layout", 99),
        ("fold", 99),
        ("core", 99),
        ("embedder", "other#1"),
        ("topic", "other.journal"),
        ("partition", 1),
        ("events", {"TurnRecorded": 2}),
        ("tokenizers", {"rjieba": "0"}),
    ],
)
def test_a_snapshot_of_another_program_or_log_is_refused(store, monkeypatch, name, value):
    def changed(**fields: Any) -> Header:
        return dataclasses.replace(Header(**fields), **{name: value})

    monkeypatch.setattr(snapshots, "Header", changed)
    write(store, 5)
    monkeypatch.undo()
    assert newest(store) is None


def test_a_log_that_ends_before_the_snapshot_or_is_another_is_refused(store):
    write(store, 5)
    write(store, 10)
    log = [record(offset) for offset in range(7)]

    def is_of_log(header: Header) -> bool:
        last = next((item for item in log if item.offset == header.next_offset - 1), None)
        return last is not None and record_sha256(last) == header.last_record

    assert newest(store, is_of_log=is_of_log).next_offset == 5
    log[4] = record(4, b"another")
    assert newest(store, is_of_log=is_of_log) is None


async def test_events_that_are_folded_in_while_it_is_written_are_left_out(store, monkeypatch):
    monkeypatch.setattr(snapshots, "SLICE_S", 0.0)
    state = fold(50)
    writing = asyncio.create_task(store.write(state, record(49)))
    for count in range(51, 80):
        await asyncio.sleep(0)
        fold(count, state)
    await writing
    assert newest(store).digest() == fold(50).digest()
    assert state.digest() == fold(79).digest()


async def test_a_write_that_is_broken_off_leaves_the_old_ones(store, tmp_path, monkeypatch):
    await store.write(fold(5), record(4))
    monkeypatch.setattr(snapshots, "SLICE_S", 0.0)
    writing = asyncio.create_task(store.write(fold(500), record(499)))
    for _ in range(3):
        await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert [file.name for file in (tmp_path / TOPIC).iterdir()] == [f"0-{5:020d}.snapshot"]
    assert newest(store).next_offset == 5


def shard_of(state: JournalState) -> Shard:
    shard = Shard(state, last=record(state.watermark))
    shard.ready.set()
    return shard


async def test_a_write_that_is_broken_off_by_the_end_of_the_process_is_made_up_for(store, monkeypatch):
    monkeypatch.setattr(snapshots, "SLICE_S", 0.0)
    shard = shard_of(fold(500))
    writing = asyncio.create_task(store.write_due([shard], 100))
    for _ in range(3):
        await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert newest(store) is None
    await store.write_due([shard], 100, last_chance=True)
    assert newest(store).next_offset == 500


async def test_a_full_disk_is_tried_again_after_as_many_events_and_at_the_end(store, monkeypatch):
    tried: list[int] = []

    async def full(state: JournalState, last: Record) -> Path:
        tried.append(last.offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write", full)
    shard = shard_of(fold(10))
    for _ in range(3):
        await store.write_due([shard], 10)
    assert tried == [9]
    fold(20, shard.state)
    shard.last = record(19)
    await store.write_due([shard], 10)
    await store.write_due([shard], 10, last_chance=True)
    assert (tried, shard.snapshot_offset) == ([9, 19, 19], 0)


async def test_a_snapshot_counts_up_to_where_it_was_begun(store, monkeypatch):
    monkeypatch.setattr(snapshots, "SLICE_S", 0.0)
    shard = shard_of(fold(50))
    writing = asyncio.create_task(store.write_due([shard], 10))
    await asyncio.sleep(0)
    fold(70, shard.state)
    shard.last = record(69)
    await writing
    assert (shard.snapshot_offset, newest(store).next_offset) == (50, 50)
    await store.write_due([shard], 10)
    assert newest(store).next_offset == 70


def test_a_disk_that_can_not_be_written_raises_and_leaves_the_old_ones(store, monkeypatch):
    write(store, 5)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshots, "_settle", full)
    with pytest.raises(OSError, match="No space"):
        write(store, 10)
    assert newest(store).next_offset == 5


def test_what_a_crash_left_behind_is_removed_when_it_is_old(store, tmp_path, monkeypatch):
    write(store, 5)
    part = tmp_path / TOPIC / "0-00000000000000000009.1.part"
    part.touch()
    write(store, 6)
    assert part.exists()
    monkeypatch.setattr(snapshots, "PART_AGE_S_MAX", -1)
    write(store, 7)
    assert not part.exists()


def test_header_names_everything_that_a_state_depends_on():
    header = Header(topic=TOPIC, partition=0, embedder="e", next_offset=1, last_record="x")
    assert set(msgspec.to_builtins(header)) == {
        "topic", "partition", "embedder", "next_offset", "last_record", "layout", "fold", "core", "events",
        "tokenizers",
    }  # fmt: skip
    assert set(header.tokenizers) == {"rjieba", "PyStemmer"}


async def test_a_large_state_is_written_in_short_slices(store):
    state = fold(20_000)
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0)
            gaps.append(time.perf_counter() - begun)

    beating = asyncio.create_task(beat())
    await store.write(state, record(19_999))
    beating.cancel()
    # A tenth of what would be the case without slices, and far above the 15 ms of an idle machine.
    assert sorted(gaps)[-3] < 0.15
