"""Malformed records of every kind on every public topic: each ends in dead letters (requests: as an error reply) with
its cause, and the stream goes on.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from schemas import headers
from tests import builders
from tests.streams.stage import Stage

MAKE: dict[str, Callable[..., dict[str, Any]]] = {
    "turns": builders.turn,
    "feedback": builders.feedback,
    "documents": builders.document,
    "personas": builders.persona,
    "requests": builders.request,
}
IDENTITY = {
    "turns": "turn_id",
    "feedback": "feedback_id",
    "documents": "document_id",
    "personas": "role_id",
    "requests": "request_id",
}
TIME = {
    "turns": "occurred_at",
    "feedback": "occurred_at",
    "documents": "published_at",
    "personas": "declared_at",
    "requests": "now",
}
TEXT = {"turns": "text", "feedback": "text", "documents": "text", "personas": "core", "requests": "query"}
FREE = {"turns": "metadata", "feedback": "value", "documents": "metadata", "personas": "a_new_field", "requests": "set"}

NOT_JSON: dict[str, bytes | None] = {
    "tombstone": None,
    "empty": b"",
    "no JSON": b"hello",
    "cut off": b'{"type": "turn", "turn_id": "t',
    "a list": b"[1, 2]",
    "a string": b'"turn"',
    "a number": b"12",
    "null": b"null",
    "NaN": b'{"a": NaN}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "broken UTF-8": b'{"a": "\xc3\x28"}',
    "a lone surrogate": b'{"a": "\\ud800"}',
    "a lone surrogate as a key": b'{"\\udfff": 1}',
    "10,000 lists deep": b"[" * 10_000 + b"]" * 10_000,
    "10,000 objects deep": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a number without an end": b'{"a": 1e999}',
    "a trailing comma": b'{"a": 1,}',
    "two objects": b"{}{}",
}

Change = Callable[[str], dict[str, Any]]
WRONG: dict[str, tuple[str, Change]] = {
    "missing id": ("invalid", lambda topic: {IDENTITY[topic]: ...}),
    "null id": ("invalid", lambda topic: {IDENTITY[topic]: None}),
    "empty id": ("invalid", lambda topic: {IDENTITY[topic]: ""}),
    "number as id": ("invalid", lambda topic: {IDENTITY[topic]: 7}),
    "list as id": ("invalid", lambda topic: {IDENTITY[topic]: ["t"]}),
    "newline in id": ("invalid", lambda topic: {IDENTITY[topic]: "a\nb"}),
    "newline after id": ("invalid", lambda topic: {IDENTITY[topic]: "a\n"}),
    "NUL in id": ("invalid", lambda topic: {IDENTITY[topic]: "a\x00b"}),
    "escape in id": ("invalid", lambda topic: {IDENTITY[topic]: "a\x1b[31m"}),
    "id of 201 characters": ("too_large", lambda topic: {IDENTITY[topic]: "x" * 201}),
    "id of 5 MB": ("too_large", lambda topic: {IDENTITY[topic]: "x" * 5_000_000}),
    "other type": ("wrong_type", lambda topic: {"type": "reply"}),
    "number as type": ("wrong_type", lambda topic: {"type": 1}),
    "list as type": ("wrong_type", lambda topic: {"type": []}),
    "null as type": ("wrong_type", lambda topic: {"type": None}),
    "version 2": ("unknown_version", lambda topic: {"version": 2}),
    "version 0": ("unknown_version", lambda topic: {"version": 0}),
    "version as text": ("unknown_version", lambda topic: {"version": "1"}),
    "version true": ("unknown_version", lambda topic: {"version": True}),
    "version null": ("unknown_version", lambda topic: {"version": None}),
    "5 MB of text": ("too_large", lambda topic: {TEXT[topic]: "长" * 5_000_000}),
    "number as text": ("invalid", lambda topic: {TEXT[topic]: 5}),
    "object as text": ("invalid", lambda topic: {TEXT[topic]: {"a": 1}}),
    "year 1": ("bad_time", lambda topic: {TIME[topic]: "0001-01-01T00:00:00Z"}),
    "year 9999": ("bad_time", lambda topic: {TIME[topic]: "9999-12-31T23:59:59Z"}),
    "no time zone": ("invalid", lambda topic: {TIME[topic]: "2026-05-20T19:03:11"}),
    "milliseconds as time": ("invalid", lambda topic: {TIME[topic]: 1_779_235_200_000}),
    "date only": ("invalid", lambda topic: {TIME[topic]: "2026-05-20"}),
    "30 February": ("bad_time", lambda topic: {TIME[topic]: "2026-02-30T00:00:00Z"}),
    "empty time": ("invalid", lambda topic: {TIME[topic]: ""}),
    "250 levels in a free field": ("invalid", lambda topic: {FREE[topic]: {"a": _nested(250)}}),
}
ONLY: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "turns": {
        "unknown speaker": ("invalid", {"speaker": "system"}),
        "speaker in capitals": ("invalid", {"speaker": "User"}),
        "empty text": ("invalid", {"text": ""}),
        "blank text": ("invalid", {"text": " \n\t\u3000"}),
        "NUL in text": ("invalid", {"text": "a\x00b"}),
        "missing user": ("invalid", {"user_id": ...}),
        "missing time": ("invalid", {"occurred_at": ...}),
        "text of captions": ("invalid", {"captions": "a bowl"}),
        "list as metadata": ("invalid", {"metadata": [1]}),
    },
    "feedback": {
        "unknown kind": ("invalid", {"kind": "like"}),
        "two targets": ("invalid", {"target": {"turn_id": "t", "recall_id": "r"}}),
        "no target in target": ("invalid", {"target": {}}),
        "text as target": ("invalid", {"target": "t-0"}),
    },
    "documents": {
        "no text": ("invalid", {"text": ...}),
        "blank text": ("invalid", {"text": "  "}),
        "text as deleted": ("invalid", {"deleted": "yes"}),
        "NUL in title": ("invalid", {"title": "a\x00"}),
    },
    "personas": {
        "blank name": ("invalid", {"name": " "}),
        "empty core": ("invalid", {"core": ""}),
        "text as boundaries": ("invalid", {"boundaries": "none"}),
        "empty boundary": ("invalid", {"boundaries": [""]}),
    },
    "requests": {
        "unknown kind": ("invalid", {"kind": "guess"}),
        "two coordinates": ("invalid", {"as_of": {"offset": 1, "round": 1}}),
        "no coordinate": ("invalid", {"as_of": {}}),
        "offset as text": ("invalid", {"as_of": {"offset": "1"}}),
        "201 pieces": ("invalid", {"limits": {"experience": 201}}),
        "fewer than none": ("invalid", {"limits": {"experience": -1}}),
        "unknown setting": ("invalid", {"set": {"experience.colour": 1}}),
        "setting out of range": ("invalid", {"set": {"experience.floor": 2}}),
        "setting of a wrong type": ("invalid", {"set": {"experience.floor": "x"}}),
        "text as after": ("invalid", {"after": "t-0"}),
        "as of a turn that nobody has": ("invalid", {"as_of": {"turn_id": "nobody's"}}),
    },
}


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _cases() -> list[Any]:
    found = []
    for topic, make in MAKE.items():
        for name, value in NOT_JSON.items():
            found.append(pytest.param(topic, value, "not_json", id=f"{topic}-{name}"))
        changes = {name: (code, change(topic)) for name, (code, change) in WRONG.items()} | ONLY[topic]
        for name, (code, change) in changes.items():
            raw = {key: item for key, item in (make(0) | change).items() if item is not ...}
            found.append(pytest.param(topic, orjson.dumps(raw), code, id=f"{topic}-{name}"))
    return found


CASES = _cases()


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("intake", "requests"):
        monkeypatch.setattr(f"streams.{module}.log.info", lambda *_, **__: None, raising=False)


@pytest.mark.parametrize(("topic", "value", "code"), [case for case in CASES if case.values[0] != "requests"])
async def test_bad_record_is_buried_whole_with_its_cause(topic: str, value: bytes | None, code: str) -> None:
    stage = Stage()
    given = {"key": b"\x00k", "headers": (("trace", b"\xff"), ("none", None))}
    record = await stage.post(topic, value, **given)
    (letter,) = stage.letters()
    assert letter["error"]["code"] == code, letter["error"]
    assert 0 < len(letter["error"]["message"]) <= 2200
    assert letter["source"] == {
        "topic": record.topic,
        "partition": 0,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    carried = letter["value_base64"]
    assert (None if carried is None else base64.b64decode(carried)) == (None if len(value or b"") > 11 << 20 else value)
    if carried is not None:
        assert base64.b64decode(letter["key_base64"]) == b"\x00k"
        assert letter["headers"] == {"trace": "/w==", "none": None}
    await stage.post(topic, MAKE[topic](1))
    assert len(stage.letters()) == 1, "the stream goes on"
    assert len(stage.events("journal") + stage.events("library")) == 1


@pytest.mark.parametrize(("topic", "value", "code"), [case for case in CASES if case.values[0] == "requests"])
async def test_bad_request_is_told_to_who_asked(topic: str, value: bytes | None, code: str) -> None:
    stage = Stage()
    reply = await stage.ask(value, partition=stage.home())
    too_large = code == "too_large" or len(value or b"") > 4 << 20
    assert reply["error"]["code"] == ("too_large" if too_large else "bad_request"), reply["error"]
    assert 0 < len(reply["error"]["message"]) <= 2000
    assert reply["messages"] is None
    assert stage.letters() == []
    reply = await stage.ask(builders.request(1))
    assert (reply["status"], reply["request_id"]) == ("ok", "q-1")


@pytest.mark.parametrize("topic", list(MAKE))
@pytest.mark.parametrize(
    "identity",
    ["a/b", "a:b", " ", "..", "%2F", "ａ", "é", "'; DROP TABLE turns", "林", "👍" * 50, "x" * 200, "\u202eabc"],
)
async def test_unusual_ids_are_accepted(topic: str, identity: str) -> None:
    stage = Stage()
    raw = MAKE[topic](0, **{IDENTITY[topic]: identity})
    if topic == "requests":
        reply = await stage.ask(raw)
        assert (reply["status"], reply["request_id"]) == ("ok", identity)
    else:
        await stage.post(topic, raw)
        assert stage.letters() == []


@pytest.mark.parametrize("topic", list(MAKE))
async def test_fields_of_the_future_are_ignored(topic: str) -> None:
    stage = Stage()
    raw = MAKE[topic](0, mood={"a": [1, None]}, **{"": 1})
    if topic == "requests":
        assert (await stage.ask(raw))["status"] == "ok"
    else:
        await stage.post(topic, raw)
        assert stage.letters() == []


async def test_same_content_again_is_dropped_silently_and_other_content_is_buried_once() -> None:
    stage = Stage()
    for text in ("one", "one", "two", "two", "one", "three"):
        await stage.post("turns", builders.turn(0, text=text))
    await stage.embed_all()
    assert [letter["error"]["code"] for letter in stage.letters()] == ["conflicting_duplicate"] * 2
    carried = [orjson.loads(base64.b64decode(letter["value_base64"]))["text"] for letter in stage.letters()]
    assert carried == ["two", "three"]
    reply = await stage.ask(builders.request(query="one two three"))
    assert [item["text"] for item in reply["evidence"]] == ["one"]


@pytest.mark.parametrize(
    ("name", "value", "code", "told"),
    [
        (headers.REPLY_TOPIC, b"no-such-topic", "bad_header", False),
        (headers.REPLY_TOPIC, b"\xff\xfe", "bad_header", False),
        (headers.REPLY_TOPIC, b"mnemolog.replies\x00", "bad_header", False),
        (headers.REPLY_PARTITION, b"\x00\x00\x00\x63", "bad_header", False),
        (headers.REPLY_PARTITION, b"\xff\xff\xff\xff", "bad_header", False),
        (headers.REPLY_PARTITION, b"1", "bad_request", True),
        (headers.REPLY_PARTITION, b"", "bad_request", True),
        (headers.REPLY_PARTITION, b"\x00" * 8, "bad_request", True),
        (headers.DEADLINE, b"soon", "bad_request", True),
        (headers.DEADLINE, b"-1", "bad_request", True),
        (headers.DEADLINE, b"1e15", "bad_request", True),
        (headers.DEADLINE, b"", "bad_request", True),
        (headers.DEADLINE, b"9" * 16, "bad_request", True),
        (headers.DEADLINE, "１２".encode(), "bad_request", True),
    ],
)
async def test_bad_header_is_told_where_it_can_be(name: str, value: bytes, code: str, told: bool) -> None:
    stage = Stage()
    record = stage.request(builders.request(), headers=(*builders.request_headers(), (name, value)))
    await stage.responder.serve(record)
    if told:
        (reply,) = stage.replies()
        assert (reply["error"]["code"], reply["request_id"]) == (code, "q-0")
        assert stage.letters() == []
    else:
        (letter,) = stage.letters()
        assert letter["error"]["code"] == code
        assert stage.replies() == []
    assert (await stage.ask(builders.request(1), headers=builders.request_headers(correlation=b"c-1")))[
        "status"
    ] == "ok"


async def test_bad_request_with_an_unknown_reply_topic_goes_to_dead_letters() -> None:
    stage = Stage()
    for value in (b"not json", orjson.dumps(builders.request(preset="nonsense"))):
        given = builders.request_headers(topic="nowhere")
        await stage.responder.serve(stage.request(value, partition=stage.home(), headers=given))
    assert [letter["error"]["code"] for letter in stage.letters()] == ["bad_header", "bad_header"]


async def test_unknown_preset_lists_the_known_ones() -> None:
    stage = Stage()
    reply = await stage.ask(builders.request(preset="nonsense"))
    assert reply["error"]["code"] == "unknown_preset"
    assert "balanced" in reply["error"]["message"]


async def test_document_that_the_embedder_refuses_is_buried_and_the_next_is_learnt() -> None:
    stage = Stage()
    stage.embedder.refuses = lambda text: "unspeakable" in text
    await stage.post("documents", builders.document(0, text="unspeakable"))
    await stage.post("documents", builders.document(0, text="fine"))
    assert [letter["error"]["code"] for letter in stage.letters()] == ["not_embeddable"]
    assert [event["type"] for event in stage.events("library")] == ["DocumentChunked"]


async def test_bytes_are_carried_unchanged() -> None:
    stage = Stage()
    value = bytes(range(256)) * 4
    await stage.post("turns", value)
    assert base64.b64decode(stage.letters()[0]["value_base64"]) == value
