"""A stranger's client: nothing of ours but the contract page, confluent-kafka, JSON, and the default partitioner."""

from __future__ import annotations

import json
import struct
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.integration


def _turn(turn_id: str, user: str, speaker: str, text: str, at: str) -> bytes:
    return json.dumps(
        {
            "type": "turn",
            "version": 1,
            "turn_id": turn_id,
            "user_id": user,
            "role_id": "lin",
            "session_id": "s7",
            "speaker": speaker,
            "text": text,
            "occurred_at": at,
        },
        ensure_ascii=False,
    ).encode()


class PlainClient:
    def __init__(self, kafka: str, prefix: str) -> None:
        self.prefix = prefix
        self.producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
        self.consumer = Consumer({"bootstrap.servers": kafka, "group.id": str(uuid.uuid4()), "fetch.wait.max.ms": 20})
        count = len(self.consumer.list_topics().topics[prefix + "replies"].partitions)
        self.consumer.assign([TopicPartition(prefix + "replies", p, 0) for p in range(count)])

    def post(self, topic: str, value: bytes, **options: Any) -> None:
        self.producer.produce(self.prefix + topic, value, **options)
        assert self.producer.flush(20) == 0

    def request(
        self, body: dict[str, Any], *, partition: int | None = None, headers: list[tuple[str, bytes]] | None = None
    ) -> dict[str, Any]:
        correlation = uuid.uuid4().bytes
        options = {} if partition is None else {"partition": partition}
        self.post(
            "requests",
            json.dumps(body).encode(),
            headers=[("kafka_correlationId", correlation), *(headers or [])],
            **options,
        )
        return self.reply(correlation)

    def reply(self, correlation: bytes, seconds: float = 40) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self.consumer.poll(0.2)
            if message is None or message.error():
                continue
            if dict(message.headers() or []).get("kafka_correlationId") == correlation:
                return json.loads(message.value())
        raise AssertionError("no reply")

    def close(self) -> None:
        self.consumer.close()


@pytest.fixture
def client(stack):
    made = PlainClient(stack.addresses.kafka, stack.addresses.prefix)
    yield made
    made.close()


def _body(user: str, query: str, **more: Any) -> dict[str, Any]:
    body = {"type": "request", "version": 1, "request_id": str(uuid.uuid4()), "kind": "assemble"}
    return {**body, "user_id": user, "role_id": "lin", "query": query, "now": "2026-05-21T08:00:00+08:00", **more}


def test_a_turn_posted_from_json_alone_is_evidence_in_the_reply(client):
    user = f"u-{uuid.uuid4()}"
    client.post("turns", _turn("t-1", user, "user", "昨天吃了馄饨", "2026-05-20T19:03:11.250+08:00"))
    client.post("turns", _turn("t-2", user, "assistant", "馄饨是虾仁的吗？", "2026-05-20T19:03:20+08:00"))
    reply = client.request(_body(user, "我昨天吃了什么？", after=["t-1", "t-2"]))
    assert reply["status"] == "ok", reply
    first = reply["evidence"][0]
    assert first["turn_id"] == "t-1"
    assert (first["path"], first["speaker"], first["source"], first["rounds_ago"]) == ("experience", "user", "s7", 1)
    assert first["position"]["topic"] == "journal"
    assert reply["round"] == 2
    assert reply["messages"][0]["role"] == "system"
    assert "昨天吃了馄饨" in "".join(message["content"] for message in reply["messages"])
    assert len(reply["messages_sha256"]) == 64
    assert set(reply["timings_ms"]) == {"wait", "embed", "search", "prompt", "total"}


def test_a_misrouted_request_is_forwarded_not_refused(client):
    user = f"u-{uuid.uuid4()}"
    client.post("turns", _turn("t-1", user, "user", "The spare key is with Mrs Zhou.", "2026-05-20T10:00:00Z"))
    for partition in range(4):
        reply = client.request(_body(user, "spare key", after=["t-1"]), partition=partition)
        assert [item["turn_id"] for item in reply["evidence"]] == ["t-1"], reply


def test_replies_go_to_the_partition_that_spring_asks_for(client):
    correlation = uuid.uuid4().bytes
    body = _body(f"u-{uuid.uuid4()}", "anything")
    headers = [
        ("kafka_replyTopic", (client.prefix + "replies").encode()),
        ("kafka_replyPartition", struct.pack(">i", 3)),
        ("kafka_correlationId", correlation),
    ]
    client.post("requests", json.dumps(body).encode(), headers=headers)
    until = time.monotonic() + 40
    while time.monotonic() < until:
        message = client.consumer.poll(0.2)
        if message and not message.error() and dict(message.headers() or []).get("kafka_correlationId") == correlation:
            assert message.partition() == 3
            return
    raise AssertionError("no reply")


def test_a_bad_request_gets_an_error_reply_with_its_id(client):
    reply = client.request({**_body("u", "q"), "kind": "guess"})
    assert reply["status"] == "error"
    assert reply["error"]["code"] == "bad_request"
    assert "kind" in reply["error"]["message"]
    assert reply["request_id"]


def test_an_unknown_preset_is_named_with_those_that_exist(client):
    reply = client.request(_body("u", "q", preset="psychic"))
    assert reply["error"]["code"] == "unknown_preset"
    assert "balanced" in reply["error"]["message"]


def test_an_expired_request_is_dropped(client):
    past = str(int(time.time() * 1000) - 5000).encode()
    correlation = uuid.uuid4().bytes
    client.post(
        "requests",
        json.dumps(_body("u", "q")).encode(),
        headers=[("kafka_correlationId", correlation), ("mnemolog_deadline", past)],
    )
    with pytest.raises(AssertionError, match="no reply"):
        client.reply(correlation, seconds=3)


def test_waiting_for_a_turn_that_never_comes_ends_at_the_deadline(client):
    soon = str(int(time.time() * 1000) + 1500).encode()
    body = _body(f"u-{uuid.uuid4()}", "q", after=["t-missing"])
    reply = client.request(body, headers=[("mnemolog_deadline", soon)])
    assert reply["error"]["code"] == "turn_not_seen"
    assert reply["error"]["details"]["missing"] == ["t-missing"]
