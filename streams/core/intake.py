"""From public records to events: what ``ingest`` appends for what it read.

Invariant: the event of a record depends on the record alone (and, for ``recorded_at``, on the time given), so a
record that is read twice gives events with the same ids, which the fold drops.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from schemas.codec import content_digest, decode
from schemas.deadletters import Cause, DeadLetter
from schemas.documents import Document, DocumentRemoved
from schemas.envelope import ContractError, derived_id, instant_of
from schemas.feedback import Feedback, FeedbackRecorded
from schemas.headers import attempts_before
from schemas.personas import Persona, PersonaDeclared
from schemas.positions import Position
from schemas.turns import Turn, TurnRecorded

VALUE_BYTES_MAX = 11 * 1024 * 1024
"""A dead letter carries value, key and headers in base64 (4/3), and must itself fit in 16 MiB."""
MESSAGE_CHARACTERS_MAX = 2_000


def turn_recorded(value: bytes | None, source: Position, recorded_at: str) -> TurnRecorded:
    """Event of a record of ``turns``; raises ``ContractError``."""
    turn: Turn = decode("turns", value)
    return TurnRecorded(
        event_id=derived_id("turn", turn.user_id, turn.role_id, turn.turn_id, content_digest(turn)),
        occurred_at=turn.occurred_at,
        recorded_at=recorded_at,
        user_id=turn.user_id,
        role_id=turn.role_id,
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        speaker=turn.speaker,
        text=turn.text,
        source=source,
        name=turn.name,
        model=turn.model,
        recall_id=turn.recall_id,
        captions=turn.captions,
        metadata=turn.metadata,
    )


def feedback_recorded(value: bytes | None, source: Position, recorded_at: str) -> FeedbackRecorded:
    """Event of a record of ``feedback``; raises ``ContractError``."""
    feedback: Feedback = decode("feedback", value)
    return FeedbackRecorded(
        event_id=derived_id("feedback", feedback.user_id, feedback.role_id, feedback.feedback_id),
        occurred_at=feedback.occurred_at,
        recorded_at=recorded_at,
        user_id=feedback.user_id,
        role_id=feedback.role_id,
        feedback_id=feedback.feedback_id,
        kind=feedback.kind,
        source=source,
        target=feedback.target,
        value=feedback.value,
        text=feedback.text,
        author=feedback.author,
    )


def persona_declared(value: bytes | None, source: Position, recorded_at: str) -> PersonaDeclared:
    """Event of a record of ``personas``; raises ``ContractError``."""
    persona: Persona = decode("personas", value)
    return PersonaDeclared(
        event_id=position_id("persona", source),
        occurred_at=persona.declared_at,
        recorded_at=recorded_at,
        role_id=persona.role_id,
        persona=persona,
        source=source,
    )


def document_of(value: bytes | None) -> Document:
    """A record of ``documents``; raises ``ContractError``."""
    document: Document = decode("documents", value)
    return document


def document_removed(document: Document, source: Position, recorded_at: str) -> DocumentRemoved:
    """Event of a document with ``deleted: true``."""
    return DocumentRemoved(
        event_id=position_id("removal", source),
        occurred_at=instant_of(source.timestamp or 0),
        recorded_at=recorded_at,
        document_id=document.document_id,
        source=source,
    )


def position_id(kind: str, source: Position, *more: str | int) -> str:
    """Id that derives from where a record stands.

    With its time, since a broker that is restored from the archive begins its input topics anew at offset 0: another
    record at the same place must not be taken for the one that was there before.
    """
    return derived_id(kind, source.topic, source.partition, source.offset, source.timestamp or 0, *more)


def dead_letter(
    error: ContractError,
    source: Position,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    at: str,
) -> DeadLetter:
    """The record with its cause. Sent twice it has the same id; posted again it counts its attempts in a header."""
    message = error.message
    attempts = attempts_before(headers) + 1
    message = message[:MESSAGE_CHARACTERS_MAX]
    others = len(key or b"") + sum(len(name) + len(raw or b"") for name, raw in headers)
    if len(value or b"") + others > VALUE_BYTES_MAX:
        message += f" (its {len(value or b'')} bytes stay at the source position: too large to carry along)"
        value = None
        if others > VALUE_BYTES_MAX:
            key, headers = None, ()
    return DeadLetter(
        dead_letter_id=position_id("dead-letter", source, attempts),
        at=at,
        source=source,
        error=Cause(code=error.code, message=message),
        headers={name: base64.b64encode(raw).decode() if raw is not None else None for name, raw in _unique(headers)},
        key_base64=base64.b64encode(key).decode() if key is not None else None,
        value_base64=base64.b64encode(value).decode() if value is not None else None,
        attempts=attempts,
    )


def _unique(headers: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    # Kafka allows a name twice; the last one is what consumers take.
    return dict(headers).items()
