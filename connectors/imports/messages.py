"""What the messages of all chat formats have in common: who speaks, and the text in their content.

Invariant: a speaker that isn't known is a fault and never guessed; system prompts, tool calls and tool results are no
turns; of pictures and sounds only what words say of them is kept, never a link.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Literal

from connectors.imports.building import Collector, Draft, clean_json
from connectors.imports.model import Speaker
from connectors.imports.times import optional_time

_USER = (
    "user|human|me|prompter|humanmessage|humanmessagechunk|usermessage|用户|使用者|人类|我|用户消息|提问者|问|usuario|utilisateur|"
    "benutzer|nutzer|utente|usuário|пользователь|ユーザー|사용자"
)
_ASSISTANT = (
    "assistant|ai|bot|model|chatbot|gpt|chatgpt|claude|gemini|llm|aimessage|aimessagechunk|assistantmessage|ai_assistant|助手|助理|"
    "机器人|模型|ai助手|智能助手|人工智能|助手消息|小助手|答|asistente|assistent|assistente|ассистент|アシスタント|어시스턴트"
)
_OTHER = (
    "system|developer|tool|function|systemmessage|toolmessage|functionmessage|ipython|observation|environment|"
    "tool_call|tool_use|tool_result|tool_response|function_call|tool_calls|critic|系统|系统消息|工具"
)
_Role = Literal["user", "assistant", "other"]
_LISTS: tuple[tuple[str, _Role], ...] = ((_USER, "user"), (_ASSISTANT, "assistant"), (_OTHER, "other"))
_ROLES: dict[str, _Role] = {name: role for names, role in _LISTS for name in names.split("|")}
# The longest name above with room for white space and a colon.
_ROLE_CHARS_MAX = 64
# Items of OpenAI's Responses API and the like which are no message at all.
_ITEMS = re.compile(r"reasoning|.*_call(_output)?|item_reference|tool_.*|function_.*|thinking|event")
_TEXT_PARTS = {"text", "input_text", "output_text", "audio_transcription", "refusal", "markdown", "paragraph"}
TIME_KEYS = (
    "occurred_at", "timestamp", "create_time", "created_at", "createdAt", "created", "createTime", "time", "date", "ts",
    "sent_at", "datetime", "send_date",
)  # fmt: skip


def role_of(value: Any) -> _Role | None:
    """Return who speaks: "user", "assistant", "other" (system, tool), or None for what isn't known.

    Examples
    --------
    >>> role_of(" Human "), role_of("助手"), role_of("developer"), role_of("narrator")
    ('user', 'assistant', 'other', None)
    """
    if not isinstance(value, str) or len(value) > _ROLE_CHARS_MAX:
        return None
    return _role_of_text(value)


@lru_cache(maxsize=1024)  # the same few words in every message
def _role_of_text(value: str) -> _Role | None:
    return _ROLES.get(unicodedata.normalize("NFKC", value).strip().strip(":").strip().lower())


def joined(parts: list[str]) -> str:
    """Join pieces of one message: on a new line, unless one of both has white space there already.

    Examples
    --------
    >>> joined(["Forty kilo, ", "thirty metres.", "", "Go."])
    'Forty kilo, thirty metres.\\nGo.'
    """
    text = ""
    for part in parts:
        if text and part and not text[-1].isspace() and not part[0].isspace():
            text += "\n"
        text += part
    return text


def text_of(content: Any) -> str | None:
    """Return the words of a message's content (text, parts, blocks); "" if it has none, None if it is no content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return joined([_text_of_part(part) for part in content])
    if isinstance(content, dict):
        for key in ("parts", "content", "blocks"):
            if isinstance(content.get(key), list | str):
                return text_of(content[key])
        return _text_of_part(content) if "text" in content or "value" in content else None
    return None


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = part.get("type", part.get("block_type", part.get("content_type", "text")))
    if not isinstance(kind, str) or kind not in _TEXT_PARTS or part.get("thought") is True:
        return ""
    for key in ("text", "refusal", "value", "content", "markdown"):
        value = part.get(key)
        if isinstance(value, dict):
            value = value.get("value")
        if isinstance(value, str):
            return value
    return ""


def time_of(record: dict[str, Any], zone: tzinfo) -> Any:
    """Return the first time of a record that can be read, or None."""
    for key in TIME_KEYS:
        if key in record:
            at = optional_time(record[key], zone)
            if at is not None:
                return at
    return None


def _role_value(message: dict[str, Any]) -> Any:
    author = message.get("author")
    if isinstance(author, dict) and "role" in author:
        return author["role"]
    for key in ("role", "speaker", "from", "sender", "author", "type"):
        value = message.get(key)
        if isinstance(value, str) and not (key == "type" and value == "message"):
            return value
    return None


def unwrapped(message: dict[str, Any]) -> dict[str, Any]:
    """Take a message out of LangChain's two wrappings ({"type", "data"} and {"lc", "id", "kwargs"})."""
    data, kwargs = message.get("data"), message.get("kwargs")
    if isinstance(data, dict) and isinstance(message.get("type"), str):
        return {"type": message["type"]} | data
    identity = message.get("id")
    if isinstance(kwargs, dict) and isinstance(identity, list) and identity:
        return kwargs | {"type": str(identity[-1])}
    return message


def draft_of(message: Any, where: str, label: str, collector: Collector) -> Draft | None:
    """Make a draft of a message with role and content; what is no turn or no message is noted with the collector."""
    if not isinstance(message, dict):
        collector.fault(where, f"{label}is {kind_of(message)}, not an object; expected role and content")
        return None
    message = unwrapped(message)
    value = _role_value(message)
    role = role_of(value)
    if role is None:
        kind = message.get("type")
        if isinstance(kind, str) and message.get("role") is None and _ITEMS.fullmatch(kind):
            collector.skip(where, f"{label}{kind}")
        else:
            shown = "has no role" if value in (None, "") else f"has the unknown role {value!r:.80}"
            collector.fault(where, f"{label}{shown}; expected user, assistant, system or tool")
        return None
    if role == "other":
        collector.skip(where, f"{label}{str(value).strip().lower()} message")
        return None
    text = _content_of(message)
    if text is None:
        collector.fault(where, f"{label}has a content that is no text; expected a string or a list of parts")
        return None
    if not text.strip():
        called = any(message.get(key) for key in ("tool_calls", "function_call"))
        collector.skip(where, f"{label}tool call" if called else f"{label}empty text")
        return None
    speaker: Speaker = role
    name, model, metadata = message.get("name"), message.get("model"), message.get("metadata")
    return Draft(
        speaker, text, where, time_of(message, collector.zone),
        name=name if isinstance(name, str) else None, model=model if isinstance(model, str) else None,
        metadata=clean_json(metadata) if isinstance(metadata, dict) and metadata else None,
    )  # fmt: skip


def _content_of(message: dict[str, Any]) -> str | None:
    found: str | None = ""
    for key in ("content", "text", "value", "message", "parts", "blocks"):
        if message.get(key) not in (None, "", []):
            found = text_of(message[key])
            if found is None or found.strip():
                return found
    if isinstance(message.get("refusal"), str):
        return str(message["refusal"])
    audio = message.get("audio")
    if isinstance(audio, dict) and isinstance(audio.get("transcript"), str):
        return str(audio["transcript"])
    return found


def kind_of(value: Any) -> str:
    """Name a JSON value's type for messages to people, with the begin of short texts."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"a string ({value[:60]!r})"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    return "an object"
