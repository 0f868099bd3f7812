"""Segments: each turn in one, closed by silence, size, a wish or the session's end, left by an extraction only."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streams.core.segmenting import IDLE_GAP_MS, WINDOW_TURNS, Segments, asks_to_remember, segment_id

MINUTE_MS = 60_000


def talk(segments: Segments, count: int, *, session: str = "s1", start: int = 0, gap_ms: int = MINUTE_MS) -> int:
    """``count`` turns of a session from an index on; the next index."""
    for index in range(start, start + count):
        at = index * gap_ms
        segments.turn(index, f"e{index}", session, at, at, remember=False)
    return start + count


def test_turns_of_a_session_share_a_segment_named_after_the_first() -> None:
    segments = Segments()
    talk(segments, 3)
    assert segments.open["s1"].id == segment_id("e0")
    assert segments.open["s1"].views == [0, 1, 2]
    assert segments.due == {}


def test_silence_in_event_time_closes_a_segment_of_any_session() -> None:
    segments = Segments()
    talk(segments, 2)
    segments.turn(2, "e2", "s2", MINUTE_MS + IDLE_GAP_MS, 0, remember=False)
    (due,) = segments.due.values()
    assert (due.session_id, due.reason, due.views) == ("s1", "idle", [0, 1])
    assert list(segments.open) == ["s2"]


def test_sessions_side_by_side_stay_apart() -> None:
    segments = Segments()
    for index in range(6):
        segments.turn(index, f"e{index}", f"s{index % 2}", index * MINUTE_MS, 0, remember=False)
    assert [segments.open[name].views for name in ("s0", "s1")] == [[0, 2, 4], [1, 3, 5]]


def test_long_segment_is_closed_at_its_size() -> None:
    segments = Segments()
    talk(segments, WINDOW_TURNS + 1)
    (due,) = segments.due.values()
    assert (due.reason, len(due.views)) == ("window", WINDOW_TURNS)
    assert segments.open["s1"].views == [WINDOW_TURNS]


def test_wish_to_remember_closes_at_once() -> None:
    segments = Segments()
    segments.turn(0, "e0", "s1", 0, 0, remember=True)
    assert [due.reason for due in segments.due.values()] == ["remember"]
    assert segments.open == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Remember this: I'm allergic to nuts", True),
        ("请记住我对花生过敏", True),
        ("請記住我對花生過敏", True),
        ("I had soup", False),
        ("", False),
    ],
)
def test_wish_to_remember_is_heard(text: str, expected: bool) -> None:
    assert asks_to_remember(text) is expected


def test_late_turn_closes_nothing() -> None:
    segments = Segments()
    talk(segments, 2)
    segments.turn(2, "e2", "s1", -10 * IDLE_GAP_MS, 0, remember=False)
    assert segments.due == {}


def test_turns_that_an_extraction_did_not_see_are_a_segment_of_their_own() -> None:
    segments = Segments()
    talk(segments, 5)
    segments.extracted(segments.open["s1"], 3, "e3")
    assert segments.open["s1"].id == segment_id("e3")
    assert segments.open["s1"].views == [3, 4]
    assert segments.find(segment_id("e0")) is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.sampled_from(["s1", "s2", "s3"]), st.integers(0, 2 * IDLE_GAP_MS), st.booleans()),
        st.tuples(st.just("extract"), st.integers(0, 5), st.integers(1, 50)),
        st.tuples(st.just("end"), st.sampled_from(["s1", "s2", "s3"])),
    ),
    max_size=120,
)


@given(STEPS)
def test_every_turn_is_in_one_segment_until_it_is_extracted(steps: list[Any]) -> None:
    segments, done, index, now = Segments(), [], 0, 0
    for step in steps:
        if step[0] == "turn":
            now += step[2]
            segments.turn(index, f"e{index}", step[1], now, now, remember=step[3])
            index += 1
        elif step[0] == "end":
            segments.close(step[1], "session_end")
        else:
            there = [*segments.due.values(), *segments.open.values()]
            if there:
                segment = there[step[1] % len(there)]
                turns = min(step[2], len(segment.views))
                rest = segment.views[turns:]
                done += segment.views[:turns]
                segments.extracted(segment, turns, f"e{rest[0]}" if rest else None)
        waiting = [view for s in (*segments.due.values(), *segments.open.values()) for view in s.views]
        assert sorted(waiting + done) == list(range(index))
        assert all(s.reason is None for s in segments.open.values())
        assert all(s.reason is not None for s in segments.due.values())
