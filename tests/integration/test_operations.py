"""What an operator does: dead letters listed, shown and retried; figures and status of the roles."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.client import Client
from connectors.ports import Outgoing

pytestmark = pytest.mark.integration


def await_true(condition: Callable[[], Any], seconds: float = 30) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


async def post_raw(stack: Any, topic: str, value: bytes, **options: Any) -> None:
    async with Client(stack.addresses.kafka, prefix=stack.addresses.prefix) as client:
        await (await client._log.append(Outgoing(topic=stack.addresses.prefix + topic, value=value, **options)))


async def test_a_dead_letter_is_listed_retried_counted_and_mended(stack, tmp_path):
    user = f"u-{uuid.uuid4()}"
    raw = {
        "turn_id": "t-1", "user_id": user, "role_id": "r", "session_id": "s", "speaker": "user", "text": " ",
        "occurred_at": "2026-05-20T10:00:00Z",
    }  # fmt: skip
    await post_raw(stack, "turns", json.dumps(raw).encode(), key=user.encode(), headers=(("h", b"x"),))

    def letters() -> list[dict[str, Any]]:
        listed = json.loads(stack.mnemolog("dead-letters", "list", "--code", "invalid", "--json").stdout)
        shown = [
            json.loads(stack.mnemolog("dead-letters", "show", row["dead_letter_id"], "--json").stdout) for row in listed
        ]
        return [letter for letter in shown if letter["key"] == user]

    (letter,) = await_true(letters)
    assert letter["attempts"] == 1
    assert letter["headers"] == {"h": "x"}
    done = json.loads(stack.mnemolog("dead-letters", "retry", letter["dead_letter_id"][:13], "--json").stdout)
    assert len(done["retried"]) == 1
    first, second = await_true(lambda: found if len(found := letters()) == 2 else None)
    assert (first["attempts"], second["attempts"]) == (1, 2)
    assert len(first["retried"]) == 1

    file = tmp_path / "mended.json"
    file.write_text(json.dumps({**raw, "text": "the spare key hangs in the shed"}), "utf-8")
    stack.mnemolog("dead-letters", "retry", second["dead_letter_id"], "--value", str(file))
    async with Client(stack.addresses.kafka, prefix=stack.addresses.prefix) as client:
        reply = await client.recall("where is the spare key?", user_id=user, role_id="r", after=["t-1"])
    assert reply.evidence[0].turn_id == "t-1"


async def test_a_document_too_large_to_be_carried_is_retried_from_its_source(stack):
    number = f"d-{uuid.uuid4()}"
    value = json.dumps({"document_id": number, "text": "x" * (12 * 1024 * 1024)}).encode()
    await post_raw(stack, "documents", value, key=number.encode())

    def sizes() -> list[Any]:
        rows = json.loads(stack.mnemolog("dead-letters", "list", "--code", "too_large", "--json").stdout)
        return [row for row in rows if row["value_bytes"] is None]

    (row,) = await_true(sizes)
    stack.mnemolog("dead-letters", "retry", row["dead_letter_id"])
    await_true(lambda: [again for again in sizes() if again["attempts"] == 2])


def test_unknown_id_is_one_sentence(embedded):
    done = embedded.mnemolog("dead-letters", "show", "nope", check=False)
    assert done.returncode == 1
    assert "no dead letter 'nope'" in done.stderr


async def test_roles_show_their_figures(embedded):
    urls = embedded.addresses.metrics
    assert set(urls) == {"ingest", "memory", "analytics"}

    def figures(role: str, path: str) -> httpx.Response:
        return httpx.get(f"{urls[role]}/{path}")

    user = f"u-{uuid.uuid4()}"
    async with Client(embedded.addresses.kafka, prefix=embedded.addresses.prefix) as client:
        turn = await client.post_turn(user_id=user, role_id="r", session_id="s", speaker="user", text="I like tea")
        await client.recall("tea", user_id=user, role_id="r", after=[turn])
    memory = figures("memory", "status").json()
    assert memory["ready"] is True
    assert memory["partitions"]["journal"] == [0, 1, 2, 3]
    assert memory["owners"] >= 1
    assert memory["turns"] >= 1
    assert memory["oldest_unanswered_seconds"] < 5
    assert memory["embedder"].startswith("multilingual-e5-small-q4#")
    await_true(lambda: figures("memory", "status").json()["effects_outstanding"] == 0)
    body = figures("memory", "metrics").text
    assert 'mnemolog_requests_total{outcome="ok"}' in body
    assert 'mnemolog_journal_lag{partition="0"} 0.0' in body
    ingest = figures("ingest", "metrics").text
    assert 'mnemolog_records_total{outcome="accepted",role="ingest",topic="turns"}' in ingest

    def lags() -> bool:
        roles = [figures(name, "status").json() for name in urls]
        return all(count == 0 for role in roles for topic in role["lag"].values() for count in topic.values())

    await_true(lags)
    await_true(lambda: 'table="turns_rows"' in figures("analytics", "metrics").text)


def test_status_shows_the_roles(embedded):
    given = [option for url in embedded.addresses.metrics.values() for option in ("--metrics", url)]
    done = embedded.mnemolog("status", *given)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {line[0] for line in lines if line[1:2] == ["yes"]} == {"ingest", "memory", "analytics"}
    away = embedded.mnemolog("status", "--metrics", "http://127.0.0.1:9", check=False)
    assert away.returncode == 1
    assert "does not answer" in away.stdout
