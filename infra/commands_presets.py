"""``presets``: which retrieval presets there are, and what each sets; no stack is needed.

Invariant: what is shown was checked by the code that a worker checks with, so a file that is shown here starts there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from infra.stack_options import UsageError
from infra.target import JsonOption
from streams.core.settings import (
    DEFAULT_PRESET,
    BadSetting,
    Catalogue,
    Settings,
    UnknownPreset,
    as_dict,
    known_settings,
)
from streams.presets import catalogue_of

app = typer.Typer(help="Retrieval presets: list them, or show what one sets.")

PresetsFileOption = Annotated[
    Path | None,
    typer.Option("--presets", envvar="MNEMOLOG_PRESETS", help="TOML file with presets beside those of mnemolog"),
]


def usable(presets: Path | None) -> Catalogue:
    """The catalogue with a file of presets.

    Raises
    ------
    UsageError
        The file can't be used: one sentence that says where and why.
    """
    try:
        return catalogue_of(presets)
    except BadSetting as error:
        raise UsageError(str(error)) from error


@app.callback(invoke_without_command=True)
def listed(context: typer.Context, presets: PresetsFileOption = None, json: JsonOption = False) -> None:
    """List the presets, with --presets those of a file too; `show NAME` tells what one sets."""
    context.obj = presets
    if context.invoked_subcommand is not None:
        return
    names = usable(presets).names()
    if json:
        print(orjson.dumps({"presets": [{"name": name, "description": told} for name, told in names.items()]}).decode())
        return
    table = _table("preset", "what it is for")
    for name, told in names.items():
        table.add_row(name, told)
    _print(table)


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a preset")],
    presets: PresetsFileOption = None,
    json: JsonOption = False,
) -> None:
    """Show every setting of a preset, and where it differs from the default."""
    catalogue = usable(presets or context.obj)
    try:
        chosen = catalogue.resolve(name)
    except UnknownPreset as error:
        raise UsageError(str(error)) from error
    settings, default = flat(chosen), flat(catalogue.resolve(DEFAULT_PRESET))
    told = catalogue.names()[name]
    if json:
        print(orjson.dumps({"name": name, "description": told, "settings": settings}).decode())
        return
    print(f"{name}: {told}")
    table = _table("setting", "value", DEFAULT_PRESET)
    for key, value in settings.items():
        table.add_row(key, _shown(value), _shown(default[key]) if value != default[key] else "")
    _print(table)


def flat(settings: Settings) -> dict[str, Any]:
    """Settings by dotted key, as requests give them in ``set``.

    >>> from streams.core.settings import resolve
    >>> flat(resolve("arpm"))["experience.floor"]
    0.0
    """
    tree = as_dict(settings)
    return {key: tree[key.partition(".")[0]][key.partition(".")[2]] for key in known_settings()}


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _print(table: Table) -> None:
    console = Console()
    (console if console.is_terminal else Console(width=max(160, console.width))).print(table, highlight=False)
