"""Answering one record of ``requests``: headers, forwarding, deadlines, waiting, the reply and its event.

Every request gets exactly one of: a reply, a forward to its owner's partition, a dead letter (its reply topic doesn't
exist), or a count among the expired (nobody waits for it any more). One that is read again (its worker died, or lost
the partition for a moment) is not answered anew: while it is in work the first reading counts, and once its
``RecallAnswered`` is in the journal the reply is computed from that, with the same messages and no second event.

Invariant: no reply leaves before the log has acknowledged the event that records it, so every answer that anybody ever
saw is in the journal, and a second reply equals the first (decision 0011).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import structlog

from connectors import metrics
from connectors.ports import Embedder, Outgoing, Record, Unavailable, UnknownTopic
from connectors.settings import Settings
from schemas.codec import decode, encode, parse
from schemas.envelope import ID_LENGTH_MAX, ContractError, cloud_event_headers, instant_of
from schemas.headers import CORRELATION_ID, FORWARDED, BadHeader, ReplyTo, deadline_ms, forwarded_header, reply_to
from schemas.positions import Position
from schemas.recalls import Failure, RecallAnswered, Reply, Request
from schemas.responses import AtomDistilled, ResponseGraded
from schemas.topics import owner_key, partition_of
from streams.checking import checked
from streams.core import intake, ranking
from streams.core.again import again
from streams.core.answer import (
    Moment,
    Refused,
    answer,
    embedders_at,
    moment_of,
    names_at,
    recall_id_of,
    shortlist,
    with_timings,
)
from streams.core.reranking import Opinion
from streams.core.settings import BadSetting, Catalogue, UnknownPreset
from streams.letters import origin_of, outgoing, source_of
from streams.opinions import opinion
from streams.serving import Memory, PartitionLost, Shard
from streams.waiting import Waiting

log = structlog.get_logger("memory")

EMBED_QUERY_S = 2.0
"""Longest wait for a query's vector; after it words alone decide, and ``explain`` says so."""
MESSAGE_CHARACTERS_MAX = 2_000
"""Of an error's message: it may quote what was sent, which may be megabytes."""
REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Three times the longest query, written in escapes."""
REPLY_BYTES_MAX = 12 * 1024 * 1024
CORRELATION_BYTES_MAX = 1024 * 1024
"""Returned as key and as header: with the largest reply still within 16 MiB."""
EMBED_QUERY_CHARACTERS_MAX = 256
"""Characters of a query that are embedded; words are matched in all of it. 500 Chinese characters took 1.3 s."""


RECORDED_LATELY_MAX = 4_096
"""More than are answered while a record takes to come back through the journal."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """A reply, and the events that record it."""

    reply: Reply
    events: tuple[RecallAnswered | ResponseGraded | AtomDistilled, ...]


class Responder:
    """Answers requests from a ``Memory``, by the presets of a catalogue."""

    def __init__(self, memory: Memory, catalogue: Catalogue | None = None) -> None:
        self._memory = memory
        self._settings = memory.settings
        self._catalogue = catalogue or Catalogue()
        # Settings of a preset without changes: most requests, a sixth of an answer's time if made anew each time.
        self._preset = lru_cache(maxsize=64)(self._catalogue.resolve)
        self._in_work = 0
        self._open: dict[object, int] = {}
        """Record times of the requests that were begun and are not finished."""
        self._waiting = Waiting(memory)
        self._serving: dict[tuple[int, Position], asyncio.Future[bool]] = {}
        """By partition and by where they were posted, whether they came to their end."""
        self._recorded_lately: OrderedDict[str, int] = OrderedDict()
        """Offsets of the events of recalls: acknowledged, and perhaps not folded yet."""

    @property
    def open(self) -> int:
        """Requests that were begun and are not finished."""
        return len(self._open)

    @property
    def oldest_s(self) -> float:
        """Age in seconds of the oldest open request; 0: there is none."""
        return max(0.0, (self._now_ms() - min(self._open.values())) / 1000) if self._open else 0.0

    async def serve(self, record: Record) -> None:
        """Handle a request to its end; returns when what follows from it is acknowledged by the log.

        Raises
        ------
        Unavailable
            The log can't be written: the request stays uncommitted.
        PartitionLost
            Another worker holds the partition: it stays uncommitted too, and is answered there.
        """
        # With the partition: a request may come back to this worker while it is still being forwarded.
        place = record.partition, origin_of(record)
        while (first := self._serving.get(place)) is not None:
            if await asyncio.shield(first):
                return
        ended = self._serving[place] = asyncio.get_running_loop().create_future()
        token = object()
        self._open[token] = record.timestamp
        came_to_end = False
        try:
            await self._serve_once(record)
            came_to_end = True
        finally:
            del self._open[token], self._serving[place]
            ended.set_result(came_to_end)

    async def _serve_once(self, record: Record) -> None:
        try:
            await self._serve(record)
        except (Unavailable, UnknownTopic, PartitionLost):
            raise
        except Exception as error:
            # A fault of ours that this one request brings out must not stop the answers to all others.
            log.exception("request_broke", partition=record.partition, offset=record.offset)
            failure = Failure(code="internal", message=f"a fault of mnemolog: {error!r}; it is in the log of memory")
            await self._fail(record, _reply_to_or_none(record, self._settings), _request_id(record), failure)

    async def _serve(self, record: Record) -> None:
        begun = time.perf_counter()
        to: ReplyTo | None = None
        try:
            to = reply_to(record.headers, self._settings.topic("replies"))
            deadline = deadline_ms(record.headers)
        except BadHeader as error:
            failure = Failure(code="bad_request", message=error.message)
            await self._fail(record, to or error.reply_to, _request_id(record), failure)
            return
        # Without a header nobody said when it is too late, and the record's timestamp is the sender's clock.
        if deadline is None:
            deadline = self._now_ms() + self._settings.request_deadline_ms_default
        if deadline < self._now_ms():
            metrics.request("expired")
            log.info(
                "request_expired", partition=record.partition, offset=record.offset, late_ms=self._now_ms() - deadline
            )
            return
        try:
            await self._known(to)
            _check_size(record, to)
            request: Request = decode("requests", record.value)
        except UnknownTopic as error:
            await self._bury(record, ContractError("bad_header", f"reply topic: {error}"))
            return
        except BadHeader as error:
            await self._bury(record, error)
            return
        except ContractError as error:
            code = "too_large" if error.code == "too_large" else "bad_request"
            await self._fail(record, to, _request_id(record), Failure(code=code, message=error.message))  # type: ignore[arg-type]
            return
        if await self._forwarded(record, request):
            return
        if self._in_work >= self._settings.request_tasks_max:
            failure = Failure(code="overloaded", message=f"{self._in_work} requests in work; try again in a second")
            await self._fail(record, to, request.request_id, failure)
            return
        self._in_work += 1
        try:
            answered = await self._answer(record, request, deadline, begun)
            encoded = _encoded(answered.reply)
            await self._waiting.held(record.partition, deadline)
        except Refused as refused:
            await self._fail(record, to, request.request_id, refused.failure)
            return
        finally:
            self._in_work -= 1
        await self._send(record, to, answered, encoded)

    # -- before the answer --------------------------------------------------------------------------------------------

    async def _known(self, to: ReplyTo) -> None:
        count = await self._memory.log.partitions(to.topic)
        if to.partition is not None and not 0 <= to.partition < count:
            raise UnknownTopic(f"{to.topic!r} has {count} partitions, no {to.partition}")

    async def _forwarded(self, record: Record, request: Request) -> bool:
        topic = self._settings.topic("requests")
        home = partition_of(request.user_id, request.role_id, await self._memory.log.partitions(topic))
        if home == record.partition:
            return False
        metrics.request("forwarded")
        origin = origin_of(record)
        place = forwarded_header(origin.partition, origin.offset, origin.timestamp or 0)
        headers = (*(item for item in record.headers if item[0] != FORWARDED), (FORWARDED, place))
        await self._append(
            Outgoing(
                topic=topic,
                value=record.value or b"",
                key=owner_key(request.user_id, request.role_id),
                partition=home,
                headers=headers,
            )
        )
        return True

    async def _answer(self, record: Record, request: Request, deadline: int, begun: float) -> _Answered:
        try:
            if request.set:
                settings = self._catalogue.resolve(request.preset, request.set)
            else:
                settings = self._preset(request.preset)
        except UnknownPreset as error:
            raise Refused(Failure(code="unknown_preset", message=str(error))) from error
        except BadSetting as error:
            raise Refused(Failure(code="bad_request", message=str(error))) from error
        shard, not_embedded = await self._waiting.recallable(record.partition, request, deadline)
        if request.kind == "check":
            return await self._checked(request, shard, deadline)
        source, recorded = origin_of(record), await self._recorded(record, request, shard, deadline)
        if recorded is not None:
            if recorded.request == request:
                return self._again(recorded, shard)
            source = source_of(record)  # its header names another request's place: it is answered under its own
        # The moment is fixed before the query is embedded, since the embedded text depends on names known by then.
        moment = moment_of(shard.state, self._memory.library, request, record.timestamp)
        waited = time.perf_counter()
        in_use = embedders_at(shard.state, self._memory.library, request, moment)
        embedder = self._memory.embedder_of(in_use)
        config = self._memory.config | ({"embedder": embedder.name} if embedder is not None else {})
        names = names_at(shard.state, request, moment)
        vector = await self._query_vector(request, settings, names, deadline, embedder)
        embedded = time.perf_counter()
        rerank = await self._opinion(shard, request, settings, vector, moment, deadline, config["embedder"])
        reranked = time.perf_counter()
        laps: dict[str, float] = {}
        answered = answer(
            shard.state,
            self._memory.library,
            request,
            source,
            settings,
            vector,
            moment=moment,
            config=config,
            recorded_at=instant_of(self._now_ms()),
            rerank=rerank,
            lap=lambda stage: laps.__setitem__(stage, time.perf_counter()),
        )
        searched, ended = laps["search"], laps.get("prompt", laps["search"])
        timings = {
            "wait": _ms(begun, waited),
            "embed": _ms(waited, embedded),
            **({"rerank": _ms(embedded, reranked)} if rerank is not None else {}),
            "search": _ms(reranked, searched),
            "prompt": _ms(searched, ended),
            "total": _ms(begun, time.perf_counter()),
        }
        answered = with_timings(answered, timings, not_embedded)
        return _Answered(answered.reply, (answered.event,))

    async def _recorded(self, record: Record, request: Request, shard: Shard, deadline: int) -> RecallAnswered | None:
        """The record of the answer that was given at a request's place; None: there is none.

        It is there where its worker died, or lost the partition, between the answer and the commit.
        """
        key, recall_id = (request.user_id, request.role_id), recall_id_of(origin_of(record))
        await self._waiting.folded(shard, deadline, journal=self._recorded_lately.get(recall_id, -1))
        event = await self._memory.recalls.find(shard.state, key, recall_id)
        if event is None:
            return None
        # The worker of then may have been further in the library than this one is.
        await self._waiting.folded(shard, deadline, library=event.watermark.library.get("0", -1))
        return event

    def _again(self, event: RecallAnswered, shard: Shard) -> _Answered:
        """The answer of a record, with its messages; nothing new is recorded."""
        log.info("request_answered_again", request_id=event.request.request_id, recall_id=event.recall_id)
        reply = again(shard.state, self._memory.library, event).reply
        return _Answered(replace(reply, timings_ms=event.timings_ms), ())

    async def _checked(self, request: Request, shard: Shard, deadline: int) -> _Answered:
        """Grade a model's output against the recall that it answers."""
        begun = time.perf_counter()
        # The recall's event was acknowledged before its reply left, but it may not have come back yet.
        await self._waiting.folded(shard, deadline, journal=self._recorded_lately.get(request.recall_id or "", -1))
        now = instant_of(self._now_ms())
        recall, grade = await checked(
            self._memory.recalls,
            shard.state,
            self._memory.library,
            request,
            recorded_at=now,
            judge=self._memory.judge,
            left_s=self._left_s(deadline),
        )
        reply = Reply(
            request_id=request.request_id,
            status="ok",
            recall_id=recall.event.recall_id,
            watermark=recall.reply.watermark,
            preset=recall.reply.preset,
            round=recall.reply.round,
            anchor=recall.reply.anchor,
            check=grade.check,
            timings_ms={"total": _ms(begun, time.perf_counter())},
        )
        return _Answered(reply, (grade.event,) if grade.atom is None else (grade.event, grade.atom))

    async def _opinion(
        self, shard: Shard, request: Request, settings: Any, vector: Any, moment: Moment, deadline: int, embedder: str
    ) -> Opinion | None:
        """What the reranker says, if there is one and its opinion counts."""
        if not settings.rerank.weight or self._memory.reranker is None:
            return None
        return await opinion(
            self._memory.reranker,
            request.query,
            shortlist(shard.state, self._memory.library, request, settings, vector, moment, embedder),
            timeout_s=min(self._settings.rerank_timeout_ms / 1000, max(0.0, self._left_s(deadline))),
            request_id=request.request_id,
        )

    async def _query_vector(
        self, request: Request, settings: Any, names: tuple[str, ...], deadline: int, embedder: Embedder | None
    ) -> Any:
        # A query is a question: one that is a document would keep the embedder from the questions of all others.
        query = request.query[:EMBED_QUERY_CHARACTERS_MAX]
        text = ranking.query_passage(query, names, settings, user=request.user_id, assistant=request.role_id)
        if not text.strip() or embedder is None:
            return None
        try:
            begun = time.perf_counter()
            async with asyncio.timeout(min(EMBED_QUERY_S, max(0.05, self._left_s(deadline)))):
                vector = (await embedder.embed([text], "query"))[0]
            metrics.embedded("query", 1, time.perf_counter() - begun)
            return vector
        except (Unavailable, TimeoutError, ValueError) as error:  # ValueError: refused for good, words must do
            log.warning("query_not_embedded", request_id=request.request_id, error=repr(error))
            return None

    # -- after the answer ---------------------------------------------------------------------------------------------

    async def _send(self, record: Record, to: ReplyTo, answered: _Answered, encoded: bytes) -> None:
        if not self._memory.lease():
            # Suspended past the session: another worker holds the partition and will answer from a newer state.
            raise Unavailable("this worker was suspended for longer than its group session")
        appended = [await self._memory.append_journal(record.partition, event) for event in answered.events]
        for event, written in zip(answered.events, await asyncio.gather(*appended), strict=True):
            if isinstance(event, RecallAnswered):
                self._recorded_lately[event.recall_id] = _offset_of(written)
        while len(self._recorded_lately) > RECORDED_LATELY_MAX:
            self._recorded_lately.popitem(last=False)
        await self._reply(record, to, answered.reply, encoded)
        metrics.request("ok", answered.reply.timings_ms)

    async def _fail(self, record: Record, to: ReplyTo | None, request_id: str | None, failure: Failure) -> None:
        metrics.request(failure.code)
        log.info("request_failed", request_id=request_id, code=failure.code, error=failure.message)
        if to is None:
            await self._bury(record, ContractError("bad_header", failure.message))
            return
        failure = replace(failure, message=failure.message[:MESSAGE_CHARACTERS_MAX])
        reply = Reply(request_id=request_id, status="error", error=failure)
        try:
            await self._known(to)
        except UnknownTopic as error:
            await self._bury(record, ContractError("bad_header", f"{failure.message}; reply topic: {error}"))
            return
        await self._reply(record, to, reply)

    async def _reply(self, record: Record, to: ReplyTo, reply: Reply, encoded: bytes | None = None) -> None:
        reply_id = reply.recall_id or intake.position_id("reply", source_of(record))
        headers = cloud_event_headers("reply", 1, reply_id, instant_of(self._now_ms()))
        if to.correlation_id is not None:
            headers.append((CORRELATION_ID, to.correlation_id))
        await self._append(
            Outgoing(
                topic=to.topic,
                value=encoded or encode(reply),
                key=to.correlation_id,
                partition=to.partition,
                headers=tuple(headers),
            )
        )

    async def _bury(self, record: Record, error: ContractError) -> None:
        metrics.dead_letter(error.code)
        letter = intake.dead_letter(
            error,
            source_of(record),
            key=record.key,
            value=record.value,
            headers=record.headers,
            at=instant_of(self._now_ms()),
        )
        await self._append(outgoing(self._settings, letter))

    async def _append(self, outgoing: Outgoing) -> None:
        await (await self._memory.log.append(outgoing))

    def _now_ms(self) -> int:
        return self._memory.clock.now_ms()

    def _left_s(self, deadline: int) -> float:
        return (deadline - self._now_ms()) / 1000


