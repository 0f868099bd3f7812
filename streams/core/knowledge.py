"""Knowledge: parents and children of documents, those of all roles and those of one role in separate segments.

Invariants: a search of a role reads the shared segment and its own and can't reach another's; a document's revision
is visible from its offset until that of the next revision or removal; history stays, so that a search at a cut equals
a search of a library that ends there.

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM): s' = norm(s_RRF) + b_user + b_character + b_source; s = s'·w.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.core import bm25, fusion, temporal, text
from streams.core.arrivals import Embedded, Uses
from streams.core.candidates import Candidate, Found, RecallQuery, parts_of
from streams.core.engines import BM25Plus, Words, WordsEngine
from streams.core.settings import KnowledgeSettings, Settings
from streams.core.visibility import Column, Cut, Entries, Mask

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView:
    """A passage that is matched: character offsets in the document, and its vector (None: it has none)."""

    start: int
    end: int
    vector: npt.NDArray[np.int8] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentView:
    """A passage that is shown."""

    index: int
    start: int
    text: str
    children: tuple[ChildView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionView:
    """A document as of one revision; ``role_id`` None: shared by all roles."""

    revision_id: str
    occurred_at: str
    parents: tuple[ParentView, ...]
    role_id: str | None = None
    title: str | None = None
    source: str | None = None
    embedder: str = ""
    """Of the children's vectors."""


@dataclass(frozen=True, slots=True)
class _Parent:
    """A parent of a revision of a document; children are forgotten once they are indexed."""

    document_id: str
    revision: RevisionView
    index: int
    text: str
    offset: int
    event_ms: int


class _Segment:
    """The documents of one role, or those of all."""

    __slots__ = ("entries", "parent_of", "parents", "postings", "vectors")

    def __init__(self, words: Words) -> None:
        self.entries = Entries()
        self.postings = words
        self.vectors: dict[str, Embedded] = {}
        """Of the children, by embedder."""
        self.parents: list[_Parent] = []
        self.parent_of = Column(np.int64)

    def add(self, document_id: str, revision: RevisionView, offset: int, event_ms: int) -> tuple[int, int]:
        """Index a revision; its children's ids [first, last)."""
        first = len(self.entries)
        title = text.tokens(revision.title or "")
        bare = RevisionView(
            revision_id=revision.revision_id,
            occurred_at=revision.occurred_at,
            parents=(),
            role_id=revision.role_id,
            title=revision.title,
            source=revision.source,
        )
        for parent in revision.parents:
            self.parents.append(_Parent(document_id, bare, parent.index, parent.text, offset, event_ms))
            for child in parent.children:
                self.entries.append(offset, event_ms)
                passage = parent.text[child.start - parent.start : child.end - parent.start]
                self.postings.add(title + text.tokens(passage))
                self.parent_of.append(len(self.parents) - 1)
                for embedded in self.vectors.values():
                    embedded.expect()
        self.embed(
            first, [child.vector for parent in revision.parents for child in parent.children], revision.embedder, offset
        )
        return first, len(self.entries)

    def embed(self, first: int, vectors: Sequence[npt.NDArray[np.int8] | None], embedder: str, offset: int) -> None:
        """Take vectors of the children from ``first`` on; one that is none, or of another dimension, is passed over."""
        embedded = self.vectors.get(embedder)
        if embedded is None:
            embedded = self.vectors[embedder] = Embedded(embedder, len(self.entries))
        shape = (embedded.vectors.dimension,) if embedded.vectors.dimension else None
        taken: list[int] = []
        rows: list[npt.NDArray[np.int8]] = []
        for index, vector in enumerate(vectors, first):
            if vector is None or not len(vector) or vector.shape != (shape or vector.shape) or embedded.holds(index):
                continue
            shape = vector.shape
            taken.append(index)
            rows.append(vector)
        if rows:
            embedded.extend(np.array(taken, dtype=np.int64), np.full(len(rows), offset), np.stack(rows))


_NO_VECTORS = Embedded()


@dataclass(frozen=True, slots=True)
class _Scope:
    """A segment during one search: ids of its children run from ``start`` in the numbering of the search."""

    segment: _Segment
    mask: Mask
    start: int
    embedded: Embedded
    """The vectors in use at the cut."""
    cut: Cut


