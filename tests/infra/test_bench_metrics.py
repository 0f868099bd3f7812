"""Figures of the benchmarks on cases whose result is known by hand."""

from __future__ import annotations

import doctest
import importlib
import json
import math

import pytest

from infra.bench import answer, intake
from infra.bench.metrics import Judged, hit_at, recall_at, row_of, scored
from infra.bench.report import Report, Spread, Target, table


@pytest.mark.parametrize(
    "module", ["metrics", "report", "noise", "corrections", "natural", "locomo", "histories", "embedded"]
)
def test_examples_of_a_module_hold(module):
    failed, _ = doctest.testmod(importlib.import_module(f"infra.bench.{module}"))
    assert failed == 0


def test_recall_is_the_share_of_the_evidence_among_the_first_k():
    ranked, evidence = ["x", "a", "y", "b", "z"], frozenset({"a", "b", "c"})
    assert [recall_at(ranked, evidence, k) for k in (1, 2, 4, 5)] == [0, 1 / 3, 2 / 3, 2 / 3]
    assert [hit_at(ranked, evidence, k) for k in (1, 2)] == [0, 1]


def test_recall_counts_a_turn_that_is_ranked_twice_once():
    assert recall_at(["a", "a"], frozenset({"a", "b"}), 2) == 0.5


def test_a_row_holds_all_questions_each_category_and_each_conversation():
    judged = [
        Judged(["a"], frozenset({"a", "b"}), 1, "one"),
        Judged(["q"] * 7 + ["c"], frozenset({"c"}), 4, "one"),
        Judged([], frozenset({"d"}), 4, "two"),
    ]
    row = row_of("ours", judged, split=True)
    assert row["n"] == 3
    assert row["recall@5"] == pytest.approx(0.5 / 3)
    assert row["recall@10"] == pytest.approx(1.5 / 3)
    assert row["hit@10"] == pytest.approx(2 / 3)
    assert row["by_category"]["multi-hop"]["recall@10"] == 0.5
    assert row["by_category"]["single-hop"]["recall@10"] == 0.5
    assert row["by_category"]["temporal"]["n"] == 0
    assert math.isnan(row["by_category"]["temporal"]["recall@10"])
    assert row["by_conversation"]["two"]["recall@20"] == 0


def test_no_questions_have_no_score():
    assert math.isnan(scored([])["recall@10"])


def test_a_report_is_a_table_and_json_with_rows_targets_and_machine():
    report = Report("x")
    report.rows = [{"method": "ours", "n": 2, "rate": Spread.of([1.0, 3.0]), "nan": math.nan, "by_category": {"a": 1}}]
    report.targets = [Target.at_least("rate", 2.0, 2.5), Target.at_most("ms", 2.0, 2.5)]
    found = json.loads(report.as_json())
    assert found["rows"][0]["rate"] == {"median": 2.0, "min": 1.0, "max": 3.0, "n": 2}
    assert found["rows"][0]["nan"] is None
    assert found["rows"][0]["by_category"] == {"a": 1}
    assert [target["met"] for target in found["targets"]] == [False, True]
    assert found["machine"]["cores"] >= 1
    assert not report.met
    text = report.as_text()
    assert "MISSED  rate: 2.00, wanted >= 2.50" in text
    assert "by_category" not in text.splitlines()[0]


def test_a_table_aligns_wide_characters():
    lines = table([{"text": "馄饨", "n": 1}, {"text": "abcd", "n": 20}]).splitlines()
    assert lines[1:] == ["馄饨   1", "abcd  20"]


def test_overhead_is_the_answer_without_its_embedding_and_the_echo_before_it():
    asked = answer.Asked()
    asked.seconds = {"echo": [0.010, 0.020], "recall": [0.050, 0.090], "assemble": [0.060, 0.100]}
    asked.stages = {name: [{"embed": 30.0, "search": 2.0}, {"embed": 40.0, "search": 2.0}] for name in asked.stages}
    assert asked.overhead_ms("recall") == pytest.approx([10.0, 30.0])
    rows = answer.rows_of(asked, "idle")
    assert [row["operation"] for row in rows] == ["echo", "recall", "assemble"]
    assert rows[1]["embed p50"] == pytest.approx(35.0)
    assert rows[1]["p50 ms"].median == pytest.approx(70.0)
    targets = answer.targets_of(asked, asked)
    assert targets[0].value == pytest.approx(70 - 15 - 35)
    assert not targets[0].met
    assert targets[2].met


def test_loops_are_compared_within_their_repeat():
    found = {"ingest worker": [(100.0, 50.0), (300.0, 50.0)], "bare aiokafka loop": [(200.0, 100.0), (300.0, 100.0)]}
    rows = intake.rows_of(found, 10)
    assert rows[0]["of bare aiokafka"] == Spread.of([0.5, 1.0])
    assert rows[0]["CPU of bare aiokafka"].median == 0.5
