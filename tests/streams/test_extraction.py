"""Extraction from end to end without a broker: turns are posted, segments close, facts are asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from connectors.inprocess import ScriptedChatModel
from connectors.ports import Unavailable
from schemas.codec import JOURNAL_EVENTS, decode_event
from streams.arbitration import ModelArbiter
from streams.core.budget import Budget
from streams.core.conversation import JournalState
from streams.core.extracting import Extraction
from streams.extraction import Extracted, Extractor, Job
from tests import builders
from tests.streams.stage import PREFIX, Stage

HOUR_MS = 3_600_000


class Scene(Stage):
    """A stage whose memory worker also extracts."""

    def __init__(self, **given: Any) -> None:
        model = given.pop("model", None)
        super().__init__(**given)
        self.extractor = Extractor(self.memory, model)

    async def settle(self) -> None:
        """Extract, embed and tell until nothing is left to do."""
        for _ in range(100):
            await self.catch_up()
            if not await self.extractor.step():
                await self.catch_up()
                if not self.extractor.outstanding and not self.extractor.in_work:
                    return
            await asyncio.sleep(0)
        raise AssertionError(f"{self.extractor.outstanding} effects are outstanding")

    async def say(self, number: int, text: str, **given: Any) -> None:
        """Post a user's turn, one a minute."""
        await self.post("turns", builders.turn(number, text=text, speaker=given.pop("speaker", "user"), **given))

    async def silence(self) -> None:
        """Let the sessions fall silent, and settle."""
        await self.catch_up()
        self.clock.advance(HOUR_MS)
        await self.settle()

    async def facts(self, **given: Any) -> dict[str, dict[str, Any]]:
        """Facts by value."""
        reply = await self.ask({**builders.request(kind="facts", **given), "query": ""})
        assert reply["status"] == "ok", reply
        return {fact["value"]: fact for fact in reply["facts"]}

    def told(self) -> dict[str, dict[str, Any]]:
        """The topic ``facts`` as compaction leaves it, by key."""
        return {event["key"]: event for event in self.events("facts")}


async def test_what_a_user_says_is_a_fact_once_the_session_is_silent() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon and I work as a nurse.")
    await scene.settle()
    assert await scene.facts() == {}, "the session is not over"
    await scene.silence()
    facts = await scene.facts()
    assert {fact["key"]: fact["value"] for fact in facts.values()} == {"home": "Lisbon", "occupation": "nurse"}
    source = facts["Lisbon"]["sources"][0]
    assert source["turn_id"] == "t-0"
    assert "Lisbon" in "I live in Lisbon and I work as a nurse."[source["start"] : source["end"]]
    assert scene.told()["home"]["value"] == "Lisbon"


async def test_wish_to_remember_is_granted_without_waiting() -> None:
    scene = Scene()
    await scene.say(0, "请记住，我对花生过敏。")
    await scene.settle()
    assert {fact["key"] for fact in (await scene.facts()).values()} == {"allergy"}


async def test_session_end_by_feedback_closes_the_segment() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    ended = builders.feedback(kind="session_end", target={"session_id": "s1"})
    await scene.post("feedback", ended)
    await scene.settle()
    assert set(await scene.facts()) == {"Lisbon"}
    (event,) = [event for event in scene.events() if event["type"] == "MemoriesExtracted"]
    assert event["reason"] == "session_end"


async def test_session_end_that_overtakes_its_turns_ends_them_all_the_same() -> None:
    scene = Scene()
    ended = builders.feedback(9, kind="session_end", target={"session_id": "s1"})
    await scene.post("feedback", ended)
    await scene.say(0, "I live in Lisbon.")
    await scene.catch_up()
    scene.clock.advance(3_000)
    await scene.settle()
    assert set(await scene.facts()) == {"Lisbon"}
    await scene.say(20, "I work as a nurse.")  # after the end: the session goes on
    await scene.catch_up()
    scene.clock.advance(3_000)
    await scene.settle()
    assert set(await scene.facts()) == {"Lisbon"}


