"""`mnemolog presets` lists and shows; `up` refuses a bad file before it starts anything and hands on a good one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli import app
from infra.roster import local_roster
from infra.stack_data import open_data
from infra.stack_options import UpOptions, UsageError
from streams.core.settings import presets as shipped
from streams.core.settings import resolve

PATIENT = """
[patient]
description = "Forgets over months, not weeks"
[patient.experience]
lambda_hours = 2160
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(PATIENT, "utf-8")
    return file


def run(*args: str, **environment: str):
    return CliRunner().invoke(app, [*args], env=environment)


def test_presets_are_listed_one_a_line_with_what_they_are_for(file: Path):
    listed = run("presets", "--presets", str(file))
    assert listed.exit_code == 0
    lines = [line.rstrip() for line in listed.stdout.splitlines()]
    assert [line.split()[0] for line in lines[1:]] == [*shipped(), "patient"]
    assert lines[-1].split(maxsplit=1)[1] == "Forgets over months, not weeks"


def test_list_as_json_has_names_and_descriptions(file: Path):
    found = json.loads(run("presets", "--json", MNEMOLOG_PRESETS=str(file)).stdout)["presets"]
    assert [item["name"] for item in found] == [*shipped(), "patient"]
    assert all(item["description"] for item in found)


def test_show_tells_each_value_and_where_it_differs_from_the_default(file: Path):
    for args in (("--presets", str(file), "show", "patient"), ("show", "patient", "--presets", str(file))):
        shown = run("presets", *args).stdout.splitlines()
        assert "experience.lambda_hours           2160       168" in [line.rstrip() for line in shown]
        differing = [line.split()[0] for line in shown[2:] if len(line.split()) > 2]
        assert differing == ["experience.lambda_hours"]


def test_settings_shown_as_json_can_be_given_back_as_overrides():
    found = json.loads(run("presets", "show", "arpm", "--json").stdout)
    assert found["name"] == "arpm"
    assert resolve("balanced", found["settings"]).experience == resolve("arpm").experience


def test_unknown_preset_is_misuse_and_lists_the_known_ones():
    failed = run("presets", "show", "nope")
    assert isinstance(failed.exception, UsageError)
    assert "balanced" in str(failed.exception)


@pytest.mark.parametrize("command", [["presets"], ["presets", "show", "arpm"], ["up"]])
def test_bad_file_is_refused_before_anything_starts(file: Path, command: list[str]):
    file.write_text(PATIENT.replace("lambda_hours", "lambda_ours"), "utf-8")
    failed = run(*command, MNEMOLOG_PRESETS=str(file))
    assert isinstance(failed.exception, UsageError)
    assert str(failed.exception).startswith(f"{file}, preset 'patient': unknown setting 'experience.lambda_ours'")


def test_workers_of_a_stack_are_told_the_file_by_its_whole_path(file: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MNEMOLOG_PRESETS", raising=False)
    for options, told in ((UpOptions(presets=Path("mine.toml")), str(file)), (UpOptions(), None)):
        data = open_data(options, lambda _line: None)
        try:
            roster = local_roster(options, data)
            assert {spec.env.get("MNEMOLOG_PRESETS") for spec in roster.roles} == {told}
        finally:
            data.close(keep_logs=False)
