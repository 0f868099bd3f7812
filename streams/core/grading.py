"""A model's output graded against the prompt that it answers: protocol, evidence, anchor, claims about the past.

Invariant: a function of the recall (computed again from its record), the output and the time; by rules, and it says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.envelope import derived_id, instant_ms
from schemas.recalls import Message, Request
from schemas.responses import AtomDistilled, Check, EvidenceNeed, ResponseGraded, Violation
from streams.core import compliance, protocol
from streams.core.answer import Answer
from streams.core.claims import PastClaim, past_claims
from streams.core.identifiers import redact
from streams.core.plausibility import Plausibility, plausibility
from streams.core.summaries import clipped
from streams.core.timephrases import zone_minutes
from streams.core.verification import Verification, verify
from streams.core.wording import tongue_of

METHOD = "rules"
ATOM_CHARACTERS_MAX = 600
"""Of an atom as it is recalled: a question and an answer in short, not the round over again."""
ATOM_QUERY_CHARACTERS_MAX = 200
NUMBER_MAX = 2**31
"""What a client tells beyond this is no measure of a call, and is left out."""
ATTEMPT_MAX = 2**16 - 1
_NEEDS: dict[str | None, EvidenceNeed] = {
    "knowledge": "knowledge",
    "experience": "experience",
    "both": "both",
    "none": "none",
}


@dataclass(frozen=True, slots=True)
class Grade:
    """What is replied and what is recorded."""

    check: Check
    event: ResponseGraded
    atom: AtomDistilled | None


def graded(recall: Answer, request: Request, output: Output, *, recorded_at: str) -> Grade:
    """Grade the output of a ``check`` request.

    Parameters
    ----------
    recall : Answer
        That the output answers, computed again.
    request : Request
        With ``answer``, and perhaps ``model``, ``final``, ``turn_ids``, ``usage``.
    output : Output
        ``request.answer``, read.
    recorded_at : str
    """
    assert request.answer is not None
    asked, event, anchor = recall.event.request, recall.event, recall.anchor
    messages = recall.reply.messages or ()
    passed, unknown = output.passed, output.verified.unknown
    # By what the prompt asked for: the settings are recorded with the recall.
    strict = (event.parameters.get("prompt") or {}).get("protocol") == "strict"
    repair = protocol.needs_repair(output.parsed, unknown_marks=unknown, strict=strict)
    usage = _Usage(request.usage or {})
    accepted = passed and (not repair or usage.flag("repaired"))
    final = bool(request.final) and (accepted or usage.flag("shown"))
    sha256 = hashlib.sha256(request.answer.encode("utf-8", "surrogatepass")).hexdigest()
    record = ResponseGraded(
        event_id=derived_id("ResponseGraded", event.recall_id, sha256, str(final)),
        occurred_at=recorded_at,
        recorded_at=recorded_at,
        user_id=request.user_id,
        role_id=request.role_id,
        recall_id=event.recall_id,
        session_id=asked.session_id,
        model=request.model,
        round=event.round,
        output_sha256=sha256,
        final=final,
        plausibility_parts=output.plausible.parts,
        boundaries=output.judged.boundaries,
        boundaries_checked=output.judged.checked,
        evidence_shown=len(recall.reply.evidence or ()),
        anchor=event.anchor,
        anchor_repeated=bool(event.anchor_repeated),
        turn_ids=request.turn_ids or (),
        causation_id=event.event_id,
        correlation_id=request.request_id,
        **usage.fields(),
        **output.shared(),
    )
    atom = _atom(recall, record, recorded_at) if final and passed else None
    tongue = tongue_of(anchor.language if anchor else None, asked.query)
    faults, again = output.parsed.faults, None
    if repair and messages:
        again = protocol.repair_messages(messages, request.answer, faults, tongue, unknown_marks=unknown)
    check = Check(
        response_id=record.event_id,
        passed=passed,
        needs_repair=repair,
        repair=_plain(again) if again else None,
        refusal=None if passed else compliance.refusal(anchor, query=asked.query),
        atom_id=atom.memory_id if atom else None,
        **output.shared(),
    )
    return Grade(check, record, atom)


@dataclass(frozen=True, slots=True)
class Output:
    """A model's output, taken apart and judged."""

    parsed: protocol.Parsed
    verified: Verification
    plausible: Plausibility
    judged: compliance.Compliance
    claims: tuple[PastClaim, ...]

    @property
    def passed(self) -> bool:
        """Compliant, and readable as an answer."""
        return self.judged.passed and bool(self.parsed.response)

    def judged_by(self, verdict: compliance.Compliance) -> Output:
        """With the verdict of a judge model beside that of the rules: both have to pass."""
        rules = self.judged
        both = compliance.Compliance(
            passed=rules.passed and verdict.passed,
            violations=(*rules.violations, *verdict.violations),
            method=f"{rules.method}+{verdict.method}",
            checked=max(rules.checked, verdict.checked),
            boundaries=rules.boundaries,
        )
        return replace(self, judged=both)

    def shared(self) -> dict[str, Any]:
        """Fields that reply and record have in common."""
        return {
            "response": self.parsed.response,
            "analysis": self.parsed.analysis,
            "faults": self.parsed.faults,
            "marks": self.parsed.marks,
            "unknown_marks": self.verified.unknown,
            "need": _NEEDS.get(self.parsed.need, "unknown"),
            "plausibility": self.plausible.score,
            "compliance": int(self.judged.passed),
            "violations": tuple(
                Violation(rule=v.rule, text=v.text, start=v.start, end=v.end, boundary=v.detail or None)
                for v in self.judged.violations
            ),
            "unsupported_claims": tuple(claim.text for claim in self.claims if claim.flagged),
            "unsupported_values": tuple(claim.text for claim in self.verified.unsupported),
            "method": self.judged.method,
        }


