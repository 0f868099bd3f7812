"""Chat models: the contract, and what the client does with an endpoint that misbehaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx
import pytest
from aiohttp import web

from connectors.inprocess import ScriptedChatModel
from connectors.llm import HttpChatModel
from connectors.ports import ChatModel, ModelRefused, Unavailable
from connectors.settings import Settings
from infra.listening import listening
from infra.model_server import MISBEHAVIOURS, Script, Server
from schemas.recalls import Message
from tests.contracts import ChatModelContract, ChatSubject, chat_answer

SAID = [Message(role="user", content="echo hello world")]
SCHEMA = {"title": "extraction", "type": "object", "properties": {}}
NOWHERE = "http://127.0.0.1:9/v1"
"""The discard port, where nobody listens."""


class Running:
    """A scripted server in this event loop, and the client models that talk to it."""

    def __init__(self, server: Server, url: str) -> None:
        self.server = server
        self.url = url
        self.models: list[HttpChatModel] = []
        self.pauses: list[float] = []

    def model(self, name: str = "scripted", **given: Any) -> HttpChatModel:
        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(0)

        made = HttpChatModel(given.pop("url", self.url), name, pause=pause, **given)
        self.models.append(made)
        return made


Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start servers with a script each; they end with the test."""
    runners: list[web.AppRunner] = []
    started: list[Running] = []

    async def begin(script: Script | None = None) -> Running:
        def echo(messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> str:
            return chat_answer(str(messages[-1]["content"]))

        server = Server(script or Script(function=echo))
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        listener = listening("127.0.0.1", 0)
        await web.SockSite(runner, listener).start()
        started.append(Running(server, f"http://127.0.0.1:{listener.getsockname()[1]}/v1"))
        return started[-1]

    yield begin
    for running in started:
        for model in running.models:
            await model.stop()
    for runner in runners:
        await runner.cleanup()


async def complete(model: ChatModel, **given: Any) -> str:
    return (await model.complete(SAID, temperature=0.3, max_tokens=64, **given)).text


class TestScriptedChatModel(ChatModelContract):
    @pytest.fixture
    def subject(self) -> ChatSubject:
        def refuse(messages: Sequence[Message]) -> str:
            raise ModelRefused("this model refuses everything")

        away = ScriptedChatModel(lambda messages: "")
        away.away = True
        model = ScriptedChatModel(lambda messages: chat_answer(messages[-1].content))
        return ChatSubject(model, away, ScriptedChatModel(refuse))


class TestHttpChatModel(ChatModelContract):
    @pytest.fixture
    async def subject(self, start: Start) -> ChatSubject:
        running = await start()
        refusing = running.model(url=running.url + "/no-such-path")
        return ChatSubject(running.model(concurrency=2), running.model(url=NOWHERE), refusing)


# -- ten misbehaviours ------------------------------------------------------------------------------------------------

OUTCOMES: dict[str, type[Exception] | None] = {
    "rubbish": None,
    "empty": None,
    "truncated": None,
    "refusal": None,
    "wrong_schema": None,
    "error_500": Unavailable,
    "rate_limited": Unavailable,
    "hang": Unavailable,
    "close": Unavailable,
    "html": ModelRefused,
}
"""What comes of each: None for text that somebody else has to judge."""


def test_every_misbehaviour_has_its_outcome() -> None:
    assert set(OUTCOMES) == set(MISBEHAVIOURS)
    assert len(OUTCOMES) == 10


@pytest.mark.parametrize("how", MISBEHAVIOURS)
async def test_misbehaving_endpoint_ends_in_text_or_in_a_clear_error(start: Start, how: str) -> None:
    running = await start()
    model = running.model(f"scripted:{how}", key="sk-very-secret")
    expected = OUTCOMES[how]
    if expected is None:
        assert isinstance(await complete(model, timeout_s=5.0), str)
        return
    with pytest.raises(expected) as told:
        await complete(model, timeout_s=0.5)
    assert model.name in str(told.value)
    assert running.url in str(told.value)
    assert "sk-very-secret" not in str(told.value)


@pytest.mark.parametrize("how", MISBEHAVIOURS)
async def test_misbehaving_stream_ends_in_text_or_in_a_clear_error(start: Start, how: str) -> None:
    running = await start()
    stream = running.model(f"scripted:{how}").stream(SAID, temperature=0.3, max_tokens=64, timeout_s=0.5)
    pieces: list[str] = []
    expected = OUTCOMES[how]
    if expected is None:
        assert all([piece async for piece in stream])
        return

    async def gather() -> None:
        async for piece in stream:
            pieces.append(piece)

    with pytest.raises(expected):
        await gather()
    assert bool(pieces) == (how == "close")


# -- tries, deadlines, dialects ---------------------------------------------------------------------------------------


async def test_what_may_pass_is_tried_again(start: Start) -> None:
    running = await start(
        Script.of_toml('[[rule]]\nmisbehave = "error_500"\ntimes = 2\nanswers = ["at last"]\nwhen = "hello"')
    )
    assert await complete(running.model()) == "at last"
    assert len(running.server.asked) == 3
    assert len(running.pauses) == 2
    assert 0 < running.pauses[0] < running.pauses[1] * 2


async def test_retry_after_is_honoured_and_bounded_by_the_deadline(start: Start) -> None:
    script = '[[rule]]\nmisbehave = "rate_limited"\ntimes = 1\nanswers = ["at last"]'
    running = await start(Script.of_toml(script))
    assert await complete(running.model(), timeout_s=10.0) == "at last"
    assert running.pauses == [1.0]
    running = await start(Script.of_toml(script))
    with pytest.raises(Unavailable, match="after the deadline"):
        await complete(running.model(), timeout_s=0.9)
    assert running.pauses == []
    assert len(running.server.asked) == 1


async def test_stream_is_tried_again_before_its_first_piece(start: Start) -> None:
    running = await start(Script.of_toml('[[rule]]\nmisbehave = "error_500"\ntimes = 1\nanswers = ["at last"]'))
    stream = running.model().stream(SAID, temperature=0.3, max_tokens=64)
    assert "".join([piece async for piece in stream]) == "at last"
    assert len(running.server.asked) == 2


async def test_answer_that_breaks_off_is_tried_again(start: Start) -> None:
    running = await start(Script.of_toml('[[rule]]\nmisbehave = "close"\ntimes = 1\nanswers = ["whole"]'))
    assert await complete(running.model()) == "whole"


async def test_schema_goes_with_the_request_and_plainer_dialects_follow_a_refusal(start: Start) -> None:
    for refuses, formats in [
        ([], ["json_schema"]),
        (["json_schema"], ["json_schema", "json_object"]),
        (["json_schema", "json_object"], ["json_schema", "json_object", None]),
    ]:
        running = await start(Script.of_toml(f'refuses_formats = {json.dumps(refuses)}\n[[rule]]\nanswers = ["{{}}"]'))
        model = running.model()
        assert await complete(model, response_schema=SCHEMA) == "{}"
        assert [(body.get("response_format") or {}).get("type") for body in running.server.asked] == formats
        running.server.asked.clear()
        # What was found out is kept.
        assert await complete(model, response_schema=SCHEMA) == "{}"
        assert [(body.get("response_format") or {}).get("type") for body in running.server.asked] == formats[-1:]


def answering(*responses: httpx.Response) -> tuple[HttpChatModel, list[dict[str, Any]]]:
    """A model whose endpoint gives these responses in turn, the last for ever; and the bodies that it got."""
    left = list(responses)
    bodies: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return left.pop(0) if len(left) > 1 else left[0]

    async def pause(seconds: float) -> None:
        await asyncio.sleep(0)

    model = HttpChatModel("http://model/v1/", "m", transport=httpx.MockTransport(handle), pause=pause)
    return model, bodies


def answer(content: Any, **more: Any) -> httpx.Response:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return httpx.Response(200, json={"choices": [choice], **more})


async def test_newer_models_names_for_parameters_are_learnt() -> None:
    model, bodies = answering(
        httpx.Response(400, json={"error": {"message": "Use 'max_completion_tokens' instead of 'max_tokens'."}}),
        httpx.Response(400, json={"error": {"message": "Unsupported value: 'temperature' does not support 0.3."}}),
        answer("ok"),
    )
    assert await complete(model) == "ok"
    assert await complete(model) == "ok"
    assert [sorted(body.keys() - {"model", "messages"}) for body in bodies] == [
        ["max_tokens", "temperature"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]


async def test_tokens_are_guessed_where_none_are_told_and_say_so() -> None:
    model, _ = answering(answer("昨天吃了馄饨"), answer("x", usage={"prompt_tokens": 7, "completion_tokens": 2}))
    guessed = await model.complete(SAID, temperature=0.3, max_tokens=64)
    assert (guessed.tokens_out, guessed.estimated) == (6, True)
    told = await model.complete(SAID, temperature=0.3, max_tokens=64)
    assert (told.tokens_in, told.tokens_out, told.estimated) == (7, 2, False)


async def test_content_in_parts_is_joined_and_a_lone_surrogate_is_sent() -> None:
    model, bodies = answering(answer([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
    said = [Message(role="user", content="x\ud800y")]
    assert (await model.complete(said, temperature=0.3, max_tokens=9)).text == "ab"
    assert bodies[0]["messages"] == [{"role": "user", "content": "x?y"}]


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (httpx.Response(401, text="bad key"), "MNEMOLOG_MODEL_KEY"),
        (httpx.Response(404, text="no model"), "MNEMOLOG_MODEL"),
        (httpx.Response(400, text="context too long"), "context too long"),
        (httpx.Response(302, headers={"location": "/login"}), "MNEMOLOG_MODEL_URL"),
        (httpx.Response(200, text="<html>"), "MNEMOLOG_MODEL_URL"),
        (httpx.Response(200, json={"choices": []}), "without choices"),
        (httpx.Response(200, json=["a"]), "without choices"),
        (httpx.Response(200, json={"choices": [{"message": {"content": None, "refusal": "I won't"}}]}), "I won't"),
    ],
)
async def test_what_will_not_pass_is_refused_at_once(response: httpx.Response, says: str) -> None:
    model, bodies = answering(response)
    with pytest.raises(ModelRefused, match=says):
        await complete(model)
    assert len(bodies) == 1


async def test_exhausted_quota_is_not_tried_again() -> None:
    model, bodies = answering(httpx.Response(429, json={"error": {"code": "insufficient_quota"}}))
    with pytest.raises(Unavailable, match="no quota"):
        await complete(model)
    assert len(bodies) == 1


async def test_stream_of_an_endpoint_that_does_not_stream_is_its_whole_answer() -> None:
    model, _ = answering(answer("all at once"))
    stream = model.stream(SAID, temperature=0.3, max_tokens=64)
    assert [piece async for piece in stream] == ["all at once"]


async def test_stream_survives_odd_events() -> None:
    events = (
        b': comment\r\n\r\nevent: x\r\ndata: {"choices": []}\r\n\r\ndata:{"choices":[{"delta":{"content":'
        + '"a\u2028\x85b"}}]}'.encode()
        + b'\n\ndata: {"choices":[{"delta":{"content":null},"finish_reason":"stop"}],"usage":{}}\n\ndata: [DONE]'
    )
    model, _ = answering(httpx.Response(200, content=events, headers={"content-type": "text/event-stream"}))
    stream = model.stream(SAID, temperature=0.3, max_tokens=64)
    assert [piece async for piece in stream] == ["a\u2028\x85b"]


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    flying, most, gate = 0, 0, asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await gate.wait()
        flying -= 1
        return answer("ok")

    model = HttpChatModel("http://model/v1", "m", concurrency=2, transport=httpx.MockTransport(handle))
    tasks = [asyncio.create_task(complete(model)) for _ in range(6)]
    while flying < 2:
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="MNEMOLOG_MODEL_CONCURRENCY"):
        await complete(model, timeout_s=0.01)
    gate.set()
    assert await asyncio.gather(*tasks) == ["ok"] * 6
    assert most == 2


def test_settings_name_the_model_or_none() -> None:
    assert HttpChatModel.from_settings(Settings(model_url=None)) is None
    model = HttpChatModel.from_settings(Settings(model_url="http://m/v1", model="qwen", model_key="k"))
    assert model is not None
    assert model.name == "qwen"
