"""Time as a weight: ARPM's two decays, their product, and the floor that keeps old evidence in reach.

Invariant: weights are in [0, 1] and depend on the distance to ``now`` of the request, never on a clock.

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM), dual-temporal ranking: w_round, w_clock, w_temporal = w_round · w_clock.
"Persona memory engineering" (PME), five-factor scoring: recency.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

MS_PER_HOUR = 3_600_000
MS_PER_DAY = 24 * MS_PER_HOUR

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def round_weights(round_now: int, rounds: Ints, lambda_round: float) -> Floats:
    """w_round = exp(−|r_cur − r_d| / λ_round).

    Parameters
    ----------
    round_now : int
    rounds : (n,) int
        The distance counts, not its sign.
    lambda_round : float
        Rounds after which a weight is down to 1/e.

    Returns
    -------
    (n,) float64 in [0, 1]

    >>> round_weights(30, np.array([30, 10]), 20.0).round(6).tolist()
    [1.0, 0.367879]
    """
    return np.exp(-np.abs(round_now - rounds) / lambda_round)


def clock_weights(now_ms: int, times_ms: Ints, lambda_hours: float) -> Floats:
    """w_clock = exp(−Δh / λ_hours); an event later than now (clocks disagree) has Δh = 0.

    Parameters
    ----------
    now_ms : int
        Milliseconds since the epoch.
    times_ms : (n,) int
    lambda_hours : float

    Returns
    -------
    (n,) float64 in [0, 1]

    >>> clock_weights(168 * MS_PER_HOUR, np.array([0, 10**12]), 168.0).round(6).tolist()
    [0.367879, 1.0]
    """
    return np.exp(-np.maximum(0, now_ms - times_ms) / MS_PER_HOUR / lambda_hours)


def floored(weights: Floats, floor: float) -> Floats:
    """w = floor + (1 − floor)·w_temporal, in [floor, 1]; floor 0 is ARPM's own weight.

    >>> floored(np.array([0.0, 0.5, 1.0]), 0.8).round(6).tolist()
    [0.8, 0.9, 1.0]
    """
    return floor + (1 - floor) * weights


def recency(age_days: float, half_life_days: float) -> float:
    """PME's recency = exp(−Δdays / half-life), in (0, 1].

    The source calls the time to 1/e a half-life; the formula is kept as published.

    >>> recency(0.0, 30.0), round(recency(30.0, 30.0), 6)
    (1.0, 0.367879)
    """
    return math.exp(-max(0.0, age_days) / half_life_days)
