"""The Python client: post turns, feedback, documents and personas; ask with read-your-writes.

    async with Client("127.0.0.1:9092") as memory:
        turn = await memory.post_turn(user_id="u42", role_id="lin", session_id="s1", speaker="user", text="…")
        reply = await memory.assemble("What did I say?", user_id="u42", role_id="lin", after=[turn])

``SyncClient`` has the same methods without ``await``. A post returns when the broker has acknowledged it; ids that are
not given are made, and a retry with the same id changes nothing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Self, TypeVar

import aiokafka
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.structs import TopicPartition

from connectors.errors import BadRequest, BrokerUnavailable, DeadlineExceeded, MnemologError, TooLarge, error_of
from connectors.kafka import KafkaLog
from connectors.ports import Outgoing, Unavailable, UnknownTopic
from schemas.codec import convert, decode, encode
from schemas.documents import Document
from schemas.envelope import ContractError, cloud_event_headers
from schemas.feedback import Feedback
from schemas.headers import CORRELATION_ID, DEADLINE, REPLY_PARTITION, REPLY_TOPIC, partition_header
from schemas.personas import Persona
from schemas.recalls import Reply, Request
from schemas.responses import Check
from schemas.topics import owner_key, partition_of
from schemas.turns import Turn

TIMEOUT_MS = 10_000
GRACE_MS = 1_000
"""How long the client waits past the deadline for the worker's own word on why there is no answer."""
FETCH_WAIT_MS = 20
"""A reply wakes a waiting fetch on Kafka; the embedded broker polls instead, at this interval."""

T = TypeVar("T")


