"""Numbers and dates as people say them in Chinese and English, as digits and ISO dates.

Invariant: what no calendar has (31 February) gives None, never a near date.
"""

from __future__ import annotations

import datetime as dt
import re

from schemas.envelope import instant_ms
from streams.core import timephrases

_MS_PER_DAY = 86_400_000
_EPOCH = dt.date(1970, 1, 1)
_LEAP_YEAR = 2000
"""A year that has every day, to check a day and month without a year."""

_UNIT_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_UNITS = _UNIT_WORDS.split()
_TEN_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = _TEN_WORDS.split()
_SMALL = {word: index for index, word in enumerate(_UNITS)} | {
    word: 10 * index for index, word in enumerate(_TENS, start=2)
}
_DIGITS = {character: index for index, character in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0, "俩": 2}

NUMBER_EN = rf"(?:\d{{1,3}}|(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_UNITS[1:10])}))?|{'|'.join(_UNITS[:0:-1])})"
"""A number below a thousand, as a pattern."""
NUMBER_ZH = r"(?:\d{1,3}|[一二三四五六七八九]?十[一二三四五六七八九]?|[零〇一二两三四五六七八九俩])"
"""A number below a thousand, as a pattern; words up to 99."""

_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), start=1)}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
MONTH_EN = "(?:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b\.?"
_MONTH_ZH = r"(?:1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])"
_DAY_ZH = r"(?:[0-3]?\d|三十一?|二十[一二三四五六七八九]?|十[一二三四五六七八九]?|[一二三四五六七八九])"
_YEAR = r"(?:19|20)\d\d"

DATE_EN = (
    rf"(?:(?P<iso>{_YEAR}-\d{{1,2}}-\d{{1,2}})|(?P<month>{MONTH_EN}) (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    rf"(?:,? (?:of )?(?P<year>{_YEAR}))?|(?:the )?(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month2>{MONTH_EN})"
    rf"(?:,? (?P<year2>{_YEAR}))?)(?!\w)"
)
"""A day, with or without a year."""
DATE_ZH = (
    rf"(?:(?P<iso>{_YEAR}-\d{{1,2}}-\d{{1,2}})|(?:(?P<year>{_YEAR}|[一二][一二三四五六七八九零〇]{{3}})年)?"
    rf"(?P<month>{_MONTH_ZH})月(?P<day>{_DAY_ZH})[日号])"
)
"""A day in Chinese, with or without a year."""
_EN = re.compile(DATE_EN)
_ZH = re.compile(DATE_ZH)
_RELATIVE = re.compile(r"\b(?:today|yesterday|tomorrow)\b|[今昨明前]天|后天")


def number(word: str) -> int | None:
    """A number below a hundred in digits, English or Chinese words; digits may be larger.

    >>> [number(word) for word in ("34", "thirty-four", "twelve", "三十四", "十二", "两", "many")]
    [34, 34, 12, 34, 12, 2, None]
    """
    plain = word.strip().casefold()
    if plain.isdecimal():
        return int(plain)
    if plain in _SMALL:
        return _SMALL[plain]
    tens, _, ones = plain.replace("-", " ").partition(" ")
    if tens in _TENS and ones in _UNITS[1:10]:
        return _SMALL[tens] + _SMALL[ones]
    tens, ten, ones = plain.partition("十")
    if ten and (not tens or tens in _DIGITS) and (not ones or ones in _DIGITS):
        return 10 * _DIGITS.get(tens, 1) + _DIGITS.get(ones, 0)
    return _DIGITS.get(plain)


