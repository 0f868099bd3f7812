"""``mnemolog demo``: the main job on bundled data, on a stack of its own that is gone afterwards.

Each question says what must be found (questions.json), and so do the last steps (closing.py); a miss is printed and
makes the demo fail, so that it can't show a stack that doesn't work.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from connectors.clickhouse import ClickHouse
from connectors.client import Client
from connectors.imports import read_export
from infra.commands_ask import show
from infra.commands_data import import_export, learn_documents, read_persona
from infra.demo.closing import closed_loop, corrected_fact
from infra.stack import running_stack
from infra.stack_options import Addresses, UpOptions
from infra.target import Target
from schemas.codec import convert, encode
from schemas.documents import Document
from schemas.recalls import Evidence, Reply

FOLDER = Path(__file__).parent
USER, ROLE = "chen", "lin"
ROWS_S_MAX = 30.0
"""How long the demo waits until ClickHouse has the rows of what was just done."""
SQL = """
SELECT session_id, count() AS turns, countIf(speaker = 'user') AS by_user, min(occurred_at) AS begun,
       round(avg(length(text))) AS characters
FROM turns GROUP BY session_id ORDER BY begun
""".strip()


def run(*, json: bool = False) -> int:
    """Run the demo; returns the exit code."""
    out = Console(file=sys.stderr if json else sys.stdout, width=None if sys.stdout.isatty() else 140)
    begun = time.monotonic()
    with running_stack(UpOptions(), say=lambda line: print(line, file=sys.stderr)) as addresses:
        out.print(
            f"stack ready in {time.monotonic() - begun:.1f} s: Kafka protocol at {addresses.kafka}, ClickHouse at "
            f"{addresses.clickhouse}, embeddings at {addresses.embeddings}",
            highlight=False,
        )
        report = asyncio.run(_demo(addresses, out))
    report["seconds"] = round(time.monotonic() - begun, 1)
    misses = [step["query"] for step in (*report["questions"], *report["closing"]) if not step["found"]]
    if json:
        print(orjson.dumps(report).decode())
    for query in misses:
        print(f"mnemolog: what must be found was not found: {query}", file=sys.stderr)
    out.print(f"done in {report['seconds']} s; nothing is left running", highlight=False)
    return 1 if misses else 0


async def _demo(addresses: Addresses, out: Console) -> dict[str, Any]:
    target = Target(
        kafka=addresses.kafka,
        clickhouse=addresses.clickhouse,
        embeddings=addresses.embeddings,
        objects=addresses.objects,
        prefix=addresses.prefix,
        found_by="demo",
    )
    out.rule("1. a conversation of six weeks, a persona, a text")
    export = read_export(FOLDER / "conversation.jsonl")
    imported = await import_export(export, USER, ROLE, target)
    out.print(f"imported {imported.posted} turns of {imported.conversations} sessions", highlight=False)
    async with Client(addresses.kafka, prefix=addresses.prefix) as client:
        await client.declare_persona(read_persona(FOLDER / "persona.toml"))
        out.print(f"declared the persona of role {ROLE}", highlight=False)
        text = (FOLDER / "text.txt").read_text("utf-8")
        document = convert(
            {"document_id": "the-book-of-tea", "text": text, "title": "The Book of Tea", "source": "Okakura, 1906"},
            Document,
        )
        await learn_documents([document], target, wait=True)
        out.print(f"learned text.txt: {len(text)} characters, cut, embedded and found by questions", highlight=False)
        questions = orjson.loads((FOLDER / "questions.json").read_bytes())
        # Everything is folded; wait for the vectors too, so that what is shown is what memory settles to.
        await _await_vectors(client, [turn.turn_id for turn in export.turns])
        results = [await _ask(client, question, number, out) for number, question in enumerate(questions, start=2)]
    names, rows = await _sql(addresses, len(export.turns), len(questions))
    out.rule("6. SQL in ClickHouse")
    out.print(SQL, highlight=False)
    for row in ([*names], *([str(cell) for cell in row] for row in rows)):
        out.print("  ".join(cell[:24].ljust(24) for cell in row), highlight=False, markup=False)
    async with Client(addresses.kafka, prefix=addresses.prefix) as client:
        closing = [await corrected_fact(client, out), await closed_loop(client, out)]
    return {
        "turns": imported.posted,
        "questions": results,
        "closing": closing,
        "sql": [dict(zip(names, map(str, row), strict=True)) for row in rows],
    }


async def _await_vectors(client: Client, turn_ids: list[str]) -> None:
    for start in range(0, len(turn_ids), 50):
        await client.recall("", user_id=USER, role_id=ROLE, after=turn_ids[start : start + 50], timeout_ms=120_000)


async def _ask(client: Client, question: dict[str, Any], number: int, out: Console) -> dict[str, Any]:
    reply = await client.assemble(
        question["query"], user_id=USER, role_id=ROLE, now=question["now"], limits={"experience": 6, "knowledge": 2}
    )
    found = holds(reply, question["expect"])
    out.rule(f"{number}. {question['kind']}: {question['query']}")
    out.print(question["note"], style="dim", markup=False, highlight=False)
    show(reply, prompt=question["kind"] == "chat", console=out)
    if question["kind"] == "nothing":
        out.print(
            "nothing in memory answers this; the guidance in the prompt tells the model to say so", highlight=False
        )
    else:
        out.print("found" if found else "NOT FOUND", style="green" if found else "red")
    return {"query": question["query"], "kind": question["kind"], "found": found, "reply": orjson.loads(encode(reply))}


def holds(reply: Reply, expect: dict[str, Any]) -> bool:
    """Whether the evidence and the prompt hold what a question expects, the newer statement above the older."""
    evidence = reply.evidence or ()
    prompt = "\n".join(message.content for message in reply.messages or ())
    for wanted in expect["contains"]:
        if not any(wanted in item.text for item in evidence) or wanted not in prompt:
            return False
    if "turn_id" in expect and _rank(evidence, expect["turn_id"]) is None:
        return False
    if "older_turn_id" in expect:
        newer, older = _rank(evidence, expect["turn_id"]), _rank(evidence, expect["older_turn_id"])
        return newer is not None and (older is None or newer < older)
    return True


def _rank(evidence: tuple[Evidence, ...], turn_id: str) -> int | None:
    return next((index for index, item in enumerate(evidence) if item.turn_id == turn_id), None)


async def _sql(addresses: Addresses, turns: int, recalls: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    clickhouse = ClickHouse(addresses.clickhouse, "mnemolog")
    until = time.monotonic() + ROWS_S_MAX
    try:
        while time.monotonic() < until:
            counts = await asyncio.to_thread(
                clickhouse.rows, "SELECT (SELECT count() FROM turns), (SELECT count() FROM recalls)"
            )
            if counts[0][0] >= turns and counts[0][1] >= recalls:
                break
            await asyncio.sleep(0.2)
        return await asyncio.to_thread(clickhouse.query, SQL)
    finally:
        clickhouse.close()
