"""BM25+ that grows entry by entry and scores as of any point, with statistics over the visible entries only.

Invariant: a score depends on the visible entries alone. N, document frequencies and the average length are computed
from the visibility mask, never kept as running totals that a later entry would move.

References
----------
Lv, Y. and Zhai, C. (2011). Lower-bounding term frequency normalization. CIKM '11, eq. 8 (BM25+).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

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
FREQUENCY_BIT = 32
ENTRY = (1 << FREQUENCY_BIT) - 1
assert sys.byteorder == "little", "a posting is read as two int32; FAISS runs on no other machine either"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """``k1`` >= 0 (saturation), ``b`` in [0, 1] (length), ``delta`` >= 0 (lower bound of a match)."""

    k1: float = 1.2
    b: float = 0.75
    delta: float = 1.0


class Postings:
    """Terms of one segment of entries: per term its postings, 8 bytes each.

    A posting is ``entry | frequency << 32``. Most terms stand in one entry only; theirs is a bare int, which takes a
    third of the memory of an array and a fifth of the time to make one.
    """

    __slots__ = ("_lengths", "_next", "_previous", "_terms", "_windowed")

    def __init__(self) -> None:
        self._terms: dict[str, array | int] = {}
        self._lengths = Column(np.int64)
        # Neighbours are numbered from 1; 0 is nobody, whose neighbour is nobody, so that no step needs a check.
        self._previous, self._next = Column(np.int64), Column(np.int64)
        self._previous.append(0)
        self._next.append(0)
        self._windowed: tuple[Window, Column] | None = None

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, terms: Sequence[str], previous: int = -1) -> int:
        """Add an entry.

        Parameters
        ----------
        terms : sequence of str
            See ``text.tokens``; order is of no account.
        previous : int
            Id of the entry that this one follows in its conversation, -1: none; no other follows it. Such neighbours
            lend each other their terms where a search asks for a window.

        Returns
        -------
        int
            The entry's id: 0, 1, 2, …
        """
        entry = len(self._lengths)
        known = self._terms
        once = entry | 1 << FREQUENCY_BIT
        for term, frequency in Counter(terms).items():
            posting = once if frequency == 1 else entry | frequency << FREQUENCY_BIT
            found = known.get(term)
            if found is None:
                known[term] = posting
            elif isinstance(found, int):
                known[term] = array("q", (found, posting))
            else:
                found.append(posting)
        self._lengths.append(len(terms))
        self._previous.append(previous + 1)
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
        postings = [self.codes(term, size) for term in terms]
        counts = np.array([len(codes) for codes in postings], dtype=np.int64)
        there = counts > 0
        kept = [term for term, occurs in zip(terms, there.tolist(), strict=True) if occurs]
        return kept, counts[there], _pairs(np.concatenate([_NO_CODES, *postings]))

    @classmethod
    def restored(cls, terms: dict[str, array], lengths: Ints, previous: Ints) -> Postings:
        """What ``add`` had built: postings by term (entry and frequency in turn), and two columns of the entries."""
        postings = cls()
        for term, pairs in terms.items():
            codes = array("q", pairs.tobytes())
            postings._terms[term] = codes if len(codes) > 1 else codes[0]
        postings._lengths.extend(lengths)
        postings._previous.extend(previous + 1)
        return postings

    def codes(self, term: str, size: int) -> Ints:
        """Postings of a term among the first ``size`` entries, ``(p,)``; not copied: to be used up at once."""
        found = self._terms.get(term)
        if found is None:
            return _NO_CODES
        if isinstance(found, int):
            return np.array([found]) if found & ENTRY < size else _NO_CODES
        codes = np.frombuffer(found, dtype=np.int64)
        return codes if found[-1] & ENTRY < size else codes[: self.count(term, size)]

    def posting(self, term: str) -> npt.NDArray[np.int32]:
        """Entries with a term, ascending, and its frequency in each, ``(p, 2)``; not copied: to be used up at once."""
        return _pairs(self.codes(term, len(self)))

    def count(self, term: str, size: int) -> int:
        """How many of the first ``size`` entries have a term."""
        found = self._terms.get(term)
        if found is None:
            return 0
        if isinstance(found, int):
            return int(found & ENTRY < size)
        if found[-1] & ENTRY < size:
            return len(found)
        return bisect_left(found, size, key=lambda posting: posting & ENTRY)

    def lengths(self, size: int) -> Ints:
        """Terms of each of the first ``size`` entries, ``(size,)`` int."""
        return self._lengths.view(size)

    def adjacent(self, entries: Ints, mask: Mask) -> Ints:
        """The visible neighbours before and after each of some entries, ``(2, k)``; -1: none."""
        found = np.stack([step[entries + 1] for step in self._steps()]) - 1
        inside = (found >= 0) & (found < len(mask))
        inside[inside] = mask[found[inside]]
        return np.where(inside, found, -1)

    def around(self, entries: Ints, reach: int, size: int) -> list[Ints]:
        """Neighbours of some entries at distance 1, 1, 2, 2, … among the first ``size``, each ``(k,)``.

        All are numbered from 1, and 0 is nobody.
        """
        previous, following = self._steps()
        before = after = entries
        found: list[Ints] = []
        for _ in range(reach):
            before, after = previous[before], following[after]
            if size < len(self):
                after[after > size] = 0
            found += [before, after]
        return found

    def windowed(self, window: Window, mask: Mask) -> Floats:
        """Lengths of the first entries with what their visible neighbours lend, ``(n,)``.

        Those of all entries with each other are kept, and made anew where a neighbour is new or not visible: a search
        that leaves out one turn looks at four.
        """
        whole = self._all_windowed(window)
        size = len(mask)
        if size == len(whole) and mask.all():
            return whole
        gone = np.append(np.flatnonzero(~mask), np.arange(size, len(whole))) + 1
        if len(gone) > size // 8:
            entries = np.arange(1, size + 1)
        else:
            entries = np.concatenate(self.around(gone, window.reach, len(whole)))
            entries = entries[(entries > 0) & (entries <= size)]
        lengths = whole[:size].copy()
        lengths[entries - 1] = self._lent(window, entries, mask)
        return lengths

    def _all_windowed(self, window: Window) -> Floats:
        if self._windowed is None or self._windowed[0] != window:
            self._windowed = window, Column(np.float64)
        column = self._windowed[1]
        first, size = len(column), len(self)
        if first < size:
            column.extend(np.zeros(size - first))
            fresh = np.arange(first + 1, size + 1)
            changed = np.concatenate([fresh, *self.around(fresh, window.reach, size)])
            changed = changed[changed > 0]
            column.view()[changed - 1] = self._lent(window, changed, np.ones(size, dtype=bool))
        return column.view()

    def _lent(self, window: Window, entries: Ints, mask: Mask) -> Floats:
        """Lengths of some entries, numbered from 1, with what visible neighbours lend."""
        alone = self._lengths.view()
        lengths = alone[entries - 1].astype(np.float64)
        for index, there in enumerate(self.around(entries, window.reach, len(mask))):
            # Nobody's index is that of the last entry, and counts nothing.
            lengths += window.weight ** (1 + index // 2) * (alone[there - 1] * (mask[there - 1] & (there > 0)))
        return lengths

    def _steps(self) -> tuple[Ints, Ints]:
        """The entry before and the one after each; entries are numbered from 1."""
        previous = self._previous.view()
        first = len(self._next)
        if first < len(previous):
            self._next.extend(np.zeros(len(previous) - first, dtype=np.int64))
            following = self._next.view()
            following[previous[first:]] = np.arange(first, len(previous))
            following[0] = 0
        return previous, self._next.view()


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
    if not total or not length or not terms:
        return [Scored(view.score[1:], np.zeros(len(view.mask)) if overlap else None) for view in views]
    weights = _weights(Counter(terms))
    chosen = _chosen(views, list(weights))
    own = [view.own(chosen) for view in views]
    term_weights = np.array([weights[term] for term in chosen], dtype=np.float64)
    # Only lending needs a cell for each term and entry; without it one pass takes all terms.
    lending = any(view.reach for view in views)
    entries_max = max(len(view.mask) for view in views)
    batch = max(1, CELLS_MAX // entries_max) if lending else max(1, len(chosen))
    for start in range(0, len(chosen), batch):
        count = min(batch, len(chosen) - start)
        matches = [view.lent(_slice(found, start, count), count) for view, found in zip(views, own, strict=True)]
        found = sum(np.bincount(match.terms, minlength=count) for match in matches)
        idf = term_weights[start : start + count] * np.log((total + 1) / np.maximum(found, 1))
        for view, match in zip(views, matches, strict=True):
            tf, relative = match.frequencies, view.lengths[match.entries - 1] * (total / length)
            saturation = parameters.k1 * (1 - parameters.b + parameters.b * relative)
            gain = (parameters.k1 + 1) * tf / (saturation + tf) + parameters.delta
            worth = idf[match.terms] * gain
            if count == 1:  # each entry once
                view.score[match.entries] += worth
            else:
                view.score += np.bincount(match.entries, weights=worth, minlength=len(view.score))
    if not overlap:
        return [Scored(view.score[1:], None) for view in views]
    held = sum(np.bincount(found.terms, minlength=len(chosen)) for found in own)
    rarity = term_weights * np.log((total + 1) / np.maximum(held, 1))
    return [
        Scored(view.score[1:], np.bincount(found.entries, rarity[found.terms], len(view.score))[1:].astype(float))
        for view, found in zip(views, own, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Matches:
    """Postings of several terms: number of the term (ascending), entry (from 1), frequency; each ``(p,)``.

    ``around``: the neighbours of each entry; none where nobody lends.
    """

    terms: Ints
    entries: Ints
    frequencies: Floats
    around: tuple[Ints, ...] = ()


class _View:
    """A segment during one search; entries are numbered from 1, and 0 is nobody."""

    __slots__ = ("everything", "length", "lengths", "mask", "postings", "reach", "score", "visible", "weights")

    def __init__(self, segment: Segment, window: Window | None) -> None:
        size = len(segment.mask)
        self.postings, self.mask = segment.postings, segment.mask
        self.visible = int(np.count_nonzero(self.mask))
        self.everything = self.visible == size
        self.reach = window.reach if window is not None else 0
        self.lengths: Ints | Floats
        if window is not None and window.reach:
            self.weights = [1.0, *(window.weight ** (1 + index // 2) for index in range(2 * window.reach))]
            self.lengths = self.postings.windowed(window, self.mask)
        else:
            self.weights = [1.0]
            self.lengths = self.postings.lengths(size)
        self.length = float((self.lengths if self.everything else self.lengths[self.mask]).sum())
        self.score: Floats = np.zeros(size + 1)

    def own(self, terms: Sequence[str]) -> _Matches:
        """Visible postings of some terms."""
        size = len(self.mask)
        postings = [self.postings.codes(term, size) for term in terms]
        codes = np.concatenate([_NO_CODES, *postings])
        rows = np.repeat(np.arange(len(postings)), [len(posting) for posting in postings])
        entries = codes & ENTRY
        if not self.everything:
            kept = self.mask[entries]
            rows, entries, codes = rows[kept], entries[kept], codes[kept]
        entries += 1
        around = self.postings.around(entries, self.reach, size)
        if around and not self.everything:
            seen = np.append(False, self.mask)
            around = [np.where(seen[there], there, 0) for there in around]
        return _Matches(rows, entries, (codes >> FREQUENCY_BIT).astype(np.float64), tuple(around))

    def lent(self, own: _Matches, count: int) -> _Matches:
        """The postings of ``count`` terms with what neighbours lend added: each (term, entry) once."""
        if not own.around or not len(own.terms):
            return own
        width = len(self.mask) + 1
        rows = own.terms * width
        cells = np.concatenate([rows + there for there in (own.entries, *own.around)])
        counts = np.concatenate([weight * own.frequencies for weight in self.weights])
        # Bytes that mark the cells in use are looked through far faster than the sums of all cells.
        touched = np.zeros(count * width, dtype=bool)
        touched[cells] = True
        filled = np.flatnonzero(touched)
        numbers = np.empty(count * width, dtype=np.int64)
        numbers[filled] = np.arange(len(filled))
        sums = np.bincount(numbers[cells], weights=counts).astype(np.float64, copy=False)
        # Cells ascend, so the terms are runs: cheaper than dividing each cell by the width.
        starts = filled.searchsorted(np.arange(count + 1) * width)
        terms = np.repeat(np.arange(count), np.diff(starts))
        entries = filled - terms * width
        kept = (entries > 0) & (sums > 0)
        return _Matches(terms[kept], entries[kept], sums[kept])


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
    # Of entries up to the cut, removed ones included: cheap, and the same for a history that ends there.
    found = [sum(view.postings.count(term, len(view.mask)) for view in views) for term in terms]
    rarest = sorted((index for index, count in enumerate(found) if count), key=found.__getitem__)
    costs = accumulate(found[index] for index in rarest)
    affordable = sum(1 for _ in takewhile(lambda cost: cost <= QUERY_POSTINGS_MAX, costs))
    return [terms[index] for index in sorted(rarest[: min(QUERY_TERMS_MAX, max(QUERY_TERMS_MIN, affordable))])]


def _slice(own: _Matches, start: int, count: int) -> _Matches:
    """Postings of the terms ``[start, start + count)``, numbered from 0."""
    first, last = own.terms.searchsorted([start, start + count]).tolist()
    if last - first == len(own.terms) and not start:
        return own
    part = slice(first, last)
    around = tuple(there[part] for there in own.around)
    return _Matches(own.terms[part] - start, own.entries[part], own.frequencies[part], around)


def _pairs(codes: Ints) -> npt.NDArray[np.int32]:
    """Entry and frequency of postings, ``(p, 2)``, not copied."""
    return codes.view(np.int32).reshape(-1, 2)


_NO_CODES: Ints = np.empty(0, dtype=np.int64)
