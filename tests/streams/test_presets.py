"""Presets of a file: answered by name, recorded with their numbers, refused at the start in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams.core.settings import BadSetting, as_dict, resolve
from streams.presets import FILE_BYTES_MAX, catalogue_of
from streams.requests import Responder
from tests import builders
from tests.streams.stage import Stage

PATIENT = """
[patient]
description = "Forgets over months, not weeks"
extends = "arpm"

[patient.experience]
lambda_hours = 2160
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(PATIENT, "utf-8")
    return file


async def test_request_names_a_preset_of_the_file_and_the_answer_records_its_numbers(file: Path) -> None:
    stage = Stage()
    stage.responder = Responder(stage.memory, catalogue_of(file))
    reply = await stage.ask(builders.request(preset="patient"))
    (event,) = [event for event in stage.events() if event["type"] == "RecallAnswered"]
    assert (reply["status"], reply["preset"], event["preset"]) == ("ok", "patient", "patient")
    assert event["parameters"]["experience"]["lambda_hours"] == 2160.0
    assert event["parameters"] == as_dict(catalogue_of(file).resolve("patient"))
    same = await stage.ask(builders.request(preset="arpm", set={"experience.lambda_hours": 2160}))
    assert same["config_digest"] == reply["config_digest"], "the same numbers under two names give the same answers"


async def test_preset_of_the_file_can_be_overridden_and_is_listed_where_another_is_unknown(file: Path) -> None:
    stage = Stage()
    stage.responder = Responder(stage.memory, catalogue_of(file))
    reply = await stage.ask(builders.request(preset="patient", set={"experience.floor": 0.5}))
    assert reply["status"] == "ok"
    failed = await stage.ask(builders.request(preset="hasty"))
    assert failed["error"]["code"] == "unknown_preset"
    assert "patient" in failed["error"]["message"]


async def test_worker_without_a_file_knows_no_presets_of_a_file() -> None:
    reply = await Stage().ask(builders.request(preset="patient"))
    assert reply["error"]["code"] == "unknown_preset"


@pytest.mark.parametrize("nothing", [None, ""])
def test_no_file_means_the_shipped_presets(nothing: str | None) -> None:
    assert catalogue_of(nothing).resolve() == resolve()


def test_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(BadSetting, match="can't be read.*MNEMOLOG_PRESETS") as raised:
            catalogue_of(path)
        assert str(path) in str(raised.value)
    (tmp_path / "binary").write_bytes(b"[a]\n\xff")
    with pytest.raises(BadSetting, match="not UTF-8 at byte 4"):
        catalogue_of(tmp_path / "binary")
    (tmp_path / "novel").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(BadSetting, match=f"at most {FILE_BYTES_MAX}"):
        catalogue_of(tmp_path / "novel")


def test_worker_does_not_start_with_a_bad_file_and_says_where_and_what(file: Path) -> None:
    file.write_text(PATIENT.replace("2160", "-1"), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "infra.worker", "memory"],
        env={**os.environ, "MNEMOLOG_PRESETS": str(file)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == (
        f"mnemolog: {file}, preset 'patient': experience.lambda_hours takes a number from 0.001 to 1e+09, got -1"
    )
