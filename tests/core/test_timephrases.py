"""Time expressions, resolved against a Wednesday: 20 May 2026."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import timephrases
from streams.core.text import folded, lacks, signs
from tests.core.memories import START_MS

HOUR_MS = 3_600_000


def days(text: str, at_ms: int = START_MS, zone: int = 0) -> list[tuple[str, str]]:
    """First and last day of each span."""
    out = []
    for span in timephrases.spans(text, at_ms, zone):
        first = dt.datetime.fromtimestamp((span.start_ms + zone * 60_000) / 1000, dt.UTC)
        last = dt.datetime.fromtimestamp((span.end_ms + zone * 60_000) / 1000, dt.UTC) - dt.timedelta(days=1)
        out.append((first.date().isoformat(), last.date().isoformat()))
    return out


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What did I say yesterday?", "2026-05-19", "2026-05-19"),
        ("the day before yesterday", "2026-05-18", "2026-05-18"),
        ("what about tonight", "2026-05-20", "2026-05-20"),
        ("last night", "2026-05-19", "2026-05-19"),
        ("three weeks ago", "2026-04-26", "2026-05-02"),
        ("3 days ago", "2026-05-17", "2026-05-17"),
        ("two months ago", "2026-03-01", "2026-03-31"),
        ("a year ago", "2025-01-01", "2025-12-31"),
        ("last week", "2026-05-11", "2026-05-17"),
        ("last weekend", "2026-05-16", "2026-05-17"),
        ("last Friday", "2026-05-15", "2026-05-15"),
        ("last Wednesday", "2026-05-13", "2026-05-13"),
        ("next Monday", "2026-05-25", "2026-05-25"),
        ("last May", "2025-05-01", "2025-05-31"),
        ("last April", "2026-04-01", "2026-04-30"),
        ("last month", "2026-04-01", "2026-04-30"),
        ("last summer", "2025-06-01", "2025-08-31"),
        ("in March", "2026-03-01", "2026-03-31"),
        ("in August", "2025-08-01", "2025-08-31"),
        ("in May 2023", "2023-05-01", "2023-05-31"),
        ("on 7 May, 2023", "2023-05-07", "2023-05-07"),
        ("May 7th", "2026-05-07", "2026-05-07"),
        ("2026-02-03", "2026-02-03", "2026-02-03"),
        ("in 2022", "2022-01-01", "2022-12-31"),
        ("昨天吃了什么", "2026-05-19", "2026-05-19"),
        ("前天", "2026-05-18", "2026-05-18"),
        ("大前天", "2026-05-17", "2026-05-17"),
        ("上周三说的", "2026-05-13", "2026-05-13"),
        ("上週三說的", "2026-05-13", "2026-05-13"),
        ("上上周", "2026-05-04", "2026-05-10"),
        ("上个星期天", "2026-05-17", "2026-05-17"),
        ("周末", "2026-05-16", "2026-05-17"),
        ("上个月", "2026-04-01", "2026-04-30"),
        ("去年五月", "2025-05-01", "2025-05-31"),
        ("去年夏天", "2025-06-01", "2025-08-31"),
        ("前年", "2024-01-01", "2024-12-31"),
        ("三天前", "2026-05-17", "2026-05-17"),
        ("两个月前", "2026-03-01", "2026-03-31"),
        ("二十年前", "2006-01-01", "2006-12-31"),
        ("2023年5月8日", "2023-05-08", "2023-05-08"),
        ("５月８號", "2026-05-08", "2026-05-08"),
        ("十月份", "2025-10-01", "2025-10-31"),
    ],
)
def test_a_phrase_names_its_days(text: str, first: str, last: str) -> None:
    assert days(text) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    ["", "👍", "I may go", "he will march on", "一个月", "2026-02-31", "the week was long", "第三天", "9" * 5000],
)
def test_what_names_no_time_gives_nothing(text: str) -> None:
    assert days(text) == []


def test_several_phrases_stand_in_order_and_none_inside_another() -> None:
    assert days("not yesterday but last May, 前天") == [
        ("2026-05-19", "2026-05-19"),
        ("2025-05-01", "2025-05-31"),
        ("2026-05-18", "2026-05-18"),
    ]


def test_yesterday_is_that_of_the_speakers_zone() -> None:
    late = START_MS + 20 * HOUR_MS
    assert days("yesterday", late) == [("2026-05-19", "2026-05-19")]
    assert days("yesterday", late, 480) == [("2026-05-20", "2026-05-20")]
    span = timephrases.spans("yesterday", late, 480)[0]
    assert span.end_ms - span.start_ms == 24 * HOUR_MS
    assert span.holds(START_MS - 8 * HOUR_MS + 24 * HOUR_MS - 1)


pieces = st.sampled_from(
    [
        "上",
        "周",
        "三",
        "个",
        "月",
        "前",
        "去年",
        "5",
        "日",
        "last",
        " ",
        "may",
        "ago",
        "12",
        "31",
        "year",
        "半",
        "年",
        "十",
    ]
)


@given(st.one_of(st.text(max_size=80), st.lists(pieces, max_size=9).map("".join)), st.integers(-(2**50), 2**50))
def test_any_text_at_any_time_gives_sane_spans(text: str, at_ms: int) -> None:
    for span in timephrases.spans(text, at_ms):
        assert span.start_ms < span.end_ms
        assert span.phrase
    timephrases.mentions_time(text)
    timephrases.asks_when(text)


@pytest.mark.parametrize(
    "text", ["When was it?", "so when did he go", "How long ago", "什么时候", "他幾號來？", "In which year"]
)
def test_questions_for_a_time_are_seen(text: str) -> None:
    assert timephrases.asks_when(text)


@pytest.mark.parametrize("text", ["What did he say when he left?", "whenever you like", "我住在哪儿"])
def test_other_questions_are_not(text: str) -> None:
    assert not timephrases.asks_when(text)


RULE_WORDS = (
    "last this next on in of the st , . - / 2026 1999 05 3 20 day week weekend month year night summer yesterday "
    "tomorrow before after today tonight morning ago earlier back since recently just s "
    f"{timephrases._MONTH_WORDS} {timephrases._WEEKDAY_WORDS}"
)
RULE_CHARACTERS = "昨今明前后大天日晚年去上下这本个月周星期礼拜之以半三十春季份号末刚最近"
RULE_PIECES = [*timephrases._NUMBERS, *RULE_WORDS.split(), *RULE_CHARACTERS]


@given(st.lists(st.sampled_from(RULE_PIECES), max_size=7), st.sampled_from(["", " "]))
def test_what_matches_a_pattern_holds_a_sign_of_it(chosen: list[str], blank: str) -> None:
    plain = folded(blank.join(chosen))
    for wanted, pattern, _ in timephrases._COMPILED:
        assert not pattern.search(plain) or not wanted.isdisjoint(signs(plain))
    for wanted, pattern in (
        (timephrases._HINT_SIGNS, timephrases._HINT),
        (timephrases._TIME_SIGNS, timephrases._TIME),
    ):
        assert not pattern.search(plain) or not lacks(plain, wanted)


@pytest.mark.parametrize(
    "phrase",
    [
        *["2026-05-01", "may 3", "3rd of may", "last may", "in may", "may 2025", "in 2025", "day before yesterday"],
        *["yesterday", "day after tomorrow", "tomorrow", "tonight", "two weeks ago", "last summer", "on monday"],
        *["三天前", "去年五月", "五月三日", "上周三", "星期五"],
    ],
)
def test_every_rule_is_found_through_its_signs(phrase: str) -> None:
    assert len(days(phrase)) == 1
    assert len(days(f"{phrase}, 好")) == 1
