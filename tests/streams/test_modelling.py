"""Extraction by a scripted model: believed where the user said it, repaired once, else the rules; within a budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from connectors.inprocess import ScriptedChatModel
from connectors.ports import ModelRefused, Unavailable
from schemas.codec import JOURNAL_EVENTS, convert
from schemas.recalls import Message
from streams.modelling import ModelExtraction
from tests import builders
from tests.streams.test_extraction import Scene

SAID = "I live in Lisbon."


def found(*facts: dict[str, Any], summary: str = "") -> str:
    """A model's answer."""
    return json.dumps({"summary": summary, "facts": list(facts), "judgements": []})


FACT = {"key": "home", "value": "Lisbon", "kind": "assert", "turn": 0, "quote": "live in Lisbon", "confidence": 0.8}


class Modelled(Scene):
    """A scene whose segments a scripted model extracts."""

    def __init__(self, answer: Any, **given: Any) -> None:
        super().__init__(**given)
        self.chat = ScriptedChatModel(answer if callable(answer) else lambda _: answer)
        self.modelling = ModelExtraction(self.chat, self.settings, self.clock.port)
        self.extractor._model = self.modelling
        self.extractor.on_spent = self.modelling.spent

    async def extraction(self) -> dict[str, Any]:
        """The event of one segment."""
        await self.say(0, SAID)
        await self.silence()
        for _ in range(20):
            await asyncio.sleep(0)
        await self.settle()
        return [event for event in self.events() if event["type"] == "MemoriesExtracted"][-1]


async def test_model_is_believed_where_the_user_said_it() -> None:
    invented = {**FACT, "key": "pet", "value": "dog", "quote": "my dog Rex"}
    scene = Modelled(found(FACT, invented))
    event = await scene.extraction()
    assert event["method"] == "model:scripted"
    assert [(fact["key"], fact["value"]) for fact in event["facts"]] == [("home", "Lisbon")]
    assert event["tokens_in"] > 0
    assert set(await scene.facts()) == {"Lisbon"}


async def test_unreadable_answer_is_repaired_once() -> None:
    answers = iter(["no JSON at all", found(FACT)])
    event = await Modelled(lambda _: next(answers)).extraction()
    assert (event["method"], event["fallback"]) == ("model:scripted", None)


@pytest.mark.parametrize(
    "answer", ["rubbish", "", "{", "[]", '{"facts": 1}', "I can't help with that.", "<html></html>"]
)
async def test_rules_do_it_where_the_model_answers_rubbish_twice(answer: str) -> None:
    scene = Modelled(answer)
    event = await scene.extraction()
    assert event["method"] == "rules"
    assert event["fallback"]
    assert len(scene.chat.asked) == 2
    assert set(await scene.facts()) == {"Lisbon"}


@pytest.mark.parametrize("error", [Unavailable("away"), ModelRefused("not this")])
async def test_rules_do_it_where_the_model_is_away_or_refuses(error: Exception) -> None:
    def fails(_: Sequence[Message]) -> str:
        raise error

    event = await Modelled(fails).extraction()
    assert event["method"] == "rules"
    assert str(error) in event["fallback"]


async def test_model_that_is_away_is_not_waited_for_by_every_segment() -> None:
    scene = Modelled(found(FACT))
    scene.chat.away = True
    assert (await scene.extraction())["method"] == "rules"
    await scene.say(200, "I work as a nurse.")
    scene.clock.advance(100)
    await scene.post("feedback", builders.feedback(kind="session_end", target={"session_id": "s1"}))
    await scene.settle()
    for _ in range(20):
        await asyncio.sleep(0)
    await scene.settle()
    assert len(scene.chat.asked) == 1


async def test_owner_whose_budget_is_used_up_gets_the_rules() -> None:
    scene = Modelled(found(FACT), model_tokens_per_owner_day=10)
    event = await scene.extraction()
    assert event["method"] == "rules"
    assert "budget" in event["fallback"]
    assert scene.chat.asked == []


async def test_tokens_that_were_spent_before_a_restart_count() -> None:
    scene = Modelled(found(FACT))
    event = await scene.extraction()
    restarted = ModelExtraction(scene.chat, scene.settings, scene.clock.port)
    scene.extractor.on_spent = restarted.spent

    scene.extractor.folded(convert(event, JOURNAL_EVENTS["MemoriesExtracted"]))
    now_ms = scene.clock.port.now_ms()
    left = restarted.budget.left(repr(("u42", "lin")), now_ms)
    assert left == scene.settings.model_tokens_per_owner_day - event["tokens_in"] - event["tokens_out"]
