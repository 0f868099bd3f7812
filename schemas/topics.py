"""The topics: who writes them, what their key is, how many partitions they have, how long they are kept.

Invariant: nothing of ``journal`` or ``library`` is ever compacted or deleted by Kafka; they are the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
WEEK_MS = 7 * 24 * 3600 * 1000
FOREVER_MS = -1


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic, named without prefix."""

    name: str
    direction: Literal["in", "out", "internal"]
    key: str
    partitioned: bool
    """True: the partition count of owners, shared by all such topics. False: one partition."""
    retention_ms: int
    cleanup: Literal["delete", "compact"]
    summary: str

    def config(self) -> dict[str, str]:
        """Kafka topic configuration."""
        config = {"cleanup.policy": self.cleanup, "max.message.bytes": str(MESSAGE_BYTES_MAX)}
        if self.cleanup == "delete":
            config |= {"retention.ms": str(self.retention_ms), "retention.bytes": "-1"}
        return config


TOPICS: tuple[Topic, ...] = (
    Topic(
        "turns", "in", "any; user_id/role_id keeps an owner's turns in order", True, FOREVER_MS, "delete", "utterances"
    ),
    Topic("feedback", "in", "any; user_id/role_id", True, FOREVER_MS, "delete", "confirmations, denials, complaints"),
    Topic("documents", "in", "document_id", True, FOREVER_MS, "delete", "texts to know"),
    Topic("personas", "in", "role_id", False, FOREVER_MS, "delete", "persona anchors"),
    Topic("requests", "in", "any; user_id/role_id saves a hop", True, WEEK_MS, "delete", "questions to memory"),
    Topic("replies", "out", "correlation id", True, WEEK_MS, "delete", "answers without a reply topic of their own"),
    Topic("facts", "out", "user_id/role_id/key", True, FOREVER_MS, "compact", "newest value per owner and key"),
    Topic("alerts", "out", "role_id", False, FOREVER_MS, "delete", "drift alerts"),
    Topic("dead-letters", "out", "dead_letter_id", False, FOREVER_MS, "delete", "records that could not be taken"),
    Topic("journal", "internal", "user_id/role_id", True, FOREVER_MS, "delete", "what concerns one owner, in order"),
    Topic(
        "library", "internal", "document_id or role_id", False, FOREVER_MS, "delete", "what all share, in total order"
    ),
    Topic("measures", "internal", "role_id", True, FOREVER_MS, "delete", "samples on the seven axes"),
)

BY_NAME = {topic.name: topic for topic in TOPICS}


def owner_key(user_id: str, role_id: str) -> bytes:
    """Kafka key of an owner. Two owners may share a key (ids may hold "/"): it places, it does not identify.

    >>> owner_key("u42", "lin")
    b'u42/lin'
    """
    return f"{user_id}/{role_id}".encode()


def partition_of(user_id: str, role_id: str, partitions: int) -> int:
    """Partition of an owner: Java's default partitioner (murmur2) over ``owner_key``.

    So a producer in any language that keys by ``user_id/role_id`` with the Java default is right at once.

    >>> partition_of("u42", "lin", 4)
    1
    """
    return (murmur2(owner_key(user_id, role_id)) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 as in ``org.apache.kafka.common.utils.Utils.murmur2``, as unsigned 32 bits.

    >>> murmur2(b"21")  # Kafka's own test vector: -973932308
    3321034988
    """
    length = len(data)
    h = (0x9747B28C ^ length) & 0xFFFFFFFF
    m = 0x5BD1E995
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * m) & 0xFFFFFFFF
        k ^= k >> 24
        k = (k * m) & 0xFFFFFFFF
        h = ((h * m) & 0xFFFFFFFF) ^ k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * m) & 0xFFFFFFFF
    h ^= h >> 13
    h = (h * m) & 0xFFFFFFFF
    return h ^ (h >> 15)
