"""Knowledge: roles apart, revisions as of any offset, best child for its parent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.recalls import Limits
from streams.core.knowledge import Knowledge
from streams.core.settings import resolve
from streams.core.visibility import Cut
from tests.core.memories import START_MS, query, revision

BALANCED = resolve()
TEXTS = ["馄饨是一种面食。", "Rome is the capital of Italy.", "Cats sleep sixteen hours a day.", "馄饨配醋更好吃。"]
NOW = Cut(10**9)


def found(knowledge: Knowledge, asked: str, cut: Cut = NOW, role: str = "lin") -> list[str]:
    return [c.text for c in knowledge.search(query(asked), BALANCED, cut, role).candidates]


def test_a_role_sees_shared_documents_and_its_own_only() -> None:
    knowledge = Knowledge()
    knowledge.add_revision("shared", revision(TEXTS[0]), 0, START_MS)
    knowledge.add_revision("own", revision(TEXTS[3], role_id="lin"), 1, START_MS)
    assert set(found(knowledge, "馄饨")) == {TEXTS[0], TEXTS[3]}
    assert found(knowledge, "馄饨", role="other") == [TEXTS[0]]
    assert found(knowledge, "馄饨", role="") == [TEXTS[0]]


def test_a_revision_replaces_the_older_from_its_offset_on() -> None:
    knowledge = Knowledge()
    knowledge.add_revision("d", revision(TEXTS[0]), 3, START_MS)
    knowledge.add_revision("d", revision(TEXTS[3], role_id="lin"), 7, START_MS)
    assert knowledge.remove("d", 9)
    assert not knowledge.remove("d", 10)
    assert [found(knowledge, "馄饨", Cut(offset)) for offset in (2, 3, 6, 7, 8, 9)] == [
        [],
        [TEXTS[0]],
        [TEXTS[0]],
        [TEXTS[3]],
        [TEXTS[3]],
        [],
    ]


def test_as_of_an_event_time_a_later_revision_has_not_replaced_yet() -> None:
    knowledge = Knowledge()
    knowledge.add_revision("d", revision(TEXTS[0]), 3, 1000)
    knowledge.add_revision("d", revision(TEXTS[3]), 7, 5000)
    knowledge.remove("d", 9, event_ms=9000)
    assert found(knowledge, "馄饨", Cut(20, 1500)) == [TEXTS[0]]
    assert found(knowledge, "馄饨", Cut(20, 6000)) == [TEXTS[3]]
    assert found(knowledge, "馄饨", Cut(20, 9000)) == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]), st.sampled_from([*TEXTS, None]), st.sampled_from([None, "lin", "other"])
    ),
    max_size=10,
)


def folded(log: list[tuple]) -> Knowledge:
    knowledge = Knowledge()
    for offset, (document, text, role) in enumerate(log):
        if text is None:
            knowledge.remove(document, offset)
        else:
            knowledge.add_revision(document, revision(text, role_id=role), offset, START_MS + offset)
    return knowledge


@given(steps, st.integers(-1, 10), st.sampled_from(["馄饨 醋", "capital of Rome", "cats", ""]))
def test_a_search_at_an_offset_equals_one_of_a_library_that_ends_there(log: list[tuple], at: int, asked: str) -> None:
    whole, part = folded(log), folded(log[: at + 1])
    for preset in ("balanced", "arpm"):
        settings = resolve(preset, {"knowledge.b_source": 0.05})
        assert whole.search(query(asked), settings, Cut(at), "lin") == part.search(query(asked), settings, NOW, "lin")


def test_the_best_child_stands_for_its_parent_and_the_parent_is_shown_once() -> None:
    text = "馄饨配醋。" * 30 + "\n\n" + "面条配葱。" * 30
    knowledge = Knowledge()
    knowledge.add_revision("d", revision(text), 0, START_MS)
    candidates = knowledge.search(query("馄饨配醋"), BALANCED, NOW, "lin").candidates
    assert len(candidates) == 1
    assert candidates[0].id == f"r-{text[:8]}:0"


def test_score_is_normed_rrf_with_biases_times_weight() -> None:
    knowledge = Knowledge()
    for offset, text in enumerate(TEXTS):
        knowledge.add_revision(f"d{offset}", revision(text, title=text[:2]), offset, START_MS)
    for candidate in knowledge.search(query("馄饨 capital"), resolve("arpm"), NOW, "lin").candidates:
        parts = candidate.parts
        biased = parts["base"] + parts["b_user"] + parts["b_character"] + parts["b_source"]
        assert candidate.score == pytest.approx(biased * parts["w_clock"], abs=5e-6)


def test_limits_and_an_empty_library() -> None:
    assert Knowledge().search(query("馄饨", limits=Limits()), BALANCED, NOW, "lin").candidates == []
    knowledge = folded([("a", TEXTS[0], None), ("b", TEXTS[3], None)])
    assert len(knowledge.search(query("馄饨"), BALANCED, NOW, "lin", count=1).candidates) == 1
