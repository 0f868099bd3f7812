"""Every table and view of the migrations on the real engine: rows of every event go in, twice, and come out once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from connectors.clickhouse import ClickHouse
from schemas.codec import JOURNAL_EVENTS, PUBLIC, decode, decode_event
from streams.core.rows import COLUMNS, rows_of
from tests.infra.test_clickhouse_server import end, start

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
MIGRATIONS = ROOT / "infra" / "clickhouse"
GOLDEN = ROOT / "tests" / "golden"
REVIEW = decode_event(
    orjson.dumps(
        orjson.loads((GOLDEN / "FeedbackRecorded.v1.json").read_bytes())
        | {"kind": "review", "target": {"recall_id": "r-9"}, "value": {"verdict": 1, "dimension": "accuracy"}}
    ),
    JOURNAL_EVENTS,
)
"""A person says of the golden answer that it is right."""


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    process, url = start(tmp_path_factory.mktemp("tables"))
    try:
        found = ClickHouse(url, "mnemolog")
        found.migrate(MIGRATIONS)
        for offset in (5, 6):
            for file in sorted(GOLDEN.glob("*.v1.json")):
                _insert(found, file, offset)
            _insert_event(found, REVIEW, offset)
        yield found
    finally:
        end(process)


def _insert(clickhouse: ClickHouse, file: Path, offset: int) -> None:
    name, raw = file.name.partition(".")[0], file.read_bytes()
    public = {cls.__name__: topic for topic, (cls, _, _) in PUBLIC.items()}
    event = decode_event(raw, JOURNAL_EVENTS) if name in JOURNAL_EVENTS else None
    if name in ("FactsOfKey", "DeadLetter"):
        event = decode(public[name], raw)
    _insert_event(clickhouse, event, offset)


def _insert_event(clickhouse: ClickHouse, event: object, offset: int) -> None:
    for table, row in rows_of(event, "mnemolog.t", 0, offset):
        clickhouse.insert(table, COLUMNS[table], [row])


def test_migrations_are_applied_once(clickhouse: ClickHouse) -> None:
    assert clickhouse.migrate(MIGRATIONS) == []


@pytest.mark.parametrize(
    "view",
    [
        "turns", "recalls", "recall_evidence", "dead_letters", "facts", "conflicts", "conflict_share", "summaries",
        "extractions", "responses", "atoms", "protocol_statistics", "anchor_frequency",
        "reviews", "continuity_rounds", "continuity_stages", "review_overlay",
    ],
)  # fmt: skip
def test_rows_that_came_twice_are_read_once(clickhouse: ClickHouse, view: str) -> None:
    assert clickhouse.rows(f"SELECT count() FROM {view}")[0][0] == 1


def test_fact_tells_its_newest_state(clickhouse: ClickHouse) -> None:
    (row,) = clickhouse.rows("SELECT fact_key, value, status, source_turn_id FROM facts WHERE is_current")
    assert tuple(row) == ("home", "上海", "active", "t-000123")


def test_protocol_statistics_are_shares_of_a_models_outputs(clickhouse: ClickHouse) -> None:
    query = "SELECT model, outputs, analysis_rate, repaired_rate, compliance_rate FROM protocol_statistics"
    assert [tuple(row) for row in clickhouse.rows(query)] == [("gpt-5.5", 1, 1.0, 1.0, 0.0)]


def test_continuity_is_told_by_stage_and_round(clickhouse: ClickHouse) -> None:
    query = "SELECT stage, model, rounds, session_changed, boundary_transfer, accuracy_of_past FROM continuity_stages"
    assert [tuple(row) for row in clickhouse.rows(query)] == [(1, "gpt-5.5", 1, 0, 0.0, 0.0)]


def test_a_review_stands_beside_the_verdict_of_the_rules(clickhouse: ClickHouse) -> None:
    query = "SELECT recall_id, dimension, reviewers, human, automatic, correction FROM review_overlay"
    assert [tuple(row) for row in clickhouse.rows(query)] == [("r-9", "accuracy", 1, 1, 0, "0->1")]


def test_every_table_that_rows_are_made_for_is_in_the_migrations(clickhouse: ClickHouse) -> None:
    there = {row[0] for row in clickhouse.rows("SELECT name FROM system.tables WHERE database = 'mnemolog'")}
    assert set(COLUMNS) <= there
