"""What every message shares: constrained scalars, instants, ids derived from causes, CloudEvents headers.

Invariant: an id that is derived is derived from content or cause alone, so that a repeated effect or a
repeated post gets the id it had the first time and the fold can drop it.
"""

from __future__ import annotations

import datetime as dt
import uuid
from functools import lru_cache
from typing import Annotated, Any

import msgspec

ID_LENGTH_MAX = 200
TEXT_LENGTH_MAX = 200_000
"""Characters of one turn; a longer utterance is a document."""
DOCUMENT_LENGTH_MAX = 4_000_000
"""Characters of one document: at up to 4 bytes each it fits the 16 MiB that the documents topic accepts."""

NAMESPACE = uuid.UUID("6f3c1a52-6d0c-5b7a-9d55-6d6e656d6f6c")
"""Namespace of all derived ids (``uuid5``)."""

NO_NUL = r"^(?![\s\S]*\x00)"
"""Anything without NUL, which C libraries would cut at. In the dialect that JSON Schema and Python share."""

# Control characters in an id break log lines, shells and consoles, and no id generator makes them.
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_LENGTH_MAX, pattern=r"^(?![\s\S]*[\x00-\x1f\x7f])")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_LENGTH_MAX, pattern=NO_NUL)]
ShortText = Annotated[str, msgspec.Meta(max_length=2_000, pattern=NO_NUL)]
Instant = Annotated[
    str,
    msgspec.Meta(
        max_length=40,
        pattern=r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$",
        description="RFC 3339 date-time with offset",
        extra_json_schema={"format": "date-time"},
    ),
]
Metadata = dict[str, Any]

YEAR_MIN, YEAR_MAX = 1900, 2299
"""Years that ClickHouse's DateTime64(3) can hold."""

SOURCE = "/mnemolog"


class ContractError(ValueError):
    """A message that breaks the contract. Terminal: it goes to dead letters with this code and message.

    Parameters
    ----------
    code : str
        Machine-readable cause: ``not_json``, ``invalid``, ``wrong_type``, ``unknown_version``, ``too_large``,
        ``bad_time``, ``bad_header``, ``conflicting_duplicate``.
    message : str
        What is wrong, where, expected versus got.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@lru_cache(maxsize=4096)  # An event is asked for its times three or four times while it is folded.
def instant_ms(instant: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 instant.

    Raises
    ------
    ContractError
        ``bad_time`` where the date does not exist, has no offset, or lies outside the years 1900 to 2299.

    >>> instant_ms("1970-01-01T08:00:00.250+08:00")
    250
    """
    try:
        # 3.11's parser takes at most 6 fractional digits as 3 or 6; msgspec takes all of RFC 3339.
        moment = msgspec.convert(instant.replace(" ", "T", 1), dt.datetime)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ContractError("bad_time", f"{instant!r} is not a time that exists (RFC 3339): {error}") from error
    if moment.tzinfo is None:
        raise ContractError(
            "bad_time", f"{instant!r} has no offset; expected RFC 3339 such as 2026-05-20T19:03:11+08:00"
        )
    delta = moment - _EPOCH
    milliseconds = delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
    if not _MS_MIN <= milliseconds <= _MS_MAX:
        raise ContractError("bad_time", f"{instant!r} is outside the years {YEAR_MIN} to {YEAR_MAX} (UTC)")
    return milliseconds


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS_MIN = (dt.datetime(YEAR_MIN, 1, 1, tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1)
_MS_MAX = (dt.datetime(YEAR_MAX + 1, 1, 1, tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1) - 1


def instant_of(milliseconds: int) -> str:
    """RFC 3339 instant in UTC of milliseconds since the epoch.

    A time outside the years 1900 to 2299 becomes the nearest inside: the timestamp of a record is whatever its
    producer's clock said, and must not make an instant that nobody can read back.

    >>> instant_of(250), instant_of(-(2**62))
    ('1970-01-01T00:00:00.250Z', '1900-01-01T00:00:00.000Z')
    """
    moment = _EPOCH + dt.timedelta(milliseconds=min(max(milliseconds, _MS_MIN), _MS_MAX))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def derived_id(*parts: str | int) -> str:
    """``uuid5`` over length-prefixed parts: no two lists of parts share an id by concatenation.

    >>> derived_id("a", "bc") == derived_id("ab", "c")
    False
    """
    return str(uuid.uuid5(NAMESPACE, "".join(f"{len(str(part))}:{part}" for part in parts)))


def cloud_event_headers(event_type: str, version: int, event_id: str, occurred_at: str) -> list[tuple[str, bytes]]:
    """CloudEvents 1.0 attributes as Kafka headers (Kafka protocol binding, binary mode)."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_source", SOURCE.encode()),
        ("ce_type", f"mnemolog.{event_type}.v{version}".encode()),
        ("ce_time", occurred_at.encode()),
        ("content-type", b"application/json"),
    ]
