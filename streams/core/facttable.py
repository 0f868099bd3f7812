"""Facts of one owner, with every state that they ever had, and the conflicts between them.

Invariants: nothing is overwritten or deleted: a change appends to a history, so the table as of any point is a read.
A single-valued key with two values is a conflict, settled by a recorded policy or a person; the loser stays. One
value of one key is one fact, however often and in whatever words it was said.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.envelope import derived_id, instant_ms
from schemas.memories import (
    Conflict,
    ConflictArbitrated,
    Fact,
    FactChange,
    FactSource,
    FactStatement,
    FactStatus,
    Judgement,
    Policy,
)
from streams.core.visibility import Cut

LIVE: frozenset[FactStatus] = frozenset({"active", "contested"})
CONFIDENCE_MARGIN = 0.15
"""Two statements whose confidences lie closer are equally credible: the rules' confidences go in steps of 0.1."""
DAY_CHARACTERS = 10
REASON_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True)
class At:
    """Where a change stands: offset in the journal, and event time."""

    offset: int
    ms: int
    instant: str

    @classmethod
    def of(cls, offset: int, instant: str) -> At:
        """Of an event's offset and instant."""
        return cls(offset, instant_ms(instant), instant)

    @property
    def day(self) -> str:
        """ISO date, in the zone in which it was written."""
        return self.instant[:DAY_CHARACTERS]

    def seen(self, cut: Cut) -> bool:
        """Whether a cut sees it."""
        return self.offset <= cut.offset and (cut.event_ms is None or self.ms <= cut.event_ms)


@dataclass(slots=True)
class FactEntry:
    """One value of one key, from the first statement on."""

    memory_id: str
    key: str
    value: str
    norm: str
    text: str
    multi: bool
    confidence: float
    importance: int
    learnt: At
    valid_from: str | None
    sources: list[tuple[At, FactSource]] = field(default_factory=list)
    verified: list[At] = field(default_factory=list)
    """Statements and confirmations."""
    history: list[tuple[int, FactChange]] = field(default_factory=list)
    """(event time in ms, change), in order of the log; never empty once it is folded."""

    def at(self, cut: Cut) -> FactChange | None:
        """The change that holds at a cut; None: it was not known."""
        if cut.event_ms is None:
            index = bisect_right(self.history, cut.offset, key=lambda item: item[1].offset)
            return self.history[index - 1][1] if index else None
        seen = [change for ms, change in self.history if change.offset <= cut.offset and ms <= cut.event_ms]
        return seen[-1] if seen else None

    @property
    def live(self) -> bool:
        """Whether it holds, or may hold, after everything that was folded."""
        return bool(self.history) and self.history[-1][1].status in LIVE


@dataclass(slots=True)
class ConflictEntry:
    """Values of one key that exclude each other."""

    conflict_id: str
    key: str
    opened: At
    sides: list[tuple[At, str]] = field(default_factory=list)
    """With memory_id."""
    closed: tuple[At, str | None, str] | None = None
    """When, memory_id of the winner, by what. A conflict is closed once; another value opens another."""


