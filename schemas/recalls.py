"""Requests, replies and the record of every answered request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from schemas.envelope import Id, Instant, Metadata, ShortText, Text, instant_ms
from schemas.memories import Conflict, Fact, Summary
from schemas.personas import Persona
from schemas.positions import Position, Watermark
from schemas.responses import Check

Kind = Literal["assemble", "recall", "facts", "conflicts", "summaries", "persona", "transcript", "check"]
SEARCHING: frozenset[str] = frozenset({"assemble", "recall"})
"""Kinds that search; the others read, and take no query."""
Path = Literal["knowledge", "experience", "memory"]
ErrorCode = Literal[
    "bad_request",
    "unknown_preset",
    "too_large",
    "not_ready",
    "turn_not_seen",
    "deadline_exceeded",
    "overloaded",
    "internal",
]
QUERY_LENGTH_MAX = 100_000
Query = Annotated[str, msgspec.Meta(max_length=QUERY_LENGTH_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """A point in time, inclusive: exactly one coordinate."""

    offset: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    recorded_at: Instant | None = None
    occurred_at: Instant | None = None
    round: Annotated[int, msgspec.Meta(ge=0)] | None = None
    turn_id: Id | None = None

    def __post_init__(self) -> None:
        given = [
            name
            for name in ("offset", "recorded_at", "occurred_at", "round", "turn_id")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError(
                f"`as_of` takes exactly one of offset, recorded_at, occurred_at, round, turn_id, got {given or 'none'}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much evidence per path, and the token budget of the context message."""

    knowledge: Count = 5
    experience: Count = 10
    memory: Count = 10
    tokens: Annotated[int, msgspec.Meta(ge=0, le=200_000)] = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question to memory. ``assemble``: evidence and messages; ``recall``: evidence only; other kinds read."""

    request_id: Id
    kind: Kind
    user_id: Id
    role_id: Id
    query: Query = None  # type: ignore[assignment]
    """Left out where the kind takes none; then it is empty."""
    session_id: Id | None = None
    now: Instant | None = None
    after: tuple[Id, ...] | None = None
    as_of: AsOf | None = None
    preset: str | None = None
    set: dict[str, Any] | None = None
    limits: Limits | None = None
    explain: bool | None = None
    history: bool | None = None
    """``facts``: also what no longer holds, and every change of each."""
    recall_id: Id | None = None
    """``check``: the recall that the answer is an answer to."""
    answer: Text | None = None
    """``check``: the model's whole output."""
    model: ShortText | None = None
    final: bool | None = None
    """``check``: the user is shown this output if it passes and needs no repair; then the round becomes an atom."""
    turn_ids: Annotated[tuple[Id, ...], msgspec.Meta(max_length=10)] | None = None
    """``check``: the turns of the round."""
    usage: Metadata | None = None
    """``check``: ``latency_ms``, ``tokens_in``, ``tokens_out``, ``attempt``, ``repaired``, ``temperature``; ``shown``:
    the user has seen it already, whether it passes or not."""
    type: Literal["request"] = "request"
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if self.query is None:
            if self.kind in SEARCHING:
                raise ValueError(f"Object missing required field `query`, which a request of kind {self.kind!r} takes")
            object.__setattr__(self, "query", "")
        if self.kind == "check" and (self.recall_id is None or self.answer is None):
            raise ValueError("a request of kind 'check' takes `recall_id` and `answer`")
        as_of = self.as_of
        for instant in (self.now, as_of.recorded_at if as_of else None, as_of.occurred_at if as_of else None):
            if instant is not None:
                instant_ms(instant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A chat message in OpenAI's form."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One piece of evidence with its provenance and every component of its score."""

    mark: str
    id: str
    path: Path
    text: str
    score: float
    parts: dict[str, float]
    position: Position
    speaker: str | None = None
    name: str | None = None
    source: str | None = None
    turn_id: str | None = None
    document_id: str | None = None
    title: str | None = None
    occurred_at: str | None = None
    round: int | None = None
    rounds_ago: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnShown:
    """A turn of a transcript."""

    turn_id: str
    session_id: str
    speaker: str
    text: str
    occurred_at: str
    round: int
    offset: int
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request got no answer."""

    code: ErrorCode
    message: str
    details: Metadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a request. ``messages_sha256`` is over the canonical JSON of ``messages``."""

    request_id: str | None
    status: Literal["ok", "error"]
    recall_id: str | None = None
    messages: tuple[Message, ...] | None = None
    evidence: tuple[Evidence, ...] | None = None
    watermark: Watermark | None = None
    preset: str | None = None
    config_digest: str | None = None
    messages_sha256: str | None = None
    temperature: float | None = None
    round: int | None = None
    timings_ms: dict[str, float] | None = None
    anchor: str | None = None
    """event_id of the anchor that stands in the system message; null: the role has none."""
    anchor_repeated: Literal["rounds", "tokens"] | None = None
    """Why the anchor stands before the query once more; null: it doesn't."""
    serious_topics: tuple[str, ...] | None = None
    """Why a lower temperature is suggested; null: nothing is serious."""
    not_embedded: tuple[str, ...] | None = None
    """Turns of ``after`` that were matched by words only, since their vectors were not there before the deadline."""
    explain: Metadata | None = None
    facts: tuple[Fact, ...] | None = None
    conflicts: tuple[Conflict, ...] | None = None
    summaries: tuple[Summary, ...] | None = None
    persona: Persona | None = None
    turns: tuple[TurnShown, ...] | None = None
    check: Check | None = None
    error: Failure | None = None
    type: Literal["reply"] = "reply"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRecord:
    """What the journal keeps of a piece of evidence: no text, only where it stands and why it was chosen."""

    mark: str
    id: str
    path: Path
    score: float
    parts: dict[str, float]
    position: Position
    speaker: str | None = None
    source: str | None = None
    turn_id: str | None = None
    document_id: str | None = None
    occurred_at: str | None = None
    round: int | None = None
    rounds_ago: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallAnswered:
    """Every answered request: enough to compute the answer again and compare its hash."""

    event_id: str
    occurred_at: Instant
    """``now`` of the request, else the time of its record."""
    recorded_at: Instant
    user_id: Id
    role_id: Id
    recall_id: str
    request: Request
    source: Position
    watermark: Watermark
    preset: str
    parameters: Metadata
    config_digest: str
    evidence: tuple[EvidenceRecord, ...]
    query_vector: str | None = None
    query_embedder: str | None = None
    """Of ``query_vector``; null in records of before: that whose vectors were in use then."""
    rerank: dict[str, float] | None = None
    """What a reranker said of the candidates, by evidence id; null: it was not asked, or gave no answer in time."""
    messages_sha256: str | None = None
    temperature: float | None = None
    anchor: str | None = None
    anchor_repeated: Literal["rounds", "tokens"] | None = None
    round: int = 0
    timings_ms: dict[str, float] = field(default_factory=dict)
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["RecallAnswered"] = "RecallAnswered"
    version: Literal[1] = 1
