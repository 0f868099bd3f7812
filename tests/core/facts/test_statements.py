"""Statements: their spans and dates, what never becomes one, and that any text is read in bounded time."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streams.core.facts
from streams.core.facts.extractor import STATEMENTS_MAX
from streams.core.facts.found import TEXT_LENGTH_MAX, plain_of
from streams.core.facts.statements import extract
from streams.core.facts.vocabulary import KEYS, key_of
from tests.core.facts.labelled import SAID_AT, turns

MODULES = [path.stem for path in sorted(Path(streams.core.facts.__file__).parent.glob("*.py"))]
PIECES = (
    "I ", "I'm ", "my ", "we ", "and ", ", ", "not ", "a ", "live in ", "like ", "dog ", "called ", "Rome ", "nurse ",
    "have ",
    "if ", "\"", "'", "never ", "34 ", "born on ", "May 3 ", "work at ", "? ", ". ", "(", "you said ", "every ", "day ",
    "我", "我的", "是", "叫", "不", "没有", "住在", "喜欢", "，", "。", "和", "对", "过敏", "在", "工作",
    "了", "三十", "岁", "、", "养了", "一只",
    "猫", "如果", "你说", "现在", "每天", "\n", "  ", "ﬁ", "㎏", "台", "體",
)  # fmt: skip


def said(text: str, at: str = SAID_AT, **rest: object) -> list[tuple[str, str, str]]:
    """Key, value and kind of what a text states."""
    return [(found.key, found.value, found.kind) for found in extract(text, occurred_at=at, **rest)]  # type: ignore[arg-type]


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_a_module_hold(module: str):
    assert doctest.testmod(importlib.import_module(f"streams.core.facts.{module}")).failed == 0


def test_the_assistant_states_nothing():
    for split in ("en_dev", "zh_dev"):
        for turn in turns(split):
            assert extract(turn.text, occurred_at=SAID_AT, speaker="assistant") == ()


def test_a_user_who_quotes_a_recalled_memory_states_nothing():
    memory = "User's lives in: Lisbon"
    assert said("My notes say: I live in Lisbon. Cute.", recalled=["I live in Lisbon"]) == []
    assert said("I live in Lisbon.", recalled=[memory]) == [("home", "Lisbon", "assert")]
    assert said("我住在上海浦东，对吧。", recalled=["我住在上海浦东，对吧"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "You said I live in Paris.",
        "Did I tell you that I'm a nurse?",
        "你说过我住在巴黎。",
        "我有没有说过我是护士？",
        "According to you I'm 40.",
    ],
)
def test_an_echo_of_a_memory_states_nothing(text: str):
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("Well, I'm 34 and I live in Lisbon.", "I live in Lisbon"),
        ("Ｉ　ｌｉｖｅ　ｉｎ　Lisbon", "Ｉ　ｌｉｖｅ　ｉｎ　Lisbon"),
        ("so   I   live   in   Lisbon  now", "I   live   in   Lisbon"),
        ("對了，我住在臺北。", "我住在臺北"),
        ("你好！  我住在臺北", "我住在臺北"),
    ],
)
def test_a_span_is_the_clause_in_the_text_as_said(text: str, span: str):
    home = next(found for found in extract(text, occurred_at=SAID_AT) if found.key == "home")
    assert text[home.start : home.end] == span
    assert home.value in span


def test_spans_of_labelled_turns_lie_in_the_text_and_hold_the_value():
    for split in ("en_dev", "zh_dev", "en_seen", "zh_seen"):
        for turn in turns(split):
            for found in extract(turn.text, occurred_at=SAID_AT):
                assert 0 <= found.start < found.end <= len(turn.text)
                if found.key in ("home", "employer", "likes", "language") and found.value:
                    assert found.value in turn.text[found.start : found.end]


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("I've lived in Kyoto since 2015.", "2015", None),
        ("I moved to Berlin last month.", "2026-04", None),
        ("I used to live in Oslo until last year.", None, "2025"),
        ("I'm planning to visit Japan in October.", "2026-10", None),
        ("我去年搬到了成都", "2025", None),
        ("我上个月从百度辞职了", None, "2026-04"),
        ("我计划十月去日本", "2026-10", None),
        ("I live in Rome.", None, None),
    ],
)
def test_times_are_resolved_against_the_turn(text: str, since: str | None, until: str | None):
    found = extract(text, occurred_at=SAID_AT)[0]
    assert (found.valid_from, found.valid_to) == (since, until)


def test_days_are_those_of_the_speaker():
    assert said("It's my birthday today", "2026-05-20T23:30:00-08:00") == [("birthday", "--05-20", "assert")]
    assert said("今天是我生日", "2026-05-20T00:30:00+08:00") == [("birthday", "--05-20", "assert")]


def test_a_day_that_no_calendar_has_is_no_birthday():
    assert said("My birthday is on 31 February") == []
    assert said("我的生日是2月30号") == []


def test_a_joke_takes_back_what_was_said_just_before():
    assert said("I live in Rome. I'm a pilot. Just kidding!") == [("home", "Rome", "assert")]
    assert said("我住在上海。我是飞行员，开玩笑的") == [("home", "上海", "assert")]


def test_a_game_ends_what_is_meant():
    assert said("I live in Rome. Let's pretend I'm a pirate. I'm a sailor.") == [("home", "Rome", "assert")]
    assert said("我住在上海。你扮演老师，我扮演学生。我叫小红。") == [("home", "上海", "assert")]


def test_what_is_said_twice_in_a_turn_is_one_statement():
    assert said("I live in Rome. Yes, I live in Rome!") == [("home", "Rome", "assert")]


def test_facts_of_the_family_are_not_the_users():
    keys = {key for key, _, _ in said("My sister is a nurse and lives in Cork. My dad is 70.")}
    assert keys == {"sister_occupation", "sister_home", "father_age"}
    assert {key for key, _, _ in said("我姐姐是护士，住在苏州。我爸今年七十岁。")} == {
        "sister_occupation",
        "sister_home",
        "father_age",
    }


def test_importance_and_confidence_are_in_range():
    for split in ("en_dev", "zh_dev"):
        for turn in turns(split):
            for found in extract(turn.text, occurred_at=SAID_AT):
                assert 1 <= found.importance <= 5
                assert 0 < found.confidence <= 1
                assert found.importance == key_of(found.key).importance


def test_keys_have_labels_in_both_languages():
    for key in KEYS.values():
        assert key.label_en
        assert key.label_zh
        assert 1 <= key.importance <= 5


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_mixture_of_words_is_read_with_exact_spans(text: str):
    found = extract(text, occurred_at=SAID_AT)
    assert len(found) <= STATEMENTS_MAX
    for one in found:
        assert 0 <= one.start < one.end <= len(text)
    assert found == extract(text, occurred_at=SAID_AT)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read(text: str):
    extract("I " + text, occurred_at=SAID_AT)
    extract("我" + text, occurred_at=SAID_AT)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_every_place_of_the_plain_text_is_a_place_of_the_text(text: str):
    plain = plain_of(text)
    for index in range(len(plain.text)):
        start, end = plain.span(index, index + 1)
        assert 0 <= start < end <= len(text)
    assert plain.original(0, len(plain.text)) == text[: plain.span(0, len(plain.text))[1]] or not plain.text


@pytest.mark.parametrize(
    "piece", [*PIECES, "I like a and ", "我喜欢、", "my my ", "i'm 'x ", '"我', "、和", "we have a dog and ", "a" * 50]
)
def test_long_repetitions_are_cut_and_read(piece: str):
    text = (piece * 100_000)[:100_000]
    for one in extract(text, occurred_at=SAID_AT):
        assert one.end <= TEXT_LENGTH_MAX
