"""The command line. Quiet success, one aligned table, ``--json`` everywhere, progress on stderr.

Exit codes: 0 ok, 1 something failed, 2 misuse.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from connectors.errors import MnemologError
from connectors.imports import UnreadableExport
from connectors.log_writer import OffsetTaken
from connectors.ports import Unavailable, UnknownTopic
from infra import (
    commands_archive,
    commands_ask,
    commands_bench,
    commands_chat,
    commands_data,
    commands_deadletters,
    commands_memory,
    commands_operate,
    commands_presets,
    commands_report,
    commands_review,
)
from infra.stack_options import StackError, UpOptions
from streams.segment_store import ArchiveError

app = typer.Typer(
    name="mnemolog",
    help="Event-sourced memory for conversational AI. Start with: mnemolog up",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
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


@app.command()
def role(name: Annotated[str, typer.Argument(help="ingest, memory or analytics")]) -> None:
    """Run one role, configured by MNEMOLOG_* variables (for containers)."""
    from infra.worker import ROLES, run

    if name not in ROLES:
        typer.echo(f"unknown role {name!r}: expected {', '.join(ROLES)}", err=True)
        raise typer.Exit(2)
    raise typer.Exit(run(name))


app.command("import")(commands_data.import_file)
app.command()(commands_data.learn)
app.command()(commands_data.persona)
app.command()(commands_ask.ask)
app.command()(commands_chat.chat)
app.command()(commands_chat.proxy)
app.command()(commands_memory.facts)
app.command()(commands_memory.summaries)
app.add_typer(commands_memory.app, name="conflicts")
app.command()(commands_archive.transcript)
app.command("restore")(commands_archive.restore_command)
app.command()(commands_operate.tail)
app.command()(commands_operate.sql)
app.command()(commands_operate.status)
app.command()(commands_operate.doctor)
app.command()(commands_operate.topics)
app.add_typer(commands_presets.app, name="presets")
app.add_typer(commands_deadletters.app, name="dead-letters")
app.add_typer(commands_report.app, name="report")
app.add_typer(commands_review.app, name="review")
app.add_typer(commands_bench.app, name="bench")


@app.command()
def demo(json: Annotated[bool, typer.Option("--json", help="Print the results as JSON")] = False) -> None:
    """The main job on bundled data: a stack of its own, four questions, a corrected fact, a scripted round."""
    from infra.demo.run import run

    raise typer.Exit(run(json=json))


def main() -> None:
    """Entry point: every foreseen error is one sentence on stderr."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        app()
    except (StackError, ArchiveError, OffsetTaken, UnreadableExport, MnemologError, Unavailable, UnknownTopic) as error:
        print(f"mnemolog: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
