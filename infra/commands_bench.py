"""``mnemolog bench NAME``: each benchmark measures ours beside something bare in one run; see ``infra.bench``.

Modules of benchmarks are imported by their command: some load FAISS, Kafka clients or a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.bench import methods

app = typer.Typer(no_args_is_help=True, help="Benchmarks: ours beside something bare, in one run.")

BrokerOption = Annotated[
    str | None, typer.Option(help="embedded or kafka; by default kafka where Java and Maven are installed")
]
JsonOption = Annotated[bool, typer.Option("--json", help='Print {"rows": [...], "targets": [...], "machine": {...}}')]
CheckOption = Annotated[bool, typer.Option("--check", help="Exit with 1 where a target is missed")]
RepeatsOption = Annotated[int, typer.Option(min=1, help="Repeats; the table shows median and range")]
LargeOption = Annotated[bool, typer.Option("--large", help="The larger sizes too: minutes and gigabytes more")]
FilesArgument = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Files")]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Where embeddings are kept [default: $XDG_CACHE_HOME/mnemolog/bench]")
]
EmbedderOption = Annotated[
    str | None, typer.Option("--embeddings", help="An endpoint's URL with /v1 [default: the bundled model, in process]")
]
PresetsOption = Annotated[list[str] | None, typer.Option("--preset", help="Only this preset; may be given many times")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="The first preset once more, changed: experience.floor=0.5; may be given many times"),
]


def _end(report: Any, json: bool, check: bool) -> None:
    print(report.as_json() if json else report.as_text())
    raise typer.Exit(1 if check and not report.met else 0)


@contextmanager
def _embedder(url: str | None, cache: Path | None) -> Iterator[Any]:
    from infra.bench.embedded import CachedEmbedder, cache_dir

    embedder = CachedEmbedder.open(url, cache_dir(cache))
    try:
        yield embedder
    finally:
        embedder.close()


def _variants(presets: list[str] | None, changed: list[str] | None) -> list[Any]:
    from infra.bench.cores import variants

    return variants(presets or (), changed or ())


@app.command(help=methods.ANSWER)
def answer(
    broker: BrokerOption = None,
    samples: Annotated[int, typer.Option(min=3, help="Rounds of echo, recall, assemble in each state")] = 200,
    rate: Annotated[float, typer.Option(min=0, help="Turns a second in the second state; 0: idle only")] = 200.0,
    history: Annotated[int, typer.Option(min=1, help="Turns of the asking owner")] = 2000,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Latency of an answer beside a bare Kafka echo."""
    from infra.bench import answer as bench
    from infra.bench.stacks import broker_or_default

    _end(bench.run(broker=broker_or_default(broker), samples=samples, rate=rate, history=history), json, check)


