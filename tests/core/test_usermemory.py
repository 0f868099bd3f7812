"""Five factors over facts and summaries: what is found, in which order, and as of when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from schemas.memories import FactStatement, MemoriesExtracted, SummaryWritten
from schemas.recalls import Limits
from streams.core.candidates import Candidate, RecallQuery
from streams.core.facttable import FactTable
from streams.core.settings import MemorySettings, resolve
from streams.core.usermemory import DAY_MS, UserMemory
from streams.core.visibility import Cut
from tests import builders
from tests.core.test_facttable import OWNER, statement

NOW = Cut(10_000)
BALANCED = resolve().memory
BEGIN_MS = 1_767_225_600_000
"""2026-01-01."""


def extracted(*facts: FactStatement, summary: str | None = None, at: str = "2026-01-03", **given: Any) -> Any:
    """An extraction; its summary has the id ``s-<day>``."""
    values: dict[str, Any] = {
        "event_id": f"e-{at}-{len(facts)}",
        "occurred_at": f"{at}T10:00:00Z",
        "recorded_at": f"{at}T10:00:30Z",
        "user_id": OWNER[0],
        "role_id": OWNER[1],
        "segment_id": f"seg-{at}",
        "session_id": "s1",
        "reason": "idle",
        "first_turn_id": "t-0",
        "last_turn_id": "t-9",
        "turns": 10,
        "method": "rules",
        "policy": "newest_explicit",
        "facts": facts,
        "summary": SummaryWritten(memory_id=f"s-{at}", text=summary, importance=2) if summary else None,
    }
    return MemoriesExtracted(**values | given)


def query(text: str, *, day: float = 10, vector: list[int] | None = None) -> RecallQuery:
    """A question some days after the first of January."""
    return RecallQuery(
        text=text,
        vector=None if vector is None else np.array(vector, dtype=np.int8),
        now_ms=round(BEGIN_MS + day * DAY_MS),
        round=1,
        user_id=OWNER[0],
        role_id=OWNER[1],
        limits=Limits(),
    )


def search(memory: UserMemory, asked: RecallQuery, chosen: MemorySettings = BALANCED, **given: Any) -> list[Candidate]:
    """The ten best, best first."""
    return memory.search(asked, chosen, given.pop("cut", NOW), count=10, **given).candidates


def memory_of(*events: Any) -> UserMemory:
    """Extractions folded at the offsets 0, 1, 2, …"""
    memory = UserMemory(OWNER)
    for offset, event in enumerate(events):
        memory.extracted(event, offset)
    return memory


def test_fact_is_found_by_its_words_with_every_factor_told() -> None:
    (found,) = search(memory_of(extracted(statement("home", "Paris", "01-03"))), query("home in Paris?"))
    assert (found.text, found.turn_id, found.source) == ("User's home: Paris", "t-01-03", "fact:home")
    assert set(found.parts) >= {"similarity", "words", "importance", "recency", "confirmation", "scene_match"}


def test_score_is_the_product_of_the_five_factors() -> None:
    arpm = resolve("arpm").memory
    memory = memory_of(extracted(statement("home", "Paris", "01-03", importance=5)))
    memory.feedback("confirm", next(iter(memory.facts.entries)), 1, "2026-01-03T10:00:00Z", None)
    (found,) = search(memory, query("Paris", day=2 + 10 / 24 + 30), arpm)
    assert found.parts["recency"] == pytest.approx(np.exp(-1), abs=1e-6)
    assert found.score == pytest.approx(1.0 * 1.3 * np.exp(-1) * 1.5, abs=1e-5)


@pytest.mark.parametrize("how", ["denied", "retracted", "superseded"])
def test_fact_that_no_longer_holds_is_never_recalled_from_that_offset_on(how: str) -> None:
    memory = memory_of(extracted(statement("home", "Paris", "01-03")))
    if how == "denied":
        memory.feedback("deny", next(iter(memory.facts.entries)), 1, "2026-01-04T00:00:00Z", None)
    elif how == "retracted":
        memory.extracted(extracted(statement("home", "Paris", "01-04", kind="retract"), at="2026-01-04"), 1)
    else:
        memory.extracted(extracted(statement("home", "Rome", "01-04", kind="correct"), at="2026-01-04"), 1)
    assert [item.text for item in search(memory, query("Paris"))] == []
    assert [item.text for item in search(memory, query("Paris"), cut=Cut(0))] == ["User's home: Paris"]


def test_denied_fact_that_is_said_again_is_recalled_again() -> None:
    memory = memory_of(extracted(statement("home", "Paris", "01-03")))
    memory.feedback("deny", next(iter(memory.facts.entries)), 1, "2026-01-04T00:00:00Z", None)
    memory.extracted(extracted(statement("home", "Paris", "01-05"), at="2026-01-05"), 2)
    assert [item.text for item in search(memory, query("Paris"), cut=Cut(1))] == []
    assert [item.text for item in search(memory, query("Paris"))] == ["User's home: Paris"]


def test_contested_fact_shows_every_side_once_with_its_day() -> None:
    memory = memory_of(
        extracted(statement("home", "Paris", "01-03")), extracted(statement("home", "Rome", "02-03"), at="2026-02-03")
    )
    (found,) = search(memory, query("home: Paris or Rome?", day=60))
    sides = "User's home: Paris (2026-01-03) / User's home: Rome (2026-02-03)"
    assert found.text == f"Contested, not settled yet: {sides}"


def test_summary_expires_by_event_time() -> None:
    memory = memory_of(extracted(summary="They talked about the boat."))
    assert search(memory, query("boat", day=60)) != []
    assert search(memory, query("boat", day=100)) == []
    assert [item.memory_id for item in memory.summaries(NOW, BEGIN_MS + 60 * DAY_MS, 90)] == ["s-2026-01-03"]
    assert memory.summaries(NOW, BEGIN_MS + 100 * DAY_MS, 90) == []


def test_denied_summary_is_not_recalled() -> None:
    memory = memory_of(extracted(summary="They talked about the boat."))
    assert memory.feedback("deny", "s-2026-01-03", 5, "2026-01-05T00:00:00Z", None)
    assert search(memory, query("boat")) == []
    assert search(memory, query("boat"), cut=Cut(4)) != []


def test_plan_whose_day_is_over_is_not_recalled() -> None:
    plan = statement("plan", "boat trip", "01-03", multi=True)
    memory = memory_of(extracted(plan))
    entry = next(iter(memory.facts.entries.values()))
    memory.facts._change(entry, entry.learnt, "active", "stated", valid_to="2026-01-05")
    memory._live = None
    assert search(memory, query("boat", day=3)) != []
    assert search(memory, query("boat", day=6)) == []


def test_scene_lowers_what_is_not_being_talked_about() -> None:
    memory = memory_of(extracted(statement("likes", "boat rides", "01-03"), statement("likes", "boat songs", "01-03")))
    for memory_id, vector in zip(list(memory.facts.entries), ([127, 0], [0, 127]), strict=True):
        assert memory.embed(memory_id, np.array(vector, dtype=np.int8), 1)
    scene = np.array([0, 127], dtype=np.int8)
    found = search(memory, query("boat"), scene=scene)
    assert [item.text for item in found] == ["User's likes: boat songs", "User's likes: boat rides"]
    assert found[1].parts["scene_match"] == pytest.approx(1 - BALANCED.scene_weight)


def test_vector_is_seen_from_its_arrival_on_and_only_once() -> None:
    memory = memory_of(extracted(statement("home", "Paris", "01-03")))
    memory_id = next(iter(memory.facts.entries))
    assert memory.without_vector("") == [memory_id]
    assert memory.embed(memory_id, np.array([127, 0], dtype=np.int8), 5)
    assert not memory.embed(memory_id, np.array([0, 127], dtype=np.int8), 6)
    assert not memory.embed("f-unknown", np.array([0, 127], dtype=np.int8), 6)
    asked = query("where is it?", vector=[127, 0])
    assert "vector" in search(memory, asked)[0].parts
    assert search(memory, asked, cut=Cut(4)) == []
    assert memory.without_vector("") == []


@pytest.mark.parametrize("text", ["", "???", "🙂", "the of and", "，。", "x" * 100_000])
def test_odd_queries_find_nothing_and_do_not_fail(text: str) -> None:
    assert search(memory_of(extracted(statement("home", "Paris", "01-03"))), query(text)) == []


def test_search_at_a_cut_equals_that_of_the_prefix_and_of_a_restored_memory() -> None:
    events = [
        extracted(statement("home", "Paris", "01-03"), summary="They talked about Paris."),
        extracted(statement("home", "Rome", "02-03"), statement("likes", "Paris", "02-03"), at="2026-02-03"),
        extracted(statement("home", "Rome", "03-03", kind="correct"), summary="Paris again.", at="2026-03-03"),
    ]
    whole = memory_of(*events)
    asked = query("Paris, Rome", day=65)
    for end in range(len(events)):
        prefix = memory_of(*events[: end + 1])
        expected = search(prefix, asked, cut=Cut(end))
        assert search(whole, asked, cut=Cut(end)) == expected
        again = UserMemory.restored(OWNER, whole.dumped(end))
        assert again.dumped(end) == prefix.dumped(end)
        assert search(again, asked, cut=Cut(end)) == expected
        assert search(again, asked, cut=Cut(0)) == search(prefix, asked, cut=Cut(0))


def test_ids_of_two_owners_differ_for_the_same_fact() -> None:
    tables = [FactTable(owner) for owner in (("u", "1r"), ("u1", "r"))]
    for table in tables:
        table.state(statement("home", "Paris", "01-03"), 0, "newest_explicit")
    first, second = (next(iter(table.entries)) for table in tables)
    assert first != second


def test_builders_give_one_owner() -> None:
    assert (builders.turn()["user_id"], builders.turn()["role_id"]) == OWNER
