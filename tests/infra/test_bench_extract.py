"""``bench extract``: what it counts, and that its target is judged on what people say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from typer.testing import CliRunner

from infra.bench import extract
from infra.commands_bench import app


def test_locomo_files_give_the_turns_of_both_speakers(tmp_path: Path):
    file = tmp_path / "locomo.json.gz"
    session = [{"speaker": "A", "text": "I live in Rome."}, {"speaker": "B", "text": "Nice!"}]
    file.write_bytes(gzip.compress(json.dumps([{"conversation": {"session_1": session, "speaker_a": "A"}}]).encode()))
    assert extract.locomo([file]) == ["I live in Rome.", "Nice!"]


def test_statements_are_counted_by_turn():
    rate, stating, statements = extract.measure(["I live in Rome and I'm 34.", "Nice!"], repeats=1)
    assert (stating, statements) == (1, 2)
    assert rate.median > 0


def test_dense_turns_state_several_facts_each():
    for sentences in extract.DENSE.values():
        _, stating, statements = extract.measure(sentences, repeats=1)
        assert stating == len(sentences)
        assert statements >= 3 * len(sentences)


def test_the_command_reports_rows_and_targets():
    run = CliRunner().invoke(app, ["extract", "--turns", "20", "--repeats", "1", "--json"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["bench"] == "extract"
    assert {target["name"] for target in report["targets"]} == {
        "turns/CPU-s, facts in small talk, en",
        "turns/CPU-s, facts in small talk, zh",
    }
