"""Memory under faults: effects are never forgotten, and a log that can't be read stops the worker."""

import asyncio

import orjson
import pytest

from connectors.inprocess import HashEmbedder
from connectors.ports import Outgoing, Unavailable
from schemas.codec import encode
from tests import builders
from tests.streams.stage import PREFIX, Stage


async def _run_effects(stage: Stage, steps: int = 30) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    await stage.catch_up()


async def test_turn_whose_effect_could_not_be_written_is_embedded_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.serving.RETRY_S", (0.0,))
    stage = Stage()
    await stage.post("turns", builders.turn(0))
    await stage.catch_up()
    stage.log.away = True
    stage.memory.start()
    await _run_effects(stage)
    stage.log.away = False
    for _ in range(5):
        await _run_effects(stage)
    await stage.memory.stop()
    assert not stage.memory.shards[stage.home()].state.unembedded


async def test_text_that_the_embedder_refuses_stops_neither_worker_nor_other_turns() -> None:
    stage = Stage()
    stage.embedder.refuses = lambda text: "unspeakable" in text
    for number, text in enumerate(["one", "unspeakable", "three"]):
        await stage.post("turns", builders.turn(number, text=text))
    await stage.catch_up()
    stage.memory.start()
    for _ in range(10):
        await _run_effects(stage)
    calls = stage.embedder.calls
    await _run_effects(stage)
    await stage.memory.stop()
    assert stage.broken == []
    assert [turn_id for _, turn_id in stage.memory.shards[stage.home()].state.unembedded] == ["t-1"]
    assert stage.embedder.calls == calls, "a refused text is not tried again and again"
    stage.embedder.refuses = lambda text: False
    reply = await stage.ask(builders.request(query="unspeakable"))
    assert reply["evidence"][0]["turn_id"] == "t-1", "words still find it"


async def test_event_of_a_newer_version_stops_the_worker() -> None:
    stage = Stage()
    event = orjson.loads(encode(builders.turn_recorded(0))) | {"version": 2}
    stage.put("journal", event, partition=stage.home())
    with pytest.raises(ValueError, match="version"):
        await stage.catch_up()
    assert [str(error) for error in stage.broken] == ["`version` of TurnRecorded is 2; this program reads 1 to 1"]


@pytest.mark.parametrize(
    "value",
    [
        b"not json",
        None,
        b'{"type": []}',
        b'{"type": {"a": 1}}',
        b'{"type": "FromTheFuture", "version": 7}',
        b'{"type": "TurnRecorded", "version": 1}',
    ],
)
async def test_event_that_nobody_can_read_is_passed_over(value: bytes | None) -> None:
    stage = Stage()
    stage.put("journal", value, partition=stage.home())
    stage.put("library", value)
    await stage.post("turns", builders.turn(0))
    await stage.catch_up()
    state = stage.memory.shards[stage.home()].state
    assert (state.next_offset, list(state.owners["u42", "lin"].turns)) == (2, ["t-0"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recorded_at", "2026-02-30T00:00:00Z"),
        ("occurred_at", "0001-01-01T00:00:00Z"),
        ("occurred_at", "２０２６-01-01T00:00:00Z"),
    ],
)
@pytest.mark.parametrize("kind", ["TurnRecorded", "TurnEmbedded"])
async def test_journal_event_with_a_time_that_does_not_exist_is_passed_over(kind: str, name: str, value: str) -> None:
    stage = Stage()
    recorded = builders.turn_recorded(0)
    event = recorded if kind == "TurnRecorded" else builders.turn_embedded(recorded, [1] * 64)
    stage.put("journal", orjson.loads(encode(event)) | {name: value}, partition=stage.home())
    await stage.catch_up()
    assert stage.memory.shards[stage.home()].state.owners == {}
    assert stage.broken == []


