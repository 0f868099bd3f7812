"""Turns that stand each in a row of its own: the columns' names as people have them, for JSON lines and CSV alike.

Invariant: rows stay apart; a row whose speaker or time cannot be understood is a fault with its line, the rest goes on.
Whether 3/4/2026 begins with the day is told from all rows together, or the row is refused. A row's own user_id and
role_id are never read: the owner is whom the import is for.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from connectors.imports.building import Collector, Draft, clean, clean_id, clean_json, digest, filled_times
from connectors.imports.messages import kind_of, role_of, text_of
from connectors.imports.model import Speaker
from connectors.imports.times import date_order, parse_time

# Field -> names of its column, best first, written as `column_name` makes them.
NAMES: dict[str, tuple[str, ...]] = {
    "turn_id": ("turn_id", "message_id", "msg_id", "uuid", "id", "消息id"),
    "session_id": (
        "session_id", "session", "conversation_id", "conversation", "thread_id", "chat_id", "dialogue_id", "talker_id",
        "会话id", "会话", "会话编号", "对话id", "对话", "对话编号",
    ),
    "speaker": (
        "speaker", "role", "sender", "sender_type", "from", "author", "author_role", "speaker_role", "is_sender",
        "角色", "说话人", "发言人", "发送者", "发送人", "发言者", "身份",
    ),
    "text": (
        "text", "content", "message", "body", "msg", "utterance", "str_content", "message_text", "message_content",
        "内容", "消息", "文本", "消息内容", "正文", "发言", "聊天内容",
    ),
    "occurred_at": (
        "occurred_at", "timestamp", "datetime", "date_time", "created_at", "create_time", "sent_at", "time", "date",
        "ts", "created", "str_time", "send_time", "message_time",
        "时间", "发生时间", "发送时间", "创建时间", "日期时间", "消息时间", "时间戳", "日期",
    ),
    "name": ("name", "user_name", "display_name", "nick_name", "nickname", "姓名", "名字", "昵称"),
    "model": ("model", "model_name", "model_slug", "模型"),
    "captions": ("captions", "caption", "blip_caption", "图片说明"),
    "metadata": ("metadata",),
}  # fmt: skip
_FIELD_OF = {name: (field, rank) for field, names in NAMES.items() for rank, name in enumerate(names)}
_DATES = {"date", "日期"}
_CLOCKS = {"time", "时间"}


@lru_cache(maxsize=4096)  # the same few names in every row
def column_name(key: str) -> str:
    """Return a column's name in the spelling of `NAMES`.

    Examples
    --------
    >>> column_name("\\ufeffSession ID "), column_name("createdAt"), column_name("StrContent")
    ('session_id', 'created_at', 'str_content')
    """
    text = unicodedata.normalize("NFKC", key).replace("\ufeff", "").strip().strip("\"'")
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return re.sub(r"[\s\-.]+", "_", text).lower()


def fields_of(keys: Iterable[str]) -> dict[str, list[str]]:
    """Map fields to the keys that may hold them, best first.

    Examples
    --------
    >>> fields_of(["Role", "message", "content", "x"])
    {'speaker': ['Role'], 'text': ['content', 'message']}
    """
    ranked: dict[str, list[tuple[int, str]]] = {}
    for key in keys:
        found = _FIELD_OF.get(column_name(key))
        if found is not None:
            ranked.setdefault(found[0], []).append((found[1], key))
    return {field: [key for _, key in sorted(pairs)] for field, pairs in ranked.items()}


@dataclass(slots=True)
class _Row:
    draft: Draft
    session_id: str | None
    time: Any
    exact: bool  # the id stands for itself; others count within their session only


class Rows:
    """Takes rows in the order of the file; `finish` gives them times and ids."""

    def __init__(self, kind: str, collector: Collector) -> None:
        self.kind = kind
        self.collector = collector
        self.rows: list[_Row] = []
        self._fields: dict[tuple[str, ...], dict[str, list[str]]] = {}
        self._session: str | None = None

    def take(self, where: str, row: Mapping[str, Any]) -> None:
        """Take one row: column -> value."""
        keys = tuple(row)
        fields = self._fields.get(keys)
        if fields is None:
            fields = fields_of(keys)
            if len(self._fields) < 1000:
                self._fields[keys] = fields
        value = _first(row, fields.get("speaker"))
        role = _sender(row, fields) or role_of(value)
        if role == "other":
            return self.collector.skip(where, f"{str(value).strip().lower()} message")
        if role is None:
            shown = "no speaker" if value in (None, "") else f"unknown speaker {value!r:.80}"
            return self.collector.fault(where, f"{shown}; expected user or assistant")
        content = _first(row, fields.get("text"))
        text = text_of(content)
        captions = _captions(_first(row, fields.get("captions")))
        if text is None:
            return self.collector.fault(where, f"text is {kind_of(content)}; expected a string")
        if not fields.get("text") and not captions:
            return self.collector.fault(where, "no text; expected a string")
        if not text.strip() and captions:
            text = " ".join(f"[{caption}]" for caption in captions)
        speaker: Speaker = role
        metadata = _first(row, fields.get("metadata"))
        native, exact = _turn_id(row, fields)
        draft = Draft(
            speaker, text, where, None, native, _text(_first(row, fields.get("name"))),
            _text(_first(row, fields.get("model"))), captions,
            clean_json(metadata) if isinstance(metadata, dict) and metadata else None,
        )  # fmt: skip
        if self.collector.accepts(draft):
            session_id = clean_id(_first(row, fields.get("session_id"))) or self._session
            self._session = session_id
            self.rows.append(_Row(draft, session_id, _time(row, fields), exact))
        return None

    def finish(self) -> None:
        """Read the times, fill missing ones from neighbours in the session, and place the turns in order of rows."""
        order = date_order(row.time for row in self.rows)
        kept: list[_Row] = []
        for row in self.rows:
            try:
                row.draft.at = None if row.time is None else parse_time(row.time, self.collector.zone, order)
            except ValueError as error:
                self.collector.fault(row.draft.where, str(error))
                continue
            kept.append(row)
        self.rows = []
        if not kept:
            return
        head = kept[0]
        default = f"{self.kind}-{digest(head.draft.speaker, head.draft.text, head.time)}"
        sessions: dict[str, list[int]] = {}
        for index, row in enumerate(kept):
            sessions.setdefault(row.session_id or default, []).append(index)
        times: dict[int, datetime] = {}
        for number, indexes in enumerate(sessions.values()):
            filled = filled_times([kept[index].draft.at for index in indexes], self.collector.slot(number))
            times.update(zip(indexes, filled, strict=True))
        self.collector.conversations += len(sessions)
        occurrences: Counter[str] = Counter()
        for index, row in enumerate(kept):
            session_id = row.session_id or default
            turn_id = row.draft.native_id
            if turn_id is None:
                made = digest(session_id, row.draft.speaker, row.draft.text, row.draft.at)
                occurrences[made] += 1
                turn_id = f"{self.kind}-{made if occurrences[made] == 1 else digest(made, occurrences[made])}"
            elif not row.exact:
                turn_id = f"{session_id}:{turn_id}"
            self.collector.place(row.draft, session_id, times[index], turn_id, strict=True)


def _first(row: Mapping[str, Any], keys: list[str] | None) -> Any:
    for key in keys or ():
        value = row[key]
        if value is not None and value != "" and not (isinstance(value, str) and not value.strip()):
            return value
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _sender(row: Mapping[str, Any], fields: Mapping[str, list[str]]) -> Speaker | None:
    """WeChat exports tell the phone's owner by IsSender 1 or 0."""
    for key in fields.get("speaker", ()):
        if column_name(key) == "is_sender":
            return {"1": "user", "0": "assistant", "true": "user", "false": "assistant"}.get(  # type: ignore[return-value]
                str(row[key]).strip().lower()
            )
    return None


def _turn_id(row: Mapping[str, Any], fields: Mapping[str, list[str]]) -> tuple[str | None, bool]:
    for key in fields.get("turn_id", ()):
        found, name = clean_id(row[key]), column_name(key)
        # A short bare `id` is often a row number, which another file repeats for other words.
        if found and (name != "id" or len(found) >= 16):
            return found, name == "turn_id" or len(found) >= 16
    return None, True


def _time(row: Mapping[str, Any], fields: Mapping[str, list[str]]) -> Any:
    keys = fields.get("occurred_at", [])
    by_name = {column_name(key): row[key] for key in keys}
    day = next((by_name[name] for name in _DATES if isinstance(by_name.get(name), str) and by_name[name].strip()), None)
    clock = next((by_name[name] for name in _CLOCKS if isinstance(by_name.get(name), str)), None)
    if day and clock and re.search(r"\d", clock) and not re.search(r"\d{4}|[/年]|\d-\d", clock) and ":" not in day:
        return f"{day.strip()} {clock.strip()}"
    return _first(row, keys)


def _captions(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return ()
    return tuple(clean(item) for item in value if isinstance(item, str) and item.strip())
