"""BM25+ against a plain reference, as of any point, over several segments."""

import math
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.bm25 import Parameters, Postings, Segment, Window, scores

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox"]
documents = st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=12)


def reference(query: list[str], texts: list[list[str]], p: Parameters) -> list[float]:
    """Lv and Zhai's BM25+ word by word."""
    average = sum(map(len, texts)) / len(texts)
    out = []
    for words in texts:
        score = 0.0
        for term, weight in Counter(query).items():
            tf, df = words.count(term), sum(term in other for other in texts)
            if tf:
                saturation = p.k1 * (1 - p.b + p.b * len(words) / average)
                gain = (p.k1 + 1) * tf / (saturation + tf) + p.delta
                score += weight * math.log((len(texts) + 1) / df) * gain
        out.append(score)
    return out


def indexed(texts: list[list[str]]) -> Postings:
    postings = Postings()
    for words in texts:
        postings.add(words)
    return postings


@given(documents, st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), st.data())
def test_scores_equal_the_reference_over_visible_entries(texts: list, query: list, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    got = scores(query, [Segment(indexed(texts), mask)], Parameters())[0]
    visible = [words for words, seen in zip(texts, mask, strict=True) if seen]
    wanted = iter(reference(query, visible, Parameters()) if any(visible) else [0.0] * len(visible))
    assert got.tolist() == pytest.approx([next(wanted) if seen else 0.0 for seen in mask])


@given(documents, documents, st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), st.integers(0, 2))
def test_entries_beyond_the_mask_change_no_bit(texts: list, later: list, query: list, reach: int) -> None:
    whole, part = Postings(), Postings()
    for index, words in enumerate(texts + later):
        whole.add(words, previous=index - 1)
    for index, words in enumerate(texts):
        part.add(words, previous=index - 1)
    mask, window = np.ones(len(texts), dtype=bool), Window(reach=reach)
    left = scores(query, [Segment(whole, mask)], Parameters(), window)[0]
    right = scores(query, [Segment(part, mask)], Parameters(), window)[0]
    assert left.tobytes() == right.tobytes()


@given(documents, documents, st.lists(st.sampled_from(WORDS), min_size=1, max_size=5))
def test_two_segments_score_like_one_collection(left: list, right: list, query: list) -> None:
    both = np.ones(len(left) + len(right), dtype=bool)
    parts = [Segment(indexed(texts), np.ones(len(texts), dtype=bool)) for texts in (left, right)]
    apart = np.concatenate(scores(query, parts, Parameters()))
    assert apart.tolist() == pytest.approx(
        scores(query, [Segment(indexed(left + right), both)], Parameters())[0].tolist()
    )


def test_neighbours_lend_their_terms_within_the_window_only() -> None:
    postings = Postings()
    for index, word in enumerate(["ant", "bee", "cat", "dog"]):
        postings.add([word], previous=index - 1)
    mask = np.ones(4, dtype=bool)
    got = scores(["ant"], [Segment(postings, mask)], Parameters(), Window(reach=2, weight=0.5))[0]
    assert got[0] > got[1] > got[2] > got[3] == 0
    mask[0] = False
    assert not scores(["ant"], [Segment(postings, mask)], Parameters(), Window(reach=2, weight=0.5))[0].any()


def test_a_very_long_query_scores_its_rarest_terms() -> None:
    common = [f"w{number}" for number in range(400)]
    texts = [common, common, ["needle"], *([["w1", "w2"]] * 5)]
    query = [f"w{number}" for number in range(400)] + ["needle"]
    got = scores(query, [Segment(indexed(texts), np.ones(len(texts), dtype=bool))], Parameters())[0]
    assert got[2] > 0


def test_ten_thousand_entries_are_added_and_searched_in_time() -> None:
    rng = np.random.default_rng(1)
    words = [f"w{number}" for number in range(5000)]
    texts = [[words[i] for i in (rng.zipf(1.3, 20) % 5000)] for _ in range(10_000)]
    started = time.process_time()
    postings = indexed(texts)
    assert time.process_time() - started < 2.0
    mask = np.ones(len(texts), dtype=bool)
    started = time.process_time()
    for number in range(20):
        scores(words[number * 10 : number * 10 + 10], [Segment(postings, mask)], Parameters())
    assert (time.process_time() - started) / 20 < 0.02
