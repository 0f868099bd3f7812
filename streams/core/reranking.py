"""Second opinions: candidates of a path in a new order by the recorded scores of a reranker.

Invariant: a function of its arguments; the scores are an effect, recorded with the answer, so that a replay gives the
same order without the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streams.core import fusion
from streams.core.candidates import Candidate
from streams.core.fusion import SCORE_DECIMALS
from streams.core.settings import RerankSettings


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a reranker said, by candidate id; ``note`` where it said nothing: why not."""

    scores: Mapping[str, float]
    note: str | None = None


def blended(candidates: Sequence[Candidate], scores: Mapping[str, float], chosen: RerankSettings) -> list[Candidate]:
    """Candidates of one path, best first, by both opinions.

    Parameters
    ----------
    candidates : sequence of Candidate
        Best first, by the first search.
    scores : mapping of id to float
        Of the reranker; candidates without one keep their place below those with one.
    chosen : RerankSettings

    Returns
    -------
    list of Candidate
        With s = (1 − weight)·n(s₁) + weight·n(r): n is min-max over the candidates that have both, s₁ the score of the
        first search and r that of the reranker, whose scale is the model's own. Parts tell all four.

    >>> first, second, third = (
    ...     Candidate(id=i, path="experience", text="", score=s, parts={}, offset=0, occurred_at="", occurred_ms=0)
    ...     for i, s in (("a", 0.9), ("b", 0.8), ("c", 0.1))
    ... )
    >>> chosen = RerankSettings(weight=0.75, candidates=2)
    >>> [(c.id, c.score) for c in blended([first, second, third], {"a": -3.0, "b": 2.0}, chosen)]
    [('b', 0.75), ('a', 0.25), ('c', -1.75)]
    """
    both = [candidate for candidate in candidates[: chosen.candidates] if candidate.id in scores]
    if not both or not chosen.weight:
        return list(candidates)
    said = {
        candidate.id: (raw, normed)
        for candidate, raw, normed in zip(
            both,
            (scores[candidate.id] for candidate in both),
            fusion.norm(np.array([scores[candidate.id] for candidate in both])).tolist(),
            strict=True,
        )
    }
    low, high = (limit(candidate.score for candidate in both) for limit in (min, max))
    span = high - low
    found = []
    for candidate in candidates:
        # Below the lowest that was reranked it is below 0, so the order goes on without a step up.
        first = (candidate.score - low) / span if span > 0 else 1.0 + candidate.score - low
        raw, normed = said.get(candidate.id, (None, 0.0))
        parts = {"first_score": candidate.score, "first_norm": first, "rerank_norm": normed}
        if raw is not None:
            parts["rerank"] = raw
        rounded = {name: round(value, SCORE_DECIMALS) for name, value in parts.items()}
        score = round((1 - chosen.weight) * first + chosen.weight * normed, SCORE_DECIMALS)
        found.append(replace(candidate, score=score, parts=candidate.parts | rounded))
    return sorted(found, key=lambda candidate: -candidate.score)
