"""Extraction by a model: what it is asked, and what of its answer is believed.

A model may invent, echo the assistant, obey a turn that pretends to be an instruction, or answer rubbish. So an answer
is only a proposal: a fact counts if its quote stands in the very turn of the user that it names. Whatever else is
wrong is mended (numbers are clamped, dates that are none left out) or dropped and counted; an answer that isn't of the
form at all is a ``Fault``, which is worth one repair and then the rules.

Invariants: nothing becomes a fact that the user didn't say in the segment; turns are escaped, so that they can't leave
their place in the request; no identifier of a person is in what is read; equal arguments give equal results.
"""

from __future__ import annotations

import datetime as dt
import html
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.recalls import Message
from streams.core.facts.vocabulary import KEYS, key_of
from streams.core.identifiers import PLACEHOLDERS, redact
from streams.core.prompt import escaped
from streams.core.summaries import CHARACTERS_MAX, CHARACTERS_MIN, Utterance, clipped
from streams.core.text import folded, language, tokens
from streams.core.wording import wording, written_date, zone_of

FACTS_MAX = 20
"""Facts of one segment. A segment has some 40 turns; more than one in two turns is a model that lists everything."""
JUDGEMENTS_MAX = 10
TURN_CHARACTERS_MAX = 2_000
"""Characters of a turn that the model is shown."""
ANSWER_TOKENS_MAX = 2_500
"""What ``FACTS_MAX`` facts of 80 tokens and a summary take, with room; give it to the model as its limit."""
ANSWER_CHARACTERS_MAX = 100_000
VALUE_CHARACTERS_MAX = 200
KEY_CHARACTERS_MAX = 48
QUOTE_CHARACTERS_MIN = 2
"""Letters and digits of a quote: a single one stands in nearly every turn."""
CONFIDENCE_DEFAULT = 0.6
CONFIDENCE_UNGROUNDED_MAX = 0.5
"""Of a fact whose value shares no word with its quote: a translation or conclusion of the model, perhaps invented."""
INVENTED_MIN = 3
"""So many proposed facts of which none stands make the whole answer a fault."""

Kind = Literal["assert", "retract", "correct"]
FaultCode = Literal["empty", "too_long", "no_json", "broken_json", "wrong_shape", "invented"]
_KINDS: dict[str, Kind] = {"assert": "assert", "retract": "retract", "correct": "correct"}
_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A closed object with all properties required, as strict structured output wants it."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMA: dict[str, Any] = {"title": "extraction"} | _object({
    "summary": _TEXT,
    "facts": {"type": "array", "items": _object({
        "key": _TEXT, "value": _TEXT, "kind": {"type": "string", "enum": list(_KINDS)}, "old_value": _TEXT_OR_NULL,
        "turn": {"type": "integer"}, "quote": _TEXT, "confidence": {"type": "number"},
        "importance": {"type": "integer"}, "valid_from": _TEXT_OR_NULL, "valid_to": _TEXT_OR_NULL,
    })},
    "judgements": {"type": "array", "items": _object({
        "kind": {"type": "string", "enum": ["confirm", "deny"]}, "key": _TEXT_OR_NULL, "value": _TEXT_OR_NULL,
        "turn": {"type": "integer"}, "quote": _TEXT,
    })},
})  # fmt: skip
"""JSON Schema of the answer, for ``response_schema``."""


