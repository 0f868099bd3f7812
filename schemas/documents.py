"""Documents, and what the library keeps of them: parents and embedded children, revision by revision.

A long document is several ``DocumentChunked`` events of one revision. The revision becomes visible, and the one
before it invisible, at the offset at which its last part has arrived: a reader never sees half a document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from schemas.envelope import DOCUMENT_LENGTH_MAX, NO_NUL, Id, Instant, Metadata, ShortText, instant_ms
from schemas.positions import Position

DocumentText = Annotated[str, msgspec.Meta(max_length=DOCUMENT_LENGTH_MAX, pattern=NO_NUL)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text to know. The same id again replaces it from then on; ``deleted`` removes it from then on."""

    document_id: Id
    text: DocumentText | None = None
    title: ShortText | None = None
    source: ShortText | None = None
    role_id: Id | None = None
    """Absent: shared by all roles."""
    published_at: Instant | None = None
    deleted: bool | None = None
    metadata: Metadata | None = None
    type: Literal["document"] = "document"
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if not self.deleted and not (self.text or "").strip():
            raise ValueError("`text` is empty; expected text, or `deleted: true` to remove the document")
        if self.published_at is not None:
            instant_ms(self.published_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A passage that is matched; ``start``/``end`` are character offsets in the document."""

    start: int
    end: int
    vector: str
    """``(d,)`` int8, base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A passage that is shown: its text and the children cut from it."""

    index: int
    start: int
    text: str
    children: tuple[Child, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentChunked:
    """Part ``part`` of ``parts`` of a revision of a document."""

    event_id: str
    occurred_at: Instant
    """``published_at`` of the document, else the time of its record."""
    recorded_at: Instant
    document_id: Id
    revision_id: str
    part: int
    parts: int
    embedder: str
    parents: tuple[Parent, ...]
    source: Position
    role_id: Id | None = None
    title: ShortText | None = None
    origin: ShortText | None = None
    """``source`` of the document."""
    metadata: Metadata | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["DocumentChunked"] = "DocumentChunked"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksEmbedded:
    """Part ``part`` of ``parts`` of a revision's vectors by another embedder than the one that came with it.

    The vectors count when all parts have arrived, and are searched when every document has some of that embedder.
    """

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    document_id: Id
    revision_id: str
    part: int
    parts: int
    embedder: str
    vectors: tuple[str, ...]
    """``(d,)`` int8, base64, of the children in their order; empty: the embedder refuses the passage."""
    use: bool | None = None
    """True: no vectors, but the wish that those of this embedder be used again; see ``TurnEmbedded``."""
    causation_id: str | None = None
    """The revision."""
    correlation_id: str | None = None
    type: Literal["ChunksEmbedded"] = "ChunksEmbedded"
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRemoved:
    """A document that is no longer known from this offset on."""

    event_id: str
    occurred_at: Instant
    recorded_at: Instant
    document_id: Id
    source: Position
    causation_id: str | None = None
    correlation_id: str | None = None
    type: Literal["DocumentRemoved"] = "DocumentRemoved"
    version: Literal[1] = 1
