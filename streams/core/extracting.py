"""From the turns of a segment to statements of facts, judgements and a summary, by rules (``method: "rules"``).

Invariants: only what the user says becomes a fact; what repeats a memory that was shown is no new statement; every
text that is written is free of personal identifiers; a statement keeps the exact span that says it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from schemas.envelope import derived_id
from schemas.memories import FactStatement, Judgement, SummaryWritten
from streams.core.experience import TurnView
from streams.core.facts.feedback import feedback
from streams.core.facts.statements import Statement, extract
from streams.core.facts.values import normalise, same_value
from streams.core.facts.vocabulary import key_of
from streams.core.identifiers import redact
from streams.core.modelfacts import ModelFact
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


def named_before(before: Utterance | TurnView | None, known: Sequence[Known]) -> list[tuple[str, str]]:
    """Facts that the assistant named in the turn before: what a bare "that's right" is about."""
    return named_in(before.text, known) if before is not None and before.speaker != "user" else []


def sentence(key: str, value: str, tongue: str) -> str:
    """A fact as prompts show it and embedders read it.

    >>> sentence("home", "Lisbon", "en"), sentence("home", "上海", "zh")
    ("User's lives in: Lisbon", '用户居住地：上海')
    """
    known = key_of(key)
    return f"用户{known.label_zh}：{value}" if tongue == "zh" else f"User's {known.label_en}: {value}"


def stated(
    found: Statement | ModelFact, view: TurnView, *, value: str, norm: str, old_norm: str | None, rule: str | None
) -> FactStatement:
    """What a turn states, as it is recorded: with multiplicity and sentence, so that the fold needs no vocabulary."""
    return FactStatement(
        key=found.key,
        value=value,
        norm=norm,
        kind=found.kind,
        multi=key_of(found.key).multi,
        text=sentence(found.key, value, language(view.text)),
        confidence=found.confidence,
        importance=found.importance,
        turn_id=view.turn_id,
        start=found.start,
        end=found.end,
        said_at=view.occurred_at,
        old_norm=old_norm,
        valid_from=found.valid_from,
        valid_to=found.valid_to,
        rule=rule,
    )


def judgements(kind: Literal["confirm", "deny"], view: TurnView, about: Sequence[tuple[str, str]]) -> list[Judgement]:
    """A confirmation or denial of facts, by key and norm, that a turn speaks."""
    return [
        Judgement(kind=kind, turn_id=view.turn_id, said_at=view.occurred_at, key=key, norm=norm) for key, norm in about
    ]


def summary_of(segment_id: str, text: str, *, facts: bool) -> SummaryWritten:
    """The summary of a segment; one of a segment with facts weighs more."""
    memory_id = "s-" + derived_id("summary", segment_id)
    return SummaryWritten(memory_id=memory_id, text=text, importance=SUMMARY_IMPORTANCE + facts)


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
            self._judgements += judgements("deny" if judged.kind == "deny" else "confirm", view, about)

    def _named(self) -> list[tuple[str, str]]:
        return named_before(self._utterances[-2] if len(self._utterances) > 1 else None, self._known)

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
        norm = self._meant(found.key, normalise(found.key, value)) if value else ""
        old_norm = self._meant(found.key, normalise(found.key, found.old_value)) if found.old_value else None
        return stated(found, view, value=value, norm=norm, old_norm=old_norm, rule=found.rule)

    def finish(self, segment_id: str) -> Extraction:
        """What the turns gave; a short segment gets no summary."""
        summary = None
        if sum(len(utterance.text) for utterance in self._utterances) >= SUMMARY_SOURCE_MIN:
            tongue = language(" ".join(utterance.text[:200] for utterance in self._utterances))
            written = summarise(self._utterances, tongue=tongue)
            if written:
                summary = summary_of(segment_id, written, facts=bool(self._facts))
        return Extraction(
            facts=tuple(self._facts),
            judgements=tuple(self._judgements),
            summary=summary,
            redacted=dict(sorted(self._redacted.items())),
        )
