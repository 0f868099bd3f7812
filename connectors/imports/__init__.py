"""Read exports of conversations, as people have them, into turns ready to be posted.

The contents decide about the format, never the file's name. A format is a module with `read(items, collector)`; the
path is decoding (bytes to text) -> jsontext or delimited (text to values) -> detecting (which format) -> the format's
reader -> building (ids, times, order).

Public: `read_export`, `FORMATS`, and the result's types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

from connectors.imports import apps, chatgpt, claude, delimited, detecting, jsonl, jsontext, locomo, openai
from connectors.imports.building import Collector
from connectors.imports.decoding import Member, members
from connectors.imports.model import Bad, ExportRead, ImportedTurn, Skipped, UnreadableExport
from connectors.imports.times import zone_of

__all__ = ["FORMATS", "Bad", "ExportRead", "ImportedTurn", "Skipped", "UnreadableExport", "read_export"]

_Reader = Callable[[Iterable[tuple[str, Any]], Collector], None]
_READERS: dict[str, _Reader] = {
    "openai": openai.read,
    "chatgpt": chatgpt.read,
    "locomo": locomo.read,
    "jsonl": jsonl.read,
    "claude": claude.read,
    "claude-code": claude.read_code,
    "lobechat": apps.read_lobechat,
    "llamaindex": apps.read_llamaindex,
    "openwebui": apps.read_openwebui,
    "librechat": apps.read_librechat,
    "sillytavern": apps.read_sillytavern,
    "telegram": apps.read_telegram,
}
FORMATS: tuple[str, ...] = ("auto", "openai", "chatgpt", "locomo", "jsonl", "csv", *list(_READERS)[4:])
_SAMPLE_LINES = 200


def read_export(path: Path, format: str = "auto", timezone: str = "UTC", name_hint: str | None = None) -> ExportRead:
    """Read one export.

    Parameters
    ----------
    path
        A file: text, or compressed with gz, bz2, xz or zip.
    format
        One of `FORMATS`; anything but "auto" must agree with the contents.
    timezone
        Zone of local times without one, and the offset in which epochs are written: an IANA name or an offset.
    name_hint
        The file's name for messages, if `path` is a copy under another name.

    Returns
    -------
    ExportRead
        Turns in order of time. The same file gives the same ids, sessions and times again.

    Raises
    ------
    UnreadableExport
        If the file as a whole cannot be read or holds no conversation.
    """
    label = name_hint or path.name
    if format not in FORMATS:
        raise UnreadableExport(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    try:
        collector = Collector(zone_of(timezone))
    except ValueError as error:
        raise UnreadableExport(str(error)) from None
    found: list[str] = []
    refused: list[UnreadableExport] = []
    for member in members(path, label, collector.skipped):
        here = f"{label}/{member.name}" if member.name else label
        try:
            found.append(_read_member(member, here, format, collector))
        except UnreadableExport as error:
            refused.append(error)
            if member.name:
                collector.skip(member.name, str(error))
    if not found:
        raise _refused(label, refused, collector)
    result = collector.result(found[0])
    if not (result.turns or result.skipped or result.bad):
        raise UnreadableExport(f"{label} ({found[0]}) holds no turns; nothing to import")
    return result


def _refused(label: str, refused: list[UnreadableExport], collector: Collector) -> UnreadableExport:
    if len(refused) == 1:
        return refused[0]
    names = ", ".join(skipped.where for skipped in islice(collector.skipped, 10)) or "nothing"
    return UnreadableExport(
        f"{label} is an archive (zip) without an export in a known format (found: {names}); unpack it and give the file"
    )


def _read_member(member: Member, label: str, format: str, collector: Collector) -> str:
    data = member.data
    head = data[:65_536].lstrip() or data.lstrip()
    if not head:
        raise UnreadableExport(f"{label} is empty ({len(data)} bytes); nothing to import")
    looks_json = head[:1] in (b"{", b"[") or (head[:1] == b'"' and _is_json_string(data))
    if format == "csv" and looks_json:
        raise UnreadableExport(f"{label} is JSON, not csv: no header row with columns; use --format jsonl or auto")
    if not looks_json and format != "csv" and jsontext.is_lines(data) and delimited.header_of(_head(data)) is None:
        return _read_lines(data, label, format, collector)  # its first line is broken
    if not looks_json:
        return _read_table(data, label, format, collector)
    if jsontext.is_lines(data):
        return _read_lines(data, label, format, collector)
    try:
        value = jsontext.document(data)
        if isinstance(value, str):  # LlamaIndex writes JSON inside of a JSON string
            value = jsontext.document(value.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        values = jsontext.sequence(data) if data.lstrip()[:1] == b"{" else None
        if values is None:
            raise UnreadableExport(f"{label} is not valid JSON: {error}; mend it or export it again") from None
        return _read_values(iter(values), label, format, collector)
    name, items = detecting.items_of(value, label)
    if isinstance(value, dict) and len(items) == 1 and items[0][1] is value:
        items = [(str(next(jsontext.lines(data))[0]), value)]
    del value
    return _run(name, items, label, format, collector)


def _head(data: bytes) -> str:
    return data[:65_536].decode("utf-8", errors="replace")


def _is_json_string(data: bytes) -> bool:
    stripped = data.strip()
    if stripped[-1:] != b'"' or b"\n" in stripped:
        return False
    try:
        return isinstance(jsontext.parse(stripped), str) and stripped[1:3].lstrip()[:1] in (b"{", b"[", b"\\")
    except ValueError:
        return False


def _read_lines(data: bytes, label: str, format: str, collector: Collector) -> str:
    return _read_values(jsontext.line_values(data, collector.fault), label, format, collector)


def _read_values(values: Iterable[tuple[str, Any]], label: str, format: str, collector: Collector) -> str:
    iterator = iter(values)
    head = list(islice(iterator, _SAMPLE_LINES))
    name = detecting.sampled(value for _, value in head)
    if name is None:
        if format == "auto" or not head:
            raise detecting.refusal(label, [value for _, value in head])
        name = format
    return _run(name, chain(head, iterator), label, format, collector)


def _run(name: str, items: Iterable[tuple[str, Any]], label: str, format: str, collector: Collector) -> str:
    if format not in ("auto", name):
        raise UnreadableExport(
            f"{label} was given as format {format} but holds {name}; use --format {name} or --format auto"
        )
    _READERS[name](items, collector)
    return name


def _read_table(data: bytes, label: str, format: str, collector: Collector) -> str:
    text = data.decode("utf-8")
    if format not in ("auto", "csv"):
        raise UnreadableExport(f"{label} is not JSON, so not in the format {format}; use --format csv or auto")
    start = text[:65_536].lstrip()[:200].lower()
    if start.startswith(("<!doctype html", "<html", "<?xml", "<")):
        raise UnreadableExport(f"{label} is HTML or XML, a format that is not supported; give the JSON or CSV export")
    if format == "auto" and not delimited.is_table(text):
        first = text[:65_536].lstrip().split("\n", 1)[0].strip()[:120]
        raise UnreadableExport(
            f"{label} is text in an unknown format (first line {first!r}): neither JSON nor a CSV with a header row; "
            "expected columns speaker, text and occurred_at, or an export of ChatGPT, Claude, OpenAI messages or LoCoMo"
        )
    delimited.read(text, label, collector)
    return "csv"
