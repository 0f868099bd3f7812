"""``bench latency``: the core's time for a recall and a prompt, its engines beside FAISS flat and bm25s."""

from __future__ import annotations

import base64
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np

from infra.bench.cores import EMBEDDER, Core
from infra.bench.histories import START_MS, TURN_STEP_MS, Owned, Texts, VectorSource, events
from infra.bench.report import Report, Spread, Target, blocks, quantiles_ms, say
from schemas.documents import Child, DocumentChunked, Parent
from schemas.envelope import derived_id, instant_of
from schemas.positions import Position
from schemas.recalls import Request
from streams.core import bm25, text
from streams.core.answer import answer, moment_of
from streams.core.settings import resolve
from streams.core.vectors import Vectors

OWNER = Owned("ada")
CHILDREN = 4
P99_MS = {20_000: 5.0, 100_000: 15.0}
"""Longest p99 of a recall by number of chunks."""
REPEATS = 3
TOP = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """Texts and vectors of the questions."""

    texts: list[str]
    vectors: Any


def questions(count: int) -> Asked:
    """Made-up questions, the same every time."""
    return Asked(Texts(31).utterances(count, 8), VectorSource(32).take(count))


def build(turns: int, chunks: int) -> Core:
    """A core with so many turns and chunks."""
    core = Core()
    for offset, event in enumerate(events(turns, [OWNER], EMBEDDER)):
        core.journal.apply(offset, event)
    for offset, document in enumerate(documents(chunks)):
        core.library.apply(offset, document)
    return core


