"""How plausible an answer's analysis is, 0 to 100 by written rules, and the protocol's statistics per model.

The score says how well a model keeps the protocol, not whether the answer is right: it is there to be compared between
models, stages and presets. ``method`` is "rules".

========== ====== ==========================================================================================
part       points for
========== ====== ==========================================================================================
form           20 10 a section whose tag is there; 5 where it is unclosed, mismatched or malformed, or stands in
                  the wrong order; 0 where it is missing
length         10 an analysis of 8 to 400 tokens; 5 from 4 or up to 800; else 0
need           15 8 where the analysis names the evidence needed; 7 more where the marks are of that kind
marks          25 15 for at least one mark that exists, where evidence was shown and is needed; 10 for none made up
checking       10 5 tokens or more of analysis for each cited mark, else in proportion
grounded       20 the share of numbers, dates, names and quotes of the response that the prompt says; 20 without any
shown          -5 marks in the response
echo          -20 the response repeats the analysis
========== ====== ==========================================================================================

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM): analysis plausibility, tag rates and repairs per model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from streams.core.evidence_need import Need
from streams.core.protocol import Parsed
from streams.core.text import token_estimate, tokens
from streams.core.verification import Verification

ECHO_SHARE = 0.5
"""Part of the analysis' term pairs in the response from which it counts as repeated; quotes of evidence stay below."""
ECHO_PAIRS_MIN = 8
_HALF = frozenset({"unclosed_analysis", "unclosed_response", "mismatched", "malformed", "order", "nested"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plausibility:
    """The score and what it is made of."""

    score: int
    parts: dict[str, float]
    method: str = "rules"


def plausibility(parsed: Parsed, verification: Verification, *, evidence_shown: int) -> Plausibility:
    """Grade an answer by the module's table.

    Parameters
    ----------
    evidence_shown : int
        Pieces of evidence in the prompt.

    >>> from streams.core.protocol import parse
    >>> none = Verification(bound=(), unknown=(), claims=())
    >>> plausibility(parse("Hello there!"), none, evidence_shown=0).score
    45
    >>> greeting = parse("<analysis>A greeting: no evidence is needed.</analysis><response>Hello!</response>")
    >>> plausibility(greeting, none, evidence_shown=3).score
    100
    """
    tokens_analysis = token_estimate(parsed.analysis)
    parts: dict[str, float] = {
        "form": _form(parsed),
        "length": 10 if 8 <= tokens_analysis <= 400 else 5 if 4 <= tokens_analysis <= 800 else 0,
        "need": _need(parsed.need, parsed.marks),
        "marks": _marks(parsed, verification, evidence_shown),
        "checking": _checking(parsed, tokens_analysis),
        "grounded": _grounded(parsed, verification),
        "shown": -5 if parsed.marks_shown else 0,
        "echo": -20 if _echoes(parsed) else 0,
    }
    return Plausibility(score=max(0, min(100, round(sum(parts.values())))), parts=parts)


def _form(parsed: Parsed) -> float:
    faults = set(parsed.faults)
    points = 0
    for kind, there in (("analysis", parsed.has_analysis), ("response", parsed.has_response)):
        if there:
            points += 5 if faults & (_HALF - {f"unclosed_{'analysis' if kind == 'response' else 'response'}"}) else 10
    return points


def _need(need: Need | None, marks: Sequence[str]) -> float:
    if need is None:
        return 0
    kinds = {mark[0] for mark in marks}
    knows, lived = "K" in kinds, bool(kinds & {"E", "M"})
    fits = {"none": not kinds, "knowledge": knows, "experience": lived, "both": knows and lived}[need]
    return 15 if fits else 8


def _marks(parsed: Parsed, verification: Verification, evidence_shown: int) -> float:
    bound = 15 if verification.bound or not evidence_shown or parsed.need == "none" else 0
    return bound + (0 if verification.unknown else 10)


def _checking(parsed: Parsed, tokens_analysis: int) -> float:
    if not parsed.analysis:
        return 0
    return min(10.0, 10 * tokens_analysis / (5 * max(1, len(parsed.marks))))


def _grounded(parsed: Parsed, verification: Verification) -> float:
    if not parsed.response:
        return 0
    if not verification.claims:
        return 20
    return 20 * sum(claim.supported for claim in verification.claims) / len(verification.claims)


def _echoes(parsed: Parsed) -> bool:
    said = set(pairwise(tokens(parsed.analysis[:20_000])))
    if len(said) < ECHO_PAIRS_MIN:
        return False
    return len(said & set(pairwise(tokens(parsed.response[:20_000])))) >= ECHO_SHARE * len(said)


@dataclass(slots=True)
class ProtocolStatistics:
    """How one model kept the protocol: counts that add up, rates that follow from them."""

    answers: int = 0
    with_analysis: int = 0
    with_response: int = 0
    characters: int = 0
    """Of all analyses."""
    repairs: int = 0
    plausible: int = 0
    """Sum of the plausibility scores."""
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, parsed: Parsed, score: int, *, repairs: int = 0) -> None:
        """Count an answer: as it came first, before any repair, and how often it was repaired."""
        self.answers += 1
        self.with_analysis += parsed.has_analysis
        self.with_response += parsed.has_response
        self.characters += len(parsed.analysis)
        self.repairs += repairs
        self.plausible += score
        self.faults.update(parsed.faults)

    def merge(self, other: ProtocolStatistics) -> None:
        """Add what was counted elsewhere."""
        for name in ("answers", "with_analysis", "with_response", "characters", "repairs", "plausible"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults.update(other.faults)

    def rates(self) -> dict[str, float]:
        """Tag rates and repairs per answer (0 to 1), mean analysis length in characters, mean plausibility.

        >>> ProtocolStatistics(answers=4, with_analysis=3, with_response=4, characters=200, plausible=320).rates()
        {'analysis_rate': 0.75, 'response_rate': 1.0, 'analysis_length': 50.0, 'repair_rate': 0.0, 'plausibility': 80.0}
        """
        count = max(1, self.answers)
        return {
            "analysis_rate": self.with_analysis / count,
            "response_rate": self.with_response / count,
            "analysis_length": self.characters / count,
            "repair_rate": self.repairs / count,
            "plausibility": self.plausible / count,
        }
