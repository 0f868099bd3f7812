"""Vectors of int8 with exact integer inner products, as of any point.

Invariant: scores are integers. int8 values in [-127, 127] keep every partial sum below 2**24 up to 1,024 dimensions, so
float32 holds it exactly whatever the order of summation, and rankings are the same on every machine.
"""

from __future__ import annotations

import base64
import binascii

import faiss
import numpy as np
import numpy.typing as npt

from streams.core.visibility import Column, Mask

DIMENSIONS_EXACT_MAX = 1024
"""127 * 127 * 1024 < 2**24, the integers that float32 holds exactly."""
SHIFT = 128
DIMENSIONS_SHIFTED_MAX = 518
"""255 * 127 * 518 < 2**24: up to here the shift can be taken off the product instead of off every value."""
FRESH_BYTES_MAX = 1 << 17
"""Rows that wait for a search or for more of them: 341 of 384 dimensions, at 4 bytes half a megabyte on the way."""
CENTER_PRIOR = 32
"""Weight of the calibration mean, in vectors, where the mean of a few vectors is taken."""

Int8 = npt.NDArray[np.int8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# One query is searched at a time. With FAISS's default of one thread a core, waking the pool costs 4 to 18 ms
# on a busy machine and the search itself 0.4 ms (20k x 384).
faiss.omp_set_num_threads(1)


def decode(text: str) -> Int8:
    """Vector of its base64.

    Raises
    ------
    ValueError
        Where the text is not base64.

    >>> decode(encode(np.array([1, -2, 127], dtype=np.int8))).tolist()
    [1, -2, 127]
    """
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype=np.int8)
    except binascii.Error as error:
        raise ValueError(f"a vector is the base64 of int8 values, got {text[:40]!r}: {error}") from error


def encode(vector: Int8) -> str:
    """Base64 of a ``(d,)`` int8 vector."""
    if vector.dtype != np.int8 or vector.ndim != 1:
        raise ValueError(f"expected (d,) int8, got {vector.shape} {vector.dtype}")
    return base64.b64encode(vector.tobytes()).decode("ascii")


