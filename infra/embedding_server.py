"""An OpenAI-compatible embedding endpoint without a key or a network: ``python -m infra.embedding_server --port N``.

``POST /v1/embeddings``, ``GET /v1/models``, ``GET /health``. E5 embeds queries and passages differently: the field
``input_type`` ("query" or "passage") decides, else the suffix of the model's name (``-query``, ``-passage``), else it
is a passage. Texts are cut to their first 2,000 characters (queries: 500); the empty text has a vector.

Invariant: a query never waits behind passages. Queries run in a thread of this process, passages in another process of
low priority, in small batches; requests of one kind take turns text by text (batch by batch).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

from aiohttp import web

from infra.embedding_engine import (
    DIMENSION,
    PASSAGE_CHARS_MAX,
    Embedded,
    Engine,
    EngineDied,
    EngineProcess,
    limit_threads,
)
from infra.listening import CannotStart, listening

MODEL = "multilingual-e5-small-q4"
MODELS = ("multilingual-e5-small", MODEL)
INPUTS_MAX = 2048  # OpenAI's own limit
CHARS_MAX = 200_000  # of one text; more is an error of the caller rather than a text to cut
BODY_BYTES_MAX = 64 << 20
PASSAGES_WAITING_MAX = 8192  # at 20-50 a second, minutes of work
QUERIES_WAITING_MAX = 512  # at 20 ms each, ten seconds
BATCH_TEXTS_MAX = 8  # of passages; a batch is what another request may have to wait for
BATCH_CHARS_MAX = PASSAGE_CHARS_MAX
RETRY_AFTER_S = 5
# Measured on 2 cores: p50 of short queries 21-28 ms with 1 thread and 22-29 ms with 2.
QUERY_THREADS = 1
# Share of a core against a busy process of normal priority: 15 to 1024. Queries keep their latency (p50 21 ms alone and
# under load; 47 ms with equal priority), and passages get five times what SCHED_IDLE (3 to 1024) would leave them.
PASSAGE_NICENESS = 19

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refused(Exception):
    """An answer in OpenAI's error shape."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def response(self) -> web.Response:
        """``{"error": {"message", "type", "param", "code"}}``."""
        kinds = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
        error = {
            "message": str(self),
            "type": kinds.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        headers = {"Retry-After": str(RETRY_AFTER_S)} if self.status in {429, 503} else None
        return web.json_response({"error": error}, status=self.status, headers=headers)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is in order."""

    texts: tuple[str, ...]
    model: str
    is_query: bool
    as_base64: bool


def asked(body: Any) -> Asked:
    """Check a request's body; raises ``Refused``.

    Examples
    --------
    >>> asked({"input": "hi", "model": "multilingual-e5-small-query"}).is_query
    True
    """
    if not isinstance(body, dict):
        raise Refused("The body must be a JSON object with `input` and `model`.")
    model = body.get("model", MODEL)
    kind = "passage"
    name = model.removeprefix("intfloat/") if isinstance(model, str) else ""
    for suffix in ("query", "passage"):
        if name.endswith(f"-{suffix}"):
            name, kind = name.removesuffix(f"-{suffix}"), suffix
    if name not in MODELS:
        raise Refused(f"The model {model!r} is not served here: use {MODEL!r}.", 404, "model", "model_not_found")
    kind = body.get("input_type") or kind
    if kind not in {"query", "passage", "document"}:
        raise Refused('`input_type` must be "query" or "passage".', param="input_type")
    encoding = body.get("encoding_format") or "float"
    if encoding not in {"float", "base64"}:
        raise Refused('`encoding_format` must be "float" or "base64".', param="encoding_format")
    if body.get("dimensions") not in {None, DIMENSION}:
        raise Refused(f"`dimensions` must be {DIMENSION} or absent.", param="dimensions")
    return Asked(_texts(body.get("input")), str(model), kind == "query", encoding == "base64")


def _texts(given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise Refused("`input` must be a string or an array of strings (token arrays are not taken).", param="input")
    if not texts:
        raise Refused("`input` must not be an empty array.", param="input")
    if len(texts) > INPUTS_MAX:
        raise Refused(f"`input` has {len(texts)} texts: send at most {INPUTS_MAX} a request.", param="input")
    longest = max(len(text) for text in texts)
    if longest > CHARS_MAX:
        raise Refused(f"A text in `input` has {longest} characters: send at most {CHARS_MAX} each.", param="input")
    return tuple(texts)


def batches(texts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Cut passages into batches of few texts and few characters, in order.

    Examples
    --------
    >>> [len(batch) for batch in batches(("a",) * 9 + ("b" * 2000, "c"))]
    [8, 1, 1, 1]
    """
    found: list[tuple[str, ...]] = []
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == BATCH_TEXTS_MAX or size + len(text) > BATCH_CHARS_MAX):
            found.append(tuple(batch))
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    return [*found, tuple(batch)] if batch else found


