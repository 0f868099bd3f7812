"""Feedback from text: confirm, deny, remember, and what is about something else."""

from __future__ import annotations

import pytest

from streams.core.facts.statements import feedback


def judged(text: str) -> tuple[str, str, list[tuple[str, str]]] | None:
    """Kind, the clause that it is about, and what is denied."""
    found = feedback(text)
    if found is None:
        return None
    return found.kind, text[found.start : found.end], [(one.key, one.value) for one in found.denials]


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("Remember this.", ""),
        ("Please remember that I'm vegan.", "I'm vegan"),
        ("Keep in mind that I hate olives", "I hate olives"),
        ("Don't forget: my son is allergic to eggs", "my son is allergic to eggs"),
        ("对，记住这个", ""),
        ("记住我喜欢无糖可乐", "我喜欢无糖可乐"),
        ("請記住，我對花生過敏", "我對花生過敏"),
        ("别忘了我不吃香菜", "我不吃香菜"),
    ],
)
def test_asking_to_remember_is_found_with_its_clause(text: str, about: str):
    assert judged(text) == ("remember", about, [])


@pytest.mark.parametrize(
    "text",
    [
        "That's right!",
        "You're right about that.",
        "yes, that's correct",
        "Exactly.",
        "对的",
        "没错",
        "嗯，对",
        "是的，没错",
        "你说得对",
        "對，沒錯",
    ],
)
def test_a_confirmation_is_found(text: str):
    found = judged(text)
    assert found is not None
    assert found[0] == "confirm"


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("I'm not a doctor", [("occupation", "doctor")]),
        ("不对，我不是医生", [("occupation", "医生")]),
        ("我没有对花生过敏", [("allergy", "花生")]),
        ("I don't have a dog.", [("pet", "dog")]),
        ("No, I live in Rome, not in Paris", [("home", "Paris")]),
        ("你记错了，我住在苏州，不是无锡", [("home", "无锡")]),
        ("That's wrong.", []),
        ("不是这样，你搞错了", []),
    ],
)
def test_a_denial_is_found_with_what_it_denies(text: str, denied: list[tuple[str, str]]):
    found = judged(text)
    assert found is not None
    assert (found[0], found[2]) == ("deny", denied)


@pytest.mark.parametrize(
    "text",
    [
        "yes", "no", "No problem", "right now I'm busy", "Is that right?", "I remember that day", "Do you remember me?",
        "I can't remember his name", "remember when we met?", "对了，今天吃什么", "对不起", "我记得你",
        "你还记得我吗", "对面有家店",
        "不对吧？", "I don't live in Boston anymore", "我不再吃素了", "She said that's right", "", "🙂",
    ],
)  # fmt: skip
def test_other_turns_judge_nothing(text: str):
    assert judged(text) is None


def test_the_first_denial_is_at_hand():
    found = feedback("I'm not a doctor")
    assert found is not None
    assert (found.key, found.value) == ("occupation", "doctor")
