"""What stood in a log at a point: growable columns, and entries with [added, removed) and an event time.

Invariant: offsets of additions never decrease, so the entries that a cut can see are a prefix of all entries minus
those removed by then. Whatever is computed from that prefix alone equals what a replay to the cut computes, bit by bit.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

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
    """A growable numpy column, ``(n,)``; appends are amortised O(1).

    What is appended waits in an ``array``, which takes a value in a tenth of the time that numpy needs, until the
    column is looked at.
    """

    __slots__ = ("_data", "_fresh", "_size")

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data: npt.NDArray = np.empty(8, dtype=dtype)
        self._size = 0
        self._fresh = array(_TYPECODES[self._data.dtype.kind])

    def __len__(self) -> int:
        return self._size + len(self._fresh)

    def append(self, value: Any) -> None:
        """Add a value."""
        self._fresh.append(value)

    def extend(self, values: npt.NDArray) -> None:
        """Add many values at once."""
        if self._fresh:
            self._settle()
        self._take(values)

    def view(self, size: int | None = None) -> npt.NDArray:
        """The first ``size`` values (all by default), not copied."""
        if self._fresh:
            self._settle()
        return self._data[: self._size if size is None else size]

    def _settle(self) -> None:
        self._take(np.frombuffer(self._fresh, dtype=self._data.dtype))
        del self._fresh[:]

    def _take(self, values: npt.NDArray) -> None:
        size = self._size + len(values)
        if size > len(self._data):
            grown = np.empty(max(size, 2 * len(self._data)), dtype=self._data.dtype)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._data[self._size : size] = values
        self._size = size


_TYPECODES = {"i": "q", "f": "d", "b": "b"}
"""Of ``array``, by kind of numpy's int64, float64 and bool."""


class Entries:
    """Entries of an index in log order, each with the offsets and event times of its addition and removal."""

    __slots__ = ("_added", "_event", "_last", "_removals", "_removed", "_removed_event")

    def __init__(self) -> None:
        self._added = Column(np.int64)
        self._event = Column(np.int64)
        self._last = -1
        # As long as the entries were when one of them was last removed: most indexes never see a removal.
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
        if offset < self._last:
            raise ValueError(f"offset {offset} after {self._last}: entries are added in log order")
        self._last = offset
        self._added.append(offset)
        self._event.append(event_ms)
        return len(self._added) - 1

    def remove(self, first: int, last: int, offset: int, event_ms: int) -> None:
        """Entries ``[first, last)`` are gone from ``offset`` on."""
        self._cover()
        self._removed.view()[first:last] = offset
        self._removed_event.view()[first:last] = event_ms
        self._removals += last - first

    def _cover(self) -> None:
        """Give every entry a place among the removals."""
        missing = np.full(len(self) - len(self._removed), NEVER)
        self._removed.extend(missing)
        self._removed_event.extend(missing)

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
        size = int(self._added.view().searchsorted(cut.offset, side="right"))
        mask: Mask = np.ones(size, dtype=bool)
        if self._removals:
            self._cover()
            gone = self._removed.view(size) <= cut.offset
            if cut.event_ms is not None:
                gone &= self._removed_event.view(size) <= cut.event_ms
            mask &= ~gone
        if cut.event_ms is not None:
            mask &= self._event.view(size) <= cut.event_ms
        return mask