class Knowledge:
    """Index of all documents; their words are matched by ``engine``."""

    __slots__ = ("_current", "_engine", "_segments", "uses")

    def __init__(self, engine: WordsEngine | None = None) -> None:
        self._engine: WordsEngine = engine or BM25Plus()
        self._segments: dict[str | None, _Segment] = {None: _Segment(self._engine.segment())}
        self._current: dict[str, tuple[_Segment, int, int]] = {}
        self.uses = Uses()
        """Which embedder's vectors are searched; the first's, until somebody begins with another's."""

    def add_revision(self, document_id: str, revision: RevisionView, offset: int, event_ms: int) -> None:
        """A revision is known, and the one before it no longer, from ``offset`` on.

        Raises
        ------
        ValueError
            Where the offset is below that of an addition before: revisions come in log order.
        """
        self.remove(document_id, offset, event_ms)
        segment = self._segments.get(revision.role_id)
        if segment is None:
            segment = self._segments[revision.role_id] = _Segment(self._engine.segment())
        first, last = segment.add(document_id, revision, offset, event_ms)
        self._current[document_id] = (segment, first, last)
        if self.uses.newest is None:
            self.uses.begin(offset, revision.embedder)

    def embed(
        self, document_id: str, vectors: Sequence[npt.NDArray[np.int8] | None], embedder: str, offset: int
    ) -> bool:
        """Give all children of a document's revision, in order, vectors of another embedder.

        Returns
        -------
        bool
            Whether the document is known and has so many children.
        """
        segment, first, last = self._current.get(document_id, (None, 0, 0))
        if segment is None or last - first != len(vectors):
            return False
        segment.embed(first, vectors, embedder, offset)
        return True

    def remove(self, document_id: str, offset: int, event_ms: int | None = None) -> bool:
        """A document is no longer known from ``offset`` on.

        Parameters
        ----------
        event_ms : int, optional
            Event time of the removal: as of an event time before it the document is still there.

        Returns
        -------
        bool
            Whether it was known.
        """
        current = self._current.pop(document_id, None)
        if current is None:
            return False
        segment, first, last = current
        segment.entries.remove(first, last, offset, -(2**62) if event_ms is None else event_ms)
        return True

    def search(
        self, query: RecallQuery, settings: Settings, cut: Cut, role_id: str, *, count: int | None = None
    ) -> Found:
        """Parents that answer a query, best first; the best child's score stands for its parent.

        Parameters
        ----------
        query : RecallQuery
        settings : Settings
        cut : Cut
            In offsets of the library.
        role_id : str
            Shared documents and those of this role are searched.
        count : int, optional
            At most so many candidates; all of the pool by default.
        """
        scopes: list[_Scope] = []
        start = 0
        used = self.uses.at(cut.offset)
        for key in (None, role_id):
            segment = self._segments.get(key)
            if segment is not None:
                mask = segment.entries.visible(cut)
                embedded = segment.vectors.get(used, _NO_VECTORS) if used is not None else _NO_VECTORS
                scopes.append(_Scope(segment, mask, start, embedded, cut))
                start += len(mask)
        notes: dict[str, Any] = {}
        considered = sum(int(np.count_nonzero(scope.mask)) for scope in scopes)
        notes["removed"] = start - considered
        scored = _scored(query, settings.knowledge, scopes, self._engine, notes) if considered else None
        if scored is None:
            return Found(candidates=[], considered=considered, notes=notes)
        return Found(candidates=_candidates(*scored, scopes, count), considered=considered, notes=notes)


def _gathered(scopes: list[_Scope], ids: Ints, column: Callable[[_Segment], Ints]) -> Ints:
    """A column of the children ``ids``, which ascend in the numbering of the search."""
    bounds = np.searchsorted(ids, [scope.start for scope in scopes[1:]]).tolist()
    parts = np.split(ids, bounds)
    return np.concatenate(
        [column(scope.segment)[part - scope.start] for scope, part in zip(scopes, parts, strict=True)]
    )


def _scored(
    query: RecallQuery, chosen: KnowledgeSettings, scopes: list[_Scope], engine: WordsEngine, notes: dict[str, Any]
) -> tuple[Ints, Floats, dict[str, Floats | None]] | None:
    """Children of the pool, their scores and components; None where nothing matches."""
    fits = [scope.embedded.fits(query.vector, query.embedder) for scope in scopes]
    vector = query.vector if chosen.use_vectors and any(fits) else None
    near = [] if vector is None else _nearest(vector, scopes, chosen.pool)
    words = np.zeros(sum(len(scope.mask) for scope in scopes))
    terms = text.query_tokens(query.text) if chosen.use_bm25 or not near else []
    if terms:
        segments = [(scope.segment.postings, scope.mask) for scope in scopes]
        parameters = bm25.Parameters(k1=chosen.k1, b=chosen.b, delta=chosen.delta)
        found = engine.scores(terms, segments, parameters, chosen.pool)
        words = found[0] if len(found) == 1 else np.concatenate(found)
    notes["engines"] = [*([engine.name] if words.any() else []), *(["vectors"] if near else [])]
    lists = [fusion.top(words, chosen.pool)]
    if near:
        lists.append(_merged(near, chosen.pool))
    ids = fusion.union(lists, len(words))
    notes["not_near_enough"] = sum(int(np.count_nonzero(scope.mask)) for scope in scopes) - len(ids)
    if not len(ids):
        return None
    cosines = _cosines(vector, scopes, ids) if near and vector is not None else None
    columns: dict[str, Floats | None] = {"vector": cosines, "bm25": words[ids] if words.any() else None}
    if chosen.fusion == "rrf":
        columns["rrf"] = ranked = fusion.rrf(lists, ids, chosen.k_rrf)
        base = fusion.norm(ranked)
    else:
        z = np.zeros(len(ids))
        for name, weight in (("vector", chosen.vector_weight), ("bm25", chosen.bm25_weight)):
            column = columns[name]
            if column is not None:
                columns[f"z_{name}"] = standard = fusion.z_scores(column, column[~np.isnan(column)])
                # A child without a vector counts as average, not as irrelevant.
                z += weight * np.nan_to_num(standard, nan=0.0)
        columns["z"] = z
        base = fusion.norm(z)
    columns["base"] = base
    return ids, *_weighed(query, chosen, scopes, ids, base, columns)