def read_output(recall: Answer, output: str) -> Output:
    """Read an output against the prompt that it answers, by rules."""
    recent = [turn.shown for turn in recall.recent]
    evidence, messages = recall.reply.evidence or (), recall.reply.messages or ()
    query, at_ms = recall.event.request.query, instant_ms(recall.event.occurred_at)
    zone = zone_minutes(evidence[0].occurred_at) if evidence and evidence[0].occurred_at else 0
    system = messages[0].content if messages else ""
    parsed = protocol.parse(output)
    verified = verify(parsed, evidence, allowed=[query, *recent, system], at_ms=at_ms, zone=zone)
    return Output(
        parsed,
        verified,
        plausibility(parsed, verified, evidence_shown=len(evidence)),
        compliance.check(parsed.response, recall.anchor, system=system, query=query),
        past_claims(parsed.response, evidence, recent=[query, *recent], at_ms=at_ms, zone=zone),
    )


def _plain(messages: Sequence[Message]) -> dict[str, Any]:
    return {"messages": [{"role": message.role, "content": message.content} for message in messages]}


def _atom(recall: Answer, record: ResponseGraded, recorded_at: str) -> AtomDistilled:
    asked, evidence = recall.event.request, recall.reply.evidence or ()
    by_mark = {piece.mark: piece.id for piece in evidence}
    question = clipped(" ".join(redact(asked.query).text.split()), ATOM_QUERY_CHARACTERS_MAX)
    answered = " ".join(redact(record.response).text.split())
    text = clipped(f"{question} → {answered}", ATOM_CHARACTERS_MAX)
    return AtomDistilled(
        event_id=derived_id("AtomDistilled", record.recall_id),
        occurred_at=recall.event.occurred_at,
        recorded_at=recorded_at,
        user_id=record.user_id,
        role_id=record.role_id,
        memory_id="a-" + derived_id("atom", record.recall_id),
        recall_id=record.recall_id,
        session_id=asked.session_id,
        round=record.round,
        query=redact(asked.query).text,
        analysis=redact(record.analysis).text,
        response=redact(record.response).text,
        text=text,
        need=record.need,
        parents=tuple(piece.id for piece in evidence),
        sources={mark: by_mark[mark] for mark in record.marks if mark in by_mark},
        turn_ids=record.turn_ids,
        method=METHOD,
        causation_id=record.event_id,
        correlation_id=record.correlation_id,
    )


class _Usage:
    """What a client tells of a call, where it is of the right type: for statistics, never a reason to fail."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    def number(self, name: str) -> float | None:
        value = self._given.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return float(value) if abs(value) <= NUMBER_MAX else None

    def count(self, name: str) -> int | None:
        value = self.number(name)
        return int(value) if value is not None and 0 <= value < 2**31 else None

    def fields(self) -> dict[str, Any]:
        """Those fields of the record that a client tells."""
        return {
            "repaired": self.flag("repaired"),
            # Within its column: one number that doesn't fit would hold up the whole topic at the database.
            "attempt": min(max(int(self.number("attempt") or 1), 1), ATTEMPT_MAX),
            "temperature": self.number("temperature"),
            "latency_ms": self.number("latency_ms"),
            "tokens_in": self.count("tokens_in"),
            "tokens_out": self.count("tokens_out"),
        }

    def flag(self, name: str) -> bool:
        return self._given.get(name) is True
