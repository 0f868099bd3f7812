"""``bench engines``: what matches words and vectors in very many chunks, speed beside what it finds.

Deterministic but for the times: texts, questions and vectors come from seeds.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from connectors import lucene
from infra.bench.histories import DIMENSION, Texts
from infra.bench.memory import settled_bytes
from infra.bench.report import Report, Spread, Target, blocks, quantiles_ms, say
from infra.java import LUCENE_JAVA_MIN, find_java
from streams.core import bm25, text
from streams.core.engines import BM25Plus, WordsEngine
from streams.core.vectors import Vectors

SIZES = (20_000,)
SIZES_LARGE = (200_000, 1_000_000)
CHUNK_WORDS = 25
TOP = 100
WARM_UP = 10
WARM_UP_JVM = 300
"""Queries until a JVM has compiled what they run through: the first take five times as long."""
P99_MS = 50.0
"""Longest p99 of words and vectors of a query together, at any number of chunks measured here."""
SPECTRUM, LENGTH = 0.9, 784.0
"""Exponent by which the variance of directions falls, and root mean square length; see ``passages``."""
NEARNESS = 0.7
"""Cosine of a query and the passage that it is about; e5's questions and their evidence: 0.5 to 0.9."""
HNSW_LINKS, HNSW_BUILD = 16, 40
HNSW_SEARCHES = (64, 256, 1024)
IVF_PROBES = (16, 64, 256)
TRAINING_MAX = 100_000
Rows = list[dict[str, Any]]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Question:
    """Terms of a query, and the chunk that they were taken from."""

    terms: tuple[str, ...]
    chunk: int


def planted(chunks: int, count: int, seed: int = 41) -> tuple[list[list[str]], list[Question]]:
    """Terms of made-up chunks, half Chinese, half English, and questions planted in some of them.

    A question has four distinct terms of its chunk and two of another one, in no order: common words among them, so
    the right chunk is often not the only one that matches well.
    """
    texts = Texts(seed)
    tokens: list[list[str]] = []
    while len(tokens) < chunks:
        tokens += [text.tokens(said) for said in texts.utterances(min(10_000, chunks - len(tokens)), CHUNK_WORDS)]
    draws = np.random.default_rng(seed + 1)
    questions = []
    for chunk in draws.choice(chunks, size=min(count, chunks), replace=False).tolist():
        own, other = sorted(set(tokens[chunk])), sorted(set(tokens[int(draws.integers(chunks))]))
        terms = [*_some(draws, own, 4), *_some(draws, other, 2)]
        questions.append(Question(tuple(terms), chunk))
    return tokens, questions


def _some(draws: np.random.Generator, terms: list[str], count: int) -> list[str]:
    return [terms[index] for index in draws.permutation(len(terms))[:count].tolist()]


def ranked(engine: WordsEngine, tokens: Sequence[Sequence[str]], questions: Sequence[Question]) -> list[Ints]:
    """The best ``TOP`` chunks of each question, best first."""
    words = engine.segment()
    for terms in tokens:
        words.add(terms)
    mask = np.ones(len(tokens), dtype=bool)
    return [_best(engine.scores(question.terms, [(words, mask)], _BM25, TOP)[0]) for question in questions]


def recall_at(k: int, found: Sequence[Ints], questions: Sequence[Question]) -> float:
    """Share of the questions whose chunk is among the first k."""
    hits = [question.chunk in ids[:k].tolist() for ids, question in zip(found, questions, strict=True)]
    return float(np.mean(hits))


def _best(scores: npt.NDArray[np.float64]) -> Ints:
    count = min(TOP, len(scores))
    ids = np.argpartition(-scores, count - 1)[:count] if count else np.empty(0, dtype=np.int64)
    ids = ids[scores[ids] > 0]
    return ids[np.lexsort((ids, -scores[ids]))]


_BM25 = bm25.Parameters()
Search = Callable[[Any], Ints]


def _timed(what: str, chunks: int, asked: Sequence[Any], search: Search) -> tuple[dict[str, Any], list[Ints]]:
    warm = WARM_UP_JVM if "Lucene" in what else WARM_UP
    for query in islice(cycle(asked), warm):
        search(query)
    seconds, used, found = [], [], []
    for query in asked:
        begun, cpu = time.perf_counter(), time.thread_time()
        found.append(search(query))
        used.append(time.thread_time() - cpu)
        seconds.append(time.perf_counter() - begun)
    whole = quantiles_ms(seconds)
    say(f"{what}: p50 {whole['p50']:.2f} ms, p99 {whole['p99']:.2f} ms")
    parts = [quantiles_ms(part)["p50"] for part in blocks(seconds, 3)]
    row = {
        "what": what,
        "chunks": chunks,
        "n": len(asked),
        "p50 ms": Spread(whole["p50"], min(parts), max(parts), len(parts)),
        "p90 ms": whole["p90"],
        "p99 ms": whole["p99"],
        "CPU p99 ms": quantiles_ms(used)["p99"],
    }
    return row, found


