"""Which format a parsed file has, told by its contents alone.

Invariant: a file that no reader understands is refused by name, with what would be understood; it never ends as an
import of nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from connectors.imports.locomo import is_conversation, is_sample
from connectors.imports.model import UnreadableExport
from connectors.imports.openai import LIST_KEYS, is_message, looks_like_speech, message_list
from connectors.imports.rows import fields_of

_SAMPLE = 200
_WRAPPERS = ("conversations", "data", "items", "chats", "results", "records", "history")
_CODE_TYPES = {"user", "assistant", "summary", "system", "file-history-snapshot", "progress", "queue-operation"}
_EXPECTED = (
    "expected an export of ChatGPT (conversations.json), Claude, OpenAI messages, LoCoMo, or turns as JSONL or CSV "
    "with speaker, text and occurred_at"
)

# Keys -> the format that has them all and isn't read.
_FOREIGN: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(keys.split()), name)
    for keys, name in (
        ("guild channel messages", "Discord JSON"),
        ("requests requesterUsername", "VS Code Copilot chat"),
        ("header title products", "Google Takeout activity"),
        ("user ts text", "Slack"),
        ("participants thread_path", "Facebook or Instagram messages"),
        ("instruction output", "Alpaca instructions"),
        ("prompt completion", "prompt and completion pairs"),
        ("prompt chosen rejected", "preference pairs"),
        ("conversation_id rating", "ChatGPT message feedback"),
        ("conversation_id is_anonymous", "ChatGPT shared conversations"),
        ("email_address uuid", "Claude users"),
    )
)


def format_of(value: Any) -> str | None:
    """Name the format of one item (a conversation, a row, a whole export's object); None if it is unknown.

    Examples
    --------
    >>> format_of({"mapping": {}}), format_of({"speaker": "user", "text": "Hi"}), format_of({"a": 1})
    ('chatgpt', 'jsonl', None)
    """
    if isinstance(value, list):
        return "openai" if any(map(is_message, value[:50])) and looks_like_speech(value) else None
    if not isinstance(value, dict):
        return None
    if "mapping" in value:
        return "chatgpt"
    if "chat_messages" in value:
        return "claude"
    if is_sample(value):
        return "locomo"
    return _app_of(value) or _messages_or_row(value)


def _app_of(value: dict[str, Any]) -> str | None:
    messages = value.get("messages")
    state = value.get("state") if isinstance(value.get("state"), dict) else value.get("data")
    if isinstance(value.get("store"), dict):
        return "llamaindex"
    if isinstance(state, dict) and isinstance(state.get("messages"), list):
        return "lobechat"
    chat = value.get("chat")
    if isinstance(chat, dict) and ("history" in chat or "messages" in chat):
        return "openwebui"
    if "mes" in value or ("chat_metadata" in value and "user_name" in value):
        return "sillytavern"
    kind = value.get("type")
    spoken = isinstance(value.get("message"), dict) or kind not in ("user", "assistant")
    if isinstance(kind, str) and kind in _CODE_TYPES and spoken and ("sessionId" in value or "leafUuid" in value):
        return "claude-code"
    if isinstance(value.get("chats"), dict) or kind in ("personal_chat", "bot_chat", "private_group"):
        return "telegram"
    if isinstance(messages, list) and any(isinstance(m, dict) and "isCreatedByUser" in m for m in messages[:20]):
        return "librechat"
    return None


def _messages_or_row(value: dict[str, Any]) -> str | None:
    for key in LIST_KEYS:
        items = value.get(key)
        if isinstance(items, list) and (
            looks_like_speech(items) or (key == "messages" and not items and not known_foreign(value))
        ):
            return "openai"
    if isinstance(value.get("body"), dict) and message_list(value["body"]):
        return "openai"
    fields = fields_of(value)
    message, author = value.get("message"), value.get("author")
    if "speaker" in fields and "text" in fields:
        return "jsonl"
    if isinstance(message, dict) and ("role" in message or "speaker" in message):
        return "jsonl"
    return "jsonl" if isinstance(author, dict) and "role" in author and "text" in fields else None


def known_foreign(value: Any) -> str | None:
    """Name a known format that isn't read, for the refusal."""
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    if not isinstance(value, dict):
        return None
    keys = set(value)
    for needed, name in _FOREIGN:
        if needed <= keys:
            return name
    return None


def refusal(label: str, value: Any) -> UnreadableExport:
    """Make the refusal of valid JSON that holds no conversation."""
    name = known_foreign(value)
    if isinstance(value, list):
        first = next((item for item in value if isinstance(item, dict)), None)
        shape = f"an array of {len(value)}" + (f", objects with {_keys(first)}" if first is not None else "")
    else:
        shape = f"an object with {_keys(value)}" if isinstance(value, dict) else f"a {type(value).__name__}"
    what = f"{name}, which is not supported" if name else "valid JSON of an unknown format"
    return UnreadableExport(f"{label} is {what} ({shape}) and has no conversations that are recognized; {_EXPECTED}")


def _keys(value: dict[str, Any]) -> str:
    names = [str(key)[:40] for key in list(value)[:8]]
    return ", ".join(names) + (", ..." if len(value) > 8 else "") if names else "no keys"


def items_of(value: Any, label: str) -> tuple[str, list[tuple[str, Any]]]:
    """Tell a document's format and take it apart into (number from 1, item) pairs.

    Raises
    ------
    UnreadableExport
        If the format is unknown or there is nothing in it.
    """
    if value in ([], {}, None, ""):
        raise UnreadableExport(f"{label} is empty (no conversations in {value!r}); {_EXPECTED}")
    if isinstance(value, dict):
        for key in _WRAPPERS:
            inner = value.get(key)
            if isinstance(inner, list) and not is_conversation(value):
                found = sampled(inner)
                wraps = found is not None and (found != "jsonl" or format_of(value) is None)
                if wraps and not all(is_message(item) for item in inner[:5]):
                    return str(found), _numbered(inner)
        name = format_of(value)
        if name is None:  # an object of conversations by their ids
            name = sampled(value.values())
            if name in (None, "jsonl") or not all(format_of(item) == name for item in value.values()):
                raise refusal(label, value)
            return str(name), _numbered(list(value.values()))
        return name, [("1", value)]
    if isinstance(value, list):
        if _is_conversation_of_messages(value):
            return "openai", [("1", value)]
        name = sampled(value)
        if name is not None:
            return name, _numbered(value)
    raise refusal(label, value)


def _is_conversation_of_messages(value: list[Any]) -> bool:
    """True for a list of bare messages; rows of a table name their session or their time."""
    messages = [item for item in value[:_SAMPLE] if is_message(item)]
    if not messages or not looks_like_speech(messages):
        return False
    if any(format_of(item) not in (None, "jsonl") for item in messages):
        return False
    return not any({"session_id", "occurred_at"} & fields_of(item).keys() for item in messages)


def sampled(items: Iterable[Any]) -> str | None:
    """Name the format of the first item that has one."""
    for index, item in enumerate(items):
        if index >= _SAMPLE:
            break
        name = format_of(item)
        if name is not None:
            return name
    return None


def _numbered(items: list[Any]) -> list[tuple[str, Any]]:
    return [(str(index), item) for index, item in enumerate(items, 1)]
