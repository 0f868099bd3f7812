"""Values of facts in the form in which paraphrases are equal.

Invariant: a function of key and value alone, and a fixed point of itself (``normalise(k, normalise(k, v))`` is
``normalise(k, v)``), so that it doesn't matter whether a value was stored as said or in this form.
"""

from __future__ import annotations

import re

from streams.core.facts import words
from streams.core.facts.dates import number
from streams.core.facts.vocabulary import MEMBERS, person_of
from streams.core.text import folded

VALUE_LENGTH_MAX = 200
"""Characters of a value; no rule finds longer ones, a model might."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_EDGES = " \t\r\n.,;:!?'\"“”‘’`。、，；：！？「」『』《》()（）~*_-–—"
_ARTICLES = re.compile(r"\b(?:an?|the|my|our|some)\b ?")
_FIRST = re.compile(r"^(?:to|being|called|named|very|really|also) ")
_SPACES_HAN = re.compile(rf"(?<=[{_HAN}]) +| +(?=[{_HAN}])")
_MEASURE = re.compile(
    r"^(?:(?:[一1][名位个条只台辆家所部件块张套间栋匹头份门种]|[名个位]|[一1])的?|两[只条个]"
    r"|[2-9二三四五六七八九两][只条])(?=[\u4e00-\u9fffa-z])"
)
_LAST_ZH = re.compile(rf"(?<=[{_HAN}a-z\d])(?:了|吧|啊|呢|呀|哦|啦|的|嘛|喔|哟)+$")
_DATE = re.compile(r"^(?:\d{4}(?:-\d\d(?:-\d\d)?)?|--\d\d-\d\d)$")
_NAMED = re.compile(r"^(.*?) ?\(([^()]{1,30})\)$")

_CLOSED = {
    "diet": words.DIETS,
    "marital_status": words.MARITAL,
    "handedness": words.HANDEDNESS,
    "language": words.LANGUAGES,
}
_KINDS = {**words.SPECIES_EN, **words.SPECIES_ZH, **words.PERSONS_EN, **words.PERSONS_ZH}
_KINDS |= {"boy": "son", "girl": "daughter", "男孩": "son", "女孩": "daughter"}
_WITH_KIND = frozenset({"pet", *MEMBERS.values()})
_COUNTED = frozenset({"age", "children_count"})


def normalise(key: str, value: str) -> str:
    """A value in the form in which paraphrases are equal.

    Case, width, script, articles, measure words, punctuation and final particles go; numbers are digits; what a
    closed list knows is its English word, in either language.

    Parameters
    ----------
    key : str
        Name of a key: what is dropped depends on it.
    value : str
        As said.

    >>> normalise("occupation", "a Software  Engineer."), normalise("occupation", "一名工程師")
    ('software engineer', '工程师')
    >>> normalise("age", "thirty-four"), normalise("diet", "素食者"), normalise("pet", "Biscuit (Puppy)")
    ('34', 'vegetarian', 'biscuit (dog)')
    >>> normalise("marital_status", "结婚了"), normalise("routine", "每周三晚上我都去上课")
    ('married', '每周三晚上去上课')
    """
    plain = _plain(value)
    about = person_of(key)
    attribute = about[1] if about else key
    if _DATE.match(plain):
        return plain
    if attribute in _COUNTED:
        digits = number(re.sub(r"(?:岁|个| years? old)$", "", plain))
        return plain if digits is None else str(digits)
    if attribute in _WITH_KIND:
        return _with_kind(plain)
    bare = _bare(plain, attribute)
    closed = _CLOSED.get(attribute)
    if closed is not None:
        return closed.get(bare) or closed.get(plain) or bare
    return bare


def _plain(value: str) -> str:
    plain = folded(value[:VALUE_LENGTH_MAX]).replace("’", "'")
    if plain.startswith("--"):
        return plain.strip()
    plain = " ".join(plain.split())
    closing = plain.endswith(")") and "(" in plain
    return plain.strip(_EDGES.replace("()", "")) if closing else plain.strip(_EDGES)


def _bare(plain: str, attribute: str) -> str:
    """Without the words that don't tell values apart; repeated until nothing goes, for it to be a fixed point."""
    while True:
        shorter = _ARTICLES.sub("", plain)
        shorter = _FIRST.sub("", shorter)
        shorter = _SPACES_HAN.sub("", shorter)
        if attribute not in ("name", "nickname", "surname"):
            shorter = _LAST_ZH.sub("", _MEASURE.sub("", shorter))
        if attribute in ("likes", "dislikes"):
            shorter = re.sub(r"^(?:eat(?:ing)?|drink(?:ing)?) |^[吃喝](?=[\u4e00-\u9fff])", "", shorter)
        if attribute == "routine":
            shorter = re.sub(r"我们|我|都|(?<=[\u4e00-\u9fff])会|\b(?:i|we)\b", "", shorter)
        shorter = " ".join(shorter.split()).strip(_EDGES)
        if not shorter or shorter == plain:
            return plain
        plain = shorter


def _with_kind(plain: str) -> str:
    """``name (kind)`` or ``kind``, the kind in its English word."""
    match = _NAMED.match(plain)
    if match is None or not match[1]:
        bare = _bare(plain.strip("()"), "kind")
        return _kind(bare)
    return f"{match[1].strip(_EDGES)} ({_kind(_bare(match[2], 'kind'))})" if match[1].strip(_EDGES) else _kind(match[2])


def _kind(word: str) -> str:
    """The English word of a kind of animal or relative; of a plural too; other words stay."""
    last = word.rpartition(" ")[2]
    for form in (word, word.removesuffix("s"), last, last.removesuffix("s")):
        if form in _KINDS:
            return _KINDS[form]
    return word


def same_value(key: str, a: str, b: str) -> bool:
    """Whether two values of a key may be the same thing, one of them perhaps said with less detail.

    ``1991-05-03`` and ``--05-03`` are the same birthday, ``Biscuit (dog)`` and ``dog`` the same pet, ``Lyon`` and
    ``Lyon, France`` the same home. Symmetric; not transitive, since a vague value agrees with several exact ones.

    >>> same_value("birthday", "1991-05-03", "--05-03"), same_value("pet", "dog", "Biscuit (puppy)")
    (True, True)
    >>> same_value("home", "Lyon, France", "lyon"), same_value("pet", "Max (dog)", "Biscuit (dog)")
    (True, False)
    """
    first, second = sorted((normalise(key, a), normalise(key, b)), key=lambda value: (len(value), value))
    if first == second:
        return True
    if not first:
        return False
    if _DATE.match(first) and _DATE.match(second):
        if first.startswith("--"):
            return second.endswith(first[1:])
        return not second.startswith("--") and second.startswith(first + "-")
    about = person_of(key)
    attribute = about[1] if about else key
    if attribute in _WITH_KIND:
        return second.endswith(f" ({first})") or second.partition(" (")[0] == first
    if attribute in ("home", "origin", "employer", "education"):
        return second.startswith((first + ",", first + " ")) or second.endswith((" " + first, "," + first))
    return _singular(first) == _singular(second)


def _singular(value: str) -> str:
    return " ".join(word.removesuffix("s") for word in value.split(" "))
