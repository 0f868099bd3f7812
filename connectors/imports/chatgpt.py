"""ChatGPT's data export: conversations.json or its shards, each conversation a tree of which one branch is shown.

Only the branch that the user saw last is taken (`current_node`): regenerated answers and edited questions are left out,
with system prompts, tool calls, tool results, thoughts and hidden nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from connectors.imports.building import Collector, Draft, clean_id, digest
from connectors.imports.messages import joined, kind_of, role_of, text_of
from connectors.imports.times import optional_time
from connectors.imports.tree import Node, active_path

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", re.I)
_SPOKEN = {"text", "multimodal_text", "code", "audio_transcription"}
# Marks from the private use area: E200 kind E202 argument E201 for citations and links, E203 text E204 around quotes.
_MARK = re.compile("\ue200([a-z_]*)\ue202?([^\ue200\ue201]*)\ue201")
_STRAY_MARKS = re.compile("[\ue200-\ue206]")


def read(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read conversations; the oldest first, so that a message that a newer one copied keeps its first session."""
    read_items: list[tuple[datetime | None, int, str, dict[str, Any]]] = []
    for index, (where, item) in enumerate(items):
        if not isinstance(item, dict):
            collector.fault(
                where, f"conversation {where} is {kind_of(item)}, not an object; expected a mapping of nodes"
            )
            continue
        started = optional_time(item.get("create_time"), collector.zone)
        read_items.append((started, index, where, item))
    latest = max((entry[0] for entry in read_items if entry[0] is not None), default=None)
    read_items.sort(key=lambda entry: (entry[0] or latest or 0, entry[1]) if latest else (0, entry[1]))
    for started, index, where, item in read_items:
        _conversation(where, index, item, started, collector)


def without_marks(text: str) -> str:
    """Remove the marks of citations; a link or an entity leaves the words that the user saw.

    Examples
    --------
    >>> without_marks("Nine shifts.\\ue200cite\\ue202turn0file0\\ue201 \\ue203Two\\ue204 in a row.")
    'Nine shifts. Two in a row.'
    """
    return _STRAY_MARKS.sub("", _MARK.sub(_words_of_mark, text)) if _STRAY_MARKS.search(text) else text


def _words_of_mark(match: re.Match[str]) -> str:
    kind, argument = match[1], match[2]
    if kind in ("url", "link"):
        return argument.split("\ue202")[0]
    if kind == "entity":
        try:
            parts = json.loads(argument)
        except ValueError:
            return ""
        if isinstance(parts, list) and len(parts) > 1 and isinstance(parts[1], str):
            return parts[1]
    return ""


def _conversation(where: str, index: int, item: dict[str, Any], started: datetime | None, collector: Collector) -> None:
    session_id = clean_id(item.get("conversation_id")) or clean_id(item.get("id"))
    title = item.get("title")
    name = session_id or (title if isinstance(title, str) and title else where)
    mapping = item.get("mapping")
    if isinstance(mapping, list):
        mapping = {str(node.get("id", place)): node for place, node in enumerate(mapping) if isinstance(node, dict)}
    if not isinstance(mapping, dict):
        collector.fault(name, f"conversation {where} ({title!r}): mapping is {kind_of(mapping)}; expected nodes by id")
        return
    if not mapping:
        collector.skip(name, "conversation without messages")
        return
    nodes = {key: _node(node, collector) for key, node in mapping.items() if isinstance(node, dict)}
    for key, node in mapping.items():
        if not isinstance(node, dict):
            collector.fault(str(key), f"node of {name} is {kind_of(node)}, not an object")
    if session_id is None:
        first = next((key for key, node in nodes.items() if node.says), "")
        session_id = f"chatgpt-{digest(item.get('create_time'), first)}"
    current = item.get("current_node")
    path = active_path(nodes, current if isinstance(current, str) else None)
    model = item.get("default_model_slug")
    drafts = [_draft(key, mapping[key], session_id, model, collector) for key in path]
    found = [draft for draft in drafts if draft is not None]
    if not found:
        collector.skip(name, "conversation without turns")
    collector.add("chatgpt", session_id, found, index, started)


def _node(node: dict[str, Any], collector: Collector) -> Node:
    message = node.get("message")
    parent, children = node.get("parent"), node.get("children")
    at = optional_time(message.get("create_time"), collector.zone) if isinstance(message, dict) else None
    return Node(
        parent if isinstance(parent, str) else None,
        tuple(child for child in children if isinstance(child, str)) if isinstance(children, list) else (),
        at,
        isinstance(message, dict),
    )


def _draft(key: str, node: dict[str, Any], session_id: str, default_model: Any, collector: Collector) -> Draft | None:
    message = node.get("message")
    if message is None:
        return None
    if not isinstance(message, dict):
        collector.fault(key, f"message of {session_id} is {kind_of(message)}, not an object")
        return None
    metadata = message.get("metadata") if isinstance(message.get("metadata"), dict) else {}
    assert isinstance(metadata, dict)
    author = message.get("author")
    given = author.get("role") if isinstance(author, dict) else author
    role = role_of(given)
    reason = _why_no_turn(message, metadata, role)
    if reason is not None:
        collector.skip(key, reason)
        return None
    if role is None or role == "other":
        collector.fault(key, f"message of {session_id} has the author {given!r:.80}; expected user or assistant")
        return None
    text = _text(message.get("content"))
    if text is None:
        collector.fault(key, f"content of a message of {session_id} is {kind_of(message.get('content'))}")
        return None
    if not text.strip():
        collector.skip(key, "no words (empty, a picture or a sound alone)")
        return None
    native = clean_id(message.get("id")) or key
    name = author.get("name") if isinstance(author, dict) else None
    model = metadata.get("model_slug") or default_model
    return Draft(
        role, without_marks(text), key, optional_time(message.get("create_time"), collector.zone),
        native if _UUID.match(native) else f"{session_id}:{native}",
        name=name if isinstance(name, str) else None,
        model=model if role == "assistant" and isinstance(model, str) else None,
    )  # fmt: skip


def _why_no_turn(message: dict[str, Any], metadata: dict[str, Any], role: str | None) -> str | None:
    if metadata.get("is_visually_hidden_from_conversation") is True or metadata.get("is_user_system_message") is True:
        return "hidden message"
    if role == "other":
        return "system or tool message"
    recipient = message.get("recipient")
    if isinstance(recipient, str) and recipient not in ("all", "", "user"):
        return f"tool call to {recipient}"
    content = message.get("content")
    kind = content.get("content_type") if isinstance(content, dict) else None
    if isinstance(kind, str) and kind not in _SPOKEN and not isinstance(content.get("parts"), list):  # type: ignore[union-attr]
        return f"content of type {kind}"
    return None


def _text(content: Any) -> str | None:
    if isinstance(content, dict):
        parts = content.get("parts")
        if isinstance(parts, list):
            return joined([text_of([part]) or "" for part in parts])
        text = content.get("text")
        return text if isinstance(text, str) else ""
    return text_of(content)
