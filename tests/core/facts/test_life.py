"""A year of one owner: the statements of the turns add up to the written facts of each month.

The fold here is the plainest that there is (the newest statement wins): what is tested is that the extractor states
all that the table needs, and nothing beside it.
"""

from __future__ import annotations

from typing import Any

import pytest

from streams.core.facts.statements import extract, normalise, same_value
from streams.core.facts.vocabulary import key_of
from tests.core.facts import life_en, life_zh

Facts = dict[str, set[str]]


def facts_at(months: dict[str, dict[str, tuple[str, ...]]], month: str) -> Facts:
    """What holds at the end of a month by the table: later months change what earlier ones say."""
    found: Facts = {}
    for one in sorted(months):
        if one <= month:
            for key, values in months[one].items():
                found[key] = {normalise(key, value) for value in values}
    return {key: values for key, values in found.items() if values}


def told(turns: tuple[tuple[str, str, str], ...], month: str) -> Facts:
    """What holds at the end of a month by the statements."""
    found: Facts = {}
    for said_at, speaker, text in turns:
        if said_at[:7] > month:
            break
        for statement in extract(text, occurred_at=said_at, speaker=speaker):
            values = found.setdefault(statement.key, set())
            value = normalise(statement.key, statement.value)
            if statement.kind == "retract":
                found[statement.key] = {held for held in values if value and not same_value(statement.key, held, value)}
            elif key_of(statement.key).multi:
                values.add(value)
            else:
                found[statement.key] = {value}
    return {key: values for key, values in found.items() if values}


@pytest.mark.parametrize("life", [life_en, life_zh], ids=["en", "zh"])
def test_statements_of_a_year_add_up_to_the_facts_of_each_month(life: Any):
    for month in life.MONTHS:
        assert told(life.TURNS, month) == facts_at(life.MONTHS, month), month
