"""What stood in a log at a point: growable columns, and entries with [added, removed) and an event time.

Invariant: offsets of additions never decrease, so the entries that a cut can see are a prefix of all entries minus
those removed by then. Whatever is computed from that prefix alone equals what a replay to the cut computes, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NEVER = np.iinfo(np.int64).max
"""Offset of a removal that has not happened."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cut:
    """A point in one log, inclusive.

    Parameters
    ----------
    offset : int
        Entries with ``added <= offset < removed``.
    event_ms : int or None
        Where given, only entries whose event time (milliseconds since the epoch) is not later, and only removals
        whose event time is not later.
    """

    offset: int
    event_ms: int | None = None


class Column:
    """A growable numpy column, ``(n,)`` or ``(n, width)``; appends are amortised O(1)."""

    __slots__ = ("_data", "_size")

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._data: npt.NDArray = np.empty((8,) if width is None else (8, width), dtype=dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, value: object) -> int:
        """Add a value (or a row); its index."""
        index = self._size
        if index == len(self._data):
            grown = np.empty((2 * index, *self._data.shape[1:]), dtype=self._data.dtype)
            grown[:index] = self._data
            self._data = grown
        self._data[index] = value
        self._size = index + 1
        return index

    def extend(self, values: npt.NDArray) -> None:
        """Add many values (or rows) at once."""
        size = self._size + len(values)
        if size > len(self._data):
            grown = np.empty((max(size, 2 * len(self._data)), *self._data.shape[1:]), dtype=self._data.dtype)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._data[self._size : size] = values
        self._size = size

    def view(self, size: int | None = None) -> npt.NDArray:
        """The first ``size`` values (all by default), not copied."""
        return self._data[: self._size if size is None else size]


class Entries:
    """Entries of an index in log order, each with the offsets and event times of its addition and removal."""

    __slots__ = ("_added", "_event", "_removals", "_removed", "_removed_event")

    def __init__(self) -> None:
        self._added = Column(np.int64)
        self._event = Column(np.int64)
        self._removed = Column(np.int64)
        self._removed_event = Column(np.int64)
        self._removals = 0

    def __len__(self) -> int:
        return len(self._added)

    def append(self, offset: int, event_ms: int) -> int:
        """Add an entry; its id.

        Raises
        ------
        ValueError
            Where ``offset`` is below that of the entry before.
        """
        if len(self._added) and offset < self._added.view()[-1]:
            raise ValueError(f"offset {offset} after {self._added.view()[-1]}: entries are added in log order")
        self._added.append(offset)
        self._event.append(event_ms)
        self._removed.append(NEVER)
        self._removed_event.append(NEVER)
        return len(self._added) - 1

    def remove(self, first: int, last: int, offset: int, event_ms: int) -> None:
        """Entries ``[first, last)`` are gone from ``offset`` on."""
        self._removed.view()[first:last] = offset
        self._removed_event.view()[first:last] = event_ms
        self._removals += last - first

    @property
    def added(self) -> npt.NDArray[np.int64]:
        return self._added.view()

    @property
    def event_ms(self) -> npt.NDArray[np.int64]:
        return self._event.view()

    def visible(self, cut: Cut) -> Mask:
        """Which entries a cut sees.

        Returns
        -------
        (m,) bool
            Over the ``m`` entries that were added by the cut.

        >>> entries = Entries()
        >>> entries.append(10, 1000), entries.append(11, 3000)
        (0, 1)
        >>> entries.remove(0, 1, offset=12, event_ms=4000)
        >>> [entries.visible(Cut(offset)).tolist() for offset in (9, 10, 11, 12)]
        [[], [True], [True, True], [False, True]]
        >>> entries.visible(Cut(12, event_ms=2000)).tolist()
        [True, False]
        """
        size = int(np.searchsorted(self._added.view(), cut.offset, side="right"))
        mask: Mask = np.ones(size, dtype=bool)
        if self._removals:
            gone = self._removed.view(size) <= cut.offset
            if cut.event_ms is not None:
                gone &= self._removed_event.view(size) <= cut.event_ms
            mask &= ~gone
        if cut.event_ms is not None:
            mask &= self._event.view(size) <= cut.event_ms
        return mask
