"""Corrections: the newer statement of a fact must not rank below the older one that it corrects.

Whether one turn corrects another is read from eight signs that are summed to log-odds; no model is asked. Each turn
has at most one correction, the one with the best odds, and chains are followed: Paris, then Rome, then Oslo.

Invariant: only scores of corrections rise, never above that of what they correct, and nothing falls; a function of the
pool alone.

The weights are a logistic regression (ridge 0.3), rounded, on pairs of an older and a newer turn: 1,818 true ones
(generated facts of infra/bench/data/corrections.toml in small talk and in LoCoMo, tests/core/corrections.py, the same
with a sentence of small talk added), against 12,084 pairs of LoCoMo in which the newer one is no evidence, 3,054 of a
fact and small talk, and 28 look-alikes of another subject. Fitted without one of five conversations of LoCoMo each
weight stays within a fifth. See infra/decisions/0010-corrections-by-odds.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streams.core import text
from streams.core.bm25 import Postings
from streams.core.visibility import Mask

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ODDS = -10.0
"""The constant of the sum, fitted -12 and moved by 2: a pair counts as a correction from a fitted probability of 0.12.
With -10.5 recall@5 of LoCoMo is 0.002 higher and one correction in a hundred more is missed."""
ODDS_ALIKE = 3.5
"""For each 1.0 of the centred cosine of the two turns; true pairs have 0.27 to 0.85, small talk -0.1 to 0.27."""
ODDS_NEAR = 4.5
"""For each 1.0 of how near the query the newer comes compared with the older, by meaning and by score, 0 to 1 each."""
ODDS_REVOKED = 2.0
"""Where the newer tells a change and repeats what only the older said ("I quit being a nurse", "不当医生了")."""
ODDS_LOST = -2.0
"""For the share of the query's words, by weight, that the newer lacks and the older holds, where nothing is revoked:
who asks for the dog doesn't ask for the cat. Fitted -1.5. With -3 one look-alike in twenty more stays where it
belongs, and one of the 80 pairs is missed in small talk."""
ODDS_LONG = -4.0
"""For each factor e of a turn's length beyond ``STATEMENT_TOKENS``: a tale is no statement of one fact."""
ODDS_ASKING = -3.5
"""For each of the two that is a question."""
ODDS_NOW = 4.0
"""For a query about how things are, see ``asks_for_now``."""

STATEMENT_TOKENS = 20
"""Length of a statement in ``text.token_estimate``: nineteen of twenty facts and corrections lie below 19."""
STATEMENT_CHARACTERS = 200
"""Of a turn whose words are compared; what is longer has lost 3.7 of its odds in English already."""
CORRECTION_SCORE_MIN = 0.05
"""Part of the older's score below which the newer answers something else: 99 % of true pairs lie above."""
CORRECTED_SCORE_MIN = 0.7
"""Part of the best score from which a turn is guarded by its correction. What ranks lower doesn't answer the question;
at 0.85 small talk that happens to rank first leaves one fact in a hundred unguarded, 0.55 wins nothing more."""
CORRECTION_POOL = 50
"""Best candidates that are compared with each other; with 200 the same corrections are found."""
REVOKED_SHARE = 0.15
"""Share of the older's own words, by weight, from which a repetition counts in full: half of the true pairs have 0.12
to 0.22, of LoCoMo's one in twenty has 0.17. One value among the bigrams of a Chinese sentence makes about 0.15."""
NEARNESS_MIN = 0.05
"""Standardised cosine below which nearness is not measured by parts of it."""
REVOCATIONS_MAX = 4
"""Turns whose words are compared with newer ones; bounds the time. Half of LoCoMo's questions need none, nine of ten
need one or two."""
REVOKING_MAX = 4
"""Newer turns of one older that are looked through for its words, the earliest first."""
TERMS_MAX = 32
"""Words of a query, and of a turn, that are compared; statements have half as many."""

CODE = re.compile(r"(?=.*\d)(?=.*[a-z])[a-z\d]{4,}|\d{5,}")
"""Terms that name one thing and nothing like it: letters with digits, long numbers."""

_PAST = re.compile(
    r"\b(?:did|was|were|had|ago|used to|has|have been|recently)\b"
    r"|以前|之前|曾|当时|當時|原来|原來|去年|上次",
    flags=re.IGNORECASE,
)
_OWN = re.compile(r"\b(?:i|my|me|we|our|us|mine|i'm|i've)\b|我|咱", flags=re.IGNORECASE)


@lru_cache(maxsize=512)  # The same few statements are compared again and again.
def _terms(statement: str) -> dict[str, None]:
    return dict.fromkeys(text.tokens(statement))