@dataclass(frozen=True, slots=True)
class ModelFact:
    """A fact whose quote is ``text[start:end]`` of the user's turn ``turn``; fields as those of a rule's statement."""

    key: str
    value: str
    kind: Kind
    old_value: str | None
    turn: int
    start: int
    end: int
    confidence: float
    importance: int
    valid_from: str | None = None
    valid_to: str | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class ModelJudgement:
    """The user confirms or denies; without a key what the assistant said last."""

    kind: Literal["confirm", "deny"]
    turn: int
    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """What of an answer is believed; ``dropped`` counts what is not, by reason, ``redacted`` identifiers by kind."""

    summary: str
    facts: tuple[ModelFact, ...] = ()
    judgements: tuple[ModelJudgement, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    redacted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that can't be read; ``message`` says what is wrong, for the model's repair and for the log."""

    code: FaultCode
    message: str


def request(utterances: Sequence[Utterance], *, tongue: str) -> tuple[Message, ...]:
    """Messages that ask a model for an extraction in the form of ``SCHEMA``.

    Parameters
    ----------
    utterances : sequence of Utterance
        The segment, oldest first; a turn's number is its index.
    tongue : str
        ``en`` or ``zh``: language of the request and of the summary.
    """
    system = wording("extract", tongue).substitute(
        keys=", ".join(KEYS), facts_max=FACTS_MAX, characters_min=CHARACTERS_MIN, characters_max=CHARACTERS_MAX
    )
    lines = ["<conversation>"]
    for number, utterance in enumerate(utterances):
        at = f"{written_date(utterance.occurred_at)} {zone_of(utterance.occurred_at)}"
        speaker = "user" if utterance.speaker == "user" else "assistant"
        text = escaped(clipped(utterance.text, TURN_CHARACTERS_MAX))
        lines.append(f'<turn n="{number}" speaker="{speaker}" at="{at}">{text}</turn>')
    lines.append("</conversation>")
    return Message(role="system", content=system), Message(role="user", content="\n".join(lines))


def repair_messages(messages: Sequence[Message], answer: str, fault: Fault) -> tuple[Message, ...]:
    """The request, the answer that couldn't be read, and what is wrong with it. For one repair; then rules do it."""
    tongue = language(messages[0].content)
    said = clipped(answer.strip(), 4_000) or "{}"  # Endpoints refuse an empty message.
    told = wording("extract_repair", tongue).substitute(fault=fault.message)
    return (*messages, Message(role="assistant", content=said), Message(role="user", content=told))


def read(text: str, utterances: Sequence[Utterance], *, recalled: Sequence[str] = ()) -> Extraction | Fault:
    """Read a model's answer.

    Parameters
    ----------
    text : str
        The answer: JSON, perhaps in a code fence, after reasoning or among talk.
    utterances : sequence of Utterance
        The segment that was asked about.
    recalled : sequence of str
        Memories that the assistant was shown: a turn that only quotes one states nothing new.

    >>> said = [Utterance("user", None, "I live in Lisbon.", "2026-05-20T09:00:00Z")]
    >>> fact = {"key": "home", "value": "Lisbon", "kind": "assert", "turn": 0, "quote": "live in Lisbon"}
    >>> invented = fact | {"key": "pet", "value": "dog", "quote": "my dog Rex"}
    >>> found = read(json.dumps({"summary": "", "facts": [fact, invented], "judgements": []}), said)
    >>> [(fact.key, fact.value, fact.start, fact.end) for fact in found.facts], found.dropped
    ([('home', 'Lisbon', 2, 16)], {'quote_not_found': 1})
    """
    answer = _parsed(text)
    if isinstance(answer, Fault):
        return answer
    reading = _Reading(utterances, recalled)
    proposed = answer["facts"]
    for raw in proposed:
        reading.fact(raw)
    if len(proposed) >= INVENTED_MIN and not reading.facts:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(reading.dropped.items()))
        return Fault("invented", f"none of its {len(proposed)} facts stands in the user turn that it names ({reasons})")
    for raw in answer.get("judgements") or ():
        reading.judgement(raw)
    return Extraction(
        summary=clipped(reading.plain(" ".join(answer["summary"].split())), CHARACTERS_MAX),
        facts=tuple(reading.facts),
        judgements=tuple(reading.judgements),
        dropped=dict(sorted(reading.dropped.items())),
        redacted=dict(sorted(reading.redacted.items())),
    )


# -- the answer as JSON ------------------------------------------------------------------------------------------------

