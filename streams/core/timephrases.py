"""Time expressions of English and Chinese, resolved against a day by rules: "yesterday", "last May", "上周三".

Invariants: a function of the text and the day it is said on, never of a clock; a text that says no time, or one that
no calendar has (2026-02-31), gives nothing. Spans are whole days, as people ask by days and not by hours.

Rules and no parser library: of the parsers looked at one takes milliseconds a turn and the other knows one language,
and both change what a recorded history means with their versions.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from streams.core.text import folded, lacks, needed, signs

CHARACTERS_MAX = 4_000
"""Characters of a text that are looked through."""
SPANS_MAX = 8
"""Spans of a text that are kept, in order of appearance."""
VAGUE_DAYS = 3
"""Days on either side of what is counted in weeks: "three weeks ago" names no day."""

_MS_PER_DAY = 86_400_000
_EPOCH = dt.date(1970, 1, 1)
_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, ``[start_ms, end_ms)`` in milliseconds since the epoch, and the words that name it."""

    start_ms: int
    end_ms: int
    phrase: str

    def holds(self, at_ms: int) -> bool:
        """Whether an instant lies inside."""
        return self.start_ms <= at_ms < self.end_ms

    def means(self, other: Span) -> bool:
        """Whether another span overlaps this one and is not much vaguer than it.

        >>> day, year = Span(0, 86_400_000, "that day"), Span(0, 365 * 86_400_000, "that year")
        >>> day.means(year), year.means(day)
        (False, True)
        """
        overlap = min(self.end_ms, other.end_ms) - max(self.start_ms, other.start_ms)
        return overlap > 0 and 2 * overlap >= other.end_ms - other.start_ms


def spans(text: str, at_ms: int, zone_minutes: int = 0) -> tuple[Span, ...]:
    """Times that a text names.

    Parameters
    ----------
    text : str
        In traditional or simplified characters, of full or half width.
    at_ms : int
        When it is said, in milliseconds since the epoch.
    zone_minutes : int
        The speaker's offset from UTC: which day it is there decides what "yesterday" means.

    Returns
    -------
    tuple of Span
        In order of appearance; phrases inside longer ones are left out.

    >>> now = 1_779_235_200_000  # 2026-05-20, a Wednesday
    >>> def days(text):
    ...     return [str(dt.datetime.fromtimestamp(span.start_ms / 1000, dt.UTC).date()) for span in spans(text, now)]
    >>> days("What did I eat yesterday?"), days("上週三和前天"), days("last May"), days("去年五月")
    (['2026-05-19'], ['2026-05-13', '2026-05-18'], ['2025-05-01'], ['2025-05-01'])
    >>> days("nothing in particular"), days("2026-02-31")
    ([], [])
    """
    plain = folded(text[:CHARACTERS_MAX])
    if lacks(plain, _HINT_SIGNS) or not _HINT.search(plain):
        return ()
    try:
        today = _EPOCH + dt.timedelta(days=(at_ms + zone_minutes * 60_000) // _MS_PER_DAY)
    except OverflowError:
        return ()
    found: list[Span] = []
    for phrase, first, last in _matches(plain, today):
        start = (first - _EPOCH).days * _MS_PER_DAY - zone_minutes * 60_000
        found.append(Span(start, start + (last - first).days * _MS_PER_DAY, phrase))
        if len(found) == SPANS_MAX:
            break
    return tuple(found)


def zone_minutes(instant: str) -> int:
    """Offset from UTC of an instant as its producer wrote it.

    >>> zone_minutes("2026-05-20T08:00:00+08:00"), zone_minutes("2026-05-20T08:00:00Z")
    (480, 0)
    """
    if instant.endswith(("Z", "z")):
        return 0
    match = _OFFSET.search(instant)
    return 0 if match is None else int(match[1] + "1") * (int(match[2]) * 60 + int(match[3]))


def mentions_time(text: str) -> bool:
    """Whether a text says when something is or was.

    >>> mentions_time("We went there last Friday"), mentions_time("上个月去的"), mentions_time("It was nice!")
    (True, True, False)
    """
    plain = folded(text[:CHARACTERS_MAX])
    return not lacks(plain, _TIME_SIGNS) and bool(_TIME.search(plain))


def asks_when(text: str) -> bool:
    """Whether a question asks for a time.

    >>> asks_when("When did Mel paint it?"), asks_when("你几号回来？"), asks_when("Do you cry when it rains?")
    (True, True, False)
    """
    return bool(_WHEN.search(folded(text[:CHARACTERS_MAX])))


# -- rules ------------------------------------------------------------------------------------------------------------

_Days = tuple[dt.date, dt.date]
_Rule = Callable[[re.Match[str], dt.date], _Days]

_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), start=1)}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
_WEEKDAY_NAMES = "monday tuesday wednesday thursday friday saturday sunday"
_WEEKDAYS = {name: number for number, name in enumerate(_WEEKDAY_NAMES.split())}
_NUMBER_NAMES = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {name: number for number, name in enumerate(_NUMBER_NAMES.split())}
_NUMBERS |= {"a": 1, "an": 1, "a couple of": 2, "couple of": 2, "a few": 3, "few": 3, "several": 4}
_DIGITS = {character: index for index, character in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2, "几": 3}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "春": 3, "夏": 6, "秋": 9, "冬": 12}

