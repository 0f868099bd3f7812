"""The answer protocol: what models break, read as a reader would; streams equal to the whole; repairs."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.bench.protocol import broken, is_right, labelled, streamed
from schemas.recalls import Message
from streams.core.evidence_need import reading_of
from streams.core.protocol import (
    ANSWER_CHARACTERS_MAX,
    FAULTS,
    Parsed,
    Stream,
    needs_repair,
    parse,
    repair_messages,
)
from streams.core.wording import texts

CASES = labelled(Path(__file__).with_name("failures.jsonl"))
GOOD = "<analysis>Needs experience. E1 says wonton; E2 is irrelevant.</analysis>\n<response>Wonton soup.</response>"

PIECES = st.lists(
    st.sampled_from(
        [
            "<analysis>",
            "</analysis>",
            "<response>",
            "</response>",
            "<think>",
            "</think>",
            "<回答>",
            "</",
            "<",
            ">",
            "[E1]",
            "【K2】",
            "```",
            "**",
            "`",
            "\n",
            " ",
            "＜",
            "&lt;",
            "Response:",
            "\n## Response\n",
            "{",
            '"response": "',
            "<",
            "im_end",
            ">",
            "E1 says so.",
            "Wonton.",
            "\u200b",
            "�",
            "]]>",
            "---\n",
        ]
    )
    | st.text(max_size=6),
    max_size=14,
).map("".join)


def test_the_labelled_set_is_large_varied_and_has_both_kinds() -> None:
    assert len(CASES) >= 300
    assert len({case["shape"] for case in CASES}) >= 100
    assert len({case["text"] for case in CASES}) == len(CASES)
    assert {case["recoverable"] for case in CASES} == {True, False}
    assert any("\u4e00" <= character <= "\u9fff" for case in CASES for character in case["text"])


def test_recoverable_failures_are_read_right() -> None:
    recoverable = [case for case in CASES if case["recoverable"]]
    wrong = [case["id"] for case in recoverable if not is_right(case)]
    assert len(wrong) <= 0.05 * len(recoverable), wrong


@pytest.mark.parametrize("case", [case for case in CASES if not case["recoverable"]], ids=lambda case: case["id"])
def test_what_cannot_be_told_asks_for_a_repair_and_leaks_no_tagged_analysis(case: dict[str, str]) -> None:
    parsed = parse(case["text"])
    assert needs_repair(parsed)
    if parsed.has_analysis and case["analysis"]:
        assert case["analysis"][:30] not in parsed.response


def test_a_good_answer_has_no_fault() -> None:
    assert parse(GOOD) == Parsed(
        analysis="Needs experience. E1 says wonton; E2 is irrelevant.",
        response="Wonton soup.",
        has_analysis=True,
        has_response=True,
        marks=("E1", "E2"),
        verified=("E1",),
        rejected=("E2",),
        need="experience",
        how="tags",
    )
    assert not needs_repair(parse(GOOD), strict=True)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("Wonton.", {"missing_analysis", "missing_response"}),
        ("", {"missing_analysis", "missing_response", "empty_response"}),
        ("<analysis>E1</analysis>Wonton.", {"missing_response"}),
        ("<analysis>E1<response>Wonton.</response>", {"unclosed_analysis"}),
        ("<analysis>E1</analysis><response>Wonton.", {"unclosed_response"}),
        ("<ANALYSIS>E1</ANALYSIS><response>Wonton.</response>", {"upper_case"}),
        ("<分析>E1</分析><回答>Wonton.</回答>", {"translated"}),
        ("<analysis>E1</analysis><answer>Wonton.</answer>", {"renamed"}),
        ("<analysis>E1</analysis><reponse>Wonton.</reponse>", {"misspelt"}),
        ("<analysis x='1'>E1</analysis><response>Wonton.</response>", {"attributes"}),
        ("＜analysis＞E1＜/analysis＞<response>Wonton.</response>", {"full_width"}),
        ("&lt;analysis&gt;E1&lt;/analysis&gt;<response>Wonton.</response>", {"escaped"}),
        ("[analysis]E1[/analysis]\n[response]Wonton.[/response]", {"bracketed"}),
        ("**`<analysis>`**E1</analysis><response>Wonton.</response>", {"wrapped"}),
        ("## Analysis\nE1\n## Response\nWonton.", {"heading"}),
        ("```\n" + GOOD + "\n```", {"fenced"}),
        ('{"analysis": "E1", "response": "Wonton."}', {"json"}),
        ("<think>hm</think>" + GOOD, {"think"}),
        ("Sure!\n" + GOOD, {"leading_text"}),
        (GOOD + "\nAnything else?", {"trailing_text"}),
        (GOOD + "<|im_end|>", {"stop_token"}),
        ("<response>Wonton.</response><analysis>E1</analysis>", {"order"}),
        ("<analysis>E1</analysis><response>Wonton [E1].</response>", {"mark_in_response"}),
        ("<analysis>E1</analysis><response>a</response><response>b</response>", {"doubled_response"}),
        ("<analysis>E1</analysis><analysis>E2</analysis><response>b</response>", {"doubled_analysis"}),
        ("<response><analysis>E1</analysis>Wonton.</response>", {"nested"}),
        ("<analysis>E1</analysis><response>Wonton.</analysis>", {"mismatched"}),
        ("<analysis></analysis><response>Wonton.</response>", {"empty_analysis"}),
        ("< analysis >E1</analysis><response>Wonton.</response>", {"malformed"}),
    ],
)
def test_each_fault_is_named(text: str, faults: set[str]) -> None:
    found = set(parse(text).faults)
    assert faults <= found <= FAULTS
    assert len(found - faults) <= 1


def test_every_fault_has_words_in_both_languages() -> None:
    assert texts("faults", "en").keys() == texts("faults", "zh").keys() == FAULTS | {"unknown_marks"}


@settings(max_examples=400)
@given(PIECES, st.lists(st.integers(0, 60), max_size=12))
def test_a_stream_gives_what_the_whole_gives_however_it_is_cut(text: str, cuts: list[int]) -> None:
    whole = parse(text)
    stream = Stream()
    said, position = [], 0
    for size in [*cuts, len(text)]:
        said.append(stream.feed(text[position : position + size]))
        position += size
    said.append(stream.end())
    assert "".join(said) == whole.response
    assert stream.parsed == whole


@pytest.mark.parametrize("case", CASES[::7], ids=lambda case: case["id"])
def test_labelled_failures_stream_character_by_character(case: dict[str, str]) -> None:
    stream = Stream()
    said = "".join([*map(stream.feed, case["text"]), stream.end()])
    assert said == parse(case["text"]).response


def test_broken_outputs_neither_raise_nor_stream_otherwise() -> None:
    rng = random.Random(7)
    for text in broken(3_000, seed=2):
        whole = parse(text)
        said, parsed = streamed(text, rng)
        assert (said, parsed) == (whole.response, whole)
        assert set(whole.faults) <= FAULTS


def test_a_stream_never_gives_out_the_analysis_and_the_response_as_soon_as_it_is_certain() -> None:
    stream = Stream()
    said = [stream.feed(character) for character in GOOD]
    opened = GOOD.index("<response>") + len("<response>")
    assert "".join(said[:opened]) == ""
    assert "".join(said[: GOOD.index("soup")]) != ""
    assert "".join(said) + stream.end() == "Wonton soup."


def test_an_answer_that_began_without_tags_is_held_until_its_end() -> None:
    stream = Stream()
    assert stream.feed("E1 says wonton, which I must not show. ") == ""
    assert stream.feed("</analysis><response>Wonton.") == ""
    assert stream.end() == "Wonton."


def test_an_endless_answer_is_cut_and_says_so() -> None:
    parsed = parse("<analysis>E1</analysis><response>" + "a" * ANSWER_CHARACTERS_MAX)
    assert len(parsed.response) < ANSWER_CHARACTERS_MAX
    assert "too_long" in parsed.faults
    assert needs_repair(parsed)


def test_what_is_said_may_hold_signs_and_headings_of_its_own() -> None:
    said = "If x < 3 & y > 2:\n\n## 回答\n【分析】白羊座\n```python\nprint('<b>')\n```\nI <3 it. (E1) [1]"
    assert parse(f"<analysis>E1</analysis>\n<response>{said}</response>").response == said


@pytest.mark.parametrize(
    ("analysis", "need"),
    [
        ("Needs knowledge. K1.", "knowledge"),
        ("The question needs experience, not knowledge.", "experience"),
        ("Both: K1 and E2.", "both"),
        ("Evidence needed: none.", "none"),
        ("No evidence is needed, she only says hello.", "none"),
        ("Knowledge and experience are needed.", "both"),
        ("需要知识。", "knowledge"),
        ("这个问题需要经历，不需要知识。", "experience"),
        ("两者都要。", "both"),
        ("闲聊，都不需要。", "none"),
        ("需要的证据：无。", "none"),
        ("E1 says wonton.", None),
    ],
)
def test_the_evidence_need_is_read_in_both_languages(analysis: str, need: str | None) -> None:
    assert reading_of(analysis).need == need


@pytest.mark.parametrize(
    ("analysis", "verified", "rejected"),
    [
        ("E1 says wonton. E2 is outdated.", ("E1",), ("E2",)),
        ("E1-E3 agree; [K2] is irrelevant.", ("E1", "E2", "E3"), ("K2",)),
        ("E3 corrects E1.", ("E3",), ("E1",)),
        ("E1 was superseded by E4.", ("E4",), ("E1",)),
        ("E2纠正了E1，以E2为准。", ("E2",), ("E1",)),
        ("E1不相关，K2说明了用法。", ("K2",), ("E1",)),
        ("Ｅ１ supports it.", ("E1",), ()),
        ("The E10 road and size E200000.", ("E10",), ()),
    ],
)
def test_marks_are_told_apart_by_what_is_said_of_them(
    analysis: str, verified: tuple[str, ...], rejected: tuple[str, ...]
) -> None:
    reading = reading_of(analysis)
    assert reading.verified == verified
    assert reading.rejected == rejected


def test_repair_is_asked_for_where_nothing_was_verified_or_marks_are_made_up() -> None:
    assert needs_repair(parse("Wonton."))
    assert needs_repair(parse(""))
    assert needs_repair(parse(GOOD), unknown_marks=("E9",))
    assert not needs_repair(parse("<分析>E1</分析><回答>Wonton.</回答>"))


@pytest.mark.parametrize(
    "text",
    [
        "<analysis>E1</analysis>Wonton.",
        "<analysis>E1<response>Wonton.</response>",
        "<response>Wonton.</response><analysis>E1</analysis>",
        "<analysis>It is fine.</analysis><response>Wonton.</response>",
    ],
)
def test_strict_repair_takes_less(text: str) -> None:
    assert not needs_repair(parse(text))
    assert needs_repair(parse(text), strict=True)


@pytest.mark.parametrize(("tongue", "said"), [("en", "no response tag"), ("zh", "没有回答标签")])
def test_a_repair_keeps_the_conversation_and_names_the_faults(tongue: str, said: str) -> None:
    asked = (Message(role="system", content="s"), Message(role="user", content="q"))
    answer = "x" * 10_000
    repair = repair_messages(asked, answer, ("missing_response",), tongue, unknown_marks=("E9",))
    assert repair[:2] == asked
    assert [message.role for message in repair[2:]] == ["assistant", "user"]
    assert len(repair[2].content) < 9_000
    assert said in repair[3].content
    assert "E9" in repair[3].content
    assert "<analysis>" in repair[3].content
