"""Do reviewers agree, and what do their verdicts change: kappas, alpha, and rules beside people.

Krippendorff's alpha comes from the library ``krippendorff``. The two kappas are a few lines here, checked in the tests
against published examples: the libraries that have them bring scipy and pandas along.

Invariant: a function of the verdicts; where the verdicts don't suffice, the figure is None, never 0.

References
----------
Cohen (1960), Educational and Psychological Measurement 20(1); Fleiss (1971), Psychological Bulletin 76(5);
Krippendorff (2004), Reliability in Content Analysis, ch. 11.
Yang et al. (2026), arXiv:2605.14802 (ARPM): automatic and human rolling accuracy over the same rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import krippendorff


def cohen_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Agreement of two raters over the items that both judged, beyond chance; None where chance alone is certain.

    >>> round(cohen_kappa([(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15), 3)
    0.4
    >>> cohen_kappa([(1, 1), (1, 1)]) is None
    True
    """
    if not pairs:
        return None
    count = len(pairs)
    observed = sum(one == other for one, other in pairs) / count
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    chance = sum(first[value] * second[value] for value in first) / count**2
    return None if chance == 1 else (observed - chance) / (1 - chance)


def fleiss_kappa(items: Sequence[Sequence[int]]) -> float | None:
    """Agreement of many raters beyond chance, over the items that have the most verdicts.

    Parameters
    ----------
    items : sequence of sequence of int
        The verdicts of each item, in any order. Fleiss' formula wants as many for every item: items with fewer than
        the largest number are left out (alpha takes them all).

    >>> round(fleiss_kappa([[1, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]), 3)
    0.657
    """
    raters = max(map(len, items), default=0)
    full = [Counter(item) for item in items if len(item) == raters]
    if raters < 2:
        return None
    total = raters * len(full)
    overall: Counter[int] = Counter()
    for counted in full:
        overall.update(counted)
    agreed = sum(
        (sum(votes * votes for votes in counted.values()) - raters) / (raters * (raters - 1)) for counted in full
    )
    observed, chance = agreed / len(full), sum((votes / total) ** 2 for votes in overall.values())
    return None if chance == 1 else (observed - chance) / (1 - chance)


def krippendorff_alpha(raters: Sequence[Sequence[int | None]]) -> float | None:
    """Nominal alpha of a matrix of raters by items; None marks what a rater did not judge.

    >>> round(krippendorff_alpha([[1, 0, 1, 0, None], [1, 0, 1, 1, 0], [None, 0, 1, 0, 0]]), 3)
    0.714
    """
    columns = list(zip(*raters, strict=True))
    paired = [item for item in columns if sum(value is not None for value in item) > 1]
    if len({value for item in paired for value in item if value is not None}) < 2:
        return None  # everybody said one thing, or nobody judged what another did: nothing to tell agreement from
    data = [[float("nan") if value is None else float(value) for value in rater] for rater in raters]
    return float(krippendorff.alpha(reliability_data=data, level_of_measurement="nominal"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the reviewers of a dimension agree."""

    reviewers: tuple[str, ...]
    items: int
    overlapping: int
    """Items that more than one judged."""
    cohen: dict[str, float | None]
    """By "one / other"."""
    fleiss: float | None
    alpha: float | None


def agreement(verdicts: Mapping[tuple[str, str], int]) -> Agreement:
    """Agreement over verdicts by (item, reviewer)."""
    reviewers = tuple(sorted({author for _, author in verdicts}))
    items = sorted({item for item, _ in verdicts})
    by_reviewer = {author: [verdicts.get((item, author)) for item in items] for author in reviewers}
    by_item = [[verdicts[item, author] for author in reviewers if (item, author) in verdicts] for item in items]
    cohen = {}
    for one, other in combinations(reviewers, 2):
        pairs = zip(by_reviewer[one], by_reviewer[other], strict=True)
        cohen[f"{one} / {other}"] = cohen_kappa([(a, b) for a, b in pairs if a is not None and b is not None])
    return Agreement(
        reviewers=reviewers,
        items=len(items),
        overlapping=sum(len(item) > 1 for item in by_item),
        cohen=cohen,
        fleiss=fleiss_kappa(by_item),
        alpha=krippendorff_alpha([by_reviewer[author] for author in reviewers]) if len(reviewers) > 1 else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """An answer with the verdict of the rules and of people."""

    recall_id: str
    round: int
    automatic: int | None
    """None: the rules abstain."""
    human: int | None
    """What most reviewers say; None: as many say 1 as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """Shares of 1 over all answers up to this one that both the rules and people judged."""

    round: int
    automatic: float
    only_raised: float
    """Corrected from 0 to 1 only: what the rules passed stays passed."""
    human: float
    """Corrected both ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """The rules' accuracy and the people's over the same answers."""

    reviewed: int
    abstained: int
    """Reviewed answers on which the rules abstain; in ``human_all`` only."""
    tied: int
    raised: int
    """Corrected 0→1."""
    lowered: int
    """Corrected 1→0."""
    human_all: float | None
    """Share of 1 over all reviewed answers without a tie."""
    rolling: tuple[Rolling, ...]


def majority(verdicts: Sequence[int]) -> int | None:
    """What more say than not.

    >>> majority([1, 1, 0]), majority([1, 0])
    (1, None)
    """
    ones = sum(verdicts) * 2
    return None if ones == len(verdicts) else int(ones > len(verdicts))


def overlay(answers: Sequence[Reviewed]) -> Overlay:
    """Rolling accuracies by the rules, with corrections 0→1 only, and with corrections both ways.

    >>> found = overlay([Reviewed(recall_id=str(n), round=n, automatic=a, human=h)
    ...                  for n, (a, h) in enumerate([(0, 1), (1, 0), (1, 1), (None, 1)])])
    >>> found.raised, found.lowered, found.human_all
    (1, 1, 0.75)
    >>> found.rolling[-1]
    Rolling(round=2, automatic=0.666667, only_raised=1.0, human=0.666667)
    """
    decided = [answer for answer in answers if answer.human is not None]
    both = [(answer, answer.automatic, answer.human) for answer in decided if answer.automatic is not None]
    rolling: list[Rolling] = []
    automatic = raised_to = human = raised = lowered = 0
    for number, (answer, rule, person) in enumerate(both, start=1):
        assert rule is not None
        assert person is not None
        automatic += rule
        human += person
        raised_to += max(rule, person)
        raised += person > rule
        lowered += person < rule
        shares = [round(count / number, 6) for count in (automatic, raised_to, human)]
        rolling.append(Rolling(round=answer.round, automatic=shares[0], only_raised=shares[1], human=shares[2]))
    return Overlay(
        reviewed=len(answers),
        abstained=sum(answer.automatic is None for answer in answers),
        tied=len(answers) - len(decided),
        raised=raised,
        lowered=lowered,
        human_all=round(sum(answer.human or 0 for answer in decided) / len(decided), 6) if decided else None,
        rolling=tuple(rolling),
    )
