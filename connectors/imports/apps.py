"""Exports of other chat programs, each a few lines: LobeChat, LlamaIndex, Open WebUI, LibreChat, SillyTavern, Telegram.

Their conversations end as the same drafts as all others; what differs is where messages, speakers and times stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from connectors.imports.building import Collector, Draft, clean_id, digest
from connectors.imports.messages import draft_of, kind_of, time_of
from connectors.imports.times import optional_time, parse_time
from connectors.imports.tree import Node, active_path


def read_lobechat(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read LobeChat: all messages in one list, out of order, each with its session and topic."""
    for _, item in items:
        state = item.get("state") or item.get("data")
        sessions: dict[str, list[tuple[Any, Draft]]] = {}
        for index, message in enumerate(state["messages"], 1):
            where = (clean_id(message.get("id")) if isinstance(message, dict) else None) or str(index)
            draft = draft_of(message, where, "", collector)
            if draft is None:
                continue
            draft.native_id = clean_id(message.get("id"))
            draft.model = message.get("fromModel") or message.get("model")
            parts = (
                message.get("sessionId") or message.get("session_id"),
                message.get("topicId") or message.get("topic_id"),
            )
            session_id = clean_id("-".join(str(part) for part in parts if part)) or "lobechat-inbox"
            sessions.setdefault(session_id, []).append((draft.at, draft))
        for number, (session_id, pairs) in enumerate(sessions.items()):
            if all(at is not None for at, _ in pairs):
                pairs.sort(key=lambda pair: pair[0])
            collector.add("lobechat", session_id, [draft for _, draft in pairs], number)


