"""``mnemolog proxy``: an OpenAI-compatible endpoint that gives any chat endpoint memory and a persona.

A client points its base URL here and changes nothing else. ``POST /v1/chat/completions`` (whole or streamed),
``GET /v1/models``, ``GET /health``. What decides whose memory it is:

- user: the field ``user``, else ``--user``; role: the header ``X-Mnemolog-Role``, else a model named ``model@role``,
  else ``--role``.
- session: the header ``X-Mnemolog-Session``, else derived from user, role and the first message that the client sends:
  as long as a client sends its history along, a conversation is one session, over restarts of both sides. Two
  conversations of an owner that begin with the same words share one.
- Of the messages only the newest of the user is taken, since memory has the others. What the client sends as system
  message is quoted to the model behind the context as instructions of a program: it never overrides the anchor.

A request that is sent again after it got no answer (clients do that) isn't posted twice. Streams send every token as it
comes, unchecked; with ``--hold``, and for answers that aren't streamed, nothing is sent before it passed the check.
There are no passwords: whoever reaches the port may name any user. Put it behind what knows your users.

Invariants: only the response of an answer is sent, never its analysis; an error of the endpoint keeps its status;
without memory nothing is answered as if there were memory (``--without-memory`` passes requests through and says so in
the header ``X-Mnemolog-Memory``).
"""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import orjson
import structlog
from aiohttp import web

from connectors.client import Client
from connectors.errors import BrokerUnavailable, MnemologError, Rejected
from infra.listening import listening
from infra.model_server import refused
from infra.proxy_forms import Asked, Defaults, Events, Refused, Usage, asked, completion, estimated
from infra.proxy_upstream import Call, Upstream, calling
from schemas.recalls import Reply
from schemas.responses import Check
from streams.closed_loop import Conversation, Memory, ModelsFailed

log = structlog.get_logger("proxy")

BODY_BYTES_MAX = 16 << 20
MEMORY_S_MAX = 12.0
"""Of one post or question to memory, whose own deadline is shorter; a broker that is away may take far longer."""
UNANSWERED_MAX = 10_000
"""Turns kept that got no answer, some 300 bytes each."""
RETRY_AFTER_S = "2"
MEMORY_HEADER = "X-Mnemolog-Memory"

OwnerSession = tuple[str, str, str]


