"""Summaries by rules: what they keep, what they leave out, how long they are, and that they cut nothing apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.summaries import CHARACTERS_MAX, CHARACTERS_MIN, Utterance, clipped, summarise

AT = "2026-05-20T09:00:00Z"


def said(*turns: tuple[str, str], user: str | None = None, assistant: str | None = None) -> list[Utterance]:
    """Utterances of (u or a, text)."""
    return [
        Utterance("user" if who == "u" else "assistant", user if who == "u" else assistant, text, AT)
        for who, text in turns
    ]


CHINESE = said(
    ("u", "你好呀"),
    ("a", "你好，今天过得怎么样？"),
    ("u", "今天挺累的，公司在裁员。我打算下个月辞职，去成都和女朋友一起住。"),
    ("a", "听起来是个大决定。你们在成都找好房子了吗？"),
    ("u", "她在高新区租了一套三室一厅。我的电话换成13800138000了。"),
    ("a", "好的"),
    ("u", "对了，我妈妈下周三做手术，我有点担心。"),
    ("a", "多陪陪她，手术前一天别让她太累。"),
    ("u", "你觉得我该请几天假？"),
)


def test_chinese_segment_keeps_facts_in_order_and_names_who_spoke() -> None:
    text = summarise(CHINESE, tongue="zh")
    assert text.startswith("用户：")
    assert "助手：" in text
    places = [text.index(part) for part in ("公司在裁员", "我打算下个月辞职", "三室一厅", "下周三做手术")]
    assert places == sorted(places)


def test_greetings_and_unanswered_questions_are_left_out() -> None:
    text = summarise(CHINESE, tongue="zh")
    assert "你好" not in text
    assert "请几天假" not in text
    english = said(("u", "Hi there! Good morning."), ("a", "Hello!"), ("u", "I sold my car. Any plans?"))
    assert summarise(english, tongue="en") == "User: I sold my car."


def test_question_stays_where_a_short_answer_needs_it() -> None:
    text = summarise(said(("a", "Where do you live now?"), ("u", "Lisbon.")), tongue="en")
    assert text == "Assistant: Where do you live now?\nUser: Lisbon."


def test_identifiers_never_reach_a_summary() -> None:
    text = summarise(CHINESE, tongue="zh")
    assert "13800138000" not in text
    assert "[电话]" in text
    split = said(("u", "I live at 12 Baker St. Apt 4. My password is hunter2."))
    assert summarise(split, tongue="en") == "User: I live at [address]. My password is [password]."


def test_names_of_speakers_are_told() -> None:
    text = summarise(said(("u", "I sold my car."), ("a", "I will note it."), user="Ann", assistant="Lin"), tongue="en")
    assert text == "User (Ann): I sold my car.\nAssistant (Lin): I will note it."


def test_repeats_are_told_once() -> None:
    text = summarise(said(("u", "I sold my car."), ("a", "I sold my car!"), ("u", "I sold my car.")), tongue="en")
    assert text == "User: I sold my car."


def test_facts_of_the_user_win_over_talk() -> None:
    talk = [
        ("a", f"There are many ways of looking at matter {n} and none of them is without charm.") for n in range(30)
    ]
    text = summarise(
        said(*talk[:15], ("u", "I moved to Lisbon on 3 March and work as a nurse."), *talk[15:]), tongue="en"
    )
    assert "I moved to Lisbon on 3 March and work as a nurse." in text


@pytest.mark.parametrize("tongue", ["en", "zh"])
def test_nothing_told_gives_an_empty_summary(tongue: str) -> None:
    assert summarise([], tongue=tongue) == ""
    assert summarise(said(("u", ""), ("a", " \n "), ("u", "你好！"), ("a", "Hi!"), ("u", "?")), tongue=tongue) == ""


def long_segment(turns: int) -> list[Utterance]:
    """Distinct facts, one or two sentences a turn."""
    cities = ("Lisbon", "Oslo", "Turin", "Graz", "Lyon", "Cork", "Gdansk", "Porto")
    return said(*[
        ("ua"[n % 2], f"In year {1980 + n} I went to {cities[n % 8]} with friend number {n}. It rained for {n} days, "
         f"and we decided to buy a boat called {cities[(n * 3) % 8]} {n}.")
        for n in range(turns)
    ])  # fmt: skip


def test_length_is_a_third_within_its_bounds() -> None:
    for turns in (4, 8, 16, 40, 400):
        segment = long_segment(turns)
        size = len(summarise(segment, tongue="en"))
        assert CHARACTERS_MIN <= size <= CHARACTERS_MAX, (turns, size)
    assert len(summarise(long_segment(40), tongue="en")) > 700


@pytest.mark.timeout(30)
def test_huge_turns_are_bounded() -> None:
    page = "word 你好。 " * 20_000
    assert len(summarise(said(*[("u", f"{n} {page}") for n in range(40)]), tongue="en")) <= CHARACTERS_MAX
    assert len(summarise(said(("u", "好" * 100_000)), tongue="zh")) <= CHARACTERS_MAX


FAMILY = "👨‍👩‍👧‍👦"


@pytest.mark.parametrize("characters", range(1, 30))
def test_cuts_never_part_an_emoji_a_flag_or_a_mark(characters: int) -> None:
    text = f"ab {FAMILY}🇨🇳👍🏽e\u0301❤️ cd {FAMILY}"
    short = clipped(text, characters)
    assert len(short) <= characters
    kept = short.removesuffix("…")
    for whole in (FAMILY, "🇨🇳", "👍🏽", "e\u0301", "❤️"):
        for part in whole:
            assert kept.count(whole) * whole.count(part) <= kept.count(part) <= text.count(part)
    assert not kept.endswith(("\u200d", "🇨", "👨", "👩"))


@given(
    st.lists(st.tuples(st.sampled_from("ua"), st.text(max_size=300)), max_size=12),
    st.sampled_from(["en", "zh"]),
)
def test_any_segment_gives_a_bounded_summary_and_the_same_each_time(turns: list[tuple[str, str]], tongue: str) -> None:
    text = summarise(said(*turns), tongue=tongue)
    assert len(text) <= CHARACTERS_MAX
    assert text == summarise(said(*turns), tongue=tongue)
