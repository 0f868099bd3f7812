"""User memory: facts, summaries and atoms of one owner, found by five factors.

Invariants: one ``UserMemory`` holds one owner; a search at a cut equals a search of a history that ends there; a fact
that was denied, retracted or superseded by then is not found.

References
----------
"Persona memory engineering" (PME), section 5: final = similarity · (1 + 0.3·importance) · recency ·
(1 + 0.5·confirmation) · scene_match, each factor in [0, 1]; recency = exp(-Δdays / half-life).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from schemas.memories import ConflictArbitrated, MemoriesExtracted, Summary
from schemas.responses import AtomDistilled
from streams.core import text
from streams.core.arrivals import Embedded, VectorSets
from streams.core.candidates import Candidate, Found, RecallQuery, parts_of
from streams.core.facttable import LIVE, At, FactEntry, FactTable
from streams.core.fusion import SCORE_DECIMALS
from streams.core.settings import MemorySettings
from streams.core.visibility import Cut

DAY_MS = 86_400_000
PLAN = "plan"
"""The key whose facts are over when their day is."""
IMPORTANCE_WEIGHT = 0.3
CONFIRMATION_WEIGHT = 0.5
_EPOCH = dt.date(1970, 1, 1)
CONTESTED = {"en": ("Contested, not settled yet: ", " / "), "zh": ("有争议，尚未确定：", "／")}
"""How a contested fact begins, and what stands between its sides."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A summary or an atom."""

    memory_id: str
    kind: Literal["summary", "atom"]
    text: str
    importance: int
    learnt: At
    session_id: str
    first_turn_id: str
    last_turn_id: str
    method: str
    turn_ids: tuple[str, ...] = ()
    """Of an atom: its round's own turns, beside which it is not shown."""


