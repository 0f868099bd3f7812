"""A reranker's opinion: counted, recorded, replayed without it; and never the cost of an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors import metrics
from connectors.inprocess import OverlapReranker
from schemas.codec import JOURNAL_EVENTS, decode_event
from schemas.recalls import RecallAnswered
from streams.core.answer import answer, moment_of
from streams.core.reranking import Opinion
from streams.core.settings import resolve
from tests import builders
from tests.streams.stage import PREFIX, Stage

TEXTS = ["the red tea is gone", "tea, tea, and more tea of the red sort", "red", "green tea"]
WEIGHT = {"rerank.weight": 0.9}
QUERY = "red tea"


class PreferringReranker(OverlapReranker):
    """Finds one text better than all others, whatever is asked."""

    name = "fond-of-green"

    async def rerank(self, query: str, documents: Any) -> list[float]:
        await super().rerank(query, documents)
        return [5.0 if "green" in text else -5.0 for text in documents]


async def staged(reranker: OverlapReranker | None = None) -> Stage:
    stage = Stage(rerank_timeout_ms=50)
    for number, text in enumerate(TEXTS):
        await stage.post("turns", builders.turn(number, text=text))
    await stage.embed_all()
    stage.memory.reranker = reranker
    return stage


def request(**given: Any) -> dict[str, Any]:
    return builders.request(**({"query": QUERY, "kind": "recall", "set": WEIGHT, "explain": True} | given))


def order(reply: dict[str, Any]) -> list[str]:
    return [item["text"] for item in reply["evidence"]]


def answered(stage: Stage) -> RecallAnswered:
    record = [r for r in stage.log.read_all(PREFIX + "journal") if b'"RecallAnswered"' in (r.value or b"")][-1]
    event = decode_event(record.value, JOURNAL_EVENTS)
    assert isinstance(event, RecallAnswered)
    return event


def count(outcome: str) -> float:
    return metrics.REGISTRY.get_sample_value("mnemolog_reranked_total", {"outcome": outcome}) or 0.0


async def test_opinion_moves_evidence_and_every_component_of_the_score_is_told() -> None:
    stage = await staged(PreferringReranker())
    before = count("ok")
    first = await stage.ask(request(set={}))
    assert order(first)[0] != "green tea"
    assert stage.memory.reranker.asked == [], "its opinion counts nothing by default, so it isn't asked"
    reply = await stage.ask(request())
    assert order(reply)[0] == "green tea"
    best = reply["evidence"][0]
    parts = best["parts"]
    assert best["score"] == pytest.approx(0.1 * parts["first_norm"] + 0.9 * parts["rerank_norm"], abs=2e-6)
    assert (parts["rerank"], parts["rerank_norm"]) == (5.0, 1.0)
    assert parts["first_score"] == next(i["score"] for i in first["evidence"] if i["text"] == "green tea")
    assert reply["explain"]["rerank"] == {"weight": 0.9, "scored": 4, "note": "scored by fond-of-green"}
    assert count("ok") == before + 1
    assert reply["timings_ms"]["rerank"] >= 0
    assert reply["config_digest"] != first["config_digest"]


async def test_recorded_opinion_gives_the_same_answer_without_the_reranker() -> None:
    stage = await staged(PreferringReranker())
    reply = await stage.ask(request(kind="assemble", preset="arpm"))
    event = answered(stage)
    assert event.rerank is not None
    assert set(event.rerank.values()) == {5.0, -5.0}
    state = stage.memory.shards[stage.home()].state
    moment = moment_of(state, stage.memory.library, event.request, event.source.timestamp or 0)
    vector = (await stage.embedder.embed([f"[User_u42][Assistant_lin] {QUERY}"], "query"))[0]
    again = answer(
        state, stage.memory.library, event.request, event.source, resolve("arpm", WEIGHT), vector,
        moment=moment, config=stage.memory.config, recorded_at=event.recorded_at, rerank=Opinion(event.rerank),
    )  # fmt: skip
    assert again.reply.messages_sha256 == reply["messages_sha256"] == event.messages_sha256
    assert [item.score for item in again.event.evidence] == [item.score for item in event.evidence]
    without = answer(
        state, stage.memory.library, event.request, event.source, resolve("arpm", WEIGHT), vector,
        moment=moment, config=stage.memory.config, recorded_at=event.recorded_at,
    )  # fmt: skip
    assert [item.id for item in without.event.evidence] != [item.id for item in event.evidence]


class RefusingReranker(OverlapReranker):
    async def rerank(self, query: str, documents: Any) -> list[float]:
        raise ValueError("reranker refused: 401")


def away() -> OverlapReranker:
    reranker = OverlapReranker()
    reranker.away = True
    return reranker


def late() -> OverlapReranker:
    reranker = OverlapReranker()
    reranker.delay = lambda: 3600.0
    return reranker


@pytest.mark.parametrize(
    ("made", "outcome", "told"),
    [
        (away, "away", "the reranker is away"),
        (late, "late", "no scores within 50 ms"),
        (RefusingReranker, "refused", "refused: 401"),
    ],
)
async def test_reranker_that_gives_nothing_costs_no_answer_and_is_told_and_counted(
    made: Any, outcome: str, told: str
) -> None:
    stage = await staged(made())
    before = count(outcome)
    plain = await stage.ask(request(set={}))
    reply = await asyncio.wait_for(stage.ask(request()), 5)
    assert (reply["status"], order(reply)) == ("ok", order(plain))
    assert told in reply["explain"]["rerank"]["note"]
    assert reply["explain"]["rerank"]["scored"] == 0
    assert count(outcome) == before + 1
    assert answered(stage).rerank is None


async def test_weight_without_a_reranker_is_explained() -> None:
    reply = await (await staged()).ask(request())
    assert reply["explain"]["rerank"]["note"] == "there is no reranker: the first search alone decides"


async def test_only_the_best_candidates_of_a_path_are_asked_about_and_the_rest_stay_below() -> None:
    reranker = PreferringReranker()
    stage = await staged(reranker)
    plain = order(await stage.ask(request(set={})))
    reply = await stage.ask(request(set={**WEIGHT, "rerank.candidates": 2}))
    ((query, documents),) = reranker.asked
    assert (query, set(documents)) == (QUERY, set(plain[:2]))
    assert order(reply)[2:] == plain[2:]
    scores = [item["score"] for item in reply["evidence"]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_empty_query_asks_nobody(query: str) -> None:
    reranker = OverlapReranker()
    reply = await (await staged(reranker)).ask(request(query=query))
    assert (reply["status"], reranker.asked) == ("ok", [])
