"""Vectors of passages (turns, memories, children of documents), which arrive later than the passages and in any order.

Invariants: at a cut only vectors that had arrived by it are seen, so an answer from the past does not know what was
embedded since. Vectors of two embedders are kept apart; at each offset those of exactly one are in use, and another's
are taken into use at the offset at which they have become complete, never before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.core.vectors import Vectors
from streams.core.visibility import Column, Cut, Mask

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Int8 = npt.NDArray[np.int8]


class Embedded:
    """Vectors of one embedder in the order in which they arrived, with the passages that they belong to."""

    __slots__ = ("_offsets", "_owner_of", "_vector_of", "embedder", "vectors")

    def __init__(self, embedder: str | None = None, passages: int = 0) -> None:
        self.embedder = embedder
        self.vectors = Vectors()
        self._offsets = Column(np.int64)
        self._owner_of = Column(np.int64)
        # Read and written in any order, value by value: as a column it would take ten times as long.
        self._vector_of = array("q", np.full(passages, -1, dtype=np.int64).tobytes())

    def __len__(self) -> int:
        return len(self.vectors)

    def expect(self) -> None:
        """One more passage, without a vector so far."""
        self._vector_of.append(-1)

    def holds(self, index: int) -> bool:
        """Whether a passage has its vector."""
        return self._vector_of[index] >= 0

    def fits(self, vector: Int8 | None, embedder: str | None) -> bool:
        """Whether a query's vector can be compared with these: of the same embedder, hence of the same dimension."""
        return vector is not None and embedder == self.embedder and self.vectors.fits(vector)

    def add(self, index: int, vector: Int8, offset: int) -> bool:
        """Take the vector of a passage; False: it has one, or this one is empty or of another dimension."""
        if self.holds(index) or vector.ndim != 1 or not len(vector) or not self.vectors.fits(vector):
            return False
        self._offsets.append(offset)
        self._owner_of.append(index)
        self._vector_of[index] = len(self.vectors)
        self.vectors.add(vector[None, :])
        return True

    def extend(self, owners: Ints, offsets: Ints, rows: Int8) -> None:
        """``add`` of many, none of which ``add`` would pass over."""
        first = len(self.vectors)
        self._offsets.extend(offsets)
        self._owner_of.extend(owners)
        self._numbers()[owners] = np.arange(first, first + len(owners))
        self.vectors.add(rows)

    def _numbers(self) -> Ints:
        """Vector of each passage, not copied: to be used up before another passage is expected."""
        return np.frombuffer(self._vector_of, dtype=np.int64)

    def arrived(self, offset: int) -> int:
        """How many vectors had arrived by an offset."""
        return int(self._offsets.view().searchsorted(offset, side="right"))

    def arrivals(self, offset: int) -> tuple[Ints, Ints]:
        """Passage and offset of each vector that had arrived by an offset, ``(v,)`` both."""
        arrived = self.arrived(offset)
        return self._owner_of.view(arrived).copy(), self._offsets.view(arrived).copy()

    def rows(self, first: int, last: int) -> Int8:
        """Vectors ``[first, last)`` in order of arrival, ``(last - first, d)``."""
        return self.vectors.rows(np.arange(first, last)).astype(np.int8)

    def visible(self, mask: Mask, cut: Cut) -> tuple[Ints, Mask]:
        """Passage of each vector that has arrived, ``(v,)``, and whether that passage is visible, ``(v,)`` bool."""
        # The event time of a vector is its passage's, which the passages' mask has judged.
        owners = self._owner_of.view(self.arrived(cut.offset))
        return owners, np.ones(len(owners), dtype=bool) if mask.all() else mask[owners]

    def ids(self, indices: Ints, arrived: int) -> Ints:
        """Vector of each passage, ``(n,)``; -1 where it has none that has arrived."""
        found = self._numbers()[indices]
        return np.where(found < arrived, found, -1)

    def lacking(self) -> Ints:
        """Passages without a vector, in order."""
        return np.flatnonzero(self._numbers() < 0)

    def cosines(self, query: Int8, vector_ids: Ints) -> Floats:
        """Cosine of a query and each vector, ``(n,)`` in [-1, 1]; NaN where the id is -1."""
        out = np.full(len(vector_ids), np.nan)
        there = vector_ids >= 0
        if there.any():
            out[there] = self.vectors.cosines(query, vector_ids[there])
        return out


class Uses:
    """Which embedder's vectors are in use from which offset on."""

    __slots__ = ("_since",)

    def __init__(self, since: Iterable[tuple[int, str]] = ()) -> None:
        self._since = [(offset, name) for offset, name in since]

    def begin(self, offset: int, embedder: str) -> None:
        """Use an embedder's vectors from an offset on; offsets rise."""
        self._since.append((offset, embedder))

    def at(self, offset: int) -> str | None:
        """The embedder in use at an offset; None: there were no vectors yet.

        >>> uses = Uses([(3, "a"), (9, "b")])
        >>> [uses.at(offset) for offset in (2, 3, 8, 9)]
        [None, 'a', 'a', 'b']
        """
        for since, name in reversed(self._since):
            if since <= offset:
                return name
        return None

    @property
    def newest(self) -> str | None:
        """The embedder in use at the end."""
        return self._since[-1][1] if self._since else None

    @property
    def since(self) -> int:
        """Offset from which on the newest is in use; -1: there is none."""
        return self._since[-1][0] if self._since else -1

    def until(self, offset: int) -> list[tuple[int, str]]:
        """All that began by an offset, oldest first."""
        return [item for item in self._since if item[0] <= offset]


