"""Lists and scores made one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.core import fusion

score_lists = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]), max_size=40)


@given(score_lists, st.integers(1, 50))
def test_top_is_a_full_sort_cut_off(values: list[float], count: int) -> None:
    wanted = sorted((i for i, value in enumerate(values) if value > 0), key=lambda i: (-values[i], -i))[:count]
    assert fusion.top(np.array(values), count).tolist() == wanted


@given(score_lists)
def test_norms_stay_in_the_unit_interval(values: list[float]) -> None:
    scores = np.array(values)
    for normed in (fusion.norm(scores), fusion.above_background(scores, 0.3)):
        assert ((normed >= 0) & (normed <= 1)).all()


def test_rrf_is_the_papers_formula_with_ranks_from_zero() -> None:
    got = fusion.rrf([np.array([5, 9]), np.array([9])], np.array([5, 9]), 60.0)
    assert got.tolist() == [1 / 61, 1 / 62 + 1 / 61]


def test_z_scores_without_spread_are_zero() -> None:
    assert fusion.z_scores(np.array([1.0, 2.0]), np.array([0.1, 0.1, 0.1])).tolist() == [0.0, 0.0]
    assert fusion.z_scores(np.array([1.0]), np.array([])).tolist() == [0.0]


def test_scores_that_differ_below_a_millionth_are_ordered_by_offset() -> None:
    order = fusion.order(np.array([0.3, 0.3 + 1e-9]), np.array([8, 2]), np.array([0, 1]))
    assert order.tolist() == [0, 1]
