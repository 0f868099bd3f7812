"""What a user says about what is remembered: confirm it, deny it, or ask to keep something.

Invariants: a function of the text; a question ("is that right?") judges nothing, nor does a bare yes or no, which may
answer anything; a confirmation without a fact of its own is about whatever was said before it, which the caller knows
and this module doesn't.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from streams.core.facts.extractor import Statement, extract
from streams.core.facts.found import plain_of, sentences, without_quotes

FeedbackKind = Literal["confirm", "deny", "remember"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A value that the speaker says isn't so; it is empty where any value of the key is meant."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a turn says about memory.

    Attributes
    ----------
    kind : str
        ``confirm``, ``deny`` or ``remember``.
    start, end : int
        The clause that it is about, ``[start, end)`` in the turn's text; empty where it is what was said before.
    denials : tuple of Denial
        What a denial denies, where it can be told.
    """

    kind: FeedbackKind
    start: int
    end: int
    denials: tuple[Denial, ...] = ()

    @property
    def key(self) -> str | None:
        """Of the first denial."""
        return self.denials[0].key if self.denials else None

    @property
    def value(self) -> str | None:
        """Of the first denial; empty: whatever it was."""
        return self.denials[0].value if self.denials else None


_REMEMBER = re.compile(
    r"\b(?:please |pls |can you |could you |you should |do |also )*(?:remember(?! (?:when|me|if|how|what|where|who"
    r"|whether"
    r"|the time|doing|being|\w+ing)\b)|keep in mind|make a note|note down|take note|note that|write (?:that|this"
    r"|it) down"
    r"|don't forget|do not forget|save this|keep a note)\b(?: (?:of )?(?:that|this|it)\b)?[ :,.]*"
    r"|(?:请|帮我|麻烦|你要?|一定要?|给我)*(?:记住|记得(?!我?.*[吗么]|你|当时|那次|上次|小时候)|记下来?|记一下|记好"
    r"|别忘了|别忘记|不要忘记?|存一下)(?:一下|了|哦|哈|这个|这点|这件事)?[:,。 ]*"
)
_REMEMBERED_BY_ME = re.compile(
    r"\b(?:i|we|he|she|they|to|you(?: do)?|can't|cannot|did you|do you|will)(?: (?:still|always|just|don't|do not"
    r"|can't|really))* remember\b|我(?:还|都|不|也|就)*(?:记得|记住|记不)|你(?:还|能|会)*记[得住].*[吗么]"
)
_CONFIRM = re.compile(
    r"(?:^|[,.!] ?)(?:yes|yeah|yep|yup|right|correct|exactly|indeed|absolutely|precisely|bingo|spot on"
    r"|of course)?[,.! ]*"
    r"(?:that'?s|that is|you'?re|you are|it is|it'?s) (?:absolutely |totally |exactly |quite |still |all )?(?:right"
    r"|correct|true|it|me"
    r"|accurate|spot on)(?=[,.!]|$| (?:about|and|i|thanks|remember)\b)"
    r"|^(?:(?:yes|yep|yup|yeah),? )?(?:correct|exactly|right|precisely|spot on|bingo)(?=[,.!]|$)"
    r"|^(?:嗯+,|是的?,)*(?:对(?!了)|没错|正确|说得对|说对了|就是这样|是这样|确实(?:是|如此)?|完全正确|你说得对"
    r"|你记得没错|没记错|答对了)(?:的|啊|呀|呢|啦|了|对|,|没错|就是)*(?=[,.!]|$|记住|我)"
)
_DENY = re.compile(
    r"^(?:no,? )?(?:wrong|incorrect|not true|that'?s (?:not (?:right|true|correct|me|it)|wrong|incorrect|false)|you"
    r"(?:'re| are| got (?:it|that))"
    r" (?:wrong|mistaken)|you got (?:it|that) wrong|you(?:'re| are) mixing|i never said (?:that|so)|that isn'?t "
    r"(?:right|true|correct|me))(?=[,.! ]|$)"
    r"|[,.!] ?that'?s (?:not (?:right|true)|wrong)\b"
    r"|^(?:不对|不是这样|错了|你(?:记|搞|弄|说)错了|你(?:记|搞|弄)混了|没有(?:的事|这回事)|我没(?:有)?说过|我可没说"
    r"|不是这样)"
)
_NOT_DENYING = re.compile(r"^不对(?:吗|吧|劲|付|称)")


def feedback(text: str, *, occurred_at: str = "1970-01-01T00:00:00Z") -> Feedback | None:
    """What a user's turn says about what is remembered, or None.

    A denial that names what isn't so (a retraction or a correction in the turn) carries it.

    >>> feedback("对，记住这个").kind, feedback("That's right!").kind, feedback("remember this").kind
    ('remember', 'confirm', 'remember')
    >>> feedback("不对，我不是医生").denials, feedback("I'm not a doctor").denials
    ((Denial(key='occupation', value='医生'),), (Denial(key='occupation', value='doctor'),))
    >>> feedback("I remember that day"), feedback("no problem"), feedback("is that right?")
    (None, None, None)
    """
    plain = plain_of(text)
    words = without_quotes(plain.text)
    stated = extract(text, occurred_at=occurred_at)
    kind: FeedbackKind | None = None
    start = end = 0
    for sentence in sentences(words):
        if sentence.asks:
            continue
        body = words[sentence.start : sentence.end]
        remember = _REMEMBER.search(body)
        if remember and not _REMEMBERED_BY_ME.search(body[: remember.end() + 12]):
            first, last = plain.span(sentence.start + remember.end(), sentence.end)
            return Feedback(kind="remember", start=min(first, last), end=last)
        if kind is None and _DENY.search(body) and not _NOT_DENYING.search(body):
            kind = "deny"
            start, end = plain.span(sentence.start, sentence.end)
        elif kind is None and _CONFIRM.search(body):
            kind = "confirm"
            start, end = plain.span(sentence.start, sentence.end)
    if kind is None:
        negated = next((one for one in stated if _negates(one, text)), None)
        if negated is not None:
            kind, start, end = "deny", negated.start, negated.end
    if kind == "deny":
        return Feedback(kind="deny", start=start, end=end, denials=_denials(stated))
    return None if kind is None else Feedback(kind=kind, start=start, end=end)


_NEGATION = re.compile(r"\b(?:not|never|n't)\b|n't\b|不|没", re.IGNORECASE)
_CEASED = re.compile(r"\b(?:any ?more|no longer|used to)\b|不再|了$|以前|之前")


def _negates(statement: Statement, text: str) -> bool:
    """Whether a statement says that something isn't so, rather than that it is over."""
    if statement.kind == "correct" and statement.old_value:
        return True
    if statement.kind != "retract":
        return False
    clause = text[statement.start : statement.end + 9]
    return bool(_NEGATION.search(clause)) and not _CEASED.search(clause)


def _denials(stated: tuple[Statement, ...]) -> tuple[Denial, ...]:
    """What the statements of a turn deny: what they retract, and what they correct by name."""
    found: list[Denial] = []
    for one in stated:
        if one.kind == "retract":
            found.append(Denial(key=one.key, value=one.value))
        elif one.kind == "correct" and one.old_value:
            found.append(Denial(key=one.key, value=one.old_value))
    return tuple(dict.fromkeys(found))
