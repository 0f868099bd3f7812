"""Corrections: what tells that a newer turn corrects an older one, chains of them, and what is left where it is."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import text
from streams.core.bm25 import Postings
from streams.core.corrections import CORRECTION_POOL, Pool, Words, asks_for_now, best_of, lifted
from streams.core.settings import resolve
from streams.core.visibility import Cut
from tests.core.memories import HOUR_MS, START_MS, experience, query

SIMILARITY = resolve().experience.correction_similarity
FLOATS = st.floats(0, 1).map(lambda value: round(value, 3))
TALE = "so we drove along the coast and ate in a small harbour and then walked back under the stars until it was late "


def pool(said: list[str], asked: str = "where do I live?", **given: Any) -> Pool:
    """Turns of one user, all as near the query as each other, half alike."""
    postings = Postings()
    for line in said:
        postings.add(text.tokens(line))
    for number in range(200):
        postings.add([f"filler{number}"])
    count = len(said)
    values: dict[str, Any] = {
        "query": asked,
        "score": np.linspace(1.0, 0.8, count),
        "nearness": np.full(count, 2.0),
        "alike": np.full((count, count), 0.5),
        "users": np.ones(count, dtype=bool),
        "changing": np.array([text.tells_change(line) for line in said], dtype=bool),
        "asking": np.array([text.is_question(line) for line in said], dtype=bool),
        "words": Words(postings, len(postings), np.arange(count), said),
    }
    return Pool(**{**values, **given})


def test_a_correction_gets_the_score_of_what_it_corrects() -> None:
    assert lifted(pool(["I live in Paris", "I live in Rome now"]), SIMILARITY).tolist() == [1.0, 1.0]


def test_a_score_is_carried_along_a_chain() -> None:
    said = ["I live in Paris", "I moved from Paris to Rome", "I moved from Rome to Oslo"]
    alike = np.array([[1.0, 0.6, 0.1], [0.6, 1.0, 0.6], [0.1, 0.6, 1.0]])
    assert lifted(pool(said, alike=alike), SIMILARITY).tolist() == [1.0, 1.0, 1.0]


def test_a_turn_has_one_correction_the_likeliest() -> None:
    said = ["I live in Paris", "I live in Rome now", "I like the weather here"]
    alike = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.1], [0.3, 0.1, 1.0]])
    found = lifted(pool(said, alike=alike), SIMILARITY)
    assert found[1] == 1.0
    assert found[2] == 0.8


FAR = {"nearness": np.array([2.0, 0.2]), "score": np.array([1.0, 0.4])}


@pytest.mark.parametrize(
    ("said", "asked", "given"),
    [
        (["I live in Paris", "I live in Rome now"], "where do I live?", {"users": np.array([True, False])}),
        (["I live in Paris", "I live in Rome now"], "where do I live?", {"alike": np.eye(2)}),
        (["I live in Paris", "shall I live in Rome now?"], "where did I live?", {}),
        (["I live in Paris", TALE * 8], "where do I live?", {}),
        ([TALE * 8, "I live in Rome now"], "where do I live?", {}),
        (["my dog sleeps a lot", "my cat sleeps a lot"], "what does my dog do?", FAR),
        (["order A1234 is late", "order B9876 is late now"], "where is A1234?", {}),
    ],
    ids=["other speaker", "unlike", "question", "newer is a tale", "older is a tale", "other subject", "other code"],
)
def test_what_is_no_correction_stays_where_it_is(said: list[str], asked: str, given: dict[str, Any]) -> None:
    waiting = pool(said, asked, **given)
    assert lifted(waiting, SIMILARITY).tolist() == waiting.score.tolist()


def test_repeating_what_only_the_older_said_tells_a_correction_that_is_far_from_the_query() -> None:
    far = {"nearness": np.array([2.0, 0.5]), "score": np.array([1.0, 0.2])}
    for newer, rises in (("I quit being a nurse", True), ("I quit being a baker", False)):
        found = lifted(pool(["I work as a nurse", newer], "what do I work as?", **far), SIMILARITY)
        assert bool(found[1] == 1.0) is rises


def test_what_ranks_far_below_the_best_has_no_correction() -> None:
    said = ["it rained", "I live in Paris", "I live in Rome now"]
    alike = np.array([[1.0, 0, 0], [0, 1.0, 0.8], [0, 0.8, 1.0]])
    waiting = pool(said, score=np.array([1.0, 0.6, 0.5]), alike=alike)
    assert lifted(waiting, SIMILARITY).tolist() == [1.0, 0.6, 0.5]


@pytest.mark.parametrize(
    ("asked", "now"),
    [("我住在哪里？", 1.5), ("她住在哪里？", 1.0), ("她以前住在哪里？", 0.0), ("Where was my flat?", 0.5), ("", 1.0)],
)
def test_a_query_tells_whether_it_asks_for_now(asked: str, now: float) -> None:
    assert asks_for_now(asked) == now


@given(
    st.lists(
        st.tuples(
            FLOATS, st.floats(-3, 3), st.booleans(), st.sampled_from(["I live in Paris", "not in Paris now", ""])
        ),
        max_size=8,
    ),
    st.data(),
)
def test_scores_only_rise_and_never_above_the_best(turns: list[tuple[float, float, bool, str]], data: st.DataObject):
    count = len(turns)
    flat = data.draw(st.lists(st.floats(-1, 1), min_size=count * count, max_size=count * count))
    square = np.array(flat).reshape(count, count)
    waiting = pool(
        [turn[3] for turn in turns],
        score=np.array([turn[0] for turn in turns]),
        nearness=np.array([turn[1] for turn in turns]),
        users=np.array([turn[2] for turn in turns], dtype=bool),
        alike=(square + square.T) / 2,
    )
    found = lifted(waiting, SIMILARITY)
    assert (found >= waiting.score).all()
    assert set(found.tolist()) <= set(waiting.score.tolist())
    assert not count or found.max() == waiting.score.max()


def test_only_the_best_with_a_vector_are_compared() -> None:
    count = CORRECTION_POOL + 10
    vector_ids = np.arange(count) - 1
    best = best_of(np.arange(count), np.linspace(1.0, 0.0, count), vector_ids)
    assert best.tolist() == list(range(1, CORRECTION_POOL))


def test_an_explanation_tells_what_a_correction_won() -> None:
    older, newer = "my flat is near the river in Paris", "my flat is by a park in Rome, not in Paris"
    said = ["hello there", older, *[f"word{n} thing{n}" for n in range(40)], newer]
    ask = query("where is my flat, is it near the river?", now_ms=START_MS + 200 * HOUR_MS)
    found = {c.text: c for c in experience(said).search(ask, resolve(), Cut(10**9)).candidates}
    assert found[newer].parts["correction"] > 0 == found[older].parts["correction"]
    assert found[newer].score == found[older].score
    off = experience(said).search(ask, resolve(None, {"experience.correction_similarity": 1.0}), Cut(10**9))
    assert not any("correction" in candidate.parts for candidate in off.candidates)