_REASONING = re.compile(r"<(think|thinking|reasoning|analysis)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OBJECT_STARTS_MAX = 20
"""Braces from which an object is tried; talk before the answer has few."""


def _parsed(text: str) -> dict[str, Any] | Fault:
    """The object of an answer whose outer shape is right."""
    if len(text) > ANSWER_CHARACTERS_MAX:
        return Fault("too_long", f"it has {len(text)} characters; at most {ANSWER_CHARACTERS_MAX} are read")
    plain = _REASONING.sub("", text).strip()
    if not plain:
        return Fault("empty", "it is empty")
    starts = [match.start() for match in re.finditer(r"\{", plain)]
    if not starts:
        return Fault("no_json", "it holds no JSON object")
    broken: Fault | None = None
    wrong: Fault | None = None
    for start in starts[:_OBJECT_STARTS_MAX]:
        try:
            found, _ = json.JSONDecoder().raw_decode(plain, start)
        except (ValueError, RecursionError) as error:
            broken = broken or Fault("broken_json", f"its JSON can't be read: {str(error)[:120]}")
            continue
        shape = _shape_fault(found)
        if shape is None:
            return dict(found)
        wrong = wrong or Fault("wrong_shape", shape)
    # What is broken from its first brace on is cut off or garbled; parts of it that can be read are no answer.
    fault = broken or wrong
    assert fault is not None
    return fault


def _shape_fault(found: Any) -> str | None:
    if not isinstance(found, dict):
        return f"it is {type(found).__name__}, not an object"
    if not isinstance(found.get("summary"), str):
        return f'"summary" must be a string, got {_short(found.get("summary"))}'
    for name in ("facts", "judgements"):
        default: list[Any] | None = None if name == "facts" else []
        if not isinstance(found.get(name, default), list):
            return f'"{name}" must be a list, got {_short(found.get(name))}'
    return None


def _short(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:60]


# -- facts and judgements ----------------------------------------------------------------------------------------------

_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")
_ONLY_PLACEHOLDER = re.compile(
    r"[\W_]*(?:(?:" + "|".join(re.escape(one) for pair in PLACEHOLDERS.values() for one in pair) + r")[\W_]*)+"
)

INSTRUCTION_REACH = 80
"""Characters before a quote in which an instruction to the model makes it one."""
_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget) (?:all |any |the |your )*(?:previous|prior|above|earlier|instructions?|rules?)|"
    r"\bsystem ?(?:prompt|message)?:|\b(?:add|output|write|store|record|insert) (?:a |the |this |these |"
    r"following )*facts?\b|"
    r"</?(?:turn|conversation|system)\b|\"(?:facts|judgements|key|kind)\" ?:|"
    r"(?:忽略|无视|忘记)(?:以上|之前|前面|所有|你的|全部)*的?(?:指令|指示|规则|要求|提示)|系统(?:提示|消息|"
    r"指令)?[:：]|(?:添加|输出|写入|记录)(?:一条|以下|这条)*事实",
    re.IGNORECASE,
)
"""What talks to the extractor rather than about the user. The quote rule keeps inventions out; this keeps out what a
pasted text orders. People who tell of themselves don't write like this; a miss is no worse than any other statement."""


class _Dropped(Exception):
    """A part of an answer that is not believed, and why."""


class _Reading:
    """Reads the parts of one answer, and counts."""

    def __init__(self, utterances: Sequence[Utterance], recalled: Sequence[str]) -> None:
        self._utterances = utterances
        self._recalled = [_letters(memory)[0] for memory in recalled]
        self.facts: list[ModelFact] = []
        self.judgements: list[ModelJudgement] = []
        self.dropped: Counter[str] = Counter()
        self.redacted: Counter[str] = Counter()
        self._seen: set[tuple[str, str, str]] = set()

    def fact(self, raw: Any) -> None:
        """Read a fact."""
        try:
            self.facts.append(self._fact(raw))
        except _Dropped as reason:
            self.dropped[str(reason)] += 1

    def judgement(self, raw: Any) -> None:
        """Read a judgement."""
        try:
            if len(self.judgements) >= JUDGEMENTS_MAX:
                raise _Dropped("too_many")
            if not isinstance(raw, Mapping) or raw.get("kind") not in ("confirm", "deny"):
                raise _Dropped("wrong_shape")
            turn, _, _ = self._quoted(raw)
            key = _key(raw.get("key")) if raw.get("key") else None
            value = self.plain(_string(raw.get("value"))) or None
            self.judgements.append(ModelJudgement(kind=raw["kind"], turn=turn, key=key, value=value if key else None))
        except _Dropped as reason:
            self.dropped[str(reason)] += 1

    def plain(self, text: str) -> str:
        """A text without identifiers, which are counted."""
        result = redact(text)
        self.redacted.update(result.found)
        return result.text

    def _fact(self, raw: Any) -> ModelFact:
        if not isinstance(raw, Mapping):
            raise _Dropped("wrong_shape")
        kind = _KINDS.get(str(raw.get("kind", "assert")))
        key = _key(raw.get("key"))
        value = _string(raw.get("value"))
        if kind is None or (not value and kind != "retract"):
            raise _Dropped("wrong_shape")
        turn, start, end = self._quoted(raw)
        quote = self._utterances[turn].text[start:end]
        same = (key, " ".join(tokens(value)) or folded(value), kind)
        if same in self._seen:
            raise _Dropped("repeated")
        if len(self.facts) >= FACTS_MAX:
            raise _Dropped("too_many")
        written = self.plain(clipped(value, VALUE_CHARACTERS_MAX))
        if value and _ONLY_PLACEHOLDER.fullmatch(written):
            raise _Dropped("identifier")
        self._seen.add(same)
        confidence = _between(raw.get("confidence"), 0.0, 1.0, CONFIDENCE_DEFAULT)
        if not _grounded(value, quote):
            confidence = min(confidence, CONFIDENCE_UNGROUNDED_MAX)
        valid_from, valid_to = self._dates(raw)
        old_value = self.plain(clipped(_string(raw.get("old_value")), VALUE_CHARACTERS_MAX))
        return ModelFact(
            key=key,
            value=written,
            kind=kind,
            old_value=old_value or None,
            turn=turn,
            start=start,
            end=end,
            confidence=round(confidence, 3),
            importance=round(_between(raw.get("importance"), 1.0, 5.0, float(key_of(key).importance))),
            valid_from=valid_from,
            valid_to=valid_to,
        )

    def _quoted(self, raw: Mapping[str, Any]) -> tuple[int, int, int]:
        """Turn and span of a quote, which must stand in a turn of the user that isn't an echo."""
        turn = raw.get("turn")
        if isinstance(turn, bool) or not isinstance(turn, int) or not 0 <= turn < len(self._utterances):
            raise _Dropped("no_such_turn")
        utterance = self._utterances[turn]
        if utterance.speaker != "user":
            raise _Dropped("not_a_user_turn")
        span = located(utterance.text, _string(raw.get("quote")))
        if span is None:
            raise _Dropped("quote_not_found")
        if self._echoes(turn):
            raise _Dropped("echo")
        if _INSTRUCTION.search(utterance.text, max(0, span[0] - INSTRUCTION_REACH), span[1]):
            raise _Dropped("instruction")
        return turn, *span

    def _echoes(self, turn: int) -> bool:
        """Whether the whole turn was said by the assistant before, or stands in a memory."""
        said = _letters(self._utterances[turn].text)[0]
        earlier = (_letters(one.text)[0] for one in self._utterances[:turn] if one.speaker != "user")
        return len(said) >= 4 and any(said in other for other in (*self._recalled, *earlier))

    def _dates(self, raw: Mapping[str, Any]) -> tuple[str | None, str | None]:
        dates = []
        for name in ("valid_from", "valid_to"):
            given = _string(raw.get(name))
            date = given if _is_date(given) else None
            if given and date is None:
                self.dropped["no_date"] += 1
            dates.append(date)
        start, end = dates
        if start and end and start[: len(end)] > end[: len(start)]:
            self.dropped["no_date"] += 1
            return None, None
        return start, end


