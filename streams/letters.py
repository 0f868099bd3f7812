"""Dead letters on their way to the log, and where a record came from: one piece for the roles that write them."""

from __future__ import annotations

from connectors.ports import Outgoing, Record
from connectors.settings import Settings
from schemas.codec import encode
from schemas.deadletters import DeadLetter
from schemas.envelope import cloud_event_headers
from schemas.headers import forwarded_from
from schemas.positions import Position


def outgoing(settings: Settings, letter: DeadLetter) -> Outgoing:
    """The record of ``dead-letters`` that holds a letter, keyed by its id."""
    return Outgoing(
        topic=settings.topic("dead-letters"),
        value=encode(letter),
        key=letter.dead_letter_id.encode(),
        headers=tuple(cloud_event_headers("dead_letter", 1, letter.dead_letter_id, letter.at)),
    )


def source_of(record: Record) -> Position:
    """Where a record stands."""
    return Position(topic=record.topic, partition=record.partition, offset=record.offset, timestamp=record.timestamp)


def origin_of(record: Record) -> Position:
    """Where a request was posted: for one that was forwarded, perhaps twice, the place that it was forwarded from."""
    first = forwarded_from(record.headers)
    if first is None:
        return source_of(record)
    return Position(topic=record.topic, partition=first[0], offset=first[1], timestamp=first[2])