def day_said(occurred_at: str) -> dt.date:
    """The calendar day on which something was said, where it was said.

    >>> day_said("2026-05-20T23:30:00+08:00").isoformat()
    '2026-05-20'
    """
    local_ms = instant_ms(occurred_at) + timephrases.zone_minutes(occurred_at) * 60_000
    return _EPOCH + dt.timedelta(days=local_ms // _MS_PER_DAY)


def _iso(year: int | None, month: int, day: int) -> str | None:
    try:
        found = dt.date(year or _LEAP_YEAR, month, day)
    except ValueError:
        return None
    return found.isoformat() if year else f"--{found.month:02d}-{found.day:02d}"


def _year_zh(word: str) -> int:
    return int(word) if word.isdecimal() else int("".join(str(_DIGITS[character]) for character in word))


def date_of(plain: str, said_on: dt.date, *, relative_year: bool = False) -> str | None:
    """The first day that a text names, as ISO: ``YYYY-MM-DD``, ``--MM-DD`` without a year; of a year alone ``YYYY``.

    Parameters
    ----------
    plain : str
        Folded text.
    relative_year : bool
        Whether "yesterday" gives a day with its year; a birthday was yesterday without being born then.

    >>> today = dt.date(2026, 5, 20)
    >>> [date_of(text, today) for text in ("may 3rd", "3 may 1990", "the 9th of november", "1991年5月3日", "五月三号")]
    ['--05-03', '1990-05-03', '--11-09', '1991-05-03', '--05-03']
    >>> [date_of(text, today) for text in ("yesterday", "in 1990", "31 february", "some day")]
    ['--05-19', '1990', None, None]
    """
    match = _EN.search(plain) or _ZH.search(plain)
    if match is not None:
        groups = match.groupdict()
        if groups["iso"]:
            year, month, day = map(int, groups["iso"].split("-"))
            return _iso(year, month, day)
        if match.re is _EN:
            word = (groups["month"] or groups["month2"]).rstrip(".")
            year_en = groups["year"] or groups["year2"]
            return _iso(int(year_en) if year_en else None, _MONTHS[word], int(groups["day"] or groups["day2"]))
        month_zh, day_zh = number(groups["month"]), number(groups["day"])
        if not month_zh or not day_zh:
            return None
        return _iso(_year_zh(groups["year"]) if groups["year"] else None, month_zh, day_zh)
    relative = _RELATIVE.search(plain)
    if relative is not None:
        moved = {"y": -1, "昨": -1, "前": -2, "明": 1, "后": 2}.get(relative[0][0], 0)
        day_meant = said_on + dt.timedelta(days=1 if relative[0] == "tomorrow" else moved)
        return day_meant.isoformat() if relative_year else f"--{day_meant.month:02d}-{day_meant.day:02d}"
    year_alone = re.search(rf"(?<!\d){_YEAR}(?!\d)", plain)
    return year_alone[0] if year_alone else None


def period_of(text: str, occurred_at: str, *, ahead: bool = False) -> str | None:
    """The first time that a text names, as an ISO date as exact as it was said: a day, a month or a year.

    Parameters
    ----------
    ahead : bool
        Whether it is about the future: "in October", said in November, is then next year's.

    >>> at = "2026-05-20T10:00:00Z"
    >>> [period_of(text, at) for text in ("since 2015", "last month", "yesterday", "three weeks ago", "hello")]
    ['2015', '2026-04', '2026-05-19', '2026-04-26', None]
    >>> period_of("in March", at), period_of("in March", at, ahead=True), period_of("去年五月", at)
    ('2026-03', '2027-03', '2025-05')
    """
    zone = timephrases.zone_minutes(occurred_at)
    found = timephrases.spans(text, instant_ms(occurred_at), zone)
    if not found:
        return None
    span = found[0]
    first = _EPOCH + dt.timedelta(days=(span.start_ms + zone * 60_000) // _MS_PER_DAY)
    days = (span.end_ms - span.start_ms) // _MS_PER_DAY
    if ahead and first + dt.timedelta(days=days) <= day_said(occurred_at) and not re.search(r"\d{4}", span.phrase):
        first = first.replace(year=first.year + 1, day=min(first.day, 28))
    if days >= 365 and first.month == first.day == 1:
        return f"{first.year:04d}"
    if 28 <= days <= 31 and first.day == 1:
        return f"{first.year:04d}-{first.month:02d}"
    return first.isoformat()
