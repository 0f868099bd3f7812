"""Segments of the raw transcript: records of one partition in compressed blocks, with an index of their turns.

    magic · blocks · index · directory · trailer

A block holds some 64 KiB of records as MessagePack, compressed as one piece, so one record costs one block. The index
has a row of hashes for each turn, sorted by session; the directory says where blocks and index are, and holds a bloom
filter over owners and sessions. The trailer has a fixed size, so directory and filter come with one read of the tail.
Each block, the index and the directory carry a digest.

Invariants: equal records give equal bytes; what ``decode_block`` returns are the bytes that were put in.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from streams.core.chains import Span

MAGIC = b"mnemolog segment 1\n"
BLOCK_BYTES = 64 * 1024
"""Raw bytes after which a block is closed: zstd has its context by then, and one turn is still one small read."""
RECORD_OVERHEAD_BYTES = 24
"""Offset, time and framing of a record in a block, to estimate its size before it is encoded."""
BLOOM_BITS_PER_KEY = 12
BLOOM_HASHES = 6
"""12 bits and 6 hashes: 0.5 % false hits; each costs one needless read of an index."""
TAIL_BYTES = 32 * 1024
"""What is read of a segment's end at first: enough for the directory of 4 MiB, about 200 blocks."""

_TRAILER = struct.Struct(">I16s8s")
_END = b"mnemoseg"
_INDEX = np.dtype([("session", "<u8"), ("owner", "<u8"), ("turn", "<u8"), ("block", "<u4"), ("row", "<u4")])

Compress = Callable[[bytes], bytes]
Decompress = Callable[[bytes], bytes]
Header = tuple[str, bytes | None]


