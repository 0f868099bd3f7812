"""Snapshots of journal partitions in a local directory: written beside the work, believed only when all fits.

A file holds a header, the sections of ``streams.core.snapshot`` and the SHA-256 of all before it. It is written under
another name, flushed to the disk and renamed, so a crash leaves the old ones.

Invariant: a snapshot only saves time. One that is damaged, of another fold, tokenizer, embedder or partition, or of
another log, is passed over with a reason, and the journal is read from an older one or from its start. The log is
recognised by the record before the snapshot's end: same offset, same bytes.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib.metadata
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import structlog

from connectors import metrics
from connectors.ports import Record
from schemas.codec import NEWEST_VERSION
from streams.core.conversation import FOLD_VERSION, JournalState
from streams.core.settings import CORE_VERSION
from streams.core.snapshot import LAYOUT_VERSION, UnreadableSnapshot, restored, sections
from streams.serving import Shard

log = structlog.get_logger("memory")

MAGIC = b"mnemolog snapshot\n"
KEPT = 2
"""The newest, and the one before for when that is damaged."""
BLOCK_BYTES = 1024 * 1024
SLICE_S = 0.01
"""How long sections are made before the event loop gets a turn."""
PART_AGE_S_MAX = 3600.0
"""An unfinished file that is older was left behind by a crash."""
_SHA_BYTES = 32
_LENGTH_BYTES = 4
_TOKENIZERS = ("rjieba", "PyStemmer")


def tokenizers() -> dict[str, str]:
    """Versions of the libraries that cut text into words: a snapshot holds words."""
    return {name: importlib.metadata.version(name) for name in _TOKENIZERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What must agree before a state is believed, and where it ends."""

    topic: str
    partition: int
    embedder: str
    next_offset: int
    last_record: str
    """SHA-256 of the record at ``next_offset - 1``."""
    layout: int = LAYOUT_VERSION
    fold: int = FOLD_VERSION
    core: int = CORE_VERSION
    events: dict[str, int] = field(default_factory=lambda: dict(NEWEST_VERSION))
    tokenizers: dict[str, str] = field(default_factory=tokenizers)


def record_sha256(record: Record) -> str:
    """Digest by which a record of a log is recognised."""
    parts = (str(record.offset).encode(), str(record.timestamp).encode(), record.key or b"", record.value or b"")
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state that was read from a file."""

    state: JournalState
    header: Header


class SnapshotStore:
    """Snapshots of one topic's partitions in a directory."""

    def __init__(self, directory: Path, topic: str, embedder: str) -> None:
        self._directory = directory / topic
        self._topic = topic
        self._embedder = embedder

    def newest(self, partition: int, is_of_log: Callable[[Header], bool]) -> Snapshot | None:
        """The newest state that can be believed; None: there is none. Blocks: call it in a thread.

        Parameters
        ----------
        is_of_log : callable
            Whether the log still holds the record before the snapshot's end.
        """
        for file in self._files(partition):
            begun = time.monotonic()
            try:
                header = self._header(file, partition)
                if not is_of_log(header):
                    raise UnreadableSnapshot("the log is another one, or ends before the snapshot")
                state = _state_of(file)
                if (state.partition, state.embedder, state.next_offset) != (
                    header.partition,
                    header.embedder,
                    header.next_offset,
                ):
                    raise UnreadableSnapshot("header and state disagree")
            except (UnreadableSnapshot, OSError) as error:
                metrics.snapshot("refused")
                log.warning("snapshot_refused", file=str(file), error=str(error), action="longer replay")
                continue
            metrics.snapshot("read")
            spent_s = round(time.monotonic() - begun, 3)
            log.info("snapshot_read", partition=partition, next_offset=header.next_offset, seconds=spent_s)
            return Snapshot(state, header)
        return None

    async def write(self, state: JournalState, last: Record) -> Path:
        """Write the state as it is now; other tasks go on meanwhile, and may fold events into it.

        Parameters
        ----------
        last : Record
            The record that was folded last.

        Raises
        ------
        OSError
            The disk is full or not writable; the snapshots before are still there.
        """
        assert last.offset == state.watermark, f"record {last.offset} is not the last of the state, {state.watermark}"
        begun = time.monotonic()
        header = Header(
            topic=self._topic,
            partition=state.partition,
            embedder=self._embedder,
            next_offset=state.next_offset,
            last_record=record_sha256(last),
        )
        described = sections(state)
        first = next(described)  # before the event loop gets a turn: it fixes the offset that all others keep to
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / f"{state.partition}-{state.next_offset:020d}.snapshot"
        part = file.with_suffix(f".{os.getpid()}.part")
        try:
            await _write(part, chain((header, first), described))
            await asyncio.to_thread(_settle, part, file)
        finally:
            part.unlink(missing_ok=True)
        self._forget_old(state.partition)
        metrics.snapshot("written")
        log.info(
            "snapshot_written",
            partition=state.partition,
            next_offset=header.next_offset,
            bytes=file.stat().st_size,
            seconds=round(time.monotonic() - begun, 3),
        )
        return file

    async def write_due(self, shards: Iterable[Shard], events_min: int, *, last_chance: bool = False) -> None:
        """Write snapshots of the partitions that have so many events since their last one.

        A snapshot that could not be written is tried again after as many events more; with ``last_chance`` at once,
        since one that was broken off at the end of the process was none.
        """
        for shard in list(shards):
            state, last = shard.state, shard.last
            since = shard.snapshot_offset if last_chance else max(shard.snapshot_offset, shard.snapshot_tried)
            if not shard.ready.is_set() or last is None or state.next_offset - since < events_min:
                continue
            offset = shard.snapshot_tried = state.next_offset
            try:
                await self.write(state, last)
            except OSError as error:
                log.error("snapshot_failed", partition=state.partition, error=str(error), action="longer replay")
            else:
                shard.snapshot_offset = offset

    def _files(self, partition: int) -> list[Path]:
        return sorted(self._directory.glob(f"{partition}-*.snapshot"), reverse=True)

    def _forget_old(self, partition: int) -> None:
        old = time.time() - PART_AGE_S_MAX
        left_behind = [part for part in self._directory.glob("*.part") if part.stat().st_mtime < old]
        for file in (*self._files(partition)[KEPT:], *left_behind):
            file.unlink(missing_ok=True)

    def _header(self, file: Path, partition: int) -> Header:
        """The header of a whole file that agrees with this program and embedder."""
        header = _checked_header(file)
        expected = Header(
            topic=self._topic,
            partition=partition,
            embedder=self._embedder,
            next_offset=header.next_offset,
            last_record=header.last_record,
        )
        if header != expected:
            names = [name for name in Header.__slots__ if getattr(header, name) != getattr(expected, name)]
            raise UnreadableSnapshot(
                "; ".join(f"{name} {getattr(header, name)!r}, expected {getattr(expected, name)!r}" for name in names)
            )
        return header


