"""Facts and conflicts on real brokers: said, extracted, asked for, settled, in ClickHouse; also with kill -9."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from connectors.client import SyncClient

pytestmark = pytest.mark.integration

WAIT_S = 45.0


def eventually(found: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """What is found once it is what is wanted."""
    until = time.monotonic() + WAIT_S
    while True:
        value = found()
        if wanted(value):
            return value
        assert time.monotonic() < until, f"after {WAIT_S} s there is only {value}"
        time.sleep(0.3)


def say(client: SyncClient, user: str, session: str, *texts: str) -> None:
    """A user's turns in a session, which then ends."""
    owner = {"user_id": user, "role_id": "lin"}
    for text in texts:
        client.post_turn(**owner, session_id=session, speaker="user", text=text)
    client.post_feedback(**owner, kind="session_end", target={"session_id": session})


def test_fact_is_extracted_contested_settled_and_told_everywhere(stack):
    user = f"u-{uuid.uuid4()}"
    owner = ("--user", user, "--role", "lin")

    def facts(*options: str) -> dict[str, str]:
        found = json.loads(stack.mnemolog("facts", *owner, *options, "--json").stdout)["facts"]
        return {fact["value"]: fact["status"] for fact in found}

    with SyncClient(stack.addresses.kafka) as client:
        say(client, user, "s1", "I live in Lisbon and I have a dog called Rex. 🙂")
        eventually(facts, lambda found: found == {"Lisbon": "active", "Rex (dog)": "active"})
        say(client, user, "s2", "I live in Porto.")
        eventually(facts, lambda found: found.get("Porto") == "contested")
    listed = json.loads(stack.mnemolog("conflicts", "list", *owner, "--open", "--json").stdout)["conflicts"]
    (conflict,) = listed
    assert conflict["values"] == ["Lisbon", "Porto"]
    assert "contested" in stack.mnemolog("conflicts", "show", conflict["conflict_id"][:12], *owner).stdout
    wrong = stack.mnemolog("conflicts", "resolve", conflict["conflict_id"], *owner, "--winner", "Rome", check=False)
    assert wrong.returncode != 0
    assert "Lisbon, Porto" in wrong.stderr
    stack.mnemolog("conflicts", "resolve", conflict["conflict_id"], *owner, "--winner", "Porto", "--author", "clerk")
    eventually(facts, lambda found: found == {"Porto": "active", "Rex (dog)": "active"})
    assert facts("--history")["Lisbon"] == "superseded"
    query = (
        f"SELECT value, status FROM facts WHERE is_current AND user_id = '{user}' AND fact_key = 'home' ORDER BY value"
    )
    eventually(
        lambda: json.loads(stack.mnemolog("sql", query, "--json").stdout),
        lambda rows: rows == [{"value": "Lisbon", "status": "superseded"}, {"value": "Porto", "status": "active"}],
    )
    reply = json.loads(stack.mnemolog("ask", "Where do I live?", *owner, "--json").stdout)
    assert any(item["path"] == "memory" and "Porto" in item["text"] for item in reply["evidence"])


@pytest.mark.kafka
def test_kill_9_of_the_memory_worker_during_extraction_loses_and_doubles_no_fact(on_kafka):
    users = [f"u-{uuid.uuid4()}" for _ in range(12)]
    worker = on_kafka.worker("memory")
    worker.start()
    worker.await_ready()
    with SyncClient(on_kafka.addresses.kafka) as client:
        for number, user in enumerate(users):
            say(client, user, "s1", f"I live in Lisbon and my age is no secret: I'm {30 + number}.")
            if number == len(users) // 2:
                worker.kill()

        def held() -> list[list[tuple[str, int]]]:
            replies = [
                client.read("facts", user_id=user, role_id="lin", history=True, timeout_ms=30_000) for user in users
            ]
            return [sorted((fact.value, len(fact.history)) for fact in reply.facts) for reply in replies]

        eventually(held, lambda found: found == [[(str(30 + n), 1), ("Lisbon", 1)] for n in range(len(users))])
