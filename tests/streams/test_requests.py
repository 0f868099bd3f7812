"""Requests under faults: a wait outlives a rebalance, and nothing that one client sends stops the worker."""

import asyncio

import pytest

from connectors.inprocess import START_MS
from schemas import headers
from schemas.topics import MESSAGE_BYTES_MAX
from streams.core.conversation import JournalState
from streams.serving import Shard
from tests import builders
from tests.streams.stage import Stage


async def _steps(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_wait_for_a_turn_goes_on_through_a_rebalance() -> None:
    stage = Stage()
    record = stage.request(builders.request(after=["t-0"]))
    serving = asyncio.ensure_future(stage.responder.serve(record))
    await _steps()
    shard = stage.memory.shards[stage.home()]
    shard.held = False
    shard.wake()
    await _steps()
    assert stage.replies() == [], "no error while it is not known who holds the partition"
    shard.held = True
    await stage.post("turns", builders.turn(0))
    await stage.embed_all()
    await asyncio.wait_for(serving, 5)
    assert [reply["status"] for reply in stage.replies()] == ["ok"]


async def test_wait_goes_on_in_the_new_shard_of_a_partition_that_came_back() -> None:
    stage = Stage()
    old = stage.memory.shards[stage.home()] = Shard(JournalState(stage.home(), stage.embedder.name))  # not read yet
    serving = asyncio.ensure_future(stage.responder.serve(stage.request(builders.request())))
    await _steps()
    old.held = False
    old.wake()
    stage.hold(stage.home())
    await asyncio.wait_for(serving, 5)
    assert [reply["status"] for reply in stage.replies()] == ["ok"]


async def test_seen_turn_without_vector_is_answered_by_words_and_named() -> None:
    stage = Stage()
    await stage.post("turns", builders.turn(0))
    await stage.catch_up()
    record = stage.request(
        builders.request(query="馄饨", after=["t-0"]), headers=builders.request_headers(deadline_ms=START_MS + 1000)
    )
    serving = asyncio.ensure_future(stage.responder.serve(record))
    await _steps()
    stage.clock.advance(900)
    stage.memory.shards[stage.home()].wake()
    await asyncio.wait_for(serving, 5)
    (reply,) = stage.replies()
    assert (reply["status"], reply["not_embedded"], reply["evidence"][0]["turn_id"]) == ("ok", ["t-0"], "t-0")


async def test_unseen_turn_is_an_error_at_the_deadline() -> None:
    stage = Stage()
    record = stage.request(
        builders.request(after=["t-9"]), headers=builders.request_headers(deadline_ms=START_MS + 1000)
    )
    serving = asyncio.ensure_future(stage.responder.serve(record))
    await _steps()
    stage.clock.advance(1000)
    stage.memory.shards[stage.home()].wake()
    await asyncio.wait_for(serving, 5)
    (reply,) = stage.replies()
    assert (reply["error"]["code"], reply["error"]["details"]["missing"]) == ("turn_not_seen", ["t-9"])


async def test_query_that_the_embedder_refuses_is_answered_by_words() -> None:
    stage = Stage()
    await stage.post("turns", builders.turn(0))
    await stage.embed_all()
    stage.embedder.refuses = lambda text: True
    reply = await stage.ask(builders.request(query="馄饨"))
    assert (reply["status"], reply["evidence"][0]["turn_id"]) == ("ok", "t-0")


@pytest.mark.parametrize("deadline", [0, 1, START_MS - 1])
async def test_request_whose_deadline_is_over_gets_no_reply(deadline: int) -> None:
    stage = Stage()
    record = stage.request(builders.request(), headers=builders.request_headers(deadline_ms=deadline))
    await stage.responder.serve(record)
    assert stage.replies() == stage.letters() == stage.events() == []


@pytest.mark.parametrize("timestamp", [-1, 0, 2**62, -(2**62)])
async def test_timestamp_of_a_record_may_be_anything(timestamp: int) -> None:
    stage = Stage()
    reply = await stage.ask(builders.request(), timestamp=timestamp)
    assert reply["status"] == "ok"
    await stage.post("documents", builders.document(0), timestamp=timestamp)
    await stage.post("documents", builders.document(0, deleted=True), timestamp=timestamp)
    await stage.catch_up()
    assert stage.letters() == []
    assert stage.memory.library.next_offset == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"preset": "x" * 15_000_000}, "too_large"),
        ({"preset": "x" * 3_000_000}, "unknown_preset"),
        ({"set": {"y" * 3_000_000: 1}}, "bad_request"),
        ({"version": "9" * 3_000_000}, "bad_request"),
        ({"type": "z" * 3_000_000}, "bad_request"),
        ({"request_id": "q" * 3_000_000}, "too_large"),
        ({"query": "q" * 100_001}, "too_large"),
    ],
)
async def test_megabytes_in_a_field_are_refused_in_a_few_words(body: dict, code: str) -> None:
    stage = Stage()
    reply = await stage.ask(builders.request() | body)
    assert (reply["status"], reply["error"]["code"]) == ("error", code)
    assert len(reply["error"]["message"]) <= 2000


