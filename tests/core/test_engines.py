"""BM25+ keeps the contract of an engine of words, and its promise of exactness at a cut."""

import numpy as np
import pytest

from streams.core.bm25 import Parameters
from streams.core.engines import BM25Plus, WordsEngine
from streams.core.knowledge import Knowledge
from streams.core.library import LibraryState
from streams.core.text import tokens
from tests.contracts import WordsEngineContract


class TestBM25Plus(WordsEngineContract):
    @pytest.fixture
    def subject(self) -> WordsEngine:
        return BM25Plus()


def test_scores_at_a_cut_are_those_of_an_index_that_ends_there():
    engine = BM25Plus()
    assert engine.exact
    whole, part = engine.segment(), engine.segment()
    texts = ["red tea", "green tea", "the tram", "tea", "red wine"]
    for said in texts:
        whole.add(tokens(said))
    for said in texts[:3]:
        part.add(tokens(said))
    mask = np.ones(3, dtype=bool)
    then, there = (engine.scores(["red", "tea"], [(words, mask)], Parameters(), 1)[0] for words in (whole, part))
    assert then.tobytes() == there.tobytes()


def test_library_hands_its_engine_to_knowledge():
    class Counting(BM25Plus):
        made = 0

        def segment(self):
            Counting.made += 1
            return super().segment()

    LibraryState("toy", Counting())
    assert Counting.made == 1
    assert isinstance(Knowledge(), Knowledge)
