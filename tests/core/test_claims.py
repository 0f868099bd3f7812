"""Claims about the past in answers: found in both languages, supported by words and time, else flagged."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import instant_ms
from schemas.positions import Position
from schemas.recalls import Evidence
from streams.core.claims import PastClaim, past_claims

NOW = instant_ms("2026-05-21T10:00:00+08:00")  # a Thursday


def said(text: str, occurred_at: str = "2026-05-20T19:00:00+08:00", mark: str = "E1", **given: Any) -> Evidence:
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


def claims(response: str, *evidence: Evidence, recent: tuple[str, ...] = ()) -> tuple[PastClaim, ...]:
    return past_claims(response, evidence, recent=recent, at_ms=NOW, zone=480)


@pytest.mark.parametrize(
    "sentence",
    [
        "You told me yesterday that you had wonton.",
        "As you said, the sister lives in Lyon.",
        "I remember your cat Mochi.",
        "Last time we talked about bread.",
        "We discussed the rent on Monday, remember?",
        "I still remember how the oven broke.",
        "You've mentioned your brother before.",
        "你上周说过想当画家。",
        "昨天你说吃了馄饨。",
        "我记得你怕辣。",
        "上次咱们聊到你姐姐。",
        "你跟我提过你的猫。",
        "你之前告诉我你是护士。",
        "我们上次约好了去吃面。",
        "您上个月问过退款的事。",
    ],
)
def test_a_claim_without_any_evidence_is_flagged(sentence: str) -> None:
    (claim,) = claims(sentence)
    assert claim.flagged
    assert claim.why == "no_evidence"
    assert claim.method == "rules"


@pytest.mark.parametrize(
    "sentence",
    [
        "I don't remember that.",
        "What did you tell me?",
        "Tell me what you said.",
        "You can talk to me.",
        "If you told me, I'd write it down.",
        "Nice weather yesterday.",
        "你说过这个吗？",
        "我不记得你说过。",
        "你想说什么就说吧。",
        "昨天天气不错。",
        "告诉我你昨天吃了什么。",
        "你没有提过生日。",
    ],
)
def test_questions_denials_and_wishes_are_no_claims(sentence: str) -> None:
    assert claims(sentence) == ()


def test_evidence_with_the_words_at_the_time_supports() -> None:
    (claim,) = claims("昨天你说吃了馄饨。", said("中午吃了馄饨"))
    assert (claim.mark, claim.why, claim.flagged) == ("E1", "supported", False)
    (claim,) = claims("You told me yesterday about the wonton soup.", said("I had wonton soup"))
    assert claim.why == "supported"


def test_the_right_words_at_another_time_are_flagged_as_such() -> None:
    (claim,) = claims("昨天你说吃了馄饨。", said("中午吃了馄饨", "2026-03-02T12:00:00+08:00"))
    assert (claim.mark, claim.why, claim.flagged) == ("E1", "wrong_time", True)


def test_evidence_that_speaks_of_the_time_supports_whenever_it_was_said() -> None:
    (claim,) = claims(
        "You told me you moved to Lyon last March.", said("I moved to Lyon in March", "2026-05-01T09:00:00Z")
    )
    assert claim.why == "supported"


def test_somebody_elses_matter_is_flagged() -> None:
    (claim,) = claims("你上周说你想当画家。", said("我在医院上夜班", "2026-05-13T12:00:00+08:00"))
    assert (claim.why, claim.flagged) == ("no_words", True)


def test_recent_turns_support_without_a_mark() -> None:
    (claim,) = claims("You just said you want noodles.", recent=("I want noodles",))
    assert (claim.why, claim.flagged) == ("recent", False)


def test_spans_point_at_the_sentence() -> None:
    response = "Hello. You told me about a boat! Fine?"
    (claim,) = claims(response)
    assert response[claim.start : claim.end] == claim.text == "You told me about a boat!"


@given(st.text(max_size=300))
def test_any_text_can_be_looked_through(text: str) -> None:
    for claim in claims(text, said(text[:50])):
        assert text[claim.start : claim.end] == claim.text
