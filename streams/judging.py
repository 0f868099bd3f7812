"""A judge model's verdict on an answer, beside that of the rules; asked where the rules found nothing.

Invariant: a judge that is away, late or unreadable abstains: the rules' verdict stands, and the record says who judged
(``method``). It is shown anchor, query, evidence and response as quoted material.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from connectors.ports import ChatModel, ModelRefused, Unavailable
from schemas.personas import Persona
from schemas.recalls import Evidence
from streams.core import compliance
from streams.core.compliance import BadVerdict, Compliance

log = structlog.get_logger("memory")

TOKENS_MAX = 300
EVIDENCE_CHARACTERS_MAX = 4_000


class ModelJudge:
    """Asks a chat model whether a response keeps to its persona.

    Parameters
    ----------
    model : ChatModel
    timeout_s : float
        A check waits no longer; the caller's deadline may be shorter.
    """

    def __init__(self, model: ChatModel, timeout_s: float) -> None:
        self._model = model
        self._timeout_s = timeout_s

    async def verdict(
        self, response: str, anchor: Persona, *, query: str, evidence: Sequence[Evidence], left_s: float
    ) -> Compliance | None:
        """The verdict; None: the judge abstains."""
        told = "\n".join(f"[{piece.mark}] {piece.text}" for piece in evidence)[:EVIDENCE_CHARACTERS_MAX]
        messages = compliance.judge_messages(response, anchor, query=query, evidence=told)
        timeout_s = min(self._timeout_s, left_s)
        if timeout_s <= 0:
            return None
        try:
            done = await self._model.complete(messages, temperature=0.0, max_tokens=TOKENS_MAX, timeout_s=timeout_s)
            return compliance.verdict_of(done.text, response, anchor, model=self._model.name)
        except (Unavailable, ModelRefused, BadVerdict) as error:
            log.warning("judge_abstains", error=str(error))
            return None