@dataclass(frozen=True, slots=True)
class Words:
    """Which of some turns hold which words, and what a word weighs: ln((N + 1) / df) over the first ``size`` turns."""

    postings: Postings
    size: int
    ids: Ints
    """The turns, ``(k,)``."""
    shown: Sequence[str]
    """Their texts."""

    def held(self, terms: Sequence[str]) -> tuple[Mask, Floats]:
        """Which turn holds which term, ``(t, k)``, and the weights of the terms, ``(t,)``."""
        held = np.zeros((len(terms), len(self.ids)), dtype=bool)
        ids = self.ids.astype(np.int32)  # the type of postings: another one would have them copied
        for row, term in enumerate(terms):
            entries = self.postings.posting(term)[:, 0]
            if len(entries):
                held[row] = entries.take(entries.searchsorted(ids), mode="clip") == ids
        return held, self._worth(terms)

    def repeated(self, row: int, rows: Ints, but: Collection[str]) -> Floats:
        """Share of a turn's terms but some, by weight, that other turns hold, ``(r,)``."""
        terms = [term for term in _terms(self.shown[row][:STATEMENT_CHARACTERS]) if term not in but][:TERMS_MAX]
        worth = self._worth(terms)
        whole = float(worth.sum())
        shares = np.zeros(len(rows))
        for place, other in enumerate(rows.tolist()):
            held = _terms(self.shown[other][:STATEMENT_CHARACTERS])
            shares[place] = sum(weight for term, weight in zip(terms, worth.tolist(), strict=True) if term in held)
        return shares / whole if whole > 0 else shares

    def _worth(self, terms: Sequence[str]) -> Floats:
        # As bm25._chosen counts: of turns up to the cut, so that a history that ends there has the same.
        counts = [max(self.postings.count(term, self.size), 1) for term in terms]
        return np.asarray(np.log((self.size + 1) / np.array(counts, dtype=np.float64)))


@dataclass(frozen=True, slots=True)
class Pool:
    """The best candidates of a query in the order of the log, each ``(k,)``.

    ``nearness`` is the standardised cosine with the query, ``alike`` ``(k, k)`` the centred cosine with each other.
    """

    query: str
    score: Floats
    nearness: Floats
    alike: Floats
    users: Mask
    changing: Mask
    asking: Mask
    words: Words


def asks_for_now(query: str) -> float:
    """How much a query asks how things are: 1 where it tells no past, 0.5 for the asker's own affairs.

    Who asks for the past wants what was said then, not what corrects it.

    >>> asks_for_now("Where do I live?"), asks_for_now("Where does Ann live?"), asks_for_now("Where did Ann live?")
    (1.5, 1.0, 0.0)
    """
    return float(not _PAST.search(query)) + float(bool(_OWN.search(query))) / 2


def best_of(ids: Ints, score: Floats, vector_ids: Ints) -> Ints:
    """Rows of the best candidates that have a vector, in the order of the log."""
    best = np.sort(np.lexsort((ids, -np.round(score, 6)))[:CORRECTION_POOL])
    return np.asarray(best[vector_ids[best] >= 0])


def lifted(pool: Pool, similarity: float) -> Floats:
    """Scores ``(k,)`` in which no turn ranks above its correction.

    Rows ascend with the log, so one pass from old to new carries a score along a chain of corrections.

    Parameters
    ----------
    pool : Pool
    similarity : float
        Turns less alike than this are never compared.
    """
    out = pool.score.copy()
    terms = list(dict.fromkeys(text.query_tokens(pool.query)))
    holds, worth = pool.words.held(terms[:TERMS_MAX])
    odds, lost = _odds(pool), _lost(holds, worth)
    may = (pool.alike >= similarity) & (pool.users[:, None] == pool.users[None, :])
    may &= pool.score[:, None] >= CORRECTION_SCORE_MIN * pool.score[None, :]
    for term, held in zip(terms, holds, strict=False):
        if CODE.fullmatch(term):
            may &= held[:, None] | ~held[None, :]
    may &= odds + ODDS_REVOKED * pool.changing[:, None] >= 0
    may = np.tril(may, -1)
    guarded = CORRECTED_SCORE_MIN * float(out.max()) if len(out) else 0.0
    revocations = 0
    for older in np.flatnonzero(may.any(axis=0)).tolist():
        # The score as lifted so far: what corrects a good answer is one, and may be corrected in its turn.
        if out[older] < guarded:
            continue
        newer = np.flatnonzero(may[:, older])
        told = odds[newer, older] + ODDS_LOST * lost[newer, older]
        changed = np.flatnonzero(pool.changing[newer])[:REVOKING_MAX]
        # A single one whose odds suffice is the correction, whatever it repeats.
        if len(changed) and (len(newer) > 1 or told[0] < 0) and revocations < REVOCATIONS_MAX:
            revocations += 1
            revoked = np.minimum(pool.words.repeated(older, newer[changed], terms) / REVOKED_SHARE, 1.0)
            told[changed] += revoked * (ODDS_REVOKED - ODDS_LOST * lost[newer[changed], older])
        best = int(np.lexsort((-newer, -np.round(told, 6)))[0])
        if told[best] >= 0:
            out[newer[best]] = max(out[newer[best]], out[older])
    return out


def _odds(pool: Pool) -> Floats:
    """Log-odds that row i corrects row j but for the two signs of words, ``(k, k)``."""
    near = np.maximum(pool.nearness, 0.0)
    by_meaning = np.minimum(near[:, None] / np.maximum(near, NEARNESS_MIN), 1.0)
    by_score = np.minimum(pool.score[:, None] / np.maximum(pool.score, 1e-9), 1.0)
    tokens = np.array([text.token_estimate(shown) for shown in pool.words.shown], dtype=np.float64)
    each = ODDS_LONG * np.log(np.maximum(tokens / STATEMENT_TOKENS, 1.0)) + ODDS_ASKING * pool.asking
    told = ODDS + ODDS_NOW * asks_for_now(pool.query)
    return np.asarray(told + ODDS_ALIKE * pool.alike + ODDS_NEAR * (by_meaning + by_score) + each[:, None] + each)


def _lost(holds: Mask, worth: Floats) -> Floats:
    """Share of the query's words, by weight, that row i lacks and row j holds, ``(k, k)``."""
    whole = float(worth.sum())
    lost = (~holds).T.astype(np.float64) @ (holds * worth[:, None])
    return np.asarray(lost / whole if whole > 0 else lost)