async def test_second_value_is_a_conflict_that_recall_shows_with_both_dates() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    await scene.silence()
    await scene.say(100, "I live in Porto.")
    await scene.silence()
    assert {value: fact["status"] for value, fact in (await scene.facts()).items()} == {
        "Lisbon": "contested",
        "Porto": "contested",
    }
    reply = await scene.ask(builders.request(query="Where do I live, Lisbon or Porto?"))
    (memory,) = [item for item in reply["evidence"] if item["path"] == "memory"]
    assert memory["mark"] == "M1"
    assert "Lisbon" in memory["text"]
    assert "Porto" in memory["text"]
    assert any("<user_memory>" in message["content"] for message in reply["messages"])
    winner = next(fact["memory_id"] for fact in (await scene.facts()).values() if fact["value"] == "Porto")
    await scene.post("feedback", builders.feedback(1, target={"memory_id": winner}, author="clerk"))
    await scene.settle()
    assert set(await scene.facts()) == {"Porto"}
    assert {fact["status"] for fact in (await scene.facts(history=True)).values()} == {"active", "superseded"}
    assert scene.told()["home"]["conflicts"][0]["closed_by"] == "confirmed by clerk"


async def test_assistant_that_repeats_a_memory_makes_no_fact_and_confirms_none() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    await scene.say(1, "So you live in Lisbon, and I live in Porto.", speaker="assistant")
    await scene.silence()
    facts = await scene.facts()
    assert set(facts) == {"Lisbon"}
    assert facts["Lisbon"]["confirmation"] == 0


async def test_identifiers_never_reach_facts_or_summaries() -> None:
    scene = Scene()
    secret, phone = "hunter2secret", "13812345678"
    filler = "We walked along the river for two hours and talked about the old mill, the ferry and the rain. "
    await scene.say(0, f"My password is {secret} and my phone number is {phone}. I live in Lisbon. " + 3 * filler)
    await scene.silence()
    written = b"".join(
        orjson.dumps(event) for event in scene.events() if event["type"] in ("MemoriesExtracted", "MemoryEmbedded")
    ) + orjson.dumps(scene.events("facts"))
    assert b"Lisbon" in written
    assert secret.encode() not in written
    assert phone.encode() not in written


async def test_summary_of_a_long_segment_is_kept_and_expires() -> None:
    scene = Scene()
    for number in range(8):
        await scene.say(
            number, f"On day {number} the expedition reached camp {number} and mended the red kayak number {number}."
        )
    await scene.silence()
    reply = await scene.ask({**builders.request(kind="summaries"), "query": ""})
    (summary,) = reply["summaries"]
    assert "kayak" in summary["text"]
    assert 200 <= len(summary["text"]) <= 800
    later = await scene.ask({**builders.request(1, kind="summaries", now="2029-01-01T00:00:00Z"), "query": ""})
    assert later["summaries"] == []


async def test_kill_between_extraction_and_its_record_repeats_it_with_one_effect() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    await scene.catch_up()
    scene.clock.advance(HOUR_MS)
    other = Extractor(scene.memory)  # a second worker that believes it holds the partition
    scene.memory.on_memory = scene.extractor.folded
    await scene.extractor.step()
    await other.step()
    await scene.settle()
    assert len([event for event in scene.events() if event["type"] == "MemoriesExtracted"]) == 2
    facts = await scene.facts(history=True)
    assert [len(fact["history"]) for fact in facts.values()] == [1]


async def test_replay_of_the_journal_gives_the_same_memory_and_nothing_outstanding() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    await scene.silence()
    await scene.say(200, "Actually, I live in Porto, not Lisbon. Remember that.")
    await scene.settle()
    await scene.embed_all()
    partition = scene.home()
    live = scene.memory.shards[partition].state
    fresh = JournalState(partition, scene.embedder.name)
    for record in scene.log.read(PREFIX + "journal", partition, 0):
        fresh.apply(record.offset, decode_event(record.value, JOURNAL_EVENTS))
    assert fresh.digest() == live.digest()
    assert fresh.segments_due == {}
    assert fresh.memories_unembedded == {}


async def test_log_that_is_away_loses_no_extraction() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    await scene.catch_up()
    scene.clock.advance(HOUR_MS)
    scene.log.away = True
    with pytest.raises(Unavailable):
        await scene.extractor.step()
    scene.log.away = False
    await scene.settle()
    assert set(await scene.facts()) == {"Lisbon"}