class UserMemory:
    """Facts and notes of one owner, in one order of memory ids that vectors refer to."""

    __slots__ = ("_changed", "_denied", "_ids", "_index", "_live", "_terms", "facts", "notes", "vectors")

    def __init__(self, owner: tuple[str, str]) -> None:
        self.facts = FactTable(owner)
        self.notes: dict[str, Note] = {}
        self._denied: dict[str, list[tuple[At, int]]] = {}
        """Confirmations (+1) and denials (-1) of notes."""
        self._ids: list[str] = []
        """Facts and notes in order of learning."""
        self._index: dict[str, int] = {}
        self.vectors = VectorSets()
        self._terms: list[frozenset[str]] = []
        self._changed = -1
        """Offset of the last change."""
        self._live: _Visible | None = None
        """What every cut from the last change on sees."""

    # -- writing ----------------------------------------------------------------------------------------------------

    def extracted(self, event: MemoriesExtracted, offset: int) -> list[str]:
        """Fold an extraction; memory ids that are new, and so without a vector."""
        self._touch(offset)
        before = len(self.facts.entries)
        for statement in event.facts:
            self.facts.state(statement, offset, event.policy)
        for judgement in event.judgements:
            self.facts.judge(judgement, offset)
        added = list(self.facts.entries)[before:]
        for memory_id in added:
            self._add(memory_id, self.facts.entries[memory_id].text)
        summary = event.summary
        if summary is not None and summary.memory_id not in self._index:
            note = Note(
                memory_id=summary.memory_id,
                kind="summary",
                text=summary.text,
                importance=summary.importance,
                learnt=At.of(offset, event.occurred_at),
                session_id=event.session_id,
                first_turn_id=event.first_turn_id,
                last_turn_id=event.last_turn_id,
                method=event.method,
            )
            self.note(note)
            added.append(note.memory_id)
        return added

    def arbitrated(self, event: ConflictArbitrated, offset: int) -> None:
        """Fold a model's verdict on a conflict."""
        self._touch(offset)
        self.facts.arbitrated(event, offset)

    def distilled(self, event: AtomDistilled, offset: int) -> bool:
        """Fold an atom; False: it is known."""
        if event.memory_id in self._index:
            return False
        turn_ids = event.turn_ids or ("",)
        self.note(
            Note(
                memory_id=event.memory_id,
                kind="atom",
                text=event.text,
                importance=event.importance,
                learnt=At.of(offset, event.occurred_at),
                session_id=event.session_id or "",
                first_turn_id=turn_ids[0],
                last_turn_id=turn_ids[-1],
                method=event.method,
                turn_ids=event.turn_ids,
            )
        )
        return True

    def note(self, note: Note) -> None:
        """Take a note whose id is new."""
        self._touch(note.learnt.offset)
        self.notes[note.memory_id] = note
        self._add(note.memory_id, note.text)

    def feedback(self, kind: str, memory_id: str, offset: int, occurred_at: str, author: str | None) -> bool:
        """Fold a ``confirm`` or ``deny``; False: this owner has no such memory."""
        self._touch(offset)
        if self.facts.feedback(kind, memory_id, offset, occurred_at, author):
            return True
        if memory_id not in self.notes:
            return False
        given = (At.of(offset, occurred_at), -1 if kind == "deny" else 1)
        self._denied.setdefault(memory_id, []).append(given)
        return True

    def embed(self, memory_id: str, vector: npt.NDArray[np.int8], offset: int, embedder: str = "") -> bool:
        """Take the vector of a memory; False: unknown, or it has one, or of another dimension."""
        index = self._index.get(memory_id)
        return index is not None and self.vectors.add(index, vector, offset, embedder)

    def passage(self, memory_id: str) -> str:
        """The text of a memory that is embedded."""
        entry = self.facts.entries.get(memory_id)
        return entry.text if entry is not None else self.notes[memory_id].text

    def _touch(self, offset: int) -> None:
        self._changed, self._live = offset, None

    def _add(self, memory_id: str, passage: str) -> None:
        self._index[memory_id] = len(self._ids)
        self._ids.append(memory_id)
        self.vectors.expect()
        self._terms.append(frozenset(text.tokens(passage)))

    # -- reading ----------------------------------------------------------------------------------------------------

    def summaries(self, cut: Cut, now_ms: int, days: float) -> list[Summary]:
        """Summaries that have not expired, oldest first."""
        return [
            Summary(
                memory_id=note.memory_id,
                text=note.text,
                session_id=note.session_id,
                first_turn_id=note.first_turn_id,
                last_turn_id=note.last_turn_id,
                occurred_at=note.learnt.instant,
                importance=note.importance,
                learnt_offset=note.learnt.offset,
                method=note.method,
            )
            for note in self.notes.values()
            if note.kind == "summary" and self._confirmation(note, cut) is not None and _fresh(note, now_ms, days)
        ]

    def search(
        self,
        query: RecallQuery,
        chosen: MemorySettings,
        cut: Cut,
        *,
        scene: npt.NDArray[np.int8] | None = None,
        shown: frozenset[str] = frozenset(),
        count: int,
    ) -> Found:
        """The best memories by five factors.

        Parameters
        ----------
        query : RecallQuery
        chosen : MemorySettings
        cut : Cut
        scene : (d,) int8, optional
            Mean of the recent turns' vectors, of the embedder of the memories' own: what is being talked about.
            Without it scene_match is 1.
        shown : frozenset of str
            Turns that are shown anyway: an atom of one of them would double it.
        count : int

        Returns
        -------
        Found
            ``parts``: similarity, vector, words, importance, recency, confirmation, scene_match.
        """
        visible = self._visible(cut)
        ids = visible.ids[query.now_ms <= visible.until(chosen.summary_days)]
        if not len(ids):
            return Found(candidates=[])
        embedded = self.vectors.at(cut.offset)
        vector_ids = embedded.ids(ids, embedded.arrived(cut.offset))
        words = self._overlaps(query.text, ids)
        columns: dict[str, Floats | None] = {"words": words}
        similarity = words
        if query.vector is not None and embedded.fits(query.vector, query.embedder):
            columns["vector"] = found = embedded.cosines(query.vector, vector_ids)
            similarity = np.maximum(np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0), words)
        factors = visible.factors(ids, query.now_ms, chosen)
        scenes = _scene(scene, embedded, vector_ids, chosen.scene_weight)
        columns |= {"similarity": similarity, **factors, "scene_match": scenes}
        score = similarity * (1 + IMPORTANCE_WEIGHT * factors["importance"]) * factors["recency"]
        score = score * (1 + CONFIRMATION_WEIGHT * factors["confirmation"]) * scenes
        pool = np.lexsort((-ids, -np.round(similarity, SCORE_DECIMALS)))[: chosen.pool]
        order = pool[np.lexsort((-ids[pool], -np.round(score[pool], SCORE_DECIMALS)))]
        order = order[np.round(score[order], SCORE_DECIMALS) > 0]
        best, doubles = self._once(order, ids, cut, shown, count)
        rounded = np.round(score, SCORE_DECIMALS).tolist()
        return Found(
            candidates=[
                self._candidate(self._ids[ids[row]], rounded[row], part, cut)
                for row, part in zip(best.tolist(), parts_of(columns, best), strict=True)
            ],
            considered=len(ids),
            notes={"pool": len(pool), **({"atoms_beside_their_turns": doubles} if doubles else {})},
        )

    def _once(self, order: Ints, ids: Ints, cut: Cut, shown: frozenset[str], count: int) -> tuple[Ints, int]:
        """The first rows of an order, without what is shown anyway, and how many atoms that left out.

        Of a conflict the best side only: it shows the others.
        """
        kept: list[int] = []
        contested: set[str] = set()
        doubles = 0
        for row in order.tolist():
            if len(kept) == count:
                break
            memory_id = self._ids[ids[row]]
            if memory_id in self.notes and not shown.isdisjoint(self.notes[memory_id].turn_ids):
                doubles += 1
                continue
            entry = self.facts.entries.get(memory_id)
            change = entry.at(cut) if entry is not None else None
            if change is not None and change.status == "contested" and change.conflict_id:
                if change.conflict_id in contested:
                    continue
                contested.add(change.conflict_id)
            kept.append(row)
        return np.array(kept, dtype=np.int64), doubles

    def _visible(self, cut: Cut) -> _Visible:
        """Memories that a cut sees and that nobody denied; the newest cut's are kept until something changes."""
        if cut.event_ms is None and cut.offset >= self._changed:
            if self._live is None:
                self._live = self._visible_at(cut)
            return self._live
        return self._visible_at(cut)

    def _visible_at(self, cut: Cut) -> _Visible:
        rows: list[tuple[int, int, int, int, float]] = []
        for memory_id, index in self._index.items():
            entry = self.facts.entries.get(memory_id)
            if entry is not None:
                change = entry.at(cut)
                if change is not None and change.status in LIVE:  # said again after a denial, its sum is -1
                    said = _last_said(entry, cut)
                    end = _end_ms(change.valid_to) if entry.key == PLAN else math.inf
                    rows.append((index, said.ms, entry.importance, change.confirmation, end))
                continue
            note = self.notes[memory_id]
            net = self._confirmation(note, cut)
            if net is not None:
                # A summary's end follows from the settings: NaN until they are known.
                rows.append(
                    (index, note.learnt.ms, note.importance, net, math.nan if note.kind == "summary" else math.inf)
                )
        table = np.array(rows, dtype=np.float64).reshape(-1, 5)
        return _Visible(table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3], table[:, 4])

    def _confirmation(self, note: Note, cut: Cut) -> int | None:
        """Net confirmation of a note; None: unknown at the cut, or denied."""
        if not note.learnt.seen(cut):
            return None
        net = sum(given for at, given in self._denied.get(note.memory_id, ()) if at.seen(cut))
        return net if net >= 0 else None

    def _overlaps(self, query: str, ids: Ints) -> Floats:
        """Part of the query's terms that a memory holds, ``(n,)``."""
        terms = frozenset(text.query_tokens(query))
        if not terms:
            return np.zeros(len(ids))
        return np.array([len(terms & self._terms[index]) / len(terms) for index in ids.tolist()])

    def _candidate(self, memory_id: str, score: float, parts: dict[str, float], cut: Cut) -> Candidate:
        entry = self.facts.entries.get(memory_id)
        if entry is not None:
            change = entry.at(cut)
            assert change is not None
            said = _last_said(entry, cut)
            rivals = self.facts.rivals(entry, change, cut)
            return Candidate(
                id=memory_id,
                path="memory",
                text=_contested(entry, rivals) if rivals else entry.text,
                score=score,
                parts=parts,
                offset=entry.learnt.offset,
                occurred_at=said.instant,
                occurred_ms=said.ms,
                source=f"fact:{entry.key}",
                turn_id=[source for at, source in entry.sources if at.seen(cut)][-1].turn_id,
            )
        note = self.notes[memory_id]
        return Candidate(
            id=memory_id,
            path="memory",
            text=note.text,
            score=score,
            parts=parts,
            offset=note.learnt.offset,
            occurred_at=note.learnt.instant,
            occurred_ms=note.learnt.ms,
            source=f"{note.kind}:{note.session_id}",
        )

    # -- snapshots --------------------------------------------------------------------------------------------------

    def dumped(self, last: int) -> list[Any]:
        """Everything up to an offset as plain data, for ``restored``."""
        entries, conflicts = self.facts.dumped(last)
        notes = [
            [
                note.memory_id, note.kind, note.text, note.importance, note.learnt.offset, note.learnt.ms,
                note.learnt.instant, note.session_id, note.first_turn_id, note.last_turn_id, note.method,
                list(note.turn_ids),
            ]
            for note in self.notes.values()
            if note.learnt.offset <= last
        ]  # fmt: skip
        denied = [
            [memory_id, at.offset, at.ms, at.instant, given]
            for memory_id, all_given in self._denied.items()
            for at, given in all_given
            if at.offset <= last
        ]
        known = {row[0] for row in entries} | {row[0] for row in notes}
        ids = [memory_id for memory_id in self._ids if memory_id in known]
        return [last, ids, entries, conflicts, notes, denied, self.vectors.dumped(last)]

    @classmethod
    def restored(cls, owner: tuple[str, str], dumped: Sequence[Any]) -> UserMemory:
        """What was dumped."""
        last, ids, entries, conflicts, notes, denied, vectors = dumped
        memory = cls(owner)
        memory._changed = last
        memory.facts = FactTable.restored(owner, entries, conflicts)
        for memory_id, kind, passage, importance, offset, ms, instant, session, first, end, method, turn_ids in notes:
            memory.notes[memory_id] = Note(
                memory_id=memory_id, kind=kind, text=passage, importance=importance, learnt=At(offset, ms, instant),
                session_id=session, first_turn_id=first, last_turn_id=end, method=method, turn_ids=tuple(turn_ids),
            )  # fmt: skip
        for memory_id, offset, ms, instant, given in denied:
            memory._denied.setdefault(memory_id, []).append((At(offset, ms, instant), given))
        for memory_id in ids:
            memory._add(memory_id, memory.passage(memory_id))
        memory.vectors.fill(*vectors)
        return memory

    def learnt(self, memory_id: str) -> int:
        """Offset at which a memory was learnt."""
        entry = self.facts.entries.get(memory_id)
        return (entry or self.notes[memory_id]).learnt.offset

    def without_vector(self, embedder: str) -> list[str]:
        """Memory ids that have none of an embedder, in order of learning."""
        return [self._ids[index] for index in self.vectors.lacking(embedder)]


