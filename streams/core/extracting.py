"""From the turns of a segment to statements of facts, judgements and a summary, by rules (``method: "rules"``).

Invariants: only what the user says becomes a fact; what repeats a memory that was shown is no new statement; every
text that is written is free of personal identifiers; a statement keeps the exact span that says it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.envelope import derived_id
from schemas.memories import FactStatement, Judgement, SummaryWritten
from streams.core.experience import TurnView
from streams.core.facts.feedback import feedback
from streams.core.facts.statements import Statement, extract
from streams.core.facts.values import normalise, same_value
from streams.core.facts.vocabulary import key_of
from streams.core.identifiers import redact
from streams.core.summaries import Utterance, summarise
from streams.core.text import folded, language

SUMMARY_SOURCE_MIN = 200
"""Characters of a segment that are worth a summary: PME's shortest one."""
SUMMARY_IMPORTANCE = 2
"""A summary with facts in it weighs one more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What was extracted from a segment."""

    facts: tuple[FactStatement, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    summary: SummaryWritten | None = None
    redacted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """A fact that memory holds."""

    key: str
    norm: str
    value: str
    text: str


def named_in(said: str, known: Sequence[Known]) -> list[tuple[str, str]]:
    """Key and norm of the facts whose value an utterance names.

    >>> named_in("So you live in Lisbon?", [Known("home", "lisbon", "Lisbon", ""), Known("pet", "rex", "Rex", "")])
    [('home', 'lisbon')]
    """
    plain = folded(said)
    return [(fact.key, fact.norm) for fact in known if fact.value and folded(fact.value) in plain]


def sentence(key: str, value: str, tongue: str) -> str:
    """A fact as prompts show it and embedders read it.

    >>> sentence("home", "Lisbon", "en"), sentence("home", "上海", "zh")
    ("User's lives in: Lisbon", '用户居住地：上海')
    """
    known = key_of(key)
    return f"用户{known.label_zh}：{value}" if tongue == "zh" else f"User's {known.label_en}: {value}"


class ByRules:
    """Extracts a segment turn by turn, so that a caller can do other things in between.

    Parameters
    ----------
    known : sequence of Known
        Facts of this owner: a user who quotes one states nothing new, and one who says "that's right" confirms those
        that the assistant named just before.
    """

    def __init__(self, known: Sequence[Known] = ()) -> None:
        self._known = tuple(known)
        self._recalled = tuple(item.text for item in known)
        self._facts: list[FactStatement] = []
        self._judgements: list[Judgement] = []
        self._utterances: list[Utterance] = []
        self._redacted: Counter[str] = Counter()

    def turn(self, view: TurnView) -> None:
        """Take the next turn."""
        self._utterances.append(Utterance(view.speaker, view.name, view.text, view.occurred_at))
        self._redacted.update(redact(view.text).found)
        if view.speaker != "user":
            return
        for found in extract(view.text, occurred_at=view.occurred_at, recalled=self._recalled):
            self._facts.append(self._statement(found, view))
        judged = feedback(view.text, occurred_at=view.occurred_at)
        if judged is not None and judged.kind in ("confirm", "deny"):
            denied = [
                (item.key, self._meant(item.key, normalise(item.key, item.value)) if item.value else "")
                for item in judged.denials
            ]
            about = denied or self._named()
            self._judgements += [
                Judgement(
                    kind="deny" if judged.kind == "deny" else "confirm",
                    turn_id=view.turn_id,
                    said_at=view.occurred_at,
                    key=key,
                    norm=norm,
                )
                for key, norm in about
            ]

    def _named(self) -> list[tuple[str, str]]:
        """Facts that the assistant named in the turn before this one."""
        before = self._utterances[-2] if len(self._utterances) > 1 else None
        return named_in(before.text if before and before.speaker != "user" else "", self._known)

    def _meant(self, key: str, norm: str) -> str:
        """The norm of the fact that a value means: "our dog" is Biscuit, if Biscuit is the dog that is known."""
        known = [(fact.key, fact.norm) for fact in reversed(self._facts) if fact.kind != "retract"]
        known += [(fact.key, fact.norm) for fact in reversed(self._known)]
        for other, held in known:
            # Never the other way round: a name that comes later must not be lost in the word that came before.
            if other == key and len(held) >= len(norm) and same_value(key, norm, held):
                return held
        return norm

    def _statement(self, found: Statement, view: TurnView) -> FactStatement:
        value = redact(found.value).text
        known = key_of(found.key)
        tongue = language(view.text)
        return FactStatement(
            key=found.key,
            value=value,
            norm=self._meant(found.key, normalise(found.key, value)) if value else "",
            kind=found.kind,
            multi=known.multi,
            text=sentence(found.key, value, tongue),
            confidence=found.confidence,
            importance=found.importance,
            turn_id=view.turn_id,
            start=found.start,
            end=found.end,
            said_at=view.occurred_at,
            old_norm=self._meant(found.key, normalise(found.key, found.old_value)) if found.old_value else None,
            valid_from=found.valid_from,
            valid_to=found.valid_to,
            rule=found.rule,
        )

    def finish(self, segment_id: str) -> Extraction:
        """What the turns gave; a short segment gets no summary."""
        summary = None
        if sum(len(utterance.text) for utterance in self._utterances) >= SUMMARY_SOURCE_MIN:
            tongue = language(" ".join(utterance.text[:200] for utterance in self._utterances))
            written = summarise(self._utterances, tongue=tongue)
            if written:
                importance = SUMMARY_IMPORTANCE + bool(self._facts)
                memory_id = "s-" + derived_id("summary", segment_id)
                summary = SummaryWritten(memory_id=memory_id, text=written, importance=importance)
        return Extraction(
            facts=tuple(self._facts),
            judgements=tuple(self._judgements),
            summary=summary,
            redacted=dict(sorted(self._redacted.items())),
        )