class TimedMemory:
    """Memory within a time limit; keeps how long it took, and whether the user's turn is in it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.took_ms: dict[str, float] = {}
        self.posted: str | None = None

    async def post_turn(self, **turn: Any) -> str:
        """See ``Memory``."""
        async with self._timed("post"):
            turn_id = await self._memory.post_turn(**turn)
        if turn["speaker"] == "user":
            self.posted = turn_id
        return turn_id

    async def assemble(self, query: str, *, user_id: str, role_id: str, **options: Any) -> Reply:
        """See ``Memory``."""
        async with self._timed("assemble"):
            return await self._memory.assemble(query, user_id=user_id, role_id=role_id, **options)

    async def check(self, recall_id: str, answer: str, *, user_id: str, role_id: str, **options: Any) -> Check:
        """See ``Memory``."""
        async with self._timed("check"):
            return await self._memory.check(recall_id, answer, user_id=user_id, role_id=role_id, **options)

    @asynccontextmanager
    async def _timed(self, what: str) -> AsyncIterator[None]:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(MEMORY_S_MAX):
                yield
        except TimeoutError as error:
            raise BrokerUnavailable(
                f"memory took longer than {MEMORY_S_MAX} s: {what}; is the broker there?"
            ) from error
        self.took_ms[what] = (time.perf_counter() - begun) * 1000


class Proxy:
    """The endpoint.

    Parameters
    ----------
    memory : Memory
        A started ``Client``.
    upstream : Upstream
        The endpoint that is asked.
    """

    def __init__(self, memory: Memory, upstream: Upstream, defaults: Defaults | None = None) -> None:
        self.memory = memory
        self.upstream = upstream
        self.defaults = defaults or Defaults()
        self.counts: Counter[str] = Counter()
        self._unanswered: OrderedDict[OwnerSession, tuple[str, int, str]] = OrderedDict()

    def application(self) -> web.Application:
        """Routes."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_in_openai_form])
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        return app

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``."""
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            raise Refused(f"The body is no JSON: {error}.") from error
        what = asked(body, request.headers, self.defaults)
        call = Call(what.given, self.upstream.authorization(request.headers.get("Authorization")))
        memory = TimedMemory(self.memory)
        try:
            with calling(call):
                return await self._answered(request, what, memory)
        except ModelsFailed as error:
            self.counts["model_failed"] += 1
            return _failed(call, error)
        except Rejected as error:
            raise Refused(f"Memory refuses it: {error}.") from error
        except MnemologError as error:
            self.counts["memory_away"] += 1
            log.warning("memory_away", error=str(error))
            if self.defaults.without_memory:
                return await self._passed_through(request, body | {"model": what.model}, call)
            message = f"Memory can't be asked: {error}. Nothing was answered; try again."
            return refused(message, 503, headers={"Retry-After": RETRY_AFTER_S})

    async def _answered(self, request: web.Request, what: Asked, memory: TimedMemory) -> web.StreamResponse:
        talk = Conversation(
            memory,
            self.upstream.model(what.model),
            user_id=what.user_id,
            role_id=what.role_id,
            session_id=what.session_id,
            hold=self.defaults.hold or not what.stream,
            temperature=what.temperature,
            tokens_max=what.tokens_max,
            instructions=what.instructions,
        )
        owner = (what.user_id, what.role_id, what.session_id)
        before = self._unanswered.get(owner)
        known = before[2] if before is not None and before[:2] == (what.query, what.turns_before) else None
        begun = time.perf_counter()
        async with aclosing(talk.say(what.query, turn_id=known, posted=known is not None)) as pieces:
            try:
                first = await anext(pieces, "")
            except BaseException:
                self._keep_unanswered(owner, what, known or memory.posted)
                raise
            self._unanswered.pop(owner, None)
            first_ms = (time.perf_counter() - begun) * 1000
            headers = _headers(what, talk, memory, first_ms)
            if not what.stream:
                text = first + "".join([piece async for piece in pieces])
                self.counts["answered"] += 1
                id_, reason = _id(talk), _reason(talk)
                return web.json_response(completion(id_, what.named, text, reason, _usage(talk)), headers=headers)
            return await self._streamed(request, what, talk, first, pieces, headers)

    def _keep_unanswered(self, owner: OwnerSession, what: Asked, turn_id: str | None) -> None:
        """The next request that is the same is about the turn that was posted for this one."""
        if turn_id is None:
            return
        self._unanswered[owner] = (what.query, what.turns_before, turn_id)
        while len(self._unanswered) > UNANSWERED_MAX:
            self._unanswered.popitem(last=False)

    async def _streamed(
        self,
        request: web.Request,
        what: Asked,
        talk: Conversation,
        first: str,
        pieces: AsyncGenerator[str, None],
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        events = Events(_id(talk), what.named, include_usage=what.include_usage)
        form = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers={**form, **headers})
        try:
            await response.prepare(request)
            await response.write(events.first(first))
            try:
                async for piece in pieces:
                    await response.write(events.piece(piece))
            except ModelsFailed as error:
                self.counts["broken_off"] += 1
                await response.write(events.broken(f"The answer breaks off: {error}"))
                return response
            except MnemologError as error:
                # All of it was said; only its record failed.
                self.counts["unrecorded"] += 1
                log.warning("answer_unrecorded", session=what.session_id, error=str(error))
            await response.write(events.end(_usage(talk)))
            self.counts["answered"] += 1
        except ConnectionResetError:
            self.counts["client_left"] += 1
        return response

    async def _passed_through(self, request: web.Request, body: Mapping[str, Any], call: Call) -> web.StreamResponse:
        """The endpoint's own answer to what the client sent, without memory."""
        self.counts["passed_through"] += 1
        headers = {"Content-Type": "application/json"}
        if call.authorization is not None:
            headers["Authorization"] = call.authorization
        url = f"{self.upstream.url}/chat/completions"
        try:
            async with self.upstream.http.stream("POST", url, content=orjson.dumps(body), headers=headers) as answer:
                kind = answer.headers.get("content-type", "application/json")
                response = web.StreamResponse(
                    status=answer.status_code, headers={"Content-Type": kind, MEMORY_HEADER: "away"}
                )
                await response.prepare(request)
                async for chunk in answer.aiter_bytes():
                    await response.write(chunk)
                return response
        except httpx.HTTPError as error:
            return refused(f"Neither memory nor {self.upstream.url} answers: {error}", 502)

    async def models(self, request: web.Request) -> web.Response:
        """``GET /v1/models``: the endpoint's, or the one that is asked whatever clients name."""
        if self.defaults.model:
            named = {"id": self.defaults.model, "object": "model", "created": 0, "owned_by": "mnemolog"}
            return web.json_response({"object": "list", "data": [named]})
        authorization = self.upstream.authorization(request.headers.get("Authorization"))
        headers = {"Authorization": authorization} if authorization else {}
        try:
            answer = await self.upstream.http.get(f"{self.upstream.url}/models", headers=headers)
        except httpx.HTTPError as error:
            return refused(f"{self.upstream.url} doesn't answer: {error}", 502)
        return web.Response(body=answer.content, status=answer.status_code, content_type="application/json")

    async def health(self, _request: web.Request) -> web.Response:
        """``GET /health``: that it runs, and what came of the requests since its start."""
        return web.json_response({"status": "ok", "upstream": self.upstream.url, "counts": dict(self.counts)})