def documents(chunks: int) -> Iterator[DocumentChunked]:
    """Documents of 16 parents of four children of about 150 characters."""
    texts, source = Texts(41), VectorSource(42)
    for number in range(-(-chunks // (16 * CHILDREN))):
        left = min(16 * CHILDREN, chunks - number * 16 * CHILDREN)
        children = texts.utterances(left, 25)
        rows = source.take(left)
        yield _document(number, children, rows)


def _document(number: int, children: Sequence[str], rows: Any) -> DocumentChunked:
    parents: list[Parent] = []
    position = 0
    for first in range(0, len(children), CHILDREN):
        spans: list[Child] = []
        start = position
        for index in range(first, min(first + CHILDREN, len(children))):
            vector = base64.b64encode(rows[index].tobytes()).decode()
            spans.append(Child(start=position, end=position + len(children[index]), vector=vector))
            position += len(children[index])
        whole = "".join(children[first : first + CHILDREN])
        parents.append(Parent(index=len(parents), start=start, text=whole, children=tuple(spans)))
    at = instant_of(START_MS)
    return DocumentChunked(
        event_id=derived_id("chunks", number),
        occurred_at=at,
        recorded_at=at,
        document_id=f"d{number}",
        revision_id=f"r{number}",
        part=0,
        parts=1,
        embedder=EMBEDDER,
        parents=tuple(parents),
        source=Position(topic="documents", partition=0, offset=number),
    )


def ask(core: Core, query: str, vector: Any, kind: str, now_ms: int) -> tuple[float, float]:
    """Seconds of one answer, by the wall clock and of this thread's CPU time."""
    request = Request(
        request_id="q",
        kind="assemble" if kind == "assemble" else "recall",
        user_id=OWNER.user_id,
        role_id=OWNER.role_id,
        query=query,
    )
    settings = resolve()
    begun, used = time.perf_counter(), time.thread_time()
    moment = moment_of(core.journal, core.library, request, now_ms)
    source = Position(topic="requests", partition=0, offset=0)
    answer(
        core.journal,
        core.library,
        request,
        source,
        settings,
        vector,
        moment=moment,
        config={"embedder": EMBEDDER},
        recorded_at=instant_of(now_ms),
    )
    return time.perf_counter() - begun, time.thread_time() - used


def core_rows(core: Core, turns: int, chunks: int, asked: Asked) -> list[dict[str, Any]]:
    """Rows of recall and assemble, asked in turn."""
    now_ms = START_MS + (turns + 60) * TURN_STEP_MS
    seconds: dict[str, list[tuple[float, float]]] = {"recall": [], "assemble": []}
    for query, vector in zip(asked.texts[:10], asked.vectors[:10], strict=True):
        ask(core, query, vector, "assemble", now_ms)
    for query, vector in zip(asked.texts, asked.vectors, strict=True):
        for kind, found in seconds.items():
            found.append(ask(core, query, vector, kind, now_ms))
    return [timed_row(f"core: {kind}", turns, chunks, found) for kind, found in seconds.items()]


def timed_row(what: str, turns: int, chunks: int, times: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """A row of quantiles of (wall, CPU) seconds."""
    seconds = [wall for wall, _ in times]
    whole, cpu = quantiles_ms(seconds), quantiles_ms([used for _, used in times])
    parts = [quantiles_ms(part)["p50"] for part in blocks(seconds, REPEATS)]
    return {
        "what": what,
        "turns": turns,
        "chunks": chunks,
        "n": len(seconds),
        "p50 ms": Spread(whole["p50"], min(parts), max(parts), len(parts)),
        "p90 ms": whole["p90"],
        "p99 ms": whole["p99"],
        "CPU p50 ms": cpu["p50"],
        "CPU p99 ms": cpu["p99"],
    }


def engine_rows(turns: int, chunks: int, asked: Asked) -> list[dict[str, Any]]:
    """Rows of the engines alone over as many entries as there are turns, then chunks."""
    rows: list[dict[str, Any]] = []
    for name, count, words in (("turns", turns, 14), ("chunks", chunks, 25)):
        vectors = VectorSource(42).take(count)
        tokens = [text.tokens(said) for said in Texts(41).utterances(count, words)]
        for what, step in {**_vector_steps(vectors), **_word_steps(tokens)}.items():
            seconds: list[tuple[float, float]] = []
            for query, vector in zip(asked.texts, asked.vectors, strict=True):
                begun, used = time.perf_counter(), time.thread_time()
                step(query, vector)
                seconds.append((time.perf_counter() - begun, time.thread_time() - used))
            of = {"turns": count if name == "turns" else 0, "chunks": count if name == "chunks" else 0}
            rows.append(timed_row(what, of["turns"], of["chunks"], seconds))
    return rows


Step = Callable[[str, Any], object]


def _vector_steps(vectors: Any) -> dict[str, Step]:
    ours = Vectors()
    ours.add(vectors)
    floats = vectors.astype(np.float32)
    flat = faiss.IndexFlatIP(floats.shape[1])
    flat.add(floats)
    everything = np.ones(len(vectors), dtype=bool)
    words = vectors.reshape(-1).view(np.int64)
    return {
        "vectors: ours (int8)": lambda _q, v: ours.nearest(v, TOP, everything),
        "vectors: FAISS flat (float32)": lambda _q, v: flat.search(v.astype(np.float32)[None, :], TOP),
        "vectors: int8 bytes read once": lambda _q, _v: words.sum(),
        "vectors: float32 bytes read once": lambda _q, _v: floats.view(np.int64).sum(),
    }


def _word_steps(tokens: Sequence[Sequence[str]]) -> dict[str, Step]:
    postings = bm25.Postings()
    for index, terms in enumerate(tokens):
        postings.add(terms, previous=index - 1)
    segment = bm25.Segment(postings, np.ones(len(tokens), dtype=bool))
    parameters = bm25.Parameters()
    window = bm25.Window(reach=2, weight=0.65)
    steps: dict[str, Step] = {
        "BM25+: ours": lambda q, _v: bm25.scores(text.query_tokens(q), [segment], parameters),
        "BM25+: ours, two neighbours": lambda q, _v: bm25.scores(text.query_tokens(q), [segment], parameters, window),
    }
    if importlib.util.find_spec("bm25s"):
        import bm25s  # type: ignore[import-not-found, unused-ignore]

        other = bm25s.BM25(method="bm25+", k1=1.2, b=0.75, delta=1.0)
        other.index([list(terms) for terms in tokens], show_progress=False)
        steps["BM25+: bm25s"] = lambda q, _v: _best_of_bm25s(other, list(text.query_tokens(q)), min(TOP, len(tokens)))
    return steps


def _best_of_bm25s(index: Any, terms: list[str], count: int) -> object:
    """Its scores and its selection; ``retrieve`` refuses a query without a known term."""
    return index.retrieve([terms], k=count, show_progress=False) if index.get_tokens_ids(terms) else None


def run(*, turns: int, chunks: Sequence[int], queries: int) -> Report:
    """Run the benchmark."""
    faiss.omp_set_num_threads(1)
    report = Report("latency")
    asked = questions(queries)
    for count in chunks:
        say(f"building {turns} turns and {count} chunks")
        report.rows += core_rows(build(turns, count), turns, count, asked)
        recall = next(row for row in report.rows if row["what"] == "core: recall" and row["chunks"] == count)
        most = next((ms for size, ms in sorted(P99_MS.items()) if count <= size), None)
        if most is not None:
            name = f"recall p99, ms, at {turns:,} turns and {count:,} chunks"
            report.targets.append(Target.at_most(name, recall["p99 ms"], most))
            report.targets.append(Target.at_most(f"{name}, of CPU time", recall["CPU p99 ms"], most))
    report.rows += engine_rows(turns, max(chunks), asked)
    if not importlib.util.find_spec("bm25s"):
        report.notes.append("bm25s is not installed: pip install 'mnemolog[bench]' puts it beside")
    return report
