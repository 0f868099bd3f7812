"""BM25+ against a plain reference, as of any point, over several segments."""

import math
import time
from array import array
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import bm25
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


def windowed_reference(
    query: list[str], texts: list[list[str]], previous: list[int], seen: list[bool], window: Window, p: Parameters
) -> list[float]:
    """BM25+ in which visible entries lend theirs along the chain, word by word."""
    following = {before: entry for entry, before in enumerate(previous) if before >= 0}

    def around(entry: int) -> list[tuple[float, int]]:
        found, before, after = [(1.0, entry)], entry, entry
        for distance in range(1, window.reach + 1):
            before, after = previous[before] if before >= 0 else -1, following.get(after, -1)
            found += [(window.weight**distance, there) for there in (before, after) if there >= 0 and seen[there]]
        return found

    visible = [entry for entry in range(len(texts)) if seen[entry]]
    lengths = {e: sum(weight * len(texts[there]) for weight, there in around(e)) for e in visible}
    average = sum(lengths.values()) / len(visible) if visible else 0.0
    out = [0.0] * len(texts)
    for term, times in Counter(query).items():
        tf = {e: sum(weight * texts[there].count(term) for weight, there in around(e)) for e in visible}
        df = sum(frequency > 0 for frequency in tf.values())
        for e, frequency in tf.items():
            if frequency > 0:
                saturation = p.k1 * (1 - p.b + p.b * lengths[e] / average)
                out[e] += (
                    times
                    * math.log((len(visible) + 1) / df)
                    * ((p.k1 + 1) * frequency / (saturation + frequency) + p.delta)
                )
    return out


chains = st.lists(st.tuples(st.lists(st.sampled_from(WORDS), max_size=6), st.integers(0, 2)), min_size=1, max_size=24)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)


def chained(turns: list[tuple[list[str], int]]) -> list[int]:
    """The entry before each in its session."""
    last: dict[int, int] = {}
    return [(last.get(session, -1), last.update({session: entry}))[0] for entry, (_, session) in enumerate(turns)]


@given(chains, queries, st.integers(1, 3), st.data())
def test_lent_terms_equal_the_reference_at_every_size_of_a_growing_index(
    turns: list, query: list, reach: int, data: st.DataObject
) -> None:
    texts, previous, window = [words for words, _ in turns], chained(turns), Window(reach=reach, weight=0.5)
    growing = Postings()
    for entry, words in enumerate(texts):
        growing.add(words, previous=previous[entry])
        seen = data.draw(
            st.one_of(st.just([True] * (entry + 1)), st.lists(st.booleans(), min_size=1, max_size=entry + 1))
        )
        got = scores(query, [Segment(growing, np.array(seen))], Parameters(), window)[0]
        size = len(seen)
        wanted = windowed_reference(query, texts[:size], previous[:size], seen, window, Parameters())
        assert got.tolist() == pytest.approx(wanted)
        fresh = Postings()
        for before, past in zip(previous[:size], texts[:size], strict=True):
            fresh.add(past, previous=before)
        assert got.tobytes() == scores(query, [Segment(fresh, np.array(seen))], Parameters(), window)[0].tobytes()


@given(chains, queries)
def test_neighbours_of_no_weight_lend_nothing(turns: list, query: list) -> None:
    postings = Postings()
    for (words, _), before in zip(turns, chained(turns), strict=True):
        postings.add(words, previous=before)
    segment = Segment(postings, np.ones(len(turns), dtype=bool))
    lent = scores(query, [segment], Parameters(), Window(reach=2, weight=0.0))[0]
    assert lent.tolist() == pytest.approx(scores(query, [segment], Parameters())[0].tolist())


@given(chains, st.lists(st.sampled_from(WORDS), min_size=2, max_size=4))
def test_terms_scored_one_by_one_or_together_are_the_same_sum(turns: list, query: list) -> None:
    postings = Postings()
    for (words, _), before in zip(turns, chained(turns), strict=True):
        postings.add(words, previous=before)
    segment, window = Segment(postings, np.ones(len(turns), dtype=bool)), Window(reach=2)
    together = scores(query, [segment], Parameters(), window)[0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bm25, "CELLS_MAX", 1)
        assert scores(query, [segment], Parameters(), window)[0].tolist() == pytest.approx(together.tolist())


@given(chains, queries, st.integers(0, 24))
def test_restored_postings_are_those_that_were_dumped_and_grow_on(turns: list, query: list, size: int) -> None:
    texts, previous = [words for words, _ in turns], chained(turns)
    size = min(size, len(turns))
    whole, part = Postings(), Postings()
    for entry, words in enumerate(texts):
        whole.add(words, previous=previous[entry])
        if entry < size:
            part.add(words, previous=previous[entry])
    kept, counts, pairs = whole.dumped(whole.terms(), size)
    assert kept == part.terms()
    flat = [array("i", chunk.tobytes()) for chunk in np.split(pairs, np.cumsum(counts)[:-1])] if kept else []
    back = Postings.restored(
        dict(zip(kept, flat, strict=True)), whole.lengths(size).copy(), np.array(previous[:size], dtype=np.int64)
    )
    for entry in range(size, len(texts)):
        back.add(texts[entry], previous=previous[entry])
    assert [back.posting(term).tolist() for term in WORDS] == [whole.posting(term).tolist() for term in WORDS]
    assert [back.count(term, size) for term in WORDS] == [part.count(term, size) for term in WORDS]
    mask = np.ones(len(texts), dtype=bool)
    left, right = (scores(query, [Segment(index, mask)], Parameters(), Window(reach=2))[0] for index in (back, whole))
    assert left.tobytes() == right.tobytes()


def test_a_query_without_terms_scores_nothing() -> None:
    found = bm25.search([], [Segment(indexed([["ant"]]), np.array([True]))], Parameters(), overlap=True)[0]
    assert found.score.tolist() == [0.0]
    assert found.overlap is not None
    assert found.overlap.tolist() == [0.0]
