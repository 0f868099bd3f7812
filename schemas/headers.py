"""Kafka headers of requests and replies: Spring's ReplyingKafkaTemplate, plus a deadline; and those of a retry.

A Java client's template works unchanged: it sets the three Spring headers, we return the correlation id's bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.envelope import ContractError

REPLY_TOPIC = "kafka_replyTopic"
REPLY_PARTITION = "kafka_replyPartition"
CORRELATION_ID = "kafka_correlationId"
DEADLINE = "mnemolog_deadline"
FORWARDED = "mnemolog_forwarded"
"""Added when a request is forwarded to its owner's partition: where it arrived, ``partition/offset/timestamp``."""
ATTEMPTS = "mnemolog_attempts"
"""Added when a dead letter is posted again: how often the record was tried before, in ASCII digits."""
RETRY_OF = "mnemolog_retry_of"
"""Added when a dead letter is posted again: its id."""

Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """Where a reply goes. ``partition`` None: Kafka chooses by the correlation id."""

    topic: str
    partition: int | None
    correlation_id: bytes | None


class BadHeader(ContractError):
    """A header that breaks the contract; ``reply_to`` is where the error can still be told, if anywhere."""

    def __init__(self, message: str, reply_to: ReplyTo | None) -> None:
        super().__init__("bad_header", message)
        self.reply_to = reply_to


def reply_to(headers: Headers, default_topic: str) -> ReplyTo:
    """Where the sender wants its reply; raises ``BadHeader``."""
    named = dict(headers)
    correlation = named.get(CORRELATION_ID)
    raw_topic = named.get(REPLY_TOPIC)
    try:
        topic = raw_topic.decode("utf-8") if raw_topic else default_topic
    except UnicodeDecodeError as error:
        raise BadHeader(f"{REPLY_TOPIC} is not UTF-8: {raw_topic!r}", None) from error
    raw = named.get(REPLY_PARTITION)
    if raw is None:
        return ReplyTo(topic, None, correlation)
    if len(raw) != 4:
        message = f"{REPLY_PARTITION} has {len(raw)} bytes; expected 4 (int32, big endian)"
        raise BadHeader(message, ReplyTo(topic, None, correlation))
    return ReplyTo(topic, struct.unpack(">i", raw)[0], correlation)


def deadline_ms(headers: Headers) -> int | None:
    """Milliseconds since the epoch until which somebody waits; raises ``BadHeader``."""
    raw = dict(headers).get(DEADLINE)
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > 15:
        raise BadHeader(f"{DEADLINE} is {raw[:40]!r}; expected milliseconds since the epoch in ASCII digits", None)
    return int(raw)


def forwarded_header(partition: int, offset: int, timestamp: int) -> bytes:
    """Value of ``mnemolog_forwarded``.

    >>> forwarded_header(3, 17, 1779235200000)
    b'3/17/1779235200000'
    """
    return f"{partition}/{offset}/{timestamp}".encode()


def forwarded_from(headers: Headers) -> tuple[int, int, int] | None:
    """Partition, offset and timestamp at which a forwarded request arrived; None: it was not, or says no such thing.

    >>> forwarded_from([("mnemolog_forwarded", b"3/17/1779235200000")]), forwarded_from([("mnemolog_forwarded", b"3")])
    ((3, 17, 1779235200000), None)
    """
    raw = (dict(headers).get(FORWARDED) or b"").split(b"/")
    if len(raw) != 3 or not all(part.isdigit() and len(part) < 19 for part in raw):
        return None
    return int(raw[0]), int(raw[1]), int(raw[2])


def attempts_before(headers: Headers) -> int:
    """How often a record was tried before; 0 without the header, or with one that makes no sense.

    >>> attempts_before([("mnemolog_attempts", b"2")]), attempts_before([])
    (2, 0)
    """
    raw = dict(headers).get(ATTEMPTS) or b""
    return int(raw) if raw.isdigit() and len(raw) < 6 else 0


def partition_header(partition: int) -> bytes:
    """Value of ``kafka_replyPartition``.

    >>> partition_header(3)
    b'\\x00\\x00\\x00\\x03'
    """
    return struct.pack(">i", partition)
