"""Whether an answer keeps to its persona, 0 or 1: by rules here, by a model with ``judge_messages`` and ``verdict_of``.

Rules see closed things only: a persona that denies itself, a prompt that leaks, the wrong language, a wrong form of
address, another name claimed, words that are to be avoided, and those boundaries that forbid a nameable thing
(``boundaries.rule_of``). ``Compliance.coverage`` says how many boundaries a rule could check: the others were passed
unseen, and only a model or a person can judge them.

Invariant: a function of its arguments, linear in their length; each violation names its rule and its span.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.personas import Persona
from schemas.recalls import Message
from streams.core.boundaries import BoundaryRule, rule_of
from streams.core.text import folded, language
from streams.core.wording import texts, tongue_of, wording

Rule = Literal[
    "self_denial", "prompt_leak", "language", "address", "other_persona", "words_avoided", "boundary", "judge"
]
METHOD = "rules"
LEAK_WORDS = 12
"""Words (characters of Chinese: twice as many) in a row that stand in the system message: shorter runs are chance."""
LANGUAGE_CHARACTERS_MIN = 12
"""Letters from which a response shows its language."""

_MACHINE = re.compile(
    r"\bas an? (?:ai|artificial intelligence|large language model|language model|llm|virtual assistant|"
    r"digital assistant|chatbot)\b"
    r"|\bI(?:'m| am) (?:just |only |actually |really |merely )?(?:an? )?(?:ai\b|artificial intelligence|"
    r"(?:large )?language model|llm\b|chatbot|bot\b|"
    r"computer program|virtual assistant|machine\b(?! \w))"
    r"|\bI don't (?:actually )?have (?:feelings|a body|personal experiences?|emotions)\b"
    r"|作为(?:一个|一名|一种|个)?(?:AI|人工智能|大?语言模型|大模型|聊天机器人|虚拟助手|智能助手)"
    r"|我(?:只|其实|本质上|不过)?是(?:一个|一名|一种|个)?(?:由.{1,12}(?:开发|训练)的)?(?:AI|人工智能|"
    r"大?语言模型|大模型|聊天机器人|机器人|程序|虚拟助手|智能助手)(?![吗么嘛])"
    r"|我没有(?:真实的?)?(?:情感|感情|身体|肉体|感受)",
    re.IGNORECASE,
)
_OUT_OF_ROLE = re.compile(
    r"\bI(?:'m| am) (?:just |only )?(?:playing|pretending|simulating|"
    r"role-?playing)\b[^.!?\n]{0,30}\b(?:character|role|persona|part|to be)\b"
    r"|\bmy (?:training data|system prompt|programming|knowledge cutoff)\b|\bI was trained on\b"
    r"|\bI was (?:trained|developed|created|built|made) by (?:openai|anthropic|google|meta\b|deepseek|"
    r"alibaba|microsoft|mistral|an? (?:team|company)|"
    r"developers|engineers|researchers)|\b(?:break(?:ing)?|out of|drop(?:ping)?) character\b"
    r"|我(?:只是|其实)?在?(?:扮演|假装|模拟).{0,12}(?:角色|人设|人物)|(?:跳出|脱离)(?:角色|人设)|"
    r"我的(?:训练数据|系统提示|知识截止)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[;；.。,，:：]")
_FORBIDS = re.compile(r"\b(?:never|not|no|nor|without|refuses?|denies)\b|n't\b|不|绝|勿|禁|别", re.IGNORECASE)
_IS_MACHINE = re.compile(r"\bai\b|人工智能|language model|语言模型|chatbot|机器人|robot|assistant|助手|助理")
_CLAIMED_EN = re.compile(
    r"\b(?:(?i:my name is|my name's)|I(?:'m| am) (?:now |actually |really )?(?:called|named)|^Call me) "
    r"[\"“]?([A-Z][\w’-]{1,30})"
    r"|\bI(?:'m| am) (?:now |actually |really )?([A-Z][\w’-]{1,30})(?=[,.!;]| (?:and|your|the|from|now)\b|$)"
)
_CLAIMED_ZH = re.compile(
    r"(?:我(?:现在|其实|的名字)?(?:叫做?|名叫|名字[是叫])|(?:请|以后|就|可以)叫我|(?:^|[。！!，,\n])叫我)[\"“「]?"
    r"(?![了他她它你您人来车住过个醒不什怎做外一大号干去起别早先回]|我妈|我爸)"
    r"([A-Za-z][\w-]{1,30}|[一-龥·]{1,5}?)(?=[\"”」，。！!,.\s吧呀啊就好]|$)"
)
_NATIONALITY = re.compile(r"(?:ese|ish|[ie]an|can|ch|utch|eek|sh|ist)$")
_SECOND_PERSON = {"您": re.compile(r"您(?!好)"), "你": re.compile(r"你")}
_NOT_NAMES = frozenset(
    [
        "Sorry",
        "Glad",
        "Here",
        "Sure",
        "Happy",
        "Fine",
        "Okay",
        "Not",
        "So",
        "Very",
        "Afraid",
        "Back",
        "Still",
        "Just",
        "Always",
        "Never",
        "Going",
        "Trying",
        "Happy",
        "Proud",
        "Well",
        "Good",
        "Yes",
        "No",
        "At",
        "In",
        "On",
        "From",
        "With",
        "Your",
        "The",
        "An",
        "Really",
        "Too",
        "Thinking",
        "Looking",
        "Working",
        "Listening",
        "Certain",
        "Aware",
        "Curious",
        "Right",
        "Also",
        "Now",
        "Only",
        "Even",
        "Quite",
        "Pretty",
    ]
)
_QUOTED = re.compile(r"[“\"「『‘][^“”\"「」『』]{0,200}[”\"」』’]")
_WORDS = re.compile(r"[㐀-鿿]|[^\W_㐀-鿿]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What an answer did against its persona, and where."""

    rule: Rule
    start: int
    end: int
    text: str
    detail: str = ""
    """The boundary, the name, the form that was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compliance:
    """The verdict: ``passed`` is ARPM's and PME's 0/1."""

    passed: bool
    violations: tuple[Violation, ...] = ()
    method: str = METHOD
    checked: int = 0
    """Boundaries that the method could judge."""
    boundaries: int = 0

    @property
    def coverage(self) -> float:
        """Share of the boundaries that were judged; 1 where there are none."""
        return self.checked / self.boundaries if self.boundaries else 1.0


def check(response: str, anchor: Persona | None, *, system: str = "", query: str = "") -> Compliance:
    """Judge a response by rules.

    Parameters
    ----------
    response : str
        As the user sees it.
    anchor : Persona or None
        None: only a leak of the system message is looked for.
    system : str
        The system message that was sent.
    query : str
        What was asked: a language that the user asked for is no violation.

    >>> lin = Persona(role_id="lin", name="Lin", core="a baker", boundaries=("Never gives medical doses.",),
    ...               declared_at="2026-01-01T00:00:00Z", language="en")
    >>> [violation.rule for violation in check("As an AI language model, I can't taste bread.", lin).violations]
    ['self_denial']
    >>> check("Take 400 mg of ibuprofen every six hours.", lin).violations[0].detail
    'Never gives medical doses.'
    >>> check("Good bread takes its time, friend.", lin)
    Compliance(passed=True, violations=(), method='rules', checked=1, boundaries=1)
    """
    found = _leaks(response, system, query)
    rules: list[tuple[str, BoundaryRule]] = []
    boundaries: Sequence[str] = ()
    if anchor is not None:
        boundaries = anchor.boundaries
        rules = [(text, rule) for text in boundaries if (rule := rule_of(text)) is not None]
        found += _denials(response, anchor)
        found += _languages(response, anchor, query)
        found += _addresses(response, anchor)
        found += _names(response, anchor)
        found += _avoided(response, anchor)
        for text, rule in rules:
            found += [
                Violation(rule="boundary", start=start, end=end, text=response[start:end], detail=text)
                for start, end in rule.spans(response)
                if anchor.name
                not in response[start : end + len(anchor.name) + 2]  # "I am now Lin" is what it should be
            ]
    found.sort(key=lambda violation: (violation.start, violation.rule))
    return Compliance(passed=not found, violations=tuple(found), checked=len(rules), boundaries=len(boundaries))


def _violation(rule: Rule, match: re.Match[str], detail: str = "") -> Violation:
    return Violation(rule=rule, start=match.start(), end=match.end(), text=match[0], detail=detail)


def _denials(response: str, anchor: Persona) -> list[Violation]:
    patterns = [_OUT_OF_ROLE]
    # A persona that is a machine, or whose boundaries have it say so when asked, may say so.
    told = [
        clause for boundary in anchor.boundaries for clause in _CLAUSE.split(boundary) if not _FORBIDS.search(clause)
    ]
    if not _IS_MACHINE.search(folded(" ".join(filter(None, (anchor.core, anchor.occupation, *told))))):
        patterns.append(_MACHINE)
    return [_violation("self_denial", match) for pattern in patterns for match in pattern.finditer(response)]


def _leaks(response: str, system: str, query: str) -> list[Violation]:
    """Runs of words that stand in the system message and not in the query."""
    if not system:
        return []
    words = [(match[0], match.start(), match.end()) for match in _WORDS.finditer(folded(response))]
    same = len(folded(response)) == len(response)
    known = _grams([match[0] for match in _WORDS.finditer(folded(system))])
    known -= _grams([match[0] for match in _WORDS.finditer(folded(query))])
    found: list[Violation] = []
    begin = end = -1
    plain = [word for word, _, _ in words]
    for index in range(len(words)):
        size = _gram_size(plain, index)
        if size and tuple(plain[index : index + size]) in known:
            if index > end:
                if begin >= 0:
                    found.append(_leak(response, words, begin, end, same))
                begin = index
            end = index + size - 1
    if begin >= 0:
        found.append(_leak(response, words, begin, end, same))
    return found


def _leak(response: str, words: Sequence[tuple[str, int, int]], begin: int, end: int, same: bool) -> Violation:
    start, stop = (words[begin][1], words[end][2]) if same else (0, len(response))
    return Violation(rule="prompt_leak", start=start, end=stop, text=response[start:stop][:200])


def _grams(words: Sequence[str]) -> set[tuple[str, ...]]:
    found = set()
    for index in range(len(words)):
        size = _gram_size(words, index)
        if size:
            found.add(tuple(words[index : index + size]))
    return found


def _gram_size(words: Sequence[str], index: int) -> int:
    """Words that a run must have from here: twice as many where each is one character. 0: too few are left."""
    size = LEAK_WORDS * 2 if "\u3400" <= words[index][0] <= "\u9fff" else LEAK_WORDS
    return size if index + size <= len(words) else 0


def _languages(response: str, anchor: Persona, query: str) -> list[Violation]:
    if not anchor.language:
        return []
    wanted = tongue_of(anchor.language, response)
    if tongue_of(anchor.language, "好") != tongue_of(anchor.language, "good"):
        return []  # a language that we can't tell from others
    plain = _QUOTED.sub(" ", response)
    letters = sum(character.isalpha() for character in plain)
    han = sum("\u3400" <= character <= "\u9fff" for character in plain)
    if letters < LANGUAGE_CHARACTERS_MIN and han < LANGUAGE_CHARACTERS_MIN // 2:
        return []
    spoken = language(plain)
    if spoken == wanted or _asks_language(query):
        return []
    return [
        Violation(rule="language", start=0, end=len(response), text=response[:80], detail=f"{wanted}, got {spoken}")
    ]


def _asks_language(query: str) -> bool:
    return bool(
        re.search(
            r"\b(?:in|into|to) (?:english|chinese|mandarin)\b|translate|翻译|用(?:英|中)文|英语|中文",
            query,
            re.IGNORECASE,
        )
    )


def _addresses(response: str, anchor: Persona) -> list[Violation]:
    """The user addressed with the other of 你 and 您 than the persona's form; for other forms no rule can tell."""
    form = (anchor.address.user if anchor.address else None) or ""
    if form not in _SECOND_PERSON:
        return []
    other = "你" if form == "您" else "您"
    plain = _QUOTED.sub(lambda match: " " * len(match[0]), response)
    return [
        _violation("address", match, form)
        for match in _SECOND_PERSON[other].finditer(plain)
        if plain[match.end() : match.end() + 1] != "们"
    ]


