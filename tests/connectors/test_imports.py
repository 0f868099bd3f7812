"""Every export under shared/imports is read as its expectations say, whatever its name, and the same way twice.

The language of NAME.expect.json is that of shared/imports/README.md; outcomes of the command line (exit codes, dead
letters) are its own tests' business.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from connectors.imports import ExportRead, ImportedTurn, UnreadableExport, read_export

SHARED = Path(os.environ.get("MNEMOLOG_SHARED", Path(__file__).parents[3] / "shared"))
CASES = sorted((SHARED / "imports").glob("*.expect.json"))

pytestmark = pytest.mark.skipif(not CASES, reason=f"no expectations in {SHARED / 'imports'}")


@pytest.fixture(params=CASES, ids=lambda path: path.name.removesuffix(".expect.json"))
def case(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_export_is_read_as_expected(case: Path, tmp_path: Path) -> None:
    expected = json.loads(case.read_text(encoding="utf-8"))
    path = tmp_path / expected["as"]
    shutil.copy(case.parent / expected["file"], path)
    outcome = run(path, expected.get("args", []), expected["as"])
    assert problems(expected, outcome) == []
    assert "Traceback" not in outcome.message


def test_second_read_and_other_name_change_nothing(case: Path, tmp_path: Path) -> None:
    expected = json.loads(case.read_text(encoding="utf-8"))
    first, second = tmp_path / expected["as"], tmp_path / "other.name"
    shutil.copy(case.parent / expected["file"], first)
    shutil.copy(case.parent / expected["file"], second)
    args = expected.get("args", [])
    one, two = run(first, args, "x"), run(second, args, "x")
    assert one == two


def test_ids_and_order_hold(case: Path, tmp_path: Path) -> None:
    expected = json.loads(case.read_text(encoding="utf-8"))
    read = run(case.parent / expected["file"], expected.get("args", []), "x").read or ExportRead("", 0, [], [], [])
    ids = [turn.turn_id for turn in read.turns]
    assert len(set(ids)) == len(ids)
    assert all(0 < len(turn.turn_id) <= 200 and 0 < len(turn.session_id) <= 200 for turn in read.turns)
    assert {turn.speaker for turn in read.turns} <= {"user", "assistant"}


@dataclass(slots=True)
class Outcome:
    """What an import of a file gave: a result or a refusal."""

    read: ExportRead | None
    message: str
    bad: list[tuple[str, str]] = field(default_factory=list)

    @property
    def turns(self) -> list[ImportedTurn]:
        return self.read.turns if self.read is not None else []


def run(path: Path, args: list[str], as_name: str) -> Outcome:
    format = args[args.index("--format") + 1] if "--format" in args else "auto"
    try:
        read = read_export(path, format, name_hint=as_name)
    except UnreadableExport as error:
        return Outcome(None, str(error))
    report = [f"{len(read.turns)} turns", *(f"{bad.where}: {bad.message}" for bad in read.bad)]
    return Outcome(read, "\n".join(report), [(bad.where, bad.message) for bad in read.bad])


def problems(expected: dict[str, Any], outcome: Outcome) -> list[str]:
    """Return what is wrong, for the alternative that fits best; none if one fits."""
    alternatives = [expected] + [expected | other for other in expected.get("or", [])]
    found = [_problems(alternative, outcome) for alternative in alternatives]
    return min(found, key=len)


def _problems(expected: dict[str, Any], outcome: Outcome) -> list[str]:
    found: list[str] = []
    kind, turns = expected["outcome"], outcome.turns
    if kind == "all" and (outcome.read is None or not turns or (outcome.bad and 1 not in expected.get("exit", []))):
        found.append(f"expected all to be read, got {outcome.message}")
    if kind == "part" and (outcome.read is None or not turns):
        found.append(f"expected a part to be read, got {outcome.message}")
    if kind in ("fail", "none"):
        if turns:
            found.append(f"expected no turns, got {len(turns)}")
        patterns = expected.get("message", [])
        if patterns and not any(re.search(pattern, outcome.message, re.I) for pattern in patterns):
            found.append(f"no message like {patterns} in {outcome.message!r}")
    names = expected.get("format")
    if kind in ("all", "part") and names and outcome.read and not any(name in outcome.read.format for name in names):
        found.append(f"format {outcome.read.format} is none of {names}")
    swaps = (False, True) if expected.get("either") else (False,)
    found += min((_turn_problems(expected, turns, swap) for swap in swaps), key=len)
    for never in expected.get("never", []):
        found += [f"{never!r} is stored in {turn.turn_id}" for turn in turns if never in turn.text]
    for beginning in expected.get("never_times", []):
        found += [f"time {turn.occurred_at}" for turn in turns if turn.occurred_at.startswith(beginning)]
    return found + _bad_problems(expected, outcome)


def _turn_problems(expected: dict[str, Any], turns: list[ImportedTurn], swap: bool) -> list[str]:
    found: list[str] = []
    wanted, position, matched = expected["turns"], 0, []
    for turn in turns:
        ahead = position
        while ahead < len(wanted) and not _fits(wanted[ahead], turn, swap):
            if not wanted[ahead].get("optional"):
                break
            ahead += 1
        if ahead < len(wanted) and _fits(wanted[ahead], turn, swap):
            matched.append((wanted[ahead], turn))
            position = ahead + 1
        else:
            found.append(f"unexpected turn {turn.speaker} {turn.text!r} {turn.occurred_at}")
    found += [f"missing turn {want}" for want in wanted[position:] if not want.get("optional")]
    sessions: dict[str, str] = {}
    for want, turn in matched:
        if "session" in want and sessions.setdefault(want["session"], turn.session_id) != turn.session_id:
            found.append(f"session {want['session']} is {sessions[want['session']]} and {turn.session_id}")
        if "name" in want and turn.name != want["name"]:
            found.append(f"name {turn.name!r}, expected {want['name']!r}")
        if "id" in want and turn.turn_id != want["id"]:
            found.append(f"id {turn.turn_id!r}, expected {want['id']!r}")
    if len(set(sessions.values())) != len(sessions):
        found.append(f"sessions not kept apart: {sessions}")
    return found + _wall_problems(matched)


def _fits(want: dict[str, Any], turn: ImportedTurn, swap: bool) -> bool:
    speaker = {"user": "assistant", "assistant": "user"}[turn.speaker] if swap else turn.speaker
    text = turn.text.replace("\r\n", "\n").strip()
    if speaker != want["speaker"]:
        return False
    if "text" in want and text != want["text"].replace("\r\n", "\n").strip():
        return False
    if not all(part in text for part in want.get("has", [])):
        return False
    if "re" in want and not re.fullmatch(want["re"], text):
        return False
    at = datetime.fromisoformat(turn.occurred_at)
    instants = want.get("at", [])
    instants = [instants] if isinstance(instants, str) else instants
    if instants and not any(abs(at - datetime.fromisoformat(i)) <= timedelta(milliseconds=1) for i in instants):
        return False
    if "between" in want:
        low, high = map(datetime.fromisoformat, want["between"])
        return low - timedelta(milliseconds=1) <= at <= high
    return True


def _wall_problems(matched: list[tuple[dict[str, Any], ImportedTurn]]) -> list[str]:
    """One zone must explain all local times; `read_export` was given UTC."""
    found = []
    for want, turn in matched:
        if "wall" in want:
            wall = datetime.fromisoformat(want["wall"]).replace(tzinfo=UTC)
            late = (datetime.fromisoformat(turn.occurred_at) - wall).total_seconds()
            if not 0 <= late <= want.get("wall_slack_s", 0):
                found.append(f"{turn.text!r} is at {turn.occurred_at}, expected {want['wall']}")
    return found


def _bad_problems(expected: dict[str, Any], outcome: Outcome) -> list[str]:
    found = []
    for want in expected.get("bad", []):
        unless = want.get("unless_stored")
        if unless and any(unless in turn.text for turn in outcome.turns):
            continue
        lines = {str(want["line"][0])} if "line" in want else set()
        lines |= {str(index) for index in want.get("index", [])}
        words = want.get("id", [])
        named = any(where in lines or any(w in where or w in message for w in words) for where, message in outcome.bad)
        if not named and not (want.get("any") and outcome.bad):
            found.append(f"{want} is not among {outcome.bad}")
    return found
