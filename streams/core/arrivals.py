"""Vectors of an owner's turns, which arrive later than the turns and in any order.

Invariant: at a cut only vectors that had arrived by it are seen, so an answer from the past does not know what was
embedded since.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streams.core.vectors import Vectors
from streams.core.visibility import Column, Cut, Entries, Mask

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Embedded:
    """Vectors in the order in which they arrived, with the turns that they belong to."""

    __slots__ = ("_arrived", "_owner_of", "_vector_of", "vectors")

    def __init__(self) -> None:
        self.vectors = Vectors()
        self._arrived = Entries()
        self._owner_of = Column(np.int64)
        self._vector_of = Column(np.int64)

    def expect(self) -> None:
        """One more turn, without a vector so far."""
        self._vector_of.append(-1)

    def add(self, index: int, vector: npt.NDArray[np.int8], offset: int) -> bool:
        if self._vector_of.view()[index] >= 0 or vector.ndim != 1 or not len(vector) or not self.vectors.fits(vector):
            return False
        self._arrived.append(offset, 0)
        self._owner_of.append(index)
        self._vector_of.view()[index] = len(self.vectors)
        self.vectors.add(vector[None, :])
        return True

    def extend(self, owners: Ints, offsets: Ints, rows: npt.NDArray[np.int8]) -> None:
        """``add`` of many, none of which ``add`` would pass over."""
        first = len(self.vectors)
        for offset in offsets.tolist():
            self._arrived.append(offset, 0)
        self._owner_of.extend(owners)
        self._vector_of.view()[owners] = np.arange(first, first + len(owners))
        self.vectors.add(rows)

    def arrivals(self, offset: int) -> tuple[Ints, Ints]:
        arrived = len(self._arrived.visible(Cut(offset)))
        return self._owner_of.view(arrived).copy(), self._arrived.added[:arrived].copy()

    def visible(self, mask: Mask, cut: Cut) -> tuple[Ints, Mask]:
        """Turn of each vector that has arrived, ``(v,)``, and whether that turn is visible, ``(v,)`` bool."""
        # The event time of a vector is its turn's, which the turns' mask has judged.
        arrived = len(self._arrived.visible(Cut(cut.offset)))
        owners = self._owner_of.view(arrived)
        return owners, mask[owners]

    def ids(self, indices: Ints, arrived: int) -> Ints:
        """Vector of each turn, ``(n,)``; -1 where it has none that has arrived."""
        found = self._vector_of.view()[indices]
        return np.where(found < arrived, found, -1)

    def cosines(self, query: npt.NDArray[np.int8], vector_ids: Ints) -> Floats:
        """Cosine of a query and each vector, ``(n,)`` in [-1, 1]; NaN where the id is -1."""
        out = np.full(len(vector_ids), np.nan)
        there = vector_ids >= 0
        if there.any():
            out[there] = self.vectors.cosines(query, vector_ids[there])
        return out
