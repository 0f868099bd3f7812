"""What clients of the proxy ask in OpenAI's form, read and checked, and the forms of its answers.

Invariants: what the proxy can't do is refused with a sentence, never dropped in silence; of what a client sends only
its newest user message is the query: memory has the rest already.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from infra.model_server import refused
from schemas.envelope import ID_LENGTH_MAX, derived_id
from schemas.recalls import QUERY_LENGTH_MAX
from streams.core.text import token_estimate

ROLE_HEADER = "X-Mnemolog-Role"
SESSION_HEADER = "X-Mnemolog-Session"
TOKENS_OF_ANALYSIS = 800
"""Added to a client's ``max_tokens``, which is meant for what is said: an analysis comes before it."""
TOKENS_MAX = 4_000
"""Where the client gives none."""
GIVEN_TOKENS_MAX = 2**31 - 1
"""More is no count, and can't be written as JSON once the analysis is added."""
OWN = frozenset(
    {"messages", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "n"}
)
"""Fields that the proxy fills itself; others are passed on."""
REFUSED = {
    "tools": "tools can't be called through memory: leave `tools` out, or ask the model's own endpoint",
    "functions": "functions can't be called through memory: leave `functions` out, or ask the model's own endpoint",
    "logprobs": "log probabilities aren't given, since only the response of an answer is sent: leave `logprobs` out",
    "audio": "only text is answered: leave `audio` out",
}
SPEAKING = frozenset({"user", "assistant"})
INSTRUCTING = frozenset({"system", "developer"})


class Refused(ValueError):
    """A request that is wrong; answered in OpenAI's error form."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status

    def response(self) -> web.Response:
        """``{"error": …}``."""
        return refused(str(self), self.status, param=self.param)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the proxy was started with."""

    model: str | None = None
    """Asked whatever clients name."""
    user: str | None = None
    role: str | None = None
    hold: bool = False
    without_memory: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is in order."""

    query: str
    user_id: str
    role_id: str
    session_id: str
    model: str
    named: str
    """The model as the client named it; told back so."""
    stream: bool
    include_usage: bool
    instructions: str | None
    temperature: float | None
    tokens_max: int
    given: Mapping[str, Any]
    turns_before: int
    """Messages of user and assistant before the query: tells a repeated request from a repeated remark."""


def asked(body: Any, headers: Mapping[str, str], defaults: Defaults) -> Asked:
    """Check a request; raises ``Refused``.

    >>> body = {"model": "m@lin", "user": "ada", "messages": [{"role": "user", "content": "hi"}]}
    >>> found = asked(body, {}, Defaults())
    >>> found.query, found.user_id, found.role_id, found.model
    ('hi', 'ada', 'lin', 'm')
    """
    if not isinstance(body, dict):
        raise Refused("The body must be a JSON object with `model` and `messages`.")
    _refuse(body)
    _refuse_headers(headers)
    messages = _messages(body.get("messages"))
    spoken = [(role, text) for role, text in messages if role in SPEAKING]
    if not spoken or spoken[-1][0] != "user":
        raise Refused("The last message must be the user's: it is what memory is asked about.", "messages")
    query = spoken[-1][1]
    if not query.strip():
        raise Refused("The user's last message is empty.", "messages")
    if len(query) > QUERY_LENGTH_MAX:
        raise Refused(
            f"The user's last message has {len(query)} characters; memory is asked with up to {QUERY_LENGTH_MAX}.",
            "messages",
        )
    named = body.get("model") or defaults.model or ""
    if not isinstance(named, str) or not named:
        raise Refused("`model` must name a model, or the proxy be started with --model.", "model")
    base, at, suffix = named.rpartition("@")
    has_role = bool(at and base and suffix)
    user = _id(body.get("user") or defaults.user, "user", "send `user`, or start the proxy with --user")
    role = _id(
        headers.get(ROLE_HEADER) or (suffix if has_role else None) or defaults.role,
        ROLE_HEADER,
        f"send the header {ROLE_HEADER}, name the model `model@role`, or start the proxy with --role",
    )
    options = body.get("stream_options")
    temperature = body.get("temperature")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        raise Refused("`temperature` must be a number.", "temperature")
    return Asked(
        query=query,
        user_id=user,
        role_id=role,
        session_id=_session(headers.get(SESSION_HEADER), user, role, spoken),
        model=defaults.model or (base if has_role else named),
        named=named,
        stream=bool(body.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        instructions="\n\n".join(text for role, text in messages if role in INSTRUCTING).strip() or None,
        temperature=float(temperature) if temperature is not None else None,
        tokens_max=_tokens_max(body),
        given={name: value for name, value in body.items() if name not in OWN and value is not None},
        turns_before=len(spoken) - 1,
    )


def _refuse(body: Mapping[str, Any]) -> None:
    """What the proxy can't do."""
    if body.get("n") not in (None, 1):
        raise Refused("One answer a request: a conversation goes on in one way. Leave `n` out, or send 1.", "n")
    for name, sentence in REFUSED.items():
        if body.get(name):
            raise Refused(sentence[0].upper() + sentence[1:] + ".", name)
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and wanted.get("type") not in (None, "text"):
        raise Refused("Answers are text: leave `response_format` out, or send type text.", "response_format")


