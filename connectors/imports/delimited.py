"""CSV and its kin (semicolon, tab, bar): a header that names the columns, then a turn a row.

Invariants: `where` is the physical line on which a row begins. A row with more cells than the header is a fault, as its
text was cut at an unquoted delimiter; an unclosed quote costs its own line, not the rest of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from connectors.imports.building import Collector
from connectors.imports.model import UnreadableExport
from connectors.imports.rows import Rows, fields_of

DELIMITERS = ",;\t|，；"
# A quoted field longer than this many lines is a quote that was never closed.
_LINES_MAX = 5_000
_EXPECTED = "expected a header row with the columns speaker, text and occurred_at (delimiter , ; tab or |)"


def header_of(text: str) -> tuple[int, str, list[str]] | None:
    """Find the header in the first rows: (its physical line, delimiter, cells), or None.

    Examples
    --------
    >>> header_of("sep=;\\nspeaker;text\\n")
    (2, ';', ['speaker', 'text'])
    >>> header_of("Dear diary, today it rained") is None
    True
    """
    head = text[:65_536]
    declared = re.match(r"\s*\"?sep=(.)\"?\s*?\n", head, re.I)
    for delimiter in [declared[1]] if declared else DELIMITERS:
        for line, cells, fault in islice(records(head, delimiter), 5):
            found = fields_of(cell for cell in cells if cell)
            if fault is None and "text" in found and "speaker" in found:
                return line, delimiter, cells
    return None


def is_table(text: str) -> bool:
    """True if the first line looks like a header with columns of a chat, complete or not."""
    if header_of(text) is not None:
        return True
    first = text[:65_536].lstrip().split("\n", 1)[0]
    return any(len(fields_of(first.split(delimiter))) >= 2 for delimiter in DELIMITERS if delimiter in first)


def read(text: str, label: str, collector: Collector) -> None:
    """Read a table.

    Raises
    ------
    UnreadableExport
        If there is no header that names speaker and text, or no row's speaker is one.
    """
    if "\n" not in text and "\r" in text:
        text = text.replace("\r", "\n")
    header = header_of(text)
    if header is None:
        first = text[:65_536].lstrip().split("\n", 1)[0].strip()
        raise UnreadableExport(f"{label} is no readable csv: {_EXPECTED}, got {first[:120]!r}; rename the columns")
    header_line, delimiter, cells = header
    names = [cell if cell.strip() else f"#{index}" for index, cell in enumerate(cells)]
    while names and names[-1].startswith("#"):
        names.pop()
    names = [name if name not in names[:index] else f"#{index}" for index, name in enumerate(names)]
    rows = Rows("csv", collector)
    faults = len(collector.bad)
    for line, values, fault in records(text, delimiter):
        if line <= header_line or not any(value.strip() for value in values):
            continue
        if fault is not None:
            collector.fault(str(line), fault)
        elif len(values) > len(names) and any(value.strip() for value in values[len(names) :]):
            collector.fault(
                str(line), f"{len(values)} cells for {len(names)} columns; put a text that has {delimiter!r} in quotes"
            )
        elif values == cells:
            collector.skip(str(line), "the header again")
        elif not _spoken(names, values):
            collector.skip(str(line), "not a text message")
        else:
            rows.take(str(line), dict(zip(names, values, strict=False)))
    unknown = sum("unknown speaker" in bad.message for bad in collector.bad[faults:])
    if not rows.rows and unknown and unknown >= len(collector.bad) - faults - 1:
        column = fields_of(names)["speaker"][0]
        raise UnreadableExport(
            f"{label}: no row's speaker is known ({collector.bad[faults].message}); the column {column!r} "
            "seems to hold names: add a column speaker with user or assistant"
        )
    rows.finish()


def _spoken(names: list[str], values: list[str]) -> bool:
    """WeChat exports tell kinds of messages by numbers: 1 is text, the others are pictures, calls and cards in XML."""
    cells = dict(zip(names, values, strict=False))
    return "IsSender" not in cells or cells.get("Type", "1").strip() in ("1", "文本", "")


def records(text: str, delimiter: str) -> Iterator[tuple[int, list[str], str | None]]:
    """Yield (physical line, cells, fault) of each record; blank lines as [""].

    Doubled quotes are quotes; a quote in the middle of a cell is one too.

    Examples
    --------
    >>> list(records('a,"b\\n""c"" d"\\ne', ","))
    [(1, ['a', 'b\\n"c" d'], None), (3, ['e'], None)]
    """
    start, line = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        row = text[start:end].rstrip("\r")
        cells: list[str] | None
        if '"' not in row:
            yield line, row.split(delimiter), None
            start, line = end + 1, line + 1
            continue
        cells, after = _quoted(text, start, delimiter)
        if cells is None:
            yield line, [row], 'a quote (") is opened and never closed, or text follows it'
            start, line = end + 1, line + 1
        else:
            yield line, cells, None
            line += text.count("\n", start, after)
            start = after


def _quoted(text: str, start: int, delimiter: str) -> tuple[list[str] | None, int]:
    """Read one record that has quotes: (cells, where the next record begins); None if its quotes don't match."""
    cells: list[str] = []
    at = start
    while True:
        begin = at
        while text[begin : begin + 1] in (" ", "\t") and text[begin] != delimiter:
            begin += 1
        if text[begin : begin + 1] == '"':
            cell, at = _cell(text, begin + 1, delimiter)
            if cell is None:
                return None, at
        else:
            end_line, end_cell = text.find("\n", at), text.find(delimiter, at)
            end_line = len(text) if end_line < 0 else end_line
            end = end_cell if 0 <= end_cell < end_line else end_line
            cell, at = text[at:end].rstrip("\r"), end
        cells.append(cell)
        if text[at : at + 1] == delimiter:
            at += 1
        else:
            return cells, at + 1


@lru_cache(maxsize=64)
def _cell_end(delimiter: str) -> re.Pattern[str]:
    """What may follow a closing quote: the end of the cell, after blanks."""
    return re.compile(r"[ \t]*(?=\r?\n|\r?\Z|" + re.escape(delimiter) + ")")


def _cell(text: str, at: int, delimiter: str) -> tuple[str | None, int]:
    """Read a quoted cell from behind its opening quote: (content, where its end is)."""
    parts: list[str] = []
    newlines = 0
    while True:
        quote = text.find('"', at)
        if quote < 0:
            return None, at
        piece = text[at:quote]
        newlines += piece.count("\n")
        if newlines > _LINES_MAX:
            return None, at
        after = quote + 1
        if text[after : after + 1] == '"' and not (piece.endswith("\\") and not piece.endswith("\\\\")):
            parts.append(piece + '"')
            at = after + 1
            continue
        ends = _cell_end(delimiter).match(text, after)
        if ends is not None:
            parts.append(piece)
            return "".join(parts), ends.end() + (text[ends.end() : ends.end() + 1] == "\r")
        if newlines:
            return None, at
        parts.append((piece[:-1] if piece.endswith("\\") else piece) + '"')
        at = after
