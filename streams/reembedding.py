"""Documents whose vectors are of another embedder, embedded anew as recorded effects; and texts that none will embed.

The worker that holds partition 0 of ``requests`` does it, a batch at a time, so that turns are embedded in between.
Invariant: what is appended is named by revision, embedder and part, so two workers that do the same are one; parts
that are in the log already are not embedded again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from connectors import metrics
from connectors.ports import Embedder, EmbedderChanged, Outgoing
from schemas.codec import encode
from schemas.documents import ChunksEmbedded
from schemas.envelope import cloud_event_headers, derived_id, instant_of
from streams.core.library import Outdated
from streams.core.vectors import encode as encode_vector

if TYPE_CHECKING:
    from streams.serving import Memory

log = structlog.get_logger("memory")

LIBRARY_PARTITION = 0
CHILDREN_PER_PART = 256
"""About 130 kB an event at 384 dimensions."""
PROBE = "dimension"
"""A text that every embedder takes."""

Place = tuple[str, str, int]
"""Document, revision, part."""


@dataclass(slots=True)
class _Part:
    """A part that is being embedded."""

    place: Place
    parts: int
    passages: Sequence[str]
    vectors: list[str] = field(default_factory=list)


class Reembedding:
    """Embeds the outdated documents of a ``Memory``'s library."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._part: _Part | None = None
        self._done: set[Place] = set()
        """Acknowledged by the log and perhaps not folded yet, or given up until a restart."""
        self._wished = -1
        """From where on the vectors were in use that others were last wished instead of."""

    @property
    def outstanding(self) -> int:
        """Documents without vectors of the embedder."""
        return len(self._memory.library.outdated)

    async def step(self) -> bool:
        """Embed a batch of passages; append their part when it is whole. False: nothing is to be done here.

        Raises
        ------
        Unavailable
            The embedder or the log is away: to be called again.
        """
        memory = self._memory
        shard = memory.shards.get(LIBRARY_PARTITION)
        if shard is None or not (shard.held and shard.ready.is_set() and memory.library_ready.is_set()):
            self._part = None
            return False
        if self._part is None or not self._is_current(self._part):
            self._part = self._next()
        if self._part is None and memory.library.switchable_to(memory.embedder.name):
            await self._use_again()
        if self._part is None:
            self._done = {place for place in self._done if place[0] in memory.library.outdated}
            return False
        part = self._part
        done = len(part.vectors)
        batch = part.passages[done : done + memory.settings.embed_batch]
        try:
            part.vectors += await self._embed(batch, part.place[0])
        except EmbedderChanged:
            raise
        except ValueError as error:
            log.error(
                "document_not_embedded_anew", document_id=part.place[0], error=str(error), action="until a restart"
            )
            self._done.add(part.place)
            self._part = None
            return True
        if len(part.vectors) == len(part.passages):
            await self._append(part)
            self._done.add(part.place)
            self._part = None
        return True

    async def _use_again(self) -> None:
        """Wish that complete vectors be used: after a change back there is nothing left to embed."""
        library = self._memory.library
        if self._wished == library.knowledge.uses.since:
            return
        document_id, revision_id = library.some_document()
        await self._append(_Part((document_id, revision_id, 0), 1, ()), use=True)
        self._wished = library.knowledge.uses.since

    def _is_current(self, part: _Part) -> bool:
        outdated = self._memory.library.outdated.get(part.place[0])
        return outdated is not None and outdated.revision_id == part.place[1]

    def _next(self) -> _Part | None:
        for document_id, outdated in self._memory.library.outdated.items():
            found = self._next_of(document_id, outdated)
            if found is not None:
                return found
        return None

    def _next_of(self, document_id: str, outdated: Outdated) -> _Part | None:
        passages = outdated.passages
        parts = max(1, -(-len(passages) // CHILDREN_PER_PART))
        there = self._memory.library.parts_embedded(document_id, self._memory.embedder.name, parts)
        for number in range(parts):
            place = (document_id, outdated.revision_id, number)
            if number not in there and place not in self._done:
                start = number * CHILDREN_PER_PART
                return _Part(place, parts, passages[start : start + CHILDREN_PER_PART])
        return None

    async def _embed(self, batch: Sequence[str], document_id: str) -> list[str]:
        embedder = self._memory.embedder
        begun = time.perf_counter()
        try:
            vectors = await embedder.embed(batch, "passage")
        except EmbedderChanged:
            raise
        except ValueError:
            if len(batch) > 1:
                return [vector for passage in batch for vector in await self._embed([passage], document_id)]
            if not await refuses_only_this(embedder, document_id=document_id):
                raise
            return [""]
        metrics.embedded("passage", len(batch), time.perf_counter() - begun)
        return [encode_vector(vector) for vector in vectors]

    async def _append(self, part: _Part, *, use: bool | None = None) -> None:
        memory = self._memory
        (document_id, revision_id, number), embedder = part.place, memory.embedder.name
        now = instant_of(memory.clock.now_ms())
        event = ChunksEmbedded(
            event_id=derived_id(revision_id, "ChunksEmbedded", embedder, number, part.parts, *(["use"] if use else [])),
            occurred_at=now,
            recorded_at=now,
            document_id=document_id,
            revision_id=revision_id,
            part=number,
            parts=part.parts,
            embedder=embedder,
            vectors=tuple(part.vectors),
            use=use,
            causation_id=revision_id,
        )
        outgoing = Outgoing(
            topic=memory.settings.topic("library"),
            value=encode(event),
            key=document_id.encode(),
            partition=0,
            headers=tuple(cloud_event_headers(event.type, event.version, event.event_id, event.occurred_at)),
        )
        await (await memory.log.append(outgoing))
        if number == part.parts - 1 and not use:
            log.info("document_embedded_anew", document_id=document_id, embedder=embedder, left=self.outstanding - 1)


async def refuses_only_this(embedder: Embedder, **what: str) -> bool:
    """Whether an embedder that refused a text takes others: then the text is at fault, and stays without a vector.

    Else the embedder is: a wrong key or model must not be recorded as a property of texts.
    """
    try:
        await embedder.embed([PROBE], "passage")
    except ValueError as error:
        log.error("embedder_refuses_everything", error=str(error), **what)
        return False
    log.warning("text_not_embeddable", embedder=embedder.name, **what)
    return True