def _nearest(vector: npt.NDArray[np.int8], scopes: list[_Scope], pool: int) -> list[tuple[Ints, Ints]]:
    """Children (numbered for the search) and inner products of each segment's nearest vectors."""
    near = []
    for scope in scopes:
        embedded = scope.embedded
        if not len(embedded) or not embedded.vectors.fits(vector):
            continue
        children, seen = embedded.visible(scope.mask, scope.cut)
        ids, products = embedded.vectors.nearest(vector, pool, seen)
        if len(ids):
            near.append((children[ids] + scope.start, products))
    return near


def _merged(near: list[tuple[Ints, Ints]], pool: int) -> Ints:
    """The nearest of all segments, best first."""
    ids = np.concatenate([children for children, _ in near])
    products = np.concatenate([products for _, products in near])
    return ids[np.lexsort((-ids, -products))][:pool]


def _cosines(vector: npt.NDArray[np.int8], scopes: list[_Scope], ids: Ints) -> Floats:
    """Cosine of the query and each child; NaN for children without a vector."""
    out = np.full(len(ids), np.nan)
    for scope in scopes:
        embedded = scope.embedded
        if not embedded.vectors.fits(vector) or not len(embedded):
            continue
        inside = np.flatnonzero((ids >= scope.start) & (ids < scope.start + len(scope.mask)))
        arrived = embedded.arrived(scope.cut.offset)
        out[inside] = embedded.cosines(vector, embedded.ids(ids[inside] - scope.start, arrived))
    return out


def _weighed(
    query: RecallQuery,
    chosen: KnowledgeSettings,
    scopes: list[_Scope],
    ids: Ints,
    base: Floats,
    columns: dict[str, Floats | None],
) -> tuple[Floats, dict[str, Floats | None]]:
    """s = (s' + biases)·w and all components."""
    own = ids >= scopes[-1].start if len(scopes) > 1 else np.zeros(len(ids), dtype=bool)
    if chosen.b_user:
        # Documents belong to roles, not to users: every visible one matches.
        columns["b_user"] = np.full(len(ids), chosen.b_user)
    if chosen.b_character:
        columns["b_character"] = np.where(own, chosen.b_character, 0.0)
    if chosen.b_source:
        asked = query.text.casefold()
        numbers = _gathered(scopes, ids, lambda segment: segment.parent_of.view()).tolist()
        parents = [scopes[-1 if mine else 0].segment.parents[n] for n, mine in zip(numbers, own.tolist(), strict=True)]
        columns["b_source"] = chosen.b_source * np.array([_named(asked, parent.revision) for parent in parents])
    for bias in ("b_user", "b_character", "b_source"):
        column = columns.get(bias)
        base = base if column is None else base + column
    if not chosen.temporal:
        return base, columns
    times = _gathered(scopes, ids, lambda segment: segment.entries.event_ms)
    # A document belongs to no round, so its w_round is 1 and the clock alone decides.
    w_clock = temporal.clock_weights(query.now_ms, times, chosen.lambda_hours)
    weight = temporal.floored(w_clock, chosen.floor)
    columns |= {"w_round": np.ones(len(ids)), "w_clock": w_clock, "w": weight}
    return base * weight, columns


def _named(asked: str, revision: RevisionView) -> bool:
    """Whether a query names a document's title or source."""
    return any(name and name.casefold() in asked for name in (revision.title, revision.source))


def _candidates(
    ids: Ints, score: Floats, columns: dict[str, Floats | None], scopes: list[_Scope], count: int | None
) -> list[Candidate]:
    offsets = _gathered(scopes, ids, lambda segment: segment.entries.added)
    numbers = _gathered(scopes, ids, lambda segment: segment.parent_of.view())
    # The best child of each parent, best first.
    best: dict[tuple[bool, int], int] = {}
    for row in fusion.order(score, offsets, ids).tolist():
        key = (len(scopes) > 1 and int(ids[row]) >= scopes[-1].start, int(numbers[row]))
        if key in best:
            continue
        if count is not None and len(best) >= count:
            break
        best[key] = row
    rows = np.fromiter(best.values(), dtype=np.int64, count=len(best))
    candidates = []
    for (mine, number), row, parts in zip(best, rows.tolist(), parts_of(columns, rows), strict=True):
        parent = scopes[-1 if mine else 0].segment.parents[number]
        candidate = Candidate(
            id=f"{parent.revision.revision_id}:{parent.index}",
            path="knowledge",
            text=parent.text,
            score=round(float(score[row]), 6),
            parts=parts,
            offset=parent.offset,
            occurred_at=parent.revision.occurred_at,
            occurred_ms=parent.event_ms,
            source=parent.revision.source,
            document_id=parent.document_id,
            title=parent.revision.title,
        )
        candidates.append(candidate)
    return candidates