class Vectors:
    """Vectors in log order; ids are 0, 1, 2, … The first vector fixes the dimension."""

    __slots__ = ("_fresh", "_index", "_size", "_squares", "dimension")

    def __init__(self) -> None:
        self.dimension: int | None = None
        self._index: faiss.IndexScalarQuantizer | None = None
        self._size = 0
        self._squares = Column(np.float64)
        # Rows that FAISS doesn't hold yet: it takes a hundred in the time of three calls.
        self._fresh = bytearray()

    def __len__(self) -> int:
        return self._size

    def fits(self, vector: Int8 | None) -> bool:
        """Whether a vector has the dimension of those already here."""
        return vector is not None and (self.dimension is None or vector.shape == (self.dimension,))

    def add(self, vectors: Int8) -> None:
        """Append ``(n, d)`` int8 vectors.

        Raises
        ------
        ValueError
            Where the dimension differs from that of the vectors before.
        """
        if vectors.ndim != 2 or vectors.dtype != np.int8 or (len(vectors) and not self.fits(vectors[0])):
            raise ValueError(f"expected (n, {self.dimension or 'd'}) int8, got {vectors.shape} {vectors.dtype}")
        if not len(vectors):
            return
        if self.dimension is None:
            self.dimension = vectors.shape[1]
        self._fresh += vectors.tobytes()
        self._size += len(vectors)
        if len(self._fresh) >= FRESH_BYTES_MAX:
            self._settle()

    def _settle(self) -> None:
        """Hand the rows that wait to FAISS."""
        if not self._fresh:
            return
        assert self.dimension is not None
        if self._index is None:
            self._index = faiss.IndexScalarQuantizer(
                self.dimension, faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
            )
        wide = np.frombuffer(self._fresh, dtype=np.int8).reshape(-1, self.dimension).astype(np.float32)
        self._index.add(wide)
        self._squares.extend(np.einsum("ij,ij->i", wide, wide))
        self._fresh = bytearray()

    def nearest(self, query: Int8, count: int, mask: Mask) -> tuple[Ints, Ints]:
        """The ``count`` visible vectors of greatest inner product, best first, of equal ones the newer first.

        Parameters
        ----------
        query : (d,) int8
        count : int
        mask : (m,) bool
            Visibility of the first ``m`` vectors; the others are invisible.

        Returns
        -------
        ids, scores : (k,) int64
            k <= count.

        >>> vectors = Vectors()
        >>> vectors.add(np.array([[1, 0], [3, 1], [2, 0]], dtype=np.int8))
        >>> [part.tolist() for part in vectors.nearest(np.array([2, 0], dtype=np.int8), 2, np.ones(3, dtype=bool))]
        [[1, 2], [6, 4]]
        """
        visible = int(np.count_nonzero(mask))
        self._settle()
        if self._index is None or not visible or count < 1:
            return _NONE, _NONE
        # FAISS leaves open which of equal scores it keeps at the edge: ask for more and cut where the score changes.
        asked = min(visible, count + 32)
        parameters = None
        if visible < self._size:
            selector: faiss.IDSelector
            if visible == len(mask):
                selector = faiss.IDSelectorRange(0, visible)
            else:
                selector = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))  # type: ignore[call-arg, arg-type]
            parameters = faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
        found, ids = self._index.search(query.astype(np.float32)[None, :], asked, params=parameters)
        scores, ids = found[0].astype(np.int64), ids[0]
        if asked < visible and scores[min(count, asked) - 1] == scores[-1]:
            scores, ids = self._tied(query, mask, int(scores[-1]))
        order = np.lexsort((-ids, -scores))[:count]
        return ids[order], scores[order]

    def _tied(self, query: Int8, mask: Mask, least: int) -> tuple[Ints, Ints]:
        """All visible vectors that score ``least`` or more: scores, ids."""
        ids = np.flatnonzero(mask)
        scores = self.scores(query, ids)
        kept = scores >= least
        return scores[kept], ids[kept]

    def scores(self, query: Int8, ids: Ints) -> Ints:
        """Inner products ``(k,)`` int64 of a query with the vectors ``ids``."""
        out = np.empty(len(ids), dtype=np.float32)
        wanted = query.astype(np.float32)
        for start in range(0, len(ids), _BLOCK):
            out[start : start + _BLOCK] = self._products(wanted, ids[start : start + _BLOCK])
        return out.astype(np.int64)

    def cosines(self, query: Int8, ids: Ints) -> Floats:
        """Cosines ``(k,)`` of a query with the vectors ``ids``, in [-1, 1]; 0 where either is the zero vector.

        >>> vectors = Vectors()
        >>> vectors.add(np.array([[3, 4], [0, 0]], dtype=np.int8))
        >>> vectors.cosines(np.array([3, 4], dtype=np.int8), np.array([0, 1])).tolist()
        [1.0, 0.0]
        """
        wanted = query.astype(np.float32)
        products = self._products(wanted, ids).astype(np.float64)
        squares = self._squares.view()[ids] * float(wanted @ wanted)
        return np.divide(products, np.sqrt(squares), out=np.zeros(len(ids)), where=squares > 0)

    def similarities(self, ids: Ints, around: Ints) -> Floats:
        """Cosines ``(k, k)`` of the vectors ``ids`` with each other, seen from the middle of the vectors ``around``.

        Turns of one conversation share language and subject, which alone makes a cosine of 0.3; what is left after
        their mean is taken away says whether two turns are about the same thing. The mean of a few vectors is drawn
        towards 0, the mean of the calibration, as if there were ``CENTER_PRIOR`` vectors more.
        """
        center = self.rows(around).sum(axis=0) / np.float32(len(around) + CENTER_PRIOR)
        rows = (self.rows(ids) - center).astype(np.float64)
        products = rows @ rows.T
        squares = np.outer(np.diag(products), np.diag(products))
        return np.divide(products, np.sqrt(squares), out=np.zeros(products.shape), where=squares > 0)

    def _products(self, wanted: npt.NDArray[np.float32], ids: Ints) -> npt.NDArray[np.float32]:
        """Inner products ``(k,)`` of a query with the vectors ``ids``: integers."""
        if len(wanted) > DIMENSIONS_SHIFTED_MAX:
            return self.rows(ids) @ wanted
        return self._shifted(ids) @ wanted - np.float32(SHIFT) * wanted.sum()

    def rows(self, ids: Ints) -> npt.NDArray[np.float32]:
        """The vectors ``ids``, ``(k, d)`` float32 holding integers."""
        rows = self._shifted(ids)
        rows -= np.float32(SHIFT)
        return rows

    def _shifted(self, ids: Ints) -> npt.NDArray[np.float32]:
        """The vectors ``ids`` plus ``SHIFT``, as FAISS keeps them in a byte, ``(k, d)``."""
        self._settle()
        if self._index is None or self.dimension is None:
            raise IndexError(f"no vectors yet, asked for {len(ids)}")
        # The view is used up before the next `add` can move it.
        codes = faiss.rev_swig_ptr(self._index.codes.data(), self._size * self.dimension)
        return codes.reshape(self._size, self.dimension).take(ids, axis=0).astype(np.float32)


_BLOCK = 512
_NONE: Ints = np.empty(0, dtype=np.int64)
