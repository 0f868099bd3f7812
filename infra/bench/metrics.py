"""Retrieval metrics: what share of a question's evidence is among the first k."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""LoCoMo's numbers; 5, adversarial, has no evidence to find and is left out."""
RECALL_AT = (5, 10, 20)


@dataclass(frozen=True, slots=True)
class Judged:
    """What one method ranked for one question."""

    ranked: Sequence[str]
    evidence: frozenset[str]
    category: int
    group: str = ""
    """The conversation that the question is about."""


def recall_at(ranked: Sequence[str], evidence: frozenset[str], k: int) -> float:
    """Share of the evidence among the first k.

    >>> recall_at(["a", "b", "c"], frozenset({"c", "a"}), 2)
    0.5
    """
    return len(evidence.intersection(ranked[:k])) / len(evidence)


def hit_at(ranked: Sequence[str], evidence: frozenset[str], k: int) -> float:
    """1 where any of the evidence is among the first k, else 0.

    >>> hit_at(["a", "b"], frozenset({"b"}), 1), hit_at(["a", "b"], frozenset({"b"}), 2)
    (0.0, 1.0)
    """
    return float(not evidence.isdisjoint(ranked[:k]))


def scored(judged: Sequence[Judged]) -> dict[str, Any]:
    """Mean over the questions: recall@5/10/20 and hit@5/10.

    >>> found = scored([Judged(["a"], frozenset({"a"}), 1), Judged(["b"], frozenset({"a"}), 4)])
    >>> found["n"], found["recall@5"], found["hit@10"]
    (2, 0.5, 0.5)
    """
    count = len(judged)
    row: dict[str, Any] = {"n": count}
    for k in RECALL_AT:
        row[f"recall@{k}"] = _mean(recall_at(item.ranked, item.evidence, k) for item in judged)
    for k in (5, 10):
        row[f"hit@{k}"] = _mean(hit_at(item.ranked, item.evidence, k) for item in judged)
    return row


def row_of(method: str, judged: Sequence[Judged], *, split: bool = False) -> dict[str, Any]:
    """The row of a method: all questions, each category, and with ``split`` each conversation."""
    row = {"method": method, **scored(judged)}
    by_category = {
        name: scored([item for item in judged if item.category == number]) for number, name in CATEGORIES.items()
    }
    for name, found in by_category.items():
        row[f"{name}@10"] = found["recall@10"]
    row["by_category"] = by_category
    if split:
        groups = list(dict.fromkeys(item.group for item in judged))
        row["by_conversation"] = {group: scored([item for item in judged if item.group == group]) for group in groups}
    return row


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else float("nan")
