"""The verifier's part on user memory: every turn is extracted once, and facts are the same wherever they are read.

Reads the logs, ClickHouse and replies; shares no code with the fold.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

from connectors.clickhouse import ClickHouse
from connectors.client import Client
from connectors.log_reader import LogReader
from infra.stack_options import Addresses

AGREE_S_MAX = 60.0
"""Facts reach the topic and ClickHouse behind the journal."""

Session = tuple[str, str]


def events_of(addresses: Addresses, topic: str) -> list[dict[str, Any]]:
    """All records of a topic, partition by partition."""
    name = addresses.prefix + topic
    with LogReader(addresses.kafka) as reader:
        starts = dict.fromkeys(range(reader.partitions(name)), 0)
        return [json.loads(record.value or b"{}") for record in reader.read(name, starts)]


def recorded_turns(events: list[dict[str, Any]]) -> dict[Session, int]:
    """Turns by (user_id, session_id); of a turn id the first record counts."""
    seen: set[tuple[str, str]] = set()
    found: Counter[Session] = Counter()
    for event in events:
        if event["type"] == "TurnRecorded" and (event["user_id"], event["turn_id"]) not in seen:
            seen.add((event["user_id"], event["turn_id"]))
            found[event["user_id"], event["session_id"]] += 1
    return dict(found)


def covered_turns(events: list[dict[str, Any]]) -> dict[Session, int]:
    """Turns that extractions cover by (user_id, session_id); of a segment the first extraction counts."""
    seen: set[str] = set()
    found: Counter[Session] = Counter()
    for event in events:
        if event["type"] == "MemoriesExtracted" and event["segment_id"] not in seen:
            seen.add(event["segment_id"])
            found[event["user_id"], event["session_id"]] += event["turns"]
    return dict(found)


def unembedded_turns(events: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(user_id, turn_id) of the turns that no vector has been recorded of."""
    recorded = {(event["user_id"], event["turn_id"]) for event in events if event["type"] == "TurnRecorded"}
    return recorded - {(event["user_id"], event["turn_id"]) for event in events if event["type"] == "TurnEmbedded"}


async def verify_facts(
    addresses: Addresses, client: Client, owners: list[str], topic: list[dict[str, Any]], problems: list[str]
) -> None:
    """Compare what memory answers, what the topic ``facts`` says last, and what ClickHouse has, for each owner."""
    until = time.monotonic() + AGREE_S_MAX
    for owner in owners:
        while True:
            answered = await _answered(client, owner)
            told = _told(owner, topic)
            stored = await asyncio.to_thread(_stored, addresses, owner)
            if answered == told == stored:
                break
            if time.monotonic() > until:
                problems.append(
                    f"facts of {owner} differ: memory {sorted(answered)[:4]}, topic {sorted(told)[:4]}, "
                    f"ClickHouse {sorted(stored)[:4]}"
                )
                break
            await asyncio.sleep(1.0)
            topic = await asyncio.to_thread(events_of, addresses, "facts")


async def _answered(client: Client, owner: str) -> set[tuple[str, str, int]]:
    reply = await client.read("facts", user_id=owner, role_id="lin", history=True, timeout_ms=20_000)
    return {(fact.memory_id, fact.status, len(fact.history or ())) for fact in reply.facts or ()}


def _told(owner: str, events: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    newest = {event["key"]: event for event in events if event["user_id"] == owner}
    return {
        (fact["memory_id"], fact["status"], len(fact["history"]))
        for event in newest.values()
        for fact in event["facts"]
    }


def _stored(addresses: Addresses, owner: str) -> set[tuple[str, str, int]]:
    clickhouse = ClickHouse(addresses.clickhouse, "mnemolog")
    try:
        query = f"SELECT memory_id, status, change_number + 1 FROM facts WHERE is_current AND user_id = '{owner}'"
        return {(row[0], row[1], row[2]) for row in clickhouse.rows(query)}
    finally:
        clickhouse.close()


def facts_in_clickhouse(addresses: Addresses) -> int:
    """Facts that ClickHouse has, whatever their status."""
    clickhouse = ClickHouse(addresses.clickhouse, "mnemolog")
    try:
        return int(clickhouse.rows("SELECT count() FROM facts WHERE is_current")[0][0])
    finally:
        clickhouse.close()
