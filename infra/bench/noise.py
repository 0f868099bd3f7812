"""``bench noise``: facts planted in dialogue and documents, novels as noise; is the evidence in the prompt?"""

from __future__ import annotations

import datetime as dt
import lzma
import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from infra.bench.cores import Core, Int8, Variant, shown
from infra.bench.embedded import CachedEmbedder
from infra.bench.report import Report, Target, quantiles_ms, say
from infra.stack_options import UsageError
from schemas.recalls import Limits
from streams.core import chunking

TARGETS = {5.0: 0.98, 200.0: 0.90}
PRESET = "balanced"
USER = "ada"
BEGIN = dt.datetime(2026, 2, 1, 9, tzinfo=dt.UTC)
LIMITS = Limits()
DOCUMENT_CHARACTERS = 50_000
TURN_CHARACTERS = 120
SAID_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Fact:
    """A planted fact."""

    text: str
    ask: str
    key: str
    where: str
    """``dialogue`` or ``documents``."""

    @property
    def language(self) -> str:
        """``en`` where the text is ASCII."""
        return "en" if self.text.isascii() else "zh"


@dataclass(frozen=True, slots=True)
class Planted:
    """All facts, as they are planted."""

    facts: tuple[Fact, ...]
    documents: tuple[tuple[str, str], ...]
    """(title, text)."""
    turns: tuple[tuple[str, str], ...]
    """(speaker, text)."""

    @property
    def characters(self) -> int:
        """Of everything planted."""
        return sum(len(text) for _, text in (*self.documents, *self.turns))


def planted(seed: int = 1) -> Planted:
    """Facts in documents, and in a dialogue with eight turns of small talk after each."""
    folder = files("infra.bench").joinpath("data")
    data = tomllib.loads(folder.joinpath("noise.toml").read_text("utf-8"))
    talk = tomllib.loads(folder.joinpath("corrections.toml").read_text("utf-8"))["talk"]
    random_ = random.Random(seed)
    said = [Fact(raw["text"], raw["ask"], raw["key"], "dialogue") for raw in data["said"]]
    facts = list(said)
    documents: list[tuple[str, str]] = []
    for document in data["document"]:
        facts += [Fact(raw["text"], raw["ask"], raw["key"], "documents") for raw in document["facts"]]
        documents.append((document["title"], "\n\n".join(raw["text"] for raw in document["facts"])))
    turns: list[tuple[str, str]] = []
    random_.shuffle(said)
    for fact in said:
        turns.append(("user", fact.text))
        turns.append(("assistant", random_.choice(talk[f"{fact.language}_reply"])))
        for _ in range(4):
            turns.append(("user", random_.choice(talk[fact.language])))
            turns.append(("assistant", random_.choice(talk[f"{fact.language}_reply"])))
    turns += [("user", random_.choice(talk["zh" if index % 2 else "en"])) for index in range(16)]
    return Planted(tuple(facts), tuple(documents), tuple(turns))


