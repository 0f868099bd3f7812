"""``report continuity``: what of a persona is carried over when models are swapped, as a page, a table or JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from connectors.clickhouse import ClickHouse, QueryError
from connectors.client import Client
from connectors.errors import MnemologError
from connectors.settings import Settings
from infra.commands_ask import CONSOLE_WIDTH_MIN
from infra.commands_data import read_persona
from infra.commands_memory import RoleOption
from infra.report import History, overlays, page, read_finals, read_history, read_verdicts, users_of
from infra.stack_options import StackError
from infra.target import ClickHouseOption, JsonOption, KafkaOption, PrefixOption, Target, find
from schemas.codec import convert
from schemas.envelope import ContractError
from schemas.personas import Persona
from streams.core.continuity import DIMENSIONS, Continuity, continuity

app = typer.Typer(no_args_is_help=True, help="Reports over what is in ClickHouse.")

ANCHOR_TIMEOUT_MS = 5_000


@app.callback()
def _group() -> None:
    """Reports over what is in ClickHouse."""


@app.command("continuity")
def continuity_command(
    role: RoleOption,
    user: Annotated[str | None, typer.Option("--user", help="Default: the user with the most answers")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the report as one HTML file")] = None,
    persona: Annotated[
        Path | None, typer.Option("--persona", help="Anchor to judge by; default: the role's, from memory")
    ] = None,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Stages by model over one history: tone, boundaries, accuracy, what each stage keeps, protocol."""
    target = find(kafka, clickhouse, prefix=prefix, need="clickhouse")
    database = ClickHouse(target.clickhouse, Settings().clickhouse_database)
    try:
        user = user or _busiest(database, role)
        history = read_history(database, role, user)
        reviews = overlays(read_finals(database, role), read_verdicts(database, role), user)
    except QueryError as error:
        raise StackError(f"ClickHouse: {error}") from error
    finally:
        database.close()
    if not history.answers:
        raise StackError(
            f"no answer of role {role!r} to user {user!r} in ClickHouse; expected assistant turns with a model, or "
            "graded answers. See `mnemolog sql 'SELECT role_id, user_id, count() FROM turns GROUP BY ALL'`"
        )
    anchor = _anchor_of_file(persona) if persona is not None else _anchor(target, role, user)
    found = continuity(history.answers, anchor)
    if out is not None:
        out.write_text(page(history, found, anchor, reviews), encoding="utf-8")
        print(f"{out}: {len(history.answers)} rounds, {len(found.stages)} stages", file=sys.stderr)
    if json:
        print(orjson.dumps(_report(history, found, anchor) | {"reviews": reviews}).decode())
    elif out is None:
        _print(found)


def _busiest(database: ClickHouse, role: str) -> str:
    users = users_of(database, role)
    if not users:
        raise StackError(f"no answer of role {role!r} by a named model in ClickHouse: nothing to report")
    user = next(iter(users))
    if len(users) > 1:
        print(f"{len(users)} users; this is of {user}, who has the most answers (--user for another)", file=sys.stderr)
    return user


def _anchor_of_file(file: Path) -> Persona:
    try:
        return convert({"declared_at": "1970-01-01T00:00:00Z", **read_persona(file)}, Persona)
    except ContractError as error:
        raise StackError(f"{file}: {error}") from error


def _anchor(target: Target, role: str, user: str) -> Persona | None:
    """The role's anchor as memory has it now; without one, or without a broker, none."""
    if not target.kafka:
        print("no broker: occupation and address are not judged (--persona FILE)", file=sys.stderr)
        return None

    async def ask() -> Persona | None:
        async with Client(target.kafka, prefix=target.prefix) as client:
            return (await client.read("persona", user_id=user, role_id=role, timeout_ms=ANCHOR_TIMEOUT_MS)).persona

    try:
        anchor = asyncio.run(ask())
    except MnemologError as error:
        print(f"no anchor from memory ({error}): occupation and address are not judged", file=sys.stderr)
        return None
    if anchor is None:
        print(f"role {role} has no anchor: occupation and address are not judged", file=sys.stderr)
    return anchor


def _report(history: History, found: Continuity, anchor: Persona | None) -> dict[str, Any]:
    return {
        "role_id": history.role_id,
        "user_id": history.user_id,
        "rounds": len(history.answers),
        "anchor": anchor is not None,
        "method": found.method,
        "tone_reference": found.reference,
        "stages": [dataclasses.asdict(stage) for stage in found.stages],
        "points": [dataclasses.asdict(point) for point in found.points],
        "protocol": history.protocol,
    }


def _print(found: Continuity) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "model", "rounds", "context", "boundary", "accuracy", *DIMENSIONS):
        table.add_column(heading, justify="left" if heading in ("model", "context") else "right")
    for stage in found.stages:
        cells = [stage.cells[name].value for name in ("boundary", "accuracy", *DIMENSIONS)]
        context = {None: "", True: "cleared", False: "same session"}[stage.session_changed]
        figures = ["–" if value is None else f"{value:.2f}" for value in cells]
        table.add_row(str(stage.number), stage.model, str(len(stage.rounds)), context, *figures)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(width=max(CONSOLE_WIDTH_MIN, console.width), markup=False, highlight=False)
    console.print(table)
