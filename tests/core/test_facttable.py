"""Facts: nothing is overwritten, conflicts are kept and settled by their policy, any past point is a read."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from schemas.envelope import instant_ms
from schemas.memories import FactStatement, Judgement, Policy
from streams.core.facttable import FactTable
from streams.core.visibility import Cut

OWNER = ("u42", "lin")
NOW = Cut(10_000)


def statement(key: str, value: str, day: str, **given: Any) -> FactStatement:
    """A statement made at ten in the morning of a day of 2026, in a turn named after the day."""
    values: dict[str, Any] = {
        "key": key,
        "value": value,
        "norm": value.casefold(),
        "kind": "assert",
        "multi": key in ("likes", "pet"),
        "text": f"User's {key}: {value}",
        "confidence": 0.9,
        "importance": 3,
        "turn_id": f"t-{day}",
        "start": 0,
        "end": len(value),
        "said_at": f"2026-{day}T10:00:00Z",
    }
    return FactStatement(**values | given)


def table(*statements: FactStatement, policy: Policy = "newest_explicit") -> FactTable:
    """Statements folded at the offsets 0, 1, 2, …"""
    facts = FactTable(OWNER)
    for offset, item in enumerate(statements):
        facts.state(item, offset, policy)
    return facts


def states(facts: FactTable, cut: Cut = NOW) -> dict[str, str]:
    """Status by value, of everything that is known."""
    return {fact.value: fact.status for fact in facts.facts(cut, live_only=False)}


def test_second_value_of_a_key_opens_a_conflict_and_overwrites_nothing() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("home", "Berlin", "02-03"))
    assert states(facts) == {"Paris": "contested", "Berlin": "contested"}
    (conflict,) = facts.conflicts_at(NOW)
    assert (conflict.status, conflict.values, conflict.winner) == ("open", ("Paris", "Berlin"), None)
    assert states(facts, Cut(0)) == {"Paris": "active"}
    assert facts.conflicts_at(Cut(0)) == []


def test_two_values_of_a_multivalued_key_are_no_conflict() -> None:
    facts = table(statement("likes", "chess", "01-03"), statement("likes", "judo", "02-03"))
    assert states(facts) == {"chess": "active", "judo": "active"}
    assert facts.conflicts_at(NOW) == []


def test_explicit_correction_wins_and_the_loser_stays_in_history() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("home", "Berlin", "02-03", kind="correct"))
    assert states(facts) == {"Paris": "superseded", "Berlin": "active"}
    (conflict,) = facts.conflicts_at(NOW)
    assert (conflict.status, conflict.closed_by) == ("closed", "correction")
    assert facts.entries[conflict.winner or ""].value == "Berlin"
    (paris,) = [fact for fact in facts.facts(NOW, live_only=False, history=True) if fact.value == "Paris"]
    assert [change.status for change in paris.history or ()] == ["active", "contested", "superseded"]


def test_older_correction_that_is_recorded_late_does_not_undo_what_was_said_since() -> None:
    facts = table(statement("home", "Berlin", "05-03"), statement("home", "Paris", "01-03", kind="correct"))
    assert states(facts) == {"Berlin": "active", "Paris": "superseded"}
    facts.state(statement("home", "Berlin", "02-01", turn_id="late"), 5, "newest_explicit")
    assert facts.facts(NOW)[0].last_verified_at.startswith("2026-05-03")


def test_change_that_began_after_the_older_statement_ends_it_without_a_contest() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("home", "Rome", "05-03", valid_from="2026-04"))
    assert states(facts) == {"Paris": "superseded", "Rome": "active"}
    (paris,) = [fact for fact in facts.facts(NOW, live_only=False) if fact.value == "Paris"]
    assert paris.valid_to == "2026-04"


def test_value_that_began_before_the_older_statement_is_contested() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("home", "Rome", "05-03", valid_from="2020"))
    assert set(states(facts).values()) == {"contested"}


@pytest.mark.parametrize(
    ("policy", "confidence", "expected"),
    [
        ("newest_explicit", 0.5, {"Paris": "active", "Rome": "superseded"}),
        ("newest_explicit", 0.85, {"Paris": "contested", "Rome": "contested"}),
        ("confidence", 0.85, {"Paris": "active", "Rome": "superseded"}),
        ("confidence", 0.9, {"Paris": "contested", "Rome": "contested"}),
        ("manual", 0.1, {"Paris": "contested", "Rome": "contested"}),
        ("model", 0.1, {"Paris": "contested", "Rome": "contested"}),
    ],
)
def test_policies_settle_by_confidence(policy: Policy, confidence: float, expected: dict[str, str]) -> None:
    rome = statement("home", "Rome", "05-03", confidence=confidence)
    assert states(table(statement("home", "Paris", "01-03"), rome, policy=policy)) == expected


@pytest.mark.parametrize("policy", ["manual", "model"])
def test_nobody_but_a_person_settles_a_manual_conflict(policy: Policy) -> None:
    facts = table(
        statement("home", "Paris", "01-03"), statement("home", "Rome", "05-03", kind="correct"), policy=policy
    )
    assert set(states(facts).values()) == {"contested"}
    rome = next(entry.memory_id for entry in facts.entries.values() if entry.value == "Rome")
    assert facts.feedback("confirm", rome, 7, "2026-06-01T00:00:00Z", "clerk")
    assert states(facts) == {"Paris": "superseded", "Rome": "active"}
    assert facts.conflicts_at(NOW)[0].closed_by == "confirmed by clerk"


def test_saying_a_contested_value_again_settles_nothing_and_adds_a_source() -> None:
    facts = table(
        statement("home", "Paris", "01-03"), statement("home", "Rome", "02-03"), statement("home", "PARIS", "03-03")
    )
    assert set(states(facts).values()) == {"contested"}
    paris = next(fact for fact in facts.facts(NOW) if fact.value == "Paris")
    assert [source.turn_id for source in paris.sources] == ["t-01-03", "t-03-03"]
    assert paris.last_verified_at.startswith("2026-03-03")


def test_one_turn_that_says_a_thing_twice_is_one_source() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("home", "Paris", "01-03", start=40, end=45))
    assert len(facts.entries) == 1
    assert len(facts.facts(NOW)[0].sources) == 1


def test_third_value_joins_the_open_conflict() -> None:
    facts = table(*(statement("home", city, f"0{n}-03") for n, city in enumerate(("Paris", "Rome", "Oslo"), start=1)))
    (conflict,) = facts.conflicts_at(NOW)
    assert conflict.values == ("Paris", "Rome", "Oslo")
    assert facts.conflicts_at(Cut(1))[0].values == ("Paris", "Rome")


def test_retraction_ends_a_fact_and_leaves_the_other_side_of_a_conflict() -> None:
    facts = table(
        statement("home", "Paris", "01-03"),
        statement("home", "Rome", "02-03"),
        statement("home", "Rome", "03-03", kind="retract"),
    )
    assert states(facts) == {"Paris": "active", "Rome": "retracted"}
    assert facts.conflicts_at(NOW)[0].status == "closed"


def test_retraction_without_a_value_ends_whatever_the_key_held() -> None:
    facts = table(
        statement("pet", "Rex", "01-03"),
        statement("pet", "Tom", "01-04"),
        statement("pet", "", "02-03", kind="retract", norm=""),
    )
    assert set(states(facts).values()) == {"retracted"}


def test_denied_fact_leaves_at_its_offset_and_comes_back_when_it_is_said_again() -> None:
    facts = table(statement("occupation", "doctor", "01-03"))
    facts.judge(Judgement(kind="deny", turn_id="t", said_at="2026-02-01T00:00:00Z", key="occupation", norm="doctor"), 1)
    assert states(facts, Cut(0)) == {"doctor": "active"}
    assert states(facts, Cut(1)) == {"doctor": "denied"}
    assert facts.facts(NOW) == []
    facts.state(statement("occupation", "Doctor", "03-03"), 2, "newest_explicit")
    assert states(facts) == {"doctor": "active"}


def test_denial_of_one_side_settles_a_conflict_for_the_other() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("home", "Rome", "02-03"))
    facts.judge(Judgement(kind="deny", turn_id="t", said_at="2026-02-09T00:00:00Z", key="home", norm="rome"), 2)
    assert states(facts) == {"Paris": "active", "Rome": "denied"}


def test_confirmation_moves_the_day_of_verification_and_is_counted() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("pet", "Rex", "02-03"))
    confirmed = {"kind": "confirm", "turn_id": "t", "said_at": "2026-02-04T00:00:00Z"}
    facts.judge(Judgement(**confirmed, key="pet", norm="rex"), 2)
    facts.judge(Judgement(**confirmed), 3)
    assert {fact.value: fact.confirmation for fact in facts.facts(NOW)} == {"Paris": 0, "Rex": 1}
    assert {fact.value: fact.last_verified_at[:10] for fact in facts.facts(NOW)}["Rex"] == "2026-02-04"


def test_unknown_memory_is_told_apart() -> None:
    assert not FactTable(OWNER).feedback("confirm", "f-nothing", 0, "2026-01-01T00:00:00Z", None)


def test_event_time_tells_what_was_true_by_what_is_known_now() -> None:
    facts = table(statement("home", "Paris", "01-03"), statement("home", "Rome", "05-03", kind="correct"))
    spring = Cut(10_000, event_ms=instant_ms("2026-03-01T00:00:00Z"))
    assert states(facts, spring) == {"Paris": "active"}


STATEMENTS = st.builds(
    lambda key, value, month, kind, confidence, since: statement(
        key, value, f"{month:02}-03", kind=kind, confidence=confidence, valid_from=since
    ),
    st.sampled_from(["home", "likes", "pet", "employer"]),
    st.sampled_from(["Paris", "Rome", "Oslo"]),
    st.integers(1, 12),
    st.sampled_from(["assert", "assert", "correct", "retract"]),
    st.sampled_from([0.5, 0.7, 0.9]),
    st.sampled_from([None, None, "2026-04", "2020"]),
)
POLICIES = st.sampled_from(["newest_explicit", "confidence", "model", "manual"])


@given(st.lists(st.tuples(STATEMENTS, POLICIES), max_size=14), st.data())
def test_table_as_of_an_offset_equals_the_table_of_the_prefix(steps: list[Any], data: st.DataObject) -> None:
    whole = FactTable(OWNER)
    for offset, (item, policy) in enumerate(steps):
        whole.state(item, offset, policy)
    end = data.draw(st.integers(0, len(steps)))
    prefix = FactTable(OWNER)
    for offset, (item, policy) in enumerate(steps[:end]):
        prefix.state(item, offset, policy)
    cut = Cut(end - 1)
    assert whole.facts(cut, live_only=False, history=True) == prefix.facts(cut, live_only=False, history=True)
    assert whole.conflicts_at(cut) == prefix.conflicts_at(cut)
    assert whole.dumped(end - 1) == prefix.dumped(end - 1)


@given(st.lists(st.tuples(STATEMENTS, POLICIES), max_size=14))
def test_invariants_hold_after_any_statements(steps: list[Any]) -> None:
    facts = FactTable(OWNER)
    for offset, (item, policy) in enumerate(steps):
        facts.state(item, offset, policy)
    live = facts.facts(NOW)
    for key in ("home", "employer"):
        of_key = [fact for fact in live if fact.key == key]
        contested = [fact for fact in of_key if fact.status == "contested"]
        assert len(of_key) == len(contested) or len(of_key) == 1, "one value holds, or all that are left are contested"
        assert len(contested) != 1, "nothing is contested alone"
        still_open = [item for item in facts.conflicts_at(NOW) if item.key == key and item.status == "open"]
        assert len(still_open) == (1 if contested else 0)
    rows = facts.dumped(len(steps))
    assert FactTable.restored(OWNER, *rows).dumped(len(steps)) == rows