def located(text: str, quote: str) -> tuple[int, int] | None:
    """Span of a quote in a text: as it stands, else by its letters and digits alone, in any case, width and script.

    >>> located("I live in Lisbon.", "live in Lisbon"), located("I live  in “Lisbon” & you", "Live in Lisbon &amp; you")
    ((2, 16), (2, 25))
    >>> located("我住在臺灣", "住在台湾"), located("I live in Lisbon", "I live in Porto"), located("abc", "a")
    ((1, 5), None, None)
    """
    letters, _ = _letters(html.unescape(quote))
    if len(letters) < QUOTE_CHARACTERS_MIN:
        return None
    exact = text.find(quote)
    if exact >= 0:
        return exact, exact + len(quote)
    spoken, places = _letters(text)
    at = spoken.find(letters)
    return None if at < 0 else (places[at], places[at + len(letters) - 1] + 1)


def _letters(text: str) -> tuple[str, list[int]]:
    """Letters and digits of a text, folded, and the place of each."""
    found: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for letter in folded(character):
            if letter.isalnum():
                found.append(letter)
                places.append(place)
    return "".join(found), places


def _grounded(value: str, quote: str) -> bool:
    """Whether a value shares a term with its quote or stands in it."""
    letters = _letters(value)[0]
    return not letters or letters in _letters(quote)[0] or not set(tokens(value)).isdisjoint(tokens(quote))


def _key(raw: Any) -> str:
    """A key as the vocabulary writes it."""
    key = re.sub(r"[\W_]+", "_", folded(_string(raw))).strip("_")
    if not key or len(key) > KEY_CHARACTERS_MAX:
        raise _Dropped("no_key")
    return key


def _string(raw: Any) -> str:
    """A string on one line; of numbers their figures; of anything else nothing."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return ""
    return " ".join(str(raw).split())


def _between(raw: Any, low: float, high: float, default: float) -> float:
    """A number within bounds; the default for what is none."""
    try:
        number = float(raw)
    except (TypeError, ValueError, OverflowError):
        return default
    return default if math.isnan(number) else min(high, max(low, number))


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return False
    return True
