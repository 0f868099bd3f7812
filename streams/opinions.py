"""Asking a reranker about candidates, within a time; what it says is recorded with the answer.

Invariant: a reranker never costs an answer. Away, late or wrong, the first search alone decides, the explanation says
so and a metric counts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from connectors import metrics
from connectors.ports import Reranker, Unavailable
from streams.core.fusion import SCORE_DECIMALS
from streams.core.reranking import Opinion

log = structlog.get_logger("memory")


async def opinion(
    reranker: Reranker | None, query: str, texts: Mapping[str, str], *, timeout_s: float, request_id: str
) -> Opinion | None:
    """A reranker's scores of texts by id.

    Parameters
    ----------
    reranker : Reranker or None
        None: there is none.
    query : str
    texts : mapping of id to str
        Candidates; nothing is asked about none.
    timeout_s : float
        Longest wait.
    request_id : str
        For the log.

    Returns
    -------
    Opinion or None
        Without scores where it gave none, with the reason; None where nobody was asked.
    """
    if reranker is None or not texts or not query.strip():
        return None
    try:
        async with asyncio.timeout(timeout_s):
            scores = await reranker.rerank(query, list(texts.values()))
    except TimeoutError:
        return _silent("late", f"{reranker.name} gave no scores within {timeout_s * 1000:.0f} ms", request_id)
    except Unavailable as error:
        return _silent("away", str(error), request_id)
    except ValueError as error:
        return _silent("refused", str(error), request_id)
    metrics.reranked("ok")
    rounded = [round(score, SCORE_DECIMALS) for score in scores]
    return Opinion(dict(zip(texts, rounded, strict=True)), f"scored by {reranker.name}")


def _silent(outcome: str, why: str, request_id: str) -> Opinion:
    metrics.reranked(outcome)
    log.warning("not_reranked", request_id=request_id, outcome=outcome, error=why)
    return Opinion({}, f"the first search alone decides: {why}")