def read_llamaindex(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read LlamaIndex's SimpleChatStore: key -> messages."""
    for _, item in items:
        for number, (key, messages) in enumerate(item["store"].items()):
            if not isinstance(messages, list):
                collector.fault(str(key), f"is {kind_of(messages)}; expected a list of messages")
                continue
            drafts = [draft_of(message, f"{key}/{index}", "", collector) for index, message in enumerate(messages, 1)]
            found = [draft for draft in drafts if draft is not None]
            session_id = clean_id(key) or f"llamaindex-{digest(*(draft.text for draft in found[:2]))}"
            collector.add("llamaindex", session_id, found, number)


def read_openwebui(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read Open WebUI: a tree of messages under chat.history, else a list under chat.messages."""
    for number, (where, item) in enumerate(items):
        chat = item.get("chat") if isinstance(item, dict) else None
        if not isinstance(chat, dict):
            collector.fault(where, f"conversation {where} has no chat; expected chat.history.messages")
            continue
        history = chat.get("history") if isinstance(chat.get("history"), dict) else {}
        assert isinstance(history, dict)
        by_id = history.get("messages")
        messages = chat.get("messages") or []
        if isinstance(by_id, dict) and by_id:
            messages = _branch(
                {str(key): message for key, message in by_id.items() if isinstance(message, dict)}, "parentId",
                history.get("currentId"), collector,
            )  # fmt: skip
        session_id = clean_id(item.get("id") or chat.get("id")) or f"openwebui-{digest(chat.get('title'), number)}"
        _add_tree(session_id, messages, collector, kind="openwebui", id_key="id", number=number)


def read_librechat(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read LibreChat: messages that name their parents; isCreatedByUser tells the speaker."""
    for number, (_, item) in enumerate(items):
        session_id = clean_id(item.get("conversationId")) or f"librechat-{digest(item.get('title'), number)}"
        flat: dict[str, Any] = {}
        stack = _reversed(item.get("messages") or item.get("messagesTree"))
        while stack:
            message = stack.pop()
            if isinstance(message, dict):
                role = "user" if message.get("isCreatedByUser") else "assistant"
                flat.setdefault(str(message.get("messageId", len(flat))), message | {"role": role})
                stack.extend(_reversed(message.get("children")))
        messages = _branch(flat, "parentMessageId", None, collector)
        _add_tree(session_id, messages, collector, kind="librechat", id_key="messageId", number=number)


def _reversed(value: Any) -> list[Any]:
    return value[::-1] if isinstance(value, list) else []


def _branch(by_id: dict[str, Any], parent_key: str, current: Any, collector: Collector) -> list[Any]:
    parents = {
        key: parent if isinstance(parent := message.get(parent_key), str) and parent in by_id else None
        for key, message in by_id.items()
    }
    children: dict[str, list[str]] = {}
    for key, parent in parents.items():
        if isinstance(parent, str):
            children.setdefault(parent, []).append(key)
    nodes = {
        key: Node(
            parents[key],
            tuple(children.get(key, ())),
            time_of(message, collector.zone),
        )
        for key, message in by_id.items()
    }
    return [by_id[key] for key in active_path(nodes, current if isinstance(current, str) else None)]


def _add_tree(
    session_id: str, messages: list[Any], collector: Collector, *, kind: str, id_key: str, number: int
) -> None:
    drafts: list[Draft] = []
    for message in messages:
        native = clean_id(message.get(id_key)) if isinstance(message, dict) else None
        draft = draft_of(message, native or session_id, "", collector)
        if draft is not None:
            draft.native_id = native if native is None or len(native) >= 16 else f"{session_id}:{native}"
            drafts.append(draft)
    if not drafts:
        collector.skip(session_id, "conversation without turns")
    collector.add(kind, session_id, drafts, number)


def read_sillytavern(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read SillyTavern: a header line, then a message a line; hidden rows (is_system) are left out."""
    header: Any = None
    drafts: list[Draft] = []
    for where, item in items:
        if not isinstance(item, dict):
            collector.fault(where, f"is {kind_of(item)}; expected an object with mes and is_user")
        elif "mes" not in item:
            header = header or item
        elif item.get("is_system") is True:
            collector.skip(where, "hidden message (is_system)")
        elif not isinstance(item.get("is_user"), bool) or not isinstance(item["mes"], str):
            collector.fault(where, "no is_user or mes; expected true or false and a text")
        else:
            try:
                value = item.get("send_date")
                at = parse_time(value, collector.zone) if value else None
            except ValueError as error:
                collector.fault(where, str(error))
                continue
            name = item.get("name")
            speaker = "user" if item["is_user"] else "assistant"
            drafts.append(Draft(speaker, item["mes"], where, at, name=name if isinstance(name, str) else None))  # type: ignore[arg-type]
    header = header if isinstance(header, dict) else {}
    first = (drafts[0].text, drafts[0].at) if drafts else ()
    session_id = f"sillytavern-{digest(header.get('character_name'), header.get('create_date'), *first)}"
    collector.add("sillytavern", session_id, drafts, 0)


def read_telegram(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read Telegram Desktop's result.json: chats of two; the other one is the assistant, the exporting one the user."""
    for _, item in items:
        chats = item["chats"].get("list", []) if isinstance(item.get("chats"), dict) else [item]
        owner = item.get("personal_information")
        owner_id = f"user{owner['user_id']}" if isinstance(owner, dict) and "user_id" in owner else None
        for number, chat in enumerate(chats):
            if not isinstance(chat, dict) or not isinstance(chat.get("messages"), list):
                collector.fault(str(number + 1), f"chat {number + 1} has no messages")
            elif chat.get("type") not in ("personal_chat", "bot_chat"):
                collector.skip(str(chat.get("id")), f"{chat.get('type')}: only chats of two are read")
            else:
                _telegram_chat(chat, owner_id, number, collector)


def _telegram_chat(chat: dict[str, Any], owner_id: str | None, number: int, collector: Collector) -> None:
    session_id = clean_id(f"telegram-{chat.get('id')}") or "telegram"
    other_id = f"user{chat.get('id')}"
    drafts: list[Draft] = []
    for message in chat["messages"]:
        where = str(message.get("id")) if isinstance(message, dict) else session_id
        if not isinstance(message, dict) or message.get("type") != "message":
            collector.skip(where, "service message")
            continue
        text = "".join(p if isinstance(p, str) else str(p.get("text", "")) for p in _pieces(message))
        sender, sender_id = message.get("from"), message.get("from_id")
        theirs = sender_id == other_id or (sender_id != owner_id and sender == chat.get("name"))
        at = optional_time(message.get("date_unixtime"), collector.zone) or optional_time(
            message.get("date"), collector.zone
        )
        name = sender if isinstance(sender, str) else None
        drafts.append(Draft("assistant" if theirs else "user", text, where, at, f"{session_id}-{where}", name=name))
    collector.add("telegram", session_id, drafts, number)


def _pieces(message: dict[str, Any]) -> list[Any]:
    text = message.get("text")
    if isinstance(text, list):
        return [piece for piece in text if isinstance(piece, str | dict)]
    return [text] if isinstance(text, str) else []
