"""What an importer hands over, whatever the format: turns in order of time, and what was left out and why.

Invariant: every record of a file ends as a turn, a `Skipped` (nothing to import, no fault) or a `Bad` (a fault, named
by its place). Nothing is lost in silence, and one bad record never costs another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Speaker = Literal["user", "assistant"]

# The wire contract's bound on every id.
ID_CHARS_MAX = 200
# Longer texts are no chat turns but pasted books; the journal's message limit (1 MB) holds 200,000 characters of
# 4 UTF-8 bytes each with room for the other fields.
TEXT_CHARS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """One turn, ready to be posted; `user_id` and `role_id` are the importer's business, not the file's.

    Attributes
    ----------
    turn_id, session_id
        Non-empty, at most 200 characters, the same at every import of the same file.
    occurred_at
        RFC 3339 with offset and milliseconds.
    captions
        Descriptions of pictures; they stand in `text` too. Links to pictures are never kept.
    where
        Physical line number, node id, or number of the conversation, for messages to people.
    """

    turn_id: str
    session_id: str
    speaker: Speaker
    text: str
    occurred_at: str
    name: str | None
    model: str | None
    captions: tuple[str, ...]
    metadata: dict[str, Any] | None
    where: str


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that could not be read: `where` it is and what is wrong with it."""

    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is no turn of a conversation (system prompt, tool call, duplicate): `where` and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExportRead:
    """Everything that was found in one file; `turns` are in order of time, then of the file."""

    format: str
    conversations: int
    turns: list[ImportedTurn]
    skipped: list[Skipped]
    bad: list[Bad]


class UnreadableExport(Exception):
    """The whole file cannot be read; the message says what is wrong, what was expected and what to do next."""