class FactTable:
    """Facts and conflicts of one owner.

    Parameters
    ----------
    owner : (str, str)
        user_id and role_id; part of the ids.
    """

    __slots__ = ("_by_key", "_open", "_owner", "conflicts", "entries")

    def __init__(self, owner: tuple[str, str]) -> None:
        self._owner = owner
        self.entries: dict[str, FactEntry] = {}
        """By memory_id, in order of learning."""
        self.conflicts: dict[str, ConflictEntry] = {}
        self._by_key: dict[str, list[FactEntry]] = {}
        self._open: dict[str, ConflictEntry] = {}

    # -- writing ----------------------------------------------------------------------------------------------------

    def state(self, statement: FactStatement, offset: int, policy: Policy) -> None:
        """Fold a statement."""
        at = At.of(offset, statement.said_at)
        if statement.kind == "retract":
            self._retract(statement, at)
            return
        entry = self.entries.get(self._id(statement.key, statement.norm)) or self._learn(statement, at)
        if all(source.turn_id != statement.turn_id for _, source in entry.sources):
            entry.sources.append((at, _source(statement)))
            entry.verified.append(at)
        if statement.multi:
            self._replaced(entry, statement, at)
        rivals = (
            [] if statement.multi else [item for item in self._by_key[entry.key] if item.live and item is not entry]
        )
        if not rivals:
            if not entry.live:
                self._change(entry, at, "active", "stated again" if entry.history else "stated")
            return
        winner, why = _winner(entry, rivals, statement, policy)
        if winner is None and entry.live:
            return  # said again while it is contested: repetition settles nothing
        conflict = self._contest(entry, rivals, at)
        if winner is None:
            return
        ended = statement.valid_from or at.day if why == "change" else None
        self._close(conflict, winner, at, why, valid_to=ended)

    def judge(self, judgement: Judgement, offset: int) -> None:
        """Fold a confirmation or denial that was spoken; one that fits no fact changes nothing."""
        at = At.of(offset, judgement.said_at)
        named = self._by_key.get(judgement.key or "", ())
        for entry in [entry for entry in named if judgement.norm in (None, "", entry.norm) and entry.live]:
            self._judged(entry, judgement.kind, at, "the user")

    def feedback(self, kind: str, memory_id: str, offset: int, occurred_at: str, author: str | None) -> bool:
        """Fold a ``confirm`` or ``deny`` of a fact; False: there is no such fact."""
        entry = self.entries.get(memory_id)
        if entry is not None:
            self._judged(entry, kind, At.of(offset, occurred_at), author or "feedback")
        return entry is not None

    def open_conflict(self, key: str) -> ConflictEntry | None:
        """The conflict of a key that nobody has settled."""
        return self._open.get(key)

    def arbitrated(self, event: ConflictArbitrated, offset: int) -> None:
        """Fold a verdict: it counts where the conflict is open and has no side that the arbiter didn't see."""
        conflict = self.conflicts.get(event.conflict_id)
        if conflict is None or conflict.closed is not None or len(conflict.sides) != len(event.memory_ids):
            return
        winner = self.entries.get(event.winner or "")
        if winner is not None and winner.live and winner.memory_id in event.memory_ids:
            at = At.of(offset, event.occurred_at)
            self._close(conflict, winner, at, f"{event.method}: {event.reason}"[:REASON_CHARACTERS_MAX])

    def changed_at(self, offset: int) -> list[str]:
        """Keys of which something changed at an offset that was folded last."""
        changed = (e.key for e in self.entries.values() if e.history and e.history[-1][1].offset == offset)
        return list(dict.fromkeys(changed))

    def of_turn(self, turn_id: str) -> list[str]:
        """memory_ids of the facts that a turn states."""
        return [
            entry.memory_id
            for entry in self.entries.values()
            if any(source.turn_id == turn_id for _, source in entry.sources)
        ]

    def _id(self, key: str, norm: str) -> str:
        return "f-" + derived_id("fact", *self._owner, key, norm)

    def _rivals(self, entry: FactEntry) -> list[FactEntry]:
        return [item for item in self._by_key[entry.key] if item.live and item is not entry]

    def _learn(self, statement: FactStatement, at: At) -> FactEntry:
        entry = FactEntry(
            memory_id=self._id(statement.key, statement.norm),
            key=statement.key,
            value=statement.value,
            norm=statement.norm,
            text=statement.text,
            multi=statement.multi,
            confidence=statement.confidence,
            importance=statement.importance,
            learnt=at,
            valid_from=statement.valid_from,
        )
        self.entries[entry.memory_id] = entry
        self._by_key.setdefault(entry.key, []).append(entry)
        return entry

    def _change(
        self,
        entry: FactEntry,
        at: At,
        status: FactStatus,
        why: str,
        *,
        confirmation: int = 0,
        valid_to: str | None = None,
        conflict_id: str | None = None,
    ) -> None:
        before = entry.history[-1][1].confirmation if entry.history else 0
        change = FactChange(
            offset=at.offset,
            at=at.instant,
            status=status,
            why=why,
            confirmation=before + confirmation,
            valid_to=valid_to,
            conflict_id=conflict_id,
        )
        entry.history.append((at.ms, change))

    def _replaced(self, entry: FactEntry, statement: FactStatement, at: At) -> None:
        """A multi-valued key of which one value took the place of another that the turn names."""
        old = self.entries.get(self._id(statement.key, statement.old_norm)) if statement.old_norm else None
        if old is not None and old is not entry and old.live:
            self._change(old, at, "superseded", "correction", valid_to=at.day)

    def _retract(self, statement: FactStatement, at: At) -> None:
        wanted = statement.norm or statement.old_norm
        for entry in self._by_key.get(statement.key, ()):
            if entry.live and wanted in (None, "", entry.norm):
                ended = statement.valid_to or at.day
                self._change(entry, at, "retracted", "retracted", valid_to=ended)
        self._tidy(statement.key, at, "retraction")

    def _judged(self, entry: FactEntry, kind: str, at: At, who: str) -> None:
        if kind == "deny":
            self._change(entry, at, "denied", f"denied by {who}", confirmation=-1)
            self._tidy(entry.key, at, "denial")
            return
        entry.verified.append(at)
        rivals = [] if entry.multi else self._rivals(entry)
        self._change(entry, at, "active", f"confirmed by {who}", confirmation=1)
        if rivals:
            self._close(self._contest(entry, rivals, at), entry, at, f"confirmed by {who}")

    # -- conflicts --------------------------------------------------------------------------------------------------

    def _contest(self, entry: FactEntry, rivals: Sequence[FactEntry], at: At) -> ConflictEntry:
        """The open conflict of a key with these sides; opened, if there is none."""
        conflict = self._open.get(entry.key)
        if conflict is None:
            conflict_id = "c-" + derived_id("conflict", entry.memory_id, str(at.offset), str(len(self.conflicts)))
            conflict = self._open[entry.key] = self.conflicts[conflict_id] = ConflictEntry(conflict_id, entry.key, at)
        sides = {memory_id for _, memory_id in conflict.sides}
        for item in (*rivals, entry):
            if item.memory_id not in sides:
                conflict.sides.append((at, item.memory_id))
            if not item.history or item.history[-1][1].conflict_id != conflict.conflict_id:
                self._change(item, at, "contested", "contested", conflict_id=conflict.conflict_id)
        return conflict

    def _close(
        self, conflict: ConflictEntry, winner: FactEntry | None, at: At, why: str, *, valid_to: str | None = None
    ) -> None:
        conflict.closed = (at, winner.memory_id if winner else None, why)
        del self._open[conflict.key]
        for _, memory_id in conflict.sides:
            side = self.entries[memory_id]
            if side is winner:
                self._change(side, at, "active", why, conflict_id=conflict.conflict_id)
            elif side.live:
                self._change(side, at, "superseded", why, valid_to=valid_to, conflict_id=conflict.conflict_id)

    def _tidy(self, key: str, at: At, why: str) -> None:
        """End a conflict that a retraction or a denial left with one side, or with none."""
        conflict = self._open.get(key)
        if conflict is None:
            return
        left = [self.entries[memory_id] for _, memory_id in conflict.sides if self.entries[memory_id].live]
        if len(left) < 2:
            self._close(conflict, left[0] if left else None, at, f"{why} of the other")

    # -- reading ----------------------------------------------------------------------------------------------------

    def facts(self, cut: Cut, *, live_only: bool = True, history: bool = False) -> list[Fact]:
        """Facts as of a cut, by key, in order of learning.

        Parameters
        ----------
        live_only : bool
            Only those that hold or are contested.
        history : bool
            Each with every change up to the cut.
        """
        found = []
        for entry in self.entries.values():
            change = entry.at(cut)
            if change is not None and (change.status in LIVE or not live_only):
                found.append(_fact(entry, change, cut, history=history))
        return sorted(found, key=lambda fact: fact.key)

    def of_key(self, key: str, cut: Cut) -> tuple[list[Fact], list[Conflict]]:
        """Facts of a key, newest first, with their histories, and its conflicts."""
        entries = [entry for entry in self._by_key.get(key, ()) if entry.at(cut) is not None]
        facts = [_fact(entry, change, cut, history=True) for entry in entries if (change := entry.at(cut)) is not None]
        facts.reverse()
        return facts, [conflict for conflict in self.conflicts_at(cut) if conflict.key == key]

    def conflicts_at(self, cut: Cut) -> list[Conflict]:
        """Conflicts as of a cut, oldest first."""
        found = []
        for entry in self.conflicts.values():
            if not entry.opened.seen(cut):
                continue
            sides = tuple(memory_id for at, memory_id in entry.sides if at.seen(cut))
            closed = entry.closed if entry.closed is not None and entry.closed[0].seen(cut) else None
            found.append(
                Conflict(
                    conflict_id=entry.conflict_id,
                    key=entry.key,
                    status="closed" if closed else "open",
                    opened_at=entry.opened.instant,
                    opened_offset=entry.opened.offset,
                    memory_ids=sides,
                    values=tuple(self.entries[memory_id].value for memory_id in sides),
                    winner=closed[1] if closed else None,
                    closed_at=closed[0].instant if closed else None,
                    closed_offset=closed[0].offset if closed else None,
                    closed_by=closed[2] if closed else None,
                )
            )
        return found

    def rivals(self, entry: FactEntry, change: FactChange, cut: Cut) -> list[FactEntry]:
        """The other sides of a contested fact at a cut."""
        conflict = self.conflicts.get(change.conflict_id or "")
        if change.status != "contested" or conflict is None:
            return []
        others = [self.entries[memory_id] for at, memory_id in conflict.sides if at.seen(cut)]
        states = [(other, other.at(cut)) for other in others if other is not entry]
        return [other for other, state in states if state is not None and state.status == "contested"]

    # -- snapshots --------------------------------------------------------------------------------------------------

    def dumped(self, last: int) -> tuple[list[Any], list[Any]]:
        """Entries and conflicts up to an offset as plain data, for ``restored``."""
        entries = [_entry_row(entry, last) for entry in self.entries.values() if entry.learnt.offset <= last]
        conflicts = []
        for entry in self.conflicts.values():
            if entry.opened.offset > last:
                continue
            closed = entry.closed if entry.closed is not None and entry.closed[0].offset <= last else None
            sides = [[_at_row(at), memory_id] for at, memory_id in entry.sides if at.offset <= last]
            row = [entry.conflict_id, entry.key, _at_row(entry.opened), sides]
            conflicts.append([*row, [_at_row(closed[0]), closed[1], closed[2]] if closed else None])
        return entries, conflicts

    @classmethod
    def restored(cls, owner: tuple[str, str], entries: Sequence[Any], conflicts: Sequence[Any]) -> FactTable:
        """What was dumped."""
        table = cls(owner)
        for row in entries:
            entry = _entry_of(row)
            table.entries[entry.memory_id] = entry
            table._by_key.setdefault(entry.key, []).append(entry)
        for conflict_id, key, opened, sides, closed in conflicts:
            conflict = ConflictEntry(conflict_id, key, At(*opened), [(At(*at), memory_id) for at, memory_id in sides])
            table.conflicts[conflict_id] = conflict
            if closed is None:
                table._open[key] = conflict
            else:
                conflict.closed = (At(*closed[0]), closed[1], closed[2])
        return table


