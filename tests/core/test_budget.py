"""The ledger of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.budget import DAY_MS, Budget


def test_days_are_utc_and_start_full() -> None:
    budget = Budget(100)
    assert budget.take("u/r", DAY_MS - 1, 100)
    assert not budget.take("u/r", DAY_MS - 1, 1)
    assert budget.take("u/r", DAY_MS, 100)


def test_owners_do_not_share() -> None:
    budget = Budget(100)
    assert budget.take("u1/r", 0, 100)
    assert budget.take("u2/r", 0, 100)
    assert not budget.take("u1/r", 0, 1)


def test_a_late_request_of_yesterday_counts_today() -> None:
    budget = Budget(100)
    assert budget.take("u/r", DAY_MS, 60)
    assert not budget.take("u/r", DAY_MS - 1, 60)
    budget.give_back("u/r", DAY_MS - 1, 60)
    assert budget.left("u/r", DAY_MS) == 40


def test_what_the_log_tells_was_spent_counts() -> None:
    budget = Budget(100)
    budget.spent("u/r", 0, 150)
    assert budget.left("u/r", 0) == 0
    assert not budget.take("u/r", 0, 1)


def test_no_bound_takes_everything() -> None:
    budget = Budget(0)
    assert budget.take("u/r", 0, 10**9)
    assert budget.left("u/r", 0) is None


def test_negative_tokens_are_an_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        Budget(1).take("u/r", 0, -1)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 60), st.integers(0, 60)), max_size=30)
)
def test_no_owner_uses_more_than_the_budget_of_a_day(requests: list[tuple[str, int, int, int]]) -> None:
    budget = Budget(100)
    used: dict[tuple[str, int], int] = {}
    latest = 0
    for owner, day, most, needed in requests:
        latest = max(latest, day)
        if budget.take(owner, day * DAY_MS, most):
            spare = max(0, most - needed)
            used[owner, latest] = used.get((owner, latest), 0) + most
            if day == latest:
                budget.give_back(owner, day * DAY_MS, spare)
                used[owner, latest] -= spare
    assert all(tokens <= 100 for tokens in used.values())