async def test_huge_correlation_id_goes_to_dead_letters() -> None:
    stage = Stage()
    for size in (9_000_000, 15_900_000):
        given = builders.request_headers(correlation=b"c" * size)
        await stage.responder.serve(stage.request(builders.request(), headers=given))
    assert [letter["error"]["code"] for letter in stage.letters()] == ["bad_header", "bad_header"]
    reply = await stage.ask(builders.request())
    assert reply["status"] == "ok"


async def test_largest_correlation_id_is_returned() -> None:
    stage = Stage()
    reply = await stage.ask(builders.request(), headers=builders.request_headers(correlation=b"c" * 1024 * 1024))
    assert reply["status"] == "ok"


async def test_answer_that_no_record_can_hold_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streams.requests.REPLY_BYTES_MAX", 100_000)
    stage = Stage()
    for number in range(40):
        await stage.post("turns", builders.turn(number, text=f"馄饨{number} " + "长" * 1_500))
    await stage.catch_up()
    reply = await stage.ask(builders.request(query="馄饨", limits={"experience": 200, "tokens": 100}, kind="recall"))
    assert (reply["error"]["code"], "limits" in reply["error"]["message"]) == ("too_large", True)
    assert stage.events()[-1]["type"] != "RecallAnswered", "what was not answered is not recorded"
    reply = await stage.ask(builders.request(query="馄饨", limits={"experience": 5}, kind="recall"))
    assert len(reply["evidence"]) == 5


async def test_request_on_a_foreign_partition_is_forwarded_with_its_headers() -> None:
    stage = Stage()
    home = stage.home()
    given = builders.request_headers(correlation=b"x", topic="mnemolog.replies", partition=1)
    record = stage.request(builders.request(), partition=(home + 1) % 3, headers=given)
    await stage.responder.serve(record)
    (forwarded,) = stage.log.read("mnemolog.requests", home)
    assert forwarded.value == record.value
    place = headers.forwarded_header(record.partition, record.offset, record.timestamp)
    assert forwarded.headers == (*given, (headers.FORWARDED, place))
    await stage.responder.serve(forwarded)
    assert [reply["status"] for reply in stage.replies(b"x")] == ["ok"]
    assert len(stage.log.read("mnemolog.replies", 1)) == 1


async def test_request_that_is_served_twice_is_recorded_under_one_id() -> None:
    stage = Stage()
    record = stage.request(builders.request())
    await stage.responder.serve(record)
    await stage.catch_up()
    await stage.responder.serve(record)
    assert len({reply["recall_id"] for reply in stage.replies()}) == 1
    await stage.catch_up()
    assert len(stage.memory.shards[stage.home()].state.owners["u42", "lin"].recalls) == 1


async def test_turn_that_outgrows_the_log_as_an_event_goes_to_dead_letters() -> None:
    stage = Stage()
    turn = builders.turn(0, metadata={"a": ""})
    room = MESSAGE_BYTES_MAX - 600
    turn["metadata"]["a"] = "x" * room
    document = builders.document(0, metadata={"a": "x" * room})
    await stage.post("turns", turn)
    await stage.post("documents", document)
    await stage.post("turns", builders.turn(1))
    assert [letter["error"]["code"] for letter in stage.letters()] == ["too_large", "too_large"]
    assert [event["turn_id"] for event in stage.events()] == ["t-1"]


async def test_dead_letter_with_a_huge_key_and_headers_still_fits() -> None:
    stage = Stage()
    await stage.post("turns", b"x" * 10_000_000, key=b"k" * 5_000_000)
    await stage.post("turns", b"x", key=b"k" * 15_000_000, headers=(("h", b"v" * 1_000_000),))
    carried = [(letter["value_base64"], letter["key_base64"], len(letter["headers"])) for letter in stage.letters()]
    assert [(value is None, key is None, count) for value, key, count in carried] == [(True, False, 0), (True, True, 0)]
