"""Where segments are in an object store, and how to read a little of one.

    archive/<topic>/topic.json                                   format, topic, partition count
    archive/<topic>/<partition>/<first offset>-<next offset>.zst segments

Topics have their full name, prefix included. Several clusters may not share a URL.

Invariant: a segment is written once and never changed; it only goes when another one holds all that it held, or when
it is older than the retention. A reader for whom one goes meanwhile lists again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson

from connectors.ports import NoSuchObject, Objects, Record
from connectors.zstd import DamagedData, compress, decompress
from streams.core.chains import (
    Span,
    span_of,
)
from streams.core.segments import (
    TAIL_BYTES,
    ArchivedRecord,
    Block,
    BlockPlace,
    DamagedSegment,
    Directory,
    blocks_of,
    decode_block,
    decode_directory,
    directory_length,
    encode_block,
    encode_segment,
    records_of,
)

ROOT = "archive"
FORMAT = 1


class ArchiveError(RuntimeError):
    """An archive that can't be used as asked; one sentence for people."""

    exit_code = 1


class SegmentStore:
    """The segments of one topic."""

    def __init__(self, objects: Objects, topic: str) -> None:
        self._objects = objects
        self.topic = topic

    async def declare(self, partitions: int) -> None:
        """Note the partition count, by which an owner's partition is known without a broker.

        Raises
        ------
        ArchiveError
            The archive is of a topic with another count.
        """
        content = orjson.dumps({"format": FORMAT, "topic": self.topic, "partitions": partitions})
        if await self._objects.put_new(self._topic_file, content):
            return
        known = await self.partitions()
        if known != partitions:
            raise ArchiveError(
                f"the archive of {self.topic} has {known} partitions, the broker has {partitions}: it is of another "
                "cluster; set another MNEMOLOG_OBJECTS"
            )

    async def partitions(self) -> int | None:
        """Partition count of the archived topic; None: it was never archived.

        Raises
        ------
        ArchiveError
            It was archived in a format that this program doesn't know.
        """
        try:
            content = orjson.loads(await self._objects.get(self._topic_file))
        except NoSuchObject:
            return None
        except orjson.JSONDecodeError as error:
            raise ArchiveError(f"{self._topic_file} is damaged: {error}; restore it from a copy") from error
        if content.get("format") != FORMAT:
            raise ArchiveError(
                f"the archive of {self.topic} has format {content.get('format')!r}, expected {FORMAT}: "
                "use the version of mnemolog that wrote it"
            )
        return int(content["partitions"])

    async def spans(self, partition: int) -> Mapping[Span, int]:
        """Sizes in bytes of all segments of a partition."""
        items = await self._objects.list(self._of(partition))
        found = {span_of(item.path.rpartition("/")[2]): item.size for item in items}
        return {span: size for span, size in found.items() if span is not None}

    async def put(self, partition: int, blocks: Sequence[Block]) -> tuple[Span, int]:
        """Store a segment; what it covers, and its size. One of that name holds the same records already."""
        data = encode_segment(self.topic, partition, blocks)
        span = Span(blocks[0].first, blocks[-1].next)
        await self._objects.put_new(self._path(partition, span), data)
        return span, len(data)

    async def blocks(self, partition: int, span: Span, size: int) -> list[Block]:
        """All blocks of a segment, still compressed, each compared with its digest: two reads."""
        directory = await self.directory(partition, span, size)
        data = await self._objects.get(self._path(partition, span))
        try:
            return blocks_of(data, directory)
        except DamagedSegment as error:
            raise self._damaged(partition, span, error) from error

    def records(self, partition: int, block: Block) -> list[ArchivedRecord]:
        """The records of a block that was read whole."""
        try:
            return records_of(block, decompress)
        except (DamagedSegment, DamagedData) as error:
            raise self._damaged(partition, Span(block.first, block.next), error) from error

    async def directory(self, partition: int, span: Span, size: int) -> Directory:
        """What a segment says of itself: one read, two where it says much."""
        path = self._path(partition, span)
        tail = await self._objects.get_range(path, max(0, size - TAIL_BYTES), TAIL_BYTES)
        try:
            if (length := directory_length(tail)) > len(tail) and length <= size:
                tail = await self._objects.get_range(path, size - length, length)
            directory = decode_directory(tail)
        except DamagedSegment as error:
            raise self._damaged(partition, span, error) from error
        if (directory.topic, directory.partition, directory.span) != (self.topic, partition, span):
            found = f"{directory.topic}[{directory.partition}] {directory.first} to {directory.next - 1}"
            raise ArchiveError(f"{path} holds {found}: it was renamed or moved; put it back")
        return directory

    async def index(self, partition: int, directory: Directory) -> bytes:
        """The index of a segment: one read."""
        path = self._path(partition, directory.span)
        return await self._objects.get_range(path, directory.index_at, directory.index_length)

    async def block(self, partition: int, span: Span, place: BlockPlace) -> list[ArchivedRecord]:
        """The records of a block: one read."""
        data = await self._objects.get_range(self._path(partition, span), place.at, place.length)
        try:
            return decode_block(data, place, decompress)
        except (DamagedSegment, DamagedData) as error:
            raise self._damaged(partition, span, error) from error

    async def delete(self, partition: int, spans: Iterable[Span]) -> None:
        """Delete segments."""
        await self._objects.delete([self._path(partition, span) for span in spans])

    def _damaged(self, partition: int, span: Span, error: Exception) -> ArchiveError:
        return ArchiveError(f"{self._path(partition, span)}: {error}; restore this object from a copy")

    @property
    def _topic_file(self) -> str:
        return f"{ROOT}/{self.topic}/topic.json"

    def _of(self, partition: int) -> str:
        return f"{ROOT}/{self.topic}/{partition}"

    def _path(self, partition: int, span: Span) -> str:
        return f"{self._of(partition)}/{span.name}"


def block_of(records: Sequence[ArchivedRecord], first: int) -> Block:
    """A block of records, compressed."""
    return encode_block(records, compress, first=first)


def archived(record: Record) -> ArchivedRecord:
    """What the archive keeps of a record."""
    return ArchivedRecord(record.offset, record.timestamp, record.key, record.value, record.headers)


async def archived_topics(objects: Objects) -> list[str]:
    """Names of the topics that a store has archives of."""
    ends = "/topic.json"
    paths = [item.path for item in await objects.list(ROOT)]
    return [path.removeprefix(f"{ROOT}/").removesuffix(ends) for path in paths if path.endswith(ends)]
