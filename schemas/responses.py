"""Answers of a model: how one was checked against its recall and its anchor, and the atom that a round becomes.

A ``check`` request names a recall and the model's whole output. The worker takes the recall's prompt and evidence up
again from its record, grades the output by rules, and records ``ResponseGraded``; the output that is final becomes an
``AtomDistilled`` besides. This module is imported by ``schemas.recalls``, never the other way round.

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM): real-time atomic distillation, analysis protocol statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from schemas.envelope import Id, Instant, Metadata

EvidenceNeed = Literal["knowledge", "experience", "both", "none", "unknown"]
Score = Annotated[int, msgspec.Meta(ge=0, le=100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One way in which an answer breaks its anchor; ``[start, end)`` in the response."""

    rule: str
    text: str
    start: int
    end: int
    boundary: str | None = None
    """The boundary of the persona that it crosses, or what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What the reply to a ``check`` says of an output."""

    response_id: str
    """event_id of the ``ResponseGraded`` that records it."""
    response: str
    """What the user may see."""
    analysis: str
    faults: tuple[str, ...]
    """Ways in which the form of the protocol was broken: ``missing_analysis``, …"""
    marks: tuple[str, ...]
    unknown_marks: tuple[str, ...]
    """Marks that the evidence doesn't have: made up."""
    need: EvidenceNeed
    plausibility: Score
    compliance: Literal[0, 1]
    violations: tuple[Violation, ...]
    unsupported_claims: tuple[str, ...]
    """What the response claims about the past and no evidence says."""
    passed: bool
    """Compliant, and readable as an answer."""
    needs_repair: bool
    method: str
    unsupported_values: tuple[str, ...] = ()
    """Numbers, dates and names of the response that nothing in the prompt says."""
    repair: Metadata | None = None
    """``messages`` that ask the model for one repair; null: none is worth it."""
    refusal: str | None = None
    """A safe answer in character, where the output can't be shown."""
    atom_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseGraded:
    """The record of a check. ``event_id`` derives from recall and output, so the same output is graded once."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    user_id: Id
    role_id: Id
    recall_id: str
    session_id: str | None
    model: str | None
    round: int
    response: str
    analysis: str
    output_sha256: str
    faults: tuple[str, ...]
    marks: tuple[str, ...]
    unknown_marks: tuple[str, ...]
    need: EvidenceNeed
    plausibility: Score
    compliance: Literal[0, 1]
    violations: tuple[Violation, ...]
    unsupported_claims: tuple[str, ...]
    method: str
    final: bool
    """Whether this output was the one that the user saw."""
    unsupported_values: tuple[str, ...] = ()
    plausibility_parts: dict[str, float] = field(default_factory=dict)
    boundaries: int = 0
    boundaries_checked: int = 0
    """Boundaries of the anchor that the method can judge."""
    evidence_shown: int = 0
    repaired: bool = False
    """Whether it is the answer to a repair."""
    attempt: int = 1
    anchor: str | None = None
    anchor_repeated: bool = False
    """Whether the prompt showed the anchor again (every N rounds)."""
    temperature: float | None = None
    latency_ms: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    turn_ids: tuple[str, ...] = ()
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["ResponseGraded"] = "ResponseGraded"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomDistilled:
    """A round as one memory (ARPM): what was asked, from which evidence, how it was reasoned, what was answered."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    user_id: Id
    role_id: Id
    memory_id: str
    recall_id: str
    session_id: str | None
    round: int
    query: str
    analysis: str
    response: str
    text: str
    """As it is recalled: question and answer in short, without personal identifiers."""
    need: EvidenceNeed
    """Kind of the evidence that the answer rests on, as its analysis says."""
    parents: tuple[str, ...]
    """Ids of the evidence that was offered, best first."""
    sources: dict[str, str] = field(default_factory=dict)
    """Mark to id of the evidence that the answer rests on."""
    turn_ids: tuple[str, ...] = ()
    """The round's own turns: an atom is not shown beside them."""
    importance: Annotated[int, msgspec.Meta(ge=1, le=5)] = 2
    method: str = "rules"
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["AtomDistilled"] = "AtomDistilled"
    version: Literal[1] = 1
