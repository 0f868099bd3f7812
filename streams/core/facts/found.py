"""What rules read and what they find: a turn's text made plain, cut into sentences, and the finds in it.

Invariants: every character of the plain text knows its place in the turn's own text, so spans are exact in either
script and width. All patterns run over sentences of at most ``SENTENCE_LENGTH_MAX`` characters, so the time that a
turn takes is linear in its length whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from streams.core.text import folded

Kind = Literal["assert", "retract", "correct"]

TEXT_LENGTH_MAX = 8_000
"""Characters of a turn that are read. People don't introduce themselves in longer ones: those are pasted."""
SENTENCE_LENGTH_MAX = 400
"""Characters of a sentence that are read; the rest of a longer one isn't."""

_SAME_LENGTH = {"\t": " ", "\u3000": " ", "\xa0": " ", "\r": " ", "’": "'", "‘": "'", "“": '"', "”": '"'}
_SAME_LENGTH |= {"「": '"', "」": '"', "『": '"', "』": '"', "—": "-", "–": "-", "《": '"', "》": '"', "，": ","}


class _Folding(dict[int, int]):
    """Characters folded one by one, kept once seen: case, width and script, where one character stays one."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        plain = _SAME_LENGTH.get(character) or folded(character)
        self[code] = found = ord(plain) if len(plain) == 1 else code
        return found


_FOLDING = _Folding()  # At most one entry a code point: bounded.
_BLANKS = re.compile(r"[ ]{2,}")


@dataclass(frozen=True, slots=True)
class Plain:
    """A turn's text made plain.

    Attributes
    ----------
    said : str
        The text as said.
    text : str
        Folded: lower case, half width, simplified, runs of blanks as one.
    places : sequence of int or None
        Place in ``said`` of each character of ``text`` and of its end; None: they are the same.
    """

    said: str
    text: str
    places: Sequence[int] | None

    def original(self, start: int, end: int) -> str:
        """What was said at ``[start, end)`` of the plain text."""
        if self.places is None:
            return self.said[start:end]
        return self.said[self.places[start] : self.places[end - 1] + 1] if end > start else ""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """``[start, end)`` of the plain text as places in ``said``."""
        if self.places is None:
            return start, end
        return self.places[start], self.places[end - 1] + 1 if end > start else self.places[start]


@dataclass(frozen=True, slots=True)
class Sentence:
    """``[start, end)`` of the plain text, its terminator left out, and whether it asks."""

    start: int
    end: int
    asks: bool


@dataclass(slots=True, kw_only=True)
class Find:
    """A fact that a rule found; places are in the plain text."""

    key: str
    value: str
    kind: Kind
    start: int
    end: int
    rule: str
    confidence: float
    old: str | None = None


def plain_of(said: str) -> Plain:
    """A text made plain; see ``Plain``.

    >>> plain_of("我  住在臺北").text, plain_of("我  住在臺北").original(2, 6), plain_of("I’M Bob").text
    ('我 住在台北', '住在臺北', "i'm bob")
    """
    said = said[:TEXT_LENGTH_MAX]
    text = said.translate(_FOLDING)
    if "  " not in text:
        return Plain(said, text, None)
    pieces: list[str] = []
    places: list[int] = []
    at = 0
    for run in _BLANKS.finditer(text):
        pieces.append(text[at : run.start() + 1])
        places.extend(range(at, run.start() + 1))
        at = run.end()
    pieces.append(text[at:])
    places.extend(range(at, len(text)))
    places.append(len(text))
    return Plain(said, "".join(pieces), places)


_QUOTED = re.compile(
    r'"[^"\n]{0,400}"|(?:(?<=[\s(:,])|^)\'[^\'\n]{3,200}(?:\'[a-z]{1,2}\b[^\'\n]{0,200})?\'(?![a-z])'
    r"|```[^`]{0,4000}(?:```|$)|`[^`\n]{0,200}`|^ ?>[^\n]*",
    re.MULTILINE,
)
_SPEAKS = re.compile(r"\b(?:i|i'm|i've|im|my|we|our)\b|我|咱|本人")
_QUOTE_LENGTH_MAX = 24
"""Characters of a quotation that may be a name: my dog is called "Biscuit"."""


def without_quotes(text: str) -> str:
    """The plain text with what others say, write or program put out: each character of it a semicolon.

    >>> without_quotes('he said "i am a doctor" and left'), without_quotes('a dog called "rex"')
    ('he said ;;;;;;;;;;;;;;; and left', 'a dog called "rex"')
    """
    if not any(mark in text for mark in "\"'`>"):
        return text

    def put_out(match: re.Match[str]) -> str:
        quoted = match[0]
        keeps = quoted[0] == '"' and len(quoted) <= _QUOTE_LENGTH_MAX and not _SPEAKS.search(quoted)
        if keeps or (quoted[0] == "'" and not _SPEAKS.search(quoted)):
            return quoted
        return ";" * len(quoted)

    return _QUOTED.sub(put_out, text)


_END = re.compile(
    r"[!?。！？…]+[\"')]*|\.+(?:[\"')]+)?(?=\s|$|[\u4e00-\u9fff])|[;\n]+|(?<!\w)[:;]-?[)(dp](?!\w)"
    r"|[\u2600-\u27bf\U0001f300-\U0001faff\ufe0f]+|[~～]+(?=\s|$|[\u4e00-\u9fff])"
)
_SHORT_FORM = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|st|prof|vs|no|approx|inc|ltd|co|jr|sr|mt|ft|e\.g|i\.e|u\.s|u\.k)|\b[a-z]|\.[a-z])$"
)


def sentences(text: str) -> Iterator[Sentence]:
    """Sentences of a plain text.

    >>> [(s.start, s.end, s.asks) for s in sentences("hi dr. who! do you know? ok")]
    [(0, 10, False), (12, 23, True), (25, 27, False)]
    """
    start = 0
    for mark in _END.finditer(text):
        if (
            mark[0] == (".")
            and mark.end() < len(text)
            and _SHORT_FORM.search(text[max(start, mark.start() - 8) : mark.start()])
        ):
            continue
        yield from _sentence(text, start, mark.start(), "?" in mark[0])
        start = mark.end()
    yield from _sentence(text, start, len(text), False)


def _sentence(text: str, start: int, end: int, asks: bool) -> Iterator[Sentence]:
    """One without the blanks before it; none where nothing is left."""
    while start < end and text[start] == " ":
        start += 1
    if start < end:
        yield Sentence(start, min(end, start + SENTENCE_LENGTH_MAX), asks)
