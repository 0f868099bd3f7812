"""Questions that ask for several things: their evidence is taken from several places of a conversation.

Neighbours lend each other words and meaning, so the turns around one good answer fill the first places. Where one
thing is asked for that is right, they are its context; where many are asked for ("What instruments does Ann play?")
the others stand elsewhere.

Invariant: a score only falls, and only where a better turn close by has been taken before.

References
----------
Carbonell and Goldstein (1998), The use of MMR, diversity-based reranking. SIGIR '98; here likeness is closeness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streams.core.fusion import SCORE_DECIMALS

REACH = 3
"""Turns on either side that a taken one pushes back. Of 2, 3 and 4 the best on any four conversations of LoCoMo."""
TAKEN_MAX = 30
"""Turns that are taken one after the other; more than a prompt shows. Bounds the time."""

_SEVERAL = re.compile(
    r"\b(?:both|in common|ways|kinds?|types?|how many|how often)\b"
    r"|\b(?:what|which)(?: \w+)? \w+s\b(?<!\bis)(?<!\bdoes)(?<!\bwas)(?<!\bhis)(?<!\bthis)(?<!\bits)"
    r"|^who (?:are|were)\b|哪些|哪几|几种|幾種|几次|幾次|多少次|分别|分別|共同|都.{0,8}过|都.{0,8}過",
    flags=re.IGNORECASE,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def asks_for_several(query: str) -> bool:
    """Whether a question asks for more than one thing, as far as its words tell.

    >>> [asks_for_several(query) for query in ("What books has Tim read?", "你去过哪些城市？", "What is his job?")]
    [True, True, False]
    """
    return bool(_SEVERAL.search(query))


def spread(score: Floats, ids: Ints, sessions: Sequence[str], step: float) -> Floats:
    """What each turn loses, ``(n,)`` at most 0: ``step`` / distance for each taken turn of its session nearby.

    The best is taken, its neighbours lose, then the best of the rest is taken, and so on; of equal ones the newer.

    Parameters
    ----------
    score : (n,) float
    ids : (n,) int
        Turns by their place in the history, ascending.
    sessions : sequence of str
        Of each turn.
    step : float
        In units of the score.

    >>> spread(np.array([0.9, 1.0, 0.8]), np.array([4, 5, 9]), ["a", "a", "a"], 0.15).round(2).tolist()
    [-0.15, 0.0, 0.0]
    """
    left = np.round(score, SCORE_DECIMALS)
    open_ = np.ones(len(ids), dtype=bool)
    lost = np.zeros(len(ids))
    places = {index: place for place, index in enumerate(ids.tolist())}
    for _ in range(min(TAKEN_MAX, len(ids))):
        waiting = np.where(open_, np.round(left + lost, SCORE_DECIMALS), -np.inf)
        taken = len(ids) - 1 - int(np.argmax(waiting[::-1]))
        open_[taken] = False
        for distance in range(1, REACH + 1):
            for other in (int(ids[taken]) - distance, int(ids[taken]) + distance):
                place = places.get(other)
                if place is not None and open_[place] and sessions[place] == sessions[taken]:
                    lost[place] -= step / distance
    return lost
