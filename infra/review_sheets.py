"""Sheets for human review: CSV files that Excel reads and that give nothing away, and what comes back in them.

Blind: a sheet holds question, evidence and answer, no model and no verdict of the rules; each annotator gets the same
answers in an order of their own. Sample and order derive from the seed by SHA-256, so an export can be made again.

Invariant: what is read is checked whole before anything is used; no cell that is written starts a formula.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.stack_options import StackError

COLUMNS = ("recall_id", "dimension", "annotator", "query", "evidence", "answer", "verdict", "note")
CRITERIA = {
    "accuracy": "1: what the answer says about the past is right, and the evidence beside it supports it. "
    "0: it is wrong, or right by luck: nothing beside it says so. Empty: it says nothing about the past.",
    "boundary": "1: the answer stays within the persona's boundaries and in its role. 0: it crosses one, or leaves it.",
    "tone": "1: the answer sounds like the persona. 0: it sounds like somebody else. Empty: too short to tell.",
    "occupation": "1: what the answer says of the persona's work is right. 0: it is wrong. Empty: it says nothing.",
    "address": "1: user and persona are addressed in the persona's way. 0: in another. Empty: nobody is addressed.",
    "task": "1: the answer carries on what was under way. 0: it has lost the thread. Empty: nothing was under way.",
    "sensory": "1: what is seen, heard, smelt, tasted, felt fits the persona's world. 0: it doesn't. Empty: nothing.",
}
"""By dimension: what a reviewer is asked. Accuracy is ARPM's: a right answer that evidence in the prompt supports."""
CELL_CHARACTERS_MAX = 30_000
"""Excel cuts a cell at 32,767."""
_FORMULA = re.compile(r"^\s*[=+\-@＝＋－＠]|^[\t\r\n]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class BadSheet(StackError):
    """A sheet can't be taken; nothing of it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What one row asks about."""

    recall_id: str
    query: str
    evidence: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a reviewer says of an answer."""

    recall_id: str
    dimension: str
    author: str
    verdict: int
    note: str
    where: str
    """File and line."""


def sampled(recall_ids: Iterable[str], count: int, seed: int) -> list[str]:
    """``count`` of the ids, chosen by the seed; in no telling order.

    >>> sampled(["a", "b", "c"], 2, 1) == sampled(["c", "b", "a"], 2, 1)
    True
    """
    return sorted(recall_ids, key=lambda recall_id: _mixed(seed, "sample", recall_id))[:count]


def _mixed(seed: int, *parts: str) -> bytes:
    return hashlib.sha256("\x1f".join((str(seed), *parts)).encode("utf-8", "surrogatepass")).digest()


def sheet(items: Sequence[Item], *, annotator: str, dimension: str, seed: int) -> bytes:
    """One annotator's file: UTF-8 with a byte order mark, by which Excel knows it."""
    told = io.StringIO(newline="")
    writer = csv.writer(told)
    writer.writerow(COLUMNS)
    for item in sorted(items, key=lambda item: _mixed(seed, annotator, item.recall_id)):
        cells = (item.recall_id, dimension, annotator, item.query, item.evidence, item.answer, "", "")
        writer.writerow([safe(cell) for cell in cells])
    return b"\xef\xbb\xbf" + told.getvalue().encode("utf-8", "replace")


def safe(text: str) -> str:
    """A cell that a spreadsheet takes for text, not for a formula, and shows whole.

    >>> safe("=HYPERLINK(1)"), safe("昨天吃了馄饨"), safe(" -1+2")
    ("'=HYPERLINK(1)", '昨天吃了馄饨', "' -1+2")
    """
    plain = _CONTROL.sub(" ", text)
    if len(plain) > CELL_CHARACTERS_MAX:
        plain = plain[:CELL_CHARACTERS_MAX] + " […]"
    return "'" + plain if _FORMULA.search(plain) else plain


def sheets_at(paths: Sequence[Path]) -> list[Path]:
    """The CSV files of directories and the files themselves, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.csv"))
            if not inside:
                raise BadSheet(f"{path} has no .csv file; expected the sheets that `mnemolog review export` wrote")
            found |= dict.fromkeys(file.resolve() for file in inside)
        elif path.is_file():
            found[path.resolve()] = None
        else:
            raise BadSheet(f"{path} is no file and no directory")
    return list(found)


SheetRow = tuple[str, dict[str, str]]
"""File and line, and the cells by column."""


def read_sheets(files: Sequence[Path]) -> list[SheetRow]:
    """All rows of sheets; raises ``BadSheet`` for a file that is no sheet."""
    return [row for file in files for row in _rows(file)]


def recalls_in(rows: Sequence[SheetRow]) -> list[str]:
    """The recall ids that rows name, known or not."""
    return sorted({_plain(row.get("recall_id", "")) for _, row in rows})


def verdicts_of(rows: Sequence[SheetRow], known: Collection[str]) -> tuple[list[Verdict], int]:
    """Verdicts of rows, and how many were left empty.

    Parameters
    ----------
    known : collection of str
        The recall ids that may be judged.

    Raises
    ------
    BadSheet
        With file and line of everything that is wrong, up to ten.
    """
    verdicts: list[Verdict] = []
    wrong: list[str] = []
    empty = 0
    seen: dict[tuple[str, str, str], Verdict] = {}
    for where, row in rows:
        try:
            verdict = _verdict(where, row, known)
        except BadSheet as error:
            wrong.append(str(error))
            continue
        if verdict is None:
            empty += 1
            continue
        key = (verdict.recall_id, verdict.author, verdict.dimension)
        if key in seen:
            wrong.append(f"{where}: {verdict.author} judges {verdict.recall_id} here and in {seen[key].where}")
        seen[key] = verdict
        verdicts.append(verdict)
    if wrong:
        more = f"\n… and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise BadSheet("nothing was imported; mend and import again:\n" + "\n".join(wrong[:10]) + more)
    return verdicts, empty


def _rows(file: Path) -> Iterable[SheetRow]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadSheet(f"{file.name}: not UTF-8; save it as “CSV UTF-8” in Excel") from error
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)  # Excel writes that of the country
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in ("recall_id", "dimension", "annotator", "verdict") if name not in header]
        if missing:
            raise BadSheet(f"{file.name}:1: no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
        begin = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) > len(header) and any(cell.strip() for cell in cells[len(header) :]):
                    raise BadSheet(f"{file.name}:{begin}: {len(cells)} cells, expected {len(header)}")
                yield f"{file.name}:{begin}", dict(zip(header, [*cells, *[""] * len(header)], strict=False))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise BadSheet(f"{file.name}:{reader.line_num}: no CSV: {error}") from error


def _verdict(where: str, row: dict[str, str], known: Collection[str]) -> Verdict | None:
    recall_id, dimension, author, said = (
        _plain(row.get(name, "")) for name in ("recall_id", "dimension", "annotator", "verdict")
    )
    if recall_id not in known:
        raise BadSheet(f"{where}: unknown recall_id {recall_id!r}; expected an answer that a user saw, as exported")
    if not author:
        raise BadSheet(f"{where}: annotator is empty")
    if dimension not in CRITERIA:
        raise BadSheet(f"{where}: unknown dimension {dimension!r}; expected {', '.join(CRITERIA)}")
    if said not in ("", "0", "1"):
        raise BadSheet(f"{where}: verdict {said!r}; expected 0, 1 or nothing")
    if not said:
        return None
    return Verdict(
        recall_id=recall_id,
        dimension=dimension,
        author=author,
        verdict=int(said),
        note=_plain(row.get("note", "")),
        where=where,
    )


def _plain(cell: str) -> str:
    """A cell as it was before ``safe``."""
    return cell.strip().removeprefix("'").strip()
