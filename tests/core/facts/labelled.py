"""Labelled turns: their form in files, and how the extractor is scored on them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from streams.core.facts.statements import Statement, extract
from streams.core.facts.values import normalise

SAID_AT = "2026-05-20T10:00:00Z"
_KINDS = {"=": "assert", "~": "correct", "-": "retract"}
_LABEL = re.compile(r"^  (?P<kind>[=~-]) (?P<key>[a-z_]+):(?: (?P<value>.*?))?(?: \(was (?P<old>.*)\))?$")

Mark = tuple[str, str, str]


@dataclass(slots=True)
class Turn:
    """A turn and the facts that it states: key, normalised value, kind."""

    text: str
    marks: set[Mark] = field(default_factory=set)
    olds: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Score:
    """What the extractor found on a split, against what the turns state."""

    right: int = 0
    wrong: list[tuple[str, Mark]] = field(default_factory=list)
    missed: list[tuple[str, Mark]] = field(default_factory=list)
    turns: int = 0
    negatives: int = 0

    @property
    def precision(self) -> float:
        """Share of the found that is stated."""
        return self.right / (self.right + len(self.wrong))

    @property
    def recall(self) -> float:
        """Share of the stated that is found."""
        return self.right / (self.right + len(self.missed))


def turns(name: str) -> list[Turn]:
    """Turns of a file beside this one: ``labelled_<name>.txt``."""
    found: list[Turn] = []
    for line in Path(__file__).with_name(f"labelled_{name}.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith("  "):
            found.append(Turn(line))
            continue
        label = _LABEL.match(line)
        assert label is not None, f"{name}: not a label: {line!r}"
        key, kind = label["key"], _KINDS[label["kind"]]
        found[-1].marks.add((key, normalise(key, label["value"] or ""), kind))
        if label["old"]:
            found[-1].olds[key] = normalise(key, label["old"])
    return found


def mark(statement: Statement) -> Mark:
    """What a statement is scored by."""
    return statement.key, normalise(statement.key, statement.value), statement.kind


def score(name: str) -> Score:
    """The extractor on a split."""
    result = Score()
    for turn in turns(name):
        found = {mark(statement) for statement in extract(turn.text, occurred_at=SAID_AT)}
        result.turns += 1
        result.negatives += not turn.marks
        result.right += len(found & turn.marks)
        result.wrong += [(turn.text, one) for one in sorted(found - turn.marks)]
        result.missed += [(turn.text, one) for one in sorted(turn.marks - found)]
    return result
