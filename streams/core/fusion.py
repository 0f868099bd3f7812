"""Lists and scores of several engines made one: RRF, z-scores, norms, and order with a fixed tie rule.

Invariant: equal scores are ordered by the tie rule alone (newer first), never by what a sort or partition happens to
leave, so the order is the same on every machine.

References
----------
Cormack, Clarke and Büttcher (2009), Reciprocal rank fusion outperforms Condorcet. SIGIR '09.
Yang et al. (2026), arXiv:2605.14802 (ARPM): s_RRF, norm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SCORE_DECIMALS = 6
"""Scores are rounded to 1e-6 before they are sorted: below that lies the noise of exp and log across machines."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def top(scores: Floats, count: int) -> Ints:
    """Ids of the ``count`` greatest scores above 0, best first, of equal ones the greater id (the newer) first.

    >>> top(np.array([0.0, 2.0, 3.0, 2.0]), 2).tolist()
    [2, 3]
    """
    ids = np.flatnonzero(scores > 0)
    found = scores[ids]
    if len(ids) > count:
        # Everything that ties with the last place competes for it: a partition alone would pick at random.
        least = np.partition(found, len(ids) - count)[len(ids) - count]
        kept = found >= least
        ids, found = ids[kept], found[kept]
    return ids[np.lexsort((-ids, -np.round(found, SCORE_DECIMALS)))][:count]


def union(lists: Sequence[Ints], size: int) -> Ints:
    """Ids below ``size`` that stand in any of the lists, ascending; several times faster than ``np.unique``.

    >>> union([np.array([4, 1]), np.array([1, 2])], 6).tolist()
    [1, 2, 4]
    """
    there = np.zeros(size, dtype=bool)
    for ids in lists:
        there[ids] = True
    return np.flatnonzero(there)


def rrf(lists: Sequence[Ints], candidates: Ints, k_rrf: float) -> Floats:
    """s_RRF(d) = Σ_i 1 / (k_rrf + rank_i(d) + 1), rank from 0; a list without d adds nothing.

    Parameters
    ----------
    lists : sequence of (m,) int
        Ids, best first.
    candidates : (n,) int
        Ids, ascending, that include every id of the lists.
    k_rrf : float

    Returns
    -------
    (n,) float64

    >>> rrf([np.array([7, 3]), np.array([7])], np.array([3, 7]), 60.0).round(6).tolist()
    [0.016129, 0.032787]
    """
    score = np.zeros(len(candidates))
    for ids in lists:
        score[np.searchsorted(candidates, ids)] += 1.0 / (k_rrf + np.arange(len(ids)) + 1.0)
    return score


def norm(scores: Floats) -> Floats:
    """Min-max to [0, 1]; all equal: all 1.

    >>> norm(np.array([2.0, 3.0, 4.0])).tolist(), norm(np.array([5.0])).tolist()
    ([0.0, 0.5, 1.0], [1.0])
    """
    if not len(scores):
        return scores
    low, high = float(scores.min()), float(scores.max())
    return (scores - low) / (high - low) if high > low else np.ones(len(scores))


def z_scores(scores: Floats, population: Floats) -> Floats:
    """(s − mean) / std of a population; zeros where the population has no spread.

    >>> z_scores(np.array([3.0, 5.0]), np.array([1.0, 3.0, 5.0])).round(4).tolist()
    [0.0, 1.2247]
    """
    if not len(population):
        return np.zeros(len(scores))
    spread = float(population.std())
    # Equal floats can leave a spread of rounding noise, which must not be blown up.
    return (scores - population.mean()) / spread if spread > 1e-12 else np.zeros(len(scores))


def above_background(z: Floats, background: float) -> Floats:
    """z-sums to [0, 1]: 0 is an entry that matches nothing, 1 the best; all at the background: all 1.

    Unlike ``norm`` the zero doesn't move with the weakest candidate, so weights of time mean the same for any pool.

    >>> above_background(np.array([-2.0, 1.0, 3.0]), -1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    if not len(z):
        return z
    high = float(z.max())
    return np.clip((z - background) / (high - background), 0.0, 1.0) if high > background else np.ones(len(z))


def order(scores: Floats, offsets: Ints, ids: Ints) -> Ints:
    """Indices from best to worst: score rounded to 1e-6, then the greater offset (newer), then the smaller id.

    >>> order(np.array([0.5, 0.5000001, 0.9]), np.array([4, 3, 1]), np.array([0, 1, 2])).tolist()
    [2, 0, 1]
    """
    return np.lexsort((ids, -offsets, -np.round(scores, SCORE_DECIMALS)))