class DamagedSegment(ValueError):
    """A segment whose bytes are not those that were written."""


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A record as the log had it. ``timestamp`` in ms since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def size(self) -> int:
        """Bytes that it takes in a block, about."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + RECORD_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class TurnPlace:
    """A turn in a block: hashes of owner, session and turn, and which record of the block it is."""

    owner: int
    session: int
    turn: int
    row: int


@dataclass(frozen=True, slots=True)
class Block:
    """A closed block: its bytes, and what the directory and the index say of it."""

    first: int
    next: int
    count: int
    time_max: int
    raw_bytes: int
    data: bytes
    digest: bytes
    turns: tuple[TurnPlace, ...]


class BlockPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a block is in its segment."""

    at: int
    length: int
    raw_bytes: int
    first: int
    next: int
    count: int
    time_max: int
    digest: bytes


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment says of itself."""

    topic: str
    partition: int
    first: int
    next: int
    time_max: int
    """Time of the newest record, in ms since the epoch."""
    blocks: tuple[BlockPlace, ...]
    bloom: bytes
    index_at: int
    index_length: int
    index_digest: bytes

    @property
    def span(self) -> Span:
        """The offsets that it covers."""
        return Span(self.first, self.next)

    def may_hold(self, key_hash: int) -> bool:
        """Whether turns of an owner or a session may be in it; False is certain."""
        return _bloom_has(self.bloom, key_hash)


class _TurnKey(msgspec.Struct):
    """The fields of an event by which a turn is found; all others are skipped."""

    type: str
    user_id: str
    role_id: str
    session_id: str
    turn_id: str


_turn_keys = msgspec.json.Decoder(_TurnKey)
_encoder = msgspec.msgpack.Encoder()
_rows = msgspec.msgpack.Decoder(list[tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]])


# -- hashes ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def owner_hash(user_id: str, role_id: str) -> int:
    """64 bits for an owner; what is found by them is compared with the ids themselves."""
    return _hash("owner", user_id, role_id)


@lru_cache(maxsize=65536)
def session_hash(user_id: str, role_id: str, session_id: str) -> int:
    """64 bits for a session of an owner."""
    return _hash("session", user_id, role_id, session_id)


def turn_hash(turn_id: str) -> int:
    """64 bits for a turn id, looked for among the rows of a session."""
    return _hash("turn", turn_id)


def _hash(*parts: str) -> int:
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


# -- writing --------------------------------------------------------------------------------------------------------


def encode_block(records: Sequence[ArchivedRecord], compress: Compress, *, first: int | None = None) -> Block:
    """Close a block.

    Parameters
    ----------
    records : sequence of ArchivedRecord
        At least one, offsets rising.
    first : int, optional
        Where the block before ends, if the log has no record there: the block covers the hole.
    """
    raw = _encoder.encode([(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records])
    data = compress(raw)
    return Block(
        first=records[0].offset if first is None else first,
        next=records[-1].offset + 1,
        count=len(records),
        time_max=max(record.timestamp for record in records),
        raw_bytes=len(raw),
        data=data,
        digest=_digest(data),
        turns=tuple(_places(records)),
    )


def _places(records: Sequence[ArchivedRecord]) -> Iterator[TurnPlace]:
    for row, record in enumerate(records):
        # Most records are effects; a search for the bytes is a tenth of parsing them.
        if record.value is None or b'"TurnRecorded"' not in record.value:
            continue
        try:
            key = _turn_keys.decode(record.value)
        except msgspec.DecodeError:  # not a turn: the archive takes every record, whatever it is
            continue
        if key.type == "TurnRecorded":
            owner = (key.user_id, key.role_id)
            yield TurnPlace(owner_hash(*owner), session_hash(*owner, key.session_id), turn_hash(key.turn_id), row)


def encode_segment(topic: str, partition: int, blocks: Sequence[Block]) -> bytes:
    """A segment of blocks that follow each other without a gap."""
    for before, after in pairwise(blocks):
        if after.first < before.next:
            raise ValueError(f"block {after.first} begins before {before.next}, where the one before it ends")
    parts: list[bytes] = [MAGIC]
    places: list[BlockPlace] = []
    at = len(MAGIC)
    for block in blocks:
        places.append(
            BlockPlace(
                at, len(block.data), block.raw_bytes, block.first, block.next, block.count, block.time_max, block.digest
            )
        )
        parts.append(block.data)
        at += len(block.data)
    rows = np.array(
        [(turn.session, turn.owner, turn.turn, n, turn.row) for n, block in enumerate(blocks) for turn in block.turns],
        dtype=_INDEX,
    )
    rows.sort(order=("session", "block", "row"))
    index = rows.tobytes()
    keys = sorted({key for block in blocks for turn in block.turns for key in (turn.owner, turn.session)})
    directory = msgspec.msgpack.encode(
        Directory(
            topic=topic,
            partition=partition,
            first=blocks[0].first,
            next=blocks[-1].next,
            time_max=max(block.time_max for block in blocks),
            blocks=tuple(places),
            bloom=_bloom_of(keys),
            index_at=at,
            index_length=len(index),
            index_digest=_digest(index),
        )
    )
    return b"".join((*parts, index, directory, _TRAILER.pack(len(directory), _digest(directory), _END)))


def _bloom_of(keys: Sequence[int]) -> bytes:
    if not keys:
        return b""
    bits = np.zeros(max(64, (len(keys) * BLOOM_BITS_PER_KEY + 7) // 8 * 8), dtype=np.bool_)
    for key in keys:
        for place in _bloom_places(key, len(bits)):
            bits[place] = True
    return np.packbits(bits).tobytes()


def _bloom_has(bloom: bytes, key: int) -> bool:
    size = len(bloom) * 8
    return bool(size) and all(bloom[p >> 3] & (0x80 >> (p & 7)) for p in _bloom_places(key, size))


def _bloom_places(key: int, size: int) -> Iterator[int]:
    low, high = key & 0xFFFFFFFF, (key >> 32) | 1
    return ((low + number * high) % size for number in range(BLOOM_HASHES))


# -- reading --------------------------------------------------------------------------------------------------------


def directory_length(tail: bytes) -> int:
    """Bytes that directory and trailer take at the end of a segment.

    Raises
    ------
    DamagedSegment
        There is no trailer.
    """
    if len(tail) < _TRAILER.size or not tail.endswith(_END):
        raise DamagedSegment("its end is missing: it was cut, or is no segment")
    return int(_TRAILER.unpack(tail[-_TRAILER.size :])[0]) + _TRAILER.size


def decode_directory(tail: bytes) -> Directory:
    """The directory in a tail of at least ``directory_length`` bytes; raises ``DamagedSegment``."""
    length = directory_length(tail)
    if length > len(tail):
        raise DamagedSegment(f"its directory has {length} bytes, only {len(tail)} are there")
    _, digest, _ = _TRAILER.unpack(tail[-_TRAILER.size :])
    raw = tail[-length : -_TRAILER.size]
    if _digest(raw) != digest:
        raise DamagedSegment("its directory is damaged: the digest does not match")
    try:
        return msgspec.msgpack.decode(raw, type=Directory)
    except msgspec.DecodeError as error:
        raise DamagedSegment(f"its directory can't be read: {error}") from error


def decode_block(data: bytes, place: BlockPlace, decompress: Decompress) -> list[ArchivedRecord]:
    """The records of a block that was read alone; raises ``DamagedSegment``."""
    check_block(data, place)
    return _records(data, decompress)


def records_of(block: Block, decompress: Decompress) -> list[ArchivedRecord]:
    """The records of a block that was read with its segment; raises ``DamagedSegment``."""
    return _records(block.data, decompress)


def _records(data: bytes, decompress: Decompress) -> list[ArchivedRecord]:
    try:
        return [ArchivedRecord(*row) for row in _rows.decode(decompress(data))]
    except msgspec.DecodeError as error:
        raise DamagedSegment(f"a block can't be read: {error}") from error


def check_block(data: bytes, place: BlockPlace) -> None:
    """Compare a block's bytes with its digest; raises ``DamagedSegment``."""
    if len(data) != place.length or _digest(data) != place.digest:
        raise DamagedSegment(f"the block of offsets {place.first} to {place.next - 1} is damaged")


