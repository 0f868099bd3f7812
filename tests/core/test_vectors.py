"""Exact integer inner products, the same through FAISS and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import vectors
from streams.core.vectors import Vectors


def random_vectors(count: int, dimension: int, seed: int, span: int = 127) -> np.ndarray:
    return np.random.default_rng(seed).integers(-span, span + 1, (count, dimension)).astype(np.int8)


@given(st.integers(1, 300), st.integers(1, 32), st.integers(1, 40), st.integers(0, 99), st.sampled_from([1, 2, 127]))
def test_nearest_are_the_exact_best_with_newer_first_among_equals(n: int, d: int, k: int, seed: int, span: int) -> None:
    rows, query = random_vectors(n, d, seed, span), random_vectors(1, d, seed + 1, span)[0]
    mask = np.random.default_rng(seed).random(n) < 0.7
    index = Vectors()
    index.add(rows)
    ids, products = index.nearest(query, k, mask)
    exact = rows.astype(np.int64) @ query.astype(np.int64)
    wanted = sorted(np.flatnonzero(mask).tolist(), key=lambda i: (-exact[i], -i))[:k]
    assert ids.tolist() == wanted
    assert products.tolist() == exact[wanted].tolist()


@given(st.integers(1, 20), st.integers(0, 9))
def test_scores_of_a_subset_are_exact_at_1024_dimensions(n: int, seed: int) -> None:
    rows = np.where(random_vectors(n, 1024, seed) > 0, 127, -127).astype(np.int8)
    index = Vectors()
    index.add(rows)
    ids = np.arange(n)[::2]
    wanted = rows[ids].astype(np.int64) @ rows[0].astype(np.int64)
    assert index.scores(rows[0], ids).tolist() == wanted.tolist()


def test_vectors_beyond_the_mask_are_not_found() -> None:
    rows = random_vectors(50, 8, 3)
    whole, part = Vectors(), Vectors()
    whole.add(rows)
    part.add(rows[:20])
    mask = np.ones(20, dtype=bool)
    for query in random_vectors(10, 8, 4):
        assert whole.nearest(query, 30, mask)[0].tolist() == part.nearest(query, 30, mask)[0].tolist()


def test_base64_round_trip_and_refusals() -> None:
    row = random_vectors(1, 16, 5)[0]
    assert vectors.decode(vectors.encode(row)).tolist() == row.tolist()
    with pytest.raises(ValueError, match="base64"):
        vectors.decode("not base64!")
    with pytest.raises(ValueError, match="int8"):
        vectors.encode(row.astype(np.float32))
    index = Vectors()
    index.add(row[None, :])
    with pytest.raises(ValueError, match="expected"):
        index.add(row[None, :8])


def test_an_empty_index_finds_nothing() -> None:
    ids, products = Vectors().nearest(np.zeros(4, dtype=np.int8), 5, np.zeros(0, dtype=bool))
    assert len(ids) == len(products) == 0


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 99), st.booleans())
def test_rows_that_wait_are_searched_like_all_others(parts: list[int], seed: int, looking: bool) -> None:
    rows, query = random_vectors(sum(parts), 16, seed), random_vectors(1, 16, seed + 1)[0]
    growing, whole = Vectors(), Vectors()
    whole.add(rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vectors, "FRESH_BYTES_MAX", 16 * 20)
        start = 0
        for count in parts:
            growing.add(rows[start : start + count])
            start += count
            if looking:
                assert len(growing.nearest(query, 3, np.ones(start, dtype=bool))[0]) == min(3, start)
        assert len(growing) == len(whole)
        ids, mask = np.arange(len(rows)), np.ones(len(rows), dtype=bool)
        assert growing.cosines(query, ids).tobytes() == whole.cosines(query, ids).tobytes()
        assert growing.rows(ids).tolist() == rows.tolist()
        assert growing.nearest(query, 5, mask)[0].tolist() == whole.nearest(query, 5, mask)[0].tolist()


@pytest.mark.parametrize("dimension", [vectors.DIMENSIONS_SHIFTED_MAX, vectors.DIMENSIONS_SHIFTED_MAX + 1])
@pytest.mark.parametrize("value", [127, -127])
def test_products_are_exact_where_the_shift_is_taken_off_at_the_end(dimension: int, value: int) -> None:
    row = np.full(dimension, value, dtype=np.int8)
    row[1::3] = -value
    index = Vectors()
    index.add(np.stack([row, -row, np.full(dimension, 127, dtype=np.int8)]))
    wanted = [int(row.astype(np.int64) @ other.astype(np.int64)) for other in (row, -row, np.full(dimension, 127))]
    assert index.scores(row, np.arange(3)).tolist() == wanted
