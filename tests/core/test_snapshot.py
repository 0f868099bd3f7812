"""A snapshot and what follows it equal the whole journal: for random journals, at any point, while others fold on."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.envelope import derived_id, instant_of
from schemas.feedback import FeedbackRecorded
from schemas.positions import Position, Watermark
from schemas.recalls import Limits, RecallAnswered, Request
from schemas.turns import TurnEmbedded, TurnRecorded, TurnRefused
from streams.core import settings as presets
from streams.core.candidates import RecallQuery
from streams.core.conversation import JournalState
from streams.core.experience import Cut
from streams.core.snapshot import UnreadableSnapshot, restored, sections

EMBEDDER = "e5#1"
WORDS = ("tea", "boat", "keel", "馄饨", "钥匙", "Thursday", "running")


def turn(user: str, turn_id: str, text: str, *, at: int = 0, **more: Any) -> TurnRecorded:
    given = {"speaker": "user", "session_id": "s", **more}
    return TurnRecorded(
        event_id=derived_id("turn", user, turn_id, text), occurred_at=instant_of(1_700_000_000_000 + at * 1000),
        recorded_at=instant_of(1_700_000_000_000 + at * 997), user_id=user, role_id="r", turn_id=turn_id, text=text,
        source=Position(topic="mnemolog.turns", partition=0, offset=at), **given,
    )  # fmt: skip


def embedded(cause: TurnRecorded, vector: list[int], embedder: str = EMBEDDER) -> TurnEmbedded:
    return TurnEmbedded(
        event_id=derived_id("embedded", cause.event_id), occurred_at=cause.occurred_at, recorded_at=cause.recorded_at,
        user_id=cause.user_id, role_id=cause.role_id, turn_id=cause.turn_id, embedder=embedder,
        vector=base64.b64encode(np.array(vector, dtype=np.int8).tobytes()).decode(), causation_id=cause.event_id,
    )  # fmt: skip


def refused(cause: TurnRecorded) -> TurnRefused:
    return TurnRefused(
        event_id=derived_id("refused", cause.event_id), occurred_at=cause.occurred_at, recorded_at=cause.recorded_at,
        user_id=cause.user_id, role_id=cause.role_id, turn_id=cause.turn_id, dead_letter_id="d",
        causation_id=cause.event_id,
    )  # fmt: skip


def feedback(user: str, number: int) -> FeedbackRecorded:
    at = instant_of(1_700_000_000_000)
    return FeedbackRecorded(
        event_id=derived_id("f", user, number), occurred_at=at, recorded_at=at, user_id=user, role_id="r",
        feedback_id=f"f{number}", kind="confirm", source=Position(topic="f", partition=0, offset=0),
    )  # fmt: skip


def recall(user: str, number: int) -> RecallAnswered:
    at = instant_of(1_700_000_000_000)
    return RecallAnswered(
        event_id=derived_id("q", user, number), occurred_at=at, recorded_at=at, user_id=user, role_id="r",
        recall_id=f"r{number}", preset="balanced", parameters={}, config_digest="", evidence=(),
        request=Request(request_id="q", kind="recall", user_id=user, role_id="r", query="q"),
        source=Position(topic="requests", partition=0, offset=0), watermark=Watermark(journal={}, library={}),
    )  # fmt: skip


@st.composite
def journals(draw: st.DrawFn) -> list[Any]:
    """Events with repeats, conflicts, effects of other embedders, dimensions and causes, and unknown ones."""
    events: list[Any] = []
    turns: list[TurnRecorded] = []
    for at in range(draw(st.integers(1, 40))):
        user = draw(st.sampled_from(("u1", "u2", "u/3")))
        kind = draw(st.sampled_from(("turn", "turn", "turn", "embedded", "embedded", "refused", "f", "q", "none")))
        if kind == "turn":
            text = " ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5)))
            event = turn(
                user, f"t{draw(st.integers(0, 12))}", text, at=draw(st.integers(-5, 5)) + at,
                speaker=draw(st.sampled_from(("user", "assistant"))), session_id=draw(st.sampled_from(("s1", "s2"))),
                name=draw(st.sampled_from((None, "Noor", "林"))), captions=draw(st.sampled_from((None, ("a bowl",)))),
                metadata=draw(st.sampled_from((None, {"a": [1, None]}))),
            )  # fmt: skip
            turns.append(event)
            events.append(event)
        elif kind in ("embedded", "refused") and turns:
            cause = draw(st.sampled_from(turns))
            if kind == "refused":
                events.append(refused(cause))
            else:
                dimension = draw(st.sampled_from((4, 4, 4, 3, 0)))
                vector = draw(st.lists(st.integers(-127, 127), min_size=dimension, max_size=dimension))
                events.append(embedded(cause, vector, draw(st.sampled_from((EMBEDDER, EMBEDDER, "other")))))
        elif kind == "f":
            events.append(feedback(user, draw(st.integers(0, 3))))
        elif kind == "q":
            events.append(recall(user, draw(st.integers(0, 3))))
        else:
            events.append(None)
    return events


def fold(events: list[Any], state: JournalState | None = None, start: int = 0) -> JournalState:
    state = state or JournalState(0, EMBEDDER)
    for offset, event in enumerate(events, start):
        state.apply(offset, event)
    return state


def answers(state: JournalState) -> list[Any]:
    """All that a search gives, at the end and at some cuts before."""
    found = []
    vector = np.array([5, -3, 100, 7], dtype=np.int8)
    for key, owner in sorted(state.owners.items()):
        query = RecallQuery(
            text="tea keel 馄饨 running", vector=vector, now_ms=1_700_000_100_000, round=owner.rounds + 1,
            session_id="s1", user_id=key[0], role_id=key[1], names=("Noor",), exclude=frozenset(), limits=Limits(),
            embedder=owner.experience.vectors.uses.newest or "",
        )  # fmt: skip
        for offset in (*range(4, state.next_offset, 9), state.watermark):
            for event_ms in (None, 1_700_000_010_000):
                cut = Cut(offset, event_ms)
                result = owner.experience.search(query, presets.resolve(), cut)
                found.append((key, offset, owner.experience.names(cut), result))
    return found


def assert_equal(one: JournalState, other: JournalState) -> None:
    assert one.digest() == other.digest()
    assert list(one.unembedded) == list(other.unembedded)
    assert {key: set(turns) for key, turns in one.outdated.items()} == {
        key: set(turns) for key, turns in other.outdated.items()
    }
    assert set(one.switchable) == set(other.switchable)
    assert one.conflicts == other.conflicts
    assert list(one.owners) == list(other.owners)
    assert one.recorded.columns() == other.recorded.columns()
    for key, owner in one.owners.items():
        assert owner.views == other.owners[key].views
        assert owner.turns == other.owners[key].turns
        assert list(owner.recalls.items()) == list(other.owners[key].recalls.items())
    assert answers(one) == answers(other)


@settings(max_examples=40, deadline=None)
@given(journals(), st.data())
def test_snapshot_and_tail_equal_the_whole(events, data):
    cut = data.draw(st.integers(0, len(events)))
    again = restored(sections(fold(events[:cut])))
    assert_equal(again, fold(events[:cut]))
    assert_equal(fold(events[cut:], again, cut), fold(events))


@settings(max_examples=40, deadline=None)
@given(journals(), st.data())
def test_what_is_folded_in_while_it_is_read_is_left_out(events, data):
    cut = data.draw(st.integers(0, len(events)))
    state = fold(events[:cut])
    reading = sections(state)
    read = [next(reading)]
    offsets = itertools.count(cut)
    for event in events[cut:]:
        for section in itertools.islice(reading, data.draw(st.integers(0, 2))):
            read.append(section)
        state.apply(next(offsets), event)
    read.extend(reading)
    assert_equal(restored(read), fold(events[:cut]))


def test_snapshot_in_the_middle_of_a_change_of_embedder():
    turns = [turn("u", f"t{number}", f"tea w{number}", at=number) for number in range(6)]
    events: list[Any] = [*turns, *(embedded(event, [1, 2, 3, 4], "other") for event in turns)]
    events += [embedded(event, [number, 1, 2], EMBEDDER) for number, event in enumerate(turns)]
    wish = embedded(turns[0], [], "other")
    events += [dataclasses.replace(wish, use=True), embedded(turns[0], [9, 9, 9])]
    for cut in range(len(events) + 1):
        again = restored(sections(fold(events[:cut])))
        assert_equal(again, fold(events[:cut]))
        assert_equal(fold(events[cut:], again, cut), fold(events))
    state = fold(events)
    uses = state.owners["u", "r"].experience.vectors.uses.until(99)
    assert uses == [(6, "other"), (17, EMBEDDER), (18, "other")]
    assert list(state.switchable) == [("u", "r")]


def test_an_owner_of_many_sections(monkeypatch):
    for name in ("TURNS_PER_SECTION", "TERMS_PER_SECTION", "VECTORS_PER_SECTION"):
        monkeypatch.setattr(f"streams.core.snapshot.{name}", 2)
    turns = [turn("u", f"t{number}", f"tea {WORDS[number % 7]} w{number}", at=number) for number in range(9)]
    events: list[Any] = [*turns, *(embedded(event, [number, 1, 2, 3]) for number, event in enumerate(turns[:7]))]
    assert len(list(sections(fold(events)))) > 15
    assert_equal(restored(sections(fold(events))), fold(events))


@pytest.mark.parametrize(
    "read",
    [
        [],
        [("owner", "u", "r", [], [])],
        [("journal", 0, EMBEDDER)],
        [("journal", 0, EMBEDDER, 0, b"", b"", [], []), ("turns", [])],
        [("journal", 0, EMBEDDER, 0, b"", b"", [], []), ("owner", "u", "r", [], []), ("what", 1)],
        [("journal", 0, EMBEDDER, 0, b"123", b"", [], [])],
        [("journal", 0, EMBEDDER, 0, b"", b"", [], [b"{}"])],
    ],
)
def test_sections_of_no_state_are_refused(read):
    with pytest.raises(UnreadableSnapshot):
        restored(read)