def blocks_of(segment: bytes, directory: Directory) -> list[Block]:
    """All blocks of a whole segment, as they were when they were closed; raises ``DamagedSegment``."""
    if not segment.startswith(MAGIC):
        raise DamagedSegment(f"it does not begin with {MAGIC!r}")
    rows = _index_rows(segment[directory.index_at : directory.index_at + directory.index_length], directory)
    turns: dict[int, list[TurnPlace]] = {}
    for row in np.sort(rows, order=("block", "row")):
        turn = TurnPlace(int(row["owner"]), int(row["session"]), int(row["turn"]), int(row["row"]))
        turns.setdefault(int(row["block"]), []).append(turn)
    found = []
    for number, place in enumerate(directory.blocks):
        data = segment[place.at : place.at + place.length]
        check_block(data, place)
        found.append(
            Block(
                first=place.first,
                next=place.next,
                count=place.count,
                time_max=place.time_max,
                raw_bytes=place.raw_bytes,
                data=data,
                digest=place.digest,
                turns=tuple(turns.get(number, ())),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Hit:
    """Where an index says that a turn of a session is; the record itself has the last word."""

    block: int
    row: int
    turn: int
    """Hash of the turn id."""


def find_in_index(index: bytes, directory: Directory, session: int) -> list[Hit]:
    """Turns of a session in order of offset."""
    rows = _index_rows(index, directory)
    low, high = (int(np.searchsorted(rows["session"], np.uint64(session), side)) for side in ("left", "right"))
    return [Hit(int(row["block"]), int(row["row"]), int(row["turn"])) for row in rows[low:high]]


def owner_in_index(index: bytes, directory: Directory, owner: int) -> bool:
    """Whether an owner has turns in a segment."""
    return bool((_index_rows(index, directory)["owner"] == np.uint64(owner)).any())


def _index_rows(index: bytes, directory: Directory) -> NDArray[np.void]:
    if len(index) != directory.index_length or _digest(index) != directory.index_digest:
        raise DamagedSegment("its index is damaged: the digest does not match")
    return np.frombuffer(index, dtype=_INDEX)
