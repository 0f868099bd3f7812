"""The scripted endpoint: its script, OpenAI's forms, and its process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from infra.model_server import CannotRead, Script

ROOT = Path(__file__).resolve().parents[2]


def ask(script: Script, text: str, *, system: str = "", schema: bool = False) -> tuple[str, str | None]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    reply = script.reply(messages, {"response_format": {"type": "json_object"}} if schema else {})
    return reply.text, reply.misbehave


def test_first_matching_rule_answers_with_its_groups() -> None:
    script = Script.of_toml("""
[[rule]]
when = "住在(?P<city>..)"
answers = ["$city 很美，价格 $$5"]
[[rule]]
when = "i am (\\\\w+)"
answers = ["hi $1"]
[[rule]]
answer = "else"
""")
    assert ask(script, "我住在上海")[0] == "上海 很美，价格 $5"
    assert ask(script, "I am $Ann")[0] == "else"
    assert ask(script, "I am Ann")[0] == "hi Ann"


def test_answers_come_in_turn_and_the_last_for_ever() -> None:
    script = Script.of_toml('[[rule]]\nanswers = ["a", "b"]')
    assert [ask(script, "x")[0] for _ in range(3)] == ["a", "b", "b"]


def test_rules_can_ask_for_a_system_message_or_a_schema() -> None:
    script = Script.of_toml("""
[[rule]]
schema = true
answer = "{}"
[[rule]]
system = "lin"
answer = "I am Lin"
""")
    assert ask(script, "x", schema=True)[0] == "{}"
    assert ask(script, "x", system="You are Lin")[0] == "I am Lin"
    assert ask(script, "x")[0] == ""


def test_misbehaviour_ends_after_its_times() -> None:
    script = Script.of_toml('[[rule]]\nmisbehave = "hang"\ntimes = 1\n[[rule]]\nanswer = "ok"')
    assert [ask(script, "x") for _ in range(3)] == [("", "hang"), ("ok", None), ("ok", None)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rule]", "TOML"),
        ('[[rule]]\nwen = "x"', "wen"),
        ('[[rule]]\nmisbehave = "explode"', "explode"),
        ('[[rule]]\nwhen = "("', "pattern"),
    ],
)
def test_wrong_script_is_told(text: str, says: str) -> None:
    with pytest.raises(CannotRead, match=says):
        Script.of_toml(text)


def test_script_may_be_a_python_file(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text('def answer(messages, body):\n    return messages[-1]["content"].upper()\n')
    assert ask(Script.of_file(file), "abc")[0] == "ABC"
    assert Script.of_file(file).name == "scripted"
    file.write_text('MODEL = "tiny"\n' + file.read_text())
    assert Script.of_file(file).name == "tiny"
    file.write_text("x = 1\n")
    with pytest.raises(CannotRead, match="answer"):
        Script.of_file(file)
    with pytest.raises(CannotRead, match="missing"):
        Script.of_file(tmp_path / "missing.toml")


@pytest.mark.integration
def test_process_serves_openais_forms_and_ends_on_sigterm(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[[rule]]\nanswers = ["one 二三 four"]\n', encoding="utf-8")
    command = [sys.executable, "-m", "infra.model_server", "--port", "0", "--script", str(script)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().rpartition(" on ")[2].strip()
        body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
        with httpx.Client(base_url=url, timeout=30) as http:
            whole = http.post("/chat/completions", json=body).json()
            assert whole["object"] == "chat.completion"
            assert whole["choices"][0]["message"]["content"] == "one 二三 four"
            assert whole["usage"]["total_tokens"] == sum(
                whole["usage"][name] for name in ("prompt_tokens", "completion_tokens")
            )
            lines = http.post("/chat/completions", json=body | {"stream": True}).text.split("\n\n")
            assert lines[-2:] == ["data: [DONE]", ""]
            deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-2]]
            assert "".join(delta.get("content", "") for delta in deltas) == "one 二三 four"
            assert "scripted" in [one["id"] for one in http.get("/models").json()["data"]]
            assert http.post("/chat/completions", json={"messages": []}).status_code == 400
            assert http.post("/chat/completions", content=b"{").status_code == 400
            assert http.get(url.removesuffix("/v1") + "/health").json()["scripted"] is True
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        process.stdout.close()


def test_wrong_script_ends_the_process_with_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infra.model_server", "--port", "0", "--script", str(tmp_path / "none.toml")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("scripted model: can't read the script")
