"""Sections of an answer that came as a JSON object, whole or broken.

Invariant: only an object that begins the answer counts, or one that follows a short preface; an object further on is
something that the answer quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streams.core.tags import NAME, NAMES

_KEY = rf"\{{\s{{0,20}}[\"'](?:{NAME}|[a-z_]{{1,20}}[\"']\s{{0,9}}:\s{{0,20}}\{{\s{{0,20}}[\"']{NAME})[\"']\s{{0,9}}:"
_OBJECT = re.compile(rf"(?P<before>[^{{]{{0,2000}})(?P<object>{_KEY})", re.IGNORECASE)
_TAGGED = re.compile(rf"[<＜]\s?/?{NAME}", re.IGNORECASE)
PREFACE_MAX = 200
"""Characters before a JSON object that is the answer; further on an object is something that the answer quotes."""
_PAIR = re.compile(rf'"(?P<name>{NAME})"\s{{0,20}}:\s{{0,20}}"(?P<value>(?:[^"\\]|\\.)*)', re.IGNORECASE | re.DOTALL)
_PAIR_SINGLE = re.compile(
    rf"'(?P<name>{NAME})'\s{{0,20}}:\s{{0,20}}'(?P<value>(?:[^'\\]|\\.|'(?!\s{{0,9}}[,}}]))*)'",
    re.IGNORECASE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "", "b": "", "f": ""}


@dataclass(frozen=True, slots=True)
class KeyedSections:
    """Analysis and response by their keys; None where there is no such key."""

    analysis: str | None
    response: str | None
    faults: frozenset[str]


def json_sections(whole: str) -> KeyedSections | None:
    """Sections of a JSON object, also of one that is cut off, holds raw line breaks or stands in single quotes.

    Returns
    -------
    KeyedSections or None
        None where the answer is no such object.

    >>> found = json_sections('{"analysis": "E1", "reply": "Wonton')
    >>> found.analysis, found.response
    ('E1', 'Wonton')
    """
    begin = _OBJECT.match(whole)
    if begin is None or len(begin["before"]) > PREFACE_MAX or _TAGGED.search(begin["before"]):
        return None
    text = whole[begin.start("object") :]
    values = _whole_object(text)
    cut = values is None
    if values is None:
        values = {m["name"]: _decoded(m["value"]) for m in _PAIR.finditer(text)}
        values |= {m["name"]: _decoded(m["value"]) for m in _PAIR_SINGLE.finditer(text)} if not values else {}
    sections = _sections(values, depth=3)
    if not sections:
        return None
    faults = {"json"} | ({"malformed"} if cut else set())
    before = begin["before"].strip()
    if "```" in before:
        faults.add("fenced")
    if before and not before.startswith("```") and before != "[":
        faults.add("leading_text")
    return KeyedSections(sections.get("analysis"), sections.get("response"), frozenset(faults))


def _sections(values: dict[str, Any], depth: int) -> dict[str, str]:
    """Analysis and response by their keys, from the object or from one inside of it."""
    found: dict[str, str] = {}
    inner = [value for value in values.values() if isinstance(value, dict)] if depth else []
    for key, value in values.items():
        kind = NAMES.get(str(key).strip().casefold(), (None, None))[0]
        if kind is not None and not (kind == "response" and isinstance(value, dict)):
            found.setdefault("analysis" if kind == "think" else kind, _as_text(value))
    for value in inner:
        if "response" not in found:
            found = {**found, **_sections(value, depth - 1)}
    return found


def _whole_object(text: str) -> dict[str, Any] | None:
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _decoded(value: str) -> str:
    def one(match: re.Match[str]) -> str:
        sign = match[1]
        return chr(int(sign[1:], 16)) if len(sign) == 5 else _ESCAPES.get(sign, sign)

    plain = _ESCAPE.sub(one, value)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # pairs of escapes are one character


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable) and not isinstance(value, dict):
        return "\n".join(map(str, value))
    return json.dumps(value, ensure_ascii=False)