def _failed(call: Call, error: ModelsFailed) -> web.Response:
    """What the endpoint said, under its own status; 502 where it said nothing that is an answer."""
    if call.status is None:
        return refused(f"The model gave no answer: {error}", 502)
    headers = {"Retry-After": call.retry_after} if call.retry_after else {}
    try:
        told = orjson.loads(call.content)
    except orjson.JSONDecodeError:
        told = None
    if isinstance(told, dict) and isinstance(told.get("error"), dict):
        return web.json_response(told, status=call.status, headers=headers)
    said = " ".join(call.content[:400].decode("utf-8", "replace").split())
    return refused(f"The endpoint refused: {call.status} {said}", call.status, headers=headers)


def _headers(what: Asked, talk: Conversation, memory: TimedMemory, first_ms: float) -> dict[str, str]:
    """Where the answer comes from and what took how long, as browsers show it."""
    took = {**memory.took_ms, "first": first_ms}
    headers = {
        "X-Mnemolog-Session": what.session_id if what.session_id.isascii() else "",
        "Server-Timing": ", ".join(f"{name};dur={ms:.2f}" for name, ms in took.items()),
    }
    reply = talk.last.reply if talk.last is not None else None
    if reply is not None and reply.recall_id is not None:
        headers["X-Mnemolog-Recall"] = reply.recall_id
    return {name: value for name, value in headers.items() if value}


def _id(talk: Conversation) -> str:
    reply = talk.last.reply if talk.last is not None else None
    return f"chatcmpl-{reply.recall_id if reply is not None and reply.recall_id else uuid.uuid4()}"


def _reason(talk: Conversation) -> str:
    attempts = talk.last.attempts if talk.last is not None else []
    if talk.last is not None and talk.last.refused:
        return "content_filter"
    return (attempts[-1].finish_reason if attempts else "") or "stop"


def _usage(talk: Conversation) -> Usage:
    """As the endpoint told it; estimated where it didn't, as in streams."""
    assert talk.last is not None
    messages = (talk.last.reply.messages if talk.last.reply is not None else None) or ()
    tokens_in = tokens_out = 0
    for attempt in talk.last.attempts:
        guess = estimated([message.content for message in messages], attempt.output)
        tokens_in += guess.tokens_in if attempt.tokens_in is None else attempt.tokens_in
        tokens_out += guess.tokens_out if attempt.tokens_out is None else attempt.tokens_out
    return Usage(tokens_in, tokens_out)


@web.middleware
async def _in_openai_form(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except Refused as error:
        return error.response()
    except web.HTTPRequestEntityTooLarge:
        return refused(f"The body is over {BODY_BYTES_MAX >> 20} MiB: send fewer messages.", 413)
    except web.HTTPException as error:
        return refused(f"{request.method} {request.path}: {error.reason}", error.status)


@asynccontextmanager
async def running(proxy: Proxy, host: str, port: int) -> AsyncIterator[str]:
    """The proxy's base URL, as long as the block lasts; raises ``CannotStart``."""
    listener = listening(host, port)
    runner = web.AppRunner(proxy.application(), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield f"http://{host}:{listener.getsockname()[1]}/v1"
    finally:
        await runner.cleanup()


async def serve(kafka: str, prefix: str, upstream: Upstream, defaults: Defaults, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; raises ``CannotStart`` and ``BrokerUnavailable``."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Client(kafka, prefix=prefix) as memory:
        try:
            async with running(Proxy(memory, upstream, defaults), host, port) as url:
                print(f"proxy ready on {url}, asks {upstream.url}, memory at {kafka}", flush=True)
                await stop.wait()
        finally:
            await upstream.stop()
