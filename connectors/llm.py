"""Answers of any OpenAI-compatible chat endpoint: tried again within a deadline, bounded in flight, with clear errors.

What may pass (no connection, 408, 425, 429, 5xx, an answer that breaks off) is tried again with growing pauses, or
after as long as ``Retry-After`` says, until the deadline; then it is ``Unavailable``. What won't pass (a wrong key, an
unknown model, a request that is refused) is ``ModelRefused`` at once.

Endpoints differ in what they take. A request that is refused (400, 422) is made again in a plainer dialect: JSON by
schema, then any JSON, then plain; ``max_completion_tokens`` for ``max_tokens``; no temperature. The dialect that was
taken is kept for later requests.

Invariant: a call ends within its time-out, whatever the endpoint does, and no error tells the key.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx
import orjson

from connectors.ports import Completion, ModelRefused, Unavailable
from connectors.settings import Settings
from schemas.recalls import Message

CONNECT_TIMEOUT_S = 5.0
PAUSE_S_MIN = 0.5
PAUSE_S_MAX = 8.0
ANSWER_BYTES_MAX = 8 << 20
"""Of one answer; a model's longest context written out is a tenth of it."""
TRANSIENT = {408, 425, 429}
BYTES_PER_TOKEN = 3
"""For endpoints that tell no usage: between English (4 to 5) and Chinese (2 to 3 of a character's 3 bytes)."""

Format = Literal["json_schema", "json_object", "plain"]
_PLAINER: dict[Format, Format] = {"json_schema": "json_object", "json_object": "plain"}


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What an endpoint takes, as far as it is known."""

    format: Format = "json_schema"
    tokens_field: str = "max_tokens"
    temperature: bool = True

    def after_refusal(self, told: str, structured: bool) -> _Dialect | None:
        """The dialect to try next after a refusal that said ``told``; None: there is none."""
        if self.tokens_field == "max_tokens" and "max_completion_tokens" in told:
            return replace(self, tokens_field="max_completion_tokens")
        if self.temperature and "temperature" in told:
            return replace(self, temperature=False)
        if structured and self.format in _PLAINER:
            return replace(self, format=_PLAINER[self.format])
        return None


class _TryAgain(Exception):
    """A try that failed and may pass; ``pause_s`` as the endpoint asks, if it does."""

    def __init__(self, message: str, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.pause_s = pause_s


class _Refused(Exception):
    """A request that wasn't taken as it is."""


