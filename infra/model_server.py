"""A scripted OpenAI-compatible chat endpoint for tests and the demo: ``python -m infra.model_server --port N``.

``POST /v1/chat/completions`` (whole or as server-sent events), ``GET /v1/models``, ``GET /health``. It is no model:
what it answers stands in a script (``--script``), a TOML file of rules of which the first that matches answers:

```toml
refuses_formats = ["json_schema"]     # kinds of response_format that are refused with 400, as some endpoints do

[[rule]]
when = "住在(?P<city>..)"              # pattern in the latest user message; left out: any
system = "Lin"                        # pattern in the system messages; left out: any
schema = true                         # only where a JSON schema or JSON is asked for (false: only where not)
answers = ["$city 很美", "我记得"]      # in turn, the last for ever; $name and $1 stand for groups, $$ for a dollar
misbehave = "rate_limited"            # one of MISBEHAVIOURS, instead of the answer
times = 2                             # only so often; then the answers, if there are any, else the next rule
```

or a Python file with ``def answer(messages, body) -> str`` (called in a thread, one call at a time; ``MODEL`` in it
names what answers, as infra/small_model.py does for a real model). A model named ``scripted:<misbehaviour>`` misbehaves
whatever the script says.

Invariant: equal requests in equal order get equal answers.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import runpy
import signal
import sys
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal, NoReturn, get_args

from aiohttp import web

from infra.listening import CannotStart, listening
from streams.core.text import token_estimate

MODEL = "scripted"
BODY_BYTES_MAX = 16 << 20
RETRY_AFTER_S = 1
DEFAULT_SCRIPT = '[[rule]]\nanswers = ["<analysis>none</analysis><response>This is a scripted answer.</response>"]\n'

Misbehaviour = Literal[
    "rubbish",
    "empty",
    "truncated",
    "refusal",
    "wrong_schema",
    "error_500",
    "rate_limited",
    "hang",
    "close",
    "html",
]
MISBEHAVIOURS: tuple[str, ...] = get_args(Misbehaviour)
_SAID = {
    "rubbish": "Ω≈ç√ lorem {{{ ]] 42 <<analysis> \ufffd null,,, ```",
    "empty": "",
    "truncated": '{"summary": "The user moved to Lis',
    "refusal": "I'm sorry, but I can't help with that request.",
    "wrong_schema": '{"answer": 42, "facts": "none", "summary": ["a", "b"]}',
}
"""What misbehaviours say that are told with status 200 in OpenAI's form."""


class CannotRead(ValueError):
    """A script that is wrong: where, and what to do."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is answered to which messages."""

    when: re.Pattern[str]
    system: re.Pattern[str]
    schema: bool | None
    answers: tuple[str, ...]
    misbehave: str | None
    times: int | None


Answering = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], str]
"""From messages and the body of the request to the answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or how to misbehave."""

    text: str
    misbehave: str | None = None


