"""From events to rows of ClickHouse: columns named as the fields of the contract, positions beside them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import orjson

from schemas.deadletters import DeadLetter
from schemas.envelope import instant_ms
from schemas.feedback import FeedbackRecorded
from schemas.memories import Conflict, Fact, FactsOfKey, MemoriesExtracted
from schemas.recalls import EvidenceRecord, RecallAnswered
from schemas.responses import AtomDistilled, ResponseGraded
from schemas.turns import TurnRecorded
from streams.core.continuity import claims_of_past

COLUMNS: dict[str, tuple[str, ...]] = {
    "turns_rows": (
        "user_id", "role_id", "turn_id", "session_id", "speaker", "text", "occurred_at", "recorded_at", "name", "model",
        "recall_id", "captions", "metadata", "event_id", "kafka_topic", "kafka_partition", "kafka_offset",
    ),
    "recalls_rows": (
        "recall_id", "request_id", "kind", "user_id", "role_id", "session_id", "query", "occurred_at", "recorded_at",
        "preset", "config_digest", "parameters", "watermark", "round", "evidence_count", "messages_sha256",
        "temperature", "anchor", "anchor_repeated", "timings_ms", "total_ms", "event_id", "kafka_topic",
        "kafka_partition", "kafka_offset",
    ),
    "recall_evidence_rows": (
        "recall_id", "mark", "path", "id", "user_id", "role_id", "speaker", "source", "turn_id", "document_id",
        "occurred_at", "round", "rounds_ago", "score", "parts", "recalled_at", "evidence_topic", "evidence_partition",
        "evidence_offset", "kafka_topic", "kafka_partition", "kafka_offset",
    ),
    "dead_letters_rows": (
        "dead_letter_id", "at", "source_topic", "source_partition", "source_offset", "source_timestamp", "headers",
        "key_base64", "value_base64", "error_code", "error_message", "attempts", "kafka_topic", "kafka_partition",
        "kafka_offset",
    ),
    "facts_rows": (
        "user_id", "role_id", "memory_id", "fact_key", "value", "status", "why", "confidence", "importance",
        "confirmation", "multi", "valid_from", "valid_to", "conflict_id", "source_turn_id", "source_turns", "said_at",
        "last_verified_at", "changed_at", "changed_offset", "change_number", "recorded_at", "journal_partition",
        "journal_offset", "kafka_topic", "kafka_partition", "kafka_offset",
    ),
    "conflicts_rows": (
        "conflict_id", "user_id", "role_id", "fact_key", "status", "opened_at", "opened_offset", "memory_ids", "values",
        "winner", "closed_at", "closed_by", "kafka_topic", "kafka_partition", "kafka_offset",
    ),
    "summaries_rows": (
        "memory_id", "user_id", "role_id", "session_id", "text", "importance", "method", "reason", "first_turn_id",
        "last_turn_id", "turns", "occurred_at", "recorded_at", "event_id", "kafka_topic", "kafka_partition",
        "kafka_offset",
    ),
    "extractions_rows": (
        "segment_id", "user_id", "role_id", "session_id", "method", "fallback", "reason", "policy", "turns",
        "statements", "judgements", "summarised", "redacted", "latency_ms", "tokens_in", "tokens_out", "cost",
        "occurred_at", "recorded_at", "event_id", "kafka_topic", "kafka_partition", "kafka_offset",
    ),
    "responses_rows": (
        "response_id", "recall_id", "user_id", "role_id", "session_id", "model", "round", "response", "analysis",
        "faults", "marks", "unknown_marks", "need", "plausibility", "compliance", "violation_rules", "violation_texts",
        "unsupported_claims", "past_claims", "method", "final", "repaired", "attempt", "anchor", "anchor_repeated",
        "temperature", "latency_ms", "tokens_in", "tokens_out", "turn_ids", "occurred_at", "recorded_at", "kafka_topic",
        "kafka_partition", "kafka_offset",
    ),
    "atoms_rows": (
        "memory_id", "recall_id", "user_id", "role_id", "session_id", "round", "query", "analysis", "response", "text",
        "need", "parents", "sources", "turn_ids", "importance", "method", "occurred_at", "recorded_at", "event_id",
        "kafka_topic", "kafka_partition", "kafka_offset",
    ),
    "reviews_rows": (
        "feedback_id", "user_id", "role_id", "recall_id", "turn_id", "dimension", "verdict", "author", "note",
        "occurred_at", "recorded_at", "event_id", "kafka_topic", "kafka_partition", "kafka_offset",
    ),
    "kafka_offsets": ("kafka_topic", "kafka_partition", "next_offset"),
}  # fmt: skip

Row = tuple[str, tuple[Any, ...]]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rows_of(event: Any, topic: str, partition: int, offset: int) -> Iterator[Row]:
    """(table, row) pairs of an event; none for events that no table keeps."""
    at = (topic, partition, offset)
    match event:
        case TurnRecorded():
            yield "turns_rows", (*_turn(event), *at)
        case RecallAnswered():
            yield "recalls_rows", (*_recall(event), *at)
            for item in event.evidence:
                yield "recall_evidence_rows", (*_evidence(event, item), *at)
        case MemoriesExtracted():
            yield "extractions_rows", (*_extraction(event), *at)
            if event.summary is not None:
                yield "summaries_rows", (*_summary(event), *at)
        case ResponseGraded():
            yield "responses_rows", (*_response(event), *at)
        case AtomDistilled():
            yield "atoms_rows", (*_atom(event), *at)
        case FeedbackRecorded() if event.kind == "review" and event.target is not None:
            yield "reviews_rows", (*_review(event), *at)
        case FactsOfKey():
            for fact in event.facts:
                for row in _fact(event, fact):
                    yield "facts_rows", (*row, *at)
            for conflict in event.conflicts:
                yield "conflicts_rows", (*_conflict(event, conflict), *at)
        case DeadLetter():
            yield "dead_letters_rows", (*_dead_letter(event), *at)


def moment(instant: str) -> dt.datetime:
    """UTC datetime, to the millisecond, of an instant of the contract."""
    return _EPOCH + dt.timedelta(milliseconds=instant_ms(instant))


def _turn(event: TurnRecorded) -> tuple[Any, ...]:
    return (
        event.user_id, event.role_id, event.turn_id, event.session_id, event.speaker, event.text,
        moment(event.occurred_at), moment(event.recorded_at), event.name, event.model, event.recall_id,
        list(event.captions or ()), _json(event.metadata), event.event_id,
    )  # fmt: skip


def _recall(event: RecallAnswered) -> tuple[Any, ...]:
    request = event.request
    return (
        event.recall_id, request.request_id, request.kind, event.user_id, event.role_id, request.session_id,
        request.query, moment(event.occurred_at), moment(event.recorded_at), event.preset, event.config_digest,
        _json(event.parameters), _json(event.watermark), event.round, len(event.evidence), event.messages_sha256,
        event.temperature, event.anchor, event.anchor_repeated, event.timings_ms, event.timings_ms.get("total", 0.0),
        event.event_id,
    )  # fmt: skip


def _evidence(event: RecallAnswered, item: EvidenceRecord) -> tuple[Any, ...]:
    position = item.position
    return (
        event.recall_id, item.mark, item.path, item.id, event.user_id, event.role_id, item.speaker, item.source,
        item.turn_id, item.document_id, moment(item.occurred_at) if item.occurred_at else None, item.round,
        item.rounds_ago, item.score, item.parts, moment(event.occurred_at), position.topic, position.partition,
        position.offset,
    )  # fmt: skip


def _extraction(event: MemoriesExtracted) -> tuple[Any, ...]:
    return (
        event.segment_id, event.user_id, event.role_id, event.session_id, event.method, event.fallback, event.reason,
        event.policy, event.turns, len(event.facts), len(event.judgements), event.summary is not None, event.redacted,
        event.latency_ms, _bounded(event.tokens_in, 32), _bounded(event.tokens_out, 32), event.cost,
        moment(event.occurred_at),
        moment(event.recorded_at), event.event_id,
    )  # fmt: skip


def _summary(event: MemoriesExtracted) -> tuple[Any, ...]:
    assert event.summary is not None
    return (
        event.summary.memory_id, event.user_id, event.role_id, event.session_id, event.summary.text,
        event.summary.importance, event.method, event.reason, event.first_turn_id, event.last_turn_id, event.turns,
        moment(event.occurred_at), moment(event.recorded_at), event.event_id,
    )  # fmt: skip


def _fact(event: FactsOfKey, fact: Fact) -> Iterator[tuple[Any, ...]]:
    turns = [source.turn_id for source in fact.sources]
    for number, change in enumerate(fact.history or ()):
        yield (
            event.user_id, event.role_id, fact.memory_id, fact.key, fact.value, change.status, change.why,
            fact.confidence, fact.importance, change.confirmation, fact.multi, fact.valid_from, change.valid_to,
            change.conflict_id, turns[0] if turns else None, turns, moment(fact.said_at),
            moment(fact.last_verified_at), moment(change.at), change.offset, number, moment(event.recorded_at),
            event.position.partition, event.position.offset,
        )  # fmt: skip


def _conflict(event: FactsOfKey, conflict: Conflict) -> tuple[Any, ...]:
    return (
        conflict.conflict_id, event.user_id, event.role_id, conflict.key, conflict.status, moment(conflict.opened_at),
        conflict.opened_offset, list(conflict.memory_ids), list(conflict.values), conflict.winner,
        moment(conflict.closed_at) if conflict.closed_at else None, conflict.closed_by,
    )  # fmt: skip


def _response(event: ResponseGraded) -> tuple[Any, ...]:
    return (
        event.event_id, event.recall_id, event.user_id, event.role_id, event.session_id, event.model, event.round,
        event.response, event.analysis, list(event.faults), list(event.marks), list(event.unknown_marks), event.need,
        event.plausibility, event.compliance, [violation.rule for violation in event.violations],
        [violation.text for violation in event.violations], list(event.unsupported_claims),
        claims_of_past(event.response, instant_ms(event.occurred_at)), event.method, event.final, event.repaired,
        _bounded(event.attempt, 16), event.anchor, event.anchor_repeated, event.temperature, event.latency_ms,
        _bounded(event.tokens_in, 32), _bounded(event.tokens_out, 32), list(event.turn_ids),
        moment(event.occurred_at), moment(event.recorded_at),
    )  # fmt: skip


def _review(event: FeedbackRecorded) -> tuple[Any, ...]:
    assert event.target is not None
    value: dict[str, Any] = event.value if isinstance(event.value, dict) else {"verdict": event.value}
    verdict, dimension = value.get("verdict"), value.get("dimension")
    return (
        event.feedback_id, event.user_id, event.role_id, event.target.recall_id, event.target.turn_id,
        dimension if isinstance(dimension, str) else "", int(verdict) if verdict in (0, 1) else None,
        event.author or "", event.text, moment(event.occurred_at), moment(event.recorded_at), event.event_id,
    )  # fmt: skip


def _atom(event: AtomDistilled) -> tuple[Any, ...]:
    return (
        event.memory_id, event.recall_id, event.user_id, event.role_id, event.session_id, event.round, event.query,
        event.analysis, event.response, event.text, event.need, list(event.parents), event.sources,
        list(event.turn_ids), event.importance, event.method, moment(event.occurred_at), moment(event.recorded_at),
        event.event_id,
    )  # fmt: skip


def _dead_letter(letter: DeadLetter) -> tuple[Any, ...]:
    source = letter.source
    return (
        letter.dead_letter_id, moment(letter.at), source.topic, source.partition, source.offset, source.timestamp,
        {name: value or "" for name, value in letter.headers.items()}, letter.key_base64, letter.value_base64,
        letter.error.code, letter.error.message, letter.attempts,
    )  # fmt: skip


def _bounded(value: int | None, bits: int) -> int | None:
    """A number as a column of so many bits holds it: one that a client made up must not stop the rows of all others.

    >>> _bounded(-5, 16), _bounded(2**40, 32), _bounded(None, 32)
    (0, 4294967295, None)
    """
    return value if value is None else min(max(value, 0), 2**bits - 1)


def _json(value: Any) -> str:
    return "" if value is None else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
