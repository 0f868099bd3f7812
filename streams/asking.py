"""A chat model asked on behalf of an owner: at no temperature, within the owner's budget of the day.

Invariant: tokens are taken at the most that a request can use, and what it didn't use is given back, whatever happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connectors.ports import ChatModel, Completion, ModelRefused, Unavailable
from connectors.settings import Settings
from schemas.recalls import Message
from streams.core.budget import Budget, Prices
from streams.core.conversation import OwnerKey
from streams.core.text import token_estimate

TEMPERATURE = 0.0
FALLBACK_CHARACTERS_MAX = 500
"""Of the reason that an event gives for what a model did not do: errors may quote what was sent."""


class Unanswered(RuntimeError):
    """There is no answer; the message says why, as events record it.

    Parameters
    ----------
    away : bool
        The model could not be reached, so the next request would wait in vain.
    """

    def __init__(self, reason: str, *, away: bool = False) -> None:
        super().__init__(reason[:FALLBACK_CHARACTERS_MAX])
        self.away = away


class Asker:
    """Asks a chat model, and knows what its answers cost."""

    def __init__(self, model: ChatModel, settings: Settings, budget: Budget) -> None:
        self._model = model
        self._settings = settings
        self._budget = budget
        self._prices = Prices(settings.model_price_in or 0.0, settings.model_price_out or 0.0)
        self.method = f"model:{model.name}"
        """As events name it."""

    async def ask(
        self,
        key: OwnerKey,
        at_ms: int,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        response_schema: Mapping[str, Any],
        timeout_s: float,
    ) -> Completion:
        """An answer; raises ``Unanswered``."""
        owner = repr(key)
        most = sum(token_estimate(message.content) for message in messages) + max_tokens
        if not self._budget.take(owner, at_ms, most):
            tokens = self._settings.model_tokens_per_owner_day
            raise Unanswered(f"the owner's budget of {tokens} tokens a day is used up")
        try:
            done = await self._model.complete(
                messages,
                temperature=TEMPERATURE,
                max_tokens=max_tokens,
                response_schema=response_schema,
                timeout_s=timeout_s,
            )
        except (Unavailable, ModelRefused) as error:
            self._budget.give_back(owner, at_ms, most)
            raise Unanswered(f"{type(error).__name__}: {error}", away=isinstance(error, Unavailable)) from error
        self._budget.give_back(owner, at_ms, max(0, most - done.tokens_in - done.tokens_out))
        return done

    def cost(self, spent: Sequence[Completion]) -> dict[str, Any]:
        """``tokens_in``, ``tokens_out`` and ``cost`` of answers, as events have them."""
        tokens_in = sum(done.tokens_in for done in spent)
        tokens_out = sum(done.tokens_out for done in spent)
        return {"tokens_in": tokens_in, "tokens_out": tokens_out, "cost": self._prices.cost(tokens_in, tokens_out)}
