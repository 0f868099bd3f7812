"""Judges a finished history from the bytes in the topics alone. Its own code: it shares nothing with the fold.

The only use of the project's code is in ``check_digests``, which asks whether a worker's state is what a fresh fold
of the journal gives.
"""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson

from schemas.codec import JOURNAL_EVENTS, LIBRARY_EVENTS, decode_event
from streams.core.conversation import JournalState
from streams.core.library import LibraryState
from tests.simulation.history import OWNERS, Asked, History, correlation_of, home
from tests.simulation.world import CLIENT_REPLIES, PREFIX, MemoryWorker

OwnerId = tuple[str, str]
CONTENT = ("session_id", "speaker", "text", "occurred_at", "name", "model", "recall_id", "captions", "metadata")


@dataclass(slots=True)
class Ledger:
    """What the journal says, counted by hand."""

    first: dict[tuple[OwnerId, str], dict[str, Any]] = field(default_factory=dict)
    """The first event of each turn id, with ``_offset`` and ``_partition``."""
    order: dict[OwnerId, list[str]] = field(default_factory=lambda: defaultdict(list))
    conflicts: dict[tuple[OwnerId, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Contents that came for an id which was taken, each once."""
    embedded: Counter[tuple[OwnerId, str]] = field(default_factory=Counter)
    recalls: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: set[tuple[str, str | None, tuple[str, ...]]] = field(default_factory=set)
    """Recall id, hash of messages and evidence ids of every recorded answer, second ones of stale workers included."""
    feedback: set[tuple[OwnerId, str]] = field(default_factory=set)


def ledger_of(history: History) -> Ledger:
    """Read the journal."""
    ledger = Ledger()
    for record in history.world.log.read_all(PREFIX + "journal"):
        event = orjson.loads(record.value or b"")
        owner = (event["user_id"], event["role_id"])
        assert record.partition == home(owner), f"{owner} in partition {record.partition}"
        event |= {"_offset": record.offset, "_partition": record.partition}
        if event["type"] == "TurnRecorded":
            key = (owner, event["turn_id"])
            known = ledger.first.get(key)
            if known is None:
                ledger.first[key] = event
                ledger.order[owner].append(event["turn_id"])
            elif _content(event) != _content(known) and _content(event) not in ledger.conflicts[key]:
                ledger.conflicts[key].append(_content(event))
        elif event["type"] == "TurnEmbedded":
            ledger.embedded[owner, event["turn_id"]] += 1
        elif event["type"] == "RecallAnswered":
            ledger.recalls.setdefault(event["recall_id"], event)
            ids = tuple(item["id"] for item in event["evidence"])
            ledger.given.add((event["recall_id"], event["messages_sha256"], ids))
        elif event["type"] == "FeedbackRecorded":
            ledger.feedback.add((owner, event["feedback_id"]))
    return ledger


def _content(turn: dict[str, Any]) -> bytes:
    return orjson.dumps({name: turn.get(name) or None for name in CONTENT}, option=orjson.OPT_SORT_KEYS)


def verify(history: History) -> None:
    """All checks; raises ``AssertionError`` with what is wrong."""
    assert not history.world.unexpected, f"a worker broke: {history.world.unexpected}"
    ledger = ledger_of(history)
    replies = replies_of(history)
    check_turns(history, ledger)
    check_effects(history, ledger)
    check_dead_letters(history, ledger)
    check_warehouse(history, ledger)
    check_replies(history, ledger, replies)
    check_isolation(history, replies)
    check_recallable(history, ledger, replies)
    check_digests(history)


def replies_of(history: History) -> dict[bytes, list[dict[str, Any]]]:
    """Replies by correlation id."""
    found: dict[bytes, list[dict[str, Any]]] = defaultdict(list)
    for topic in (PREFIX + "replies", CLIENT_REPLIES):
        for record in history.world.log.read_all(topic):
            reply = orjson.loads(record.value or b"") | {"_raw": record.value, "_topic": topic}
            found[correlation_of(record.headers) or b""].append(reply)
    return found


def check_turns(history: History, ledger: Ledger) -> None:
    """Every acknowledged post is in the journal, as the turn of its id or as a conflict, and nothing else is."""
    posted: dict[tuple[OwnerId, str], set[bytes]] = defaultdict(set)
    for post in history.known.turns:
        posted[(post["user_id"], post["role_id"]), post["turn_id"]].add(_content(post))
    journaled = {key: {_content(event), *ledger.conflicts.get(key, ())} for key, event in ledger.first.items()}
    assert journaled == dict(posted)
    for owner, ids in history.known.ordered.items():
        assert ledger.order[owner] == ids, f"order of {owner}"


def check_effects(history: History, ledger: Ledger) -> None:
    """Every effect is recorded at least once for its cause and counted once by every worker."""
    assert set(ledger.embedded) == set(ledger.first)
    posted = {((f["user_id"], f["role_id"]), f["feedback_id"]) for f in history.known.feedback}
    assert ledger.feedback == posted
    world = history.world
    for worker in world.memory.members:
        assert isinstance(worker, MemoryWorker)
        for partition, shard in worker.memory.shards.items():
            for owner, memory in shard.state.owners.items():
                turns = [turn_id for key, turn_id in ledger.first if key == owner]
                assert [view.turn_id for view in memory.views] == ledger.order[owner]
                newest = memory.experience.vectors.newest
                assert (newest.embedder, len(newest)) == (world.embedder.name, len(turns))
                mine = {i for i, e in ledger.recalls.items() if (e["user_id"], e["role_id"]) == owner}
                assert set(memory.recalls) == mine
                users = sum(ledger.first[owner, turn_id]["speaker"] == "user" for turn_id in turns)
                assert memory.rounds == users
                assert home(owner) == partition


def check_dead_letters(history: History, ledger: Ledger) -> None:
    """Nonsense is buried once by id, and so is each content that came for a taken turn id; nothing else is."""
    letters: dict[str, dict[str, Any]] = {}
    for record in history.world.log.read_all(PREFIX + "dead-letters"):
        letter = orjson.loads(record.value or b"")
        known = letters.setdefault(letter["dead_letter_id"], letter)
        assert known["source"] == letter["source"]
    conflicting: Counter[tuple[tuple[OwnerId, str], bytes]] = Counter()
    bad: Counter[tuple[str, int, int]] = Counter()
    for letter in letters.values():
        if letter["error"]["code"] == "conflicting_duplicate":
            turn = orjson.loads(base64.b64decode(letter["value_base64"]))
            conflicting[((turn["user_id"], turn["role_id"]), turn["turn_id"]), _content(turn)] += 1
        else:
            source = letter["source"]
            bad[source["topic"], source["partition"], source["offset"]] += 1
    wanted = Counter((key, content) for key, contents in ledger.conflicts.items() for content in contents)
    assert conflicting == wanted
    # A record that its producer wrote twice stands at two offsets, and both are bad.
    assert set(bad) >= set(history.known.nonsense)
    assert set(bad.values()) <= {1}
    sent = {history.world.log.read(t, p, o, 1)[0].value for t, p, o in history.known.nonsense}
    assert {history.world.log.read(t, p, o, 1)[0].value for t, p, o in bad} <= sent


def check_warehouse(history: History, ledger: Ledger) -> None:
    """The rows that readers see are the journal, each thing once and the first of it."""
    warehouse = history.world.warehouse
    turns = {((r["user_id"], r["role_id"]), r["turn_id"]): r for r in warehouse.rows("turns_rows")}
    assert len(turns) == len(warehouse.rows("turns_rows"))
    assert set(turns) == set(ledger.first)
    for key, row in turns.items():
        event = ledger.first[key]
        assert (row["text"], row["kafka_partition"], row["kafka_offset"], row["event_id"]) == (
            event["text"],
            event["_partition"],
            event["_offset"],
            event["event_id"],
        )
    recalls = {row["recall_id"]: row for row in warehouse.rows("recalls_rows")}
    assert {key: row["kafka_offset"] for key, row in recalls.items()} == {
        key: event["_offset"] for key, event in ledger.recalls.items()
    }
    evidence: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in warehouse.rows("recall_evidence_rows"):
        evidence[row["recall_id"]].append((row["mark"], row["score"]))
    for recall_id, event in ledger.recalls.items():
        wanted = sorted((item["mark"], item["score"]) for item in event["evidence"])
        assert sorted(evidence[recall_id]) == wanted
        assert recalls[recall_id]["evidence_count"] == len(wanted)
    letters = {
        orjson.loads(r.value or b"")["dead_letter_id"] for r in history.world.log.read_all(PREFIX + "dead-letters")
    }
    assert {row["dead_letter_id"] for row in warehouse.rows("dead_letters_rows")} == letters


def check_replies(history: History, ledger: Ledger, replies: dict[bytes, list[dict[str, Any]]]) -> None:
    """Every request that did not expire got a reply, on the topic that it named; patient ones got an answer."""
    for asked in [*history.known.asked, *history.known.final]:
        mine = replies.get(asked.correlation, [])
        patient = asked.deadline_ms > history.world.clock.now_ms()
        if patient:
            assert mine, f"no reply to {asked}"
        for reply in mine:
            assert reply["request_id"] == asked.body["request_id"]
            assert reply["status"] == "ok" or not patient, f"{reply['error']} to {asked}"
            if reply["status"] == "ok":
                _check_reply(asked, ledger, reply)


def _check_reply(asked: Asked, ledger: Ledger, reply: dict[str, Any]) -> None:
    partition = str(home(asked.owner))
    assert list(reply["watermark"]["journal"]) == [partition]
    for turn_id in asked.body.get("after", ()):
        seen = reply["watermark"]["journal"][partition] >= ledger.first[asked.owner, turn_id]["_offset"]
        assert seen, f"{turn_id} of `after` is not in {reply['watermark']}"
    for item in reply["evidence"]:
        position = item["position"]
        topic = position["topic"]
        assert position["offset"] <= reply["watermark"][topic][str(position["partition"])]
    ids = [item["id"] for item in reply["evidence"]]
    answer = (reply["recall_id"], reply["messages_sha256"], tuple(ids))
    assert answer in ledger.given, f"a reply that the journal does not hold: {answer}"
    assert len(ids) == len(set(ids)), f"evidence twice: {ids}"


def check_isolation(history: History, replies: dict[bytes, list[dict[str, Any]]]) -> None:
    """No reply holds a byte that only another owner's turns hold."""
    for asked in [*history.known.asked, *history.known.final]:
        for reply in replies.get(asked.correlation, ()):
            for owner in OWNERS:
                if owner != asked.owner:
                    marker = history.marker(owner).encode()
                    assert marker not in reply["_raw"], f"{asked.owner} saw {owner}: {reply}"
                    assert f"token{OWNERS.index(owner)}n".encode() not in reply["_raw"]
            for item in reply.get("evidence") or ():
                if item["path"] == "knowledge" and "for role-" in item["text"]:
                    named = item["text"].split("for role-")[1].split("\n")[0]
                    assert named in ("None", asked.owner[1]), f"{asked.owner} saw a document of role {named}"


def check_recallable(history: History, ledger: Ledger, replies: dict[bytes, list[dict[str, Any]]]) -> None:
    """The question for everything of an owner finds each of its turns exactly once, with the text that came first."""
    for asked in history.known.final:
        for reply in replies[asked.correlation]:
            found = Counter((i["turn_id"], i["text"]) for i in reply["evidence"] if i["path"] == "experience")
            wanted = Counter((e["turn_id"], e["text"]) for (o, _), e in ledger.first.items() if o == asked.owner)
            assert found == wanted, f"recall of {asked.owner}: {found - wanted} too much, {wanted - found} missing"


def check_digests(history: History) -> None:
    """A worker that lived through everything has the state of a fresh fold."""
    world = history.world
    library = LibraryState(world.embedder.name)
    for record in world.log.read(PREFIX + "library", 0):
        library.apply(record.offset, decode_event(record.value, LIBRARY_EVENTS))
    fresh: dict[int, str] = {}
    for worker in world.memory.members:
        assert isinstance(worker, MemoryWorker)
        assert worker.memory.library.digest() == library.digest()
        # Where all documents are gone there is nothing to be embedded anew: the next one brings the switch.
        assert not library._current or library.knowledge.uses.newest == world.embedder.name
        for partition, shard in worker.memory.shards.items():
            if partition not in fresh:
                state = JournalState(partition, world.embedder.name)
                for record in world.log.read(PREFIX + "journal", partition):
                    state.apply(record.offset, decode_event(record.value, JOURNAL_EVENTS))
                fresh[partition] = state.digest()
            assert shard.state.digest() == fresh[partition]
    assert len(fresh) > 0
