"""A year of one owner through posts, extraction, fold and requests: facts as of each month equal a written table."""

from __future__ import annotations

import calendar
from typing import Any

import pytest

from streams.core.facts.values import normalise
from tests import builders
from tests.core.facts import life_en, life_zh
from tests.core.facts.test_life import Facts, facts_at
from tests.streams.test_extraction import Scene


async def lived(life: Any) -> Scene:
    """All turns said, in sessions of a day each, and extracted."""
    scene = Scene()
    for number, (said_at, speaker, text) in enumerate(life.TURNS):
        given = {"session_id": said_at[:10], "occurred_at": said_at, "speaker": speaker, "text": text}
        await scene.post("turns", builders.turn(number, **given))
    await scene.silence()
    return scene


async def held(scene: Scene, month: str) -> Facts:
    """What memory says that held at the end of a month; of a contested key both sides."""
    last = calendar.monthrange(int(month[:4]), int(month[5:]))[1]
    at = f"{month}-{last}T23:59:59Z"
    found: Facts = {}
    reply = await scene.ask({**builders.request(kind="facts", as_of={"occurred_at": at}), "query": ""})
    for fact in reply["facts"]:
        found.setdefault(fact["key"], set()).add(normalise(fact["key"], fact["value"]))
    return found


@pytest.mark.parametrize("life", [life_en, life_zh], ids=["en", "zh"])
async def test_facts_as_of_each_month_of_a_year_equal_the_written_table(life: Any) -> None:
    scene = await lived(life)
    for month in life.MONTHS:
        assert await held(scene, month) == facts_at(life.MONTHS, month), month


@pytest.mark.parametrize("life", [life_en, life_zh], ids=["en", "zh"])
async def test_nothing_of_a_year_is_lost_from_history(life: Any) -> None:
    scene = await lived(life)
    reply = await scene.ask({**builders.request(kind="facts", history=True), "query": ""})
    ever = {(fact["key"], normalise(fact["key"], fact["value"])) for fact in reply["facts"]}
    for month in life.MONTHS:
        for key, values in facts_at(life.MONTHS, month).items():
            assert {(key, value) for value in values} <= ever
    assert all(fact["history"] for fact in reply["facts"])
