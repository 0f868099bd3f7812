"""``bench memory``: bytes a turn and a chunk, and how the figures grow with the number of turns."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import time
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from infra.bench import latency
from infra.bench.cores import Core
from infra.bench.histories import START_MS, TURN_STEP_MS, encoded_events
from infra.bench.report import Report, quantiles_ms, say
from infra.bench.stacks import child, read_line
from schemas.codec import JOURNAL_EVENTS, decode_event
from streams.core.library import LibraryState

QUERIES = 100
BATCH = 1000
WARM_UP = 100


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled_bytes() -> int:
    """Resident memory after what is free was given back to the system."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # not glibc: the figure holds some free memory
        pass
    return rss_bytes()


def of_turns(turns: int) -> dict[str, Any]:
    """Fold so many turns in this process."""
    _turns(WARM_UP)  # vocabulary, segmenter and FAISS are loaded once, and are no turn's
    return _turns(turns)


def _turns(turns: int) -> dict[str, Any]:
    asked = latency.questions(QUERIES)
    text_bytes = 0
    before = settled_bytes()
    core = Core()
    used = 0.0
    source = encoded_events(turns, [latency.OWNER], latency.EMBEDDER)
    while batch := [value for _, value in islice(source, BATCH)]:
        events = [decode_event(value, JOURNAL_EVENTS) for value in batch]
        begun = time.process_time()
        for event in events:
            core.journal.apply(core.journal.next_offset, event)
        used += time.process_time() - begun
        text_bytes += sum(len(event.text.encode()) for event in events if event.type == "TurnRecorded")
        del events, batch
    grown = settled_bytes() - before
    now_ms = START_MS + (turns + 60) * TURN_STEP_MS
    seconds = [
        latency.ask(core, query, vector, "recall", now_ms)[1]
        for query, vector in zip(asked.texts, asked.vectors, strict=True)
    ]
    times = quantiles_ms(seconds)
    return {
        "bytes": grown / turns,
        "text": text_bytes / turns,
        "apply/s": 2 * turns / used,
        "p50": times["p50"],
        "p99": times["p99"],
    }


def of_chunks(chunks: int) -> dict[str, Any]:
    """Fold so many children in this process."""
    _chunks(WARM_UP)
    return _chunks(chunks)


def _chunks(chunks: int) -> dict[str, Any]:
    state = LibraryState(latency.EMBEDDER)
    before = settled_bytes()
    text_bytes = 0
    for offset, document in enumerate(latency.documents(chunks)):
        text_bytes += sum(len(parent.text.encode()) for parent in document.parents)
        state.apply(offset, document)
    return {"bytes": (settled_bytes() - before) / chunks, "text": text_bytes / chunks}


def run(*, sizes: Sequence[int], chunks: Sequence[int]) -> Report:
    """Run the benchmark, each size in a process of its own."""
    report = Report("memory")
    for kind, counts in (("turns", sizes), ("chunks", chunks)):
        for count in counts:
            say(f"{count} {kind}")
            with child("infra.bench.memory", kind, str(count)) as process:
                found = json.loads(read_line(process))
            report.rows.append(row_of(kind, count, found))
    _growth(report)
    return report


def row_of(kind: str, count: int, found: dict[str, float]) -> dict[str, Any]:
    """A row of the table."""
    return {
        "of": kind,
        "count": count,
        "bytes each": round(found["bytes"]),
        "text bytes": round(found["text"]),
        "vector bytes": 384,
        "apply events/CPU-s": found.get("apply/s"),
        "recall CPU p50 ms": found.get("p50"),
        "recall CPU p99 ms": found.get("p99"),
    }


def _growth(report: Report) -> None:
    turns = [row for row in report.rows if row["of"] == "turns"]
    for small, large in pairwise(turns):
        report.notes.append(
            f"{large['count'] / small['count']:g} times the turns: recall p50 "
            f"{large['recall CPU p50 ms'] / small['recall CPU p50 ms']:.1f} times, events a second "
            f"{large['apply events/CPU-s'] / small['apply events/CPU-s']:.2f} times"
        )


def main() -> None:
    """The measured process: one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.memory")
    parser.add_argument("kind", choices=("turns", "chunks"))
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    print(json.dumps(of_turns(options.count) if options.kind == "turns" else of_chunks(options.count)))


if __name__ == "__main__":
    main()