def _names(response: str, anchor: Persona) -> list[Violation]:
    """Another name that the persona gives itself."""
    own = folded(" ".join(filter(None, (anchor.name, anchor.address.self if anchor.address else None, anchor.core))))
    plain = _QUOTED.sub(lambda match: " " * len(match[0]), response)
    found = []
    for pattern in (_CLAIMED_EN, _CLAIMED_ZH):
        for match in pattern.finditer(plain):
            name = next(filter(None, match.groups()))
            named = pattern is _CLAIMED_ZH or not (name in _NOT_NAMES or _NATIONALITY.search(name))
            if named and folded(name) not in own and not _denied(plain, match.start()):
                found.append(_violation("other_persona", match, anchor.name))
    return found


def _denied(text: str, start: int) -> bool:
    return bool(
        re.search(r"(?:n't|\bnot|\bnever|别|不要|不能|不会|不想|不)\s*(?:再)?$", text[max(0, start - 12) : start])
    )


def _avoided(response: str, anchor: Persona) -> list[Violation]:
    found = []
    for word in (anchor.style.words_avoided if anchor.style else None) or ():
        edge = r"\b" if word.isascii() and word.isalnum() else ""
        if word.strip():
            pattern = re.compile(rf"{edge}{re.escape(word.strip())}{edge}", re.IGNORECASE)
            found += [_violation("words_avoided", match, word) for match in pattern.finditer(response)]
    return found


