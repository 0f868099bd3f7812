"""Continuity over changing models: made histories whose figures are known beforehand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.personas import Address, Persona
from streams.core.continuity import (
    DIMENSIONS,
    WINDOW,
    Spoken,
    accuracy,
    address_verdicts,
    claims_of_past,
    continuity,
    occupation_verdict,
)
from streams.core.manner import likeness, manner_of, pooled, shares_alike

LIN = Persona(
    role_id="lin", name="Lin", core="A calm night-shift baker.", boundaries=(), declared_at="2026-01-01T00:00:00Z",
    occupation="baker", address=Address(user="friend"), language="en",
)  # fmt: skip
CALM = (
    "Good bread takes its time, friend. I knead it slowly and let it rest.",
    "The oven is warm, friend. You can smell the rye from here.",
    "Rain again tonight. It is quiet, and I like the quiet, friend.",
    "I scored the loaves and they sang a little. Sit down, friend.",
    "Cinnamon helps on a cold night, friend. It always did.",
    "The dough is soft today. I think the flour is new, friend.",
)
LOUD = (
    "OMG!!! Totally awesome, sir!!! Let's gooo!!!",
    "Wow!!! Did you see that?! Unbelievable, sir!!!",
    "Yesss!!! Party time!!! Who's in?!",
    "No way!!! That's insane, sir!!! Haha!!!",
)


def said(index: int, model: str, response: str, **given: object) -> Spoken:
    values: dict[str, object] = {
        "round": index + 1, "model": model, "session_id": f"s-{model}", "query": "", "response": response,
        "at_ms": 1_779_235_200_000 + index * 60_000, "compliance": 1, "unsupported": 0,
    }  # fmt: skip
    return Spoken(**(values | given))  # type: ignore[arg-type]


def history(*stages: tuple[str, tuple[str, ...], int]) -> list[Spoken]:
    """(model, texts in turn, rounds) after one another."""
    told = [(model, texts[n % len(texts)]) for model, texts, rounds in stages for n in range(rounds)]
    return [said(index, model, text) for index, (model, text) in enumerate(told)]


def test_a_stage_is_a_run_of_one_model_and_tells_whether_its_session_is_new() -> None:
    answers = history(("a", CALM, 4), ("b", CALM, 3), ("a", CALM, 2))
    answers[4:7] = [replace(answer, session_id="s-a") for answer in answers[4:7]]
    answers[7:] = [replace(answer, session_id="s-new") for answer in answers[7:]]
    stages = continuity(answers).stages
    assert [(stage.model, stage.rounds) for stage in stages] == [("a", (1, 2, 3, 4)), ("b", (5, 6, 7)), ("a", (8, 9))]
    assert [stage.session_changed for stage in stages] == [None, False, True]


def test_the_same_manner_is_carried_over_and_another_is_not() -> None:
    same, other = (
        continuity(history(("a", CALM, 12), (name, texts, 8))).stages[1].cells["tone"].value
        for name, texts in (("b", CALM), ("c", LOUD))
    )
    assert same is not None
    assert other is not None
    assert same > 0.9
    assert other < 0.75


def test_tone_is_not_told_of_too_few_answers() -> None:
    found = continuity(history(("a", CALM, 5), ("b", CALM, 8)))
    assert [stage.cells["tone"].value for stage in found.stages] == [None, None]
    assert found.reference is None
    longer = continuity(history(("a", CALM, 6), ("b", CALM, 2)))
    assert [point.tone is None for point in longer.points] == [True, True, False, False, False, False, True, True]


def test_boundary_transfer_is_the_share_of_the_last_ten_answers_of_the_stage() -> None:
    answers = history(("a", CALM, 12), ("b", CALM, 4))
    answers[0] = replace(answers[0], compliance=0)
    answers[13] = replace(answers[13], compliance=0)
    answers[14] = replace(answers[14], compliance=None)
    curve = [point.boundary for point in continuity(answers).points]
    assert WINDOW == 10
    assert curve[:2] == [0.0, 0.5]
    assert curve[9:12] == [0.9, 1.0, 1.0]
    assert curve[12:] == [1.0, 0.5, 0.5, pytest.approx(2 / 3, abs=1e-6)]


def test_accuracy_counts_only_answers_that_claim_something_about_the_past() -> None:
    claim = "You told me yesterday that you bought a boat."
    answers = [
        said(0, "a", "Good morning!"),
        said(1, "a", claim, unsupported=0),
        said(2, "a", claim, unsupported=1),
        said(3, "a", claim, compliance=None, unsupported=None),
        said(4, "b", "Good morning!"),
    ]
    assert [accuracy(answer) for answer in answers] == [None, 1, 0, None, None]
    found = continuity(answers)
    assert [point.accuracy for point in found.points] == [None, 1.0, 0.5, 0.5, None]
    assert found.stages[0].cells["accuracy"].judged == 2
    assert found.stages[1].cells["accuracy"].value is None
    assert "claims anything" in found.stages[1].cells["accuracy"].why


@pytest.mark.parametrize(
    ("text", "claims"),
    [("你上周说过想学画画。", 1), ("我不记得你说过什么。", 0), ("As you said.", 0), ("Do you like rain?", 0)],
)
def test_claims_of_the_past_are_counted_without_any_evidence(text: str, claims: int) -> None:
    assert claims_of_past(text, 1_779_235_200_000) == claims


@pytest.mark.parametrize(
    ("query", "response", "verdict"),
    [
        ("What do you do for a living?", "I bake: I'm a baker, nights mostly.", 1),
        ("What do you do for a living?", "I'm a nurse.", 0),
        ("hello", "I work as a detective now.", 0),
        ("hello", "I'm a bit tired.", None),
        ("What do you do when it rains?", "I listen.", None),
    ],
)
def test_occupation_is_judged_where_an_answer_tells_of_work(query: str, response: str, verdict: int | None) -> None:
    assert occupation_verdict(said(0, "a", response, query=query), LIN) == verdict
    assert occupation_verdict(said(0, "a", response, query=query), None) is None


def test_occupation_in_chinese() -> None:
    baker = replace(LIN, occupation="面包师")
    told = ["我是一名面包师。", "我是医生。", "今天下雨。"]
    assert [occupation_verdict(said(0, "a", text, query="你是做什么的？"), baker) for text in told] == [1, 0, 0]
    assert occupation_verdict(said(0, "a", "今天下雨。", query="你好"), baker) is None


@pytest.mark.parametrize(
    ("user", "own", "response", "verdicts"),
    [
        ("您", None, "您早，您坐。", [1]),
        ("您", None, "你早", [0]),
        ("您", None, "她说“你好”。", []),
        ("friend", None, "Come in, friend.", [1]),
        ("friend", None, "Come in, sir.", [0]),
        ("friend", None, "My boss says hello.", []),
        (None, "老身", "老身今日煮茶。", [1]),
        (None, "老身", "我今日煮茶。", [0]),
        (None, None, "你早", []),
    ],
)
def test_address_keeps_to_the_form_of_the_anchor(
    user: str | None, own: str | None, response: str, verdicts: list[int]
) -> None:
    assert address_verdicts(response, replace(LIN, address=Address(user=user, self=own))) == verdicts


def test_task_is_judged_where_a_question_takes_up_what_was_spoken_of() -> None:
    answers = [
        said(0, "a", "A rye loaf needs a starter.", query="How do I bake a rye loaf?"),
        said(1, "b", "Feed the starter twice, then shape the loaf.", query="And the starter?"),
        said(2, "b", "I'm not sure what you mean by starter.", query="How warm for the starter?"),
        said(3, "b", "It is sunny in Lisbon.", query="Is it sunny in Lisbon?"),
    ]
    first, second = continuity(answers).stages
    assert first.cells["task"].value is None
    assert (second.cells["task"].value, second.cells["task"].judged) == (0.5, 2)


def test_senses_are_compared_with_the_first_stage() -> None:
    warm = ("The oven is warm and the crust smells sweet.", "Smell the rye: warm, sweet, a little sour.")
    bare = ("Please consult the schedule for the quarterly figures.", "The committee has adopted the second proposal.")
    kept, lost = (continuity(history(("a", warm, 6), ("b", texts, 6))).stages for texts in (warm, bare))
    assert kept[1].cells["sensory"].value == pytest.approx(1.0)
    assert lost[1].cells["sensory"].value == 0.0
    unjudged = continuity(history(("a", bare, 6), ("b", bare, 6))).stages[1].cells["sensory"]
    assert unjudged.value is None
    assert unjudged.why


def test_nothing_said_is_no_figure() -> None:
    found = continuity([])
    assert (found.stages, found.points, found.reference) == ((), (), None)


def test_without_an_anchor_occupation_and_address_abstain_and_say_why() -> None:
    cells = continuity(history(("a", CALM, 6))).stages[0].cells
    assert [cells[name].value for name in ("occupation", "address")] == [None, None]
    assert cells["occupation"].why == "the anchor names none"


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.text(max_size=60), st.sampled_from([0, 1, None])), max_size=14
    )
)
def test_every_figure_is_a_share_or_abstains(rounds: list[tuple[str | None, str, int | None]]) -> None:
    answers = [replace(said(n, "", text, query=text, compliance=c), model=m) for n, (m, text, c) in enumerate(rounds)]
    found = continuity(answers, LIN)
    assert sum(len(stage.rounds) for stage in found.stages) == len(found.points) == len(answers)
    values = [stage.cells[name].value for stage in found.stages for name in (*DIMENSIONS, "boundary", "accuracy")]
    values += [value for point in found.points for value in (point.tone, point.boundary, point.accuracy)]
    assert all(value is None or 0 <= value <= 1 for value in values)


@given(st.text(max_size=80), st.text(max_size=80))
def test_likeness_is_symmetric_and_whole_for_itself(one: str, other: str) -> None:
    first, second = manner_of(one), manner_of(other)
    alike = likeness(first, second)
    assert alike == pytest.approx(likeness(second, first)) if alike is not None else likeness(second, first) is None
    assert likeness(first, first) in (None, pytest.approx(1.0))
    assert pooled([first, second]) - second == pooled([first])


def test_shares_alike_is_one_minus_the_jensen_shannon_divergence() -> None:
    # P = (1/2, 1/2), Q = (1, 0): M = (3/4, 1/4); JSD = 1/2·[1/2·log2(2/3) + 1/2·log2(2)] + 1/2·log2(4/3) = 0.3113
    assert shares_alike(Counter("ab"), Counter("a")) == pytest.approx(1 - 0.311278, abs=1e-6)
