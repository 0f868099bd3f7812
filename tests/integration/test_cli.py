"""The command line as a user runs it: another process, the embedded stack, JSON and tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration


def _jsonl(path: Path, *turns: dict) -> Path:
    path.write_text("".join(json.dumps(turn, ensure_ascii=False) + "\n" for turn in turns), "utf-8")
    return path


def _row(index: int, speaker: str, text: str) -> dict:
    at = f"2026-05-20T10:{index:02d}:00+08:00"
    return {"turn_id": f"t-{index}", "session_id": "s", "speaker": speaker, "text": text, "occurred_at": at}


def test_import_ask_sql_and_a_second_import(embedded, tmp_path):
    user = f"u-{uuid.uuid4()}"
    file = _jsonl(
        tmp_path / "chat.jsonl",
        _row(1, "user", "钥匙寄存在楼下修鞋摊"),
        _row(2, "assistant", "好，记住了"),
        _row(3, "user", "The dentist moved to Thursday 16:30"),
    )
    file.write_text(file.read_text("utf-8") + "this is no JSON\n", "utf-8")
    owner = ("--user", user, "--role", "lin")
    report = json.loads(embedded.mnemolog("import", str(file), *owner, "--json").stdout)
    assert (report["format"], report["turns"], report["posted"], report["duplicates"]) == ("jsonl", 3, 3, 0)
    assert [item["where"] for item in report["bad"]] == ["4"]
    again = json.loads(embedded.mnemolog("import", str(file), *owner, "--json").stdout)
    assert (again["posted"], again["duplicates"]) == (0, 3)

    reply = json.loads(embedded.mnemolog("ask", "where is my key? 钥匙在哪", *owner, "--json").stdout)
    assert reply["evidence"][0]["turn_id"] == "t-1"
    table = embedded.mnemolog("ask", "when is the dentist?", *owner, "--prompt", "--explain").stdout
    assert "Thursday 16:30" in table
    assert "rounds ago" in table
    past = json.loads(embedded.mnemolog("ask", "dentist", *owner, "--as-of", "turn:t-2", "--json").stdout)
    assert {item["turn_id"] for item in past["evidence"]} <= {"t-1", "t-2"}

    until = time.monotonic() + 20
    query = f"SELECT count() AS n FROM turns WHERE user_id = '{user}'"
    while json.loads(embedded.mnemolog("sql", query, "--json").stdout) != [{"n": 3}]:
        assert time.monotonic() < until
    assert "n" in embedded.mnemolog("sql", query).stdout


def test_other_content_under_an_id_is_reported_and_not_posted(embedded, tmp_path):
    user = f"u-{uuid.uuid4()}"
    embedded.mnemolog(
        "import", str(_jsonl(tmp_path / "a.jsonl", _row(1, "user", "one"))), "--user", user, "--role", "r"
    )
    changed = _jsonl(tmp_path / "b.jsonl", _row(1, "user", "two"))
    done = embedded.mnemolog("import", str(changed), "--user", user, "--role", "r", "--json", check=False)
    report = json.loads(done.stdout)
    assert report["posted"] == 0
    assert "other content" in report["bad"][0]["message"]
    assert done.returncode == 1


def test_learn_persona_tail_status_doctor(embedded, tmp_path):
    word = f"quillon{uuid.uuid4().hex[:6]}"
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text(f"# Boats\n\nThe {word} is a boat with a red keel.\n", "utf-8")
    (tmp_path / "notes" / "bad.txt").write_bytes(b"\xff\xfa\x00 not text")
    report = json.loads(embedded.mnemolog("learn", str(tmp_path / "notes"), "--role", "sailor", "--json").stdout)
    assert len(report["documents"]) == 1
    assert "bad.txt" in report["bad"][0]["where"]
    reply = json.loads(
        embedded.mnemolog(
            "ask", f"what colour is the keel of the {word}?", "--user", "u", "--role", "sailor", "--json"
        ).stdout
    )
    assert "red keel" in reply["evidence"][0]["text"]
    assert reply["evidence"][0]["path"] == "knowledge"

    persona = tmp_path / "p.toml"
    persona.write_text(
        'role_id = "r2"\nname = "Noor"\ncore = "A pilot."\nboundaries = ["Never flies drunk."]\n', "utf-8"
    )
    assert json.loads(embedded.mnemolog("persona", str(persona), "--json").stdout) == {"role_id": "r2"}
    last = embedded.mnemolog("tail", "personas", "-n", "1", "--json").stdout.splitlines()[-1]
    assert json.loads(last)["value"]["name"] == "Noor"
    status = json.loads(embedded.mnemolog("status", "--json").stdout)
    assert status["topics"]["personas"]["records"] >= 1
    assert status["clickhouse"]["rows"]["turns"] >= 0
    findings = json.loads(embedded.mnemolog("doctor", "--json").stdout)
    assert {finding["name"] for finding in findings} >= {"python", "broker", "clickhouse", "embeddings"}


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("ask", "q", "--user", "u", "--role", "r", "--as-of", "soon"), 2, "no point in time"),
        (("ask", "q", "--user", "u", "--role", "r", "--preset", "nope"), 1, "balanced"),
        (("ask", "q", "--user", "u", "--role", "r", "--set", "experience.floor=NaN"), 1, "floor"),
        (("sql", "SELEC 1"), 1, "yntax"),
        (("sql", "SELECT * FROM nowhere"), 1, "nowhere"),
        (("tail", "nothing"), 1, "has no topic"),
        (("learn", "/no/such/file"), 1, "does not exist"),
        (("import", "/no/such/file", "--user", "u", "--role", "r"), 1, "/no/such/file"),
        (("persona", "/no/such/file"), 1, "can't be read"),
        (("role", "boss"), 2, "ingest"),
        (("up", "--broker", "rabbit"), 2, "rabbit"),
    ],
)
def test_mistakes_get_one_clear_sentence(embedded, args, code, words):
    done = embedded.mnemolog(*args, check=False)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_no_stack_is_said_with_what_to_do(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("MNEMOLOG_")}
    env["MNEMOLOG_STATE"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", "status"], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "mnemolog up" in done.stderr


def test_up_announces_one_line_is_found_by_other_commands_and_stops_on_ctrl_c(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("MNEMOLOG_")}
    env["MNEMOLOG_STATE"] = str(tmp_path / "state")
    command = [sys.executable, "-m", "infra.cli", "up", "--json", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            addresses = json.loads(process.stdout.readline())
            assert {"kafka", "clickhouse", "embeddings", "objects", "prefix"} <= set(addresses)
            done = subprocess.run(
                [sys.executable, "-m", "infra.cli", "status", "--json"],
                env=env, capture_output=True, text=True, check=True, timeout=60,
            )  # fmt: skip
            status = json.loads(done.stdout)
            assert status["found_by"] == "local stack"
            assert status["addresses"]["kafka"] == addresses["kafka"]
        finally:
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            process.communicate(timeout=30)
        assert process.returncode == 0
        assert time.monotonic() - begun < 15
