"""What the demo's last steps let pass, and what they don't."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.demo.closing import BEFORE, KEY, NOW, QUESTION, SCRIPT, STATEMENTS, holds_correction, scripted_model
from schemas.memories import Fact, FactChange
from schemas.recalls import Message
from streams.core.facts.statements import extract
from streams.core.protocol import parse


def fact(value: str, status: str, *history: str) -> Fact:
    """A fact of the demo's key with its changes."""
    changes = tuple(
        FactChange(offset=number, at="2026-05-19T20:00:00+08:00", status=one, why="stated", confirmation=0)  # type: ignore[arg-type]
        for number, one in enumerate(history)
    )
    return Fact(
        memory_id=f"f-{value}",
        key=KEY,
        value=value,
        status=status,  # type: ignore[arg-type]
        confidence=0.85,
        importance=4,
        confirmation=0,
        learnt_offset=2,
        said_at="2026-05-19T20:00:00+08:00",
        last_verified_at="2026-05-19T20:00:00+08:00",
        sources=(),
        history=changes,
    )


OLD, NEW = fact(BEFORE, "superseded", "active", "superseded"), fact(NOW, "active", "active")


def test_correction_holds_with_the_older_value_and_its_end() -> None:
    assert holds_correction((OLD, NEW))


@pytest.mark.parametrize(
    "facts",
    [
        (),
        (NEW,),
        (OLD,),
        (replace(OLD, status="active"), NEW),
        (OLD, replace(NEW, status="contested")),
        (replace(OLD, history=None), NEW),
        (replace(OLD, key="home"), NEW),
    ],
)
def test_what_is_no_correction_fails_the_demo(facts: tuple[Fact, ...]) -> None:
    assert not holds_correction(facts)


def test_rules_find_what_the_demo_states() -> None:
    found = [extract(text, occurred_at=at) for _, text, at in STATEMENTS]
    assert [[(one.key, one.value) for one in each] for each in found] == [[(KEY, BEFORE)], [(KEY, NOW)]]
    assert found[1][0].kind == "correct"


async def test_script_answers_the_demos_question_in_form() -> None:
    assert "no model" in SCRIPT.read_text("utf-8")
    async with scripted_model() as model:
        done = await model.complete([Message(role="user", content=QUESTION)], temperature=0.0, max_tokens=100)
    parsed = parse(done.text)
    assert parsed.faults == ()
    assert parsed.marks == ("M1",)
    assert NOW in parsed.response
