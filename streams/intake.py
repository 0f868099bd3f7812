"""What ``ingest`` does with a record, without Faust around it.

Invariant: the future of ``take`` is done only when everything that follows from the record is acknowledged by the
log: the event, or the dead letter. Only then may the record's offset be committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from connectors import metrics
from connectors.ports import Clock, Embedder, Log, Outgoing, Record, Unavailable, UnknownTopic
from connectors.settings import Settings
from schemas.codec import encode
from schemas.documents import Child, Document, DocumentChunked, Parent
from schemas.envelope import ContractError, cloud_event_headers, derived_id, instant_of
from schemas.positions import Position
from schemas.topics import MESSAGE_BYTES_MAX, owner_key, partition_of
from streams.core import chunking, intake
from streams.core.vectors import encode as encode_vector
from streams.letters import outgoing, source_of

log = structlog.get_logger("ingest")

PARENTS_PER_PART = 64
"""About 400 kB an event: 64 parents of 1,000 characters and five children with 512 base64 bytes each."""
EVENT_BYTES_MAX = MESSAGE_BYTES_MAX - 64 * 1024
"""Leaves room for key, headers and the batch around them."""
EMBED_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class Intake:
    """Validates records of the public topics and appends what they mean to ``journal`` and ``library``."""

    def __init__(self, settings: Settings, log_port: Log, embedder: Embedder, clock: Clock) -> None:
        self._settings = settings
        self._log = log_port
        self._embedder = embedder
        self._clock = clock
        self._documents: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(settings.document_tasks_max)
        self._take: dict[str, Callable[[Record], Any]] = {
            settings.topic("turns"): self._turn,
            settings.topic("feedback"): self._feedback,
            settings.topic("personas"): self._persona,
            settings.topic("documents"): self._document,
        }

    async def take(self, record: Record) -> asyncio.Future[Any]:
        """Begin with a record; the order of calls is the order in the log for records of one owner.

        Raises
        ------
        Unavailable
            The log can't take it now: stop without committing.
        """
        try:
            future: asyncio.Future[Any] = await self._take[record.topic](record)
        except ContractError as error:
            return await self._bury(record, error)
        except (Unavailable, UnknownTopic):
            raise
        except Exception as error:
            # A fault of ours that one record brings out must not stop the stream; the record is kept for a retry.
            log.exception("record_broke", topic=record.topic, partition=record.partition, offset=record.offset)
            return await self._bury(record, ContractError("internal", f"a fault of mnemolog: {error!r}"))
        if record.topic != self._settings.topic("documents"):  # a document is accepted when it has been learnt
            self._count(record, "accepted")
        return future

    async def _turn(self, record: Record) -> asyncio.Future[Any]:
        event = intake.turn_recorded(record.value, source_of(record), self._now())
        return await self._journal(event)

    async def _feedback(self, record: Record) -> asyncio.Future[Any]:
        event = intake.feedback_recorded(record.value, source_of(record), self._now())
        return await self._journal(event)

    async def _persona(self, record: Record) -> asyncio.Future[Any]:
        event = intake.persona_declared(record.value, source_of(record), self._now())
        return await self._library(event, event.role_id)

    async def _document(self, record: Record) -> asyncio.Future[Any]:
        document = intake.document_of(record.value)
        # Revisions of one document wait for each other, so that the newest is the last in the library.
        before = self._documents.get(document.document_id)
        task = asyncio.create_task(self._learn(record, document, before))
        self._documents[document.document_id] = task
        task.add_done_callback(lambda done: self._forget(document.document_id, done))
        return task

    def _forget(self, document_id: str, task: asyncio.Task[None]) -> None:
        if self._documents.get(document_id) is task:
            del self._documents[document_id]

    async def _learn(self, record: Record, document: Document, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        source = source_of(record)
        if document.deleted:
            removed = intake.document_removed(document, source, self._now())
            await (await self._library(removed, document.document_id))
            self._count(record, "accepted")
            return
        try:
            async with self._slots:
                async for event in self._chunk(document, source):
                    await (await self._library(event, document.document_id))
        except ContractError as error:
            await (await self._bury(record, error))
            return
        except ValueError as error:  # the endpoint refuses this text for good; another one may pass
            await (await self._bury(record, ContractError("not_embeddable", str(error))))
            return
        self._count(record, "accepted")
        log.info("document_learned", document_id=document.document_id)

    async def _chunk(self, document: Document, source: Position) -> Any:
        parents = chunking.parents(document.text or "")
        parts = [parents[i : i + PARENTS_PER_PART] for i in range(0, len(parents), PARENTS_PER_PART)]
        if not parts:
            raise ValueError("the text has nothing to index")
        content = derived_id("document", document.document_id, encode(document).decode())
        for index, part in enumerate(parts):
            vectors = await self._vectors([child.text for parent in part for child in parent.children])
            encoded = iter(vectors)
            yield DocumentChunked(
                event_id=intake.position_id("chunks", source, index),
                occurred_at=document.published_at or instant_of(source.timestamp or 0),
                recorded_at=self._now(),
                document_id=document.document_id,
                # After the first vectors, since an embedder knows its full name once it has answered.
                revision_id=derived_id("revision", content, self._embedder.name),
                part=index,
                parts=len(parts),
                embedder=self._embedder.name,
                parents=tuple(
                    Parent(
                        index=parent.index,
                        start=parent.start,
                        text=parent.text,
                        children=tuple(
                            Child(start=child.start, end=child.end, vector=next(encoded)) for child in parent.children
                        ),
                    )
                    for parent in part
                ),
                source=source,
                role_id=document.role_id,
                title=document.title,
                origin=document.source,
                metadata=document.metadata,
                causation_id=intake.position_id("document", source),
            )

    async def _vectors(self, texts: list[str]) -> list[str]:
        encoded: list[str] = []
        for start in range(0, len(texts), self._settings.embed_batch):
            batch = texts[start : start + self._settings.embed_batch]
            encoded.extend(encode_vector(row) for row in await self._embed(batch))
        return encoded

    async def _embed(self, batch: list[str]) -> Any:
        attempt = 0
        while True:
            try:
                begun = time.perf_counter()
                vectors = await self._embedder.embed(batch, "passage")
                metrics.embedded("passage", len(batch), time.perf_counter() - begun)
                return vectors
            except Unavailable as error:
                metrics.retry("embeddings")
                pause = EMBED_RETRY_S[min(attempt, len(EMBED_RETRY_S) - 1)]
                log.warning("embedder_unavailable", error=str(error), retry_in_s=pause)
                attempt += 1
                await asyncio.sleep(pause)

    async def _journal(self, event: Any) -> asyncio.Future[Any]:
        topic = self._settings.topic("journal")
        return await self._log.append(
            Outgoing(
                topic=topic,
                value=_encoded(event),
                key=owner_key(event.user_id, event.role_id),
                partition=partition_of(event.user_id, event.role_id, await self._log.partitions(topic)),
                headers=tuple(cloud_event_headers(event.type, event.version, event.event_id, event.occurred_at)),
            )
        )

    async def _library(self, event: Any, key: str) -> asyncio.Future[Any]:
        return await self._log.append(
            Outgoing(
                topic=self._settings.topic("library"),
                value=_encoded(event),
                key=key.encode(),
                partition=0,
                headers=tuple(cloud_event_headers(event.type, event.version, event.event_id, event.occurred_at)),
            )
        )

    def _count(self, record: Record, outcome: str) -> None:
        metrics.record("ingest", record.topic.removeprefix(self._settings.prefix), outcome)

    async def _bury(self, record: Record, error: ContractError) -> asyncio.Future[Any]:
        self._count(record, "dead_letter")
        metrics.dead_letter(error.code)
        letter = intake.dead_letter(
            error, source_of(record), key=record.key, value=record.value, headers=record.headers, at=self._now()
        )
        log.warning(
            "dead_letter",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            code=error.code,
            error=error.message,
        )
        return await self._log.append(outgoing(self._settings, letter))

    def _now(self) -> str:
        return instant_of(self._clock.now_ms())


def _encoded(event: Any) -> bytes:
    value = encode(event)
    if len(value) > EVENT_BYTES_MAX:
        raise ContractError("too_large", f"its event has {len(value)} bytes; at most {EVENT_BYTES_MAX} fit in the log")
    return value