class Script:
    """Rules and how often each was used."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        refuses_formats: Sequence[str] = (),
        function: Answering | None = None,
        name: str = MODEL,
    ) -> None:
        self.name = name
        self.rules = tuple(rules)
        self.function = function
        self.refuses_formats = frozenset(refuses_formats)
        self._used: Counter[int] = Counter()

    @classmethod
    def of_toml(cls, text: str) -> Script:
        """Read rules; raises ``CannotRead``.

        >>> script = Script.of_toml('[[rule]]\\nwhen = "hello (.+)"\\nanswers = ["hi $1"]')
        >>> script.reply([{"role": "user", "content": "hello Ann"}], {}).text
        'hi Ann'
        """
        try:
            raw = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise CannotRead(f"the script is no TOML: {error}") from error
        return cls(
            [_rule(number, one) for number, one in enumerate(raw.get("rule", ()), 1)], raw.get("refuses_formats", ())
        )

    @classmethod
    def of_file(cls, path: Path) -> Script:
        """Read a ``.toml`` or ``.py`` file; raises ``CannotRead``."""
        try:
            if path.suffix == ".py":
                found = runpy.run_path(str(path))
                return cls(function=found["answer"], name=found.get("MODEL", MODEL))
            return cls.of_toml(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CannotRead(f"can't read the script {path}: {error}") from error
        except KeyError as error:
            raise CannotRead(f"{path} defines no function answer(messages, body)") from error

    def reply(self, messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> Reply:
        """What the function or the first rule that matches says; counts the rule's use."""
        if self.function is not None:
            return Reply(self.function(messages, body))
        latest = next((str(one.get("content") or "") for one in reversed(messages) if one.get("role") == "user"), "")
        system = "\n".join(str(one.get("content") or "") for one in messages if one.get("role") == "system")
        structured = bool(body.get("response_format"))
        for number, rule in enumerate(self.rules):
            found = rule.when.search(latest)
            if not found or not rule.system.search(system) or rule.schema not in (None, structured):
                continue
            used = self._used[number]
            misbehaves = rule.misbehave is not None and (rule.times is None or used < rule.times)
            if not misbehaves and not rule.answers:
                continue
            self._used[number] += 1
            if misbehaves:
                return Reply("", rule.misbehave)
            text = rule.answers[min(used - (rule.times or 0), len(rule.answers) - 1)]
            return Reply(_filled(text, found))
        return Reply("")


def _rule(number: int, raw: Mapping[str, Any]) -> Rule:
    known = {"when", "system", "schema", "answer", "answers", "misbehave", "times"}
    if unknown := sorted(raw.keys() - known):
        raise CannotRead(f"rule {number} of the script has unknown keys {unknown}; known are {sorted(known)}")
    if raw.get("misbehave") not in (None, *MISBEHAVIOURS):
        raise CannotRead(
            f"rule {number}: misbehave is {raw['misbehave']!r}; expected one of {', '.join(MISBEHAVIOURS)}"
        )
    try:
        when, system = (re.compile(str(raw.get(name, "")), re.IGNORECASE | re.DOTALL) for name in ("when", "system"))
    except re.error as error:
        raise CannotRead(f"rule {number} of the script has a pattern that is none: {error}") from error
    answers = tuple(raw.get("answers", ())) + ((raw["answer"],) if "answer" in raw else ())
    return Rule(when, system, raw.get("schema"), answers, raw.get("misbehave"), raw.get("times"))


def _filled(text: str, found: re.Match[str]) -> str:
    """The answer with the groups of the match; ``$1`` before names, which can't begin with digits."""
    numbered = re.sub(r"(?<!\$)\$(\d)", lambda one: (found[int(one[1])] or "").replace("$", "$$"), text)
    return Template(numbered).safe_substitute({name: value or "" for name, value in found.groupdict().items()})


