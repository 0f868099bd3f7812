"""The closed loop on a real stack: `mnemolog proxy` with the stock OpenAI client, `mnemolog chat` on a pipe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

pytestmark = pytest.mark.integration

SCRIPT = """
[[rule]]
when = "who has my spare key"
answer = "<analysis>Needs experience. E1 says so.</analysis><response>It is with the tailor.</response>"
[[rule]]
when = "钥匙"
answer = "<analysis>需要经历证据。</analysis><response>在裁缝那儿。</response>"
[[rule]]
answer = "<analysis>It needs no evidence.</analysis><response>Noted, friend.</response>"
"""


@contextmanager
def child(*arguments: str, env: dict[str, str]) -> Iterator[str]:
    """A server's base URL, from the line that it prints."""
    process = subprocess.Popen([sys.executable, "-m", *arguments], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+?/v1", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        process.stdout.close()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    script = tmp_path / "script.toml"
    script.write_text(SCRIPT, "utf-8")
    with child("infra.model_server", "--port", "0", "--script", str(script), env=dict(os.environ)) as url:
        yield url


def test_stock_client_has_memory_through_the_proxy(embedded, endpoint):
    user = f"u-{uuid.uuid4()}"
    arguments = ("infra.cli", "proxy", "--port", "0", "--base-url", endpoint, "--role", "lin")
    with child(*arguments, env=embedded.env) as url, openai.OpenAI(base_url=url, api_key="none") as client:
        told = "The spare key is with the tailor."
        done = client.chat.completions.create(model="scripted", user=user, messages=[{"role": "user", "content": told}])
        assert done.choices[0].message.content == "Noted, friend."
        stream = client.chat.completions.create(
            model="scripted@lin",
            user=user,
            messages=[{"role": "user", "content": "Who has my spare key?"}],
            stream=True,
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert "".join(pieces) == "It is with the tailor."
        assert len(pieces) > 2
    reply = embedded.mnemolog("ask", "tailor spare key", "--user", user, "--role", "lin", "--json").stdout
    assert reply.count(told) >= 1
    assert "It is with the tailor." in reply


def test_chat_runs_on_a_pipe_and_survives_wrong_commands(embedded, endpoint):
    user = f"u-{uuid.uuid4()}"
    typed = "备用钥匙在谁那儿？\n/why\n/nonsense\n/model other\nHello\n/forget-last\n/facts\n/quit\n"
    command = ["infra.cli", "chat", "--role", "lin", "--user", user, "--model", "scripted", "--base-url", endpoint]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=embedded.env,
        input=typed,
        capture_output=True,
        encoding="utf-8",
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("在裁缝那儿。\n")
    assert "grade (rules)" in done.stdout
    assert "other at http" in done.stdout
    assert "Noted, friend." in done.stdout
    assert "the two turns stay" in done.stdout
    assert "no facts" in done.stdout
    assert "Traceback" not in done.stderr
    assert "there is no command /nonsense" in done.stderr


def test_ctrl_c_does_not_end_the_chat(embedded, endpoint):
    command = ["infra.cli", "chat", "--role", "lin", "--user", "u", "--model", "scripted", "--base-url", endpoint]
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=embedded.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("session s-")
    process.send_signal(signal.SIGINT)
    while "/quit ends the chat" not in process.stderr.readline():
        assert process.poll() is None
    out, _ = process.communicate("Hello\n", timeout=60)
    assert out == "Noted, friend.\n"
    assert process.returncode == 0


def test_endpoint_that_is_not_there_is_a_sentence(embedded):
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", "proxy", "--port", "0", "--base-url", "nowhere"],
        env=embedded.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no base URL" in done.stderr
    assert time.monotonic() - begun < 60
