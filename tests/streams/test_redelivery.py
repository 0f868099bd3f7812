"""A request that is read again gets the recorded answer, that of a lost partition none here; no event stands twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.inprocess import InProcessLog
from connectors.ports import Outgoing, Unavailable
from schemas import headers
from streams.core.conversation import JournalState
from streams.serving import PartitionLost, Shard
from tests import builders
from tests.streams.stage import PREFIX, Stage

ASKED = {"query": "馄饨", "explain": True}


async def _steps(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _talked() -> Stage:
    stage = Stage()
    await stage.post("turns", builders.turn(0, text="昨天吃了馄饨"))
    await stage.post("documents", builders.document(0))
    await stage.embed_all()
    return stage


def _answers(stage: Stage) -> list[dict[str, Any]]:
    return [event for event in stage.events() if event["type"] == "RecallAnswered"]


async def _another_worker(stage: Stage) -> Stage:
    """The worker that takes over: same log, everything read, nothing remembered."""
    other = Stage(log=stage.log)
    other.clock.advance(60_000)
    await other.catch_up()
    return other


async def test_second_reply_equals_the_first_whatever_came_in_between() -> None:
    stage = await _talked()
    record = stage.request(builders.request(**ASKED))
    await stage.responder.serve(record)
    for number in range(1, 5):
        await stage.post("turns", builders.turn(number, text=f"馄饨 again {number}"))
        await stage.post("documents", builders.document(0, text=f"馄饨 revision {number}"))
    await stage.embed_all()
    other = await _another_worker(stage)
    await other.responder.serve(record)
    first, second = stage.replies()
    assert second == first
    assert len(_answers(stage)) == 1
    later = await other.ask(builders.request(1, **ASKED))
    assert later["messages"] != first["messages"], "the memory has changed"


async def test_recorded_answer_is_used_though_embedder_and_presets_changed() -> None:
    stage = await _talked()
    record = stage.request(builders.request(preset="arpm", set={"experience.lambda_hours": 99.0}, **ASKED))
    await stage.responder.serve(record)
    other = await _another_worker(stage)
    other.embedder.away = True
    await other.responder.serve(record)
    first, second = stage.replies()
    assert second == first


async def test_record_that_is_old_is_read_from_the_journal() -> None:
    stage = await _talked()
    record = stage.request(builders.request(**ASKED))
    await stage.responder.serve(record)
    other = await _another_worker(stage)
    other.memory.recalls._recent.clear()

    async def read_at(partition: int, offset: int) -> Any:
        return other.log.read(PREFIX + "journal", partition, offset, 1)[0]

    other.memory.recalls.read_at = read_at
    await other.responder.serve(record)
    first, second = stage.replies()
    assert second == first


async def test_answer_that_is_not_folded_yet_is_waited_for() -> None:
    stage = await _talked()
    record = stage.request(builders.request(**ASKED))
    await stage.responder.serve(record)
    again = asyncio.ensure_future(stage.responder.serve(record))
    await _steps()
    assert (len(stage.replies()), again.done()) == (1, False)
    await stage.catch_up()
    await asyncio.wait_for(again, 5)
    first, second = stage.replies()
    assert (second, len(_answers(stage))) == (first, 1)


async def test_library_that_is_behind_the_recorded_answer_is_waited_for() -> None:
    stage = await _talked()
    record = stage.request(builders.request(**ASKED))
    await stage.responder.serve(record)
    other = Stage(log=stage.log)
    home = other.memory.shards[stage.home()]
    await other.memory.apply_journal(stage.home(), stage.log.read(PREFIX + "journal", home.state.partition))
    serving = asyncio.ensure_future(other.responder.serve(record))
    await _steps()
    assert not serving.done()
    await other.catch_up()
    await asyncio.wait_for(serving, 5)
    first, second = stage.replies()
    assert second == first


async def test_request_that_is_read_again_while_it_is_in_work_is_answered_once() -> None:
    stage = await _talked()
    record = stage.request(builders.request(after=["t-9"], **ASKED))
    first, second = (asyncio.ensure_future(stage.responder.serve(record)) for _ in range(2))
    await _steps()
    await stage.post("turns", builders.turn(9))
    await stage.embed_all()
    await asyncio.wait_for(asyncio.gather(first, second), 5)
    assert (len(stage.replies()), len(_answers(stage))) == (1, 1)


async def test_no_reply_leaves_before_its_event_is_acknowledged() -> None:
    stage = await _talked()
    steps: list[Any] = []
    held = stage.log.connect(steps.append)
    append = stage.log.append

    async def slow(outgoing: Outgoing) -> Any:
        return await (held.append(outgoing) if outgoing.topic == PREFIX + "journal" else append(outgoing))

    stage.log.append = slow  # type: ignore[method-assign]
    serving = asyncio.ensure_future(stage.responder.serve(stage.request(builders.request(**ASKED))))
    await _steps(50)
    assert (len(steps), stage.replies()) == (1, [])
    steps.pop(0)()  # written, not acknowledged
    await _steps(50)
    assert (len(_answers(stage)), stage.replies()) == (1, [])
    steps.pop(0)()
    await asyncio.wait_for(serving, 5)
    assert len(stage.replies()) == 1


async def test_request_that_is_forwarded_twice_is_one_recall() -> None:
    stage = await _talked()
    record = stage.request(builders.request(**ASKED), partition=(stage.home() + 1) % 3)
    for _ in range(2):  # killed between the forward and the commit
        await stage.responder.serve(record)
    copies = stage.log.read(PREFIX + "requests", stage.home())
    assert len(copies) == 2
    for copy in copies:
        await stage.responder.serve(copy)
        await stage.catch_up()
    first, second = stage.replies()
    assert second == first
    assert [event["source"]["partition"] for event in _answers(stage)] == [record.partition]


@pytest.mark.parametrize("value", [b"", b"1", b"1/2", b"a/b/c", b"1/2/3/4", "1/2/٣".encode(), b"1/2/" + b"9" * 30])
async def test_header_that_says_no_place_is_passed_over(value: bytes) -> None:
    stage = await _talked()
    given = (*builders.request_headers(), (headers.FORWARDED, value))
    reply = await stage.ask(builders.request(**ASKED), headers=given)
    assert reply["status"] == "ok"


async def test_header_that_names_another_requests_place_gets_no_answer_of_that_one() -> None:
    stage = await _talked()
    record = stage.request(builders.request(**ASKED))
    await stage.responder.serve(record)
    await stage.catch_up()
    place = headers.forwarded_header(record.partition, record.offset, record.timestamp)
    given = (*builders.request_headers(), (headers.FORWARDED, place))
    other = await stage.ask(builders.request(1, query="something else"), headers=given)
    assert (other["request_id"], other["status"]) == ("q-1", "ok")
    assert other["recall_id"] != stage.replies()[0]["recall_id"]


@pytest.mark.parametrize("waits_for", ["turn", "partition"])
async def test_open_request_of_a_lost_partition_ends_at_once_and_uncommitted(waits_for: str) -> None:
    stage = Stage()
    if waits_for == "partition":
        stage.memory.shards[stage.home()] = Shard(JournalState(stage.home(), stage.embedder.name))
    record = stage.request(builders.request(after=["t-0"]))
    serving = asyncio.ensure_future(stage.responder.serve(record))
    await _steps()
    stage.memory.lose(stage.home())
    with pytest.raises(PartitionLost):
        await asyncio.wait_for(serving, 5)
    assert (stage.replies(), stage.responder.open) == ([], 0)


async def test_answer_that_is_ready_in_a_rebalance_waits_for_its_outcome() -> None:
    stage = await _talked()
    shard = stage.memory.shards[stage.home()]
    embed = stage.embedder.embed

    async def embed_in_a_rebalance(*given: Any) -> Any:
        shard.held = False
        return await embed(*given)

    stage.embedder.embed = embed_in_a_rebalance  # type: ignore[method-assign]
    kept = asyncio.ensure_future(stage.responder.serve(stage.request(builders.request(**ASKED))))
    await _steps(50)
    assert (stage.replies(), _answers(stage)) == ([], [])
    shard.held = True
    await asyncio.wait_for(kept, 5)
    assert len(stage.replies()) == 1
    lost = asyncio.ensure_future(stage.responder.serve(stage.request(builders.request(1, **ASKED))))
    await _steps(50)
    stage.memory.lose(stage.home())
    with pytest.raises(PartitionLost):
        await asyncio.wait_for(lost, 5)
    assert (len(stage.replies()), len(_answers(stage))) == (1, 1)


async def test_partition_that_came_back_answers_what_was_read_anew() -> None:
    stage = Stage()
    record = stage.request(builders.request(after=["t-0"], query="馄饨"))
    old = asyncio.ensure_future(stage.responder.serve(record))
    await _steps()
    stage.memory.lose(stage.home())
    stage.hold(stage.home())
    new = asyncio.ensure_future(stage.responder.serve(record))
    await stage.post("turns", builders.turn(0))
    await stage.embed_all()
    with pytest.raises(PartitionLost):
        await asyncio.wait_for(old, 5)
    await asyncio.wait_for(new, 5)
    assert len(stage.replies()) == 1


async def test_log_that_is_away_leaves_neither_reply_nor_a_half_answer() -> None:
    stage = await _talked()
    record = stage.request(builders.request(**ASKED))

    async def away(self: InProcessLog, outgoing: Outgoing) -> Any:
        raise Unavailable("the log is away")

    stage.log.append = away.__get__(stage.log)  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await stage.responder.serve(record)
    del stage.log.append
    assert (stage.replies(), _answers(stage)) == ([], [])
    await stage.responder.serve(record)
    assert (len(stage.replies()), len(_answers(stage))) == (1, 1)
