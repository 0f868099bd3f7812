"""How many tokens of a chat model an owner may use in a day, and what they cost.

Invariant: what is taken and not given back never exceeds the budget of an owner and UTC day, however many requests are
in flight, since tokens are taken before a request at their upper bound and the rest is given back after it. Only the
latest day is kept. The ledger is one process's; whoever restarts may take again what the log doesn't tell was spent
(``spent`` brings it back from recorded extractions).
"""

from __future__ import annotations

from dataclasses import dataclass, field

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of a million tokens, in any currency."""

    tokens_in: float
    tokens_out: float

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """What an answer costs.

        >>> Prices(tokens_in=2.0, tokens_out=8.0).cost(1000, 500)
        0.006
        """
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / 1_000_000


@dataclass(slots=True)
class Budget:
    """A ledger of tokens by owner and UTC day.

    >>> budget = Budget(tokens_per_owner_day=1000)
    >>> budget.take("u1/lin", 0, 800), budget.take("u1/lin", 0, 800), budget.take("u2/lin", 0, 800)
    (True, False, True)
    >>> budget.give_back("u1/lin", 0, 700)
    >>> budget.left("u1/lin", 0), budget.left("u1/lin", DAY_MS)
    (900, 1000)
    """

    tokens_per_owner_day: int
    """0: no bound."""
    _day: int = -1
    _used: dict[str, int] = field(default_factory=dict)

    def take(self, owner: str, at_ms: int, tokens: int) -> bool:
        """Take the most that a request can use, if it fits; False: nothing is taken, and no request may be made."""
        used = self._of(owner, at_ms)
        if self.tokens_per_owner_day and used + tokens > self.tokens_per_owner_day:
            return False
        self._add(owner, at_ms, tokens)
        return True

    def give_back(self, owner: str, at_ms: int, tokens: int) -> None:
        """Give back what a request, taken at ``at_ms``, didn't use; of an earlier day it is of no account."""
        if at_ms // DAY_MS == self._day and owner in self._used:
            self._used[owner] = max(0, self._used[owner] - tokens)

    def spent(self, owner: str, at_ms: int, tokens: int) -> None:
        """Enter what was used elsewhere or earlier, as recorded; it may go beyond the budget."""
        self._add(owner, at_ms, tokens)

    def left(self, owner: str, at_ms: int) -> int | None:
        """Tokens that an owner may still use in a day; None: no bound."""
        if not self.tokens_per_owner_day:
            return None
        return max(0, self.tokens_per_owner_day - self._of(owner, at_ms))

    def _of(self, owner: str, at_ms: int) -> int:
        # An earlier day than the ledger's is over: late requests of it count against the latest day.
        return self._used.get(owner, 0) if at_ms // DAY_MS <= self._day else 0

    def _add(self, owner: str, at_ms: int, tokens: int) -> None:
        if tokens < 0:
            raise ValueError(f"owner {owner}: tokens to take must not be negative, got {tokens}")
        if at_ms // DAY_MS > self._day:
            self._day = at_ms // DAY_MS
            self._used = {}
        self._used[owner] = self._used.get(owner, 0) + tokens