class Server:
    """The endpoint over one engine for queries and one for passages."""

    def __init__(self, queries: Engine, passages: EngineProcess) -> None:
        self._queries = queries
        self._passages = passages
        self._query_thread = ThreadPoolExecutor(1, thread_name_prefix="query")
        self._waiting = {True: 0, False: 0}  # texts, by whether they are queries

    def application(self) -> web.Application:
        """Routes."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_in_openai_shape])
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_get("/v1/models", _models)
        app.router.add_get("/v1/models/{name:.+}", _model)
        app.router.add_get("/health", self._health)
        return app

    async def _embeddings(self, http: web.Request) -> web.Response:
        try:
            body = json.loads(await http.read())
        except ValueError as error:
            raise Refused(f"The body is not valid JSON: {error}.") from error
        request = asked(body)
        limit = QUERIES_WAITING_MAX if request.is_query else PASSAGES_WAITING_MAX
        waiting = self._waiting[request.is_query]
        if waiting and waiting + len(request.texts) > limit:  # an idle server takes any request that is in order
            message = f"{waiting} texts wait already, at most {limit} may: try again in {RETRY_AFTER_S} s."
            raise Refused(message, 429, code="rate_limit_exceeded")
        self._waiting[request.is_query] += len(request.texts)
        left = len(request.texts)
        vectors, tokens = [], 0
        try:
            for batch in [(text,) for text in request.texts] if request.is_query else batches(request.texts):
                embedded = await self._embed(batch, request.is_query)
                vectors.append(embedded.vectors)
                tokens += embedded.tokens
                left -= len(batch)
                self._waiting[request.is_query] -= len(batch)
                if http.transport is None:  # nobody waits for the rest
                    break
        finally:
            self._waiting[request.is_query] -= left
        return web.json_response(_answer(request, b"".join(vectors), tokens))

    async def _embed(self, batch: tuple[str, ...], is_query: bool) -> Embedded:
        if is_query:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._query_thread, self._queries.embed, batch, True)
        try:
            return await self._passages.embed(batch, False)
        except (EngineDied, ConnectionError) as error:
            raise Refused(str(error) or "the process for passages ended; send the request again", 503) from error

    async def _health(self, _http: web.Request) -> web.Response:
        waiting = {"queries": self._waiting[True], "passages": self._waiting[False]}
        return web.json_response({"status": "ok", "model": MODEL, "dimension": DIMENSION, "waiting": waiting})


def _answer(request: Asked, vectors: bytes, tokens: int) -> dict[str, Any]:
    size = DIMENSION * 4
    data = []
    for index, start in enumerate(range(0, len(vectors), size)):
        raw = vectors[start : start + size]
        vector = base64.b64encode(raw).decode() if request.as_base64 else list(struct.unpack(f"<{DIMENSION}f", raw))
        data.append({"object": "embedding", "index": index, "embedding": vector})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.model, "usage": usage}


async def _models(_http: web.Request) -> web.Response:
    names = [f"{name}{suffix}" for name in MODELS for suffix in ("", "-query", "-passage")]
    return web.json_response({"object": "list", "data": [_described(name) for name in names]})


async def _model(http: web.Request) -> web.Response:
    name = http.match_info["name"]
    asked({"input": "", "model": name})
    return web.json_response(_described(name))


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "intfloat"}


@web.middleware
async def _in_openai_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as error:
        return error.response()
    except web.HTTPRequestEntityTooLarge:
        return Refused(f"The body is over {BODY_BYTES_MAX >> 20} MiB: send fewer texts a request.", 413).response()
    except web.HTTPException as error:
        return Refused(f"{request.method} {request.path}: {error.reason}", error.status).response()


async def serve(listener: socket.socket, host: str, threads: int, niceness: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    passages = EngineProcess(threads, niceness)
    queries = Engine()
    await passages.start()
    runner = web.AppRunner(Server(queries, passages).application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    print(f"embeddings ready on http://{host}:{listener.getsockname()[1]}/v1", flush=True)
    await stop.wait()
    passages.kill()


def main(argv: list[str] | None = None) -> NoReturn:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.embedding_server", description="OpenAI-compatible embeddings, offline."
    )
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0: any free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s); no passwords")
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="threads for passages (default: all cores, %(default)s)",
    )
    parser.add_argument(
        "--nice", type=int, default=PASSAGE_NICENESS, help="niceness of the process for passages (default %(default)s)"
    )
    options = parser.parse_args(argv)
    limit_threads(QUERY_THREADS)
    try:
        listener = listening(options.host, options.port)
        asyncio.run(serve(listener, options.host, max(1, options.threads), options.nice))
    except CannotStart as error:
        sys.exit(f"embeddings: {error}")
    sys.stdout.flush()
    os._exit(0)  # a text that is being embedded must not hold the process


if __name__ == "__main__":
    main()
