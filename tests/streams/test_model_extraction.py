"""A segment through the scripted endpoint: request, answer, one repair, and ten misbehaviours that poison nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web

from connectors.llm import HttpChatModel
from connectors.ports import ModelRefused, Unavailable
from infra.listening import listening
from infra.model_server import MISBEHAVIOURS, Script, Server
from streams.core import modelfacts
from streams.core.modelfacts import Extraction, Fault
from streams.core.summaries import Utterance

SAID = [
    Utterance("user", None, "我去年搬到了里斯本，现在当护士。", "2026-05-20T19:03:11+08:00"),
    Utterance("assistant", None, "听起来不错！", "2026-05-20T19:04:00+08:00"),
]
GOOD = json.dumps({
    "summary": "用户去年搬到里斯本，当护士。",
    "facts": [{"key": "home", "value": "里斯本", "kind": "assert", "turn": 0, "quote": "搬到了里斯本"}],
    "judgements": [],
}, ensure_ascii=False)  # fmt: skip


class Endpoint:
    """A server that gives answers in turn, and a model that asks it."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.server = Server(Script(function=self._answer))

    def _answer(self, messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> str:
        return self.answers.pop(0)

    async def start(self) -> None:
        self._runner = web.AppRunner(self.server.application(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        listener = listening("127.0.0.1", 0)
        await web.SockSite(self._runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def ask(self, model: HttpChatModel) -> Extraction | Fault | Exception:
        """One request and, where the answer can't be read, one repair."""
        messages = modelfacts.request(SAID, tongue="zh")
        given = {"temperature": 0.0, "max_tokens": 500, "response_schema": modelfacts.SCHEMA, "timeout_s": 0.5}
        try:
            done = await model.complete(messages, **given)  # type: ignore[arg-type]
            found = modelfacts.read(done.text, SAID)
            if isinstance(found, Fault):
                again = modelfacts.repair_messages(messages, done.text, found)
                found = modelfacts.read((await model.complete(again, **given)).text, SAID)  # type: ignore[arg-type]
        except (Unavailable, ModelRefused) as error:
            return error
        return found


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    await made.start()
    yield made
    await made.stop()


async def asked(endpoint: Endpoint, name: str = "scripted") -> Extraction | Fault | Exception:
    model = HttpChatModel(endpoint.url, name)
    try:
        return await endpoint.ask(model)
    finally:
        await model.stop()


async def test_good_answer_becomes_facts(endpoint: Endpoint) -> None:
    endpoint.answers = [GOOD]
    found = await asked(endpoint)
    assert isinstance(found, Extraction)
    (fact,) = found.facts
    assert (fact.key, fact.value, SAID[0].text[fact.start : fact.end]) == ("home", "里斯本", "搬到了里斯本")
    sent = endpoint.server.asked[0]["response_format"]
    assert sent["json_schema"]["schema"]["title"] == "extraction"
    assert sent["json_schema"]["strict"] is True


async def test_one_repair_mends_a_broken_answer(endpoint: Endpoint) -> None:
    endpoint.answers = [GOOD[:-20], GOOD]
    found = await asked(endpoint)
    assert isinstance(found, Extraction)
    assert len(found.facts) == 1
    first, second = endpoint.server.asked
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert "无法使用" in second["messages"][-1]["content"]


@pytest.mark.parametrize("how", MISBEHAVIOURS)
async def test_misbehaving_model_gives_a_fault_or_an_error_and_never_a_fact(endpoint: Endpoint, how: str) -> None:
    found = await asked(endpoint, f"scripted:{how}")
    assert isinstance(found, Fault | Unavailable | ModelRefused)
