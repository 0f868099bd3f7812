"""Corrections: a newer turn that answers a question as well as an older one must not rank below it.

The floor blend of temporal weights is not enough once both statements are old: the newer won 2 to 6 of 14 test pairs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streams.core.visibility import Mask

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CORRECTION_SCORE_MIN = 0.25
"""A correction of a turn answers the same questions as that turn: one that scores below this part of it is none."""
CORRECTED_SCORE_MIN = 0.85
"""Part of the best score from which a turn is guarded by its corrections. What ranks lower doesn't answer the question
anyway, and lifting turns above it takes places from evidence (LoCoMo: recall@10 0.854 without, 0.857 with)."""
CORRECTION_POOL = 50
"""Best candidates that are compared with each other: what ranks below is not shown."""
CORRECTION_NEARNESS_MIN = 0.75
"""Part of an older turn's standardised cosine with the query that a newer one reaches if it answers the same question.
Of 80 corrections (tests/core/corrections.py) 65 lie above and 77 above 0.55, all above 0.4; of eight look-alikes that
answer another question (ramen asked, curry said later) six lie at 0.35 to 0.67, two that differ in a word at 0.84."""
CORRECTION_NEARNESS_OVERLAP_MIN = 0.55
CORRECTION_OVERLAP_MIN = 0.3
"""Where the newer holds this part of the query's words (by weight) that the older holds, less nearness will do."""
CORRECTION_NEARNESS_CHANGE_MIN = 0.4
"""A turn that says that something changed ("no longer", "搬") is a correction at this nearness already."""
CORRECTION_RELIEF = 0.05
CORRECTION_SCORE_TOLD_MIN = 0.15
"""Where words tell it as well (the query's, or words of change), a lower similarity and a lower score will do."""
CODES_MAX = 8
"""Codes of a query, such as order numbers, that a correction of what holds them has to hold."""

CODE = re.compile(r"(?=.*\d)(?=.*[a-z])[a-z\d]{4,}|\d{5,}")
"""Terms that name one thing and nothing like it: letters with digits, long numbers."""


@dataclass(frozen=True, slots=True)
class Answering:
    """Of each of a pool: nearness and overlap to the query, whether it tells a change, ``(n,)``, and which codes of
    the query it holds, ``(c, n)``."""

    nearness: Floats
    overlap: Floats
    changing: Mask
    codes: Mask

    def as_well(self, rows: Ints) -> tuple[Mask, Mask]:
        """Whether row i answers about as well as row j, and whether words tell it, both ``(k, k)``."""
        near, held = np.maximum(self.nearness[rows], 0.0), self.overlap[rows]
        # Without a word of the query in the older one there is nothing to repeat.
        tell = (held[:, None] >= CORRECTION_OVERLAP_MIN * held[None, :]) & (held[None, :] > 0)
        tell &= near[:, None] >= CORRECTION_NEARNESS_OVERLAP_MIN * near[None, :]
        tell |= self.changing[rows][:, None] & (near[:, None] >= CORRECTION_NEARNESS_CHANGE_MIN * near[None, :])
        answer = tell | (near[:, None] >= CORRECTION_NEARNESS_MIN * near[None, :])
        for code in self.codes[:, rows]:
            answer &= code[:, None] | ~code[None, :]
        return np.asarray(answer), np.asarray(tell)


def best_of(ids: Ints, score: Floats, vector_ids: Ints) -> Ints:
    """Rows of the best candidates that have a vector, in the order of the log."""
    best = np.sort(np.lexsort((ids, -np.round(score, 6)))[:CORRECTION_POOL])
    return np.asarray(best[vector_ids[best] >= 0])


def lifted(
    score: Floats, best: Ints, similarities: Floats, speakers: Mask, similarity: float, answers: Answering
) -> Floats:
    """Scores in which no turn ranks above a newer one of the same speaker that says nearly the same.

    The newer has to answer the query about as well: a question that repeats a rare word of a turn asks for that
    turn, not for later ones that look like it. Rows ascend with the log, so one pass from old to new carries a
    score along a chain of corrections.

    Parameters
    ----------
    score : (n,) float
    best : (k,) int
        Rows that are compared.
    similarities : (k, k) float
        Of the turns of ``best`` with each other, centred on the owner's mean.
    speakers : (k,) bool
        Whether the user spoke.
    similarity : float
        At least so alike is nearly the same.
    """
    out = score.copy()
    answer, tell = answers.as_well(best)
    alike = similarities >= similarity - CORRECTION_RELIEF * tell
    alike &= speakers[:, None] == speakers[None, :]
    least = np.where(tell, CORRECTION_SCORE_TOLD_MIN, CORRECTION_SCORE_MIN)
    alike &= answer & (score[best][:, None] >= least * score[best][None, :])
    guarded = CORRECTED_SCORE_MIN * float(score[best].max()) if len(best) else 0.0
    for newer, older in np.argwhere(np.tril(alike, -1)).tolist():
        # The older's score as lifted so far: what corrects a good answer is one, and may be corrected in its turn.
        if out[best[older]] >= guarded:
            out[best[newer]] = max(out[best[newer]], out[best[older]])
    return out
