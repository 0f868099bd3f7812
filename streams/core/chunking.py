"""Documents cut into parents, which are shown, and children, which are matched.

Invariants: linear time for any text; no empty piece; pieces don't overlap, keep the order of the text and cover all of
it but white space; every child lies in its parent. Offsets count characters (code points) of the document.

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM), parent and child chunks of the knowledge path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streams.core.settings import ChunkingSettings, resolve

# From the strongest break to the weakest: paragraph, line, sentence, clause, word. A break is where the next piece may
# begin; closing quotes and brackets stay with the sentence they close.
_BREAKS = (
    re.compile(r"\n[ \t\u3000]*\n\s*"),
    re.compile(r"\n\s*"),
    re.compile(r"[。！？!?…]+[”’」』）)\]\"']*\s*|\.[”’)\]\"']*\s+"),
    re.compile(r"[；;，,：:、]\s*"),
    re.compile(r"\s+"),
)
FILL_MIN = 0.5
"""A piece is cut at the strongest kind of break in the second half of its size: full enough and natural."""


@dataclass(frozen=True, slots=True)
class Child:
    """``[start, end)`` of the document, and the text there."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Parent:
    """``[start, end)`` of the document, the text there, and its children."""

    index: int
    start: int
    end: int
    text: str
    children: tuple[Child, ...]


def parents(text: str, settings: ChunkingSettings | None = None) -> tuple[Parent, ...]:
    """Parents of a document with their children.

    Parameters
    ----------
    text : str
        Of any length, with or without punctuation.
    settings : ChunkingSettings, optional
        ``parent_characters`` and ``child_characters`` are the greatest sizes; by default the default preset's.

    Returns
    -------
    tuple of Parent
        Empty for a text of white space only.

    >>> from streams.core.settings import resolve
    >>> sizes = resolve(None, {"chunking.parent_characters": 100, "chunking.child_characters": 20}).chunking
    >>> parent, = parents("昨天吃了馄饨。今天下雨了，没有出门！\\n\\n明天再说。", sizes)
    >>> [(child.start, child.text) for child in parent.children]
    [(0, '昨天吃了馄饨。今天下雨了，没有出门！'), (20, '明天再说。')]
    """
    sizes = settings or resolve().chunking
    return tuple(
        Parent(
            index=index,
            start=start,
            end=end,
            text=text[start:end],
            children=tuple(
                Child(first, last, text[first:last])
                for first, last in _pieces(text, start, end, sizes.child_characters)
            ),
        )
        for index, (start, end) in enumerate(_pieces(text, 0, len(text), sizes.parent_characters))
    )


def _pieces(text: str, start: int, end: int, size_max: int) -> Iterator[tuple[int, int]]:
    """Spans of at most ``size_max`` characters without white space at either end."""
    start = _skip(text, start, end)
    while start < end:
        cut = end if end - start <= size_max else _cut(text, start, start + size_max)
        yield start, _strip(text, start, cut)
        start = _skip(text, cut, end)


def _cut(text: str, start: int, limit: int) -> int:
    """Where a piece that begins at ``start`` ends, at most at ``limit``."""
    least = start + max(1, int((limit - start) * FILL_MIN))
    for pattern in _BREAKS:
        found = None
        for match in pattern.finditer(text, least, limit):
            found = match.end()
        if found is not None:
            return found
    return limit if _whole(text, limit) else limit - 1


def _whole(text: str, at: int) -> bool:
    """Whether a cut leaves a character with its combining marks, joiners and variation selectors together."""
    return not (at < len(text) and (text[at] in "\u200d\ufe0f\u20e3" or text[at - 1] == "\u200d"))


def _skip(text: str, start: int, end: int) -> int:
    """First position from ``start`` that is not white space."""
    while start < end and text[start].isspace():
        start += 1
    return start


def _strip(text: str, start: int, end: int) -> int:
    """End of the piece without the white space at its end."""
    while end > start and text[end - 1].isspace():
        end -= 1
    return end
