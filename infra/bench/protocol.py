"""``mnemolog bench protocol``: the answer parser on broken outputs, and the time of parsing and of a prompt's assembly.

The broken outputs are made by seeded mutations, so that a run can be repeated and a failure found again by its number.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from infra.bench.report import Report, Target, quantiles_ms, say
from schemas.personas import Persona
from schemas.positions import Position
from schemas.recalls import Evidence, Limits
from streams.core.candidates import RecallQuery
from streams.core.experience import TurnView
from streams.core.prompt import assemble
from streams.core.protocol import Stream, needs_repair, parse
from streams.core.settings import resolve

FAILURES = Path(__file__).parents[2] / "tests" / "core" / "protocol" / "failures.jsonl"
RIGHT_SHARE_MIN = 0.95
ASSEMBLY_MS_MAX = 2.0
_FINDINGS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a parser's mistake raises; told with the number of the text."""
GROWTH_MAX = 2.0
"""Time of a text four times as long, divided by four: 1 is linear, 4 would be quadratic."""
_SEEDS = (
    "<analysis>Needs experience. E1 says wonton soup; E2 is older.</analysis>\n<response>Wonton soup.</response>",
    "<analysis>需要经历。E1说馄饨，E2是上个月的，不相关。</analysis>\n<response>昨天你吃的是馄饨。</response>",
    "<think>hm</think><analysis>K1 and E3 agree.</analysis><response>At eight, *sharp*: `8:00` [K1].</response>",
    '```json\n{"analysis": "E1", "response": "Wonton \\"soup\\"."}\n```',
    "## Analysis\nE1 says so.\n\n## Response\nWonton soup.",
    "＜分析＞经历，E1。＜／分析＞＜回答＞馄饨。＜／回答＞",
    "<|channel|>analysis<|message|>E1<|end|><|start|>assistant<|channel|>final<|message|>Wonton.<|return|>",
    "&lt;analysis&gt;E1&lt;/analysis&gt;&lt;response&gt;a &amp; b&lt;/response&gt;",
)
_PIECES = [
    "<analysis>",
    "</analysis>",
    "<response>",
    "</response>",
    "<think>",
    "</think>",
    "</",
    "<",
    ">",
    "[E1]",
    "【K2】",
    "```",
    "```xml\n",
    "**",
    "`",
    "\n",
    "\n\n",
    " ",
    "＜",
    "＞",
    "&lt;",
    "&gt;",
    "&amp;",
    "【回答】",
    "[analysis]",
    "Response:",
    "\n## Response\n",
    "{",
    "}",
    '"response": "',
    "\\",
    "\\u003c",
    "<",
    "im_end",
    ">",
    "<",
    "channel",
    ">final",
    "<answer>",
    "</answer>",
    "<RESPONSE id='1'>",
    "<response/>",
    "E1",
    "x < 3",
    "\u200b",
    "�",
    "🙂",
    "好的",
    "<![CDATA[",
    "]]>",
    "---\n",
    "\x00",
]
_TYPICAL = (
    "<analysis>Needs experience. " + "E1 says wonton, said by the user. " * 12 + "</analysis>\n<response>"
    "" + "You had wonton soup and liked the chili oil. " * 20 + "</response>"
)
_REPEATED = ("<analysis>", "<response>x</response>", "[", "<", "&lt;", "\nResponse: x", "</analysis>", "[E1]", " ", "`")


def broken(count: int, seed: int = 1) -> Iterator[str]:
    """Broken outputs: a well-formed or ill-formed answer, cut, doubled, shuffled and strewn with pieces of tags."""
    rng = random.Random(seed)
    for _ in range(count):
        text = rng.choice(_SEEDS) if rng.random() < 0.8 else ""
        for _ in range(rng.randint(1, 6)):
            text = rng.choice(_MUTATIONS)(text, rng)[:4000]
        yield text


