"""The prompt's texts: versioned files by language, and the words for a distance in time.

Invariant: a file is never edited once it is released; a change is a new version, and the version is part of the
settings' digest.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template

from schemas.envelope import instant_ms
from streams.core.prompts import VERSION
from streams.core.text import language

LANGUAGES = ("en", "zh")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})$")


@cache  # Two languages times half a dozen names: bounded by the files of the package.
def wording(name: str, tongue: str) -> Template:
    """Template of a prompt file."""
    path = files("streams.core.prompts").joinpath(f"{name}.{tongue}.v{VERSION}.md")
    return Template(path.read_text(encoding="utf-8").rstrip("\n"))


@cache
def texts(name: str, tongue: str) -> dict[str, str]:
    """A prompt file of short texts, ``key: text`` a line.

    >>> texts("faults", "zh")["json"]
    '回答写成了JSON'
    """
    lines = wording(name, tongue).template.splitlines()
    return {key: value for key, _, value in (line.partition(": ") for line in lines)}


def labels(tongue: str) -> dict[str, str]:
    """Short texts of the prompt by key."""
    return texts("labels", tongue)


def label(tongue: str, key: str, **values: str | int) -> str:
    """A short text with its values filled in.

    >>> label("en", "rounds_ago", n=3), label("zh", "round_ago")
    ('3 rounds ago', '1轮前')
    """
    return Template(labels(tongue)[key]).substitute(values)


def tongue_of(persona_language: str | None, query: str) -> str:
    """Language of the prompt: the persona's if there are texts in it, else that of the query's script.

    >>> tongue_of("zh-CN", "hello"), tongue_of(None, "你好"), tongue_of("English", "你好"), tongue_of("fr", "salut")
    ('zh', 'zh', 'en', 'en')
    """
    wanted = (persona_language or "").strip().casefold()
    if wanted.startswith(("zh", "chinese", "mandarin", "cmn", "中", "汉", "华", "普通话")):
        return "zh"
    if wanted.startswith(("en", "英")):
        return "en"
    return language(query)


@dataclass(frozen=True, slots=True)
class Now:
    """The moment of a request, told in the time zone of whatever is dated against it."""

    now_ms: int
    round: int
    zoned: bool = False
    """Whether dates tell their offset: what is dated comes from more than one zone, so bare times would mislead."""

    def written(self, instant: str) -> str:
        """An instant as its producer wrote it, with its offset where zones are mixed.

        >>> Now(0, 1, zoned=True).written("2026-05-20T11:03:14Z")
        '2026-05-20 11:03 Z'
        """
        return f"{written_date(instant)} {zone_of(instant)}" if self.zoned else written_date(instant)

    def date(self, zone_of: str | None) -> str:
        """Now as ``2026-05-21 08:00`` in the zone of an instant (UTC by default).

        >>> Now(0, 1).date("2026-05-20T19:03:11+08:00"), Now(0, 1).date(None)
        ('1970-01-01 08:00', '1970-01-01 00:00')
        """
        return _local(self.now_ms, zone_of).strftime("%Y-%m-%d %H:%M")

    def days_ago(self, instant: str) -> int:
        """Calendar days from an instant to now, in the instant's own zone: yesterday evening is one day ago."""
        return (_local(self.now_ms, instant).date() - _local(instant_ms(instant), instant).date()).days

    def distance(self, tongue: str, instant: str, rounds_ago: int | None) -> str:
        """``1 day ago, 3 rounds ago`` in words.

        >>> Now(86_400_000, 5).distance("en", "1970-01-01T00:00:00Z", 3)
        'yesterday, 3 rounds ago'
        """
        days = self.days_ago(instant)
        if days < 0:
            words = label(tongue, "days_ahead", n=-days)
        elif days < 2:
            words = label(tongue, ("today", "yesterday")[days])
        else:
            words = label(tongue, "days_ago", n=days)
        return words if rounds_ago is None else words + label(tongue, "list_separator") + _rounds(tongue, rounds_ago)


def _rounds(tongue: str, rounds_ago: int) -> str:
    if rounds_ago < 1:
        return label(tongue, "this_round")
    return label(tongue, "round_ago") if rounds_ago == 1 else label(tongue, "rounds_ago", n=rounds_ago)


def zone_of(instant: str) -> str:
    """Offset of an instant as it was written.

    >>> zone_of("2026-05-20T19:03:11.250+08:00"), zone_of("2026-05-20T11:03:14Z")
    ('+08:00', 'Z')
    """
    return "Z" if instant[-1:] in "Zz" else instant[-6:]


def written_date(instant: str) -> str:
    """An instant as its producer wrote it, to the minute.

    >>> written_date("2026-05-20T19:03:11.250+08:00")
    '2026-05-20 19:03'
    """
    return f"{instant[:10]} {instant[11:16]}"


def _local(milliseconds: int, zone_of: str | None) -> dt.datetime:
    match = _OFFSET.search(zone_of or "")
    minutes = 0 if match is None else int(match[1] + "1") * (int(match[2]) * 60 + int(match[3]))
    return _EPOCH + dt.timedelta(milliseconds=milliseconds, minutes=minutes)