def _winner(
    entry: FactEntry, rivals: Sequence[FactEntry], statement: FactStatement, policy: Policy
) -> tuple[FactEntry | None, str]:
    """Who wins a conflict by its policy, and why; None: it stays contested."""
    if policy in ("model", "manual"):
        return None, ""
    if policy == "newest_explicit":
        later = [rival for rival in rivals if _last_said(rival).ms > instant_ms(statement.said_at)]
        if statement.kind == "correct" and later:
            # What was said last holds, however late an older correction is recorded.
            return (later[0], "said later") if len(rivals) == 1 else (None, "")
        if statement.kind == "correct":
            return entry, "correction"
        if statement.valid_from and all(_begins_after(statement.valid_from, rival) for rival in rivals):
            return entry, "change"
    ranked = sorted((entry, *rivals), key=lambda item: -item.confidence)
    lead = ranked[0].confidence - ranked[1].confidence
    if lead >= (CONFIDENCE_MARGIN if policy == "newest_explicit" else 1e-9):
        return ranked[0], "confidence"
    return None, ""


def _last_said(entry: FactEntry) -> At:
    """When a fact was last stated or confirmed, by event time: an older turn may be recorded later."""
    return max((*entry.verified, entry.learnt), key=lambda at: at.ms)


def _begins_after(valid_from: str, rival: FactEntry) -> bool:
    """Whether a value began when or after another was last said to hold: both are true, one after the other."""
    last = _last_said(rival).day
    width = min(len(valid_from), len(last))
    return valid_from[:width] >= last[:width]


