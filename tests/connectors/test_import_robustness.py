"""Whatever is done to an export: it is read, in part or refused with `UnreadableExport`; nothing else ever leaves."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from connectors.imports import UnreadableExport, read_export

AT = "2026-01-01T10:00:00Z"
JUNK: list[Any] = [
    None,
    0,
    -1,
    1e308,
    float("nan"),
    True,
    "",
    "x",
    "\ud800\x00",
    [],
    {},
    [None],
    {"a": []},
    "y" * 300,
    10**30,
]


def _message(key: str, role: str, parent: str | None, children: list[str]) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [f"words of {key}"]}
    message = {"id": key, "author": {"role": role}, "create_time": 1773190800.0, "content": content, "metadata": {}}
    return {"id": key, "message": message, "parent": parent, "children": children}


WHOLE: dict[str, Any] = {
    "chatgpt": [
        {
            "conversation_id": "c1", "title": "T", "create_time": 1773190800.0, "current_node": "b",
            "mapping": {"a": _message("a", "user", None, ["b"]), "b": _message("b", "assistant", "a", [])},
        }
    ],
    "claude": [
        {
            "uuid": "c1", "created_at": AT,
            "chat_messages": [
                {"uuid": "m1", "sender": "human", "text": "Hi", "created_at": AT, "parent_message_uuid": "m0"},
                {"uuid": "m2", "sender": "assistant", "content": [{"type": "text", "text": "Yes"}], "created_at": AT},
            ],
        }
    ],
    "openai": [
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]},
            ]
        }
    ],
    "locomo": [
        {
            "sample_id": "1",
            "conversation": {
                "speaker_a": "A", "speaker_b": "B", "session_1_date_time": "1:56 pm on 8 May, 2023",
                "session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "Hi", "blip_caption": "a dog"}],
            },
        }
    ],
    "jsonl": [
        {"session_id": "s", "speaker": "user", "text": "Hi", "occurred_at": AT, "captions": ["c"], "metadata": {"a": 1}}
    ],
    "lobechat": {
        "exportType": "sessions",
        "state": {"messages": [{"id": "m", "role": "user", "content": "Hi", "createdAt": 1773190800000}]},
    },
    "llamaindex": {"store": {"k": [{"role": "user", "content": "Hi", "blocks": []}]}, "class_name": "SimpleChatStore"},
    "openwebui": [
        {
            "id": "c", "title": "t",
            "chat": {
                "history": {
                    "currentId": "2",
                    "messages": {
                        "1": {"id": "1", "parentId": None, "role": "user", "content": "Hi", "timestamp": 1773190800},
                        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": "Yes", "childrenIds": []},
                    },
                }
            },
        }
    ],
    "librechat": {
        "conversationId": "c", "title": "t",
        "messages": [
            {"messageId": "1", "parentMessageId": "0", "isCreatedByUser": True, "text": "Hi", "createdAt": AT},
            {"messageId": "2", "parentMessageId": "1", "isCreatedByUser": False, "text": "Yes", "children": []},
        ],
    },
    "telegram": {
        "name": "Bo", "type": "personal_chat", "id": 5,
        "messages": [
            {"id": 1, "type": "message", "date_unixtime": "1773190800", "from": "Al", "from_id": "user9", "text": "Hi"},
            {
                "id": 2, "type": "message", "date": "2026-03-12T10:00:01", "from": "Bo", "from_id": "user5",
                "text": ["Yes ", {"type": "bold", "text": "now"}],
            },
        ],
    },
}  # fmt: skip
LINES: dict[str, list[Any]] = {
    "sillytavern": [
        {"user_name": "Al", "character_name": "Bo", "create_date": "2026-1-1", "chat_metadata": {}},
        {"name": "Al", "is_user": True, "is_system": False, "send_date": "January 1, 2026 10:00am", "mes": "Hi"},
        {"name": "Bo", "is_user": False, "is_system": False, "send_date": "January 1, 2026 10:01am", "mes": "Yes"},
        {"name": "Bo", "is_user": False, "is_system": True, "send_date": "January 1, 2026 10:02am", "mes": "hidden"},
    ],
    "claude-code": [
        {"type": "summary", "summary": "s", "leafUuid": "x"},
        {"type": "user", "sessionId": "s", "uuid": "1", "timestamp": AT, "message": {"role": "user", "content": "Hi"}},
        {
            "type": "assistant", "sessionId": "s", "uuid": "2", "timestamp": AT,
            "message": {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "Yes"}]},
        },
        {
            "type": "user", "sessionId": "s", "uuid": "3", "timestamp": AT,
            "message": {"role": "user", "content": [{"type": "tool_result", "content": "hidden"}]},
        },
    ],
}  # fmt: skip
CSV = (
    'session_id,speaker,text,occurred_at\r\ns,user,"Hi, ""you""",2026-01-01T10:00:00Z\r\n'
    "s,assistant,Yes,2026-01-01 10:01\r\n"
)


