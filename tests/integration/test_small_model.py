"""The loop of an extraction with a small real model (`make model`): whatever it says, nothing is invented."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from connectors.llm import HttpChatModel
from infra import small_model
from infra.listening import listening
from infra.model_server import Script, Server
from schemas.recalls import Message
from streams.core import modelfacts
from streams.core.modelfacts import Extraction, Fault
from streams.core.summaries import Utterance

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        importlib.util.find_spec("llama_cpp") is None or importlib.util.find_spec(small_model.PACKAGE) is None,
        reason="the small model isn't installed: make model",
    ),
]
SAID = [
    Utterance("user", None, "Hi! My name is Anna and I live in Lisbon.", "2026-05-20T19:03:11+08:00"),
    Utterance("assistant", None, "Nice to meet you, Anna. What do you do?", "2026-05-20T19:04:00+08:00"),
    Utterance("user", None, "I work as a nurse and I have a cat called Mi.", "2026-05-20T19:05:00+08:00"),
]


@pytest.fixture
async def model() -> AsyncIterator[HttpChatModel]:
    script = Script.of_file(Path(small_model.__file__))
    runner = web.AppRunner(Server(script).application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = listening("127.0.0.1", 0)
    await web.SockSite(runner, listener).start()
    made = HttpChatModel(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", small_model.MODEL, timeout_s=200.0)
    yield made
    await made.stop()
    await runner.cleanup()


async def test_real_model_answers_whole_and_as_a_stream(model: HttpChatModel) -> None:
    said = [Message(role="user", content="What is the capital of France? Answer in one word.")]
    done = await model.complete(said, temperature=0.0, max_tokens=16)
    assert "Paris" in done.text
    assert done.tokens_in > 0
    assert done.model == small_model.MODEL
    stream = model.stream(said, temperature=0.0, max_tokens=16)
    assert "".join([piece async for piece in stream]) == done.text


async def test_real_models_extraction_holds_only_what_the_user_said(model: HttpChatModel) -> None:
    messages = modelfacts.request(SAID, tongue="en")
    done = await model.complete(
        messages, temperature=0.0, max_tokens=300, response_schema=modelfacts.SCHEMA, timeout_s=200.0
    )
    found = modelfacts.read(done.text, SAID)
    print(found)  # It scores badly; what is tested is that this harms nothing.
    assert isinstance(found, Extraction | Fault)
    if isinstance(found, Extraction):
        for fact in found.facts:
            assert SAID[fact.turn].speaker == "user"
            assert modelfacts.located(SAID[fact.turn].text, SAID[fact.turn].text[fact.start : fact.end])