@dataclass(frozen=True, slots=True)
class _Visible:
    """What a cut sees, ``(n,)`` each: index, when it was last said, importance, confirmation, end of its validity."""

    ids: Ints
    said_ms: Floats
    importance: Floats
    confirmation: Floats
    end_ms: Floats

    def until(self, summary_days: float) -> Floats:
        """Event time in ms until which each is shown."""
        return np.where(np.isnan(self.end_ms), self.said_ms + summary_days * DAY_MS, self.end_ms)

    def factors(self, ids: Ints, now_ms: int, chosen: MemorySettings) -> dict[str, Floats]:
        """Factors in [0, 1] of some of them (ascending)."""
        rows = np.searchsorted(self.ids, ids)
        recency = np.exp(-np.maximum(0.0, now_ms - self.said_ms[rows]) / DAY_MS / chosen.half_life_days)
        return {
            "importance": (self.importance[rows] - 1) / 4,
            "recency": chosen.floor + (1 - chosen.floor) * recency,
            "confirmation": np.clip(self.confirmation[rows], 0.0, 1.0),
        }


def _scene(scene: npt.NDArray[np.int8] | None, embedded: Embedded, vector_ids: Ints, weight: float) -> Floats:
    """1 − w + w·cos⁺ of the scene: what fits it keeps its score, what doesn't loses up to w of it."""
    if scene is None or not weight or not embedded.vectors.fits(scene):
        return np.ones(len(vector_ids))
    near = np.clip(np.nan_to_num(embedded.cosines(scene, vector_ids), nan=1.0), 0.0, 1.0)
    return np.asarray(1 - weight + weight * near)


