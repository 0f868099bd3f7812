"""What an analysis says: the evidence that the question needs, the marks it relies on and those it sets aside.

Read by rules of two languages from free text, so what isn't said in plain words is not found: ``need`` is None then,
never a guess. Linear in the text, which is cut at ``CHARACTERS_MAX``.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

Need = Literal["knowledge", "experience", "both", "none"]

CHARACTERS_MAX = 20_000
"""Characters of an analysis that are read; the instruction asks for a few sentences."""
NEED_CHARACTERS = 400
"""The need is told first; further on the same words speak of the evidence itself."""
RANGE_MAX = 20
"""Marks that "E1-E9" may stand for."""

_MARK = re.compile(r"(?<![A-Za-z0-9])([EKM])[ ]?(\d{1,3})(?:\s?(?:-|–|~|to|至|到)\s?\1?[ ]?(\d{1,3}))?(?![\dA-Za-z])")
_CLAUSE = re.compile(r"[.;。；!！?？\n]+|[,，](?=[^,，]{0,40}[EKM] ?\d)")
_REJECTED = re.compile(
    r"irrelevant|not relevant|unrelated|off[- ]topic|outdated|superseded|discard|ignor|set aside|not "
    r"used?\b|do(?:es)? not (?:use|say|"
    r"support|mention|help|apply|answer)|doesn't (?:say|support|mention|help|apply|answer)|no longer|is older|too old|"
    r"excluded?|reject|is wrong|taken back|contradicted by|corrected by|overridden"
    r"|无关|不相关|过时|不采用|不采信|不用|忽略|排除|没有提到|没提到|未提到|不支持|已被|被.{0,8}(?:纠正|"
    r"更正|推翻|取代)|作废|较旧|已过期|舍弃",
    re.IGNORECASE,
)
_REPLACES = re.compile(
    r"([EKM]\d+)[^EKM.。]{0,12}(?:(?:corrects?|supersedes?|replaces?|overrides?)(?![a-z])|纠正|更正|取代|推翻)"
    r"[^EKM.。]{0,12}([EKM]\d+)"
)
_NO = r"(?:\bno|\bnot|\bneither|n't|\bwithout|不需要?|无需|不用|没有|非)"
_NONE = re.compile(
    r"\bno (?:extra |external )?evidence (?:is |was )?(?:needed|required|necessary)|needs? no evidence|"
    r"(?:need(?:ed|s)?|requires?|required|evidence)\W{0,3}(?:type\W{0,3})?none\b|^\W*none\b|\bneither\b"
    r"|(?:都|均|皆)?(?:不需要|无需|不用|不必)(?:任何|额外)?(?:的)?(?:证据|检索|知识或经历|知识和经历|"
    r"知识与经历|依据)|都不需要|都不用|(?:需要|类型|证据)\W{0,3}无\b|"
    r"(?:证据|需求)[^。\n]{0,8}[:：]\s*(?:无|不需要|都不需要)",
    re.IGNORECASE,
)
_BOTH = re.compile(
    r"\bboth\b|两者都|两类都|二者都|两种都|都需要|兼需|知识(?:\+|和|与|、|加|及)经[历验]|经[历验](?:\+|和|"
    r"与|、|加|及)知识",
    re.IGNORECASE,
)
_KNOWLEDGE = re.compile(r"knowledge|documents?\b|知识|文档|资料", re.IGNORECASE)
_EXPERIENCE = re.compile(
    r"experiences?\b|experiential|user[ _]memory|dialogue history|past turns?|经历|经验|用户记忆|对话历史",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an analysis says; ``method`` "rules"."""

    need: Need | None
    marks: tuple[str, ...]
    verified: tuple[str, ...]
    rejected: tuple[str, ...]


def reading_of(analysis: str) -> Reading:
    """Need, cited marks, and which of them are relied on.

    >>> reading_of("Needs experience. E1 says wonton; E2 is irrelevant.")
    Reading(need='experience', marks=('E1', 'E2'), verified=('E1',), rejected=('E2',))
    >>> reading_of("需要知识和经历。K1说明配方，E3纠正了E2。").rejected
    ('E2',)
    >>> reading_of("A greeting: no evidence is needed.").need
    'none'
    """
    plain = unicodedata.normalize("NFKC", analysis[:CHARACTERS_MAX])
    marks: list[str] = []
    rejected: set[str] = set()
    for clause in _CLAUSE.split(plain):
        cited = _marks(clause)
        marks += cited
        replaced = {match[2] for match in _REPLACES.finditer(clause.replace(" ", ""))} if len(cited) > 1 else set()
        if replaced:
            rejected |= replaced
        elif _REJECTED.search(clause):
            rejected.update(cited[:1] if len(cited) > 1 and re.search(r"\bby\b|被", clause) else cited)
    ordered = tuple(dict.fromkeys(marks))
    return Reading(
        need=_need(plain[:NEED_CHARACTERS]),
        marks=ordered,
        verified=tuple(mark for mark in ordered if mark not in rejected),
        rejected=tuple(mark for mark in ordered if mark in rejected),
    )


def _marks(text: str) -> list[str]:
    found = []
    for match in _MARK.finditer(text):
        first, last = int(match[2]), int(match[3] or match[2])
        if not first <= last < first + RANGE_MAX:
            last = first
        found += [f"{match[1]}{number}" for number in range(first, last + 1)]
    return found


def _need(text: str) -> Need | None:
    knowledge, experience = _said(_KNOWLEDGE, text), _said(_EXPERIENCE, text)
    none = _NONE.search(text)
    if none and not (_said_before(_KNOWLEDGE, text, none.start()) or _said_before(_EXPERIENCE, text, none.start())):
        return "none"
    if _BOTH.search(text) or (knowledge and experience):
        return "both"
    if knowledge or experience:
        return "knowledge" if knowledge else "experience"
    return None


def _said(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a kind of evidence is named and not denied in the words just before or after."""
    return any(
        not re.search(_NO + r"[^.。,，;；]{0,14}$", text[: match.start()])
        and not re.match(r"[^.。,，;；]{0,12}(?:not needed|isn't needed|not required|不需要)", text[match.end() :])
        for match in pattern.finditer(text)
    )


def _said_before(pattern: re.Pattern[str], text: str, end: int) -> bool:
    return _said(pattern, text[:end])
