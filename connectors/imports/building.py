"""Drafts of turns -> turns with ids, sessions and times that are the same at every import.

Invariants: no two turns of a file have the same id; the same record gets the same id, session and time again, also in a
later export of the same source that has grown at its end. Neither the clock nor the file's name nor its date is used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from connectors.imports.model import (
    ID_CHARS_MAX,
    TEXT_CHARS_MAX,
    Bad,
    ExportRead,
    ImportedTurn,
    Skipped,
    Speaker,
)
from connectors.imports.times import rfc3339

# Times for what has none: a conversation's number in the file times ten minutes after this day. A million
# conversations fill nineteen years, so that none of them lies in the future.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
SLOT = timedelta(minutes=10)
# Within its ten minutes: a second a turn at first, then a millisecond, so that slots hold 100,000 turns in order.
_SECONDS_MAX = 500

_FORBIDDEN = re.compile("[\x00\ud800-\udfff]")


@dataclass(slots=True)
class Draft:
    """A turn as a format's reader found it; `at` is None where the file has no time for it."""

    speaker: Speaker
    text: str
    where: str
    at: datetime | None = None
    native_id: str | None = None
    name: str | None = None
    model: str | None = None
    captions: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


def digest(*parts: object) -> str:
    """Return 32 hex digits for a sequence of values; the separator keeps ("ab", "c") from ("a", "bc").

    Examples
    --------
    >>> digest("a", 1) == digest("a", 1), digest("ab", "c") == digest("a", "bc")
    (True, False)
    """
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def clean(text: str) -> str:
    """Remove NUL and lone surrogates, which JSON, Kafka clients and ClickHouse stumble over; CRLF becomes LF."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return _FORBIDDEN.sub("", text) if _FORBIDDEN.search(text) else text


def clean_id(value: Any) -> str | None:
    """Return an id of 1 to 200 characters, or None for nothing; longer ones keep their beginning and get a digest."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    text = clean(str(value)).strip()
    if not text:
        return None
    return text if len(text) <= ID_CHARS_MAX else f"{text[: ID_CHARS_MAX - 33]}-{digest(text)}"