def _texts() -> dict[str, str]:
    texts = {name: json.dumps(value) for name, value in WHOLE.items()}
    return texts | {name: "\n".join(map(json.dumps, lines)) for name, lines in LINES.items()} | {"csv": CSV}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    copy = json.loads(json.dumps(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = junk
    return copy


def _check(path: Path) -> None:
    with suppress(UnreadableExport):
        read = read_export(path)
        assert read.turns or read.skipped or read.bad
        times = [datetime.fromisoformat(turn.occurred_at) for turn in read.turns]
        assert times == sorted(times)
        ids = [turn.turn_id for turn in read.turns]
        assert len(set(ids)) == len(ids)
        for turn in read.turns:
            assert 0 < len(turn.turn_id) <= 200
            assert 0 < len(turn.session_id) <= 200
            assert turn.text.strip()
            json.dumps([turn.turn_id, turn.session_id, turn.text, turn.name, turn.model, turn.captions, turn.metadata],
                       ensure_ascii=False).encode("utf-8")  # fmt: skip


@pytest.mark.parametrize("name", [*WHOLE, *LINES, "csv"])
def test_format_is_told_by_content_alone(name: str, tmp_path: Path) -> None:
    path = tmp_path / "misleading.csv.png"
    path.write_text(_texts()[name], encoding="utf-8")
    read = read_export(path)
    assert read.format == name
    assert read.turns
    assert not read.bad
    assert [turn.speaker for turn in read.turns][:2] == ["user", "assistant"][: len(read.turns)]
    assert "hidden" not in {turn.text for turn in read.turns}
    assert read == read_export(path, name)


@pytest.mark.parametrize("name", [*WHOLE, *LINES])
def test_any_junk_in_any_place_is_survived(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    value = WHOLE.get(name) or LINES[name]
    for place in _places(value):
        for junk in JUNK:
            broken = _replaced(value, place, junk)
            text = "\n".join(map(json.dumps, broken)) if name in LINES else json.dumps(broken)
            path.write_text(text, encoding="utf-8")
            _check(path)


@pytest.mark.parametrize("name", [*WHOLE, *LINES, "csv"])
def test_cut_and_flipped_bytes_are_survived(name: str, tmp_path: Path) -> None:
    random_ = random.Random(name)
    data = _texts()[name].encode()
    path = tmp_path / "x"
    for cut in range(0, len(data), max(1, len(data) // 25)):
        path.write_bytes(data[:cut])
        _check(path)
    for _ in range(50):
        flipped = bytearray(data)
        for _ in range(random_.randint(1, 4)):
            flipped[random_.randrange(len(flipped))] = random_.choice(b'\x00\xff",{}[]:\n\r\\\xe4;a1')
        path.write_bytes(bytes(flipped))
        _check(path)


@pytest.mark.parametrize("name", [*WHOLE, *LINES, "csv"])
def test_encodings_and_compression_change_nothing(name: str, tmp_path: Path) -> None:
    path, text = tmp_path / "x", _texts()[name]
    path.write_text(text, encoding="utf-8", newline="")
    plain = read_export(path)
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        path.write_bytes(text.encode(encoding))
        assert read_export(path) == plain, encoding
    path.write_bytes(gzip.compress(text.encode("utf-8-sig")))
    assert read_export(path) == plain