@app.command(help=methods.INTAKE)
def intake(
    broker: BrokerOption = None,
    turns: Annotated[int, typer.Option(min=100, help="Turns of each repeat")] = 20_000,
    repeats: RepeatsOption = 3,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Turns a second into the journal."""
    from infra.bench import intake as bench
    from infra.bench.stacks import broker_or_default

    _end(bench.run(broker=broker_or_default(broker), count=turns, repeats=repeats), json, check)


@app.command(help=methods.FOLD)
def fold(
    broker: BrokerOption = None,
    turns: Annotated[int, typer.Option(min=100, help="Turns; two events each")] = 10_000,
    owners: Annotated[int, typer.Option(min=1, help="Owners that the turns are spread over")] = 20,
    repeats: RepeatsOption = 3,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Recorded events a second into state."""
    from infra.bench import fold as bench
    from infra.bench.stacks import broker_or_default

    _end(bench.run_fold(broker=broker_or_default(broker), turns=turns, owners=owners, repeats=repeats), json, check)


@app.command(help=methods.RECOVER)
def recover(
    broker: BrokerOption = None,
    events: Annotated[int, typer.Option(min=2, help="Events of the history")] = 100_000,
    owners: Annotated[int, typer.Option(min=1, help="Owners that they are spread over")] = 100,
    large: LargeOption = False,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Seconds until a worker is ready again."""
    from infra.bench import fold as bench
    from infra.bench.stacks import broker_or_default

    sizes = [events, 1_000_000] if large else [events]
    _end(bench.run_recover(broker=broker_or_default(broker), sizes=sizes, owners=owners), json, check)


@app.command(help=methods.RESTORE)
def restore(
    broker: BrokerOption = None,
    turns: Annotated[int, typer.Option(min=100, help="Turns; two events each")] = 50_000,
    owners: Annotated[int, typer.Option(min=1, help="Owners that the turns are spread over")] = 100,
    repeats: RepeatsOption = 3,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """The raw transcript: events a second into the archive and back into an empty broker."""
    from infra.bench import restore as bench
    from infra.bench.stacks import broker_or_default

    _end(bench.run(broker=broker_or_default(broker), turns=turns, owners=owners, repeats=repeats), json, check)


@app.command(help=methods.ARCHIVE)
def archive(
    broker: BrokerOption = None,
    turns: Annotated[int, typer.Option(min=100, help="Turns of each repeat")] = 20_000,
    repeats: RepeatsOption = 3,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """What archiving costs intake."""
    from infra.bench import restore as bench
    from infra.bench.stacks import broker_or_default

    _end(bench.run_intake(broker=broker_or_default(broker), count=turns, repeats=repeats), json, check)


@app.command(help=methods.EMBED)
def embed(
    broker: BrokerOption = None,
    seconds: Annotated[float, typer.Option(min=1, help="Length of each part")] = 20.0,
    queries: Annotated[int, typer.Option(min=3, help="Queries in each state")] = 60,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Turns a second posted [default: half of the passages/s]")
    ] = None,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """The embedder: passages a second, a query's latency, posted to recallable."""
    from infra.bench import embed as bench
    from infra.bench.stacks import broker_or_default

    _end(bench.run(broker=broker_or_default(broker), seconds=seconds, count=queries, rate=rate), json, check)


@app.command(help=methods.MEMORY)
def memory(
    sizes: Annotated[list[int] | None, typer.Option("--size", help="Turns; may be given many times")] = None,
    large: LargeOption = False,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Bytes a turn and a chunk, and growth."""
    from infra.bench import memory as bench

    chosen = sizes or [1000, 10_000, 100_000, *([1_000_000] if large else [])]
    chunks = [size for size in chosen if size >= 1000 and size <= 100_000][-2:] or chosen[-1:]
    _end(bench.run(sizes=chosen, chunks=chunks), json, check)


@app.command(help=methods.RECALL)
def recall(
    files: FilesArgument,
    split: Annotated[bool, typer.Option("--split", help="Figures of each conversation too")] = False,
    presets: PresetsOption = None,
    changed: SetOption = None,
    others: Annotated[bool, typer.Option(help="BM25+, vectors, RRF and mem0 beside")] = True,
    embeddings: EmbedderOption = None,
    cache: CacheOption = None,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Evidence recall on LoCoMo files."""
    from infra.bench import recall as bench

    with _embedder(embeddings, cache) as embedder:
        _end(
            bench.run(files, embedder=embedder, split=split, chosen=_variants(presets, changed), others=others),
            json,
            check,
        )


@app.command(help=methods.CORRECTIONS)
def corrections(
    cases: Annotated[int, typer.Option(min=1, help="Cases of each language")] = 56,
    seed: Annotated[int, typer.Option(help="Other cases")] = 1,
    presets: PresetsOption = None,
    changed: SetOption = None,
    embeddings: EmbedderOption = None,
    cache: CacheOption = None,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Corrected facts: the newest above the older, the old as of the past."""
    from infra.bench import corrections as bench

    with _embedder(embeddings, cache) as embedder:
        _end(bench.run(embedder=embedder, count=cases, chosen=_variants(presets, changed), seed=seed), json, check)


@app.command(help=methods.NOISE)
def noise(
    files: FilesArgument,
    ratios: Annotated[
        list[float] | None, typer.Option("--ratio", help="Characters of noise for one planted [default: 5, 200]")
    ] = None,
    embed_max: Annotated[int, typer.Option(min=0, help="Passages of the noise that are embedded")] = 300,
    noise_turns: Annotated[int, typer.Option(min=0, help="Turns of the dialogue that are noise, at most")] = 5000,
    presets: PresetsOption = None,
    changed: SetOption = None,
    embeddings: EmbedderOption = None,
    cache: CacheOption = None,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Planted facts among novels."""
    from infra.bench import noise as bench

    with _embedder(embeddings, cache) as embedder:
        report = bench.run(
            files,
            embedder=embedder,
            ratios=ratios or [5.0, 200.0],
            embed_max=embed_max,
            turns_max=noise_turns,
            chosen=_variants(presets, changed),
        )
        _end(report, json, check)


@app.command(help=methods.LATENCY)
def latency(
    turns: Annotated[int, typer.Option(min=10, help="Turns of the owner")] = 10_000,
    chunks: Annotated[int, typer.Option(min=1, help="Chunks of documents")] = 20_000,
    queries: Annotated[int, typer.Option(min=3, help="Questions")] = 300,
    large: Annotated[bool, typer.Option("--large", help="100,000 chunks too")] = False,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """The core without Kafka and embedder, its engines beside FAISS flat and bm25s."""
    from infra.bench import latency as bench

    sizes = [chunks, 100_000] if large else [chunks]
    _end(bench.run(turns=turns, chunks=sizes, queries=queries), json, check)


@app.command(help=methods.ENGINES)
def engines(
    sizes: Annotated[list[int] | None, typer.Option("--size", min=10, help="Chunks; may be given many times")] = None,
    queries: Annotated[int, typer.Option(min=3, help="Questions")] = 300,
    words: Annotated[bool, typer.Option(help="BM25+, bm25s and Lucene")] = True,
    vectors: Annotated[bool, typer.Option(help="Flat, HNSW and IVF")] = True,
    large: Annotated[bool, typer.Option("--large", help="200,000 and 1,000,000 chunks instead of 20,000")] = False,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """What matches words and vectors in very many chunks."""
    from infra.bench import engines as bench

    chosen = sizes or (bench.SIZES_LARGE if large else bench.SIZES)
    _end(bench.run(sizes=chosen, queries=queries, words=words, vectors=vectors), json, check)


@app.command(help=methods.EXTRACT)
def extract(
    files: Annotated[list[Path] | None, typer.Argument(exists=True, dir_okay=False, help="LoCoMo files")] = None,
    turns: Annotated[int, typer.Option(min=20, help="Turns of each language")] = 4_000,
    repeats: RepeatsOption = 3,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """Turns a second that the rules for facts read."""
    from infra.bench import extract as bench

    _end(bench.run(files or (), count=turns, repeats=repeats), json, check)


@app.command(help=methods.PROTOCOL)
def protocol(
    file: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="Labelled failures, JSON a line [default: the tests']"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Broken outputs")] = 100_000,
    seed: Annotated[int, typer.Option(help="Other outputs")] = 1,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """The answer parser on broken outputs; its time and a prompt's."""
    from infra.bench import protocol as bench

    _end(bench.run(count=count, seed=seed, failures=file), json, check)


@app.command(help=methods.PROXY)
def proxy(
    broker: BrokerOption = "embedded",
    samples: Annotated[int, typer.Option(min=3, help="Rounds")] = 200,
    history: Annotated[int, typer.Option(min=1, help="Turns of the owner")] = 1000,
    json: JsonOption = False,
    check: CheckOption = False,
) -> None:
    """What the proxy adds to the first token."""
    from infra.bench import proxy as bench
    from infra.bench.stacks import broker_or_default

    _end(bench.run(broker=broker_or_default(broker), samples=samples, history=history), json, check)