class HttpChatModel:
    """``ports.ChatModel`` over ``POST /chat/completions``.

    Parameters
    ----------
    url : str
        Base URL, such as ``https://api.openai.com/v1``.
    model : str
        As the endpoint names it.
    key : str, optional
    timeout_s : float
        For calls that give none.
    concurrency : int
        Requests in flight at once; further ones wait, within their deadlines.
    transport : httpx.AsyncBaseTransport, optional
        What carries requests; for tests.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        timeout_s: float = 60.0,
        concurrency: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
        pause: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        headers = {"content-type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.name = model
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._pause = pause
        self._dialect = _Dialect()
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),  # The deadline bounds the rest.
            limits=httpx.Limits(max_connections=concurrency),
            transport=transport,
        )

    @classmethod
    def from_settings(cls, settings: Settings) -> HttpChatModel | None:
        """The model that the settings name; None where they name no endpoint."""
        if not settings.model_url:
            return None
        return cls(
            settings.model_url,
            settings.model,
            key=settings.model_key,
            timeout_s=settings.model_timeout_s,
            concurrency=settings.model_concurrency,
        )

    async def stop(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        temperature: float,
        max_tokens: int,
        response_schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Completion:
        """See ``ports.ChatModel``."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = _now() + limit_s
        asked = _Asked(messages, temperature, max_tokens, response_schema, stream=False)

        async def once() -> Completion:
            started = _now()
            async with self._http.stream("POST", self._endpoint, content=self._body(asked)) as response:
                content = await self._content(response)
            return self._completion(asked, content, (_now() - started) * 1000)

        return await self._within(limit_s, self._tried(once, asked, deadline))

    async def stream(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float | None = None
    ) -> AsyncIterator[str]:
        """See ``ports.ChatModel``. Tried again until the first piece; what breaks off later is ``Unavailable``."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = _now() + limit_s
        asked = _Asked(messages, temperature, max_tokens, None, stream=True)
        await self._within(limit_s, self._slots.acquire())
        try:
            pieces: AsyncIterator[str] | None = None

            async def once() -> str | None:
                nonlocal pieces
                pieces = self._pieces(asked)
                return await anext(pieces, None)

            piece = await self._within(deadline - _now(), self._tried(once, asked, deadline, slot=False))
            assert pieces is not None
            async with aclosing(pieces) as rest:  # type: ignore[type-var]
                while piece is not None:
                    yield piece
                    try:
                        piece = await self._within(deadline - _now(), anext(rest, None))
                    except (_TryAgain, httpx.HTTPError) as error:
                        raise Unavailable(f"{self._where} broke off in the middle of an answer: {error}") from error
        finally:
            self._slots.release()

    # -- tries ------------------------------------------------------------------------------------------------------

    async def _within(self, limit_s: float, work: Any) -> Any:
        try:
            async with asyncio.timeout(max(0.0, limit_s)):
                return await work
        except TimeoutError as error:
            raise Unavailable(
                f"{self._where} did not answer within its time-out ({self._concurrency} requests at once); raise "
                f"MNEMOLOG_MODEL_TIMEOUT_S or MNEMOLOG_MODEL_CONCURRENCY, or look at the endpoint's load"
            ) from error

    async def _tried(self, once: Callable[[], Any], asked: _Asked, deadline: float, *, slot: bool = True) -> Any:
        """The result of the first try that passes; pauses between tries happen outside of the slot."""
        pause_s = PAUSE_S_MIN
        while True:
            try:
                if not slot:
                    return await self._in_dialect(once, asked)
                async with self._slots:
                    return await self._in_dialect(once, asked)
            except (_TryAgain, httpx.TransportError) as error:
                told_s = getattr(error, "pause_s", None) or 0.0
                wait_s = told_s if told_s >= PAUSE_S_MIN else pause_s * (0.5 + random.random() / 2)
                if _now() + wait_s >= deadline:
                    raise Unavailable(
                        f"{self._where}: {str(error) or type(error).__name__}; the next try would be after the deadline"
                    ) from error
                await self._pause(wait_s)
                pause_s = min(PAUSE_S_MAX, pause_s * 2)

    async def _in_dialect(self, once: Callable[[], Any], asked: _Asked) -> Any:
        """One try, in plainer dialects where it is refused."""
        while True:
            spoken = self._dialect
            try:
                return await once()
            except _Refused as error:
                plainer = spoken.after_refusal(str(error), asked.schema is not None)
                if plainer is None:
                    # Another request may be taken as it was before: this one is what the endpoint doesn't like.
                    self._dialect = _Dialect(tokens_field=spoken.tokens_field, temperature=spoken.temperature)
                    raise ModelRefused(f"{self._where} refused the request: {error}") from error
                if self._dialect == spoken:
                    self._dialect = plainer

    # -- requests ---------------------------------------------------------------------------------------------------

    @property
    def _endpoint(self) -> str:
        return f"{self._url}/chat/completions"

    @property
    def _where(self) -> str:
        return f"model {self.name} at {self._url}"

    def _body(self, asked: _Asked) -> bytes:
        spoken = self._dialect
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [{"role": message.role, "content": message.content} for message in asked.messages],
            spoken.tokens_field: asked.max_tokens,
        }
        if spoken.temperature:
            body["temperature"] = asked.temperature
        if asked.stream:
            body["stream"] = True
        if asked.schema is not None and spoken.format == "json_schema":
            schema = {"name": asked.schema.get("title", "answer"), "strict": True, "schema": asked.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif asked.schema is not None and spoken.format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return orjson.dumps(_encodable(body))

    async def _content(self, response: httpx.Response) -> bytes:
        """The body of a 200; raises ``_TryAgain``, ``_Refused``, ``ModelRefused``."""
        if response.status_code != 200:
            await self._raise_for(response)
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > ANSWER_BYTES_MAX:
                raise ModelRefused(f"{self._where} gave more than {ANSWER_BYTES_MAX >> 20} MiB for one answer")
        return bytes(content)

    async def _raise_for(self, response: httpx.Response) -> None:
        text = (await response.aread())[:2000].decode("utf-8", "replace")
        status = response.status_code
        told = f"{status} {' '.join(text.split())[:400]}"
        if status in TRANSIENT or status >= 500:
            if "insufficient_quota" in text:
                raise Unavailable(f"{self._where} has no quota left: {told}")
            raise _TryAgain(told, _retry_after_s(response.headers.get("retry-after")))
        if status in {400, 422}:
            raise _Refused(told)
        advice = {
            401: "set MNEMOLOG_MODEL_KEY",
            403: "set MNEMOLOG_MODEL_KEY",
            404: "set MNEMOLOG_MODEL to a model that it serves, or mend MNEMOLOG_MODEL_URL",
            413: "the request is too long for it",
        }.get(status, "mend MNEMOLOG_MODEL_URL")
        raise ModelRefused(f"{self._where} refused: {told}; {advice}")

    def _completion(self, asked: _Asked, content: bytes, latency_ms: float) -> Completion:
        answer = self._decoded(content)
        choice = answer["choices"][0]
        message = choice.get("message") or {}
        if message.get("refusal") and not message.get("content"):
            raise ModelRefused(f"{self._where} declined: {str(message['refusal'])[:400]}")
        text = _text(message.get("content"))
        usage = _usage(answer)
        read = sum(_tokens_guessed(message.content) for message in asked.messages)
        tokens_in, tokens_out = usage or (read, _tokens_guessed(text))
        return Completion(
            text=text,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            latency_ms=latency_ms,
            model=str(answer.get("model") or self.name),
            finish_reason=str(choice.get("finish_reason") or ""),
            estimated=usage is None,
        )

    def _decoded(self, content: bytes) -> dict[str, Any]:
        """An answer with at least one choice; an error in a 200 is told as what it says."""
        try:
            answer = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            begun = content[:80].decode("utf-8", "replace")
            if content.lstrip()[:1] in (b"{", b""):
                raise _TryAgain(f"an answer that breaks off: {begun!r}") from error
            raise ModelRefused(
                f"{self._where} answered what is no JSON ({begun!r}): MNEMOLOG_MODEL_URL must be the base URL of an "
                f"OpenAI-compatible API, such as http://host:8000/v1"
            ) from error
        if isinstance(answer, dict) and answer.get("error"):
            raise _TryAgain(f"an error in an answer: {str(answer['error'])[:400]}")
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise ModelRefused(f"{self._where} answered without choices: {content[:200].decode('utf-8', 'replace')!r}")
        return answer

    async def _pieces(self, asked: _Asked) -> AsyncIterator[str]:
        """Pieces of text of a stream; of an endpoint that doesn't stream the whole text."""
        async with self._http.stream("POST", self._endpoint, content=self._body(asked)) as response:
            if response.status_code != 200:
                await self._raise_for(response)
            if "text/event-stream" not in response.headers.get("content-type", ""):
                text = self._completion(asked, await self._content(response), 0.0).text
                if text:
                    yield text
                return
            ended = False
            async for data in _events(response.aiter_bytes()):
                if data == b"[DONE]":
                    ended = True
                    break
                choice = self._chunk(data)
                piece = _text((choice.get("delta") or {}).get("content"))
                if piece:
                    yield piece
                ended = ended or bool(choice.get("finish_reason"))
            if not ended:
                raise _TryAgain("a stream that ends without [DONE]")

    def _chunk(self, data: bytes) -> dict[str, Any]:
        """The first choice of a chunk; a last one with usage alone has none."""
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise _TryAgain(f"a chunk that is no JSON: {data[:80].decode('utf-8', 'replace')!r}") from error
        if not isinstance(chunk, dict) or chunk.get("error"):
            raise _TryAgain(f"an error in a stream: {data[:400].decode('utf-8', 'replace')}")
        choices = chunk.get("choices")
        return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question to a model."""

    messages: Sequence[Message]
    temperature: float
    max_tokens: int
    schema: Mapping[str, Any] | None
    stream: bool


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Data of server-sent events. Split at line feeds only: other line ends may stand inside of JSON strings."""
    held = b""
    async for chunk in chunks:
        *lines, held = (held + chunk).split(b"\n")
        if len(held) > ANSWER_BYTES_MAX:
            raise _TryAgain(f"a line of more than {ANSWER_BYTES_MAX >> 20} MiB in a stream")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
    if held.startswith(b"data:"):
        yield held[5:].strip()


def _usage(answer: Mapping[str, Any]) -> tuple[int, int] | None:
    """Tokens read and written, if they were told."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return (read, written) if isinstance(read, int) and isinstance(written, int) else None


def _tokens_guessed(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN


def _text(content: Any) -> str:
    """Text of a message: a string, or the text parts of a list."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _encodable(value: Any) -> Any:
    """Lone surrogates, which turns may hold and UTF-8 can't, become question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {key: _encodable(one) for key, one in value.items()}
    return [_encodable(one) for one in value] if isinstance(value, list | tuple) else value


def _retry_after_s(told: str | None) -> float | None:
    """Seconds of a ``Retry-After``, which is a number or a date.

    >>> _retry_after_s("2"), _retry_after_s("0.5"), _retry_after_s("soon"), _retry_after_s(None)
    (2.0, 0.5, None, None)
    """
    if told is None:
        return None
    try:
        return max(0.0, float(told))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(told).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _now() -> float:
    return time.monotonic()
