"""The fold of the library: what all owners share. Documents revision by revision, and persona anchors.

Invariants: a revision is visible from the offset at which its last part arrived, the one before it until then; a
reader never sees half a document. Vectors of one embedder are searched at each offset; another's from the offset on at
which every document that has vectors of the one in use has some of the other: that follows from the log alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.codec import LibraryEvent
from schemas.documents import ChunksEmbedded, DocumentChunked, DocumentRemoved
from schemas.envelope import instant_ms
from schemas.personas import Persona, PersonaDeclared
from streams.core import vectors
from streams.core.conversation import RecordTimes
from streams.core.engines import WordsEngine
from streams.core.experience import Cut
from streams.core.knowledge import ChildView, Knowledge, ParentView, RevisionView


def _vector(text: str) -> NDArray[np.int8] | None:
    try:
        return vectors.decode(text)
    except ValueError:  # the passage is matched by its words
        return None


def _revision(parts: list[DocumentChunked]) -> RevisionView:
    first = parts[0]
    return RevisionView(
        revision_id=first.revision_id,
        role_id=first.role_id,
        title=first.title,
        source=first.origin,
        embedder=first.embedder,
        occurred_at=first.occurred_at,
        parents=tuple(
            ParentView(
                index=parent.index,
                start=parent.start,
                text=parent.text,
                children=tuple(
                    ChildView(start=child.start, end=child.end, vector=_vector(child.vector))
                    for child in parent.children
                ),
            )
            for part in parts
            for parent in part.parents
        ),
    )


def _passages(revision: RevisionView) -> tuple[str, ...]:
    return tuple(
        parent.text[child.start - parent.start : child.end - parent.start]
        for parent in revision.parents
        for child in parent.children
    )


@dataclass(frozen=True, slots=True)
class Anchor:
    """A persona with the offset from which it holds."""

    offset: int
    event_id: str
    declared_ms: int
    persona: Persona


@dataclass(frozen=True, slots=True)
class Outdated:
    """A revision that has no vectors of the embedder that is wanted: its passages, in the order of its children."""

    revision_id: str
    passages: tuple[str, ...]


class LibraryState:
    """State of the library log.

    Parameters
    ----------
    embedder : str
        Of the vectors that documents are to have; see ``JournalState``.
    words : WordsEngine, optional
        What matches words; BM25+ by default.
    """

    def __init__(self, embedder: str, words: WordsEngine | None = None) -> None:
        self.embedder = embedder
        self.next_offset = 0
        self.knowledge = Knowledge(words)
        self.anchors: dict[str, list[Anchor]] = {}
        self.recorded = RecordTimes()
        self.outdated: dict[str, Outdated] = {}
        """Documents that have vectors of other embedders only: the outstanding effects."""
        self._embedders: dict[str, frozenset[str]] = {}
        """Embedders that each document's revision has vectors of."""
        self._having: Counter[str] = Counter()
        """Documents that have vectors of an embedder."""
        self._having_both: Counter[str] = Counter()
        """Of these, the ones that have vectors of the embedder in use too."""
        self._parts: dict[tuple[str, str, str, int], dict[int, tuple[str, ...]]] = {}
        """Vectors by part of document, revision, embedder and number of parts, until all parts are there."""
        self._pending: dict[tuple[str, str, int], dict[int, DocumentChunked]] = {}
        self._current: dict[str, str] = {}
        self._done: set[str] = set()
        self._history: list[tuple[int, str, str | None]] = []
        """(offset, document, revision or None for a removal), in order: all that knowledge was told."""

    @property
    def watermark(self) -> int:
        """Last applied offset; -1: none."""
        return self.next_offset - 1

    def apply(self, offset: int, event: LibraryEvent | None) -> None:
        """Fold one event; see ``JournalState.apply``."""
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        if event is None:
            return
        self.recorded.add(offset, instant_ms(event.recorded_at))
        if event.event_id in self._done:
            return
        match event:
            case DocumentChunked():
                self._chunked(offset, event)
            case ChunksEmbedded():
                self._chunks_embedded(offset, event)
            case DocumentRemoved():
                self._done.add(event.event_id)
                if self._current.pop(event.document_id, None) is not None:
                    self.knowledge.remove(event.document_id, offset, instant_ms(event.occurred_at))
                    self._history.append((offset, event.document_id, None))
                    self.outdated.pop(event.document_id, None)
                    self._has_vectors(offset, event.document_id, frozenset())
            case PersonaDeclared():
                self._done.add(event.event_id)
                self.anchors.setdefault(event.role_id, []).append(
                    Anchor(offset, event.event_id, instant_ms(event.occurred_at), event.persona)
                )

    def _chunked(self, offset: int, event: DocumentChunked) -> None:
        cause = event.causation_id or event.revision_id
        if cause in self._done or not 0 <= event.part < event.parts:
            return
        # Two attempts at one record may cut it differently (another program version): their parts never mix.
        parts = self._pending.setdefault((cause, event.revision_id, event.parts), {})
        parts.setdefault(event.part, event)
        if len(parts) < event.parts:
            return
        self._pending = {key: value for key, value in self._pending.items() if key[0] != cause}
        self._done.add(cause)
        if self._current.get(event.document_id) == event.revision_id:
            return
        self._current[event.document_id] = event.revision_id
        self._history.append((offset, event.document_id, event.revision_id))
        revision = _revision([parts[index] for index in range(event.parts)])
        self.knowledge.add_revision(event.document_id, revision, offset, instant_ms(event.occurred_at))
        self.outdated.pop(event.document_id, None)
        if revision.embedder != self.embedder:
            self.outdated[event.document_id] = Outdated(revision.revision_id, _passages(revision))
        self._has_vectors(offset, event.document_id, frozenset({revision.embedder}))

    def _chunks_embedded(self, offset: int, event: ChunksEmbedded) -> None:
        document_id, embedder = event.document_id, event.embedder
        if event.use:
            if self.switchable_to(embedder):
                self._use(offset, embedder)
            return
        if self._current.get(document_id) != event.revision_id or not 0 <= event.part < event.parts:
            return
        if embedder in self._embedders[document_id]:
            return
        parts = self._parts.setdefault((document_id, event.revision_id, embedder, event.parts), {})
        parts.setdefault(event.part, event.vectors)
        if len(parts) < event.parts:
            return
        del self._parts[document_id, event.revision_id, embedder, event.parts]
        found = [_vector(text) for index in range(event.parts) for text in parts[index]]
        if not self.knowledge.embed(document_id, found, embedder, offset):
            return  # not as many as there are children
        if embedder == self.embedder:
            self.outdated.pop(document_id, None)
        self._has_vectors(offset, document_id, self._embedders[document_id] | {embedder})

    def _has_vectors(self, offset: int, document_id: str, embedders: frozenset[str]) -> None:
        """Note what a document's revision has vectors of (empty: it is gone); switch where that completes another."""
        uses = self.knowledge.uses
        before = self._embedders.pop(document_id, frozenset())
        for names, sign in ((before, -1), (embedders, 1)):
            for name in names:
                self._having[name] += sign
                self._having_both[name] += sign * (uses.newest in names)
        if embedders:
            self._embedders[document_id] = embedders
        self._parts = {
            key: parts
            for key, parts in self._parts.items()
            if key[0] != document_id or key[1] == self._current.get(document_id)
        }
        used = uses.newest
        if used is None:
            return
        # Only what is added completes: a document that goes must not bring an embedder back that was left before.
        complete = [name for name in sorted(embedders - before) if self.switchable_to(name)]
        if complete:
            self._use(offset, complete[0])

    def some_document(self) -> tuple[str, str]:
        """A document that there is, with its revision; raises ``StopIteration`` where there is none."""
        return next(iter(self._current.items()))

    def switchable_to(self, embedder: str) -> bool:
        """Whether the vectors of an embedder are complete and not in use."""
        used = self.knowledge.uses.newest
        if used is None or used == embedder or not self._having[embedder]:
            return False
        return self._having_both[embedder] == self._having[used]

    def _use(self, offset: int, embedder: str) -> None:
        self.knowledge.uses.begin(offset, embedder)
        both = (names for names in self._embedders.values() if embedder in names)
        self._having_both = Counter(name for names in both for name in names)

    def parts_embedded(self, document_id: str, embedder: str, parts: int) -> frozenset[int]:
        """Parts of a document's vectors that are in the log while others are still missing."""
        key = (document_id, self._current.get(document_id, ""), embedder, parts)
        return frozenset(self._parts.get(key, ()))

    def anchor(self, role_id: str, cut: Cut) -> Anchor | None:
        """The anchor of a role that holds at a cut."""
        for anchor in reversed(self.anchors.get(role_id, ())):
            if anchor.offset <= cut.offset and (cut.event_ms is None or anchor.declared_ms <= cut.event_ms):
                return anchor
        return None

    def digest(self) -> str:
        """SHA-256 over the whole state in canonical order."""
        sha = hashlib.sha256(f"{self.embedder}|{self.next_offset}".encode())
        sha.update(repr(self._history).encode())
        sha.update(repr({cause: sorted(parts) for cause, parts in sorted(self._pending.items())}).encode())
        embedders = sorted((document_id, sorted(names)) for document_id, names in self._embedders.items())
        parts = sorted((key, sorted(parts.items())) for key, parts in self._parts.items())
        sha.update(repr((self.knowledge.uses.until(self.watermark), embedders, parts, sorted(self.outdated))).encode())
        sha.update(
            repr([(role, [a.event_id for a in anchors]) for role, anchors in sorted(self.anchors.items())]).encode()
        )
        return sha.hexdigest()
