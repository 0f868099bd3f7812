"""The chat endpoint behind the proxy: what clients give is passed on, and what it refuses is kept as it was said.

A call is bound to the task that makes it (``calling``), so one connection pool and one ``HttpChatModel`` a model serve
all clients: the model object knows an endpoint's dialect, the transport below it adds what is this client's own.

Invariants: nothing is tried again here, since clients do that themselves; the key of a client reaches the endpoint of
``--base-url`` and nothing else, and no log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from connectors.llm import HttpChatModel
from connectors.ports import Unavailable

MODELS_MAX = 64
"""Model objects kept, a few hundred bytes each: clients may name any."""
CONCURRENCY = 64
"""Requests to one model at once; further ones wait."""
CONNECTIONS_MAX = 256
ERROR_BYTES_MAX = 64 << 10


@dataclass(slots=True)
class Call:
    """What one client adds to a request, and what the endpoint refused."""

    given: Mapping[str, Any] = field(default_factory=dict)
    """Parameters such as ``top_p``, passed on as they are."""
    authorization: str | None = None
    status: int | None = None
    """Of the endpoint's last refusal; None: it refused nothing."""
    content: bytes = b""
    retry_after: str | None = None


_CALL: ContextVar[Call | None] = ContextVar("call", default=None)


@contextmanager
def calling(call: Call) -> Iterator[Call]:
    """Requests of this task within the block are of this call."""
    token = _CALL.set(call)
    try:
        yield call
    finally:
        _CALL.reset(token)


class Passing(httpx.AsyncBaseTransport):
    """Sends requests with what the task's call adds, and keeps refusals for it."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See ``httpx.AsyncBaseTransport``."""
        call = _CALL.get()
        if call is None:
            return await self._inner.handle_async_request(request)
        headers = {
            name: value for name, value in request.headers.items() if name not in ("authorization", "content-length")
        }
        if call.authorization is not None:
            headers["authorization"] = call.authorization
        body = {**call.given, **orjson.loads(request.content)}
        sent = httpx.Request(
            request.method, request.url, headers=headers, content=orjson.dumps(body), extensions=request.extensions
        )
        response = await self._inner.handle_async_request(sent)
        if response.status_code < 400:
            call.status = None
            return response
        content = (await response.aread())[:ERROR_BYTES_MAX]
        await response.aclose()
        call.status, call.content = response.status_code, content
        call.retry_after = response.headers.get("retry-after")
        kept = {name: value for name, value in response.headers.items() if name in ("content-type", "retry-after")}
        return httpx.Response(response.status_code, headers=kept, content=content)

    async def aclose(self) -> None:
        """Models share the inner transport; ``Upstream.stop`` closes it."""


class Upstream:
    """Chat models of one endpoint, by name.

    Parameters
    ----------
    url : str
        Base URL with ``/v1``.
    key : str, optional
        Sent instead of what clients send.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 120.0) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX)
        self._transport = httpx.AsyncHTTPTransport(limits=limits)
        self._passing = Passing(self._transport)
        self._models: OrderedDict[str, HttpChatModel] = OrderedDict()
        # Answers that are passed through whole: as long as they take, but a connection is there at once or never.
        self.http = httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(timeout_s, connect=5.0))

    def authorization(self, client: str | None) -> str | None:
        """The header to send: the proxy's own key, else the client's."""
        return f"Bearer {self._key}" if self._key else client

    def model(self, name: str) -> HttpChatModel:
        """The model of a name."""
        made = self._models.get(name)
        if made is None:
            made = self._models[name] = HttpChatModel(
                self.url,
                name,
                timeout_s=self._timeout_s,
                concurrency=CONCURRENCY,
                transport=self._passing,
                pause=_never_again,
            )
            while len(self._models) > MODELS_MAX:
                self._models.popitem(last=False)
        self._models.move_to_end(name)
        return made

    async def stop(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
        await self.http.aclose()


async def _never_again(_pause_s: float) -> None:
    raise Unavailable("the endpoint gave no answer; whether to ask again is the client's to decide")
