"""The command line. Quiet success, one aligned table, ``--json`` everywhere, progress on stderr.

Exit codes: 0 ok, 1 something failed, 2 misuse.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from infra import commands_presets
from infra.stack_options import UpOptions

_COMMANDS = {
    "import": "commands_data:import_file",
    "learn": "commands_data:learn",
    "persona": "commands_data:persona",
    "ask": "commands_ask:ask",
    "chat": "commands_chat:chat",
    "proxy": "commands_chat:proxy",
    "facts": "commands_memory:facts",
    "summaries": "commands_memory:summaries",
    "conflicts": "commands_memory:app",
    "transcript": "commands_archive:transcript",
    "restore": "commands_archive:restore_command",
    "tail": "commands_operate:tail",
    "sql": "commands_operate:sql",
    "status": "commands_operate:status",
    "doctor": "commands_operate:doctor",
    "topics": "commands_operate:topics",
    "presets": "commands_presets:app",
    "dead-letters": "commands_deadletters:app",
    "report": "commands_report:app",
    "review": "commands_review:app",
    "bench": "commands_bench:app",
}
"""Commands and groups of commands, each with where it stands."""


def up(
    broker: Annotated[
        str, typer.Option(help="embedded (in memory, pip only) or kafka (durable, needs JDK 17+, Maven)")
    ] = "embedded",
    data: Annotated[Path | None, typer.Option(help="Directory for all files of the stack")] = None,
    port_base: Annotated[
        int | None, typer.Option(help="Kafka here, ClickHouse, embeddings, controller on the next")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Topic prefix")] = "mnemolog.",
    partitions: Annotated[int, typer.Option(help="Partitions of the topics of owners")] = 4,
    only: Annotated[list[str] | None, typer.Option(help="Start only: broker, clickhouse, embeddings, roles")] = None,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="Keep nothing: everything is gone when it stops")
    ] = False,
    presets: commands_presets.PresetsFileOption = None,
    json: Annotated[bool, typer.Option("--json", help="Announce the addresses as one line of JSON")] = False,
) -> None:
    """Start a local stack: broker, ClickHouse, embeddings, objects and the three roles. Ctrl-C stops all."""
    from infra.stack import up as start

    commands_presets.usable(presets)  # a worker would refuse it as well, but only once everything else runs
    options = UpOptions(
        broker=broker,
        data=data,
        port_base=port_base,
        prefix=prefix,
        partitions=partitions,
        json=json,
        only=tuple(only or ()),
        presets=presets,
        keep=not temporary and not only,  # parts alone restore nothing
    )
    raise typer.Exit(start(options))


def role(name: Annotated[str, typer.Argument(help="ingest, memory or analytics")]) -> None:
    """Run one role, configured by MNEMOLOG_* variables (for containers)."""
    from infra.worker import ROLES, run

    if name not in ROLES:
        typer.echo(f"unknown role {name!r}: expected {', '.join(ROLES)}", err=True)
        raise typer.Exit(2)
    raise typer.Exit(run(name))


def demo(json: Annotated[bool, typer.Option("--json", help="Print the results as JSON")] = False) -> None:
    """The main job on bundled data: a stack of its own, four questions, a corrected fact, a scripted round."""
    from infra.demo.run import run

    raise typer.Exit(run(json=json))


@cache
def application(called: str | None = None) -> typer.Typer:
    """The program: with all commands, or with the called one only, since importing all takes twice the time."""
    program = typer.Typer(
        name="mnemolog",
        help="Event-sourced memory for conversational AI. Start with: mnemolog up",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    program.command()(up)
    program.command()(role)
    for name, place in _COMMANDS.items():
        if called in (None, name):
            module, _, attribute = place.partition(":")
            found = getattr(import_module(f"infra.{module}"), attribute)
            if isinstance(found, typer.Typer):
                program.add_typer(found, name=name)
            else:
                program.command(name)(found)
    program.command()(demo)
    return program


def __getattr__(name: str) -> Any:
    if name == "app":
        return application()
    raise AttributeError(name)


def _foreseen() -> tuple[type[Exception], ...]:
    """Errors that are one sentence. Looked up only once there is one: most calls need none of their modules."""
    from connectors.errors import MnemologError
    from connectors.imports import UnreadableExport
    from connectors.log_writer import OffsetTaken
    from connectors.ports import Unavailable, UnknownTopic
    from infra.stack_options import StackError
    from streams.segment_store import ArchiveError

    return StackError, ArchiveError, OffsetTaken, UnreadableExport, MnemologError, Unavailable, UnknownTopic


def main() -> None:
    """Entry point: every foreseen error is one sentence on stderr."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    called = sys.argv[1] if len(sys.argv) > 1 else None
    try:
        application(called if called in (*_COMMANDS, "up", "role", "demo") else None)()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except _foreseen() as error:
        print(f"mnemolog: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))


if __name__ == "__main__":
    main()
