"""Chat messages with roles: OpenAI's fine-tuning lines and arrays, and its kin (ShareGPT, LangChain, Gemini, Cohere).

One item is one conversation: an object with a list of messages, or the list itself. Most have neither ids nor times:
ids come from the conversation's first two messages (so that they stay when it grows), times from its place in the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from connectors.imports.building import Collector, Draft, clean_id, digest
from connectors.imports.messages import draft_of, kind_of, role_of, time_of

LIST_KEYS = (
    "messages",
    "conversations",
    "conversation",
    "contents",
    "chat_history",
    "dialogue",
    "dialog",
    "history",
    "turns",
)
_ID_KEYS = ("session_id", "conversation_id", "conversationId", "sessionId", "thread_id", "chat_id", "id", "uuid")


def message_list(item: Any) -> list[Any] | None:
    """Return the messages of a conversation object or of a bare list; None if there is no list."""
    if isinstance(item, list):
        return item
    if isinstance(item, dict):
        for key in LIST_KEYS:
            if isinstance(item.get(key), list):
                return list(item[key])
        if isinstance(item.get("body"), dict):
            return message_list(item["body"])
    return None


def is_message(value: Any) -> bool:
    """True for an object with a role (or ShareGPT's from) and a content of any kind."""
    return (
        isinstance(value, dict)
        and any(key in value for key in ("role", "from", "type", "lc"))
        and any(
            key in value for key in ("content", "value", "parts", "tool_calls", "message", "data", "kwargs", "blocks")
        )
    )


def read(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read conversations.

    Parameters
    ----------
    items
        (line or number, conversation) pairs.
    collector
        Receives turns, skipped and bad messages.
    """
    occurrences: Counter[str] = Counter()
    for where, item in items:
        messages = message_list(item)
        if messages is None or (isinstance(item, list) and not item):
            collector.fault(where, _no_list(item))
        elif not messages:
            collector.skip(where, "no messages")
        else:
            _conversation(where, item, messages, occurrences, collector)


def _no_list(item: Any) -> str:
    if isinstance(item, dict):
        if "messages" in item:
            return f"messages is {kind_of(item['messages'])}; expected a list of messages"
        keys = ", ".join(map(str, list(item)[:8]))
        return f"no messages (keys: {keys or 'none'}); expected an object with a list of messages"
    return f"is {kind_of(item)}; expected an object with a list of messages"


def _conversation(where: str, item: Any, messages: list[Any], occurrences: Counter[str], collector: Collector) -> None:
    bare = isinstance(item, list)
    drafts: list[Draft] = []
    for index, message in enumerate(messages, 1):
        draft = draft_of(message, where, f"message {index} ", collector)
        if draft is not None:
            drafts.append(draft)
    session_id, started = None, None
    if not bare:
        session_id = _native_id(item)
        started = time_of(item, collector.zone)
    if session_id is None:
        opening = digest(*(part for draft in drafts[:2] for part in (draft.speaker, draft.text)))
        occurrences[opening] += 1
        session_id = f"openai-{digest(opening, occurrences[opening])}"
    number = int(where) if where.isdecimal() else sum(occurrences.values())
    collector.add("openai", session_id, drafts, number - 1, started if isinstance(started, datetime) else None)


def _native_id(item: dict[str, Any]) -> str | None:
    """Return the conversation's own id; a short bare `id` is a row number that another file repeats."""
    for key in _ID_KEYS:
        found = clean_id(item.get(key))
        if found is not None and (key != "id" or len(found) >= 16):
            return found
    return None


def looks_like_speech(messages: list[Any]) -> bool:
    """True if one of the first messages has a role that is known."""
    for message in messages[:50]:
        if isinstance(message, dict):
            for key in ("role", "from", "type", "speaker", "sender"):
                if role_of(message.get(key)) is not None:
                    return True
            if isinstance(message.get("id"), list):
                return True
    return False
