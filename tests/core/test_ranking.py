"""Recall over both paths: marks, limits, explanation, determinism."""

from typing import Any

import pytest

from schemas.recalls import Limits
from streams.core.knowledge import Knowledge
from streams.core.ranking import query_passage, recall
from streams.core.settings import resolve
from streams.core.visibility import Cut
from tests.core.memories import START_MS, experience, query, revision

NOW = Cut(10**9)


def recalled(asked: str = "馄饨", preset: str | None = None, *, explain: bool = False, **given: Any) -> Any:
    memory = experience(["昨天吃了馄饨", "I live in Paris", "馄饨不错", "今天又吃馄饨"])
    knowledge = Knowledge()
    knowledge.add_revision("d1", revision("馄饨是一种面食。", title="食谱"), 4, START_MS)
    knowledge.add_revision("d2", revision("馄饨配醋。", title="调料"), 5, START_MS)
    return recall(
        memory, knowledge, query(asked, **given), resolve(preset), NOW, NOW, journal_partition=3, explain=explain
    )


def test_evidence_is_marked_by_path_best_first_with_its_position() -> None:
    evidence = recalled().evidence
    assert [piece.mark for piece in evidence[:2]] == ["K1", "K2"]
    turns = [piece for piece in evidence if piece.path == "experience"]
    assert [piece.mark for piece in turns] == [f"E{number}" for number in range(1, len(turns) + 1)]
    assert [piece.score for piece in turns] == sorted((piece.score for piece in turns), reverse=True)
    assert {piece.position.topic: piece.position.partition for piece in evidence} == {"library": 0, "journal": 3}
    assert all(piece.rounds_ago == 12 - (piece.round or 0) for piece in turns)
    assert evidence[0].title in ("食谱", "调料")


def test_limits_hold_for_each_path_and_nought_means_none() -> None:
    assert {p.path for p in recalled(limits=Limits(knowledge=0, experience=1)).evidence} == {"experience"}
    assert len(recalled(limits=Limits(knowledge=1, experience=2)).evidence) == 3


@pytest.mark.parametrize(
    ("preset", "paths"),
    [
        ("no_history", {"knowledge"}),
        ("knowledge_only", {"knowledge"}),
        ("dialogue_only", set()),
        ("no_bm25", {"knowledge", "experience"}),
        ("no_vectors", {"knowledge", "experience"}),
        ("arpm", {"knowledge", "experience"}),
    ],
)
def test_presets_open_and_close_paths(preset: str, paths: set[str]) -> None:
    assert {piece.path for piece in recalled(preset=preset).evidence} == paths


def test_an_explanation_names_what_was_dropped_and_why() -> None:
    told = recalled(explain=True, limits=Limits(knowledge=1, experience=1)).explain
    assert told is not None
    dropped = told["paths"]["experience"]["dropped"]
    assert dropped[0]["reason"].startswith("ranked 2, limit 1; 0.")
    assert "behind the last kept, most of it" in dropped[0]["reason"]
    assert {"bm25", "w"} <= set(dropped[0]["parts"])
    assert told["vector"] is True
    assert recalled(explain=True, vector=None).explain["vector"] is False
    assert recalled().explain is None


def test_explaining_changes_no_evidence() -> None:
    assert recalled(explain=True).evidence == recalled().evidence


def test_equal_arguments_give_equal_evidence() -> None:
    assert recalled() == recalled()


def test_an_owner_without_experience_gets_knowledge() -> None:
    knowledge = Knowledge()
    knowledge.add_revision("d1", revision("馄饨是一种面食。"), 4, START_MS)
    found = recall(None, knowledge, query("馄饨"), resolve(), NOW, NOW, journal_partition=0, explain=True)
    assert [piece.mark for piece in found.evidence] == ["K1"]


@pytest.mark.parametrize("asked", ["", "👍", "the", "馄饨" * 50_000])
def test_odd_queries_give_an_answer(asked: str) -> None:
    for vector in ({}, {"vector": None}):
        recalled(asked, **vector)


def test_query_passage_by_preset() -> None:
    assert query_passage("Where is Ann?", ["Ann"], resolve()) == "Where is ?"
    assert query_passage("Where is Ann?", ["Ann"], resolve("arpm"), user="u", assistant="a").startswith("[User_u]")
    assert query_passage("Where is Ann?", ["Ann"], resolve(None, {"query.augment": "none"})) == "Where is Ann?"
    assert query_passage("", [], resolve("arpm"), user="u", assistant="a") == ""


def test_an_explanation_counts_what_was_never_ranked() -> None:
    told = recalled(explain=True, exclude=frozenset({"t0"})).explain["paths"]["experience"]["never_ranked"]
    assert told["the query's own turn"] == 1
    assert all(isinstance(count, int) and count > 0 for count in told.values())