def _source(statement: FactStatement) -> FactSource:
    return FactSource(turn_id=statement.turn_id, start=statement.start, end=statement.end, said_at=statement.said_at)


def _fact(entry: FactEntry, change: FactChange, cut: Cut, *, history: bool) -> Fact:
    sources = tuple(source for at, source in entry.sources if at.seen(cut))
    steps = tuple(step for ms, step in entry.history if At(step.offset, ms, step.at).seen(cut))
    verified = [at for at in entry.verified if at.seen(cut)]
    return Fact(
        memory_id=entry.memory_id,
        key=entry.key,
        value=entry.value,
        status=change.status,
        confidence=entry.confidence,
        importance=entry.importance,
        confirmation=change.confirmation,
        learnt_offset=entry.learnt.offset,
        said_at=entry.learnt.instant,
        last_verified_at=max(verified, key=lambda at: at.ms).instant if verified else entry.learnt.instant,
        sources=sources,
        valid_from=entry.valid_from,
        valid_to=change.valid_to,
        conflict_id=change.conflict_id if change.status == "contested" else None,
        multi=entry.multi,
        history=steps if history else None,
    )


_STEP = ("offset", "at", "status", "why", "confirmation", "valid_to", "conflict_id")
"""Fields of a change, in the order of its row."""