def _refuse_headers(headers: Mapping[str, str]) -> None:
    """Bytes that are no text: an id of them can't be written, a key of them can't be sent on."""
    for name in (ROLE_HEADER, SESSION_HEADER):
        if any("\ud800" <= character <= "\udfff" for character in headers.get(name, "")):
            raise Refused(f"The header {name} must be UTF-8.", name)
    if not headers.get("Authorization", "").isascii():
        raise Refused("The header Authorization must be ASCII.", "Authorization")


def _messages(given: Any) -> list[tuple[str, str]]:
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise Refused("`messages` must be a list of messages.", "messages")
    found = []
    for number, one in enumerate(given):
        role = one.get("role")
        if not isinstance(role, str) or role not in SPEAKING | INSTRUCTING:
            raise Refused(f"Message {number} is of role {role!r}; only system, user and assistant go.", "messages")
        if one.get("tool_calls") or one.get("function_call"):
            raise Refused(f"Message {number} calls tools, which memory doesn't know.", "messages")
        found.append((str(role), _text(one.get("content"), number)))
    return found


def _text(content: Any, number: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise Refused(f"The content of message {number} must be text, or a list of parts.", "messages")
    for part in content:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Refused(
                f"Message {number} has a part of type {part.get('type')!r}; only text goes. Describe images in words.",
                "messages",
            )
    return "".join(part["text"] for part in content)


def _id(given: Any, param: str, advice: str) -> str:
    if given is None or given == "":
        raise Refused(f"Whose memory it is isn't said: {advice}.", param)
    if not isinstance(given, str) or len(given) > ID_LENGTH_MAX:
        raise Refused(f"`{param}` must be a text of up to {ID_LENGTH_MAX} characters.", param)
    return given


def _session(header: str | None, user: str, role: str, spoken: Sequence[tuple[str, str]]) -> str:
    """The header's, else one for all conversations of an owner that begin with the same message."""
    if header:
        return _id(header, SESSION_HEADER, "")
    return "p-" + derived_id("proxy-session", user, role, spoken[0][0], spoken[0][1])


def _tokens_max(body: Mapping[str, Any]) -> int:
    wanted = body.get("max_completion_tokens") or body.get("max_tokens")
    if wanted is None:
        return TOKENS_MAX
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= GIVEN_TOKENS_MAX:
        raise Refused(f"`max_tokens` must be a whole number from 1 to {GIVEN_TOKENS_MAX}.", "max_tokens")
    return wanted + TOKENS_OF_ANALYSIS


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a round: of every output that was asked for, analyses and repairs included."""

    tokens_in: int
    tokens_out: int

    def plain(self) -> dict[str, int]:
        """In OpenAI's form."""
        return {
            "prompt_tokens": self.tokens_in,
            "completion_tokens": self.tokens_out,
            "total_tokens": self.tokens_in + self.tokens_out,
        }


def estimated(prompt: Sequence[str], output: str) -> Usage:
    """Tokens at a guess, for endpoints and streams that tell none.

    >>> estimated(["hello there"], "hi").tokens_out > 0
    True
    """
    return Usage(sum(map(token_estimate, prompt)), token_estimate(output))


def completion(id_: str, model: str, text: str, reason: str, usage: Usage) -> dict[str, Any]:
    """A whole answer."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return _head(id_, model, "chat.completion") | {"choices": [choice], "usage": usage.plain()}


class Events:
    """Server-sent events of one answer."""

    def __init__(self, id_: str, model: str, *, include_usage: bool) -> None:
        self._head = _head(id_, model, "chat.completion.chunk") | ({"usage": None} if include_usage else {})
        self._include_usage = include_usage

    def first(self, piece: str) -> bytes:
        """The role, and the first piece with it in one packet."""
        return self._event({"role": "assistant", "content": ""}) + self.piece(piece)

    def piece(self, piece: str) -> bytes:
        """A piece of the text."""
        return self._event({"content": piece})

    def end(self, usage: Usage) -> bytes:
        """The reason, the usage where it is asked for, and the end."""
        last = self._event({}, "stop")
        if self._include_usage:
            last += _data(self._head | {"choices": [], "usage": usage.plain()})
        return last + b"data: [DONE]\n\n"

    def broken(self, message: str) -> bytes:
        """An error in the middle of an answer, as OpenAI tells it; no end follows."""
        return _data({"error": {"message": message, "type": "server_error", "param": None, "code": None}})

    def _event(self, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _data(self._head | {"choices": [choice]})


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _head(id_: str, model: str, kind: str) -> dict[str, Any]:
    return {"id": id_, "object": kind, "created": int(time.time()), "model": model}
