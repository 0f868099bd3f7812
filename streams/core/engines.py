"""Engines of words for knowledge: what matches a query's terms in the children of documents.

Invariants: an engine keeps the entries of one segment apart from those of all others, so a search that isn't given a
segment can't reach it; scores of several segments in one search are comparable. Whether a score depends on the visible
entries alone is the engine's: ``BM25Plus`` keeps that to the bit, ``exact`` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streams.core import bm25
from streams.core.visibility import Mask

Floats = npt.NDArray[np.float64]


class Words(Protocol):
    """The terms of one segment's entries, which are numbered 0, 1, 2, … as they come."""

    def __len__(self) -> int:
        """Entries so far."""
        ...

    def add(self, terms: Sequence[str]) -> int:
        """Add an entry with its terms (``text.tokens``); its id."""
        ...


class WordsEngine(Protocol):
    """Makes segments and searches them at a cut."""

    name: str
    """As recorded in the configuration of an answer."""
    exact: bool
    """Whether scores at a cut are those of an index that ends there; False: statistics are of the whole index."""

    def segment(self) -> Words:
        """A new, empty segment."""
        ...

    def scores(
        self, terms: Sequence[str], scopes: Sequence[tuple[Words, Mask]], parameters: bm25.Parameters, count: int
    ) -> list[Floats]:
        """Scores of the entries of several segments for a query.

        Parameters
        ----------
        terms : sequence of str
            The query's (``text.query_tokens``).
        scopes : sequence of (Words, (n,) bool)
            Segments of this engine, and which of their first n entries are visible.
        parameters : bm25.Parameters
        count : int
            At least so many of the best visible entries have their score, if as many match.

        Returns
        -------
        list of (n,) float64
            One a scope; 0 where nothing matches, the entry is invisible, or it is beyond ``count``.
        """
        ...


class BM25Plus:
    """``WordsEngine`` by our postings: every visible entry is scored, with statistics of the visible entries.

    >>> engine = BM25Plus()
    >>> shared = engine.segment()
    >>> shared.add(["cat", "sat"]), shared.add(["dog", "sat"])
    (0, 1)
    >>> now, before = np.array([True, True]), np.array([True])
    >>> [scores.round(3).tolist() for scores in engine.scores(["cat"], [(shared, now)], bm25.Parameters(), 10)]
    [[2.197, 0.0]]
    >>> [scores.round(3).tolist() for scores in engine.scores(["cat"], [(shared, before)], bm25.Parameters(), 10)]
    [[1.386]]
    """

    name = "bm25"
    exact = True

    def segment(self) -> bm25.Postings:
        """See ``WordsEngine``."""
        return bm25.Postings()

    def scores(
        self, terms: Sequence[str], scopes: Sequence[tuple[Words, Mask]], parameters: bm25.Parameters, count: int
    ) -> list[Floats]:
        """See ``WordsEngine``; ``count`` is of no account."""
        if not terms:
            return [np.zeros(len(mask)) for _, mask in scopes]
        segments = []
        for words, mask in scopes:
            assert isinstance(words, bm25.Postings), f"a segment of another engine: {type(words).__name__}"
            segments.append(bm25.Segment(words, mask))
        return bm25.scores(terms, segments, parameters)
