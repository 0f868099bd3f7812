"""``bench recall``: how much of the evidence of LoCoMo's questions is ranked first, beside other ways to rank."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from infra.bench import field
from infra.bench.cores import Core, Variant, turn_ids
from infra.bench.embedded import CachedEmbedder
from infra.bench.locomo import Conversation, read
from infra.bench.metrics import Judged, row_of
from infra.bench.report import Report, Target, quantiles_ms, say
from schemas.recalls import Limits

LIMITS = Limits(knowledge=0, experience=20, memory=0)
TARGETS = {"recall@5": 0.75, "recall@10": 0.85}
PRESET = "balanced"


@dataclass(frozen=True, slots=True)
class Owner:
    """A conversation in memory."""

    talk: Conversation
    core: Core
    now: str


def owner_of(talk: Conversation, embedder: CachedEmbedder) -> Owner:
    """Fold a conversation and its vectors."""
    core = Core()
    for turn in talk.turns:
        core.say(
            talk.id,
            turn.id,
            turn.text,
            turn.at.isoformat(),
            speaker=turn.speaker,
            name=turn.name,
            session_id=turn.session,
            captions=turn.captions,
        )
    core.embed(embedder)
    return Owner(talk, core, (talk.turns[-1].at + dt.timedelta(days=1)).isoformat())


def judge(owners: Sequence[Owner], ranker_of: Callable[[Owner], field.Ranker]) -> tuple[list[Judged], dict[str, float]]:
    """Ask every question of every conversation; what was ranked, and ms a question."""
    judged: list[Judged] = []
    seconds: list[float] = []
    for owner in owners:
        rank = ranker_of(owner)
        for question in owner.talk.questions:
            begun = time.perf_counter()
            ranked = rank(question.text)
            seconds.append(time.perf_counter() - begun)
            judged.append(Judged(ranked, question.evidence, question.category, owner.talk.id))
    return judged, quantiles_ms(seconds)


def preset_ranker(variant: Variant, embedder: CachedEmbedder, owner: Owner) -> field.Ranker:
    """The core's ranking under a preset or a variant of it."""

    def rank(query: str) -> list[str]:
        reply, _ = owner.core.ask(owner.talk.id, query, owner.now, embedder, variant=variant, limits=LIMITS)
        return turn_ids(reply)

    return rank


def run(
    paths: Sequence[Path],
    *,
    embedder: CachedEmbedder,
    split: bool = False,
    chosen: Sequence[Variant],
    others: bool = True,
) -> Report:
    """Run the benchmark. ``others``: what the variants are compared with."""
    report = Report("recall")
    talks = read(paths)
    owners = [owner_of(talk, embedder) for talk in talks]
    say(f"{len(talks)} conversations, {sum(len(t.turns) for t in talks)} turns are in memory")
    for variant in chosen:
        _add(report, owners, variant.name, partial(preset_ranker, variant, embedder), split)
    if others:
        _add_others(report, owners, embedder, split)
    _conclude(report, talks, embedder)
    return report


def _add(
    report: Report, owners: Sequence[Owner], method: str, ranker_of: Callable[[Owner], field.Ranker], split: bool
) -> None:
    judged, times = judge(owners, ranker_of)
    row = row_of(method, judged, split=split)
    row["p50 ms"] = times["p50"]
    report.rows.append(row)
    if split:
        report.rows += [_split_row(method, group, found) for group, found in row["by_conversation"].items()]
    say(f"{method}: recall@10 {row['recall@10']:.3f}")


def _split_row(method: str, group: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"method": f"  {method} on {group}", **found, "by_category": {}}


def _add_others(report: Report, owners: Sequence[Owner], embedder: CachedEmbedder, split: bool) -> None:
    bare = {owner.talk.id: field.BareTurns(owner.talk, embedder) for owner in owners}
    rankers: dict[str, Callable[[field.BareTurns], field.Ranker]] = {
        "bm25+ (bare turns)": lambda turns: turns.bm25,
        "vectors (bare turns)": lambda turns: turns.vectors,
        "rrf (bare turns)": lambda turns: turns.rrf,
    }
    for name, ranker in rankers.items():
        _add(report, owners, name, partial(_bare_ranker, bare, ranker), split)
    _add_mem0(report, owners, embedder, split)


def _bare_ranker(
    bare: dict[str, field.BareTurns], ranker: Callable[[field.BareTurns], field.Ranker], owner: Owner
) -> field.Ranker:
    return ranker(bare[owner.talk.id])


def _add_mem0(report: Report, owners: Sequence[Owner], embedder: CachedEmbedder, split: bool) -> None:
    version = field.mem0_version()
    if version is None:
        report.notes.append("mem0 is not installed: pip install 'mnemolog[bench]' puts it beside")
        return
    open_ones: list[field.Mem0] = []

    def ranker_of(owner: Owner) -> field.Ranker:
        memory = field.Mem0(owner.talk, embedder)
        open_ones.append(memory)
        return memory.rank

    try:
        _add(report, owners, f"mem0 {version} infer=False", ranker_of, split)
        report.notes.append("mem0 by vectors alone: its keyword search loads a model from the network")
    finally:
        for memory in open_ones:
            memory.close()


def _conclude(report: Report, talks: Sequence[Conversation], embedder: CachedEmbedder) -> None:
    row = next((row for row in report.rows if row["method"] == PRESET), None)
    if row is not None:
        for name, least in TARGETS.items():
            report.targets.append(Target.at_least(f"{PRESET} {name}", row[name], least))
    report.notes.append(f"{sum(talk.dropped for talk in talks)} evidence ids that name no turn were dropped")
    if embedder.embedded:
        rate = embedder.embedded / embedder.seconds
        report.notes.append(f"{embedder.embedded} texts were embedded now ({rate:.0f} a second), the rest cached")
    report.notes.append("p50 ms of presets holds reading the query's vector from the cache")
