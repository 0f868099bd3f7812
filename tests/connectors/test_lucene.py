"""Lucene keeps the contract of an engine of words and finds what BM25+ finds, as often.

Run after ``make lucene``; skipped where pyserini or a JDK 21 is missing.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from connectors import lucene
from connectors.lucene import Lucene, LuceneMissing
from infra.bench import engines
from streams.core.engines import BM25Plus, WordsEngine
from streams.core.knowledge import Knowledge
from streams.core.settings import resolve
from streams.core.visibility import Cut
from tests.contracts import WordsEngineContract
from tests.core.memories import START_MS, query, revision

usable = pytest.mark.skipif(not engines.use_lucene(), reason="Lucene is not installed: make lucene, and a JDK 21+")


@pytest.fixture
def engine():
    made = Lucene()
    yield made
    made.close()


@usable
@pytest.mark.lucene
class TestLucene(WordsEngineContract):
    @pytest.fixture
    def subject(self, engine: Lucene) -> WordsEngine:
        return engine


@usable
@pytest.mark.lucene
def test_both_engines_agree_on_ranking_quality(engine: Lucene):
    chunks, questions = engines.planted(4_000, 400)
    ours = engines.ranked(BM25Plus(), chunks, questions)
    theirs = engines.ranked(engine, chunks, questions)
    for k, tolerance in ((1, 0.08), (5, 0.03), (10, 0.02)):
        recalls = [engines.recall_at(k, found, questions) for found in (ours, theirs)]
        assert abs(recalls[0] - recalls[1]) <= tolerance, (k, recalls)
        assert min(recalls) > (0.75 if k == 1 else 0.95), (k, recalls)
    shared = [
        len(set(one[:10].tolist()) & set(other[:10].tolist())) / 10 for one, other in zip(ours, theirs, strict=True)
    ]
    assert np.mean(shared) > 0.7


@usable
@pytest.mark.lucene
def test_knowledge_on_lucene_follows_revisions_removals_and_roles(engine: Lucene):
    knowledge = Knowledge(engine)
    settings = resolve("no_vectors")
    knowledge.add_revision("shared", revision("馄饨是一种面食。"), 0, START_MS)
    knowledge.add_revision("own", revision("馄饨配醋。", role_id="lin"), 1, START_MS)
    knowledge.add_revision("others", revision("馄饨的秘密。", role_id="kai"), 2, START_MS)
    knowledge.add_revision("shared", revision("面条是一种面食。"), 3, START_MS)
    knowledge.remove("own", 4, START_MS)

    def found(offset: int, role: str = "lin") -> set[str]:
        result = knowledge.search(query("馄饨", vector=None), settings, Cut(offset), role)
        assert result.notes["engines"] == (["lucene"] if result.candidates else [])
        return {candidate.text for candidate in result.candidates}

    assert found(0) == {"馄饨是一种面食。"}
    assert found(1) == found(2) == {"馄饨是一种面食。", "馄饨配醋。"}
    assert found(3) == {"馄饨配醋。"}
    assert found(4) == set()
    assert found(4, "kai") == {"馄饨的秘密。"}


@usable
@pytest.mark.lucene
def test_files_are_gone_once_the_engine_is_closed(tmp_path):
    engine = Lucene(tmp_path)
    words = engine.segment()
    words.add(["tea"])
    assert engine.scores(["tea"], [(words, np.array([True]))], engines._BM25, 5)[0][0] > 0
    assert list(tmp_path.rglob("*.si"))
    engine.close()
    assert list(tmp_path.iterdir()) == []


def test_absence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(lucene.importlib.util, "find_spec", lambda name: None)
    assert lucene.missing() == "pyserini and jnius not installed: make lucene"
    lucene._java.cache_clear()
    lucene._warmed_up.cache_clear()
    try:
        with pytest.raises(LuceneMissing, match="make lucene"):
            Lucene()
    finally:
        lucene._java.cache_clear()


def test_importing_the_connector_starts_no_jvm():
    program = "import sys, connectors.lucene; sys.exit('jnius' in sys.modules or 'pyserini' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