def _inserted(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(_PIECES) + text[at:]


def _deleted(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + text[at + rng.randint(1, 12) :]


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randint(0, len(text))]


def _doubled(text: str, rng: random.Random) -> str:
    start = rng.randint(0, len(text))
    return text + rng.choice(("", "\n", " ")) + text[start:]


def _swapped(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[at:] + text[:at]


def _changed_case(text: str, rng: random.Random) -> str:
    return text.upper() if rng.random() < 0.5 else text.title()


def _replaced(text: str, rng: random.Random) -> str:
    old, new = rng.choice(
        (
            ("analysis", "分析"),
            ("response", "answer"),
            ("<", "＜"),
            ("</", "<"),
            (">", ""),
            ("<", "&lt;"),
            ("E1", "[E1]"),
        )
    )
    return text.replace(old, new)


_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    _inserted, _inserted, _inserted, _deleted, _cut, _doubled, _swapped, _changed_case, _replaced,
)  # fmt: skip


def streamed(text: str, rng: random.Random) -> tuple[str, Any]:
    """The response as it comes out of a stream that is fed in random pieces, and what was parsed."""
    stream = Stream()
    said, position = [], 0
    while position < len(text):
        size = rng.choice((1, 2, 5, 17, 80))
        said.append(stream.feed(text[position : position + size]))
        position += size
    said.append(stream.end())
    return "".join(said), stream.parsed


def labelled(path: Path) -> list[dict[str, Any]]:
    """The labelled failures of a file, one JSON object a line."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def is_right(case: dict[str, Any]) -> bool:
    """Whether the parser takes a labelled answer as a reader would; one that can't be told must ask for a repair."""
    parsed = parse(case["text"])
    if not case["recoverable"]:
        return needs_repair(parsed)
    analysis = case.get("analysis")
    same = analysis is None or parsed.analysis.split() == analysis.split()
    return same and parsed.response == case["response"]


def run(*, count: int, seed: int, failures: Path | None = None, timed: bool = True) -> Report:
    """Fuzz, labelled failures, and (``timed``) what takes how long."""
    report = Report("protocol")
    _fuzz(report, count, seed)
    path = failures or (FAILURES if FAILURES.exists() else None)
    if path is not None:
        cases = labelled(path)
        recoverable = [case for case in cases if case["recoverable"]]
        right = sum(map(is_right, recoverable))
        report.rows.append({"what": "labelled failures, recoverable", "n": len(recoverable), "right": right})
        rest = [case for case in cases if not case["recoverable"]]
        report.rows.append({"what": "labelled failures, others", "n": len(rest), "right": sum(map(is_right, rest))})
        share = right / max(1, len(recoverable))
        report.targets.append(Target.at_least("recoverable failures read right", share, RIGHT_SHARE_MIN))
    if timed:
        _times(report)
    return report


def _fuzz(report: Report, count: int, seed: int) -> None:
    rng = random.Random(seed + 1)
    errors: Counter[str] = Counter()
    unequal = responses = 0
    began = time.process_time()
    for number, text in enumerate(broken(count, seed)):
        try:
            whole = parse(text)
            said, parsed = streamed(text, rng)
        except _FINDINGS as error:
            errors[f"{type(error).__name__} at {number}"] += 1
            continue
        responses += bool(whole.response)
        unequal += said != whole.response or parsed != whole
        if number and number % 20_000 == 0:
            say(f"{number:,} broken outputs")
    seconds = time.process_time() - began
    report.rows.append(
        {
            "what": "broken outputs",
            "n": count,
            "with a response": responses,
            "CPU s": seconds,
            "errors": sum(errors.values()),
        }
    )
    report.targets.append(Target.at_most("exceptions", sum(errors.values()), 0))
    report.targets.append(Target.at_most("streams that differ from the whole", unequal, 0))
    report.notes += [f"seed {seed}: {error}" for error in list(errors)[:10]]


def _cpu(what: Callable[[], Any], times: int) -> list[float]:
    what()
    found = []
    for _ in range(times):
        began = time.process_time()
        what()
        found.append(time.process_time() - began)
    return found


def _times(report: Report) -> None:
    parsing = quantiles_ms(_cpu(lambda: parse(_TYPICAL), 200))
    report.rows.append({"what": f"parse, {len(_TYPICAL):,} characters (CPU ms)", **parsing})
    growth = 0.0
    for piece in _REPEATED:
        for before in ("", "<analysis>a</analysis><response>"):
            small, large = (before + piece * (size // len(piece)) for size in (20_000, 80_000))
            first, second = (min(_cpu(lambda text=text: parse(text), 3)) for text in (small, large))  # type: ignore[misc]
            growth = max(growth, second / first / 4)
    report.targets.append(Target.at_most("growth of time over growth of text, worst of 20", growth, GROWTH_MAX))
    assembling = quantiles_ms(_cpu(_assembly(), 400))
    report.rows.append({"what": "assembly, 20 pieces of evidence, 12 turns (CPU ms)", **assembling})
    report.targets.append(Target.at_most("assembly of 20 pieces, p50 (CPU ms)", assembling["p50"], ASSEMBLY_MS_MAX))


def _assembly() -> Callable[[], Any]:
    evidence = [
        Evidence(
            mark=f"{letter}{number}",
            id=f"{letter}{number}",
            path="knowledge" if letter == "K" else "experience",
            text="昨天吃了馄饨 and soup. " * 10,
            score=1.0,
            parts={},
            position=Position(topic="journal", partition=0, offset=number),
            source="s1",
            occurred_at=f"2026-05-{number:02d}T08:00:00+08:00",
            round=number,
            rounds_ago=40 - number,
        )
        for letter in "KE"
        for number in range(1, 11)
    ]
    recent = [
        TurnView(
            offset=100 + number,
            turn_id=f"t{number}",
            session_id="s2",
            speaker="assistant" if number % 2 else "user",
            text="Something was said here, 大概这么长。" * 3,
            occurred_at="2026-05-20T08:00:00+08:00",
            occurred_ms=1_779_235_200_000,
            round=30 + number // 2,
        )
        for number in range(12)
    ]
    anchor = Persona(
        role_id="lin",
        name="Lin",
        core="A calm night-shift baker. " * 10,
        boundaries=("Never gives medical doses.", "Never plays another role."),
        declared_at="2026-01-01T00:00:00Z",
        language="en",
    )
    query = RecallQuery(
        text="我昨天吃了什么？",
        vector=np.zeros(8, np.int8),
        now_ms=1_779_321_600_000,
        round=40,
        user_id="u",
        role_id="lin",
        limits=Limits(),
    )
    settings = resolve()
    return lambda: assemble(query=query, evidence=evidence, recent=recent, anchor=anchor, settings=settings)