class VectorSets:
    """Vectors of the same passages by one embedder after the other.

    The first embedder's are used from its first vector on. Another's are used as soon as every passage with a vector
    of the one in use has one of its own too: so the switch follows from the log alone, whoever wrote what when.
    Vectors that are not used any more are kept: an answer from before the switch is computed with them.

    >>> sets = VectorSets()
    >>> sets.expect(), sets.expect()
    (None, None)
    >>> vector = np.ones(2, dtype=np.int8)
    >>> [sets.add(*arrival) for arrival in ((0, vector, 10, "a"), (1, vector, 11, "b"), (0, vector, 12, "b"))]
    [True, True, True]
    >>> [sets.at(offset).embedder for offset in (9, 10, 11, 12)]
    [None, 'a', 'a', 'b']
    """

    __slots__ = ("_missing", "_passages", "_sets", "uses")

    def __init__(self) -> None:
        self.uses = Uses()
        self._passages = 0
        self._sets: dict[str, Embedded] = {}
        self._missing: dict[str, int] = {}
        """Passages with a vector of the embedder in use and none of this one, by the embedders not in use."""

    def expect(self) -> None:
        """One more passage, without a vector so far."""
        self._passages += 1
        for embedded in self._sets.values():
            embedded.expect()

    def at(self, offset: int) -> Embedded:
        """The vectors in use at an offset, those that arrived since included."""
        return self._of(self.uses.at(offset))

    @property
    def newest(self) -> Embedded:
        """The vectors in use at the end."""
        return self._of(self.uses.newest)

    def _of(self, embedder: str | None) -> Embedded:
        return self._sets[embedder] if embedder is not None else Embedded(None, self._passages)

    def holds(self, index: int, embedder: str | None = None) -> bool:
        """Whether a passage has a vector, of an embedder or of any."""
        if embedder is None:
            return any(embedded.holds(index) for embedded in self._sets.values())
        return embedder in self._sets and self._sets[embedder].holds(index)

    def lacking(self, embedder: str) -> list[int]:
        """Passages without a vector of an embedder, in order."""
        found = self._sets.get(embedder)
        return found.lacking().tolist() if found is not None else list(range(self._passages))

    def usable(self, embedder: str) -> bool:
        """Whether an embedder's vectors are complete and not in use: the log went back to another since."""
        return embedder != self.uses.newest and self._missing.get(embedder) == 0

    def use(self, embedder: str, offset: int) -> None:
        """Use the vectors of an embedder again from an offset on, if they are complete."""
        if self.usable(embedder):
            self.uses.begin(offset, embedder)
            self._count_missing()

    def add(self, index: int, vector: Int8, offset: int, embedder: str) -> bool:
        """Take a vector; False: see ``Embedded.add``."""
        embedded = self._sets.get(embedder)
        if embedded is None:
            embedded = Embedded(embedder, self._passages)
        if not embedded.add(index, vector, offset):
            return False
        if embedder not in self._sets:
            self._sets[embedder] = embedded
            self._missing[embedder] = len(self.newest)
        used = self.uses.newest
        if embedder == used:
            for name in self._missing:
                self._missing[name] += not self._sets[name].holds(index)
            return True
        self._missing[embedder] -= used is not None and self._sets[used].holds(index)
        if not self._missing[embedder]:
            self.uses.begin(offset, embedder)
            self._count_missing()
        return True

    def _count_missing(self) -> None:
        used = np.array(self.newest.lacking())
        self._missing = {
            name: len(np.setdiff1d(embedded.lacking(), used))
            for name, embedded in self._sets.items()
            if name != self.uses.newest
        }

    def described(self, last: int) -> tuple[list[tuple[int, str]], list[tuple[str, Embedded, Ints, Ints]]]:
        """As of an offset: uses, and of each embedder its vectors with their arrivals (those come first in it)."""
        arrived = [(name, embedded, *embedded.arrivals(last)) for name, embedded in list(self._sets.items())]
        return self.uses.until(last), [item for item in arrived if len(item[2])]

    def dumped(self, last: int) -> list[Any]:
        """As plain data, for ``fill``."""
        uses, sets = self.described(last)
        vectors = []
        for name, embedded, owners, offsets in sets:
            rows = embedded.rows(0, len(owners))
            vectors.append([name, rows.shape[1], owners.tobytes(), offsets.tobytes(), rows.tobytes()])
        return [uses, vectors]

    def fill(self, uses: Iterable[tuple[int, str]], vectors: Sequence[tuple[str, int, bytes, bytes, bytes]]) -> None:
        """Take what was dumped, in parts of any size, once all passages are expected."""
        self.uses = Uses(uses)
        for name, dimension, owners, offsets, rows in vectors:
            embedded = self._sets.setdefault(name, Embedded(name, self._passages))
            embedded.extend(
                np.frombuffer(owners, dtype=np.int64),
                np.frombuffer(offsets, dtype=np.int64),
                np.frombuffer(rows, dtype=np.int8).reshape(-1, dimension),
            )
        self._count_missing()
