"""``facts``, ``summaries`` and ``conflicts``: what memory holds of an owner, now or as of any time, and settling it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from connectors.client import Client
from infra.commands_ask import CONSOLE_WIDTH_MIN, parse_as_of
from infra.stack_options import StackError
from infra.target import JsonOption, KafkaOption, PrefixOption, find
from schemas.codec import encode
from schemas.memories import Conflict, Fact
from schemas.recalls import Reply

UserOption = Annotated[str, typer.Option("--user", help="user_id of the owner")]
RoleOption = Annotated[str, typer.Option("--role", help="role_id of the owner")]
AsOfOption = Annotated[
    str | None, typer.Option("--as-of", help="2026-05-20, a time, offset:N, round:N, turn:ID, or recorded:TIME")
]

app = typer.Typer(no_args_is_help=True, help="Facts with several values: list them, look at one, settle it.")


def facts(
    user: UserOption,
    role: RoleOption,
    as_of: AsOfOption = None,
    history: Annotated[bool, typer.Option("--history", help="Also what no longer holds, and every change")] = False,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Facts of an owner. As of a date: what was true then by all that is known now; offset:, turn:, round: and
    recorded: tell what was known at that point."""
    reply = _read("facts", user, role, as_of, kafka, prefix, history=history)
    if json:
        print(encode({"facts": reply.facts, "conflicts": reply.conflicts, "watermark": reply.watermark}).decode())
        return
    if not reply.facts:
        print("no facts")
        return
    _out().print(facts_table(reply.facts, history=history))


def summaries(
    user: UserOption,
    role: RoleOption,
    as_of: AsOfOption = None,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Summaries of an owner's conversations that have not expired, oldest first."""
    reply = _read("summaries", user, role, as_of, kafka, prefix)
    if json:
        print(encode({"summaries": reply.summaries, "watermark": reply.watermark}).decode())
        return
    for summary in reply.summaries or ():
        print(f"{summary.occurred_at[:16]}  {summary.session_id}  {summary.memory_id}  ({summary.method})")
        print("  " + summary.text.replace("\n", "\n  "))
    if not reply.summaries:
        print("no summaries")


@app.command("list")
def list_(
    user: UserOption,
    role: RoleOption,
    as_of: AsOfOption = None,
    open_: Annotated[bool, typer.Option("--open", help="Only those that nobody has settled")] = False,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Conflicts of an owner's facts, oldest first."""
    reply = _read("conflicts", user, role, as_of, kafka, prefix)
    found = [item for item in reply.conflicts or () if item.status == "open" or not open_]
    if json:
        print(encode({"conflicts": found, "watermark": reply.watermark}).decode())
        return
    if not found:
        print("no conflicts")
        return
    table = _table("conflict", "key", "status", "opened", "values", "winner", "settled by")
    for item in found:
        winner = dict(zip(item.memory_ids, item.values, strict=True)).get(item.winner or "", "")
        values = " / ".join(item.values)
        table.add_row(
            item.conflict_id, item.key, item.status, item.opened_at[:10], values, winner, item.closed_by or ""
        )
    _out().print(table)


@app.command()
def show(
    conflict_id: Annotated[str, typer.Argument(help="As `conflicts list` prints it; a beginning will do")],
    user: UserOption,
    role: RoleOption,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Both sides of a conflict with their evidence and history."""
    reply = _read("facts", user, role, None, kafka, prefix, history=True)
    conflict = _one(conflict_id, reply.conflicts or ())
    sides = [fact for fact in reply.facts or () if fact.memory_id in conflict.memory_ids]
    if json:
        print(encode({"conflict": conflict, "facts": sides}).decode())
        return
    print(f"{conflict.conflict_id}  {conflict.key}  {conflict.status}, opened {conflict.opened_at[:16]}")
    if conflict.closed_by:
        print(f"settled {(conflict.closed_at or '')[:16]} by {conflict.closed_by}")
    _out().print(facts_table(sides, history=True))


@app.command()
def resolve(
    conflict_id: Annotated[str, typer.Argument(help="As `conflicts list` prints it; a beginning will do")],
    user: UserOption,
    role: RoleOption,
    winner: Annotated[str, typer.Option("--winner", help="Value or memory_id of the side that holds")],
    author: Annotated[str, typer.Option("--author", help="Who settles it; kept in the history")] = "operator",
    kafka: KafkaOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Settle a conflict: a confirmation of one side is posted to `feedback`; the loser stays in history."""
    reply = _read("facts", user, role, None, kafka, prefix, history=True)
    conflict = _one(conflict_id, reply.conflicts or ())
    if conflict.status != "open":
        raise StackError(f"conflict {conflict.conflict_id} is closed already, by {conflict.closed_by}")
    sides = dict(zip(conflict.memory_ids, conflict.values, strict=True))
    named = [memory_id for memory_id, value in sides.items() if winner in (memory_id, value)]
    if len(named) != 1:
        raise StackError(
            f"--winner {winner!r} names no side of {conflict.conflict_id}; expected {', '.join(sides.values())}"
        )
    target = find(kafka, prefix=prefix)

    async def post() -> str:
        async with Client(target.kafka, prefix=target.prefix) as client:
            return await client.post_feedback(
                user_id=user, role_id=role, kind="confirm", target={"memory_id": named[0]}, author=author
            )

    feedback_id = asyncio.run(post())
    print(f"{feedback_id}: {conflict.key} is {sides[named[0]]}")


def _read(
    kind: str, user: str, role: str, as_of: str | None, kafka: str | None, prefix: str | None, **options: Any
) -> Reply:
    target = find(kafka, prefix=prefix)
    options["as_of"] = parse_as_of(as_of) if as_of is not None else None

    async def ask() -> Reply:
        async with Client(target.kafka, prefix=target.prefix) as client:
            return await client.read(kind, user_id=user, role_id=role, **options)

    return asyncio.run(ask())


def _one(conflict_id: str, conflicts: tuple[Conflict, ...]) -> Conflict:
    found = [item for item in conflicts if item.conflict_id.startswith(conflict_id)]
    if len(found) != 1:
        known = ", ".join(item.conflict_id for item in conflicts) or "none"
        what = "is ambiguous" if found else "is unknown"
        raise StackError(f"conflict {conflict_id!r} {what} for this owner; there are: {known}")
    return found[0]


def facts_table(found: tuple[Fact, ...] | list[Fact], *, history: bool) -> Table:
    """Facts as a table; with history a line for each change."""
    table = _table("key", "value", "status", "since", "until", "conf.", "imp.", "said", "turn", "memory id")
    for fact in found:
        since, until = fact.valid_from or "", fact.valid_to or ""
        turn = fact.sources[-1].turn_id if fact.sources else ""
        numbers = (f"{fact.confidence:.2f}", str(fact.importance))
        table.add_row(
            fact.key, fact.value, fact.status, since, until, *numbers, fact.said_at[:10], turn, fact.memory_id[:14]
        )
        for change in fact.history or () if history else ():
            told = f"  {change.status}: {change.why}"
            table.add_row(
                "", told, "", "", change.valid_to or "", "", "", change.at[:10], f"offset {change.offset}", ""
            )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _out() -> Console:
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(width=max(CONSOLE_WIDTH_MIN, console.width), markup=False)
