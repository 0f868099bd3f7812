"""An event loop whose time is ours: it never waits, it jumps to the next thing that is due.

So `asyncio.sleep`, `asyncio.timeout` and `loop.call_later` work as ever, an hour takes milliseconds, and the same
program makes the same steps in the same order each time.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class Deadlock(RuntimeError):
    """Every task waits for something that nobody will do."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """``asyncio`` on virtual seconds, which begin at 0."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        super().__init__(_Jumping(self))
        self._clock_resolution = 1e-7  # sums of floats may fall short of a due time by less

    def time(self) -> float:
        return self._virtual_s

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self._virtual_s += seconds


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock("nothing is scheduled and nothing is ready")
        if timeout > 0:
            self._loop.jump(timeout)
        return []
