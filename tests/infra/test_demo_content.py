"""The bundled demo answers its own questions: each answer is where its question says, and nowhere else."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.personas import Persona
from schemas.turns import Turn

DEMO = Path(__file__).resolve().parents[2] / "infra" / "demo"
TURNS = [json.loads(line) for line in (DEMO / "conversation.jsonl").read_text("utf-8").splitlines()]
TEXT = (DEMO / "text.txt").read_text("utf-8")
QUESTIONS = json.loads((DEMO / "questions.json").read_text("utf-8"))
TIMES = [datetime.fromisoformat(turn["occurred_at"]) for turn in TURNS]
BY_ID = {turn["turn_id"]: turn for turn in TURNS}


def question(kind: str) -> dict[str, Any]:
    (found,) = [question for question in QUESTIONS if question["kind"] == kind]
    return found


def turns_with(part: str) -> list[str]:
    return [turn["turn_id"] for turn in TURNS if part in turn["text"]]


def is_chinese(text: str) -> bool:
    return bool(re.search(r"[\u4e00-\u9fff]", text))


def is_english(text: str) -> bool:
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= 3


def test_turns_fit_the_contract() -> None:
    for turn in TURNS:
        msgspec.convert(turn | {"user_id": "u42", "role_id": "lin"}, Turn)
        assert not {"user_id", "role_id"} & turn.keys(), "the import command gives these"


def test_there_are_enough_turns_with_unique_ids() -> None:
    assert len(TURNS) >= 90
    assert [turn["turn_id"] for turn in TURNS] == [f"d-{number:03d}" for number in range(1, len(TURNS) + 1)]


def test_times_increase_with_the_offset_of_hangzhou_over_six_weeks() -> None:
    assert all(earlier < later for earlier, later in itertools.pairwise(TIMES))
    assert {time.utcoffset() for time in TIMES} == {timedelta(hours=8)}
    assert TIMES[-1] - TIMES[0] >= timedelta(weeks=6)
    assert TIMES[-1] < datetime.fromisoformat(QUESTIONS[0]["now"])


def test_sessions_are_contiguous_and_speakers_alternate_within_them() -> None:
    sessions = list(dict.fromkeys(turn["session_id"] for turn in TURNS))
    assert len(sessions) >= 8
    for session in sessions:
        numbers = [number for number, turn in enumerate(TURNS) if turn["session_id"] == session]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert all(TURNS[number]["speaker"] == ("user", "assistant")[place % 2] for place, number in enumerate(numbers))
    assert {(turn["speaker"], turn["name"]) for turn in TURNS} == {("user", "Chen Yu"), ("assistant", "Lin")}


def test_sessions_are_chinese_english_and_mixed() -> None:
    kinds = set()
    for session in {turn["session_id"] for turn in TURNS}:
        texts = [turn["text"] for turn in TURNS if turn["session_id"] == session]
        kinds.add((any(map(is_chinese, texts)), any(map(is_english, texts))))
    assert kinds == {(True, False), (False, True), (True, True)}


def test_four_kinds_of_question_in_both_languages() -> None:
    assert sorted(question["kind"] for question in QUESTIONS) == ["chat", "corrected", "nothing", "text"]
    assert {is_chinese(question["query"]) for question in QUESTIONS} == {True, False}
    assert {question["now"] for question in QUESTIONS} == {"2026-05-20T20:00:00+08:00"}


def test_answer_from_the_chat_was_told_once_weeks_before_and_is_not_in_the_text() -> None:
    expect = question("chat")["expect"]
    for part in expect["contains"]:
        assert turns_with(part) == [expect["turn_id"]]
        assert part not in TEXT
    told = BY_ID[expect["turn_id"]]
    assert told["speaker"] == "user"
    assert TIMES[-1] - datetime.fromisoformat(told["occurred_at"]) > timedelta(weeks=4)
    assert len(turns_with("钥匙")) >= 5, "other keys have to distract"


def test_answer_from_the_text_is_there_once_and_never_in_the_chat() -> None:
    for part in question("text")["expect"]["contains"]:
        assert TEXT.count(part) == 1
        assert turns_with(part) == []
    assert not turns_with("Luwuh")
    assert not turns_with("陆羽")


def test_corrected_fact_is_told_twice_on_other_days_in_other_words() -> None:
    expect = question("corrected")["expect"]
    (newest,) = {turn for part in expect["contains"] for turn in turns_with(part)}
    (older,) = {turn for part in expect["older_contains"] for turn in turns_with(part)}
    assert (newest, older) == (expect["turn_id"], expect["older_turn_id"])
    days = [BY_ID[turn]["occurred_at"][:10] for turn in (older, newest)]
    assert days[0] < days[1]
    assert not any(part in TEXT for part in expect["contains"] + expect["older_contains"])


@pytest.mark.parametrize("word", ["血型", "blood", "型血", " type o ", "rhesus"])
def test_nothing_answers_the_question_of_blood_type(word: str) -> None:
    assert question("nothing")["expect"] == {"contains": []}
    assert word not in TEXT.lower()
    assert not [turn for turn in TURNS if word in turn["text"].lower()]


def test_persona_is_a_valid_anchor_that_its_own_turns_keep() -> None:
    persona = msgspec.convert(tomllib.loads((DEMO / "persona.toml").read_text("utf-8")), Persona)
    assert (persona.role_id, persona.name) == ("lin", "Lin")
    assert persona.declared_at < TURNS[0]["occurred_at"]
    own = " ".join(turn["text"] for turn in TURNS if turn["speaker"] == "assistant")
    assert persona.style is not None
    assert not [word for word in persona.style.words_avoided or () if word in own]
    assert not re.search("[\U0001f300-\U0001faff\u2600-\u27bf]", own), "the anchor says: no emoji"


def test_the_users_turns_have_emoji_and_numbers() -> None:
    users = " ".join(turn["text"] for turn in TURNS if turn["speaker"] == "user")
    assert len(re.findall("[\U0001f300-\U0001faff]", users)) >= 5
    assert len(re.findall(r"\d+", users)) >= 20


def test_text_is_of_useful_size_and_free_of_a_distributors_licence() -> None:
    assert 15_000 <= len(TEXT.encode()) <= 40_000
    assert "gutenberg" not in TEXT.lower()
    assert "http" not in TEXT
    assert "public domain" in (DEMO / "SOURCES.md").read_text("utf-8")
