"""Builders of messages, records and events with sensible defaults, in Chinese and English.

Each takes overrides by name; ``sequence`` numbers give ids and times that rise.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from connectors.inprocess import START_MS
from connectors.ports import Header, Record
from schemas import headers
from schemas.envelope import derived_id, instant_of
from schemas.memories import FactStatement, MemoriesExtracted
from schemas.positions import Position
from schemas.turns import TurnEmbedded, TurnRecorded, TurnRefused
from streams.core import intake
from streams.core.segmenting import segment_id

MINUTE_MS = 60_000
TEXTS = (
    "昨天晚上吃了馄饨",
    "Sounds good, which filling?",
    "荠菜猪肉馅，我最喜欢",
    "I will remember that you like wontons",
    "My sister Anna moved to Lisbon",
    "里斯本的海边很美",
)


def at(sequence: int) -> str:
    """Time of the ``sequence``-th thing that happens: one a minute."""
    return instant_of(START_MS + sequence * MINUTE_MS)


def turn(sequence: int = 0, **given: Any) -> dict[str, Any]:
    """A message of ``turns``; speakers alternate."""
    values: dict[str, Any] = {
        "type": "turn",
        "version": 1,
        "turn_id": f"t-{sequence}",
        "user_id": "u42",
        "role_id": "lin",
        "session_id": "s1",
        "speaker": ("user", "assistant")[sequence % 2],
        "text": TEXTS[sequence % len(TEXTS)],
        "occurred_at": at(sequence),
    }
    return values | given


def feedback(sequence: int = 0, **given: Any) -> dict[str, Any]:
    """A message of ``feedback``: a confirmation of a turn."""
    values: dict[str, Any] = {
        "type": "feedback",
        "version": 1,
        "feedback_id": f"f-{sequence}",
        "user_id": "u42",
        "role_id": "lin",
        "kind": "confirm",
        "target": {"turn_id": "t-0"},
        "occurred_at": at(sequence),
    }
    return values | given


def document(sequence: int = 0, **given: Any) -> dict[str, Any]:
    """A message of ``documents``."""
    values: dict[str, Any] = {
        "type": "document",
        "version": 1,
        "document_id": f"d-{sequence}",
        "title": "馄饨的做法",
        "source": "kitchen",
        "text": "馄饨要用薄皮，水开下锅。\n\nWontons are boiled for six minutes; then add the shepherd's purse.",
    }
    return values | given


def persona(sequence: int = 0, **given: Any) -> dict[str, Any]:
    """A message of ``personas``."""
    values: dict[str, Any] = {
        "type": "persona",
        "version": 1,
        "role_id": "lin",
        "name": "林",
        "core": "温和的朋友，喜欢做饭。",
        "boundaries": ["never gives medical advice"],
        "declared_at": at(sequence),
    }
    return values | given


def request(sequence: int = 0, **given: Any) -> dict[str, Any]:
    """A message of ``requests``."""
    values: dict[str, Any] = {
        "type": "request",
        "version": 1,
        "request_id": f"q-{sequence}",
        "kind": "assemble",
        "user_id": "u42",
        "role_id": "lin",
        "query": "我昨天吃了什么？ What did I eat?",
    }
    return values | given


def request_headers(
    *,
    correlation: bytes | None = b"c-0",
    topic: str | None = None,
    partition: int | None = None,
    deadline_ms: int | None = None,
) -> tuple[Header, ...]:
    """Headers of a request, as Spring's template sets them, and a deadline."""
    found: list[Header] = []
    if topic is not None:
        found.append((headers.REPLY_TOPIC, topic.encode()))
    if partition is not None:
        found.append((headers.REPLY_PARTITION, headers.partition_header(partition)))
    if correlation is not None:
        found.append((headers.CORRELATION_ID, correlation))
    if deadline_ms is not None:
        found.append((headers.DEADLINE, str(deadline_ms).encode()))
    return tuple(found)


def record(
    topic: str,
    value: Any,
    *,
    partition: int = 0,
    offset: int = 0,
    timestamp: int = START_MS,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
) -> Record:
    """A record of a topic (full name); a value that is not bytes is written as JSON."""
    raw = value if isinstance(value, bytes) or value is None else orjson.dumps(value)
    return Record(topic, partition, offset, timestamp, key, raw, tuple(headers))


def position(sequence: int = 0, topic: str = "mnemolog.turns", partition: int = 0) -> Position:
    """Where the ``sequence``-th record of a topic stands."""
    return Position(topic=topic, partition=partition, offset=sequence, timestamp=START_MS + sequence * MINUTE_MS)


def turn_recorded(sequence: int = 0, **given: Any) -> TurnRecorded:
    """The event that intake makes of ``turn(sequence, **given)``."""
    return intake.turn_recorded(orjson.dumps(turn(sequence, **given)), position(sequence), at(sequence))


def turn_embedded(event: TurnRecorded, vector: Sequence[int], embedder: str = "hash-64#0") -> TurnEmbedded:
    """The effect of embedding a turn."""
    return TurnEmbedded(
        event_id=derived_id(event.event_id, "TurnEmbedded", embedder),
        occurred_at=event.recorded_at,
        recorded_at=event.recorded_at,
        user_id=event.user_id,
        role_id=event.role_id,
        turn_id=event.turn_id,
        embedder=embedder,
        vector=base64.b64encode(np.asarray(vector, dtype=np.int8).tobytes()).decode(),
        causation_id=event.event_id,
    )


def memories_extracted(event: TurnRecorded, *facts: tuple[str, str, str], **given: Any) -> MemoriesExtracted:
    """The extraction of a segment of one turn, with facts as (key, value, kind)."""
    values: dict[str, Any] = {
        "event_id": derived_id(event.event_id, "MemoriesExtracted"),
        "occurred_at": event.occurred_at,
        "recorded_at": event.recorded_at,
        "user_id": event.user_id,
        "role_id": event.role_id,
        "segment_id": segment_id(event.event_id),
        "session_id": event.session_id,
        "reason": "idle",
        "first_turn_id": event.turn_id,
        "last_turn_id": event.turn_id,
        "turns": 1,
        "method": "rules",
        "policy": "newest_explicit",
        "facts": tuple(
            FactStatement(
                key=key,
                value=value,
                norm=value.casefold(),
                kind=kind,  # type: ignore[arg-type]
                multi=key == "likes",
                text=f"User's {key}: {value}",
                confidence=0.9,
                importance=3,
                turn_id=event.turn_id,
                start=0,
                end=len(event.text),
                said_at=event.occurred_at,
            )
            for key, value, kind in facts
        ),
        "causation_id": event.event_id,
    }
    return MemoriesExtracted(**values | given)


def turn_refused(event: TurnRecorded) -> TurnRefused:
    """The effect of refusing a conflicting duplicate."""
    return TurnRefused(
        event_id=derived_id(event.event_id, "TurnRefused"),
        occurred_at=event.recorded_at,
        recorded_at=event.recorded_at,
        user_id=event.user_id,
        role_id=event.role_id,
        turn_id=event.turn_id,
        dead_letter_id=intake.position_id("dead-letter", event.source, 1),
        causation_id=event.event_id,
    )
