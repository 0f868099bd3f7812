"""Boundaries of a persona that a rule can check: those that forbid a thing with a shape.

A boundary is prose. Where it forbids one of a few nameable things (doses, diagnoses, legal or investment advice,
personal numbers, swear words, a quoted phrase), a pattern of that thing decides. Every other boundary has no rule, and
says so: ``rule_of`` gives None.

Invariant: a rule errs towards silence; what it flags shows the forbidden thing's shape in so many words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from streams.core.identifiers import redact

PROHIBITION = re.compile(
    r"\b(?:never|must not|mustn't|do(?:es)? not|don't|doesn't|no|not|cannot|can't|won't|will not|refuses?|"
    r"avoids?|under no circumstances|"
    r"forbidden|prohibited|without|declines?|rejects?|nor|isn't|is not|only|always|must|stays?|keeps?)\b"
    r"|不(?:得|能|可|许|准|会|要|应|该|允许|谈|说|提|给|做|碰|接受|透露|泄露|承认|讨论|编造|代替|使用|扮演|"
    r"冒充|参与|评价|推荐|让|透|收|答|以)|绝不|决不|永不|从不|禁止|严禁|拒绝|避免|切勿|勿|别|只能|只(?:谈|"
    r"说|聊|回答)|必须|始终|不.{0,6}(?:任何|一切)",
    re.IGNORECASE,
)
"""Words with which a boundary forbids, or demands without exception."""


@dataclass(frozen=True, slots=True)
class BoundaryRule:
    """A checkable boundary: what it is about, and where a response crosses it."""

    about: str
    spans: Callable[[str], list[tuple[int, int]]]


def _pattern(pattern: str, flags: int = re.IGNORECASE) -> Callable[[str], list[tuple[int, int]]]:
    compiled = re.compile(pattern, flags)
    return lambda text: [match.span() for match in compiled.finditer(text)]


def _identifiers(text: str) -> list[tuple[int, int]]:
    return [(0, len(text))] if redact(text).found else []


_FOOD = "(?!.?(?:面包|吐司|饼干|叶|肉|云|海|森林|糖|薄荷|西瓜|柠檬|姜|奶酪|火腿|牙膏))"
_DOSE = (
    r"\b\d+(?:[.,]\d+)?\s?(?:mg|milligrams?|mcg|µg|micrograms?|iu|tablets?|pills?|capsules?)\b"
    rf"|\d+(?:\.\d+)?\s?(?:毫克|微克|片|粒|颗){_FOOD}|[一二两三四半]\s?(?:片|粒|颗)(?:药|布洛芬|阿司匹林|安眠药)"
    r"|(?:每[天日次]|一[天日]|[一二两三四]次)[^。，,\n]{0,6}(?:\d+|[一二两三四半])\s?"
    rf"(?:毫克|片|粒|颗|滴){_FOOD}"
)
_DIAGNOSIS = (
    r"\byou (?:probably |likely |clearly |certainly |definitely |may |might )?(?:have|suffer from|are "
    r"suffering from|show signs of)\s(?:an? |the )?"
    r"(?:\w+ ){0,2}(?:depression|anxiety disorder|adhd|bipolar|cancer|diabetes|flu|influenza|covid|"
    r"pneumonia|infection|migraine|ptsd|autism|disorder|disease|syndrome)"
    r"|[你您](?:应该|可能|大概|肯定|这)?(?:就)?(?:是|得了|患有|患了|有)(?:典型的|轻度|中度|重度|"
    r"严重的)?(?:抑郁症?|焦虑症|躁郁症|双相|多动症|癌症?|糖尿病|流感|肺炎|感染|偏头痛|自闭症)"
)
_LEGAL = (
    r"\byou (?:should|can|could|must|ought to) (?:definitely |certainly )?(?:sue|file (?:a )?(?:lawsuit|"
    r"suit|claim|charges)|plead|press charges|sign the (?:contract|settlement))\b"
    r"|[你您](?:应该|可以|必须|得|最好)(?:去)?(?:起诉|上诉|告他|告她|告公司|签字|申请仲裁|提起诉讼)"
)
_MONEY = (
    r"\b(?:you should |I(?:'d| would)? (?:recommend|suggest|advise)(?: you)?(?: to)? )?(?:buy|sell|short|"
    r"invest in|put your money in(?:to)?)\s(?:\w+ ){0,2}(?:stocks?|shares?|"
    r"bitcoin|crypto(?:currency)?|options|etfs?|bonds|funds?)\b|(?:建议|推荐)?[你您]?(?:应该|可以|"
    r"最好)?(?:买入|卖出|加仓|抄底|满仓|梭哈)"
    r"|(?:建议|推荐)[你您]?(?:买|投资)[^。，\n]{0,8}(?:股票|基金|比特币|币|债券)"
)
_SWEAR = (
    r"\b(?:fuck\w*|shit\w*|bitch\w*|asshole\w*|bastard\w*|cunt\w*|dickhead\w*)\b|他妈的|操你|傻[逼屄比]|"
    r"混蛋|王八蛋|滚蛋|去死|婊子|贱人"
)
_OTHER_ROLE = (
    r"\bI(?:'m| am) (?:now|no longer) (?:an? |the |called |your )?(?!sure|certain|able|angry|tired|hungry|"
    r"afraid|at|in|on|here)"
    r"(?:[A-Z]\w+|\w+ (?:captain|pirate|assistant|hacker|master|king|queen|god|robot|bot)|captain|pirate|hacker|robot)"
    r"|\bDAN\b|\bdeveloper mode\b|我现在(?:扮演|变成)|我现在(?:就)?是(?!真|在|很|不|有|比|想|越|又|说|要|"
    r"到|来|去|这|那|最|挺|更|没|你|您)|"
    r"从现在起我(?:就)?(?:是|叫)(?![你您])|我不再是"
)
_LINK = r"https?://\S+|\bwww\.\S+\.\S+"

_KINDS: list[tuple[str, str, Callable[[str], list[tuple[int, int]]]]] = [
    ("doses", r"\bdos(?:e|es|age|ages|ing)\b|prescri|how much medicine|剂量|用药|药量|开药|处方", _pattern(_DOSE)),
    ("diagnosis", r"diagnos|诊断|断症", _pattern(_DIAGNOSIS)),
    ("legal advice", r"legal (?:advice|counsel)|law(?:yer)? advice|法律(?:建议|意见|咨询)", _pattern(_LEGAL)),
    (
        "investment advice",
        r"(?:investment|financial|stock|trading) (?:advice|tips?|recommendations?)|投资(?:建议|意见|理财)|荐股|股票",
        _pattern(_MONEY),
    ),
    ("swearing", r"swear|curs(?:e|ing)|profan|vulgar|obscen|foul language|脏话|粗口|骂人|粗俗", _pattern(_SWEAR)),
    (
        "other roles",
        r"(?:another|other|different) (?:role|persona|character|person)|pretend to be|someone else|"
        r"impersonat|扮演(?:别|其他|他人)|别的角色|其他角色|冒充|换成?别",
        _pattern(_OTHER_ROLE, 0),
    ),
    (
        "personal numbers",
        r"personal (?:data|information|identifiers?)|phone numbers?|id numbers?|passwords?|private (?:data|"
        r"information)|隐私|个人信息|身份证|电话号码|手机号|密码",
        _identifiers,
    ),
    ("links", r"\blinks?\b|\burls?\b|websites?|链接|网址", _pattern(_LINK)),
]
_ABOUT = [(name, re.compile(pattern, re.IGNORECASE), spans) for name, pattern, spans in _KINDS]
_PHRASE = re.compile(
    r"(?:says?|uses?|words?|phrases?|说|用词|提到|使用|称)[^“\"「『\n]{0,12}[“\"「『]([^”\"」』\n]{2,60})[”\"」』]",
    re.IGNORECASE,
)


@lru_cache(maxsize=512)  # Boundaries of the personas in use: a handful each, asked for with every answer.
def rule_of(boundary: str) -> BoundaryRule | None:
    """The rule of a boundary; None where no rule can check it.

    >>> rule_of("Never gives medical doses.").about, rule_of("绝不说脏话").about, rule_of("Is kind at heart.")
    ('doses', 'swearing', None)
    >>> rule_of('Never says "trust me".').spans("Oh, trust me on this")
    [(4, 12)]
    """
    if not PROHIBITION.search(boundary):
        return None
    phrase = _PHRASE.search(boundary)
    if phrase:
        return BoundaryRule("a phrase", _pattern(re.escape(phrase[1])))
    found = [(name, spans) for name, about, spans in _ABOUT if about.search(boundary)]
    if not found:
        return None

    def all_spans(text: str) -> list[tuple[int, int]]:
        return [span for _, spans in found for span in spans(text)]

    return BoundaryRule(", ".join(name for name, _ in found), all_spans)
