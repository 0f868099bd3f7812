"""BM25+ that grows entry by entry and scores as of any point, with statistics over the visible entries only.

Invariant: a score depends on the visible entries alone. N, document frequencies and the average length are computed
from the visibility mask, never kept as running totals that a later entry would move.

References
----------
Lv, Y. and Zhai, C. (2011). Lower-bounding term frequency normalization. CIKM '11, eq. 8 (BM25+).
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streams.core.visibility import Column, Mask

QUERY_TERMS_MAX = 64
"""Distinct terms that are scored; of longer queries the rarest, which carry nearly all of the weight."""
QUERY_TERMS_LOOKED_AT = 512
"""Distinct terms, half from either end of a query, whose document frequencies are counted to find the rarest."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """``k1`` >= 0 (saturation), ``b`` in [0, 1] (length), ``delta`` >= 0 (lower bound of a match)."""

    k1: float = 1.2
    b: float = 0.75
    delta: float = 1.0


class Postings:
    """Terms of one segment of entries: per term an array of entry ids and frequencies, 8 bytes each posting."""

    __slots__ = ("_lengths", "_next", "_previous", "_terms")

    def __init__(self) -> None:
        self._terms: dict[str, array] = {}
        self._lengths = Column(np.int64)
        self._previous = Column(np.int64)
        self._next = Column(np.int64)

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, terms: Iterable[str], previous: int = -1) -> int:
        """Add an entry.

        Parameters
        ----------
        terms : iterable of str
            See ``text.tokens``; order is of no account.
        previous : int
            Id of the entry that this one follows in its conversation, -1: none. Such neighbours lend each other
            their terms where a search asks for a window.

        Returns
        -------
        int
            The entry's id: 0, 1, 2, …
        """
        entry = len(self._lengths)
        counts = Counter(terms)
        for term, frequency in counts.items():
            posting = self._terms.get(term)
            if posting is None:
                posting = self._terms[term] = array("i")
            posting.append(entry)
            posting.append(frequency)
        self._lengths.append(sum(counts.values()))
        self._previous.append(previous)
        self._next.append(-1)
        if previous >= 0:
            self._next.view()[previous] = entry
        return entry

    def posting(self, term: str, mask: Mask) -> tuple[Ints, Ints]:
        """Visible entries with a term, ascending, and its frequency in each: two ``(p,)`` int."""
        found = self._terms.get(term)
        if found is None:
            return _NONE, _NONE
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        entries, frequencies = pairs[:, 0], pairs[:, 1]
        if len(entries) and entries[-1] >= len(mask):
            size = int(np.searchsorted(entries, len(mask)))
            entries, frequencies = entries[:size], frequencies[:size]
        kept = mask[entries]
        if not kept.all():
            entries, frequencies = entries[kept], frequencies[kept]
        return entries, frequencies

    def lengths(self, size: int) -> Ints:
        """Terms of each of the first ``size`` entries, ``(size,)`` int."""
        return self._lengths.view(size)

    def neighbours(self, window: int, mask: Mask) -> list[Ints]:
        """Maps ``(n,)`` from each entry to its visible neighbour at distance 1, 1, 2, 2, …; -1: none."""
        size = len(mask)
        maps: list[Ints] = []
        steps = [column.view(size) for column in (self._previous, self._next)]
        reached = [np.arange(size), np.arange(size)]
        for _ in range(window):
            for side, step in enumerate(steps):
                here = reached[side]
                there = np.where(here >= 0, step[here], -1)
                there[there >= size] = -1
                reached[side] = there
                maps.append(np.where(mask[there] & (there >= 0), there, -1))
        return maps


@dataclass(frozen=True, slots=True)
class Segment:
    """Postings and the visibility ``(n,)`` bool of their first n entries; n <= len(postings)."""

    postings: Postings
    mask: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Neighbours up to ``reach`` lend their terms, a term at distance i counting ``weight ** i`` of its frequency."""

    reach: int = 0
    weight: float = 0.65


