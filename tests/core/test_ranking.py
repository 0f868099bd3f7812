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


def _score(parts: dict[str, float]) -> float:
    """The score that the parts of a piece of evidence make, as the modules of the paths state it."""
    biased = parts["base"] + sum(parts.get(bias, 0.0) for bias in ("b_session", "b_user", "b_character", "b_source"))
    return biased * parts.get("w", 1.0) + parts.get("correction", 0.0)


def _z(parts: dict[str, float], settings: Any) -> float:
    """The z-sum that the parts of a turn make."""
    weights = {"z_bm25": settings.bm25_weight, "z_vector": settings.vector_weight}
    weights |= {"z_neighbours": settings.neighbour_weight}
    weights |= dict.fromkeys(("bonus_speaker", "bonus_when", "time_match", "malus_question"), 1.0)
    return sum(weight * parts.get(name, 0.0) for name, weight in weights.items())


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("balanced", {}),
        ("arpm", {}),
        ("no_temporal", {}),
        ("no_bm25", {}),
        ("no_vectors", {}),
        ("balanced", {"experience.fusion": "rrf", "knowledge.fusion": "zsum", "experience.b_session": 0.2}),
        ("arpm", {"knowledge.b_source": 0.5, "experience.floor": 0.3}),
    ],
)
@pytest.mark.parametrize("asked", ["馄饨", "When did t0 eat 馄饨 on 2026-05-20?", "食谱 Paris"])
def test_parts_are_all_that_a_score_is_made_of(preset: str, changed: dict[str, Any], asked: str) -> None:
    settings = resolve(preset, changed)
    memory = experience(
        ["昨天吃了馄饨", "I live in Paris", "馄饨不错", "今天又吃馄饨，不吃面了", "你吃馄饨吗？", "7 May"]
    )
    knowledge = Knowledge()
    knowledge.add_revision("d1", revision("馄饨是一种面食。", title="食谱"), 4, START_MS)
    knowledge.add_revision("d2", revision("馄饨配醋。", title="调料", role_id="lin"), 5, START_MS)
    limits = Limits(knowledge=1, experience=2)
    found = recall(
        memory, knowledge, query(asked, session_id="s1", limits=limits), settings, NOW, NOW,
        journal_partition=3, explain=True,
    )  # fmt: skip
    assert found.explain is not None
    told = [(piece.path, piece.score, piece.parts) for piece in found.evidence]
    for path, explained in found.explain["paths"].items():
        told += [(path, candidate["score"], candidate["parts"]) for candidate in explained["dropped"]]
    assert len(told) > 3
    turns = found.explain["paths"]["experience"]
    for path, score, parts in told:
        assert score == pytest.approx(_score(parts), abs=1e-5), (path, parts)
        if path == "experience" and settings.experience.fusion == "zsum":
            assert parts["z"] == pytest.approx(_z(parts, settings.experience), abs=1e-5)
            span = turns["z_best"] - turns["z_background"]
            if span > 0:
                above = min(1.0, max(0.0, (parts["z"] - turns["z_background"]) / span))
                assert parts["base"] == pytest.approx(above, abs=1e-4)


def test_every_entry_that_was_looked_at_is_accounted_for() -> None:
    memory = experience([f"馄饨 {number}" for number in range(150)])
    knowledge = Knowledge()
    for number in range(120):
        knowledge.add_revision(f"d{number}", revision(f"馄饨 {number}"), number, START_MS)
    knowledge.add_revision("d0", revision("面条"), 120, START_MS)
    asked = query("馄饨", limits=Limits(knowledge=3, experience=4), exclude=frozenset({"t298"}))
    found = recall(memory, knowledge, asked, resolve(), NOW, NOW, journal_partition=0, explain=True)
    assert found.explain is not None
    for path, kept, everything in (("experience", 4, 150), ("knowledge", 3, 121)):
        told = found.explain["paths"][path]
        assert len(told["dropped"]) == 50
        assert told["ranked"] == kept + len(told["dropped"]) + told["ranked_unlisted"]
        assert told["ranked"] + sum(told["never_ranked"].values()) == everything
    assert found.explain["paths"]["knowledge"]["never_ranked"]["removed or replaced by then"] == 1
