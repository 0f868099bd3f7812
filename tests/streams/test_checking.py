"""Checks of a model's output, and requests that are read twice: always the prompt that was really sent."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from connectors.inprocess import ScriptedChatModel
from schemas.codec import JOURNAL_EVENTS, decode_event
from streams.core.conversation import JournalState
from streams.judging import ModelJudge
from tests import builders
from tests.streams.stage import PREFIX, Stage

GOOD = "<analysis>It needs experience: E1 says wontons.</analysis><response>You ate wontons, 小陈.</response>"
BAD = "<analysis>None.</analysis><response>As an AI language model, I can't know that.</response>"


async def talked(**persona: Any) -> tuple[Stage, dict[str, Any]]:
    """A stage with a persona and two turns, and the reply to a question."""
    stage = Stage()
    await stage.post("personas", builders.persona(language="en", **persona))
    await stage.post("turns", builders.turn(0, text="I ate wontons yesterday."))
    await stage.post("turns", builders.turn(1, text="Sounds good."))
    await stage.catch_up()
    reply = await stage.ask(builders.request(query="What did I eat?", session_id="other"))
    await stage.catch_up()
    return stage, reply


async def check(stage: Stage, reply: dict[str, Any], output: str, **given: Any) -> dict[str, Any]:
    """The reply to a check."""
    body = {
        "request_id": "c",
        "kind": "check",
        "user_id": "u42",
        "role_id": "lin",
        "recall_id": reply["recall_id"],
        "answer": output,
        **given,
    }
    answered = await stage.ask(body)
    await stage.catch_up()
    return answered


def graded(stage: Stage) -> list[dict[str, Any]]:
    """Recorded grades."""
    return [event for event in stage.events() if event["type"] == "ResponseGraded"]


async def test_good_answer_passes_and_becomes_an_atom_when_it_is_final() -> None:
    stage, reply = await talked()
    found = (await check(stage, reply, GOOD, model="m", final=True, turn_ids=["t-8", "t-9"]))["check"]
    assert (found["passed"], found["compliance"], found["faults"]) == (True, 1, [])
    assert found["response"] == "You ate wontons, 小陈."
    assert found["marks"] == ["E1"]
    (event,) = graded(stage)
    assert (event["model"], event["final"], event["recall_id"]) == ("m", True, reply["recall_id"])
    (atom,) = [event for event in stage.events() if event["type"] == "AtomDistilled"]
    assert atom["sources"] == {"E1": reply["evidence"][0]["id"]}
    assert atom["turn_ids"] == ["t-8", "t-9"]
    assert found["atom_id"] == atom["memory_id"]


async def test_answer_out_of_character_fails_with_a_refusal_and_leaves_no_atom() -> None:
    stage, reply = await talked()
    found = (await check(stage, reply, BAD, final=True))["check"]
    assert (found["passed"], found["compliance"]) == (False, 0)
    assert found["violations"][0]["rule"] == "self_denial"
    assert found["refusal"]
    assert found["atom_id"] is None
    assert [event for event in stage.events() if event["type"] == "AtomDistilled"] == []


async def test_broken_output_comes_with_the_messages_of_a_repair() -> None:
    stage, reply = await talked()
    found = (await check(stage, reply, "Wontons, I guess [E77]."))["check"]
    assert found["needs_repair"]
    assert found["unknown_marks"] == ["E77"]
    messages = found["repair"]["messages"]
    assert messages[: len(reply["messages"])] == reply["messages"], "the prompt that was sent, byte for byte"
    assert messages[-2]["role"] == "assistant"


async def test_claim_about_the_past_that_nothing_supports_is_flagged() -> None:
    stage, reply = await talked()
    output = "<analysis>E1.</analysis><response>Last week you told me that you bought a red sailing boat.</response>"
    assert (await check(stage, reply, output))["check"]["unsupported_claims"]


async def test_same_output_is_graded_once_however_often_it_is_checked() -> None:
    stage, reply = await talked()
    first = (await check(stage, reply, GOOD))["check"]
    again = (await check(stage, reply, GOOD))["check"]
    assert first["response_id"] == again["response_id"]


@pytest.mark.parametrize("told", [-5, 0, 70_000, 2**63, 1e300])
async def test_what_a_client_tells_of_a_call_never_breaks_the_record(told: float) -> None:
    stage, reply = await talked()
    usage = dict.fromkeys(("attempt", "temperature", "latency_ms", "tokens_in", "tokens_out"), told)
    assert (await check(stage, reply, GOOD, usage=usage))["status"] == "ok"
    (event,) = graded(stage)
    assert 1 <= event["attempt"] < 2**16, "what the column of ClickHouse holds"
    for name in ("temperature", "latency_ms", "tokens_in", "tokens_out"):
        assert event.get(name) is None or abs(event[name]) < 2**32


@pytest.mark.parametrize("recall_id", ["r-unknown", ""])
async def test_unknown_recall_is_a_clear_error(recall_id: str) -> None:
    stage, reply = await talked()
    answered = await check(stage, reply, GOOD, recall_id=recall_id)
    assert answered["status"] == "error"
    assert answered["error"]["code"] == "bad_request"


async def test_recall_of_another_owner_is_unknown() -> None:
    stage, reply = await talked()
    await stage.post("turns", builders.turn(5, user_id="u1"))
    answered = await check(stage, reply, GOOD, user_id="u1")
    assert answered["error"]["code"] == "bad_request"
    assert "wontons" not in orjson.dumps(answered).decode()


async def test_recall_without_a_prompt_cannot_be_checked() -> None:
    stage, _ = await talked()
    reply = await stage.ask(builders.request(3, kind="recall"))
    await stage.catch_up()
    assert "assemble" in (await check(stage, reply, GOOD))["error"]["message"]


async def test_recall_that_is_no_longer_cached_is_read_from_the_journal() -> None:
    stage, reply = await talked()
    first = (await check(stage, reply, GOOD))["check"]
    stage.memory.recalls._recent.clear()

    async def read_at(partition: int, offset: int) -> Any:
        return stage.log.read(PREFIX + "journal", partition, offset, 1)[0]

    stage.memory.recalls.read_at = read_at
    assert (await check(stage, reply, GOOD))["check"] == first


async def test_atom_is_recalled_next_round_but_never_beside_its_own_turns() -> None:
    stage, reply = await talked()
    await check(stage, reply, GOOD, final=True, turn_ids=["t-0", "t-1"])
    asked = {"query": "wontons: what did I eat?", "explain": True}
    beside = await stage.ask(builders.request(4, **asked))
    assert "memory" not in {item["path"] for item in beside["evidence"]}
    assert beside["explain"]["paths"]["memory"]["atoms_beside_their_turns"] == 1
    alone = await stage.ask(builders.request(5, **asked, session_id="s9", limits={"experience": 0}))
    atoms = [item for item in alone["evidence"] if item["path"] == "memory"]
    assert [item["source"] for item in atoms] == ["atom:other"]
    past = await stage.ask(builders.request(6, **asked, limits={"experience": 0}, as_of={"turn_id": "t-1"}))
    assert past["evidence"] == []


async def test_denied_atom_is_not_recalled() -> None:
    stage, reply = await talked()
    found = (await check(stage, reply, GOOD, final=True))["check"]
    await stage.post("feedback", builders.feedback(kind="deny", target={"memory_id": found["atom_id"]}))
    await stage.catch_up()
    again = await stage.ask(builders.request(4, query="wontons: what did I eat?", limits={"experience": 0}))
    assert again["evidence"] == []


async def test_request_that_is_read_again_gets_the_same_answer_and_no_second_record() -> None:
    stage, _ = await talked()
    record = stage.request(
        builders.request(9, query="What did I eat?"), headers=builders.request_headers(correlation=b"x")
    )
    await stage.responder.serve(record)
    await stage.catch_up()
    await stage.post("turns", builders.turn(20, text="I ate soup today, not wontons."))
    await stage.catch_up()
    before = len(stage.events())
    await stage.responder.serve(record)  # the worker died before its commit
    first, second = stage.replies(b"x")
    assert len(stage.events()) == before
    for field in ("messages", "evidence", "messages_sha256", "watermark", "recall_id", "timings_ms"):
        assert first[field] == second[field], field


async def test_replay_gives_the_same_state_with_grades_and_atoms() -> None:
    stage, reply = await talked()
    await check(stage, reply, GOOD, final=True, turn_ids=["t-0"])
    partition = stage.home()
    fresh = JournalState(partition, stage.embedder.name)
    for record in stage.log.read(PREFIX + "journal", partition, 0):
        fresh.apply(record.offset, decode_event(record.value, JOURNAL_EVENTS))
    assert fresh.digest() == stage.memory.shards[partition].state.digest()


async def test_check_right_after_the_answer_waits_for_the_record_of_it() -> None:
    stage, _ = await talked()
    reply = await stage.ask(builders.request(11, query="What did I eat?"))  # its event has not come back yet
    body = {"request_id": "c", "kind": "check", "user_id": "u42", "role_id": "lin", "answer": GOOD}
    asking = asyncio.create_task(stage.ask({**body, "recall_id": reply["recall_id"]}))
    await asyncio.sleep(0.05)
    assert not asking.done()
    await stage.catch_up()
    assert (await asking)["check"]["passed"]


@pytest.mark.parametrize(
    ("answer", "passed", "method"),
    [
        ('{"passed": 1, "violations": []}', True, "rules+model:scripted"),
        ('{"passed": 0, "violations": [{"boundary": 1, "quote": "wontons"}]}', False, "rules+model:scripted"),
        ("It passes, I think.", True, "rules"),
    ],
)
async def test_judge_model_counts_beside_the_rules_and_abstains_where_it_cannot_be_read(
    answer: str, passed: bool, method: str
) -> None:
    stage, reply = await talked()
    stage.memory.judge = ModelJudge(ScriptedChatModel(lambda _: answer), 5.0)
    found = (await check(stage, reply, GOOD, final=True))["check"]
    assert (found["passed"], found["method"]) == (passed, method)
    assert graded(stage)[0]["method"] == method
    if not passed:
        assert found["refusal"]
        assert found["violations"][0]["boundary"] == "never gives medical advice"


async def test_what_the_rules_reject_is_not_shown_to_a_judge() -> None:
    stage, reply = await talked()
    judge = ScriptedChatModel(lambda _: '{"passed": 1, "violations": []}')
    stage.memory.judge = ModelJudge(judge, 5.0)
    assert not (await check(stage, reply, BAD))["check"]["passed"]
    assert judge.asked == []
