"""``bench proxy``: what the proxy adds to the first token beyond assembling a prompt and the endpoint's first token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np
import orjson

from connectors.client import Client
from infra.bench import natural, stacks
from infra.bench.report import Report, Spread, Target, blocks, say
from schemas.turns import Turn
from streams.core.protocol import Stream

REPEATS = 3
WARM_UP = 5
ADDED_MS_MAX = 15.0
USER, ROLE = "ada", "lin"
TIMEOUT_S = 60.0
SCRIPTED = "scripted"
SESSION = "bench"
HEADERS = {"X-Mnemolog-Session": SESSION}


async def first_token(http: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> tuple[float, str]:
    """Milliseconds until the first piece that a user may see, and the header of timings; reads to the end."""
    begun = time.perf_counter()
    stream, first_ms = Stream(), None
    tags = body["model"] == SCRIPTED
    async with http.stream("POST", f"{url}/chat/completions", json={**body, "stream": True}, headers=HEADERS) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            choices = orjson.loads(line[6:])["choices"]
            piece = (choices[0]["delta"].get("content") or "") if choices else ""
            # The endpoint's answer begins with an analysis, which the proxy leaves out.
            shown = stream.feed(piece) if tags else piece
            if shown and first_ms is None:
                first_ms = (time.perf_counter() - begun) * 1e3
        assert first_ms is not None, "an answer without text"
        return first_ms, answer.headers.get("server-timing", "")


def timings(header: str) -> dict[str, float]:
    """``Server-Timing`` in ms by name.

    >>> timings("post;dur=1.50, assemble;dur=20.00")
    {'post': 1.5, 'assemble': 20.0}
    """
    pairs = (part.partition(";dur=") for part in header.split(", "))
    return {name: float(ms) for name, _, ms in pairs if ms}


async def measured(
    memory: Client, bare: str, proxied: str, samples: int, texts: Iterator[str]
) -> dict[str, list[float]]:
    """Milliseconds by what was measured, round after round: in turn by hand, and through the proxy."""
    found: dict[str, list[float]] = {
        name: [] for name in ("by hand: post", "by hand: assemble", "endpoint", "first", "post", "assemble")
    }
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
        for number in range(WARM_UP + samples):
            # By hand: what a program with the Python client does.
            begun = time.perf_counter()
            query = next(texts)
            turn = await memory.post_turn(user_id=USER, role_id=ROLE, session_id=SESSION, speaker="user", text=query)
            posted = time.perf_counter()
            reply = await memory.assemble(query, user_id=USER, role_id=ROLE, session_id=SESSION, after=[turn])
            assembled = time.perf_counter()
            messages = [{"role": m.role, "content": m.content} for m in reply.messages or ()]
            endpoint_ms, _ = await first_token(http, bare, {"model": SCRIPTED, "messages": messages})
            body = {"model": f"{SCRIPTED}@{ROLE}", "user": USER, "messages": [{"role": "user", "content": next(texts)}]}
            first_ms, header = await first_token(http, proxied, body)
            if number < WARM_UP:
                continue
            told = timings(header)
            found["by hand: post"].append((posted - begun) * 1e3)
            found["by hand: assemble"].append((assembled - posted) * 1e3)
            found["endpoint"].append(endpoint_ms)
            found["first"].append(first_ms)
            found["post"].append(told["post"])
            found["assemble"].append(told["assemble"])
    return found


def added(found: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """What is beyond assemble and endpoint, round by round; and that without the turn's acknowledgement.

    >>> added({"first": [40.0], "assemble": [20.0], "endpoint": [5.0], "post": [3.0]})
    {'added': [15.0], 'added beside the post': [12.0]}
    """
    together = zip(found["first"], found["assemble"], found["endpoint"], found["post"], strict=True)
    beyond = [(first - assemble - endpoint, post) for first, assemble, endpoint, post in together]
    return {"added": [ms for ms, _ in beyond], "added beside the post": [ms - post for ms, post in beyond]}


def rows_of(found: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """A row for each figure."""
    names = {
        "by hand: post": "by hand: turn acknowledged",
        "by hand: assemble": "by hand: assemble",
        "endpoint": "endpoint: first token of the response",
        "first": "proxy: first token",
        "post": "in the proxy: turn acknowledged",
        "assemble": "in the proxy: assemble",
        "added": "added to assemble and endpoint",
        "added beside the post": "added, without the turn's acknowledgement",
    }
    rows = []
    for key, what in names.items():
        p50, p95 = np.quantile(found[key], [0.5, 0.95])
        parts = [float(np.median(part)) for part in blocks(found[key], REPEATS)]
        spread = Spread(float(p50), min(parts), max(parts), len(parts))
        rows.append({"what": what, "n": len(found[key]), "p50 ms": spread, "p95 ms": float(p95)})
    return rows


def run(*, broker: str, samples: int, history: int) -> Report:
    """Run the benchmark."""
    report = Report("proxy")
    with ExitStack() as held:
        addresses = held.enter_context(stacks.stack(broker))
        model = held.enter_context(stacks.child("infra.model_server", "--port", "0"))
        bare = stacks.read_line(model).rpartition(" on ")[2]
        environment = {"MNEMOLOG_KAFKA": addresses.kafka, "MNEMOLOG_PREFIX": addresses.prefix}
        arguments = ("infra.cli", "proxy", "--port", "0", "--base-url", bare)
        child = held.enter_context(stacks.child(*arguments, env=environment))
        proxied = stacks.read_line(child).partition(" on ")[2].partition(",")[0]
        found = asyncio.run(_run(addresses.kafka, addresses.prefix, bare, proxied, samples, history))
    found |= added(found)
    report.rows = rows_of(found)
    for share, name in ((0.5, "p50"), (0.95, "p95")):
        value = float(np.quantile(found["added"], share))
        report.targets.append(Target.at_most(f"added to the first token, {name}, ms", value, ADDED_MS_MAX))
    report.notes.append("the endpoint is scripted: no model, so its own time is near nothing")
    return report


async def _run(kafka: str, prefix: str, bare: str, proxied: str, samples: int, history: int) -> dict[str, list[float]]:
    said, texts = natural.sentences(), natural.questions()
    async with Client(kafka, prefix=prefix) as memory:
        await stacks.first_answer(memory)
        say(f"posting {history} turns")
        posted = [await memory.post(_turn(number, next(said))) for number in range(history)]
        await asyncio.gather(*posted)
        await memory.recall("", user_id=USER, role_id=ROLE, after=[f"h-{history - 1}"], timeout_ms=30_000)
        say(f"{samples} rounds by hand and through the proxy")
        return await measured(memory, bare, proxied, samples, texts)


def _turn(number: int, text: str) -> Turn:
    at = f"2026-05-{1 + number // 1440 % 28:02d}T{number // 60 % 24:02d}:{number % 60:02d}:00Z"
    return Turn(
        turn_id=f"h-{number}",
        user_id=USER,
        role_id=ROLE,
        session_id=f"s-{number // 20}",
        speaker="user" if number % 2 == 0 else "assistant",
        text=text,
        occurred_at=at,
    )