def _state_of(file: Path) -> JournalState:
    """The state in a file, kept from the garbage collector, now and ever after.

    There are no cycles among its millions of objects, and each look for some would stop the event loop too: for 0.2 s
    at 20,000 turns.
    """
    gc.disable()
    try:
        state = restored(_sections_of(file))
        gc.freeze()
        return state
    finally:
        gc.enable()


async def _write(part: Path, items: Iterable[Any]) -> None:
    """Header, sections and digest: items are made in short slices on the loop, hashed and written in a thread."""
    encoder = msgspec.msgpack.Encoder()
    sha = hashlib.sha256()
    block = bytearray(MAGIC)
    with part.open("wb") as file:

        def put(data: bytes) -> None:
            sha.update(data)
            file.write(data)

        slice_until = time.monotonic() + SLICE_S
        for item in items:
            data = encoder.encode(item)
            block += len(data).to_bytes(_LENGTH_BYTES, "big") + data
            if len(block) >= BLOCK_BYTES:
                full, block = bytes(block), bytearray()
                await asyncio.to_thread(put, full)
                slice_until = time.monotonic() + SLICE_S
            elif time.monotonic() >= slice_until:
                await asyncio.sleep(0)
                slice_until = time.monotonic() + SLICE_S
        await asyncio.to_thread(put, bytes(block))
        file.write(sha.digest())


def _settle(part: Path, file: Path) -> None:
    """Flush to the disk, then give the file its name; the name too is flushed."""
    with part.open("rb+") as written:
        os.fsync(written.fileno())
    part.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _checked_header(file: Path) -> Header:
    """Check the whole file's digest; its header."""
    size = file.stat().st_size
    sha = hashlib.sha256()
    with file.open("rb") as content:
        left = size - _SHA_BYTES
        if left < len(MAGIC) or content.read(len(MAGIC)) != MAGIC:
            raise UnreadableSnapshot("not a snapshot, or its beginning is lost")
        sha.update(MAGIC)
        left -= len(MAGIC)
        while left and (block := content.read(min(left, BLOCK_BYTES))):
            sha.update(block)
            left -= len(block)
        if content.read(_SHA_BYTES) != sha.digest():
            raise UnreadableSnapshot("damaged: its SHA-256 does not match")
    try:
        return msgspec.convert(next(_frames(file)), Header)
    except (StopIteration, msgspec.ValidationError) as error:
        raise UnreadableSnapshot(f"its header can't be read: {error}") from error


def _sections_of(file: Path) -> Iterator[Any]:
    frames = _frames(file)
    next(frames)  # the header
    yield from frames


def _frames(file: Path) -> Iterator[Any]:
    decoder = msgspec.msgpack.Decoder()
    end = file.stat().st_size - _SHA_BYTES
    with file.open("rb", buffering=BLOCK_BYTES) as content:
        content.seek(len(MAGIC))
        while content.tell() < end:
            length = int.from_bytes(content.read(_LENGTH_BYTES), "big")
            try:
                yield decoder.decode(content.read(length))
            except msgspec.DecodeError as error:
                raise UnreadableSnapshot(f"a section can't be read: {error}") from error