def word_rows(chunks: int, queries: int) -> Rows:
    """Rows of the engines of words, each over the same terms and questions."""
    tokens, questions = planted(chunks, queries)
    rows: Rows = []
    for name, opened in {"BM25+: ours": _ours, "BM25+: bm25s": _bm25s, "BM25: Lucene": _lucene}.items():
        with opened(tokens) as built:
            if built is None:
                continue
            search, seconds, megabytes = built
            row, found = _timed(name, chunks, [question.terms for question in questions], search)
            recalls = {f"recall@{k}": recall_at(k, found, questions) for k in (1, 10)}
            rows.append({**row, **recalls, "MB": megabytes, "build s": seconds})
        gc.collect()
    return rows


Built = tuple[Search, float, float]


@contextmanager
def _ours(tokens: Sequence[Sequence[str]]) -> Iterator[Built | None]:
    before, begun = settled_bytes(), time.perf_counter()
    engine = BM25Plus()
    words = engine.segment()
    for terms in tokens:
        words.add(terms)
    seconds = time.perf_counter() - begun
    mask = np.ones(len(tokens), dtype=bool)
    megabytes = (settled_bytes() - before) / 1e6
    yield lambda terms: _best(engine.scores(terms, [(words, mask)], _BM25, TOP)[0]), seconds, megabytes


@contextmanager
def _bm25s(tokens: Sequence[Sequence[str]]) -> Iterator[Built | None]:
    if not importlib.util.find_spec("bm25s"):
        yield None
        return
    import bm25s  # type: ignore[import-not-found, unused-ignore]

    before, begun = settled_bytes(), time.perf_counter()
    index = bm25s.BM25(method="bm25+", k1=_BM25.k1, b=_BM25.b, delta=_BM25.delta)
    index.index([list(terms) for terms in tokens], show_progress=False)
    seconds = time.perf_counter() - begun
    megabytes = (settled_bytes() - before) / 1e6
    count = min(TOP, len(tokens))

    def search(terms: Sequence[str]) -> Ints:
        known = index.get_tokens_ids(list(terms))
        if not known:
            return np.empty(0, dtype=np.int64)
        return np.asarray(index.retrieve([list(terms)], k=count, show_progress=False)[0][0], dtype=np.int64)

    yield search, seconds, megabytes


@contextmanager
def _lucene(tokens: Sequence[Sequence[str]]) -> Iterator[Built | None]:
    if not use_lucene():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="mnemolog-bench-lucene-") as folder:
        begun = time.perf_counter()
        engine = lucene.Lucene(Path(folder))
        words = engine.segment()
        for terms in tokens:
            words.add(terms)
        words.refreshed(_BM25.k1, _BM25.b)
        seconds = time.perf_counter() - begun
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        mask = np.ones(len(tokens), dtype=bool)
        yield lambda terms: _best(engine.scores(terms, [(words, mask)], _BM25, TOP)[0]), seconds, size / 1e6
        engine.close()


def use_lucene() -> bool:
    """Whether Lucene can be used; points pyjnius at the newest JDK."""
    java = find_java(LUCENE_JAVA_MIN)
    if lucene.missing() or java is None:
        return False
    os.environ["JAVA_HOME"] = str(java.home)
    return True


def passages(count: int, seed: int) -> npt.NDArray[np.int8]:
    """Vectors ``(count, 384)`` int8 that fill their space as recorded sentence vectors do.

    The variance of the j-th direction falls as j ** -0.9. That is what 7,595 recorded e5 vectors of LoCoMo show: 33,
    55, 68, 81 and 94 % of it in the first 8, 32, 64, 128 and 256 directions (here 34, 54, 66, 78, 92), a participation
    ratio of 40, a length of 784 ± 11 %. Vectors that are equally random in all directions have no neighbours worth the
    name, and nothing but an exhaustive search finds their nearest.
    """
    basis = np.linalg.qr(np.random.default_rng(5).normal(size=(DIMENSION, DIMENSION)))[0]
    spread = np.arange(1, DIMENSION + 1)[:, None] ** (-SPECTRUM / 2) * basis
    spread = (spread * (LENGTH / np.linalg.norm(spread))).astype(np.float32)
    draws = np.random.default_rng(seed)
    out = np.empty((count, DIMENSION), dtype=np.int8)
    for start in range(0, count, 50_000):
        size = min(50_000, count - start)
        rows = draws.standard_normal((size, DIMENSION), dtype=np.float32) @ spread
        out[start : start + size] = np.clip(np.rint(rows), -127, 127)
    return out


def asked_about(rows: npt.NDArray[np.int8], count: int, seed: int) -> list[npt.NDArray[np.int8]]:
    """Queries each about one of the vectors: at a cosine of about ``NEARNESS``."""
    chosen = np.random.default_rng(seed).integers(0, len(rows), size=count)
    own, other = rows[chosen].astype(np.float64), passages(count, seed).astype(np.float64)
    mixed = NEARNESS * own + np.sqrt(1 - NEARNESS**2) * other
    return list(np.clip(np.rint(mixed), -127, 127).astype(np.int8))