class Server:
    """The endpoint; ``asked`` holds the bodies that it got, for tests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []
        self._stopped = asyncio.Event()
        self._calling = asyncio.Lock()

    def application(self) -> web.Application:
        """Routes."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.on_shutdown.append(self._release)
        return app

    async def _release(self, _app: web.Application) -> None:
        self._stopped.set()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``."""
        try:
            body = await request.json()
        except ValueError:
            return refused("The body is no JSON.")
        messages = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages) or not messages:
            return refused("messages must be a list of messages", param="messages")
        self.asked.append(body)
        wanted = body.get("response_format")
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        if kind in self.script.refuses_formats:
            return refused(f"response_format of type {kind!r} is not supported by this model", param="response_format")
        _, _, named = str(body.get("model", "")).partition(":")
        reply = Reply("", named) if named in MISBEHAVIOURS else await self._reply(messages, body)
        if reply.misbehave in (None, *_SAID):
            text = _SAID.get(reply.misbehave or "", reply.text)
            return await self._answered(request, body, text)
        return await self._misbehaved(request, body, reply.misbehave)

    async def _reply(self, messages: list[dict[str, Any]], body: dict[str, Any]) -> Reply:
        if self.script.function is None:
            return self.script.reply(messages, body)
        async with self._calling:
            return await asyncio.to_thread(self.script.reply, messages, body)

    async def _answered(self, request: web.Request, body: Mapping[str, Any], text: str) -> web.StreamResponse:
        if not body.get("stream"):
            return web.json_response(completion(body, text))
        response = await _streaming(request)
        async for chunk in chunks(body, text):
            await response.write(chunk)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _models(self, _request: web.Request) -> web.Response:
        names = (self.script.name, *(f"{MODEL}:{how}" for how in MISBEHAVIOURS))
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "mnemolog"} for name in names]
        return web.json_response({"object": "list", "data": listed})

    async def _health(self, _request: web.Request) -> web.Response:
        name = self.script.name
        return web.json_response({"status": "ok", "model": name, "scripted": name == MODEL})

    async def _misbehaved(self, request: web.Request, body: Mapping[str, Any], how: str | None) -> web.StreamResponse:
        if how == "error_500":
            return refused("The server had an error.", 500)
        if how == "rate_limited":
            return refused("Rate limit reached.", 429, headers={"Retry-After": str(RETRY_AFTER_S)})
        if how == "html":
            return web.Response(text="<!doctype html><title>Sign in</title>Please sign in.", content_type="text/html")
        if how == "hang":
            await self._stopped.wait()
            return refused("The server is going down.", 503)
        assert how == "close", how
        # Begins an answer and drops the connection in the middle of it.
        if body.get("stream"):
            response = await _streaming(request)
            async for chunk in chunks(body, "This answer breaks off", ends=False):
                await response.write(chunk)
        else:
            response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"id": "chatcmpl-1", "choices": [{"mess')
        if request.transport is not None:
            request.transport.abort()
        return response


def completion(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer in OpenAI's form; tokens are estimated."""
    read = sum(token_estimate(str(message.get("content") or "")) for message in body["messages"])
    written = token_estimate(text)
    message = {"role": "assistant", "content": text, "refusal": None}
    return _head(body, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


async def chunks(body: Mapping[str, Any], text: str, *, ends: bool = True) -> AsyncIterator[bytes]:
    """Server-sent events of an answer, a word or two Chinese characters each."""
    head = _head(body, "chat.completion.chunk")

    def event(delta: dict[str, Any], reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return b"data: " + json.dumps(head | {"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"

    yield event({"role": "assistant", "content": ""}, None)
    for piece in re.findall(r"[^\s\u2e80-\uffff]+\s*|[\u2e80-\uffff]{1,2}|\s+", text):
        yield event({"content": piece}, None)
        await asyncio.sleep(0)
    if ends:
        yield event({}, "stop")


def _head(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]
    return {"id": f"chatcmpl-{digest}", "object": kind, "created": 0, "model": str(body.get("model") or MODEL)}


def refused(
    message: str, status: int = 400, *, param: str | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An error in OpenAI's form."""
    kind = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}.get(status, "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": None}
    return web.json_response({"error": error}, status=status, headers=headers)


async def _streaming(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


async def serve(script: Script, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; raises ``CannotStart``."""
    listener = listening(host, port)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(Server(script).application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    print(f"{script.name} model ready on http://{host}:{listener.getsockname()[1]}/v1", flush=True)
    await stop.wait()
    await runner.cleanup()


def main(argv: list[str] | None = None) -> NoReturn:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.model_server", description="A scripted chat endpoint in OpenAI's form."
    )
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0: any free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s); no passwords")
    parser.add_argument("--script", type=Path, help="TOML or Python file with the answers (default: one fixed answer)")
    options = parser.parse_args(argv)
    try:
        script = Script.of_file(options.script) if options.script else Script.of_toml(DEFAULT_SCRIPT)
        asyncio.run(serve(script, options.host, options.port))
    except (CannotStart, CannotRead) as error:
        sys.exit(f"scripted model: {error}")
    sys.exit(0)


if __name__ == "__main__":
    main()