def read_noise(paths: Sequence[Path]) -> str:
    """The text of all files.

    Raises
    ------
    UsageError
        A file can't be read.
    """
    parts = []
    for path in paths:
        try:
            raw = path.read_bytes()
            parts.append((lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8"))
        except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: {error}; expected UTF-8 text, plain or xz") from error
    return "\n\n".join(parts)


def take(text: str, characters: int, parts: int = 40) -> str:
    """So many characters of a text, in pieces taken evenly over all of it.

    >>> take("abcdefghij", 4, 2), take("abc", 10)
    ('ab\\n\\nfg', 'abc')
    """
    if characters >= len(text):
        return text
    parts = max(1, min(parts, characters))
    size, step = characters // parts, len(text) // parts
    return "\n\n".join(text[index * step : index * step + size] for index in range(parts))


@dataclass(slots=True)
class Noisy:
    """A core with planted facts and noise."""

    core: Core
    now: str
    characters: int
    children: int
    noise_turns: int
    embedded: int
    """Passages of the noise that have a vector."""


def build(plan: Planted, noise: str, embedder: CachedEmbedder, *, embed_max: int, turns_max: int) -> Noisy:
    """Fold everything; the noise's turns are spread among the planted ones."""
    cut = int(len(noise) * SAID_SHARE)
    lines = list(_lines(noise[:cut]))[:turns_max]
    documents = [noise[at : at + DOCUMENT_CHARACTERS] for at in range(cut, len(noise), DOCUMENT_CHARACTERS)]
    chunked = [chunking.parents(text) for text in documents]
    children = [child.text for parents in chunked for parent in parents for child in parent.children]
    chosen = _sample(len(lines) + len(children), embed_max)
    core = Core()
    own = _say_all(core, plan, lines, chosen)
    core.embed(embedder, only=[(USER, turn_id) for turn_id in own])
    for number, (title, text) in enumerate(plan.documents):
        parents = chunking.parents(text)
        rows = embedder.vectors([child.text for parent in parents for child in parent.children], "passage")
        core.learn(f"planted{number}", parents, list(rows), BEGIN.isoformat(), title=title)
    picked = [index for index in chosen if index >= len(lines)]
    rows_by_index: dict[int, Int8] = dict(
        zip(picked, embedder.vectors([children[index - len(lines)] for index in picked], "passage"), strict=True)
    )
    position = len(lines)
    for number, parents in enumerate(chunked):
        count = sum(len(parent.children) for parent in parents)
        vectors = [rows_by_index.get(index) for index in range(position, position + count)]
        core.learn(f"noise{number}", parents, vectors, BEGIN.isoformat())
        position += count
    now = (BEGIN + dt.timedelta(days=27)).isoformat()
    said = sum(map(len, lines))
    return Noisy(core, now, said + sum(map(len, documents)), len(children), len(lines), len(chosen))


def _say_all(core: Core, plan: Planted, lines: Sequence[str], chosen: Sequence[int]) -> list[str]:
    """Fold all turns over 25 days; the ids of those that get a vector."""
    own: list[str] = []
    sampled = set(chosen)
    total = len(plan.turns) + len(lines)
    step = dt.timedelta(days=25) / max(1, total)
    noise, planted_turns = 0, 0
    for number in range(total):
        at = (BEGIN + number * step).isoformat()
        session = f"s{number * 25 // total}"
        if planted_turns * total <= number * len(plan.turns) and planted_turns < len(plan.turns):
            speaker, text = plan.turns[planted_turns]
            core.say(USER, f"p{planted_turns}", text, at, speaker=speaker, session_id=session)
            own.append(f"p{planted_turns}")
            planted_turns += 1
        else:
            core.say(USER, f"n{noise}", lines[noise], at, session_id=session)
            if noise in sampled:
                own.append(f"n{noise}")
            noise += 1
    return own


def _lines(text: str) -> Iterator[str]:
    """Paragraphs of up to 120 characters."""
    for line in text.splitlines():
        for at in range(0, len(line.strip()), TURN_CHARACTERS):
            piece = line.strip()[at : at + TURN_CHARACTERS].strip()
            if piece:
                yield piece


def _sample(count: int, most: int) -> list[int]:
    if most <= 0:
        return []
    return sorted({int(index) for index in np.linspace(0, count - 1, min(count, most))}) if count else []


def ask_all(noisy: Noisy, plan: Planted, variant: Variant, embedder: CachedEmbedder) -> tuple[list[bool], list[float]]:
    """Whether each fact is in its question's prompt, and the seconds of each answer."""
    found, seconds = [], []
    for fact in plan.facts:
        reply, spent = noisy.core.ask(
            USER, fact.ask, noisy.now, embedder, variant=variant, limits=LIMITS, kind="assemble", session_id="now"
        )
        found.append(fact.key in shown(reply))
        seconds.append(spent)
    return found, seconds


def row_of(
    preset: str, ratio: str, plan: Planted, noisy: Noisy, found: Sequence[bool], seconds: Sequence[float]
) -> dict[str, Any]:
    """The row of a preset at a ratio."""

    def share(**wanted: str) -> float:
        of = [
            hit
            for hit, fact in zip(found, plan.facts, strict=True)
            if all(getattr(fact, name) == value for name, value in wanted.items())
        ]
        return sum(of) / len(of)

    passages = noisy.children + noisy.noise_turns
    return {
        "noise": ratio,
        "method": preset,
        "n": len(found),
        "in prompt": share(),
        "dialogue": share(where="dialogue"),
        "documents": share(where="documents"),
        "zh": share(language="zh"),
        "en": share(language="en"),
        "p50 ms": quantiles_ms(seconds)["p50"],
        "noise characters": noisy.characters,
        "children": noisy.children,
        "turns": noisy.noise_turns,
        "noise embedded": f"{noisy.embedded} of {passages}",
    }


def run(
    paths: Sequence[Path],
    *,
    embedder: CachedEmbedder,
    ratios: Sequence[float],
    embed_max: int,
    turns_max: int,
    chosen: Sequence[Variant],
) -> Report:
    """Run the benchmark."""
    report = Report("noise")
    plan = planted()
    text = read_noise(paths)
    for ratio in ratios:
        wanted = int(plan.characters * ratio)
        noisy = build(plan, take(text, wanted), embedder, embed_max=embed_max, turns_max=turns_max)
        real = noisy.characters / plan.characters
        label = f"1:{real:.0f}"
        say(f"{label}: {noisy.children} children and {noisy.noise_turns} turns of noise are in memory")
        for variant in chosen:
            found, seconds = ask_all(noisy, plan, variant, embedder)
            report.rows.append(row_of(variant.name, label, plan, noisy, found, seconds))
            if variant.name == PRESET:
                least = TARGETS[200.0] if ratio > 50 else TARGETS[5.0]
                name = f"{PRESET} at {label}: evidence in the prompt"
                report.targets.append(Target.at_least(name, report.rows[-1]["in prompt"], least))
                missed = [fact.ask for fact, hit in zip(plan.facts, found, strict=True) if not hit]
                report.notes += [f"{PRESET} at {label} misses: {ask}" for ask in missed[:10]]
    report.notes.append(
        f"planted: {plan.characters} characters; vectors of the noise: an even sample of at most {embed_max} passages, "
        f"the rest is matched by words alone"
    )
    return report
