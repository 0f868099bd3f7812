"""BM25+ that grows entry by entry and scores as of any point, with statistics over the visible entries only.

Invariant: a score depends on the visible entries alone. N, document frequencies and the average length are computed
from the visibility mask, never kept as running totals that a later entry would move.

References
----------
Lv, Y. and Zhai, C. (2011). Lower-bounding term frequency normalization. CIKM '11, eq. 8 (BM25+).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streams.core.visibility import Column, Mask

QUERY_TERMS_MAX = 32
"""Distinct terms that are scored; of longer queries the rarest."""
QUERY_TERMS_MIN = 6
"""Terms that are scored however common they are."""
QUERY_POSTINGS_MAX = 4096
"""Postings that one query reads beyond those of its rarest terms; bounds the time in large indexes."""
QUERY_TERMS_LOOKED_AT = 512
"""Distinct terms, half from either end of a query, whose document frequencies are counted to find the rarest."""

CELLS_MAX = 1 << 16
"""Terms times entries that one pass holds: 512 KB, which a core's cache holds."""

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

    def terms(self) -> list[str]:
        """All terms, in order of appearance."""
        return list(self._terms)

    def dumped(self, terms: Sequence[str], size: int) -> tuple[list[str], Ints, npt.NDArray[np.int32]]:
        """Postings of some terms among the first ``size`` entries, for ``restored``.

        Returns
        -------
        terms, (k,) int64, (p, 2) int32
            Those of the terms that occur, how many postings each has, and all postings in a row.
        """
        postings = [self._terms[term] for term in terms]
        counts = np.array([len(posting) // 2 for posting in postings], dtype=np.int64)
        pairs = np.frombuffer(b"".join(posting.tobytes() for posting in postings), dtype=np.int32).reshape(-1, 2)
        inside = pairs[:, 0] < size
        if not inside.all():
            counts = np.bincount(np.repeat(np.arange(len(terms)), counts)[inside], minlength=len(terms))
            pairs = pairs[inside]
        there = counts > 0
        return [term for term, kept in zip(terms, there.tolist(), strict=True) if kept], counts[there], pairs

    @classmethod
    def restored(cls, terms: dict[str, array], lengths: Ints, previous: Ints) -> Postings:
        """What ``add`` had built: postings by term (entry and frequency in turn), and two columns of the entries."""
        postings = cls()
        postings._terms = terms
        postings._lengths.extend(lengths)
        postings._previous.extend(previous)
        following = np.full(len(previous), -1, dtype=np.int64)
        following[previous[previous >= 0]] = np.flatnonzero(previous >= 0)
        postings._next.extend(following)
        return postings

    def posting(self, term: str) -> npt.NDArray[np.int32]:
        """Entries with a term, ascending, and its frequency in each, ``(p, 2)``; not copied: to be used up at once."""
        found = self._terms.get(term)
        return _NONE if found is None else np.frombuffer(found, dtype=np.int32).reshape(-1, 2)

    def count(self, term: str, size: int) -> int:
        """How many of the first ``size`` entries have a term."""
        found = self._terms.get(term)
        if found is None:
            return 0
        count = len(found) // 2
        return count if found[-2] < size else bisect_left(range(count), size, key=lambda index: found[2 * index])

    def lengths(self, size: int) -> Ints:
        """Terms of each of the first ``size`` entries, ``(size,)`` int."""
        return self._lengths.view(size)

    def adjacent(self, entries: Ints, mask: Mask) -> Ints:
        """The visible neighbours before and after each of some entries, ``(2, k)``; -1: none."""
        found = np.stack([column.view()[entries] for column in (self._previous, self._next)])
        inside = (found >= 0) & (found < len(mask))
        inside[inside] = mask[found[inside]]
        return np.where(inside, found, -1)

    def neighbours(self, window: int, mask: Mask) -> list[Ints]:
        """Maps ``(n,)`` from each entry to its visible neighbour at distance 1, 1, 2, 2, …; -1: none."""
        size = len(mask)
        everything = bool(mask.all())
        seen = np.append(mask, False)
        steps = []
        for column in (self._previous, self._next):
            # A last element of -1, so that nobody's neighbour (index -1) is nobody again.
            step = np.append(column.view(size), -1)
            step[step >= size] = -1
            steps.append(step)
        maps: list[Ints] = []
        reached = [step[:size] for step in steps]
        for _ in range(window):
            maps += [there if everything else np.where(seen[there], there, -1) for there in reached]
            reached = [step[there] for step, there in zip(steps, reached, strict=True)]
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


@dataclass(frozen=True, slots=True)
class Scored:
    """BM25+ of each entry of a segment, ``(n,)``, and how much of the query it holds itself, ``(n,)``.

    ``overlap`` is Σ_t c(t, q) · ln((N + 1) / df) over the query's terms in the entry, what neighbours lend left out;
    None where it was not asked for.
    """

    score: Floats
    overlap: Floats | None


def scores(
    terms: Sequence[str], segments: Sequence[Segment], parameters: Parameters, window: Window | None = None
) -> list[Floats]:
    """BM25+ of a query for every entry of several segments: the scores of ``search``.

    >>> postings = Postings()
    >>> _ = postings.add(["cat"])
    >>> scores(["dog"], [Segment(postings, np.array([True]))], Parameters())[0].tolist()
    [0.0]
    """
    return [scored.score for scored in search(terms, segments, parameters, window)]


def search(
    terms: Sequence[str],
    segments: Sequence[Segment],
    parameters: Parameters,
    window: Window | None = None,
    *,
    overlap: bool = False,
) -> list[Scored]:
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
    overlap : bool
        Tell as well how much of the query each entry holds itself.

    Returns
    -------
    list of Scored
        One a segment; 0 where nothing matches or the entry is invisible.

    Notes
    -----
    s(d) = Σ_t c(t, q) · ln((N + 1) / df) · ((k1 + 1)·tf / (k1·(1 − b + b·dl/avgdl) + tf) + delta), t in q and d.

    >>> postings = Postings()
    >>> for text in ("cat sat", "dog sat", "bird flew far away"):
    ...     _ = postings.add(text.split())
    >>> segment = Segment(postings, np.array([True, True, True]))
    >>> [round(score, 3) for score in search(["sat"], [segment], Parameters())[0].score.tolist()]
    [1.465, 1.465, 0.0]
    >>> search(["cat"], [Segment(postings, np.array([False, True]))], Parameters())[0].score.tolist()
    [0.0, 0.0]
    """
    views = [_View(segment, window) for segment in segments]
    total = sum(view.visible for view in views)
    length = sum(view.length for view in views)
    if not total or not length:
        return [Scored(view.score, np.zeros(len(view.score)) if overlap else None) for view in views]
    for view in views:
        relative = view.lengths * (total / length)
        view.saturation = parameters.k1 * (1 - parameters.b + parameters.b * relative)
    weights = _weights(Counter(terms))
    chosen = _chosen(views, list(weights))
    postings = [view.own(chosen) for view in views]
    term_weights = np.array([weights[term] for term in chosen], dtype=np.float64)
    entries_max = max(len(view.score) for view in views)
    # Only lending needs a cell for each term and entry; without it one pass takes all terms.
    lending = any(view.maps for view in views)
    batch = max(1, CELLS_MAX // entries_max) if lending else max(1, len(chosen))
    for start in range(0, len(chosen), batch):
        count = min(batch, len(chosen) - start)
        matches = [view.lent(_slice(own, start, count), count) for view, own in zip(views, postings, strict=True)]
        found = sum(np.bincount(match.terms, minlength=count) for match in matches)
        idf = term_weights[start : start + count] * np.log((total + 1) / np.maximum(found, 1))
        for view, match in zip(views, matches, strict=True):
            tf, saturation = match.frequencies, view.saturation[match.entries]
            gain = (parameters.k1 + 1) * tf / (saturation + tf) + parameters.delta
            view.score += np.bincount(match.entries, weights=idf[match.terms] * gain, minlength=len(view.score))
    if not overlap:
        return [Scored(view.score, None) for view in views]
    held = sum(np.bincount(own.terms, minlength=len(chosen)) for own in postings)
    worth = term_weights * np.log((total + 1) / np.maximum(held, 1))
    return [
        Scored(view.score, np.bincount(own.entries, weights=worth[own.terms], minlength=len(view.score)).astype(float))
        for view, own in zip(views, postings, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Matches:
    """Postings of several terms: number of the term (ascending), entry, frequency; each ``(p,)``."""

    terms: Ints
    entries: Ints
    frequencies: Floats


class _View:
    """A segment during one search."""

    __slots__ = ("everything", "length", "lengths", "maps", "mask", "postings", "saturation", "score", "visible")

    def __init__(self, segment: Segment, window: Window | None) -> None:
        size = len(segment.mask)
        self.postings, self.mask = segment.postings, segment.mask
        self.visible = int(np.count_nonzero(self.mask))
        self.everything = self.visible == size
        self.lengths: Floats = self.postings.lengths(size).astype(np.float64) * self.mask
        self.maps: list[tuple[float, Ints]] = []
        if window is not None and window.reach:
            maps = self.postings.neighbours(window.reach, self.mask)
            self.maps = [(window.weight ** (1 + index // 2), there) for index, there in enumerate(maps)]
            alone = np.append(self.lengths, 0.0)
            for weight, there in self.maps:
                self.lengths += weight * alone[there]
        self.length = float(self.lengths[self.mask].sum())
        self.saturation: Floats = self.lengths
        self.score: Floats = np.zeros(size)

    def own(self, terms: Sequence[str]) -> _Matches:
        """Visible postings of some terms."""
        postings = [self.postings.posting(term) for term in terms]
        pairs = np.concatenate(postings) if postings else _NONE
        rows = np.repeat(np.arange(len(postings)), [len(posting) for posting in postings])
        entries = pairs[:, 0].astype(np.int64)
        if not self.everything or (len(entries) and int(entries.max()) >= len(self.mask)):
            kept = entries < len(self.mask)
            kept[kept] = self.mask[entries[kept]]
            rows, entries, pairs = rows[kept], entries[kept], pairs[kept]
        return _Matches(rows, entries, pairs[:, 1].astype(np.float64))

    def lent(self, own: _Matches, count: int) -> _Matches:
        """The postings of ``count`` terms with what neighbours lend added: each (term, entry) once."""
        size = len(self.mask)
        if not self.maps or not len(own.terms):
            return own
        rows = own.terms * size
        cells, counts = [rows + own.entries], [own.frequencies]
        for weight, there in self.maps:
            borrowers = there[own.entries]
            lent = borrowers >= 0
            cells.append((rows + borrowers)[lent])
            counts.append(weight * own.frequencies[lent])
        dense = np.bincount(np.concatenate(cells), weights=np.concatenate(counts)).astype(np.float64, copy=False)
        filled = np.flatnonzero(dense > 0)  # nonzero of bool is several times faster than of float
        # Cells ascend, so the terms are runs: cheaper than dividing each cell by the size.
        starts = np.searchsorted(filled, np.arange(count + 1) * size)
        numbers = np.repeat(np.arange(count), np.diff(starts))
        return _Matches(numbers, filled - numbers * size, dense[filled])


def _weights(counts: Counter[str]) -> dict[str, int]:
    """Distinct terms with their counts; of very many those at either end."""
    terms = list(counts)
    if len(terms) > QUERY_TERMS_LOOKED_AT:
        half = QUERY_TERMS_LOOKED_AT // 2
        terms = terms[:half] + terms[-half:]
    return {term: counts[term] for term in terms}


def _chosen(views: list[_View], terms: list[str]) -> list[str]:
    """The terms that are scored, in their order.

    The rarest terms carry nearly all of the weight and the commonest nearly all of the work.
    """
    found = np.zeros(len(terms), dtype=np.int64)
    for view in views:
        # Of entries up to the cut, removed ones included: cheap, and the same for a history that ends there.
        found += [view.postings.count(term, len(view.mask)) for term in terms]
    matched = np.flatnonzero(found)
    rarest = matched[np.argsort(found[matched], kind="stable")]
    affordable = int(np.searchsorted(np.cumsum(found[rarest]), QUERY_POSTINGS_MAX, side="right"))
    kept = np.sort(rarest[: min(QUERY_TERMS_MAX, max(QUERY_TERMS_MIN, affordable))])
    return [terms[index] for index in kept.tolist()]


def _slice(own: _Matches, start: int, count: int) -> _Matches:
    """Postings of the terms ``[start, start + count)``, numbered from 0."""
    first, last = np.searchsorted(own.terms, [start, start + count]).tolist()
    return _Matches(own.terms[first:last] - start, own.entries[first:last], own.frequencies[first:last])


_NONE: npt.NDArray[np.int32] = np.empty((0, 2), dtype=np.int32)