def _reply_to_or_none(record: Record, settings: Settings) -> ReplyTo | None:
    try:
        return reply_to(record.headers, settings.topic("replies"))
    except BadHeader as error:
        return error.reply_to


def _request_id(record: Record) -> str | None:
    try:
        request_id = parse(record.value).get("request_id")
    except ContractError:
        return None
    return request_id if isinstance(request_id, str) and len(request_id) <= ID_LENGTH_MAX else None


def _check_size(record: Record, to: ReplyTo) -> None:
    """Refuse what could not be forwarded, answered or recorded; ``BadHeader`` where it couldn't even be told."""
    correlation = len(to.correlation_id or b"")
    if correlation > CORRELATION_BYTES_MAX:
        raise BadHeader(f"{CORRELATION_ID} has {correlation} bytes; expected up to {CORRELATION_BYTES_MAX}", None)
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    size = len(record.value or b"") + len(record.key or b"") + headers
    if size > REQUEST_BYTES_MAX:
        raise ContractError("too_large", f"the request has {size} bytes; expected up to {REQUEST_BYTES_MAX}")


def _encoded(reply: Reply) -> bytes:
    encoded = encode(reply)
    if len(encoded) > REPLY_BYTES_MAX:
        message = (
            f"the answer has {len(encoded)} bytes, at most {REPLY_BYTES_MAX} can be sent; ask for less in `limits`"
        )
        raise Refused(Failure(code="too_large", message=message))
    return encoded


def _offset_of(written: Any) -> int:
    """aiokafka's future holds more than the offset."""
    return written if isinstance(written, int) else int(written.offset)


def _ms(begun: float, ended: float) -> float:
    return round((ended - begun) * 1000, 3)
