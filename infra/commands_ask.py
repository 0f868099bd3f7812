"""``ask``: evidence and prompt for a question, for people."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from connectors.client import Client
from infra.stack_options import UsageError
from infra.target import (
    ClickHouseOption,
    EmbeddingsOption,
    JsonOption,
    KafkaOption,
    ObjectsOption,
    PrefixOption,
    find,
)
from schemas.codec import encode
from schemas.recalls import Evidence, Reply

CONSOLE_WIDTH_MIN = 150


def ask(
    text: Annotated[str, typer.Argument(help="The question")],
    user: Annotated[str, typer.Option("--user", help="user_id of the owner")],
    role: Annotated[str, typer.Option("--role", help="role_id of the owner")],
    session: Annotated[str | None, typer.Option(help="session_id that the question belongs to")] = None,
    preset: Annotated[str | None, typer.Option(help="Retrieval preset, e.g. balanced, arpm")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Parameter, e.g. experience.lambda_hours=336")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(help="2026-05-20, a time, offset:N, round:N, turn:ID, or recorded:TIME"),
    ] = None,
    now: Annotated[str | None, typer.Option(help="RFC 3339 time that counts as now")] = None,
    after: Annotated[list[str] | None, typer.Option(help="turn_id that must be in memory first")] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Print the assembled messages too")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print parts of scores and what was dropped")] = False,
    timeout_ms: Annotated[int, typer.Option(help="Deadline in ms")] = 10_000,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Ask memory: evidence with source, date, rounds ago and score; with --prompt the messages for a model."""
    options: dict[str, Any] = {
        "session_id": session,
        "preset": preset,
        "set": parse_set(set_ or []),
        "as_of": parse_as_of(as_of) if as_of else None,
        "now": now,
        "after": after,
        "explain": explain,
        "timeout_ms": timeout_ms,
    }
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    reply = asyncio.run(_ask(target.kafka, target.prefix, text, user, role, options))
    if json:
        print(encode(reply).decode())
    else:
        show(reply, prompt=prompt, explain=explain)


async def _ask(kafka: str, prefix: str, text: str, user: str, role: str, options: dict[str, Any]) -> Reply:
    async with Client(kafka, prefix=prefix) as client:
        return await client.assemble(text, user_id=user, role_id=role, **options)


def parse_set(pairs: list[str]) -> dict[str, Any]:
    """``key=value`` pairs; values are JSON where they parse, else text.

    >>> parse_set(["experience.lambda_hours=336", "x=rrf"])
    {'experience.lambda_hours': 336, 'x': 'rrf'}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--set takes NAME=VALUE, got {pair!r}")
        try:
            settings[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            settings[name] = value
    return settings


def parse_as_of(text: str) -> dict[str, Any]:
    """Coordinate of a point in time. A date alone is its end, in the local zone.

    >>> parse_as_of("offset:12"), parse_as_of("turn:t-1"), parse_as_of("2026-05-20T08:00:00Z")
    ({'offset': 12}, {'turn_id': 't-1'}, {'occurred_at': '2026-05-20T08:00:00Z'})
    """
    kind, colon, rest = text.partition(":")
    if colon and kind in ("offset", "round"):
        if not re.fullmatch(r"-?\d+", rest):
            raise UsageError(f"--as-of {kind}: takes a number, got {rest!r}")
        return {kind: int(rest)}
    if colon and kind == "turn":
        return {"turn_id": rest}
    if colon and kind == "recorded":
        return {"recorded_at": _time(rest)}
    return {"occurred_at": _time(rest if kind == "occurred" else text)}


def _time(text: str) -> str:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--as-of {text!r} is no point in time: expected 2026-05-20, an RFC 3339 time, offset:N, round:N, turn:ID "
            f"or recorded:TIME"
        ) from None
    if re.fullmatch(r"\d{4}-?\d{2}-?\d{2}", text):
        moment = moment.replace(hour=23, minute=59, second=59, microsecond=999_000)
    elif moment.tzinfo is not None:
        return text
    return moment.astimezone().isoformat(timespec="milliseconds")


def show(reply: Reply, *, prompt: bool = False, explain: bool = False, console: Console | None = None) -> None:
    """Print a reply for people."""
    out = console or Console()
    if not out.is_terminal:
        out = Console(width=max(CONSOLE_WIDTH_MIN, out.width), file=out.file)
    evidence = reply.evidence or ()
    if not evidence:
        out.print("no evidence: memory holds nothing on this")
    else:
        out.print(_evidence_table(evidence, explain=explain))
    timings = reply.timings_ms or {}
    watermark = orjson.dumps(reply.watermark).decode()
    out.print(
        f"round {reply.round} · preset {reply.preset} · {timings.get('total', 0):.1f} ms · watermark {watermark} · "
        f"config {(reply.config_digest or '')[:12]} · messages {(reply.messages_sha256 or '')[:12]}",
        highlight=False,
        markup=False,
    )
    if prompt:
        for message in reply.messages or ():
            out.rule(message.role)
            out.print(message.content, highlight=False, markup=False)
    if explain and reply.explain:
        out.rule("explain")
        out.print(orjson.dumps(reply.explain, option=orjson.OPT_INDENT_2).decode(), highlight=False, markup=False)


def _evidence_table(evidence: tuple[Evidence, ...], *, explain: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading, options in (
        ("mark", {}),
        ("score", {"justify": "right"}),
        ("date", {"no_wrap": True}),
        ("rounds ago", {"justify": "right"}),
        ("source", {"max_width": 24}),
        ("text", {"ratio": 1, "overflow": "fold"}),
        ("parts", {"max_width": 34}),
    ):
        table.add_column(heading, **options)
    for item in evidence:
        parts = item.parts if explain else {name: item.parts[name] for name in list(item.parts)[:6]}
        table.add_row(
            item.mark,
            f"{item.score:.4f}",
            (item.occurred_at or "")[:16].replace("T", " "),
            "" if item.rounds_ago is None else str(item.rounds_ago),
            _plain(item.title or item.source or ""),
            _plain((f"{item.name or item.speaker}: " if item.speaker else "") + _short(item.text)),
            _plain(" ".join(f"{name}={value:.3g}" for name, value in parts.items())),
        )
    return table


def _short(text: str, limit: int = 240) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