def _last_said(entry: FactEntry, cut: Cut) -> At:
    seen = [at for at in entry.verified if at.seen(cut)]
    return max(seen, key=lambda at: at.ms) if seen else entry.learnt


def _fresh(note: Note, now_ms: int, days: float) -> bool:
    return now_ms - note.learnt.ms <= days * DAY_MS


def _end_ms(valid_to: str | None) -> float:
    """The last millisecond of a day, month or year; infinity for none.

    >>> _end_ms("1970-01") == 31 * DAY_MS - 1, _end_ms(None), _end_ms("--05-20")
    (True, inf, inf)
    >>> [(_end_ms(text) + 1) / DAY_MS for text in ("1970", "1970-12", "1970-12-31")]
    [365.0, 365.0, 365.0]
    >>> _end_ms("9999"), _end_ms("2026-02-31")
    (inf, inf)
    """
    if valid_to is None or not valid_to[:4].isdigit():
        return math.inf
    try:
        numbers = [int(part) for part in valid_to.split("-")]
        if len(numbers) == 3:
            after = dt.date(*numbers) + dt.timedelta(days=1)
        else:
            year, month = (numbers[0], numbers[1] + 1) if len(numbers) == 2 else (numbers[0] + 1, 1)
            after = dt.date(year + (month > 12), month if month <= 12 else 1, 1)
    except (ValueError, OverflowError):  # no such day, or the last one that there is
        return math.inf
    return float((after - _EPOCH) // dt.timedelta(milliseconds=1)) - 1


def _contested(entry: FactEntry, rivals: Sequence[FactEntry]) -> str:
    """A contested fact shows every side with the day on which it was first said, oldest first."""
    sides = sorted((entry, *rivals), key=lambda item: (item.learnt.ms, item.memory_id))
    listed = [f"{side.text} ({side.learnt.day})" for side in sides]
    head, separator = CONTESTED[text.language(entry.text)]
    return head + separator.join(listed)
