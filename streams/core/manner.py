"""How texts are said, apart from what they say: counts that are pooled and compared; for tone and the senses.

Four profiles make the manner: pairs of characters, function words, lengths of sentences, and marks (ends of sentences,
emoji). Likeness of two manners is the mean, over the profiles that either has, of 1 minus the Jensen–Shannon divergence
(base 2): 1 for equal shares, 0 for shares without a common entry. ``METHOD`` is "rules": no model judges.

Invariant: a function of the texts; adding manners is counting their texts together, in any order.

References
----------
Lin (1991), Divergence measures based on the Shannon entropy, IEEE Trans. Inf. Theory 37(1): eq. 4.1 with equal weights.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from streams.core.text import folded

METHOD = "rules"
PROFILES = ("character pairs", "function words", "sentence lengths", "marks")
CHARACTERS_MAX = 20_000
"""Of one text; an answer in a chat is a tenth of it."""

# Of folded text: full-width marks are half-width, an ellipsis is three points.
_SENTENCE = re.compile(r"[^.!?。~\n]+([.!?。~]*)")
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]|[:;]-?[)D(P](?!\\w)")
_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?|[㐀-鿿]")
_ENGLISH = (
    "a about after all also am an and any are as at be because been but by can could did do does don't for from had "
    "has have he her here him his how i i'm i'll i've if in into is it it's its just like me more must my no not now "
    "of oh ok okay on one or our out please quite rather really she should so some such than that the their them then "
    "there they this to too up us very was we well were what when which who will with would yes you you're your"
)
_CHINESE = (
    "的了着过地得吗呢吧啊呀哦嗯哈嘛啦哟罢是在有和就不也都而及与或把被让给对从到这那个们很太真最您你我咱他她它之其乃矣"
)
_FUNCTION = frozenset((*_ENGLISH.split(), *_CHINESE))
_SENSE_WORDS = {
    "sight": (
        r"\b(?:see|saw|seen|look(?:s|ed)?|watch(?:ed|ing)?|bright\w*|dark(?:er)?|golden|glow\w*|shin(?:e|es|ing)|gleam\w*|"
        r"colou?rs?|red|blue|green|pale|shadows?|light)\b|看见|看到|看着|望着|瞧见|亮|暗|金黄|发光|闪|颜色|红|蓝|绿|影子|光"
    ),
    "hearing": (
        r"\b(?:hear(?:s|d)?|listen(?:s|ed|ing)?|sounds?|quiet|loud|silen(?:t|ce)|whisper\w*|hum(?:s|ming)?|crackl\w*|"
        r"music|ring(?:s|ing)?|noise)\b|听见|听到|听着|声音|声|安静|吵|响|嗡|噼啪|轻声|音乐"
    ),
    "smell": r"\b(?:smell\w*|scents?|aroma\w*|fragran\w*|stink\w*|whiff|odou?rs?|perfume)\b|闻|气味|香|臭|芬芳|味儿",
    "taste": (
        r"\b(?:tast\w+|sweet\w*|sour\w*|bitter\w*|salty|savou?ry|spicy|delicious|tangy|flavou?rs?)\b"
        r"|尝|味道|甜|酸|苦|咸|辣|鲜|好吃|可口"
    ),
    "touch": (
        r"\b(?:touch\w*|warm\w*|cold|cool|hot|soft\w*|rough|smooth|sticky|crisp\w*|wet|dry|chill\w*)\b"
        r"|摸|触|暖|冷|凉|烫|热|软|硬|粗糙|光滑|黏|粘|脆|湿|干"
    ),
}
_SENSES = {sense: re.compile(pattern) for sense, pattern in _SENSE_WORDS.items()}


@dataclass(frozen=True, slots=True)
class Manner:
    """Counts of one or many texts: a profile each, and the senses they speak to."""

    characters: int
    profiles: tuple[Counter[str], ...]
    """In the order of ``PROFILES``."""
    senses: Counter[str]

    def __sub__(self, other: Manner) -> Manner:
        """What is left without the texts of another manner, which are among these."""
        return Manner(
            self.characters - other.characters,
            tuple(mine - theirs for mine, theirs in zip(self.profiles, other.profiles, strict=True)),
            self.senses - other.senses,
        )


def manner_of(text: str) -> Manner:
    """Count one text.

    >>> said = manner_of("Oh, the bread is warm! Smell it 🙂")
    >>> sorted(said.senses.items()), said.profiles[3]["!"]
    ([('smell', 1), ('touch', 1)], 1)
    """
    plain = folded(text[:CHARACTERS_MAX])
    signs = [sign for sign in plain if not sign.isspace()]
    pairs = Counter(first + second for first, second in pairwise(signs))
    words = Counter(word for word in _WORD.findall(plain) if word in _FUNCTION)
    lengths: Counter[str] = Counter()
    marks: Counter[str] = Counter("emoji" for _ in _EMOJI.finditer(plain))
    for match in _SENTENCE.finditer(plain):
        size = len(_WORD.findall(match[0]))
        if size:
            lengths[str(size.bit_length())] += 1  # 1, 2–3, 4–7, 8–15, … words or characters of Chinese
            marks["…" if match[1].startswith("..") else (match[1][:1] or "none").replace("。", ".")] += 1
    senses = Counter({sense: count for sense, pattern in _SENSES.items() if (count := len(pattern.findall(plain)))})
    return Manner(len(signs), (pairs, words, lengths, marks), senses)


def pooled(manners: Iterable[Manner]) -> Manner:
    """Many texts counted together."""
    characters, profiles, senses = 0, tuple(Counter[str]() for _ in PROFILES), Counter[str]()
    for manner in manners:
        characters += manner.characters
        senses.update(manner.senses)
        for total, counted in zip(profiles, manner.profiles, strict=True):
            total.update(counted)
    return Manner(characters, profiles, senses)


def likeness(one: Manner, other: Manner) -> float | None:
    """Mean of the profiles' likeness, 0 to 1; None where neither has anything to compare.

    >>> said = manner_of("Good bread takes its time, friend.")
    >>> likeness(said, said), likeness(manner_of(""), manner_of(" "))
    (1.0, None)
    >>> likeness(said, manner_of("好的呀！")) < 0.1
    True
    """
    found = [
        shares_alike(mine, theirs)
        for mine, theirs in zip(one.profiles, other.profiles, strict=True)
        if mine.total() or theirs.total()
    ]
    return sum(found) / len(found) if found else None


def shares_alike(one: Counter[str], other: Counter[str]) -> float:
    """1 minus the Jensen–Shannon divergence (base 2) of the shares of two counts; 0 where one of them is empty.

    >>> shares_alike(Counter("ab"), Counter("abab")), shares_alike(Counter("a"), Counter("b"))
    (1.0, 0.0)
    """
    total_one, total_other = one.total(), other.total()
    if not total_one or not total_other:
        return 0.0
    divergence, common = 0.0, 0
    for key, count in one.items():
        p, q = count / total_one, other.get(key, 0) / total_other
        common += other.get(key, 0)
        middle = (p + q) / 2
        divergence += p * log2(p / middle) / 2
        if q:
            divergence += q * log2(q / middle) / 2
    divergence += (1 - common / total_other) / 2  # what only the other has: each share counts half of itself
    return round(min(1.0, max(0.0, 1 - divergence)), 9)
