"""`bench engines` plants questions that have an answer, and measures what it says."""

from __future__ import annotations

import json

import numpy as np
from typer.testing import CliRunner

from infra.bench import engines
from infra.cli import app
from streams.core.engines import BM25Plus


def test_planted_questions_are_the_same_every_time_and_hold_terms_of_their_chunk():
    chunks, questions = engines.planted(50, 10)
    again, same = engines.planted(50, 10)
    assert (chunks, questions) == (again, same)
    assert len({question.chunk for question in questions}) == 10
    assert all(len(set(chunks[question.chunk]) & set(question.terms)) >= 4 for question in questions)


def test_recall_counts_the_questions_whose_chunk_is_among_the_first():
    chunks, questions = engines.planted(200, 40)
    found = engines.ranked(BM25Plus(), chunks, questions)
    assert engines.recall_at(1, found, questions) > 0.7
    assert engines.recall_at(10, found, questions) >= engines.recall_at(1, found, questions)
    turned = [ids[::-1] for ids in found]
    assert engines.recall_at(1, turned, questions) < 0.3


def test_vectors_fill_their_space_as_recorded_ones_do():
    rows = engines.passages(3000, 1)
    assert (rows.dtype, rows.shape) == (np.int8, (3000, 384))
    assert np.array_equal(rows, engines.passages(3000, 1))
    lengths = np.linalg.norm(rows.astype(float), axis=1)
    assert abs(lengths.mean() - 784) < 20
    assert 0.08 < lengths.std() / lengths.mean() < 0.14
    share = np.linalg.eigvalsh(rows.astype(float).T @ rows.astype(float))[::-1]
    assert 0.28 < share[:8].sum() / share.sum() < 0.38
    assert 0.6 < share[:64].sum() / share.sum() < 0.75


def test_queries_are_about_one_of_the_vectors():
    rows = engines.passages(2000, 1)
    asked = np.stack(engines.asked_about(rows, 20, 2)).astype(float)
    cosines = (asked @ rows.astype(float).T) / np.outer(
        np.linalg.norm(asked, axis=1), np.linalg.norm(rows.astype(float), axis=1)
    )
    assert 0.55 < np.median(cosines.max(axis=1)) < 0.8


def test_exhaustive_index_is_beside_approximate_ones_with_what_they_find():
    report = engines.run(sizes=[600], queries=10, words=False)
    recalls = {row["what"]: row["recall@10"] for row in report.rows}
    assert recalls["vectors: ours, flat int8"] == 1.0
    assert [name.split(",")[0] for name in recalls if "FAISS" in name] == [
        *["vectors: FAISS HNSW int8 M 16"] * 4,
        *["vectors: FAISS IVF int8 24 lists"] * 4,
    ]
    assert all(0.5 < recall <= 1.0 for recall in recalls.values())
    assert len(report.targets) == len(report.rows)


def test_the_command_prints_json_and_says_how_it_measures(monkeypatch):
    monkeypatch.setattr(engines, "use_lucene", lambda: False)
    run = CliRunner().invoke(app, ["bench", "engines", "--size", "100", "--queries", "3", "--no-vectors", "--json"])
    assert run.exit_code == 0
    report = json.loads(run.stdout)
    assert report["rows"][0]["what"] == "BM25+: ours"
    assert any("make lucene" in note for note in report["notes"])
    shown = CliRunner().invoke(app, ["bench", "engines", "--help"])
    assert "--large" in shown.stdout