async def test_embedder_that_hangs_holds_up_no_fact() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    await scene.catch_up()
    scene.clock.advance(HOUR_MS)
    scene.embedder.delay = lambda: 3600.0
    working = asyncio.create_task(scene.extractor.run())
    try:
        async with asyncio.timeout(10):
            while "Lisbon" not in await scene.facts():
                await scene.catch_up()
            await scene.say(300, "Remember that I work as a nurse.")
            while "nurse" not in await scene.facts():
                await scene.catch_up()
        assert scene.extractor.outstanding
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_answer_goes_on_while_a_model_hangs() -> None:
    hangs = asyncio.Event()

    async def model(job: Job, found: Extraction) -> Extracted:
        await hangs.wait()
        return Extracted(found, method="model:slow", tokens_in=10)

    scene = Scene(model=model)
    await scene.say(0, "I live in Lisbon.")
    await scene.catch_up()
    scene.clock.advance(HOUR_MS)
    await scene.extractor.step()
    reply = await scene.ask(builders.request(query="Lisbon"))
    assert reply["status"] == "ok"
    hangs.set()
    await scene.settle()
    (event,) = [event for event in scene.events() if event["type"] == "MemoriesExtracted"]
    assert (event["method"], event["tokens_in"]) == ("model:slow", 10)


async def test_turns_that_come_during_an_extraction_are_extracted_next() -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def model(job: Job, found: Extraction) -> Extracted:
        begun.set()
        await goes_on.wait()
        return Extracted(found)

    scene = Scene(model=model)
    await scene.say(0, "I live in Lisbon.")
    await scene.catch_up()
    scene.clock.advance(HOUR_MS)
    await scene.extractor.step()
    await begun.wait()
    await scene.say(1, "I work as a nurse.")
    await scene.catch_up()
    goes_on.set()
    await scene.silence()
    assert set(await scene.facts()) == {"Lisbon", "nurse"}
    events = [event for event in scene.events() if event["type"] == "MemoriesExtracted"]
    assert [event["turns"] for event in events] == [1, 1]


async def test_facts_as_of_a_date_are_those_that_were_true_then() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.", occurred_at="2026-01-10T10:00:00Z")
    await scene.say(1, "I moved to Porto.", occurred_at="2026-05-10T10:00:00Z")
    await scene.silence()
    assert set(await scene.facts()) == {"Porto"}
    assert set(await scene.facts(as_of={"occurred_at": "2026-03-01T00:00:00Z"})) == {"Lisbon"}
    assert set(await scene.facts(as_of={"turn_id": "t-0"})) == set(), "nothing had been extracted then"


async def test_another_owner_sees_nothing() -> None:
    scene = Scene()
    await scene.say(0, "I live in Lisbon.")
    await scene.silence()
    for other in ({"user_id": "u4"}, {"role_id": "li"}, {"user_id": "u42/lin", "role_id": "x"}):
        assert await scene.facts(**other) == {}


class Disputed(Scene):
    """Two homes under the policy ``model``, and an arbiter."""

    def __init__(self, answer: str) -> None:
        super().__init__(conflict_policy="model")
        self.chat = ScriptedChatModel(lambda _: answer)
        arbiter = ModelArbiter(self.chat, self.settings, Budget(10_000))
        self.extractor = Extractor(self.memory, None, arbiter)

    async def quarrel(self) -> dict[str, str]:
        """Status by value once everything is settled."""
        await self.say(0, "I live in Lisbon.")
        await self.silence()
        await self.say(200, "I live in Porto.")
        await self.silence()
        for _ in range(20):
            await asyncio.sleep(0)
        await self.settle()
        return {value: fact["status"] for value, fact in (await self.facts(history=True)).items()}


async def test_model_settles_a_conflict_and_the_loser_stays() -> None:
    scene = Disputed('{"winner": 2, "reason": "said later, of a flat"}')
    assert await scene.quarrel() == {"Lisbon": "superseded", "Porto": "active"}
    (event,) = [event for event in scene.events() if event["type"] == "ConflictArbitrated"]
    assert event["method"] == "model:scripted"
    asked = "\n".join(message.content for message in scene.chat.asked[0])
    assert "I live in Lisbon" in asked
    closed = scene.told()["home"]["conflicts"][0]
    assert closed["closed_by"] == "model:scripted: said later, of a flat"


@pytest.mark.parametrize("answer", ['{"winner": 0, "reason": "who knows"}', "Porto, obviously!", "", '{"winner": 9}'])
async def test_model_that_cannot_tell_leaves_the_conflict_open_and_is_not_asked_for_ever(answer: str) -> None:
    scene = Disputed(answer)
    assert await scene.quarrel() == {"Lisbon": "contested", "Porto": "contested"}
    await scene.silence()
    assert len(scene.chat.asked) == 1
