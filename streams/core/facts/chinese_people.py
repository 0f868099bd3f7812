"""How Chinese rules about who and what belongs to the speaker are read: names, animals, relatives, marital status.

Invariant: what follows 叫 is a name only where it looks like one: 叫外卖 and 叫醒 name nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streams.core.facts import words
from streams.core.facts.chinese_meant import SURNAMES
from streams.core.facts.chinese_reading import Read, Value, trimmed
from streams.core.facts.predicate import Predicate
from streams.core.facts.vocabulary import MEMBERS

_NOT_NAMES = re.compile(
    r"(?:了|你|他|她|它|我|车|人|外卖|来|去|到|过|什么|啥|不|别|停|好|着|得|这|那|大家|苦|板|一|两|个|做|快递|救|醒"
    r"|上|出|代驾|滴滴|早|起)"
)


_FULL_NAME = re.compile(
    rf"(?:欧阳|诸葛|司马|上官|司徒|东方|夏侯|皇甫|慕容|令狐|端木|百里|[{SURNAMES}])[\u4e00-\u9fff]{{1,2}}$|[a-z]"
    rf"|[小阿大老][\u4e00-\u9fff]{{1,2}}$"
    r"|([\u4e00-\u9fff])\1$|[\u4e00-\u9fff]{1,4}·"
)
"""What 我叫 is followed by when it is a name: a surname first, a pet form, or another script."""


def is_name(value: str) -> bool:
    """Whether a word may be somebody's name: not what 叫 has for an object or a complement."""
    if _NOT_NAMES.match(value) or re.search(r"[了我你他她的吗不]|[来去起]$|服务员|师傅", value):
        return False
    return value.isascii() or 2 <= len(value) <= 4 or "·" in value


def name(key: str) -> Read:
    """A proper name: what 叫 is followed by at the end of a clause."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        start, end = trimmed(said, *match.span("v"))
        value = said.sentence[start:end]
        if value and is_name(value) and (key != "name" or _FULL_NAME.match(value)):
            yield key, said.original(start, end), end

    return read


def marital(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """A status; without 了 结婚 is an event that may be to come."""
    state = match["v"]
    settled = "的婚" in state or state in ("单着", "离异", "已婚", "单身", "未婚", "丧偶", "分居")
    if settled or match["l"] or said.negated or "了" in state:
        value = re.sub("了", "", state)
        yield "marital_status", value if value != state else said.original(*match.span("v")), match.end("v")


_CALLED_NEXT = re.compile(
    r",?(?:它|她|他|名字|小名|大名|取名|起名|名|我们|我|是)*(?:叫做?|是叫)\"?(?P<n>[\u4e00-\u9fffa-z]{1,6}?)\"?"
    r"(?=[,;!?()]|$|[了啦哦呢吧])"
)


_CALLED_BOTH = re.compile(
    r",?一[只条个]叫\"?(?P<n>[\u4e00-\u9fffa-z]{1,6}?)\"?,(?:另)?一[只条个]叫\"?(?P<m>[\u4e00-\u9fffa-z]{1,6}?)\"?"
    r"(?=[,;!?()]|$)"
)


def pet(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """An animal, with its name from the next clause."""
    text = said.sentence
    kind = said.original(*match.span("s"))
    both = _CALLED_BOTH.match(text, match.end("s"))
    if both:
        for group in ("n", "m"):
            yield "pet", f"{said.original(*both.span(group))} ({kind})", both.end(group)
        return
    named = _CALLED_NEXT.match(text, match.end("s"))
    if named:
        yield "pet", f"{said.original(*named.span('n'))} ({kind})", named.end("n")
    else:
        yield "pet", kind, match.end("s")


_KIN_NEXT = re.compile(r"(?:[和跟、]|还有)(?:一|两|三)?个?(?P<s>儿子|女儿|闺女|姐姐|妹妹|哥哥|弟弟)(?=[,;!?()、和]|$)")


def kin(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "有一个女儿,叫朵朵", "有一个哥哥和一个妹妹"."""
    kind = match["s"]
    following = _KIN_NEXT.match(said.sentence, match.end("s"))
    if following:
        yield from kin(said, following)
    key = MEMBERS[words.PERSONS_ZH[kind]] if kind in words.PERSONS_ZH else "child"
    named = _CALLED_NEXT.match(said.sentence, match.end("s"))
    if named:
        yield key, f"{said.original(*named.span('n'))} ({said.original(*match.span('s'))})", named.end("n")
    else:
        yield key, said.original(*match.span("s")), match.end("s")
