"""The program imports what is called, and shows all that there is to whoever asks for help."""

from __future__ import annotations

import subprocess
import sys

import typer
from typer.testing import CliRunner

from infra import cli


def commands_of(program: typer.Typer) -> set[str]:
    """Names of a program's commands and groups."""
    return set(typer.main.get_command(program).commands)  # type: ignore[attr-defined]


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    for name in ("up", "role", *cli._COMMANDS, "demo"):
        assert f" {name} " in shown


def test_program_for_one_command_has_that_one_beside_its_own() -> None:
    assert commands_of(cli.application("sql")) == {"up", "role", "sql", "demo"}
    assert commands_of(cli.application("bench")) == {"up", "role", "bench", "demo"}
    assert commands_of(cli.application()) == {"up", "role", "demo", *cli._COMMANDS}


def test_call_of_one_command_imports_no_other() -> None:
    code = "import sys; sys.argv = ['mnemolog', 'facts', '--help']; from infra import cli\n"
    code += "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
    code += "print(sorted(name for name in sys.modules if name.startswith('infra.commands_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "['infra.commands_ask', 'infra.commands_memory', 'infra.commands_presets']"


def test_foreseen_errors_are_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", "ask", "x", "--user", "u", "--role", "r", "--kafka", "127.0.0.1:9"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert any(line.startswith("mnemolog: no Kafka broker answers") for line in done.stderr.splitlines())
    assert "Traceback" not in done.stderr