class Client:
    """Asynchronous client. Use as an async context manager, or ``start`` and ``stop``.

    Parameters
    ----------
    kafka : str
        Bootstrap servers, ``host:port[,host:port]``.
    prefix : str
        Topic prefix of the stack.
    """

    def __init__(self, kafka: str, *, prefix: str = "mnemolog.") -> None:
        self.kafka = kafka
        self.prefix = prefix
        self._log = KafkaLog(kafka)
        self._consumer: Any = None
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._reply_partition = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect; raises ``BrokerUnavailable``."""
        try:
            await self._log.start()
        except Unavailable as error:
            raise BrokerUnavailable(str(error)) from error

    async def stop(self) -> None:
        """Flush and disconnect; requests that still wait fail with ``BrokerUnavailable``."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._consumer is not None:
            await self._consumer.stop()
        await self._log.stop()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BrokerUnavailable("the client was stopped before the reply came"))

    # -- posts --------------------------------------------------------------------------------------------------------

    async def post_turn(
        self,
        *,
        user_id: str,
        role_id: str,
        session_id: str,
        speaker: str,
        text: str,
        turn_id: str | None = None,
        occurred_at: str | dt.datetime | None = None,
        name: str | None = None,
        model: str | None = None,
        recall_id: str | None = None,
        captions: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Post one utterance; returns its turn_id once the broker has it.

        Raises
        ------
        BadRequest, TooLarge
            A field breaks the contract; nothing was sent.
        BrokerUnavailable
            Not acknowledged; post again with the same turn_id.
        """
        turn = self._checked(
            Turn,
            turn_id=turn_id or f"t-{uuid.uuid4()}",
            user_id=user_id,
            role_id=role_id,
            session_id=session_id,
            speaker=speaker,
            text=text,
            occurred_at=_instant(occurred_at),
            name=name,
            model=model,
            recall_id=recall_id,
            captions=list(captions) if captions else None,
            metadata=dict(metadata) if metadata else None,
        )
        await (await self.post(turn))
        return turn.turn_id

    async def post_feedback(
        self,
        *,
        user_id: str,
        role_id: str,
        kind: str,
        target: Mapping[str, str] | None = None,
        value: Any = None,
        text: str | None = None,
        author: str | None = None,
        feedback_id: str | None = None,
        occurred_at: str | dt.datetime | None = None,
    ) -> str:
        """Post a feedback; returns its feedback_id once the broker has it. Errors as ``post_turn``."""
        feedback = self._checked(
            Feedback,
            feedback_id=feedback_id or f"f-{uuid.uuid4()}",
            user_id=user_id,
            role_id=role_id,
            kind=kind,
            target=dict(target) if target else None,
            value=value,
            text=text,
            author=author,
            occurred_at=_instant(occurred_at),
        )
        await (await self.post(feedback))
        return feedback.feedback_id

    async def learn(
        self,
        text: str | None,
        *,
        document_id: str,
        title: str | None = None,
        source: str | None = None,
        role_id: str | None = None,
        published_at: str | dt.datetime | None = None,
        deleted: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Post a document, which replaces the one with its id; ``deleted`` removes it. Errors as ``post_turn``."""
        document = self._checked(
            Document,
            document_id=document_id,
            text=text,
            title=title,
            source=source,
            role_id=role_id,
            published_at=_instant(published_at) if published_at else None,
            deleted=True if deleted else None,
            metadata=dict(metadata) if metadata else None,
        )
        await (await self.post(document))
        return document_id

    async def declare_persona(self, persona: Persona | Mapping[str, Any]) -> str:
        """Post the anchor of a role, which replaces the older one; returns the role_id. Errors as ``post_turn``."""
        raw = {"declared_at": _instant(None), **persona} if isinstance(persona, Mapping) else None
        checked = self._checked(Persona, **raw) if raw is not None else persona
        assert isinstance(checked, Persona)
        await (await self.post(checked))
        return checked.role_id

    async def post(self, message: Turn | Feedback | Document | Persona) -> asyncio.Future[Any]:
        """Hand over a message; the future is done when the broker has it. For many at once, with back-pressure."""
        match message:
            case Turn():
                topic, key, id_ = "turns", owner_key(message.user_id, message.role_id), message.turn_id
            case Feedback():
                topic, key, id_ = "feedback", owner_key(message.user_id, message.role_id), message.feedback_id
            case Document():
                topic, key, id_ = "documents", message.document_id.encode(), message.document_id
            case Persona():
                topic, key, id_ = "personas", message.role_id.encode(), message.role_id
        occurred_at = getattr(message, "occurred_at", None) or _instant(None)
        headers = tuple(cloud_event_headers(message.type, message.version, id_, occurred_at))
        try:
            return await self._log.append(
                Outgoing(topic=self.prefix + topic, value=encode(message), key=key, headers=headers)
            )
        except Unavailable as error:
            raise BrokerUnavailable(str(error)) from error

    # -- questions ----------------------------------------------------------------------------------------------------

    async def recall(self, query: str, *, user_id: str, role_id: str, **options: Any) -> Reply:
        """Evidence for a query. Options as ``ask``."""
        return await self.ask("recall", query, user_id=user_id, role_id=role_id, **options)

    async def assemble(self, query: str, *, user_id: str, role_id: str, **options: Any) -> Reply:
        """Evidence and the messages for a model. Options as ``ask``."""
        return await self.ask("assemble", query, user_id=user_id, role_id=role_id, **options)

    async def read(self, kind: str, *, user_id: str, role_id: str, history: bool = False, **options: Any) -> Reply:
        """``facts``, ``conflicts``, ``summaries``, ``persona`` or ``transcript`` of an owner, now or ``as_of``.

        Parameters
        ----------
        history : bool
            Facts that no longer hold too, each with every change. Other options as ``ask``.
        """
        return await self.ask(kind, None, user_id=user_id, role_id=role_id, history=history, **options)

    async def check(
        self,
        recall_id: str,
        answer: str,
        *,
        user_id: str,
        role_id: str,
        model: str | None = None,
        final: bool = False,
        turn_ids: Sequence[str] | None = None,
        usage: Mapping[str, Any] | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Check:
        """Have a model's whole output graded against the recall that it answers, and recorded.

        Parameters
        ----------
        final : bool
            The user is shown this output; if it passes, the round becomes an atom.
        turn_ids : sequence of str, optional
            The turns of the round, beside which its atom is not shown.
        usage : mapping, optional
            ``latency_ms``, ``tokens_in``, ``tokens_out``, ``attempt``, ``repaired``, ``temperature``.

        Raises
        ------
        MnemologError
            ``BadRequest`` where this owner has no such recall.
        """
        request = self._checked(
            Request,
            request_id=f"q-{uuid.uuid4()}",
            kind="check",
            user_id=user_id,
            role_id=role_id,
            recall_id=recall_id,
            answer=answer,
            model=model,
            final=final or None,
            turn_ids=list(turn_ids) if turn_ids else None,
            usage=dict(usage) if usage else None,
        )
        reply = await self.request(request, timeout_ms=timeout_ms)
        if reply.error is not None:
            raise error_of(reply.error)
        assert reply.check is not None
        return reply.check

    async def ask(
        self,
        kind: str,
        query: str | None,
        *,
        user_id: str,
        role_id: str,
        session_id: str | None = None,
        after: Sequence[str] | None = None,
        as_of: Mapping[str, Any] | None = None,
        now: str | dt.datetime | None = None,
        preset: str | None = None,
        set: Mapping[str, Any] | None = None,
        limits: Mapping[str, int] | None = None,
        explain: bool = False,
        history: bool = False,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Reply:
        """A request and its reply.

        Parameters
        ----------
        after : sequence of str
            Turn ids that must be in memory before the answer: read your own writes.
        timeout_ms : int
            Deadline from now; the worker is told, and drops what nobody waits for.

        Raises
        ------
        MnemologError
            One of the errors of ``connectors.errors``, by the code of the reply.
        """
        request = self._checked(
            Request,
            request_id=f"q-{uuid.uuid4()}",
            kind=kind,
            user_id=user_id,
            role_id=role_id,
            session_id=session_id,
            **({} if query is None else {"query": query}),
            now=_instant(now) if now else None,
            after=list(after) if after else None,
            as_of=dict(as_of) if as_of else None,
            preset=preset,
            set=dict(set) if set else None,
            limits=dict(limits) if limits else None,
            explain=explain or None,
            history=history or None,
        )
        reply = await self.request(request, timeout_ms=timeout_ms)
        if reply.error is not None:
            raise error_of(reply.error)
        return reply

    async def request(self, request: Request, *, timeout_ms: int = TIMEOUT_MS) -> Reply:
        """Send a request as it is; returns the reply, whatever its status."""
        await self._open_replies()
        correlation = uuid.uuid4().bytes
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = future
        deadline = time.time_ns() // 1_000_000 + timeout_ms
        topic = self.prefix + "requests"
        try:
            async with asyncio.timeout((timeout_ms + GRACE_MS) / 1000):
                count = await self._log.partitions(topic)
                sent = await self._log.append(
                    Outgoing(
                        topic=topic,
                        value=encode(request),
                        key=owner_key(request.user_id, request.role_id),
                        partition=partition_of(request.user_id, request.role_id, count),
                        headers=(
                            *cloud_event_headers("request", 1, request.request_id, _instant(None)),
                            (REPLY_TOPIC, (self.prefix + "replies").encode()),
                            (REPLY_PARTITION, partition_header(self._reply_partition)),
                            (CORRELATION_ID, correlation),
                            (DEADLINE, str(deadline).encode()),
                        ),
                    )
                )
                await sent
                return await future
        except TimeoutError as error:
            message = f"no reply to {request.request_id} within {timeout_ms} ms; is the memory role running?"
            raise DeadlineExceeded(message) from error
        except (Unavailable, UnknownTopic, KafkaError) as error:
            raise BrokerUnavailable(str(error)) from error
        finally:
            self._waiting.pop(correlation, None)

    async def _open_replies(self) -> None:
        async with self._opening:
            if self._consumer is not None:
                return
            topic = self.prefix + "replies"
            try:
                count = await self._log.partitions(topic)
            except UnknownTopic as error:
                raise BrokerUnavailable(f"{error}; start a stack with `mnemolog up`, or check the prefix") from error
            self._reply_partition = uuid.uuid4().int % count
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.kafka,
                enable_auto_commit=False,
                auto_offset_reset="latest",
                fetch_max_wait_ms=FETCH_WAIT_MS,
                max_partition_fetch_bytes=16 * 1024 * 1024,
            )
            try:
                await consumer.start()
            except KafkaConnectionError as error:
                raise BrokerUnavailable(f"no Kafka broker answers at {self.kafka}: {error}") from error
            partition = TopicPartition(topic, self._reply_partition)
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
            # seek_to_end is lazy: the position is fixed only when it is asked for, and must be before we send.
            await consumer.position(partition)
            self._consumer = consumer
            self._reader = asyncio.create_task(self._read_replies())

    async def _read_replies(self) -> None:
        async for message in self._consumer:
            correlation = dict(message.headers).get(CORRELATION_ID)
            future = self._waiting.get(correlation or b"")
            if future is None or future.done():
                continue
            try:
                future.set_result(decode("replies", message.value))
            except ContractError as error:
                future.set_exception(MnemologError(f"a reply that breaks the contract: {error.message}"))

    def _checked(self, cls: type[T], **fields: Any) -> T:
        try:
            return convert(fields, cls)
        except ContractError as error:
            raise (TooLarge if error.code == "too_large" else BadRequest)(error.message) from error


class SyncClient:
    """``Client`` for code without an event loop: the same methods, run on a loop in a thread of its own."""

    def __init__(self, kafka: str, *, prefix: str = "mnemolog.") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mnemolog-client", daemon=True)
        self._thread.start()
        self._client: Client = self._run(self._make(kafka, prefix))

    @staticmethod
    async def _make(kafka: str, prefix: str) -> Client:
        client = Client(kafka, prefix=prefix)
        await client.start()
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect and end the thread."""
        if self._loop.is_running():
            self._run(self._client.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in (
            "post_turn",
            "post_feedback",
            "learn",
            "declare_persona",
            "recall",
            "assemble",
            "read",
            "check",
            "ask",
            "request",
        ):
            raise AttributeError(name)
        method = getattr(self._client, name)

        def call(*args: Any, **options: Any) -> Any:
            return self._run(method(*args, **options))

        call.__doc__ = method.__doc__
        call.__name__ = name
        return call

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _instant(value: str | dt.datetime | None) -> str:
    """RFC 3339 text of a time; None: now, in the local zone, since "yesterday" means the speaker's."""
    if isinstance(value, str):
        return value
    moment = value or dt.datetime.now(dt.UTC).astimezone()
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return moment.isoformat(timespec="milliseconds")