_MONTH = "(?:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + ")"
_WEEKDAY = "(?:" + "|".join(_WEEKDAYS) + ")"
_COUNT = "(?:" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + r"|\d{1,3})"
_ZH_COUNT = "(?:[一二两三四五六七八九十几]{1,3}|\\d{1,3})"
_ZH_MONTH = "(?:十[一二]?|[一二三四五六七八九]|1[0-2]|0?[1-9])"
_ZH_DAY = "(?:三十一?|二十[一二三四五六七八九]?|十[一二三四五六七八九]?|[一二三四五六七八九]|\\d{1,2})"


def _number(word: str) -> int:
    """A small number in digits, English or Chinese."""
    if word.isdecimal():
        return int(word)
    if word in _NUMBERS:
        return _NUMBERS[word]
    tens, ten, ones = word.rpartition("十")
    if ten:
        return 10 * _DIGITS.get(tens, 1) + _DIGITS.get(ones, 0)
    return _DIGITS.get(word[-1], 1)


def _day(day: dt.date) -> _Days:
    return day, day + _DAY


def _week(day: dt.date, weeks: int) -> _Days:
    monday = day - dt.timedelta(days=day.weekday()) + dt.timedelta(weeks=weeks)
    return monday, monday + dt.timedelta(weeks=1)