def _at_row(at: At) -> list[Any]:
    return [at.offset, at.ms, at.instant]


def _entry_row(entry: FactEntry, last: int) -> list[Any]:
    return [
        entry.memory_id,
        entry.key,
        entry.value,
        entry.norm,
        entry.text,
        entry.multi,
        entry.confidence,
        entry.importance,
        _at_row(entry.learnt),
        entry.valid_from,
        [
            [_at_row(at), source.turn_id, source.start, source.end, source.said_at]
            for at, source in entry.sources
            if at.offset <= last
        ],
        [_at_row(at) for at in entry.verified if at.offset <= last],
        [[ms, *(getattr(step, name) for name in _STEP)] for ms, step in entry.history if step.offset <= last],
    ]


def _entry_of(row: Sequence[Any]) -> FactEntry:
    learnt, valid_from, sources, verified, history = row[8:]
    entry = FactEntry(*row[:8], At(*learnt), valid_from)  # type: ignore[call-arg]
    entry.sources = [
        (At(*at), FactSource(turn_id=turn_id, start=start, end=end, said_at=said_at))
        for at, turn_id, start, end, said_at in sources
    ]
    entry.verified = [At(*at) for at in verified]
    entry.history = [(ms, FactChange(**dict(zip(_STEP, step, strict=True)))) for ms, *step in history]
    return entry
