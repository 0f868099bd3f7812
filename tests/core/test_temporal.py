"""Weights of time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.core import temporal


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.1, 1e6))
def test_round_weight_is_symmetric_and_falls_with_distance(now: int, then: int, lambda_round: float) -> None:
    there = temporal.round_weights(now, np.array([then, then - (now - then)]), lambda_round)
    back = temporal.round_weights(then, np.array([now]), lambda_round)
    assert there[0] == back[0]
    assert 0 <= there[1] <= there[0] <= 1


@given(st.integers(0, 2**42), st.integers(0, 2**42), st.floats(0.1, 1e6), st.floats(0, 1))
def test_weights_stay_between_floor_and_one(now: int, then: int, lambda_hours: float, floor: float) -> None:
    weight = temporal.floored(temporal.clock_weights(now, np.array([then]), lambda_hours), floor)[0]
    assert floor <= weight <= 1 + 1e-12


def test_the_papers_constants() -> None:
    week = 168 * temporal.MS_PER_HOUR
    assert temporal.clock_weights(week, np.array([0]), 168.0)[0] == np.exp(-1.0)
    assert temporal.round_weights(20, np.array([0]), 20.0)[0] == np.exp(-1.0)
