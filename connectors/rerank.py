"""A reranker behind HTTP: Cohere's form of ``/rerank`` (also of Jina, vLLM, LiteLLM, llama.cpp) and that of TEI.

Invariant: either every document has a finite score, or an error says what the endpoint gave instead; half a ranking
is none. Nothing is tried again here: whoever waits for an answer can do without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from connectors.ports import Unavailable
from connectors.settings import Settings

DOCUMENT_CHARACTERS_MAX = 4_000
"""Characters of a document, or of the query, that are sent: cross-encoders read 512 to 8,192 tokens of both."""
REFUSED_FORM = (400, 422)
"""Status codes by which a server says that it doesn't know this form of body."""


class HttpReranker:
    """``ports.Reranker`` over ``POST …/rerank``.

    The body has ``documents``; where that is refused, TEI's ``texts`` is tried once and kept if it is taken.

    Parameters
    ----------
    url : str
        Of the endpoint, or of its directory: ``/rerank`` is appended.
    model : str, optional
    key : str, optional
        Sent as bearer token.
    timeout_ms : int
    transport : httpx.AsyncBaseTransport, optional
        Instead of the network.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        key: str | None = None,
        timeout_ms: int = 300,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = url if url.rstrip("/").endswith("/rerank") else f"{url.rstrip('/')}/rerank"
        self._model = model
        headers = {"content-type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout_ms / 1000, transport=transport)
        self._field = "documents"
        self.name = model or self._url

    @classmethod
    def from_settings(cls, settings: Settings) -> HttpReranker | None:
        """The reranker that the settings name; None: there is none."""
        if not settings.rerank:
            return None
        return cls(
            settings.rerank, settings.rerank_model, key=settings.rerank_key, timeout_ms=settings.rerank_timeout_ms
        )

    async def stop(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def rerank(self, query: str, documents: Sequence[str]) -> list[float]:
        """See ``ports.Reranker``."""
        if not documents:
            return []
        response = await self._post(self._field, query, documents)
        if response.status_code in REFUSED_FORM and self._field == "documents":
            other = await self._post("texts", query, documents)
            if other.status_code == httpx.codes.OK:
                self._field, response = "texts", other
        if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.status_code >= 500:
            raise Unavailable(f"reranker {self._url}: {response.status_code} {response.text[:200]}")
        if response.status_code != httpx.codes.OK:
            raise ValueError(f"reranker {self._url} refused: {response.status_code} {response.text[:300]}")
        return self._scores(response.content, len(documents))

    async def _post(self, field: str, query: str, documents: Sequence[str]) -> httpx.Response:
        body: dict[str, Any] = {
            "query": query[:DOCUMENT_CHARACTERS_MAX],
            field: [text[:DOCUMENT_CHARACTERS_MAX] for text in documents],
            "top_n": len(documents),
        }
        if self._model:
            body["model"] = self._model
        try:
            return await self._http.post(self._url, content=orjson.dumps(body))
        except httpx.HTTPError as error:
            raise Unavailable(f"no reranker answers at {self._url}: {error!r}; set MNEMOLOG_RERANK") from error

    def _scores(self, content: bytes, count: int) -> list[float]:
        try:
            answered = orjson.loads(content)
            results = answered if isinstance(answered, list) else answered["results"]
            pairs = [
                (int(item["index"]), float(item["relevance_score" if "relevance_score" in item else "score"]))
                for item in results
            ]
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"reranker {self._url} answered {content[:200]!r}; expected results with index and relevance_score, "
                f"or a list with index and score"
            ) from error
        scores = dict(pairs)
        if sorted(index for index, _ in pairs) != list(range(count)) or not all(map(math.isfinite, scores.values())):
            raise ValueError(
                f"reranker {self._url} scored {len(pairs)} of {count} documents, or some twice or with no number; "
                f"expected a finite score for each"
            )
        return [scores[index] for index in range(count)]