def _month(year: int, month: int, count: int = 1) -> _Days:
    """``count`` months from one on; a month outside 1 to 12 belongs to another year."""
    first, last = year * 12 + month - 1, year * 12 + month - 1 + count
    return dt.date(first // 12, first % 12 + 1, 1), dt.date(last // 12, last % 12 + 1, 1)


def _year(year: int) -> _Days:
    return dt.date(year, 1, 1), dt.date(year + 1, 1, 1)


def _recent(days: Callable[[int], _Days], today: dt.date) -> _Days:
    """The latest of a thing that comes once a year and had begun by today."""
    this = days(today.year)
    return this if this[0] <= today else days(today.year - 1)


def _step(word: str) -> int:
    """-1 for the last, 0 for this, 1 for the next; 上上 is -2."""
    if word in ("last", "past", "previous", "去"):
        return -1
    if word in ("next", "coming", "明"):
        return 1
    return {"上": -1, "下": 1}.get(word[0], 0) * len(word) if word[0] in "上下" else (-2 if word == "前" else 0)


def _ago(unit: str, count: int, today: dt.date, vague: bool) -> _Days:
    if unit[0] in "dD天日":
        day = today - dt.timedelta(days=count)
        return (day - 2 * _DAY, day + 2 * _DAY) if vague else _day(day)
    if unit.startswith(("week", "周", "星", "礼")):
        day = today - dt.timedelta(weeks=count)
        return day - VAGUE_DAYS * _DAY, day + (VAGUE_DAYS + 1) * _DAY
    if unit.startswith(("month", "个月", "月")):
        return _month(today.year, today.month - count - (1 if vague else 0), 3 if vague else 1)
    first, last = _year(today.year - count)
    return (_year(first.year - 1)[0], _year(last.year)[1]) if vague else (first, last)


def _weekday_en(match: re.Match[str], today: dt.date) -> _Days:
    number, step = _WEEKDAYS[match["day"]], _step(match["step"] or "last")
    back = (today.weekday() - number) % 7 or 7
    if step > 0:
        return _day(today + dt.timedelta(days=(number - today.weekday()) % 7 or 7))
    if step == 0:
        return _day(_week(today, 0)[0] + number * _DAY)
    return _day(today - back * _DAY)


def _unit_en(match: re.Match[str], today: dt.date) -> _Days:
    step, unit = _step(match["step"]), match["unit"]
    if unit == "week":
        return _week(today, step)
    if unit == "weekend":
        first = _week(today, step)[0] + 5 * _DAY
        return first, first + 2 * _DAY
    if unit == "month":
        return _month(today.year, today.month + step)
    if unit == "year":
        return _year(today.year + step)
    if unit == "night":
        return _day(today + step * _DAY)
    return _season(unit, step, today)


def _season(name: str, step: int, today: dt.date) -> _Days:
    month = _SEASONS[name[0] if name[0] in _SEASONS else name]
    if step > 0:
        return _month(today.year + 1, month, 3)
    latest = _recent(lambda year: _month(year, month, 3), today)
    if step < 0 and latest[0] <= today < latest[1]:
        return _month(latest[0].year - 1, month, 3)
    return latest


def _step_month(match: re.Match[str], today: dt.date) -> _Days:
    month, step = _MONTHS[match["month"]], _step(match["step"])
    if step == 0:
        return _month(today.year, month)
    if step > 0:
        return _month(today.year + (month <= today.month), month)
    return _month(today.year - (month >= today.month), month)


def _date_en(match: re.Match[str], today: dt.date) -> _Days:
    month, day = _MONTHS[match["month"]], int(match["day"])
    if match["year"]:
        return _day(dt.date(int(match["year"]), month, day))
    return _recent(lambda year: _day(dt.date(year, month, day)), today)


def _month_en(match: re.Match[str], today: dt.date) -> _Days:
    month = _MONTHS[match["month"]]
    return _month(int(match["year"]), month) if match["year"] else _recent(lambda year: _month(year, month), today)


def _weekday_zh(match: re.Match[str], today: dt.date) -> _Days:
    which, step = match["day"], match["step"]
    if which is None:
        return _week(today, _step(step)) if step else _week(today, 0)
    if which == "末":
        first = _week(today, _step(step) if step else (0 if today.weekday() >= 5 else -1))[0] + 5 * _DAY
        return first, first + 2 * _DAY
    number = 6 if which in "日天7" else _number(which) - 1
    day = _week(today, _step(step) if step else 0)[0] + number * _DAY
    return _day(day if step or day <= today else day - dt.timedelta(weeks=1))


def _year_zh(match: re.Match[str], today: dt.date) -> _Days:
    year = int(match["number"]) if match["number"] else today.year + _step(match["step"])
    if match["season"]:
        return _month(year, _SEASONS[match["season"]], 3)
    if not match["month"]:
        return _year(year)
    month = _number(match["month"])
    return _day(dt.date(year, month, _number(match["day"]))) if match["day"] else _month(year, month)


def _month_zh(match: re.Match[str], today: dt.date) -> _Days:
    if match["step"]:
        first, last = _month(today.year, today.month + _step(match["step"]))
        return _day(dt.date(first.year, first.month, _number(match["on"]))) if match["on"] else (first, last)
    month = _number(match["month"])
    if match["day"]:
        return _recent(lambda year: _day(dt.date(year, month, _number(match["day"]))), today)
    return _recent(lambda year: _month(year, month), today)


_RULES: list[tuple[str, _Rule]] = [
    (r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})",
     lambda m, _: _day(dt.date(int(m["y"]), int(m["m"]), int(m["d"])))),
    (rf"\b(?P<month>{_MONTH})\.? (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<year>\d{{4}}))?", _date_en),
    (rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\b\.?(?:,? (?P<year>\d{{4}}))?", _date_en),
    (rf"\b(?P<step>last|past|previous|this|next|coming) (?P<month>{_MONTH})\b(?! \d)", _step_month),
    (rf"\b(?:in|since|during|of|until|early|late|mid) (?P<month>{_MONTH})\b,?(?: (?:of )?(?P<year>\d{{4}}))?",
     _month_en),
    (rf"\b(?P<month>{_MONTH}),? (?P<year>(?:19|20)\d\d)\b", _month_en),
    (r"\b(?:in|since|during|of) (?P<year>(?:19|20)\d\d)\b", lambda m, _: _year(int(m["year"]))),
    (r"\bday before yesterday\b|大?前天|前日", lambda m, day: _day(day - (3 if m[0][0] == "大" else 2) * _DAY)),
    (r"\byesterday\b|昨[天日晚夜早]", lambda _, day: _day(day - _DAY)),
    (r"\bday after tomorrow\b|大?后天", lambda m, day: _day(day + (3 if m[0][0] == "大" else 2) * _DAY)),
    (r"\btomorrow\b|明[天日晚早]", lambda _, day: _day(day + _DAY)),
    (r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b|今[天日晚早]", lambda _, day: _day(day)),
    (rf"\b(?P<count>{_COUNT}) (?P<unit>day|week|month|year)s? (?:ago|earlier|back)\b",
     lambda m, day: _ago(m["unit"], _number(m["count"]), day, "few" in m["count"] or m["count"] == "several")),
    (r"\b(?P<step>last|past|previous|this|next|coming) "
     r"(?P<unit>weekend|week|month|year|night|spring|summer|autumn|fall|winter)\b", _unit_en),
    (rf"\b(?:(?P<step>last|past|previous|this|next|coming) |on )(?P<day>{_WEEKDAY})\b", _weekday_en),
    (rf"(?P<count>半|{_ZH_COUNT})(?P<unit>个月|个?星期|个?礼拜|天|日|周|年)(?:之|以)?前",
     lambda m, day: _half(m["unit"], day) if m["count"] == "半"
     else _ago(m["unit"].lstrip("个") if m["unit"] != "个月" else "月", _number(m["count"]), day, m["count"] == "几")),
    (rf"(?:(?P<number>(?:19|20)\d\d)年|(?P<step>[去前今明])年)的?(?:(?P<season>[春夏秋冬])[天季]"
     rf"|(?P<month>{_ZH_MONTH})月份?(?:(?P<day>{_ZH_DAY})[日号])?)?", _year_zh),
    (rf"(?:(?P<step>上上?|下下?|[这本])个?月(?!份?[一-龥]{{0,1}}亮)(?:(?P<on>{_ZH_DAY})[日号])?"
     rf"|(?<![\d个一二两三四五六七八九十几])(?P<month>{_ZH_MONTH})月(?:份|(?P<day>{_ZH_DAY})[日号])?)", _month_zh),
    (r"(?:(?P<step>上上?|下下?|[这本])个?)(?:周|星期|礼拜)(?P<day>[一二三四五六日天末1-7])?", _weekday_zh),
    (r"(?P<step>$^)?(?:周|星期|礼拜)(?P<day>[一二三四五六日天末1-7])", _weekday_zh),
]  # fmt: skip
# Of each rule, in their order, what a text needs to match it: words, characters.
_MONTH_WORDS, _WEEKDAY_WORDS = " ".join(_MONTHS), " ".join(_WEEKDAYS)
_NEEDED = [
    ("0",), *[(_MONTH_WORDS,)] * 5, (" ".join(map(str, range(1900, 2100))),), ("yesterday", "前"), ("yesterday", "昨"),
    ("tomorrow", "后"), ("tomorrow", "明"), ("today tonight morning afternoon evening", "今"), ("ago earlier back",),
    ("weekend week month year night spring summer autumn fall winter",), (_WEEKDAY_WORDS,),
    ("", "前"), ("", "年"), ("", "月"), ("", "周星礼"), ("", "周星礼"),
]  # fmt: skip
_COMPILED = [
    (needed(*wanted), re.compile(pattern), rule) for wanted, (pattern, rule) in zip(_NEEDED, _RULES, strict=True)
]


def _half(unit: str, today: dt.date) -> _Days:
    """Half a month or half a year ago, give or take."""
    days, give = (182, 30) if unit == "年" else (15, VAGUE_DAYS)
    day = today - dt.timedelta(days=days)
    return day - give * _DAY, day + (give + 1) * _DAY


def _matches(plain: str, today: dt.date) -> Iterator[tuple[str, dt.date, dt.date]]:
    """Phrases with their days, by position, none inside another."""
    found: list[tuple[int, int, str, dt.date, dt.date]] = []
    there = signs(plain)
    for wanted, pattern, rule in _COMPILED:
        if wanted.isdisjoint(there):
            continue
        for match in pattern.finditer(plain):
            if any(start < match.end() and match.start() < end for start, end, *_ in found):
                continue
            try:
                first, last = rule(match, today)
            except (ValueError, OverflowError):
                continue
            found.append((match.start(), match.end(), match[0], first, last))
    for _, _, phrase, first, last in sorted(found):
        yield phrase, first, last


_HINT = re.compile(
    rf"\d{{4}}|\b(?:yesterday|today|tonight|tomorrow|ago|earlier|back|last|past|previous|this|next|coming|on|{_MONTH})\b"
    r"|昨|[今明前][天日晚早年]|后天|去年|[上下这本]个?[月周星礼]|[天日周月年期拜][之以]?前|[\d一二三四五六七八九十][年月]|周[一二三四五六日天末\d]"
    r"|星期|礼拜"
)
_TIME = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|last|next|ago|weeks?|weekend|months?|years?|since|summer|winter|spring|"
    rf"autumn|recently|just|{_WEEKDAY}|{_MONTH})\b|\d"
    r"|[昨今明前后去][天日晚年]|[上下这本]个?[周月]|星期|礼拜|周[一二三四五六日末]|[天年月周]前|刚|最近|[一二三四五六七八九十]月"
)
_WHEN = re.compile(
    r"(?:^|[.,!?]\s*)(?:since |until |and |so |but )?"
    r"(?:when(?!ever)\b|how (?:long|recently|many (?:days|weeks|months|years))\b|"
    r"(?:in |on )?(?:what|which) (?:year|month|date|day|time|week)\b)"
    r"|什么时[候间]|何时|几时|哪[一]?[天年日]|哪个?月|几[月号点年]|多久|多长时间|多少[天年]"
)
# What ASCII text needs to match the pattern of the same name.
_HINT_SIGNS = needed(
    f"0 yesterday today tonight tomorrow ago earlier back last past previous this next coming on {_MONTH_WORDS}"
)
_TIME_SIGNS = needed(
    "0 yesterday today tomorrow tonight last next ago week weeks weekend month months year years since summer winter "
    f"spring autumn recently just {_WEEKDAY_WORDS} {_MONTH_WORDS}"
)
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})$")