def vector_rows(chunks: int, queries: int) -> Rows:
    """Rows of the engines of vectors; recall@10 is of the exact ten nearest."""
    rows_of = passages(chunks, 42)
    asked = asked_about(rows_of, queries, 43)
    everything = np.ones(chunks, dtype=bool)
    before, begun = settled_bytes(), time.perf_counter()
    ours = Vectors()
    for start in range(0, chunks, 50_000):
        ours.add(rows_of[start : start + 50_000])
    built = {"MB": (settled_bytes() - before) / 1e6, "build s": time.perf_counter() - begun}
    row, exact = _timed("vectors: ours, flat int8", chunks, asked, lambda v: ours.nearest(v, TOP, everything)[0])
    rows: Rows = [{**row, "recall@10": 1.0, **built}]
    half = everything[: chunks // 2]
    row, exact_half = _timed("vectors: ours, as of half", chunks, asked, lambda v: ours.nearest(v, TOP, half)[0])
    rows.append({**row, "recall@10": 1.0, **built})
    for name, index, settings in _approximate(rows_of):
        for told, parameters, visible in settings(len(half)):

            def search(vector: Any, index: Any = index, parameters: Any = parameters) -> Ints:
                return index["index"].search(vector.astype(np.float32)[None, :], TOP, params=parameters)[1][0]

            row, found = _timed(f"vectors: {name}, {told}", chunks, asked, search)
            wanted = exact if visible == chunks else exact_half
            rows.append({**row, "recall@10": _overlap(found, wanted), "MB": index["MB"], "build s": index["build s"]})
    return rows


def _overlap(found: Sequence[Ints], exact: Sequence[Ints], k: int = 10) -> float:
    return float(
        np.mean([len(set(f[:k].tolist()) & set(e[:k].tolist())) / k for f, e in zip(found, exact, strict=True)])
    )


def _approximate(rows: npt.NDArray[np.int8]) -> Iterator[tuple[str, dict[str, Any], Callable[[int], list[Any]]]]:
    """HNSW and IVF over int8, each with the settings that it is searched with, now and as of half."""
    library: Any = faiss  # its stubs lack what is used here
    quantizer, metric = library.ScalarQuantizer.QT_8bit_direct_signed, library.METRIC_INNER_PRODUCT
    hnsw = library.IndexHNSWSQ(DIMENSION, quantizer, HNSW_LINKS, metric)
    hnsw.hnsw.efConstruction = HNSW_BUILD
    lists = int(np.sqrt(len(rows)))
    ivf = library.IndexIVFScalarQuantizer(library.IndexFlatIP(DIMENSION), DIMENSION, lists, quantizer, metric, False)
    for name, index, parameters, setting, values in (
        (f"HNSW int8 M {HNSW_LINKS}", hnsw, library.SearchParametersHNSW, "efSearch", HNSW_SEARCHES),
        (f"IVF int8 {lists} lists", ivf, library.SearchParametersIVF, "nprobe", IVF_PROBES),
    ):

        def settings(
            half: int, parameters: Any = parameters, setting: str = setting, values: Sequence[int] = values
        ) -> list[Any]:
            told = [(f"{setting} {value}", parameters(**{setting: value}), len(rows)) for value in values]
            filtered = parameters(**{setting: values[-1]}, sel=library.IDSelectorRange(0, half))
            return [*told, (f"{setting} {values[-1]}, as of half", filtered, half)]

        yield f"FAISS {name}", _built(index, rows), settings


def _built(index: Any, rows: npt.NDArray[np.int8]) -> dict[str, Any]:
    """An index with the rows in it, how long that took with all cores, and what it holds of memory."""
    say(f"building {type(index).__name__} of {len(rows):,} vectors")
    faiss.omp_set_num_threads(os.cpu_count() or 1)
    before, begun = settled_bytes(), time.perf_counter()
    if not index.is_trained:
        step = max(1, len(rows) // TRAINING_MAX)
        index.train(rows[::step].astype(np.float32))
    for start in range(0, len(rows), 50_000):
        index.add(rows[start : start + 50_000].astype(np.float32))
    seconds = time.perf_counter() - begun
    faiss.omp_set_num_threads(1)
    return {"index": index, "build s": seconds, "MB": (settled_bytes() - before) / 1e6}


def run(*, sizes: Sequence[int], queries: int, words: bool = True, vectors: bool = True) -> Report:
    """Run the benchmark."""
    faiss.omp_set_num_threads(1)
    report = Report("engines")
    for chunks in sizes:
        say(f"{chunks:,} chunks")
        rows = [*(word_rows(chunks, queries) if words else []), *(vector_rows(chunks, queries) if vectors else [])]
        report.rows += rows
        for row in rows:
            name = f"{row['what']}, p99 ms at {chunks:,} chunks"
            report.targets.append(Target.at_most(name, row["p99 ms"], P99_MS))
    for name, there, how in (
        ("bm25s", bool(importlib.util.find_spec("bm25s")), "pip install 'mnemolog[bench]'"),
        ("Lucene", use_lucene(), "make lucene, and a JDK 21 or newer,"),
    ):
        if words and not there:
            report.notes.append(f"{name} is not installed: {how} puts it beside")
    return report
