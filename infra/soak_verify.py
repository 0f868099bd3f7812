"""The independent verifier of a soak: reads the logs, ClickHouse and replies with code of its own, not the fold.

What must hold: every acknowledged turn is in the journal under one content and recallable exactly once; every effect
counts once; ClickHouse has the rows of the journal; every conflicting post is a dead letter.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from connectors.clickhouse import ClickHouse
from connectors.client import Client
from connectors.errors import MnemologError
from infra.soak_memory import (
    covered_turns,
    events_of,
    facts_in_clickhouse,
    recorded_turns,
    unembedded_turns,
    verify_facts,
)
from infra.stack_options import Addresses

RECALLS_AT_ONCE = 4
RECALLS_MAX = 400
WAREHOUSE_S_MAX = 60.0
EFFECTS_S_MAX = 240.0
"""An embedder that was slowed and killed for 15 minutes has a backlog of hundreds of turns, at 10 to 20 a second."""


@dataclass(slots=True)
class Posted:
    """What the broker acknowledged."""

    turns: dict[tuple[str, str], str] = field(default_factory=dict)
    conflicts: set[tuple[str, str]] = field(default_factory=set)
    feedback: set[str] = field(default_factory=set)
    documents: dict[str, str] = field(default_factory=dict)
    """A word of the newest acknowledged revision, by document."""


@dataclass(slots=True)
class Verdict:
    """Counts, and what is wrong."""

    turns_acknowledged: int = 0
    turns_in_journal: int = 0
    turns_appended: int = 0
    """With repeats, which the fold drops."""
    embedded: int = 0
    embeddings_appended: int = 0
    feedback: int = 0
    recalled: int = 0
    dead_letters: int = 0
    clickhouse_turns: int = 0
    segments: int = 0
    extractions_appended: int = 0
    """With repeats, which the fold drops."""
    facts: int = 0
    problems: list[str] = field(default_factory=list)


async def verify(addresses: Addresses, client: Client, posted: Posted) -> Verdict:
    """Check everything; see the module."""
    verdict = Verdict(turns_acknowledged=len(posted.turns))
    first = await _recall_all(client, posted, verdict)
    events = await asyncio.to_thread(_extracted_events, addresses)
    letters = await asyncio.to_thread(events_of, addresses, "dead-letters")
    _journal(events, posted, verdict)
    _letters(letters, posted, verdict)
    await _documents(client, posted, verdict)
    await asyncio.to_thread(_warehouse, addresses, first, verdict)
    _segments(events, verdict)
    owners = sorted({owner for owner, _ in posted.turns})
    await verify_facts(addresses, client, owners, events_of(addresses, "facts"), verdict.problems)
    verdict.facts = await asyncio.to_thread(facts_in_clickhouse, addresses)
    return verdict


def _extracted_events(addresses: Addresses) -> list[dict[str, Any]]:
    """The journal, once every turn of it is extracted and embedded, or the time for that is over."""
    until = time.monotonic() + EFFECTS_S_MAX
    while True:
        events = events_of(addresses, "journal")
        done = covered_turns(events) == recorded_turns(events) and not unembedded_turns(events)
        if done or time.monotonic() > until:
            return events
        time.sleep(1.0)


def _segments(events: list[dict[str, Any]], verdict: Verdict) -> None:
    appended = [event for event in events if event["type"] == "MemoriesExtracted"]
    verdict.extractions_appended = len(appended)
    verdict.segments = len({event["segment_id"] for event in appended})
    covered, recorded = covered_turns(events), recorded_turns(events)
    for session in sorted(recorded.keys() | covered.keys()):
        if recorded.get(session, 0) != covered.get(session, 0):
            verdict.problems.append(
                f"session {session}: {recorded.get(session, 0)} turns are recorded, {covered.get(session, 0)} extracted"
            )


def _journal(events: list[dict[str, Any]], posted: Posted, verdict: Verdict) -> None:
    contents: dict[tuple[str, str], list[str]] = defaultdict(list)
    embedded: Counter[tuple[str, str]] = Counter()
    causes: dict[tuple[str, str], set[str]] = defaultdict(set)
    feedback = set()
    for event in events:
        key = (event.get("user_id", ""), event.get("turn_id", ""))
        match event["type"]:
            case "TurnRecorded":
                verdict.turns_appended += 1
                if event["text"] not in contents[key]:
                    contents[key].append(event["text"])
            case "TurnEmbedded":
                embedded[key] += 1
                causes[key].add(event["event_id"])
            case "FeedbackRecorded":
                feedback.add(event["feedback_id"])
    verdict.turns_in_journal = len(contents)
    verdict.embedded = len(embedded)
    verdict.embeddings_appended = sum(embedded.values())
    verdict.feedback = len(feedback)
    for key, text in posted.turns.items():
        if not contents.get(key):
            verdict.problems.append(f"lost: turn {key} was acknowledged and is not in the journal")
        elif contents[key][0] != text:
            verdict.problems.append(f"turn {key} holds {contents[key][0]!r}, expected {text!r}")
        elif len(contents[key]) > 1 and key not in posted.conflicts:
            verdict.problems.append(f"turn {key} has {len(contents[key])} contents")
    for key, ids in causes.items():
        if len(ids) != 1:
            verdict.problems.append(f"turn {key} has {len(ids)} different embeddings")
    missing = [key for key in contents if not embedded[key]]
    if missing:
        verdict.problems.append(f"{len(missing)} turns were never embedded, e.g. {missing[0]}")
    lost = posted.feedback - feedback
    if lost:
        verdict.problems.append(f"lost: {len(lost)} feedbacks, e.g. {min(lost)}")


def _letters(letters: list[dict[str, Any]], posted: Posted, verdict: Verdict) -> None:
    ids = {letter["dead_letter_id"] for letter in letters}
    verdict.dead_letters = len(ids)
    if {letter["error"]["code"] for letter in letters} - {"conflicting_duplicate"}:
        verdict.problems.append(f"unexpected dead letters: {Counter(letter['error']['code'] for letter in letters)}")
    if len(ids) < len(posted.conflicts):
        verdict.problems.append(f"{len(posted.conflicts)} conflicting posts, {len(ids)} dead letters")


async def _recall_all(client: Client, posted: Posted, verdict: Verdict) -> int:
    turns = list(posted.turns.items())
    step = max(1, len(turns) // RECALLS_MAX)
    slots = asyncio.Semaphore(RECALLS_AT_ONCE)

    async def one(owner: str, turn_id: str, text: str) -> None:
        async with slots:
            try:
                # Presence is asked for, not rank: without decay and corrections, which favour newer look-alikes.
                # A query that equals the newest turn is taken for that turn itself, so it is worded as a question.
                reply = await client.recall(
                    f"when was this said: {text}",
                    user_id=owner,
                    role_id="lin",
                    after=[turn_id],
                    now="2026-11-01T00:00:00Z",
                    preset="no_temporal",
                    limits={"experience": 100, "knowledge": 0},
                    timeout_ms=60_000,
                )
            except MnemologError as error:
                verdict.problems.append(f"turn {turn_id} of {owner}: {error}")
                return
        found = [item.turn_id for item in reply.evidence or () if item.path == "experience"]
        if found.count(turn_id) != 1:
            verdict.problems.append(f"turn {turn_id} of {owner} was recalled {found.count(turn_id)} times")
        verdict.recalled += 1

    await asyncio.gather(*(one(owner, turn_id, text) for (owner, turn_id), text in turns[::step]))
    return len(turns)


async def _documents(client: Client, posted: Posted, verdict: Verdict) -> None:
    for document_id, word in posted.documents.items():
        reply = await client.recall(
            f"{document_id} speaks of {word}",
            user_id="nobody",
            role_id="lin",
            limits={"knowledge": 20},
            timeout_ms=20_000,
        )
        texts = [item.text for item in reply.evidence or () if item.document_id == document_id]
        if not texts or any(word not in text for text in texts):
            verdict.problems.append(
                f"document {document_id}: expected its newest revision with {word}, got {texts[:1]}"
            )


def _warehouse(addresses: Addresses, turns: int, verdict: Verdict) -> None:
    clickhouse = ClickHouse(addresses.clickhouse, "mnemolog")
    until = time.monotonic() + WAREHOUSE_S_MAX
    try:
        while True:
            verdict.clickhouse_turns = clickhouse.rows("SELECT count() FROM turns")[0][0]
            distinct = clickhouse.rows("SELECT uniqExact(user_id, role_id, turn_id) FROM turns")[0][0]
            if verdict.clickhouse_turns == verdict.turns_in_journal or time.monotonic() > until:
                break
            time.sleep(0.5)
        if verdict.clickhouse_turns != verdict.turns_in_journal or distinct != verdict.clickhouse_turns:
            verdict.problems.append(
                f"ClickHouse has {verdict.clickhouse_turns} turns ({distinct} distinct), the journal has "
                f"{verdict.turns_in_journal}; {turns} were acknowledged"
            )
    finally:
        clickhouse.close()
