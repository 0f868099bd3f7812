"""Whether an answer is bound to its evidence: marks that exist, and numbers, dates, names and quotes that stand there.

``method`` is "rules": only closed values are compared, so a claim in free words is neither supported nor refuted here.
What is said elsewhere in the prompt (the query, recent turns, the persona) supports as well, and is told apart.

Invariant: a function of its arguments, linear in their length; a claim counts as supported only where its value
stands in a text that was in the prompt.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from schemas.envelope import instant_ms
from schemas.recalls import Evidence
from streams.core.protocol import Parsed
from streams.core.text import folded, tokens
from streams.core.timephrases import spans, zone_minutes

ClaimKind = Literal["number", "date", "name", "quote"]
METHOD = "rules"
CLAIMS_MAX = 40
"""Claims of one response that are checked."""
QUOTE_SHARE_MIN = 0.7
"""Part of a quote's terms that its source must have: people quote from memory."""
_MS_PER_DAY = 86_400_000

_WORDS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {word: number for number, word in enumerate(_WORDS.split(), start=2)}
_VALUES |= {word: 10 * number for number, word in enumerate(_TENS.split(), start=2)}
_HAN = {character: index for index, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_UNITS = {"十": 10, "百": 100, "千": 1000}
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])\d{1,15}(?:[.,:]\d{1,6}){0,4}"
    rf"|\b(?:{'|'.join(_VALUES)})\b"
    r"|[零〇一二两三四五六七八九十百千万]{1,9}(?=[年月日号点岁块元斤公里只个次天周人口度分杯本条米层楼件张位种倍成家])"
)
_LISTED = re.compile(r"^[ \t]{0,8}(?:[-*][ \t]+)?\d{1,2}[.)、．][ \t]", re.MULTILINE)
_NAME = re.compile(r"(?<![.!?:\n\"“] )(?<!^)(?<![\w.'’])[A-Z][a-z]{2,}(?:[ -][A-Z][a-z]+){0,2}|《[^《》\n]{1,40}》")
_QUOTE = re.compile(r"[“\"]([^“”\"\n]{4,120})[”\"]|「([^「」\n]{2,60})」|『([^『』\n]{2,60})』")
_CALENDAR = frozenset(
    [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "english",
        "chinese",
        "christmas",
        "easter",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A closed value of the response, and where it stands."""

    kind: ClaimKind
    text: str
    start: int
    end: int
    mark: str | None = None
    """Evidence that says it; None: none does."""
    cited: bool = False
    """Whether the answer cites that evidence."""
    elsewhere: bool = False
    """Whether another text of the prompt says it."""

    @property
    def supported(self) -> bool:
        """Whether anything in the prompt says it."""
        return self.mark is not None or self.elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What an answer rests on. ``bound``: cited marks that exist; ``unknown``: cited ones that don't."""

    bound: tuple[str, ...]
    unknown: tuple[str, ...]
    claims: tuple[Claim, ...]
    method: str = METHOD

    @property
    def unsupported(self) -> tuple[Claim, ...]:
        """Claims that nothing in the prompt says."""
        return tuple(claim for claim in self.claims if not claim.supported)


class _Source:
    """A text of the prompt, with its values worked out once."""

    def __init__(self, text: str, mark: str | None, at_ms: int, zone: int, day: tuple[int, int] | None = None) -> None:
        self.text, self.mark, self.at_ms, self.zone, self.day = text, mark, at_ms, zone, day

    @cached_property
    def folded(self) -> str:
        return folded(self.text)

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(value for match in _NUMBER.finditer(self.folded) for value in _numbers(match[0]))

    @cached_property
    def terms(self) -> frozenset[str]:
        return frozenset(tokens(self.text))

    @cached_property
    def days(self) -> list[tuple[int, int]]:
        found = [(span.start_ms, span.end_ms) for span in spans(self.text, self.at_ms, self.zone)]
        return found + ([self.day] if self.day else [])


def verify(
    parsed: Parsed, evidence: Sequence[Evidence], *, allowed: Sequence[str] = (), at_ms: int, zone: int = 0
) -> Verification:
    """Bind an answer to its evidence and check its closed values.

    Parameters
    ----------
    parsed : Parsed
    evidence : sequence of Evidence
        What the reply listed: the marks that exist.
    allowed : sequence of str
        Other texts of the prompt: query, recent turns, persona.
    at_ms : int
        When the answer was given, in milliseconds since the epoch; dates are resolved against it.
    zone : int
        Minutes from UTC of the user's day.

    Returns
    -------
    Verification
        Claims in order of appearance, at most ``CLAIMS_MAX``.
    """
    known = {piece.mark for piece in evidence}
    bound = tuple(mark for mark in parsed.marks if mark in known)
    sources = [_source(piece, at_ms) for piece in evidence]
    # Cited evidence first: it is what the answer says that it rests on.
    sources.sort(key=lambda source: source.mark not in bound)
    others = [_Source(text, None, at_ms, zone) for text in allowed]
    claims = [_checked(kind, match, parsed.response, sources, others, at_ms, zone, bound) for kind, match in
              _values(parsed.response)]  # fmt: skip
    dated = _dates(parsed.response, sources, others, at_ms, zone, bound)
    ordered = sorted([*filter(None, claims), *dated], key=lambda claim: (claim.start, claim.kind))
    return Verification(
        bound=bound,
        unknown=tuple(mark for mark in parsed.marks if mark not in known),
        claims=tuple(ordered[:CLAIMS_MAX]),
    )


def _source(piece: Evidence, at_ms: int) -> _Source:
    said_ms, zone, day = at_ms, 0, None
    if piece.occurred_at:
        said_ms, zone = instant_ms(piece.occurred_at), zone_minutes(piece.occurred_at)
        local = (said_ms + zone * 60_000) // _MS_PER_DAY * _MS_PER_DAY - zone * 60_000
        day = (local, local + _MS_PER_DAY)
    texts = [piece.text, piece.title or "", piece.name or ""]
    return _Source("\n".join(filter(None, texts)), piece.mark, said_ms, zone, day)


def _values(response: str) -> list[tuple[ClaimKind, re.Match[str]]]:
    listed = {match.end() for match in _LISTED.finditer(response)}
    numbers = [
        match
        for match in _NUMBER.finditer(unicodedata.normalize("NFKC", response) if _same_length(response) else response)
        if not any(match.end() < end <= match.end() + 2 for end in listed)
    ]
    found: list[tuple[ClaimKind, re.Match[str]]] = [("number", match) for match in numbers]
    found += [("quote", match) for match in _QUOTE.finditer(response)]
    found += [("name", m) for m in _NAME.finditer(response) if m[0].split()[0].casefold() not in _CALENDAR]
    return found[: 2 * CLAIMS_MAX]


def _same_length(text: str) -> bool:
    return len(unicodedata.normalize("NFKC", text)) == len(text)


def _checked(
    kind: ClaimKind,
    match: re.Match[str],
    response: str,
    sources: list[_Source],
    others: list[_Source],
    at_ms: int,
    zone: int,
    bound: tuple[str, ...],
) -> Claim | None:
    text = next(filter(None, match.groups()), match[0]) if kind == "quote" else match[0]
    if kind == "number":
        wanted = _numbers(text)
        # "one of them" and "一个" tell no number; a date's numbers are checked as a date.
        if not wanted or wanted == {"1"} or _in_date(match, response, at_ms, zone):
            return None

    def says(source: _Source) -> bool:
        if kind == "number":
            return not source.numbers.isdisjoint(wanted)
        plain = folded(text).strip("《》 ")
        if plain in source.folded:
            return True
        terms = frozenset(tokens(text)) if kind == "quote" else frozenset()
        return bool(terms) and len(terms & source.terms) >= QUOTE_SHARE_MIN * len(terms)

    mark = next((source.mark for source in sources if says(source)), None)
    elsewhere = mark is None and any(says(source) for source in others)
    return Claim(
        kind=kind,
        text=text,
        start=match.start(),
        end=match.end(),
        mark=mark,
        cited=mark in bound if mark else False,
        elsewhere=elsewhere,
    )


def _in_date(match: re.Match[str], response: str, at_ms: int, zone: int) -> bool:
    around = response[max(0, match.start() - 14) : match.end() + 14]
    return any(match[0].casefold() in span.phrase for span in spans(around, at_ms, zone))


def _dates(
    response: str, sources: list[_Source], others: list[_Source], at_ms: int, zone: int, bound: tuple[str, ...]
) -> list[Claim]:
    """Days in the past that the response names: what is to come, and today, need no evidence."""
    claims = []
    plain = folded(response)
    position = 0
    for span in spans(response, at_ms, zone):
        start = plain.find(span.phrase, position)
        position = max(position, start + len(span.phrase))
        if span.end_ms > at_ms:
            continue

        def says(source: _Source, start_ms: int = span.start_ms, end_ms: int = span.end_ms) -> bool:
            return any(first < end_ms and start_ms < last for first, last in source.days)

        mark = next((source.mark for source in sources if says(source)), None)
        claims.append(
            Claim(
                kind="date",
                text=span.phrase,
                start=max(0, start),
                end=max(0, start) + len(span.phrase),
                mark=mark,
                cited=mark in bound if mark else False,
                elsewhere=mark is None and any(says(source) for source in others),
            )
        )
    return claims


def _numbers(text: str) -> set[str]:
    """Values of a number as text: "8:00" is also 8, "三十" is 30.

    >>> sorted(_numbers("1,200")), sorted(_numbers("三十二")), sorted(_numbers("8:00")), sorted(_numbers("Twelve"))
    (['1200'], ['32'], ['8', '8:00'], ['12'])
    """
    plain = text.casefold()
    if plain in _VALUES:
        return {str(_VALUES[plain])}
    if not plain[:1].isdecimal():
        return {str(_han_number(plain))}
    plain = re.sub(r",(?=\d{3}\b)", "", unicodedata.normalize("NFKC", plain))
    plain = plain.rstrip("0").rstrip(".") if "." in plain and ":" not in plain else plain
    found = {plain.lstrip("0") or "0"}
    hours, colon, minutes = plain.partition(":")
    return found | ({hours.lstrip("0") or "0"} if colon and not minutes.strip("0") else set())


def _han_number(text: str) -> int:
    if not any(sign in text for sign in "十百千万"):
        return int("".join(str(_HAN[sign]) for sign in text))
    total = section = digit = 0
    for sign in text:
        if sign == "万":
            total, section, digit = (total + section + digit) * 10_000, 0, 0
        elif sign in _UNITS:
            section, digit = section + (digit or 1) * _UNITS[sign], 0
        else:
            digit = _HAN[sign]
    return total + section + digit
