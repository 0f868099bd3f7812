"""Spread: questions for several things take evidence from several places; other questions are untouched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.experience import Experience
from streams.core.settings import resolve
from streams.core.spread import REACH, TAKEN_MAX, asks_for_several, spread
from streams.core.visibility import Cut
from tests.core.memories import embedded, query, turn

SCORES = st.lists(st.floats(0, 1).map(lambda value: round(value, 4)), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("asked", "several"),
    [
        ("What instruments does Ann play?", True),
        ("Which European cities did Bo see?", True),
        ("What have Ann and Bo in common?", True),
        ("How many dogs has Ann?", True),
        ("她会哪些乐器？", True),
        ("你们都去过哪里？", True),
        ("What is his job?", False),
        ("What does Ann do?", False),
        ("Where does she live?", False),
        ("她住在哪里？", False),
        ("", False),
    ],
)
def test_words_tell_whether_several_things_are_asked_for(asked: str, several: bool) -> None:
    assert asks_for_several(asked) is several


@given(SCORES, st.floats(0, 1))
def test_the_order_of_what_is_left_is_the_order_in_which_it_is_taken(scores: list[float], step: float) -> None:
    score, ids = np.array(scores), np.arange(len(scores)) * 2
    lost = spread(score, ids, ["s"] * len(scores), step)
    assert (lost <= 0).all()
    assert lost[len(scores) - 1 - int(np.argmax(score[::-1]))] == 0
    if step == 0:
        assert not lost.any()


def test_only_turns_of_the_session_within_reach_lose() -> None:
    ids = np.arange(REACH + 3)
    score = np.linspace(1.0, 0.9, len(ids))
    lost = spread(score, ids, ["a", "b", *["a"] * REACH, "c"], 0.0001)
    assert lost[0] == lost[1] == lost[-1] == 0
    assert lost[2] == pytest.approx(-0.0001 / 2)


def test_what_comes_after_the_last_that_is_taken_loses_nothing_more() -> None:
    count = TAKEN_MAX + 5
    far = np.append(np.arange(count) * 10, count * 10 + 1)
    score = np.append(np.linspace(1.0, 0.5, count), 0.1)
    assert not spread(score, far, ["s"] * (count + 1), 0.2).any()


def test_a_second_place_is_found_before_the_neighbours_of_the_first() -> None:
    memory = Experience()
    said = ["Ann plays the cello", "the cello is old", "the cello is brown", *["nothing"] * 30, "Ann plays chess"]
    for index, line in enumerate(said):
        memory.append(turn(2 * index, line))
        memory.embed(f"t{2 * index}", embedded(line), 2 * index + 1)
    for asked, loses in (("what games and cello things does Ann play?", True), ("does Ann play the cello?", False)):
        parts = [c.parts for c in memory.search(query(asked), resolve(), Cut(10**9)).candidates]
        assert any(part.get("spread", 0) < 0 for part in parts) is loses
        assert ("spread" in parts[0]) is loses
    off = resolve(None, {"experience.spread": 0.0})
    assert "spread" not in memory.search(query("what games does Ann play?"), off, Cut(10**9)).candidates[0].parts
