"""Bytes to validated values and back: orjson for the bytes, msgspec for the types.

Invariant: whatever ``decode`` accepts, ``encode`` can write and ``decode`` reads back equal.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec
import orjson

from schemas.deadletters import DeadLetter
from schemas.documents import ChunksEmbedded, Document, DocumentChunked, DocumentRemoved
from schemas.envelope import ContractError, derived_id, instant_ms
from schemas.feedback import Feedback, FeedbackRecorded
from schemas.memories import ConflictArbitrated, FactsOfKey, MemoriesExtracted, MemoryEmbedded
from schemas.personas import Persona, PersonaDeclared
from schemas.recalls import RecallAnswered, Reply, Request
from schemas.responses import AtomDistilled, ResponseGraded
from schemas.turns import Turn, TurnEmbedded, TurnRecorded, TurnRefused
from schemas.upcasts import upcast

JournalEvent = (
    TurnRecorded
    | TurnEmbedded
    | TurnRefused
    | FeedbackRecorded
    | RecallAnswered
    | MemoriesExtracted
    | MemoryEmbedded
    | ResponseGraded
    | AtomDistilled
    | ConflictArbitrated
)
LibraryEvent = DocumentChunked | ChunksEmbedded | DocumentRemoved | PersonaDeclared

JOURNAL_EVENTS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        TurnRecorded,
        TurnEmbedded,
        TurnRefused,
        FeedbackRecorded,
        RecallAnswered,
        MemoriesExtracted,
        MemoryEmbedded,
        ResponseGraded,
        AtomDistilled,
        ConflictArbitrated,
    )
}
LIBRARY_EVENTS: dict[str, type] = {
    cls.__name__: cls for cls in (DocumentChunked, ChunksEmbedded, DocumentRemoved, PersonaDeclared)
}
NEWEST_VERSION: dict[str, int] = dict.fromkeys((*JOURNAL_EVENTS, *LIBRARY_EVENTS), 1)

PUBLIC: dict[str, tuple[type, str, int]] = {
    "turns": (Turn, "turn", 1),
    "feedback": (Feedback, "feedback", 1),
    "documents": (Document, "document", 1),
    "personas": (Persona, "persona", 1),
    "requests": (Request, "request", 1),
    "replies": (Reply, "reply", 1),
    "facts": (FactsOfKey, "facts_of_key", 1),
    "dead-letters": (DeadLetter, "dead_letter", 1),
}
"""Topic without prefix: its type, the value of ``type`` and the newest version."""

DEPTH_MAX = 200
"""orjson writes at most 254 levels; an envelope and a dead letter around a value must still fit."""

T = TypeVar("T")


def parse(value: bytes | None) -> dict[str, Any]:
    """JSON object of a record's value.

    Raises
    ------
    ContractError
        ``not_json`` for anything but a JSON object in UTF-8 (lone surrogates and extreme nesting included).
    """
    if value is None:
        raise ContractError("not_json", "the record has no value (a tombstone); expected a JSON object")
    try:
        raw = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ContractError("not_json", f"not JSON (RFC 8259, UTF-8): {error}; begins {value[:40]!r}") from error
    if not isinstance(raw, dict):
        raise ContractError("not_json", f"expected a JSON object, got {type(raw).__name__}")
    return raw


def decode(topic: str, value: bytes | None) -> Any:
    """Validated message of a public topic (named without prefix).

    ``type`` and ``version`` may be absent, since the topic tells them; a wrong one is an error.

    Raises
    ------
    ContractError
        With one of the codes ``not_json``, ``wrong_type``, ``unknown_version``, ``invalid``, ``too_large``,
        ``bad_time``.
    """
    cls, name, newest = PUBLIC[topic]
    raw = parse(value)
    if raw.get("type", name) != name:
        raise ContractError("wrong_type", f"`type` is {raw.get('type')!r}; {topic} takes {name!r}")
    return convert(upcast(raw, name, newest), cls, deep=_may_be_deep(value))


def decode_event(value: bytes | None, known: dict[str, type]) -> Any:
    """Event of ``journal`` or ``library``, lifted to its newest version; None for a type that we don't know.

    An unknown type was written by a newer program: it is not ours to judge, so it is passed over.
    """
    raw = parse(value)
    name = raw.get("type")
    cls = known.get(name) if isinstance(name, str) else None
    if cls is None:
        return None
    event: Any = convert(upcast(raw, cls.__name__, NEWEST_VERSION[cls.__name__]), cls, deep=_may_be_deep(value))
    # The fold must take whatever is decoded: a day that doesn't exist is told here, not there.
    instant_ms(event.occurred_at)
    instant_ms(event.recorded_at)
    return event


def convert(raw: Any, cls: type[T], *, deep: bool = True) -> T:
    """Validate plain JSON data against a contract type; ``deep``: it may be nested too deep, so that is looked at."""
    try:
        value = msgspec.convert(raw, cls)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, ContractError):
            raise cause from None
        text = _in_words(str(error))
        raise ContractError("too_large" if " of length <= " in text else "invalid", text) from error
    if deep and _depth_exceeds(raw, DEPTH_MAX):
        raise ContractError("invalid", f"nested more than {DEPTH_MAX} deep")
    return value


def encode(message: Any) -> bytes:
    """Canonical bytes of a message: fields in the order of the type, no spaces, UTF-8.

    Raises
    ------
    ContractError
        ``invalid`` where a free-form field holds something that JSON can't.
    """
    try:
        return orjson.dumps(message)
    except TypeError as error:  # orjson.JSONEncodeError is a TypeError
        raise ContractError("invalid", f"can't be written as JSON: {error}") from error


def content_digest(turn: Turn | TurnRecorded) -> str:
    """Digest of what makes two posts of a turn id the same: everything but envelope and position."""
    fields = ("session_id", "speaker", "text", "occurred_at", "name", "model", "recall_id", "captions", "metadata")
    content = {name: getattr(turn, name) or None for name in fields}
    return derived_id("turn-content", orjson.dumps(content, option=orjson.OPT_SORT_KEYS).decode())


def turn_of(event: TurnRecorded) -> Turn:
    """The turn as it was posted."""
    return Turn(
        **{
            field.name: getattr(event, field.name)
            for field in dataclasses.fields(Turn)
            if field.name not in ("type", "version")
        }
    )


_PATTERN_WORDS = {
    r"0-\\x1f": "no control characters (an id is non-empty text of up to 200 characters)",
    r"\\d{4}": "an RFC 3339 time with offset, such as 2026-05-20T19:03:11.250+08:00",
    r"\\x00": "no NUL character",
}


def _in_words(message: str) -> str:
    """msgspec's message with the regular expressions of this contract said in words."""
    head, regex, tail = message.partition("`str` matching regex ")
    if not regex:
        return message
    where = tail[tail.rfind(" - at ") :] if " - at " in tail else ""
    words = next((words for part, words in _PATTERN_WORDS.items() if part in tail), tail)
    return f"{head}{words}{where}"


def _may_be_deep(value: bytes | None) -> bool:
    """Whether JSON has enough brackets to be nested too deep: walking every event cost 7 % of a replay."""
    return value is not None and value.count(b"{") + value.count(b"[") > DEPTH_MAX


def _depth_exceeds(value: Any, limit: int) -> bool:
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict):
            children = item.values()
        elif isinstance(item, list):
            children = item  # type: ignore[assignment]
        else:
            continue
        if depth > limit:
            return True
        stack.extend((child, depth + 1) for child in children if isinstance(child, dict | list))
    return False
