"""``mnemolog transcript`` and ``mnemolog restore``: what was said, letter by letter, and a broker filled from it."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import orjson
import typer

from connectors.clickhouse import ClickHouse
from connectors.log_reader import LogReader
from connectors.objects import open_objects
from connectors.ports import Objects, Record, Unavailable, UnknownTopic
from connectors.settings import Settings
from infra.stack_options import StackError
from infra.stack_registry import newest_stack
from infra.target import (
    ClickHouseOption,
    EmbeddingsOption,
    JsonOption,
    KafkaOption,
    ObjectsOption,
    PrefixOption,
    Target,
    find,
)
from schemas.topics import partition_of
from streams.archive import ARCHIVED
from streams.core.chains import (
    chain_of,
)
from streams.restore import Restored, restore
from streams.segment_store import SegmentStore
from streams.transcript import Said, Session, Transcript, TranscriptReader

TAIL_S_MAX = 60.0


def transcript(
    user: Annotated[str, typer.Option(help="User id")],
    role: Annotated[str, typer.Option(help="Role id")],
    session: Annotated[str, typer.Option(help="Session id")],
    around: Annotated[str | None, typer.Option(help="A turn id: only this turn and its neighbours")] = None,
    context: Annotated[int, typer.Option(min=0, help="How many neighbours on each side of --around")] = 5,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """What was said in a session, from the archive and, for what is not archived yet, from the journal."""
    target = find(kafka, clickhouse, embeddings, objects, prefix, need="objects")
    found = asyncio.run(_read(target, Session(user, role, session), around, context))
    if json:
        print(orjson.dumps(_as_json(found)).decode())
        return
    for said in found.turns:
        print(_line(said))
    where = f"{target.topic('journal')}[{found.partition}]"
    upto = "is not read: no broker" if found.read_to is None else f"is read to offset {found.read_to}"
    print(f"{where}: archived to offset {found.archived_to}, the rest {upto}", file=sys.stderr)


async def _read(target: Target, session: Session, around: str | None, context: int) -> Transcript:
    store = SegmentStore(opened(target.objects), target.topic("journal"))
    partitions = await store.partitions()
    if partitions is None:
        if not target.kafka:
            raise StackError(f"{target.objects} has no archive of {store.topic}, and no broker is known: give --kafka")
        with LogReader(target.kafka) as reader:
            partitions = reader.partitions(store.topic)
    partition = partition_of(session.user_id, session.role_id, partitions)
    reading = TranscriptReader(store)
    archived = await reading.archived(session, partition)
    tail, read_to = _tail(target, store.topic, partition, archived.archived_to)
    return await reading.read(session, partition, archived, tail, read_to=read_to, around=around, context=context)


def _tail(target: Target, topic: str, partition: int, start: int) -> tuple[list[Record], int | None]:
    """What the journal holds beyond the archive, and its end; (nothing, None) where it can't be read, which is said."""
    if not target.kafka:
        return [], None
    try:
        with LogReader(target.kafka) as reader:
            end = reader.ends(topic)[partition]
            if end < start:
                print(f"mnemolog: {topic}[{partition}] ends at {end}, before the archive: not read", file=sys.stderr)
                return [], None
            if end == start:
                return [], end
            records = list(reader.read(topic, {partition: start}, seconds_max=TAIL_S_MAX))
    except (Unavailable, UnknownTopic) as error:
        print(f"mnemolog: what is not archived yet is left out: {error}", file=sys.stderr)
        return [], None
    return records, records[-1].offset + 1 if records else start


def _line(said: Said) -> str:
    turn = said.turn
    who = f"{turn.speaker} ({turn.name})" if turn.name else turn.speaker
    captions = "".join(f"\n    [{caption}]" for caption in turn.captions or ())
    return f"{turn.occurred_at}  {turn.turn_id}  {who}: {turn.text}{captions}"


def _as_json(found: Transcript) -> dict[str, Any]:
    session = found.session
    return {
        "user_id": session.user_id,
        "role_id": session.role_id,
        "session_id": session.session_id,
        "partition": found.partition,
        "archived_from": found.archived_from,
        "archived_to": found.archived_to,
        "read_to": found.read_to,
        "turns": [
            {
                "turn_id": said.turn.turn_id,
                "speaker": said.turn.speaker,
                "name": said.turn.name,
                "text": said.turn.text,
                "captions": said.turn.captions,
                "occurred_at": said.turn.occurred_at,
                "recorded_at": said.turn.recorded_at,
                "offset": said.offset,
                "source": said.source,
            }
            for said in found.turns
        ],
    }


def restore_command(
    source: Annotated[str, typer.Option("--from", help="URL of the object store that holds the archive")],
    replication: Annotated[int, typer.Option(min=1, help="Copies of each topic that is made")] = 1,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Fill an empty broker from the archive: same partitions, offsets, times, keys, headers and bytes.

    Goes on where an earlier restore was cut; refuses a broker that holds anything else.
    """
    target = find(kafka, clickhouse, embeddings, source, prefix)
    local = newest_stack()
    embedded = Settings().broker == "embedded" or (
        local is not None and local.kafka == target.kafka and local.broker == "embedded"
    )
    done = asyncio.run(
        restore(opened(source), target.kafka, target.prefix, replication=replication, embedded=embedded, say=_say)
    )
    ahead = _clickhouse_ahead(target, done)
    if json:
        print(orjson.dumps({"seconds": done.seconds, "partitions": done.partitions}).decode())
    else:
        for partition in done.partitions:
            print(f"{partition.topic}[{partition.partition}]  {partition.archived_to} records, {partition.written} new")
        print(f"{done.written} records in {done.seconds:.1f} s")
    for sentence in ahead:
        _say(sentence)


def _clickhouse_ahead(target: Target, done: Restored) -> list[str]:
    """What ClickHouse has of records that the archive didn't have any more: their offsets will be given anew."""
    if not target.clickhouse:
        return []
    database = ClickHouse(target.clickhouse, Settings().clickhouse_database)
    try:
        stored = database.offsets()
    except Unavailable as error:
        return [f"ClickHouse could not be asked whether it is ahead of the archive: {error}"]
    finally:
        database.close()
    return [
        f"ClickHouse has rows of {p.topic}[{p.partition}] up to offset {stored[p.topic, p.partition] - 1}, the archive "
        f"ended at {p.archived_to - 1}: analytics would pass over new records in between; drop the database, and it is "
        "filled again from the log"
        for p in done.partitions
        if stored.get((p.topic, p.partition), 0) > p.archived_to
    ]


def opened(url: str) -> Objects:
    """The store at a URL; a wrong one is the user's matter."""
    try:
        return open_objects(url)
    except ValueError as error:
        raise StackError(str(error)) from error


def progress(target: Target) -> dict[str, Any]:
    """How far each log is archived, and how many records are in the log only: for ``status``."""
    return asyncio.run(_progress(target))


async def _progress(target: Target) -> dict[str, Any]:
    objects = opened(target.objects)
    found: dict[str, Any] = {}
    with LogReader(target.kafka) as reader:
        for name in ARCHIVED:
            store = SegmentStore(objects, target.topic(name))
            if await store.partitions() is None:
                continue
            ends = reader.ends(store.topic)
            by_partition: dict[str, dict[str, int]] = {}
            for partition, end in ends.items():
                links = chain_of(await store.spans(partition))
                archived_to = links[-1].span.next if links else 0
                by_partition[str(partition)] = {"archived_to": archived_to, "lag": end - archived_to}
            found[name] = by_partition
    return found


def _say(line: str) -> None:
    print(f"mnemolog: {line}", file=sys.stderr, flush=True)
