"""Another embedder: what is in memory is embedded anew as recorded effects, searched when complete, never mixed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.inprocess import HashEmbedder
from connectors.ports import EmbedderChanged
from schemas.codec import JOURNAL_EVENTS, LIBRARY_EVENTS, decode_event
from streams.core.conversation import JournalState
from streams.core.library import LibraryState
from streams.core.snapshot import restored, sections
from tests import builders
from tests.streams.stage import PREFIX, Stage

KEY = ("u42", "lin")
TEXTS = ("I moved to Lisbon", "my cat is called Mi", "吃了馄饨", "the tram was late")
ASKED = {"kind": "recall", "query": "what is my cat called", "explain": True}


def old() -> HashEmbedder:
    return HashEmbedder("a#1", 8)


def new() -> HashEmbedder:
    return HashEmbedder("b#2", 16)


async def talked(documents: int = 0) -> Stage:
    """A stage whose turns and documents have vectors of the old embedder."""
    stage = Stage(embedder=old())
    for number, text in enumerate(TEXTS):
        await stage.post("turns", builders.turn(number, text=text))
    for number in range(documents):
        await stage.post("documents", builders.document(number, text=f"document {number} on cats and wontons"))
    await stage.embed_all()
    return stage


async def restarted(before: Stage, embedder: HashEmbedder, previous: HashEmbedder | None = None) -> Stage:
    """A worker with another embedder on the same log, that has read everything and computed nothing."""
    stage = Stage(embedder=embedder, log=before.log, embed_batch=2)
    stage.memory.previous = previous
    await stage.catch_up()
    return stage


async def embed_some(stage: Stage, turns: int) -> None:
    """Let effects be written until so many turns have new vectors, then kill the worker."""
    shard = stage.memory.shards[stage.home()]
    waiting = sum(map(len, shard.state.outdated.values()))
    while waiting - sum(map(len, shard.state.outdated.values())) < turns:
        await stage.memory._embed(stage.memory._next_batch()[:1])
        await stage.catch_up()
        shard.in_work.clear()


def uses(stage: Stage) -> list[str]:
    owner = stage.memory.shards[stage.home()].state.owners[KEY]
    return [name for _, name in owner.experience.vectors.uses.until(10**9)]


def engines(reply: dict[str, Any], path: str = "experience") -> list[str]:
    found: list[str] = reply["explain"]["paths"][path]["engines"]
    return found


async def test_words_decide_until_all_turns_have_new_vectors_and_then_these_do() -> None:
    stage = await restarted(await talked(), new())
    reply = await stage.ask(builders.request(**ASKED))
    assert engines(reply) == ["bm25"]
    assert reply["explain"]["embedder"]["experience"] == "a#1"
    assert reply["explain"]["embedder"]["notes"] == [
        "experience is matched by words only: its vectors in use at that point are of a#1, and a query can't be "
        "compared with them that b#2 embedded"
    ]
    await embed_some(stage, len(TEXTS) - 1)
    assert uses(stage) == ["a#1"], "one turn is still missing"
    assert engines(await stage.ask(builders.request(**ASKED))) == ["bm25"]
    await stage.embed_all()
    assert uses(stage) == ["a#1", "b#2"]
    reply = await stage.ask(builders.request(**ASKED))
    assert engines(reply) == ["bm25", "vectors"]
    assert "notes" not in reply["explain"]["embedder"]


async def test_old_vectors_answer_until_the_switch_where_the_old_endpoint_is_still_there() -> None:
    stage = await restarted(await talked(), new(), previous=old())
    before = await stage.ask(builders.request(**ASKED))
    assert engines(before) == ["bm25", "vectors"]
    await embed_some(stage, 2)
    during = await stage.ask(builders.request(**ASKED))
    assert [(e["id"], e["score"], e["parts"]) for e in during["evidence"]] == [
        (e["id"], e["score"], e["parts"]) for e in before["evidence"]
    ], "half of the new vectors change nothing"
    await stage.embed_all()
    await stage.ask(builders.request(**ASKED))
    recorded = [event["query_embedder"] for event in stage.events() if event["type"] == "RecallAnswered"]
    assert recorded == ["a#1", "a#1", "b#2"]


async def test_point_before_the_switch_is_answered_from_the_old_vectors_or_says_that_it_is_not() -> None:
    stage = await talked()
    then = stage.memory.shards[stage.home()].state.watermark
    body = builders.request(**ASKED, as_of={"offset": then})
    original = await stage.ask(body)
    later = await restarted(stage, new(), previous=old())
    await later.embed_all()
    again = await later.ask(body)
    assert [(e["id"], e["score"]) for e in again["evidence"]] == [(e["id"], e["score"]) for e in original["evidence"]]
    assert engines(again) == ["bm25", "vectors"]
    later.memory.previous = None
    alone = await later.ask(body)
    assert engines(alone) == ["bm25"]
    assert alone["explain"]["embedder"]["notes"][0].startswith("experience is matched by words only")


async def test_embedders_of_one_dimension_are_not_mixed_either() -> None:
    stage = await restarted(await talked(), HashEmbedder("c#3", 8))
    assert engines(await stage.ask(builders.request(**ASKED))) == ["bm25"]
    await embed_some(stage, 1)
    assert engines(await stage.ask(builders.request(**ASKED))) == ["bm25"]


@pytest.mark.parametrize("embedded", [1, 2, 3])
async def test_kill_in_between_goes_on_where_it_was(embedded: int) -> None:
    first = await restarted(await talked(), new())
    await embed_some(first, embedded)
    second = await restarted(first, new())
    assert len(second.memory.shards[second.home()].state.outdated[KEY]) == len(TEXTS) - embedded
    await second.embed_all()
    assert uses(second) == ["a#1", "b#2"]
    causes = [event["causation_id"] for event in second.events() if event.get("embedder") == "b#2"]
    assert sorted(causes) == sorted(set(causes)), "nothing was embedded twice"


async def test_switch_is_the_same_in_every_worker_and_in_a_snapshot() -> None:
    stage = await restarted(await talked(2), new())
    await stage.embed_all()
    live = stage.memory.shards[stage.home()].state
    for wanted in ("b#2", "a#1"):
        fresh = JournalState(stage.home(), wanted)
        for record in stage.log.read(PREFIX + "journal", stage.home()):
            fresh.apply(record.offset, decode_event(record.value, JOURNAL_EVENTS))
        uses_of = fresh.owners[KEY].experience.vectors.uses.until(10**9)
        assert uses_of == live.owners[KEY].experience.vectors.uses.until(10**9)
    again = restored(sections(live))
    assert again.digest() == live.digest()
    library = LibraryState("b#2")
    for record in stage.log.read(PREFIX + "library", 0):
        library.apply(record.offset, decode_event(record.value, LIBRARY_EVENTS))
    assert library.digest() == stage.memory.library.digest()


async def test_turns_of_the_meantime_come_before_the_old_ones() -> None:
    stage = await restarted(await talked(), new())
    await stage.post("turns", builders.turn(9, text="my cat sleeps"))
    await stage.catch_up()
    batch = [turn_id for _, _, turn_id in stage.memory._next_batch()]
    assert batch == ["t-9", "t-0"]


async def test_new_owner_is_answered_from_new_vectors_at_once() -> None:
    stage = await restarted(await talked(), new())
    turn = builders.turn(0, user_id="u7", text="my dog is called Bo")
    await stage.post("turns", turn, partition=stage.home("u7"))
    await stage.embed_all()
    reply = await stage.ask(builders.request(user_id="u7", query="what is my dog called", kind="recall", explain=True))
    assert engines(reply) == ["bm25", "vectors"]


async def test_text_that_the_new_embedder_refuses_does_not_hold_up_the_switch() -> None:
    stage = await restarted(await talked(2), new())
    stage.embedder.refuses = lambda text: "馄饨" in text or "document 1" in text
    await stage.embed_all()
    assert stage.broken == []
    assert (uses(stage), stage.memory.library.outdated) == (["a#1", "b#2"], {})
    reply = await stage.ask(builders.request(query="馄饨", kind="recall"))
    assert "t-2" in [item["turn_id"] for item in reply["evidence"]], "words still find it"


async def test_embedder_that_refuses_everything_is_not_taken_for_complete() -> None:
    stage = await restarted(await talked(1), new())
    stage.embedder.refuses = lambda text: True
    await stage.embed_all()
    assert uses(stage) == ["a#1"]
    assert stage.memory.library.knowledge.uses.newest == "a#1"
    assert not any(event.get("embedder") == "b#2" for event in stage.events() + stage.events("library"))


async def test_change_back_uses_the_old_vectors_again_though_nothing_is_left_to_embed() -> None:
    second = await restarted(await talked(1), new())
    await second.embed_all()
    third = await restarted(second, old())
    await third.embed_all()
    assert uses(third) == ["a#1", "b#2", "a#1"]
    await third.embed_all()
    reply = await third.ask(builders.request(**ASKED))
    assert (engines(reply), engines(reply, "knowledge")) == (["bm25", "vectors"], ["bm25", "vectors"])
    assert third.embedder.calls == 1, "only the query was embedded"


async def test_documents_are_embedded_anew_and_searched_when_all_are() -> None:
    stage = await restarted(await talked(3), new(), previous=old())
    library = stage.memory.library
    before = await stage.ask(builders.request(query="cats", kind="recall", explain=True))
    assert engines(before, "knowledge") == ["bm25", "vectors"]
    for left in (2, 1):
        await stage.memory.reembedding.step()
        await stage.catch_up()
        assert (len(library.outdated), library.knowledge.uses.newest) == (left, "a#1")
        during = await stage.ask(builders.request(query="cats", kind="recall", explain=True))
        assert [(e["id"], e["score"]) for e in during["evidence"]] == [
            (e["id"], e["score"]) for e in before["evidence"]
        ]
    offset = stage.log.end(PREFIX + "library", 0)
    await stage.embed_all()
    assert library.knowledge.uses.until(10**9)[-1] == (offset, "b#2")
    after = await stage.ask(builders.request(query="cats", kind="recall", explain=True))
    assert engines(after, "knowledge") == ["bm25", "vectors"]
    assert {e["id"] for e in after["evidence"]} == {e["id"] for e in before["evidence"]}, "passages keep their ids"


async def test_killed_worker_embeds_only_the_parts_of_a_document_that_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streams.reembedding.CHILDREN_PER_PART", 2)
    stage = Stage(embedder=old())
    await stage.post("documents", builders.document(0, text="\n\n".join(f"cats {n} " + "word " * 80 for n in range(9))))
    first = await restarted(stage, new())
    passages = len(first.memory.library.outdated["d-0"].passages)
    parts = -(-passages // 2)
    assert parts > 2
    for _ in range(2):
        assert await first.memory.reembedding.step()
    second = await restarted(first, new())
    await second.embed_all()
    numbers = [event["part"] for event in second.events("library") if event["type"] == "ChunksEmbedded"]
    assert numbers == list(range(parts))
    assert second.memory.library.knowledge.uses.newest == "b#2"


async def test_document_that_changes_or_goes_while_it_is_embedded_is_left_alone() -> None:
    stage = await restarted(await talked(3), new())
    part = stage.memory.reembedding._next()
    assert part is not None
    part.vectors += ["AAAAAAAAAAAAAAAAAAAAAA=="] * len(part.passages)
    await stage.post("documents", builders.document(0, text="something else about cats"))
    await stage.post("documents", builders.document(1, deleted=True))
    await stage.catch_up()
    await stage.memory.reembedding._append(part)
    await stage.embed_all()
    assert (stage.memory.library.outdated, stage.memory.library.knowledge.uses.newest) == ({}, "b#2")


async def test_only_the_holder_of_partition_0_embeds_documents() -> None:
    stage = await restarted(await talked(1), new())
    stage.memory.lose(0)
    assert not await stage.memory.reembedding.step()
    assert stage.memory.reembedding.outstanding == 1


async def test_dimension_that_changes_while_running_ends_the_worker_with_one_sentence() -> None:
    stage = await restarted(await talked(), new())

    async def changed(*_: Any) -> Any:
        raise EmbedderChanged("the embedder gave 1 vectors of 8 dimensions, expected 16")

    stage.embedder.embed = changed  # type: ignore[method-assign]
    stage.memory.start()
    stage.memory.poke()
    for _ in range(5):
        await asyncio.sleep(0)
    await stage.memory.stop()
    assert [str(error) for error in stage.broken] == ["the embedder gave 1 vectors of 8 dimensions, expected 16"]
