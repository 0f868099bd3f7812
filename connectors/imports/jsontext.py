"""JSON texts: whole documents, one value a line, or values one after another.

Invariant: a line ends at a line feed only (U+2028, U+2029, U+0085 and form feeds belong to the text), and numbers of
lines are physical ones, counted from 1. A line that is no JSON costs itself only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import orjson

# Lines looked at to tell JSON lines from a document.
_SAMPLE_LINES = 200
_decoder = json.JSONDecoder(strict=False)


def parse(data: bytes) -> Any:
    """Parse one JSON value; what orjson refuses though people have it (lone surrogates, raw control characters, NaN) is
    left to the standard library.

    Raises
    ------
    ValueError
        With line and column.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return _decoder.decode(data.decode("utf-8"))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the lines that aren't blank; a lone CR ends lines only in files without LF."""
    newline = b"\n" if b"\n" in data or b"\r" not in data else b"\r"
    start, number, size = 0, 1, len(data)
    while start < size:
        end = data.find(newline, start)
        end = size if end < 0 else end
        line = data[start:end].strip()
        if line.startswith(b"\xef\xbb\xbf"):  # files put together with cat
            line = line[3:].strip()
        if line:
            yield number, line
        start, number = end + 1, number + 1


def is_lines(data: bytes) -> bool:
    """True if a text that begins like JSON is one value a line, of several lines; a document's own error counts later.

    Examples
    --------
    >>> is_lines(b'{"a": 1}\\n{"a": 2}'), is_lines(b'[\\n{"a": 1},\\n{"a": 2}\\n]'), is_lines(b'{"a": 1}')
    (True, False, False)
    """
    good = seen = 0
    first_is_whole = False
    first = b""
    for _, line in lines(data):
        seen += 1
        value: Any = None
        try:
            value = parse(line)
        except ValueError:
            pass
        whole = isinstance(value, dict | list) and bool(value)
        if seen == 1:
            first_is_whole, first = whole, line
        elif first_is_whole:
            return True
        elif isinstance(value, dict) and value:
            good += 1
        if seen >= _SAMPLE_LINES:
            break
    opens_array = first.startswith(b"[") and not first.endswith(b"]")
    if (
        seen < 2 or good < (2 if opens_array else 1) or first in (b"[", b"{")
    ):  # an array's last line has no comma either
        return False
    return not _is_document(data)


def _is_document(data: bytes) -> bool:
    stripped = data.strip()
    if (stripped[:1], stripped[-1:]) not in ((b"{", b"}"), (b"[", b"]")):
        return False
    try:
        parse(stripped)
    except ValueError:
        return False
    return True


def line_values(data: bytes, fault: Callable[[str, str], None]) -> Iterator[tuple[str, Any]]:
    """Yield (line number, value) of JSON lines; lines that are no JSON go to `fault`, several values on a
    line are taken one by one.
    """
    for number, line in lines(data):
        try:
            value = parse(line)
        except ValueError as error:
            several = _several(line)
            if several is None:
                fault(str(number), f"not valid JSON: {_reason(error)}")
            else:
                for value in several:
                    yield str(number), value
            continue
        yield str(number), value


def _several(line: bytes) -> list[Any] | None:
    """Return the values of `{...}{...}`, or None if the line is anything else."""
    if b"}{" not in line and b"} {" not in line:
        return None
    text, values, position = line.decode("utf-8"), [], 0
    try:
        while position < len(text):
            value, position = _decoder.raw_decode(text, position)
            values.append(value)
            while position < len(text) and text[position].isspace():
                position += 1
    except (ValueError, RecursionError):
        return None
    return values


def sequence(data: bytes) -> list[tuple[str, Any]] | None:
    """Return (line number, value) of objects written one after another as jq prints them, or None."""
    text, position, number = data.decode("utf-8"), 0, 1
    found: list[tuple[str, Any]] = []
    while position < len(text):
        if text[position].isspace():
            number += text[position] == "\n"
            position += 1
            continue
        try:
            value, end = _decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        found.append((str(number), value))
        number += text.count("\n", position, end)
        position = end
    return found


def document(data: bytes) -> Any:
    """Parse a whole document.

    Raises
    ------
    ValueError
        With line, column and the usual cause.
    """
    try:
        return parse(data.strip())
    except ValueError as error:
        reason = _reason(error)
        before = data[: getattr(error, "pos", 0)].rstrip()[-1:] if isinstance(error, json.JSONDecodeError) else b""
        if before == b",":
            reason += " (a trailing comma before it?)"
        elif isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip()) - 1:
            reason += " (the file seems to be cut off: download it again)"
        raise ValueError(reason) from None


def _reason(error: ValueError) -> str:
    text = str(error)
    return text if len(text) < 200 else text[:200]
