"""Answers bound to their evidence: marks that exist, closed values that stand in the prompt; plausibility and rates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import instant_ms
from schemas.positions import Position
from schemas.recalls import Evidence
from streams.core.plausibility import ProtocolStatistics, plausibility
from streams.core.protocol import Parsed, parse
from streams.core.verification import Claim, Verification, verify

NOW = instant_ms("2026-05-21T10:00:00+08:00")


def piece(mark: str, text: str, occurred_at: str = "2026-05-20T19:00:00+08:00", **given: Any) -> Evidence:
    values: dict[str, Any] = {
        "mark": mark,
        "id": mark,
        "path": "experience",
        "text": text,
        "score": 1.0,
        "parts": {},
        "position": Position(topic="journal", partition=0, offset=1),
        "occurred_at": occurred_at,
    }
    return Evidence(**{**values, **given})


SOUP = piece("E1", "昨天吃了馄饨，花了32块")
LYON = piece("E2", "My sister Clara moved to Lyon with 3 cats", "2026-05-18T19:00:00+08:00")
CLINIC = piece("K1", "The clinic opens at 8:00 and costs 1,200 a year", path="knowledge")


def verified(response: str, marks: str = "E1", *, allowed: tuple[str, ...] = ()) -> Verification:
    parsed = parse(f"<analysis>{marks}</analysis><response>{response}</response>")
    return verify(parsed, (SOUP, LYON, CLINIC), allowed=allowed, at_ms=NOW, zone=480)


def claims(response: str, marks: str = "E1, E2, K1", **given: Any) -> dict[str, Claim]:
    return {claim.text: claim for claim in verified(response, marks, **given).claims}


def test_marks_that_do_not_exist_are_told_apart() -> None:
    found = verified("Hello.", "E1, E7 and K1")
    assert (found.bound, found.unknown) == (("E1", "K1"), ("E7",))


@pytest.mark.parametrize(
    ("response", "value", "mark"),
    [
        ("你花了32块。", "32", "E1"),
        ("你花了三十二块。", "三十二", "E1"),
        ("She has three cats.", "three", "E2"),
        ("It opens at 8.", "8", "K1"),
        ("It is 1200 a year.", "1200", "K1"),
        ("Clara called: she lives in Lyon now.", "Lyon", "E2"),
        ("Your words were “moved to Lyon”.", "moved to Lyon", "E2"),
        ("On Monday you told me about her move.", "on monday", "E2"),
        ("你前天吃了馄饨。", "前天", "E1"),
    ],
)
def test_values_that_stand_in_the_evidence_are_supported_by_it(response: str, value: str, mark: str) -> None:
    claim = claims(response)[value]
    assert (claim.mark, claim.cited, claim.supported) == (mark, True, True)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("你花了35块。", "35"),
        ("She has five cats.", "five"),
        ("I think she lives in Paris now.", "Paris"),
        ("You said “never coming back home”.", "never coming back home"),
        ("Last March you were there.", "last march"),
        ("你看过《活着》吧。", "《活着》"),
    ],
)
def test_values_that_stand_nowhere_are_flagged(response: str, value: str) -> None:
    claim = claims(response)[value]
    assert not claim.supported
    assert claim in verified(response, "E1, E2, K1").unsupported


def test_values_of_the_query_or_the_persona_support_and_are_told_apart() -> None:
    claim = claims("I think she lives in Paris now.", allowed=("Does she live in Paris?",))["Paris"]
    assert (claim.mark, claim.elsewhere, claim.supported) == (None, True, True)


def test_evidence_that_is_not_cited_supports_and_is_told_apart() -> None:
    claim = claims("She has three cats.", "E1")["three"]
    assert (claim.mark, claim.cited) == ("E2", False)


@pytest.mark.parametrize(
    "response",
    ["1. flour\n2. water\n3. salt", "One of them, 一个就好。", "See you tomorrow.", "Today is fine.", "Hello!"],
)
def test_lists_single_things_and_the_future_claim_nothing(response: str) -> None:
    assert claims(response) == {}


def test_spans_point_at_the_value() -> None:
    response = "你花了35块，on Monday, near Paris."
    for claim in verified(response).claims:
        assert response[claim.start : claim.end].casefold() == claim.text.casefold()


@given(st.text(max_size=200), st.text(max_size=100))
def test_any_answer_can_be_verified(response: str, text: str) -> None:
    parsed = Parsed(response=response, marks=("E1", "E5"))
    found = verify(parsed, (piece("E1", text),), allowed=(text,), at_ms=NOW)
    assert all(0 <= claim.start <= claim.end <= len(response) for claim in found.claims)


def score(answer: str, shown: int = 3) -> int:
    parsed = parse(answer)
    found = verify(parsed, (SOUP, LYON, CLINIC)[:shown], at_ms=NOW, zone=480)
    return plausibility(parsed, found, evidence_shown=shown).score


def test_a_verified_bound_answer_is_fully_plausible() -> None:
    answer = (
        "<analysis>Needs experience. E1 says wonton for 32, said by the user yesterday.</analysis>"
        "<response>Wonton soup, for 32.</response>"
    )
    assert score(answer) == 100


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("<analysis>Needs experience. E1 says so in plain words.</analysis><response>Wonton.</response>", "Wonton."),
        (
            "<analysis>Needs experience. E1 says so in plain words.</analysis><response>Wonton.</response>",
            "<analysis>Needs experience. E9 says so in plain words.</analysis><response>Wonton.</response>",
        ),
        (
            "<analysis>Needs experience. E1 says so in plain words.</analysis><response>Wonton.</response>",
            "<analysis>Needs knowledge. E1 says so in plain words.</analysis><response>Wonton.</response>",
        ),
        (
            "<analysis>Needs experience. E1 says so in plain words.</analysis><response>For 32.</response>",
            "<analysis>Needs experience. E1 says so in plain words.</analysis><response>For 35.</response>",
        ),
        (
            "<analysis>Needs experience. E1 says so in plain words.</analysis><response>Wonton.</response>",
            "<analysis>Needs experience. E1 says so in plain words.</analysis><response>Wonton [E1].</response>",
        ),
        (
            "<analysis>Needs experience. E1 says so in plain words.</analysis><response>Wonton.</response>",
            "<analysis>Needs experience. E1 says so in plain words.<response>Wonton.</response>",
        ),
        (
            "<analysis>Needs experience. E1 says wonton, said by the user at noon, nothing corrects it.</analysis>"
            "<response>Wonton.</response>",
            "<analysis>Needs experience. E1 says wonton, said by the user at noon, nothing corrects it.</analysis>"
            "<response>Needs experience. E1 says wonton, said by the user at noon, nothing corrects it.</response>",
        ),
    ],
)
def test_what_breaks_a_rule_scores_less(better: str, worse: str) -> None:
    assert score(worse) < score(better)


@given(st.text(max_size=200))
def test_the_score_is_the_sum_of_its_parts_within_bounds(text: str) -> None:
    parsed = parse(text)
    found = plausibility(parsed, Verification(bound=(), unknown=(), claims=()), evidence_shown=1)
    assert found.score == max(0, min(100, round(sum(found.parts.values()))))
    assert found.method == "rules"


def test_statistics_add_up_and_merge() -> None:
    ours, theirs = ProtocolStatistics(), ProtocolStatistics()
    ours.add(parse("<analysis>E1 says</analysis><response>x</response>"), 90)
    theirs.add(parse("plain"), 30, repairs=1)
    ours.merge(theirs)
    assert ours.rates() == {
        "analysis_rate": 0.5,
        "response_rate": 0.5,
        "analysis_length": 3.5,
        "repair_rate": 0.5,
        "plausibility": 60.0,
    }
    assert ours.faults["missing_analysis"] == 1
    assert ProtocolStatistics().rates()["analysis_rate"] == 0.0
