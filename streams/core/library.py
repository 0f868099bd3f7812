"""The fold of the library: what all owners share. Documents revision by revision, and persona anchors.

Invariant: a revision is visible from the offset at which its last part arrived, the one before it until then; a
reader never sees half a document.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.codec import LibraryEvent
from schemas.documents import DocumentChunked, DocumentRemoved
from schemas.envelope import instant_ms
from schemas.personas import Persona, PersonaDeclared
from streams.core import vectors
from streams.core.conversation import RecordTimes
from streams.core.experience import Cut
from streams.core.knowledge import ChildView, Knowledge, ParentView, RevisionView


def _vector(text: str) -> NDArray[np.int8] | None:
    try:
        return vectors.decode(text)
    except ValueError:  # the passage is matched by its words
        return None


@dataclass(frozen=True, slots=True)
class Anchor:
    """A persona with the offset from which it holds."""

    offset: int
    event_id: str
    declared_ms: int
    persona: Persona


class LibraryState:
    """State of the library log."""

    def __init__(self, embedder: str) -> None:
        self.embedder = embedder
        self.next_offset = 0
        self.knowledge = Knowledge()
        self.anchors: dict[str, list[Anchor]] = {}
        self.recorded = RecordTimes()
        self.foreign: dict[str, str] = {}
        """Documents that were embedded by another embedder, and by which: not matched by vectors."""
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
            case DocumentRemoved():
                self._done.add(event.event_id)
                if self._current.pop(event.document_id, None) is not None:
                    self.knowledge.remove(event.document_id, offset, instant_ms(event.occurred_at))
                    self._history.append((offset, event.document_id, None))
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
        if event.embedder != self.embedder:
            self.foreign[event.document_id] = event.embedder
        else:
            self.foreign.pop(event.document_id, None)
        ordered = [parts[index] for index in range(event.parts)]
        self.knowledge.add_revision(event.document_id, self._revision(ordered), offset, instant_ms(event.occurred_at))

    def _revision(self, parts: list[DocumentChunked]) -> RevisionView:
        first = parts[0]
        usable = first.embedder == self.embedder
        return RevisionView(
            revision_id=first.revision_id,
            role_id=first.role_id,
            title=first.title,
            source=first.origin,
            occurred_at=first.occurred_at,
            parents=tuple(
                ParentView(
                    index=parent.index,
                    start=parent.start,
                    text=parent.text,
                    children=tuple(
                        ChildView(
                            start=child.start,
                            end=child.end,
                            vector=_vector(child.vector) if usable else None,
                        )
                        for child in parent.children
                    ),
                )
                for part in parts
                for parent in part.parents
            ),
        )

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
        sha.update(
            repr([(role, [a.event_id for a in anchors]) for role, anchors in sorted(self.anchors.items())]).encode()
        )
        return sha.hexdigest()
