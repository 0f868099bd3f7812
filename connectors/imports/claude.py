"""Claude's data export (conversations.json with chat_messages), and the JSON lines that Claude Code keeps of a session.

Words stand in `text` or, if that is empty, in the text blocks of `content`; thoughts, tool calls and their results are
left out. Question and answer may carry the same time: the order of the file holds then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from connectors.imports.building import Collector, Draft, clean_id, digest
from connectors.imports.messages import kind_of, role_of, text_of
from connectors.imports.times import optional_time
from connectors.imports.tree import Node, active_path


def read(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read conversations of Claude's data export."""
    for index, (where, item) in enumerate(items):
        messages = item.get("chat_messages") if isinstance(item, dict) else None
        if not isinstance(messages, list):
            found = kind_of(messages) if isinstance(item, dict) else kind_of(item)
            name = clean_id(item.get("uuid")) if isinstance(item, dict) else None
            collector.fault(name or where, f"conversation {where}: chat_messages is {found}; expected a list")
            continue
        session_id = clean_id(item.get("uuid")) or f"claude-{digest(item.get('created_at'), item.get('name'))}"
        if not messages:
            collector.skip(session_id, "conversation without messages")
            continue
        drafts = [
            _draft(place, message, session_id, collector) for place, message in enumerate(_branch(item, messages), 1)
        ]
        started = optional_time(item.get("created_at"), collector.zone)
        collector.add("claude", session_id, [draft for draft in drafts if draft is not None], index, started)


def _branch(item: dict[str, Any], messages: list[Any]) -> list[Any]:
    """Return the newest branch, if messages name their parents and two of them name the same one."""
    by_id = {m["uuid"]: m for m in messages if isinstance(m, dict) and isinstance(m.get("uuid"), str)}
    named = [parent for m in by_id.values() if isinstance(parent := m.get("parent_message_uuid"), str)]
    if len(by_id) != len(messages) or len(named) == len(set(named)):
        return messages
    leaf = item.get("current_leaf_message_uuid")
    above = {key: m.get("parent_message_uuid") for key, m in by_id.items()}
    nodes = {key: Node(parent if parent in by_id else None) for key, parent in above.items()}
    return [by_id[key] for key in active_path(nodes, leaf if leaf in by_id else messages[-1]["uuid"])]


def _words(message: dict[str, Any]) -> str | None:
    text = message.get("text")
    if isinstance(text, str) and text.strip():
        blocks = message.get("content")
        # Older exports put notes on tool calls into text; the blocks know better.
        if isinstance(blocks, list) and any(isinstance(b, dict) and b.get("type") == "tool_use" for b in blocks):
            return text_of(blocks) or text
        return text
    return text_of(message.get("content"))


def _draft(place: int, message: Any, session_id: str, collector: Collector) -> Draft | None:
    if not isinstance(message, dict):
        collector.fault(session_id, f"message {place} is {kind_of(message)}, not an object")
        return None
    where = clean_id(message.get("uuid")) or f"{session_id}/{place}"
    given = message.get("sender", message.get("role"))
    role = role_of(given)
    if role is None:
        collector.fault(
            where, f"message {place} of {session_id} has the sender {given!r:.80}; expected human or assistant"
        )
        return None
    text = _words(message)
    if role == "other" or not (text or "").strip():
        collector.skip(where, "no words" if role != "other" else "system message")
        return None
    assert text is not None
    return Draft(
        role, text, where, optional_time(message.get("created_at"), collector.zone), clean_id(message.get("uuid"))
    )


def read_code(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read the lines of Claude Code's session files; side chains, meta lines and tool results are left out."""
    sessions: dict[str, list[Draft]] = {}
    for where, item in items:
        if not isinstance(item, dict):
            collector.fault(where, f"is {kind_of(item)}; expected an object")
            continue
        message = item.get("message")
        if item.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            collector.skip(where, f"{item.get('type', 'line without type')}: no message")
            continue
        text = text_of(message.get("content"))
        if item.get("isMeta") or item.get("isSidechain") or item.get("isCompactSummary") or not (text or "").strip():
            collector.skip(where, "no words of this conversation (meta, side chain, tool call or result)")
            continue
        role = role_of(message.get("role") or item["type"])
        if role in (None, "other"):
            collector.fault(where, f"unknown role {message.get('role')!r:.80}")
            continue
        session_id = clean_id(item.get("sessionId")) or "claude-code"
        at = optional_time(item.get("timestamp"), collector.zone)
        model = message.get("model")
        sessions.setdefault(session_id, []).append(
            Draft(
                "user" if role == "user" else "assistant",
                text or "",
                where,
                at,
                clean_id(item.get("uuid")),
                model=model if isinstance(model, str) else None,
            )
        )
    for number, (session_id, drafts) in enumerate(sessions.items()):
        collector.add("claude-code", session_id, drafts, number)
