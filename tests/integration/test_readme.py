"""The README's commands and programs run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.S | re.M)
SHELL = re.findall(r"^```sh\n(.*?)^```", README, re.S | re.M)

CHAT = """\
{"session_id": "s", "speaker": "user", "text": "The spare key is with the tailor.", "time": "2026-05-01T10:00:00Z"}
{"session_id": "s", "speaker": "assistant", "text": "Noted.", "time": "2026-05-01T10:00:05Z"}
"""


@pytest.mark.integration
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_readme_runs(embedded, tmp_path, number):
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[number], "utf-8")
    done = subprocess.run(
        [sys.executable, str(file)], env=embedded.env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ("spare key" in done.stdout) or ("馄饨" in done.stdout)


@pytest.mark.integration
@pytest.mark.parametrize("number", range(len(SHELL)))
def test_the_commands_of_the_readme_run(embedded, tmp_path, number):
    (tmp_path / "chat.jsonl").write_text(CHAT, "utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", SHELL[number]],
        cwd=tmp_path, env={**embedded.env, "PATH": path}, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = "spare key is with the tailor" if "mnemolog ask" in SHELL[number] else "no conflicts"
    assert expected in done.stdout


def test_the_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`?make (\w+)`?", README):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_readme_has_programs_and_commands():
    assert len(PROGRAMS) == 2
    assert len(SHELL) >= 1