@pytest.mark.parametrize("vector", ["a", "!!!!", "", "AAECAw"])
async def test_vector_that_is_none_leaves_the_turn_to_be_embedded(vector: str) -> None:
    stage = Stage()
    await stage.post("turns", builders.turn(0))
    recorded = builders.turn_recorded(0)
    event = orjson.loads(encode(builders.turn_embedded(recorded, [1] * 64))) | {"vector": vector}
    stage.put("journal", event, partition=stage.home())
    await stage.embed_all()
    owner = stage.memory.shards[stage.home()].state.owners["u42", "lin"]
    (turns, offsets) = owner.experience.vectors.newest.arrivals(99)
    assert (turns.tolist(), offsets.tolist()) == ([0], [2])


async def test_vector_of_another_dimension_is_passed_over_whole() -> None:
    stage = Stage()
    for number in range(2):
        await stage.post("turns", builders.turn(number))
    await stage.catch_up()
    state = stage.memory.shards[stage.home()].state
    for number, dimension in ((0, 64), (1, 3)):
        event = builders.turn_embedded(builders.turn_recorded(number), [1] * dimension)
        stage.put("journal", encode(event), partition=stage.home())
    await stage.catch_up()
    assert [turn_id for _, turn_id in state.unembedded] == ["t-1"]


@pytest.mark.parametrize(("part", "parts"), [(5, 1), (-1, 1), (0, 0), (0, -3)])
async def test_part_outside_its_document_is_passed_over(part: int, parts: int) -> None:
    stage = Stage()
    await stage.post("documents", builders.document(0))
    event = stage.events("library")[0]
    stage.put("library", event | {"document_id": "d-9", "causation_id": "c", "part": part, "parts": parts})
    await stage.post("documents", builders.document(1, text="shepherd's purse grows wild"))
    await stage.catch_up()
    assert stage.memory.library.next_offset == 3
    reply = await stage.ask(builders.request(query="shepherd's purse wild"))
    assert {item["document_id"] for item in reply["evidence"]} == {"d-0", "d-1"}


@pytest.mark.parametrize("vector", ["a", "", "AAECAw=="])
async def test_passage_with_a_vector_that_is_none_is_found_by_its_words(vector: str) -> None:
    stage = Stage()
    await stage.post("documents", builders.document(0))
    event = stage.events("library")[0]
    event["parents"][0]["children"][0]["vector"] = vector
    stage.put("library", event | {"document_id": "d-9", "causation_id": "c", "event_id": "e"})
    await stage.catch_up()
    reply = await stage.ask(builders.request(query="Wontons are boiled"))
    assert {item["document_id"] for item in reply["evidence"]} == {"d-0", "d-9"}


async def test_two_workers_that_refuse_the_same_conflict_bury_it_under_one_id() -> None:
    stages = Stage(), Stage()
    for stage in stages:
        await stage.post("turns", builders.turn(0))
        await stage.post("turns", builders.turn(0, text="something else"))
        await stage.post("turns", builders.turn(0, text="something else"))
        await stage.embed_all()
    ids = [[letter["dead_letter_id"] for letter in stage.letters()] for stage in stages]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 1
    assert stages[0].letters()[0]["error"]["code"] == "conflicting_duplicate"


async def test_state_of_another_embedder_counts_only_its_own_vectors() -> None:
    stage = Stage()
    await stage.post("turns", builders.turn(0))
    foreign = builders.turn_embedded(builders.turn_recorded(0), [1] * 8, embedder="other#1")
    await (await stage.log.append(Outgoing(PREFIX + "journal", encode(foreign), partition=stage.home())))
    await stage.embed_all()
    owner = stage.memory.shards[stage.home()].state.owners["u42", "lin"]
    assert owner.experience.vectors.newest.vectors.dimension == HashEmbedder().dimension


async def test_absence_of_the_log_reaches_the_caller_of_serve() -> None:
    stage = Stage()
    record = stage.request(builders.request())
    stage.log.away = True
    with pytest.raises(Unavailable):
        await stage.responder.serve(record)
