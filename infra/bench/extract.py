"""``bench extract``: turns a second that the rules for facts read, by the CPU time of one thread."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.bench.corrections import cases
from infra.bench.report import Report, Spread, Target, say
from schemas.envelope import instant_of
from streams.core.facts.statements import extract
from streams.core.text import language

TURNS_A_SECOND_MIN = 2_000
SAID_AT = instant_of(1_779_235_200_000)

DENSE = {
    "en": (
        "Hi! I'm Marta, 34, a paediatric nurse from Porto, and I moved to Lisbon last year with my husband Rui.",
        "We have two cats, Mochi and Toast, and I'm allergic to peanuts. I love hiking, jazz and old films.",
        "You said I live in Madrid, but I live in Lisbon. My sister is a vet and lives in Braga, my dad is 70.",
        "I quit my job at Novartis in May, I'm planning to open a bakery next spring, and I run every morning.",
        "I don't eat meat anymore, my favourite colour is green, and my birthday is on 3 May 1991.",
    ),
    "zh": (
        "你好，我叫林晓雯，今年三十四岁，是一名儿科护士，老家在福建，去年搬到了杭州。",
        "我们养了两只猫，一只叫大福，一只叫小满。我对花生过敏，喜欢爬山、听爵士乐和看老电影。",
        "你说我住在南京，不对，我住在杭州。我姐姐是兽医，住在苏州，我爸今年七十岁。",
        "我五月从腾讯辞职了，打算明年春天开一家面包店，我每天早上跑步。",
        "我不吃肉了，我最喜欢的颜色是绿色，我的生日是1991年5月3日。",
    ),
}
"""Turns that are nothing but facts: the most that there is to read."""


def said(count: int) -> dict[str, list[str]]:
    """Turns of the generated cases of ``bench corrections``: facts among small talk, by language."""
    found: dict[str, list[str]] = {"en": [], "zh": []}
    for case in cases(max(1, count // 20)):
        for line in case.lines:
            found[language(line.text)].append(line.text)
    return {tongue: list(itertools.islice(itertools.cycle(texts), count)) for tongue, texts in found.items()}


def locomo(files: Sequence[Path]) -> list[str]:
    """Turns of LoCoMo files, of both speakers."""
    found: list[str] = []
    for file in files:
        raw = file.read_bytes()
        for item in json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw):
            for name, session in item.get("conversation", item).items():
                if name.startswith("session_") and isinstance(session, list):
                    found += [turn["text"] for turn in session]
    return found


def measure(texts: Sequence[str], repeats: int) -> tuple[Spread, int, int]:
    """Turns a second of CPU over the repeats, turns with statements, statements."""
    rates, stating, statements = [], 0, 0
    for _ in range(repeats):
        begun = time.process_time()
        found = [len(extract(text, occurred_at=SAID_AT)) for text in texts]
        rates.append(len(texts) / (time.process_time() - begun))
        stating, statements = sum(map(bool, found)), sum(found)
    return Spread.of(rates), stating, statements


def run(files: Sequence[Path], *, count: int, repeats: int) -> Report:
    """Each kind of turns, ``repeats`` times."""
    report = Report("extract")
    kinds: list[tuple[str, list[str], bool]] = []
    for tongue, texts in said(count).items():
        kinds.append((f"facts in small talk, {tongue}", texts, True))
    for tongue, sentences in DENSE.items():
        texts = list(itertools.islice(itertools.cycle(sentences), max(1, count // 4)))
        kinds.append((f"nothing but facts, {tongue}", texts, False))
    if files:
        kinds.append(("LoCoMo, both speakers", locomo(files), True))
    for tongue, sentences in DENSE.items():
        pasted = (" ".join(sentences) * 400)[:100_000]
        kinds.append((f"100,000 characters, {tongue}", [pasted] * 5, False))
    for name, texts, judged in kinds:
        say(name)
        rate, stating, statements = measure(texts, repeats)
        row: dict[str, Any] = {"turns are": name, "n": len(texts), "turns/CPU-s": rate}
        row |= {"stating": stating, "statements": statements}
        report.rows.append(row)
        if judged:
            report.targets.append(Target.at_least(f"turns/CPU-s, {name}", rate.median, TURNS_A_SECOND_MIN))
    return report