def clean_json(value: Any) -> Any:
    """Apply `clean` to all texts of a JSON value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    return value


def step(position: int) -> timedelta:
    """Return how long after its conversation's begin a turn without time is said to be.

    Examples
    --------
    >>> step(3), step(500) < step(501) < SLOT
    (datetime.timedelta(seconds=3), True)
    """
    if position < _SECONDS_MAX:
        return timedelta(seconds=position)
    return timedelta(seconds=_SECONDS_MAX, milliseconds=position - _SECONDS_MAX)


def filled_times(times: Sequence[datetime | None], started: datetime) -> list[datetime]:
    """Give turns without a time one between their neighbours', in order; without any, times after `started`.

    Examples
    --------
    >>> day = datetime(2026, 1, 1, tzinfo=UTC)
    >>> [at.microsecond for at in filled_times([None, day, None], day)]
    [999000, 0, 1000]
    """
    first = next((index for index, at in enumerate(times) if at is not None), None)
    if first is None:
        return [started + step(index) for index in range(len(times))]
    after = times[first]
    assert after is not None
    filled = [after - timedelta(milliseconds=first - index) for index in range(first)]
    following: list[datetime | None] = [None] * len(times)
    latest: datetime | None = None
    for index in range(len(times) - 1, -1, -1):
        following[index] = latest
        latest = times[index] or latest
    for index in range(first, len(times)):
        at = times[index]
        if at is None:
            at = filled[-1] + timedelta(milliseconds=1)
            bound = following[index]
            if bound is not None and at > bound >= filled[-1]:
                at = bound.astimezone(at.tzinfo)
        filled.append(at)
    return filled


class Collector:
    """Collects the turns of one file; readers call `add` once per conversation, or `place` once per row."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.conversations = 0
        self.skipped: list[Skipped] = []
        self.bad: list[Bad] = []
        self._turns: list[tuple[datetime, ImportedTurn]] = []
        self._index_of: dict[str, int] = {}

    def skip(self, where: str, reason: str) -> None:
        """Note a record that is no turn."""
        self.skipped.append(Skipped(where, reason))

    def fault(self, where: str, message: str) -> None:
        """Note a record that cannot be read."""
        self.bad.append(Bad(where, clean(message)))

    def slot(self, number: int) -> datetime:
        """Return the begin of conversation `number` (of the file), if nothing tells its time."""
        return (EPOCH + SLOT * number).astimezone(self.zone)

    def add(
        self, kind: str, session_id: str, drafts: Iterable[Draft], number: int, started: datetime | None = None
    ) -> None:
        """Place the turns of one conversation, in their order.

        Parameters
        ----------
        kind
            Beginning of the ids that are made here.
        session_id
            The conversation's id; ids of turns are made from it, so it must not depend on what may be added later.
        number
            Which conversation of the file it is, for times that are not known.
        started
            When the conversation began, if that is known.
        """
        kept = [draft for draft in drafts if self.accepts(draft)]
        if not kept:
            return
        self.conversations += 1
        begin = started or self.slot(number)
        for position, (draft, at) in enumerate(
            zip(kept, filled_times([draft.at for draft in kept], begin), strict=True)
        ):
            made = f"{kind}-{digest(session_id, position, draft.speaker, draft.text)}"
            self.place(draft, session_id, at, draft.native_id or made)

    def accepts(self, draft: Draft) -> bool:
        """Clean a draft's text; note and refuse one that is empty or too long."""
        draft.text = clean(draft.text)
        if not draft.text.strip():
            self.skip(draft.where, "empty text")
            return False
        if len(draft.text) > TEXT_CHARS_MAX:
            self.fault(
                draft.where, f"text of {len(draft.text)} characters; at most {TEXT_CHARS_MAX} are taken: split it"
            )
            return False
        return True

    def place(self, draft: Draft, session_id: str, at: datetime, turn_id: str, strict: bool = False) -> None:
        """Add a turn unless its id is taken: with the same content it is a duplicate; with other content a fault
        (`strict`: ids are the user's own), or, in another conversation, another turn whose id needs its conversation's.
        """
        turn_id = clean_id(turn_id) or digest(session_id, draft.text)
        if turn_id in self._index_of:
            other_at, other = self._turns[self._index_of[turn_id]]
            same = other.speaker == draft.speaker and other.text == draft.text and other_at == at
            if same and (other.session_id == session_id or not strict):
                return self.skip(draft.where, f"duplicate of turn {turn_id} ({other.where})")
            if strict or other.session_id == session_id:
                return self.fault(
                    draft.where, f"turn id {turn_id!r} is taken by other content ({other.where}); the first one is kept"
                )
            turn_id = clean_id(f"{session_id}:{turn_id}") or turn_id
            if turn_id in self._index_of:
                return self.fault(draft.where, f"turn id {turn_id!r} is taken twice in one conversation")
        self._index_of[turn_id] = len(self._turns)
        name = clean(draft.name).strip() if isinstance(draft.name, str) else None
        model = clean(draft.model).strip() if isinstance(draft.model, str) else None
        turn = ImportedTurn(
            turn_id, session_id, draft.speaker, draft.text, rfc3339(at), name or None, model or None,
            tuple(clean(caption) for caption in draft.captions), draft.metadata, draft.where,
        )  # fmt: skip
        self._turns.append((at, turn))
        return None

    def result(self, format: str) -> ExportRead:
        """Return everything in order of time; of the same time, in order of the file."""
        self._turns.sort(key=lambda pair: pair[0])
        turns = [turn for _, turn in self._turns]
        return ExportRead(
            format, self.conversations, turns, sorted(self.skipped, key=_by_line), sorted(self.bad, key=_by_line)
        )


def _by_line(record: Skipped | Bad) -> int:
    return int(record.where) if record.where.isdecimal() and len(record.where) < 16 else 0