# -- the model's verdict ----------------------------------------------------------------------------------------------


def judge_messages(response: str, anchor: Persona, *, query: str, evidence: str = "") -> tuple[Message, ...]:
    """What a model is asked to judge: the anchor, the query, the evidence and the response, all quoted."""
    tongue = tongue_of(anchor.language, query)
    rules = "\n".join(f"{number}. {text}" for number, text in enumerate(anchor.boundaries, start=1)) or "-"
    told = json.dumps(
        {"query": query, "evidence": evidence, "response": response}, ensure_ascii=False, separators=(",", ":")
    )
    system = wording("judge", tongue).substitute(
        name=anchor.name, core=anchor.core, occupation=anchor.occupation or "-", boundaries=rules
    )
    return Message(role="system", content=system), Message(role="user", content=told)


class BadVerdict(ValueError):
    """A judge's answer that can't be read as a verdict; it counts as an abstention, never as a pass."""


def verdict_of(answer: str, response: str, anchor: Persona, *, model: str) -> Compliance:
    """The judge's JSON verdict.

    Raises
    ------
    BadVerdict
        Where there is no JSON object with ``passed`` true or false (or 0 or 1).

    >>> lin = Persona(role_id="lin", name="Lin", core="a baker", boundaries=("No doses.",),
    ...               declared_at="2026-01-01T00:00:00Z")
    >>> told = 'So: {"passed": 0, "violations": [{"boundary": 1, "quote": "400 mg"}]}'
    >>> verdict_of(told, "Take 400 mg.", lin, model="m@1").violations[0].detail
    'No doses.'
    """
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(answer, max(0, answer.find("{")))
    except (ValueError, RecursionError) as error:
        raise BadVerdict(f"the judge {model} gave no JSON: {answer[:80]!r}") from error
    passed = value.get("passed") if isinstance(value, dict) else None
    if not isinstance(value, dict) or passed not in (True, False, 0, 1):
        raise BadVerdict(f"the judge {model} gave no `passed` of 0 or 1: {answer[:80]!r}")
    listed = value.get("violations")
    found = tuple(
        _judged(item, response, anchor)
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, dict)
    )
    count = len(anchor.boundaries)
    # A pass with violations, or a fail without any, contradicts itself: the stricter reading holds.
    failed = not passed or bool(found)
    if failed and not found:
        found = (Violation(rule="judge", start=0, end=len(response), text=response[:80]),)
    return Compliance(passed=not failed, violations=found, method=f"model:{model}", checked=count, boundaries=count)


def _judged(item: dict[str, object], response: str, anchor: Persona) -> Violation:
    quote = item.get("quote")
    quote = quote if isinstance(quote, str) else ""
    start = response.find(quote) if quote else -1
    number = item.get("boundary")
    known = isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= len(anchor.boundaries)
    detail = anchor.boundaries[number - 1] if known and isinstance(number, int) else str(item.get("reason") or "")
    return Violation(
        rule="boundary" if known else "judge",
        start=max(0, start),
        end=start + len(quote) if start >= 0 else len(response),
        text=quote or response[:80],
        detail=detail[:1000],
    )


def refusal(anchor: Persona | None, *, query: str = "") -> str:
    """What the persona says where no answer complied: in character, in its language, with nothing that could be wrong.

    >>> refusal(None, query="hello"), refusal(None, query="你好")
    ("I'd rather not answer that. Let's talk about something else.", '这个我不想回答，我们聊点别的吧。')
    """
    tongue = tongue_of(anchor.language if anchor else None, query)
    known = texts("refusal", tongue)
    user = anchor.address.user if anchor and anchor.address else None
    if user and user not in _SECOND_PERSON and folded(user) != "you":
        return known["addressed"].replace("$user", user)
    return known["formal" if user == "您" else "plain"]
