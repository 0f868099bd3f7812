"""Times of all kinds -> instants with an offset.

Invariant: a time is read rightly or refused (`ValueError` says why); it is never guessed. Times without a zone are
taken in the zone that the importer was given; the clock is never asked, so the same file always gives the same times.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DateOrder = Literal["day", "month", "unknown"]

# ClickHouse's DateTime64(3) holds 1900 to 2299.
YEAR_MIN, YEAR_MAX = 1900, 2299
# Numbers below are 1973 in seconds: no chat is that old, so it is a row number, a duration or a truncated value.
_EPOCH_S_MIN = 1e8
# 2000-01-01 and 2100-01-01 as Excel's day numbers (days since 1899-12-30).
_EXCEL_DAYS = (36526.0, 73050.0)

_MONTHS = {
    name: number
    for number, month in enumerate(
        ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
         "december"), 1,
    )
    for name in (month, month[:3])
} | {"sept": 9}  # fmt: skip
_ZONES_H = {
    "Z": 0,
    "UTC": 0,
    "GMT": 0,
    "EST": -5,
    "EDT": -4,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
    "CET": 1,
    "CEST": 2,
    "EET": 2,
    "EEST": 3,
    "MSK": 3,
    "HKT": 8,
    "SGT": 8,
    "JST": 9,
    "KST": 9,
    "AEST": 10,
    "AEDT": 11,
}  # CST, IST and BST mean several zones and are refused.
_AM = {"am", "上午", "早上", "清晨", "早晨", "凌晨", "午前", "오전"}
_PM = {"pm", "下午", "傍晚", "晚上", "夜里", "夜晚", "午后", "午後", "오후"}
_NOON = {"中午"}
_NIGHT = {"晚上", "夜里", "夜晚"}
_MARK = r"a\.?\s?m\.?(?![a-z])|p\.?\s?m\.?(?![a-z])|" + "|".join(sorted((_AM | _PM | _NOON) - {"am", "pm"}))
_OFFSET = r"[+-]\d{1,2}(?::?\d{2})?"
_ZONE = (
    rf"(?:UTC|GMT)\s?{_OFFSET}|[A-Z][A-Za-z]+/[A-Za-z_/+-]+|[A-Z]{{1,4}}(?![A-Za-z])|[+-]\d{{2}}(?::?\d{{2}})?(?!\d)"
)
_TIME = re.compile(
    rf"(?:(?P<before>(?i:{_MARK}))\s*)?(?<![\d:])(?P<h>\d{{1,2}}):(?P<m>\d{{2}})(?::(?P<s>\d{{2}})(?:[.,:](?P<f>\d{{1,9}}))?)?"
    rf"(?![\d:])(?:\s*(?P<after>(?i:{_MARK})))?(?:\s*(?P<zone>{_ZONE}))?",
)
_HOUR = re.compile(
    rf"(?:(?P<before>(?i:{_MARK}))\s*(?P<h1>\d{{1,2}})(?![\d/.-])|(?<!\d)(?P<h2>\d{{1,2}})\s*(?P<after>(?i:{_MARK})))"
)
_YMD = re.compile(r"(\d{4})\s?[-/.年]\s?(\d{1,2})\s?[-/.月]\s?(\d{1,2})日?\.?$")
_NUMERIC = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})\.?$")
_DAY_NAME = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?[\s\-/.]*(?:of\s+)?([a-z]{3,9})\.?[\s\-/,.]*(\d{4}|\d{2})$", re.I)
_NAME_DAY = re.compile(r"([a-z]{3,9})\.?[\s\-/]*(\d{1,2})(?:st|nd|rd|th)?[\s,\-/.]+(\d{4})$", re.I)
_WEEKDAY = re.compile(
    r"(?:星期|周|礼拜)[一二三四五六日天]|[(（][月火水木金土日][)）]|"
    r"\b(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b[.,]?",
    re.I,
)
_SILLYTAVERN = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})\s*@\s*(\d{1,2})h\s?(\d{1,2})m\s?(\d{1,2})s(?:\s?(\d{1,3})ms)?$")
_DOTNET = re.compile(r"\\?/Date\((-?\d+)(?:[+-]\d{4})?\)\\?/$")


def zone_of(name: str) -> tzinfo:
    """Return the zone of an IANA name or an offset.

    Raises
    ------
    ValueError
        If there is no such zone.

    Examples
    --------
    >>> zone_of("+08:00").utcoffset(None)
    datetime.timedelta(seconds=28800)
    """
    text = name.strip()
    if text.upper() in ("", "UTC", "Z", "GMT"):
        return UTC
    match = re.fullmatch(r"(?:UTC|GMT)?([+\-−])(\d{1,2}):?(\d{2})?", text, re.I)
    if match:
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        if minutes > 14 * 60 or int(match[3] or 0) > 59:
            raise ValueError(f"no such offset: {name!r}; expected -14:00 to +14:00")
        return timezone(timedelta(minutes=minutes if match[1] == "+" else -minutes))
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"no such time zone: {name!r}; expected an IANA name (Asia/Shanghai) or +08:00") from None


def rfc3339(at: datetime) -> str:
    """Format an instant with milliseconds (cut, not rounded, so that order is kept) and its offset.

    Examples
    --------
    >>> rfc3339(datetime(2026, 5, 20, 19, 3, 11, 250999, UTC))
    '2026-05-20T19:03:11.250+00:00'
    """
    offset = at.utcoffset()
    assert offset is not None, "an instant needs an offset"
    if offset.seconds % 60 or offset.microseconds:  # local mean time: RFC 3339 has no seconds in offsets
        at = at.astimezone(UTC)
    return at.isoformat(timespec="milliseconds")


def parse_time(value: Any, zone: tzinfo = UTC, order: DateOrder = "unknown") -> datetime:
    """Read a time: ISO 8601 and RFC 2822, epochs in s, ms, us or ns, dates as people and programs write them.

    Parameters
    ----------
    value
        Text, number, or `{"$date": ...}` of MongoDB.
    zone
        For times without a zone, and the offset in which epochs are written.
    order
        Whether 3/4/2026 begins with the day or the month; "unknown" refuses dates that could be both.

    Raises
    ------
    ValueError
        If it cannot be read in exactly one way.

    Examples
    --------
    >>> parse_time("2026年3月5日 下午3:07").isoformat()
    '2026-03-05T15:07:00+00:00'
    >>> parse_time(1773190800000).isoformat()
    '2026-03-11T01:00:00+00:00'
    """
    if isinstance(value, dict) and len(value) == 1:
        key, inner = next(iter(value.items()))
        if key in ("$date", "$numberLong", "seconds", "_seconds"):
            return parse_time(inner, zone, order)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"a time cannot be {_shown(value)}; expected text or a number")
    at = _from_epoch(value, zone) if not isinstance(value, str) else _from_text(value, zone, order)
    if not YEAR_MIN <= at.year <= YEAR_MAX:
        raise ValueError(f"the year of time {_shown(value)} is not between {YEAR_MIN} and {YEAR_MAX}")
    return at


def optional_time(value: Any, zone: tzinfo) -> datetime | None:
    """Like `parse_time`, but nothing (null, "", 0, -1) and what cannot be read is None: neighbours give the time."""
    if value is None or value in ("", 0, -1):
        return None
    try:
        return parse_time(value, zone)
    except ValueError:
        return None


def date_order(values: Iterable[Any]) -> DateOrder:
    """Tell from all dates of a file whether the day or the month comes first.

    A number over 12 settles it; else the reading in which the file is in order of time, if it is only one.

    Examples
    --------
    >>> date_order(["3/4/2026 10:00", "3/14/2026 10:00"])
    'month'
    >>> date_order(["3/4/2026 10:00"])
    'unknown'
    """
    day = month = False
    day_sorted = month_sorted = True
    before: tuple[int, int, int] | None = None
    for value in values:
        match = (
            re.match(r"\D{0,6}?(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})\b", value) if isinstance(value, str) else None
        )
        if match is None:
            continue
        first, second, year = int(match[1]), int(match[3]), int(match[4])
        day |= first > 12
        month |= second > 12
        if before is not None:
            day_sorted &= (before[2], before[1], before[0]) <= (year, second, first)
            month_sorted &= (before[2], before[0], before[1]) <= (year, first, second)
        before = (first, second, year)
    if day != month:
        return "day" if day else "month"
    if not day and day_sorted != month_sorted:
        return "day" if day_sorted else "month"
    return "unknown"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _from_epoch(value: float, zone: tzinfo) -> datetime:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"time {value!r} is not a number")
    if _EXCEL_DAYS[0] <= value < _EXCEL_DAYS[1]:
        days = timedelta(days=int(value), seconds=round((value - int(value)) * 86_400))
        return datetime(1899, 12, 30, tzinfo=zone) + days
    if value < _EPOCH_S_MIN:
        raise ValueError(f"time {_shown(value)} is before 1973 as seconds since the epoch; expected s, ms, us or ns")
    for limit, per_second in ((1e11, 1), (1e14, 1_000), (1e17, 1_000_000), (1e20, 1_000_000_000)):
        if value < limit:
            micros = round(value * 1_000_000) if per_second == 1 else round(value * (1_000_000 / per_second))
            if isinstance(value, int):
                micros = value * 1_000_000 // per_second
            return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).astimezone(zone)
    raise ValueError(f"time {_shown(value)} is too large for seconds, ms, us or ns since the epoch")


def _from_text(value: str, zone: tzinfo, order: DateOrder) -> datetime:
    text = value.strip()
    if len(text) > 100:
        raise ValueError(f"time {_shown(value)} is too long")
    iso = _iso(text)
    if iso is None:
        text = re.sub("[\u200b-\u200f\u2066-\u2069\u202a-\u202e\ufeff]", "", unicodedata.normalize("NFKC", text))
        text = re.sub(r"\s+", " ", text.replace("−", "-")).strip(" '\"")
        text = text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text
        iso = _iso(text)
    if iso is not None:
        return iso if iso.tzinfo is not None else iso.replace(tzinfo=zone)
    try:
        special = _special(text, zone)
        return special if special is not None else _written(text, zone, order)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"time {_shown(value)} cannot be read: {error}") from None


def _iso(text: str) -> datetime | None:
    if not re.match(r"\d{4}-\d\d-\d\d(?:$|[T ]\d\d:\d\d)", text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _special(text: str, zone: tzinfo) -> datetime | None:
    if match := re.fullmatch(r"(\d{4})(\d\d)(\d\d)(?:[T ]?(\d\d)(\d\d)(\d\d)?(Z|[+-]\d\d:?\d\d)?)?", text):
        compact = len(text) in (8, 12, 14) or not text.isdecimal()
        if compact and YEAR_MIN <= int(match[1]) <= YEAR_MAX and 1 <= int(match[2]) <= 12:
            hour, minute, second = (int(part or 0) for part in match.group(4, 5, 6))
            where = zone_of(match[7]) if match[7] else zone
            return datetime(int(match[1]), int(match[2]), int(match[3]), hour, minute, second, tzinfo=where)
    if re.fullmatch(r"-?\d+", text):
        return _from_epoch(int(text), zone)
    if re.fullmatch(r"\d{5,}\.\d+", text):
        return _from_epoch(float(text), zone)
    if re.fullmatch(r"-?\d+(?:\.\d+)?e\+?\d+", text, re.I):
        raise ValueError("digits were lost (a spreadsheet wrote it as a power of ten); export the column as text")
    if match := _DOTNET.match(text):
        return _from_epoch(int(match[1]), zone)
    if match := _SILLYTAVERN.match(text):
        year, month, day, hour, minute, second, milli = (int(part or 0) for part in match.groups())
        return datetime(year, month, day, hour, minute, second, milli * 1000, tzinfo=zone)
    return None


def _written(text: str, zone: tzinfo, order: DateOrder) -> datetime:
    """Read a date as people write it: take the time of day out, then what is left must be a date and nothing else."""
    if match := re.search(
        r"\s*[\[(]([A-Za-z_ +\-/]+)[\])]$", text
    ):  # JavaScript's "(China Standard Time)", Java's [Zone]
        text = text[: match.start()]
    text = _WEEKDAY.sub(" ", text)
    text = re.sub(r"(\d)\s?[时時点點시]\s?(?=\d)", r"\1:", text)
    text = re.sub(r"(\d)\s?[时時点點시]整?", r"\1:00", text)
    text = re.sub(r"(\d)\s?[分분]\s?(?=\d)", r"\1:", text)
    text = re.sub(r"(\d)\s?[分秒분초]", r"\1", text)
    text = re.sub(r"(?<=\d)[년]\s?", "年", re.sub(r"(?<=\d)[월]\s?", "月", re.sub(r"(?<=\d)일", "日", text)))
    match = _TIME.search(text) or _HOUR.search(text)
    clock = timedelta()
    if match:
        clock, zone = _clock(match, zone)
        text = text[: match.start()] + " " + text[match.end() :]
        if _TIME.search(text):
            raise ValueError("it has two times of day")
    text = re.sub(r"(?<=\d)T\s*$|\b(?:at|on|um|à)\b|[|@]", " ", text, flags=re.I)
    text = re.sub(r"\s+", " ", text).strip(" ,;-")
    year, month, day = _date(text, order)
    return datetime(year, month, day, tzinfo=zone) + clock


def _clock(match: re.Match[str], zone: tzinfo) -> tuple[timedelta, tzinfo]:
    parts = match.groupdict()
    mark = re.sub(r"[.\s]", "", parts.get("before") or parts.get("after") or "").lower()
    hour = int(parts.get("h") or parts.get("h1") or parts.get("h2") or 0)
    minute, second = int(parts.get("m") or 0), int(parts.get("s") or 0)
    fraction = f"{parts.get('f') or '0':0<6}"[:6]
    if mark:
        hour = _hour24(hour, mark)
    if minute > 59 or second > 60 or hour > 24 or (hour == 24 and (minute or second)):
        raise ValueError("no such time of day")
    name = parts.get("zone")
    if name:
        if name in _ZONES_H:
            zone = timezone(timedelta(hours=_ZONES_H[name]))
        elif name.isalpha():
            raise ValueError(f"zone {name!r} is unknown or means several zones; write an offset (+08:00)")
        else:
            zone = zone_of(name.replace(" ", ""))
    return timedelta(hours=hour, minutes=minute, seconds=second, microseconds=int(fraction)), zone


def _hour24(hour: int, mark: str) -> int:
    if hour > 12 and mark in _AM:
        raise ValueError(f"{hour} o'clock is not {mark}")
    if mark in _NOON:
        return hour + 12 if hour < 10 else hour
    if mark in _NIGHT and (hour == 12 or 0 < hour < 5):
        raise ValueError(f"{mark} {hour} o'clock may be either day")
    if mark in _AM:
        return 0 if hour == 12 else hour
    return hour + 12 if hour < 12 else hour


def _date(text: str, order: DateOrder) -> tuple[int, int, int]:
    if match := _YMD.match(text):
        return int(match[1]), int(match[2]), int(match[3])
    if match := _NUMERIC.match(text):
        return _numeric(int(match[1]), match[2], int(match[3]), match[4], order)
    if match := _DAY_NAME.match(text):
        month = _MONTHS.get(match[2].lower())
        if month:
            return _year(match[3]), month, int(match[1])
    if match := _NAME_DAY.match(text):
        month = _MONTHS.get(match[1].lower())
        if month:
            return int(match[3]), month, int(match[2])
    raise ValueError("no date known; expected RFC 3339 as in 2026-05-20T19:03:11+08:00")


def _year(text: str) -> int:
    return int(text) if len(text) == 4 else (2000 if int(text) < 70 else 1900) + int(text)


def _numeric(first: int, separator: str, second: int, year: str, order: DateOrder) -> tuple[int, int, int]:
    if first > 12 or separator == ".":
        return _year(year), second, first
    if second > 12 or first == second:
        return _year(year), first, second
    if order == "unknown":
        raise ValueError("day and month could be either way round; expected RFC 3339 as in 2026-05-20T19:03:11+08:00")
    return (_year(year), second, first) if order == "day" else (_year(year), first, second)
