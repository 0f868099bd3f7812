"""Agreement of reviewers against published examples, and rules beside people against ARPM's figures."""

from __future__ import annotations

import pytest

from infra.agreement import Reviewed, agreement, cohen_kappa, fleiss_kappa, krippendorff_alpha, overlay

FLEISS = (
    (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1), (7, 7, 0, 0, 0),
    (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
)  # fmt: skip
"""Ten subjects, fourteen raters, five categories: the worked example of most texts on Fleiss' kappa; 0.210."""
_ = None  # not judged
KRIPPENDORFF = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3),
    (_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _),
)
"""Krippendorff (2011), Computing Krippendorff's alpha-reliability, example C: four observers, twelve units; 0.743."""


def test_cohens_kappa_of_the_published_examples() -> None:
    grants = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert cohen_kappa(grants) == pytest.approx(0.4)
    # Cohen (1960): 200 subjects, three categories, observed 0.70, by chance 0.41.
    table = ((88, 14, 18), (10, 40, 10), (2, 6, 12))
    pairs = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    assert cohen_kappa(pairs) == pytest.approx(0.492, abs=0.0005)


def test_fleiss_kappa_of_the_published_example() -> None:
    items = [[category for category, votes in enumerate(row) for _ in range(votes)] for row in FLEISS]
    assert fleiss_kappa(items) == pytest.approx(0.210, abs=0.0005)


def test_krippendorffs_alpha_of_the_published_example() -> None:
    assert krippendorff_alpha(KRIPPENDORFF) == pytest.approx(0.743, abs=0.0005)


def test_what_cannot_be_told_is_none() -> None:
    assert cohen_kappa([]) is None
    assert fleiss_kappa([[1], [0]]) is None
    assert fleiss_kappa([[1, 1], [1, 1]]) is None
    assert krippendorff_alpha([[1, 1], [1, 1]]) is None
    assert krippendorff_alpha([[1, None], [None, 0]]) is None


def test_agreement_takes_pairs_over_the_answers_that_both_judged() -> None:
    verdicts = {("r1", "ann"): 1, ("r1", "bob"): 1, ("r2", "ann"): 0, ("r2", "bob"): 0, ("r3", "ann"): 1}
    found = agreement(verdicts)
    assert (found.reviewers, found.items, found.overlapping) == (("ann", "bob"), 3, 2)
    assert found.cohen == {"ann / bob": 1.0}
    assert found.fleiss == 1.0
    assert found.alpha == 1.0


def test_overlay_tells_arpms_shares_of_fifty_rounds() -> None:
    # ARPM, ratio 1:200: 22 of 50 by rules, 18 corrected from 0 to 1, none back: 44 % and 80 %.
    answers = [Reviewed(recall_id=f"r{n}", round=n, automatic=int(n < 22), human=int(n < 40)) for n in range(50)]
    found = overlay(answers)
    assert (found.raised, found.lowered, found.human_all) == (18, 0, 0.8)
    last = found.rolling[-1]
    assert (last.automatic, last.only_raised, last.human) == (0.44, 0.8, 0.8)


def test_corrections_downwards_are_counted_apart() -> None:
    told = [(1, 0), (0, 1), (1, 1), (0, 0), (None, 1), (1, None)]
    found = overlay([Reviewed(recall_id=str(n), round=n, automatic=a, human=h) for n, (a, h) in enumerate(told)])
    assert (found.raised, found.lowered, found.abstained, found.tied) == (1, 1, 1, 1)
    last = found.rolling[-1]
    assert (last.automatic, last.only_raised, last.human) == (0.5, 0.75, 0.5)
    assert found.human_all == 0.6