def scores(
    terms: Sequence[str], segments: Sequence[Segment], parameters: Parameters, window: Window | None = None
) -> list[Floats]:
    """BM25+ of a query for every entry of several segments, as if they were one collection.

    Parameters
    ----------
    terms : sequence of str
        The query's terms; a term that occurs twice weighs twice.
    segments : sequence of Segment
        N, document frequencies and average length are taken over the visible entries of all of them.
    parameters : Parameters
    window : Window, optional
        Score each entry together with its neighbours in its conversation.

    Returns
    -------
    list of (n,) float64
        One array a segment; 0 where nothing matches or the entry is invisible.

    Notes
    -----
    s(d) = Σ_t c(t, q) · ln((N + 1) / df) · ((k1 + 1)·tf / (k1·(1 − b + b·dl/avgdl) + tf) + delta), t in q and d.

    >>> postings = Postings()
    >>> for text in ("cat sat", "dog sat", "bird flew far away"):
    ...     _ = postings.add(text.split())
    >>> segment = Segment(postings, np.array([True, True, True]))
    >>> [round(score, 3) for score in scores(["sat"], [segment], Parameters())[0].tolist()]
    [1.465, 1.465, 0.0]
    >>> scores(["cat"], [Segment(postings, np.array([False, True]))], Parameters())[0].tolist()
    [0.0, 0.0]
    """
    views = [_View(segment, window) for segment in segments]
    total = sum(view.visible for view in views)
    length = sum(view.length for view in views)
    if not total or not length:
        return [view.score for view in views]
    for view in views:
        view.saturation = parameters.k1 * (1 - parameters.b + parameters.b * (view.lengths * (total / length)))
    for term_weight, matches in _rarest(Counter(terms), views):
        idf = term_weight * math.log((total + 1) / sum(len(entries) for entries, _ in matches))
        for view, (entries, frequencies) in zip(views, matches, strict=True):
            gain = (parameters.k1 + 1) * frequencies / (view.saturation[entries] + frequencies) + parameters.delta
            view.score[entries] += idf * gain
    return [view.score for view in views]


class _View:
    """A segment during one search."""

    __slots__ = ("length", "lengths", "maps", "mask", "postings", "saturation", "score", "visible")

    def __init__(self, segment: Segment, window: Window | None) -> None:
        size = len(segment.mask)
        self.postings, self.mask = segment.postings, segment.mask
        self.visible = int(np.count_nonzero(self.mask))
        own = self.postings.lengths(size)
        self.lengths: Floats = np.where(self.mask, own, 0).astype(np.float64)
        self.maps: list[tuple[float, Ints]] = []
        if window is not None and window.reach:
            maps = self.postings.neighbours(window.reach, self.mask)
            self.maps = [(window.weight ** (1 + index // 2), there) for index, there in enumerate(maps)]
            alone = self.lengths.copy()
            for weight, there in self.maps:
                self.lengths += np.where(there >= 0, weight * alone[there], 0.0)
        self.length = float(self.lengths[self.mask].sum())
        self.saturation = self.lengths
        self.score: Floats = np.zeros(size)

    def matches(self, term: str) -> tuple[Ints, Floats]:
        """Visible entries with a term, own or borrowed, and its frequencies."""
        entries, counts = self.postings.posting(term, self.mask)
        frequencies = counts.astype(np.float64)
        if not self.maps or not len(entries):
            return entries, frequencies
        dense = np.zeros(len(self.mask))
        dense[entries] = frequencies
        for weight, there in self.maps:
            # `there` is one-to-one where it is not -1, so plain indexing adds each loan once.
            borrowers = there[entries]
            lent = borrowers >= 0
            dense[borrowers[lent]] += weight * frequencies[lent]
        entries = np.flatnonzero(dense)
        return entries, dense[entries]


def _rarest(counts: Counter[str], views: Sequence[_View]) -> list[tuple[int, list[tuple[Ints, Floats]]]]:
    """Weight and matches of the terms that are scored: all that match, or the rarest of a very long query."""
    terms = list(counts)
    if len(terms) > QUERY_TERMS_LOOKED_AT:
        half = QUERY_TERMS_LOOKED_AT // 2
        terms = terms[:half] + terms[-half:]
    found = []
    for order, term in enumerate(terms):
        matches = [view.matches(term) for view in views]
        frequency = sum(len(entries) for entries, _ in matches)
        if frequency:
            found.append((frequency, order, counts[term], matches))
    if len(found) > QUERY_TERMS_MAX:
        found = sorted(sorted(found, key=lambda item: item[:2])[:QUERY_TERMS_MAX], key=lambda item: item[1])
    return [(weight, matches) for _, _, weight, matches in found]


_NONE: Ints = np.empty(0, dtype=np.int64)
