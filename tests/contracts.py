"""One abstract suite a port. Every implementation inherits it: the in-process ones in tests/connectors, the real ones
in tests/integration.

A subclass overrides the fixture ``subject`` (async where it must be) and is named ``Test…``. Names of topics, texts
and rows are made unique per test, so that a suite may run against a server that other tests use.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from connectors.ports import (
    ChatModel,
    Completion,
    Embedder,
    Log,
    ModelRefused,
    NoSuchObject,
    Objects,
    Outgoing,
    Record,
    Reranker,
    Unavailable,
    UnknownTopic,
    Warehouse,
)
from schemas.recalls import Message
from schemas.topics import murmur2
from streams.core import text
from streams.core.bm25 import Parameters
from streams.core.engines import Words, WordsEngine

WAIT_S = 30.0
"""Longest wait for a real server; in-process ones answer at once."""


@dataclass(slots=True)
class LogSubject:
    """A log under test, and how to read back what it holds."""

    log: Log
    topic: str
    """A topic with ``partitions`` partitions (3 or more are best)."""
    partitions: int
    read: Callable[[str, int], Awaitable[Sequence[Record]]]
    """(topic, partition) to all of its records."""


class LogContract:
    """``ports.Log``."""

    @pytest.fixture
    def subject(self) -> LogSubject:
        raise NotImplementedError

    async def _append(self, subject: LogSubject, value: bytes, **given: Any) -> Any:
        return await (await subject.log.append(Outgoing(topic=subject.topic, value=value, **given)))

    async def _values(self, subject: LogSubject, marker: bytes) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for partition in range(subject.partitions):
            for record in await subject.read(subject.topic, partition):
                if record.value is not None and record.value.startswith(marker):
                    found.setdefault(partition, []).append(record.value)
        return found

    async def test_record_is_there_once_its_future_is_done(self, subject: LogSubject) -> None:
        marker = _marker()
        await asyncio.wait_for(self._append(subject, marker, partition=1 % subject.partitions), WAIT_S)
        assert await self._values(subject, marker) == {1 % subject.partitions: [marker]}

    async def test_order_within_a_partition_is_the_order_of_calls(self, subject: LogSubject) -> None:
        marker = _marker()
        wanted = [marker + str(number).encode() for number in range(50)]
        futures = [await subject.log.append(Outgoing(topic=subject.topic, value=v, partition=0)) for v in wanted]
        await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
        assert (await self._values(subject, marker))[0] == wanted

    async def test_offsets_rise_and_records_keep_key_headers_and_bytes(self, subject: LogSubject) -> None:
        marker = _marker()
        headers = (("a", b"\x00\xff"), ("empty", b""), ("a", b"second"))
        for number in range(3):
            value = marker + bytes([number, 0, 255])
            await asyncio.wait_for(self._append(subject, value, key=b"k\x00", partition=0, headers=headers), WAIT_S)
        records = [r for r in await subject.read(subject.topic, 0) if (r.value or b"").startswith(marker)]
        assert [record.value for record in records] == [marker + bytes([n, 0, 255]) for n in range(3)]
        assert all(record.key == b"k\x00" and record.headers == headers for record in records)
        assert all(record.topic == subject.topic and record.partition == 0 for record in records)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        times = [record.timestamp for record in records]
        assert times == sorted(times)
        assert times[0] > 0

    async def test_key_decides_the_partition_as_java_does(self, subject: LogSubject) -> None:
        marker = _marker()
        keys = [f"u{number}/林".encode() for number in range(12)]
        for key in keys:
            await asyncio.wait_for(self._append(subject, marker + key, key=key), WAIT_S)
        expected: dict[int, list[bytes]] = {}
        for key in keys:
            place = (murmur2(key) & 0x7FFFFFFF) % subject.partitions
            expected.setdefault(place, []).append(marker + key)
        assert await self._values(subject, marker) == expected

    async def test_named_partition_wins_over_the_key(self, subject: LogSubject) -> None:
        marker = _marker()
        for partition in range(subject.partitions):
            value = marker + str(partition).encode()
            await asyncio.wait_for(self._append(subject, value, key=b"same", partition=partition), WAIT_S)
        assert await self._values(subject, marker) == {
            partition: [marker + str(partition).encode()] for partition in range(subject.partitions)
        }

    async def test_partition_counts_are_known_and_unknown_topics_are_told(self, subject: LogSubject) -> None:
        assert await subject.log.partitions(subject.topic) == subject.partitions
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            await subject.log.partitions("no-such-topic-" + uuid.uuid4().hex)


class EmbedderContract:
    """``ports.Embedder``."""

    @pytest.fixture
    def subject(self) -> Embedder:
        raise NotImplementedError

    @pytest.fixture
    def unavailable(self) -> Embedder | None:
        """The same kind of embedder while its server is away; None where that can't be made."""
        return None

    async def test_vectors_are_int8_rows_of_one_dimension(self, subject: Embedder) -> None:
        rows = await subject.embed(["昨天吃了馄饨", "I live in Paris", "👍"], "passage")
        assert rows.dtype == np.int8
        assert rows.shape == (3, subject.dimension)
        assert int(rows.min()) >= -127

    async def test_no_texts_give_no_rows(self, subject: Embedder) -> None:
        rows = await subject.embed([], "query")
        assert rows.shape == (0, subject.dimension)
        assert rows.dtype == np.int8

    async def test_same_text_gives_the_same_vector(self, subject: Embedder) -> None:
        first = await subject.embed(["我住在上海", "my cat is called Mi"], "passage")
        again = await subject.embed(["我住在上海", "my cat is called Mi"], "passage")
        assert np.array_equal(first, again)

    async def test_related_texts_are_nearer_than_unrelated_ones(self, subject: Embedder) -> None:
        query = (await subject.embed(["what is my cat called"], "query"))[0].astype(np.int64)
        rows = (await subject.embed(["my cat is called Mi", "the tram was late again"], "passage")).astype(np.int64)
        near, far = (float(row @ query) / float(np.linalg.norm(row) * np.linalg.norm(query)) for row in rows)
        assert near > far

    async def test_name_is_known_after_the_first_vectors(self, subject: Embedder) -> None:
        await subject.embed(["x"], "passage")
        name = subject.name
        await subject.embed(["y"], "query")
        assert name
        assert subject.name == name

    async def test_absence_is_told_as_transient(self, unavailable: Embedder | None) -> None:
        if unavailable is None:
            pytest.skip("this embedder can't be taken away")
        with pytest.raises(Unavailable):
            await unavailable.embed(["x"], "query")


def chat_answer(latest: str) -> str:
    """What every model under the contract answers to a latest message: what stands after ``echo `` in it."""
    return latest.partition("echo ")[2]


@dataclass(slots=True)
class ChatSubject:
    """A chat model under test that answers as ``chat_answer`` says, and the same kind in worse states."""

    model: ChatModel
    away: ChatModel
    """Its endpoint can't be reached."""
    refusing: ChatModel
    """Its endpoint refuses every request."""


class ChatModelContract:
    """``ports.ChatModel``."""

    @pytest.fixture
    def subject(self) -> ChatSubject:
        raise NotImplementedError

    @staticmethod
    def said(text: str) -> list[Message]:
        """Messages that end with a text."""
        return [Message(role="system", content="You are Lin."), Message(role="user", content=text)]

    async def _complete(self, model: ChatModel, text: str, **given: Any) -> Completion:
        return await model.complete(self.said(text), temperature=0.3, max_tokens=64, **given)

    async def test_answer_is_whole_and_measured(self, subject: ChatSubject) -> None:
        text = '昨天吃了馄饨 👨‍👩‍👧 \u2028 and "tea" <b>\\</b>\nsecond line'
        done = await self._complete(subject.model, "echo " + text)
        assert done.text == text
        assert done.tokens_in > 0
        assert done.tokens_out > 0
        assert done.latency_ms >= 0
        assert done.model
        assert done.finish_reason == "stop"

    async def test_stream_gives_the_answer_in_pieces(self, subject: ChatSubject) -> None:
        text = "one two 三四五 👨‍👩‍👧 \u2028 and\nso on"
        stream = subject.model.stream(self.said("echo " + text), temperature=0.3, max_tokens=64)
        pieces = [piece async for piece in stream]
        assert "".join(pieces) == text
        assert len(pieces) > 1
        assert all(pieces)

    async def test_structured_answer_is_asked_for_by_its_schema(self, subject: ChatSubject) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        done = await self._complete(subject.model, 'echo {"a": 1}', response_schema=schema)
        assert done.text == '{"a": 1}'

    async def test_silence_is_an_empty_answer(self, subject: ChatSubject) -> None:
        assert (await self._complete(subject.model, "nothing")).text == ""
        stream = subject.model.stream(self.said("nothing"), temperature=0.3, max_tokens=64)
        assert [piece async for piece in stream] == []

    async def test_answers_in_flight_do_not_mix(self, subject: ChatSubject) -> None:
        answers = await asyncio.gather(*(self._complete(subject.model, f"echo {number}") for number in range(12)))
        assert [answer.text for answer in answers] == [str(number) for number in range(12)]

    async def test_stream_may_be_left_in_the_middle(self, subject: ChatSubject) -> None:
        for _ in range(8):  # More often than there are slots.
            stream = subject.model.stream(self.said("echo a b c d e f"), temperature=0.3, max_tokens=64)
            async with aclosing(stream) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    assert piece
                    break
        assert (await asyncio.wait_for(self._complete(subject.model, "echo x"), WAIT_S)).text == "x"

    async def test_absence_is_told_as_transient(self, subject: ChatSubject) -> None:
        with pytest.raises(Unavailable):
            await self._complete(subject.away, "echo x", timeout_s=0.3)
        with pytest.raises(Unavailable):
            async for _ in subject.away.stream(self.said("echo x"), temperature=0.3, max_tokens=64, timeout_s=0.3):
                pass

    async def test_refusal_is_told_as_terminal(self, subject: ChatSubject) -> None:
        with pytest.raises(ModelRefused):
            await self._complete(subject.refusing, "echo x")
        with pytest.raises(ModelRefused):
            async for _ in subject.refusing.stream(self.said("echo x"), temperature=0.3, max_tokens=64):
                pass


class RerankerContract:
    """``ports.Reranker``."""

    @pytest.fixture
    def subject(self) -> Reranker:
        raise NotImplementedError

    @pytest.fixture
    def unavailable(self) -> Reranker | None:
        """The same kind of reranker while its server is away; None where that can't be made."""
        return None

    async def test_each_document_gets_a_finite_score_in_their_order(self, subject: Reranker) -> None:
        documents = ["the tram was late again", "my cat is called Mi", "昨天吃了馄饨", ""]
        scores = await subject.rerank("what is my cat called", documents)
        assert len(scores) == len(documents)
        assert np.isfinite(scores).all()
        assert max(range(4), key=scores.__getitem__) == 1

    async def test_order_of_documents_is_of_no_account(self, subject: Reranker) -> None:
        documents = ["my cat is called Mi", "the tram was late again", "昨天吃了馄饨"]
        scores = await subject.rerank("我昨天吃了什么", documents)
        assert scores[2] == max(scores)
        again = await subject.rerank("我昨天吃了什么", documents[::-1])
        assert again == pytest.approx(scores[::-1])

    async def test_no_documents_give_no_scores(self, subject: Reranker) -> None:
        assert await subject.rerank("x", []) == []

    async def test_absence_is_told_as_transient(self, unavailable: Reranker | None) -> None:
        if unavailable is None:
            pytest.skip("this reranker can't be taken away")
        with pytest.raises(Unavailable):
            await unavailable.rerank("x", ["y"])


class WordsEngineContract:
    """``engines.WordsEngine``, of any exactness."""

    @pytest.fixture
    def subject(self) -> WordsEngine:
        raise NotImplementedError

    @staticmethod
    def scores(
        subject: WordsEngine, query: str, *scopes: tuple[Words, Sequence[bool]], count: int = 10
    ) -> list[list[float]]:
        """Scores of a question, cut into terms as requests are."""
        masks = [(words, np.array(mask, dtype=bool)) for words, mask in scopes]
        found = subject.scores(text.query_tokens(query), masks, Parameters(), count)
        assert [len(row) for row in found] == [len(mask) for _, mask in masks]
        return [row.tolist() for row in found]

    @staticmethod
    def segment(subject: WordsEngine, *texts: str) -> Words:
        """A segment with some texts."""
        words = subject.segment()
        for number, said in enumerate(texts):
            assert words.add(text.tokens(said)) == number
        assert len(words) == len(texts)
        return words

    def test_entries_that_hold_the_terms_score_and_no_others(self, subject: WordsEngine) -> None:
        words = self.segment(subject, "the red tea", "the tram was late", "red wine and red tea", "")
        ((tea, tram, wine, nothing),) = self.scores(subject, "red tea", (words, [True] * 4))
        assert min(tea, wine) > 0
        assert tram == nothing == 0

    def test_chinese_and_english_and_rare_characters_are_matched_alike(self, subject: WordsEngine) -> None:
        words = self.segment(subject, "昨天吃了馄饨", "I live in Paris", "𠮷野家的牛肉饭", "餛飩麵不錯")
        for query, wanted in (("馄饨", {0, 3}), ("paris", {1}), ("𠮷野家", {2}), ("👍", set())):
            (row,) = self.scores(subject, query, (words, [True] * 4))
            assert {entry for entry, score in enumerate(row) if score > 0} == wanted

    def test_rare_terms_weigh_more_and_a_repeated_one_more_than_a_single(self, subject: WordsEngine) -> None:
        words = self.segment(subject, *["common word"] * 8, "common", "rare")
        (row,) = self.scores(subject, "common rare", (words, [True] * 10))
        assert row[9] > row[8]
        (twice,) = self.scores(subject, "common common rare", (words, [True] * 10))
        assert twice[8] == pytest.approx(2 * row[8], rel=1e-2)
        assert twice[9] == pytest.approx(row[9], rel=1e-2)

    def test_invisible_entries_score_nothing_and_push_no_visible_one_out(self, subject: WordsEngine) -> None:
        words = self.segment(subject, *["tea"] * 50, "a long story in which tea is named once", "tram")
        mask = [False] * 50 + [True, True]
        ((*hidden, story, tram),) = self.scores(subject, "tea", (words, mask), count=1)
        assert set(hidden) == {0}
        assert story > 0
        assert tram == 0

    def test_entries_beyond_the_mask_are_not_seen(self, subject: WordsEngine) -> None:
        words = self.segment(subject, "tea", "tea", "tea")
        ((only,),) = self.scores(subject, "tea", (words, [True]))
        assert only > 0

    def test_what_is_added_after_a_search_is_found_by_the_next(self, subject: WordsEngine) -> None:
        words = self.segment(subject, "tea")
        self.scores(subject, "tea", (words, [True]))
        words.add(text.tokens("wine"))
        words.add(text.tokens("tea with milk"))
        ((first, wine, last),) = self.scores(subject, "tea", (words, [True] * 3))
        assert min(first, last) > 0
        assert wine == 0

    def test_a_segment_that_is_not_given_is_not_reached(self, subject: WordsEngine) -> None:
        shared, own, others = (self.segment(subject, said) for said in ("tea", "wine", "tea and wine"))
        assert len(others) == 1
        (tea, wine) = self.scores(subject, "tea", (shared, [True]), (own, [True]))
        assert tea[0] > 0
        assert wine == [0]

    def test_a_term_weighs_the_same_in_a_small_segment_as_in_a_large_one(self, subject: WordsEngine) -> None:
        large = self.segment(subject, *(f"number {number} filler" for number in range(200)), "tea filler filler")
        small = self.segment(subject, "tea filler filler", "number 7 filler")
        rows = self.scores(subject, "tea", (large, [True] * 201), (small, [True] * 2), count=500)
        assert rows[1][0] == pytest.approx(rows[0][200], rel=0.05)

    @pytest.mark.parametrize("query", ["", "the", "unheard-of", "word " * 20_000, "馄饨" * 2_000])
    def test_odd_queries_are_answered(self, subject: WordsEngine, query: str) -> None:
        words = self.segment(subject, "some word or other")
        for scope in ((words, [True]), (words, [False]), (words, []), (subject.segment(), [])):
            assert all(score >= 0 for score in self.scores(subject, query, scope)[0])


class ObjectsContract:
    """``ports.Objects``."""

    @pytest.fixture
    def subject(self) -> Objects:
        raise NotImplementedError

    @pytest.fixture
    def unavailable(self) -> Objects | None:
        """The same kind of store while it is away or full; None where that can't be made."""
        return None

    async def test_an_object_comes_back_whole_and_in_parts(self, subject: Objects) -> None:
        path = f"{_marker().decode()}/a b/林.zst"
        data = bytes(range(256)) * 10
        assert await subject.put_new(path, data)
        assert await subject.get(path) == data
        assert await subject.get_range(path, 0, 3) == data[:3]
        assert await subject.get_range(path, 250, 20) == data[250:270]
        assert await subject.get_range(path, len(data) - 4, 100) == data[-4:]

    async def test_a_taken_path_is_never_written_again(self, subject: Objects) -> None:
        path = f"{_marker().decode()}/taken"
        assert await subject.put_new(path, b"first")
        assert not await subject.put_new(path, b"second")
        assert await subject.get(path) == b"first"

    async def test_of_two_writers_at_once_one_wins(self, subject: Objects) -> None:
        path = f"{_marker().decode()}/contested"
        values = [bytes([number]) * 1000 for number in range(8)]
        won = await asyncio.gather(*(subject.put_new(path, value) for value in values))
        assert sum(won) == 1
        assert await subject.get(path) == values[won.index(True)]

    async def test_a_listing_has_what_is_in_a_folder_in_order_and_nothing_else(self, subject: Objects) -> None:
        folder = _marker().decode()
        assert list(await subject.list(f"{folder}/x")) == []
        for name in ("x/2", "x/1", "x/sub/3", "xy/4", "y"):
            await subject.put_new(f"{folder}/{name}", name.encode())
        found = await subject.list(f"{folder}/x")
        assert [(item.path, item.size) for item in found] == [
            (f"{folder}/x/1", 3),
            (f"{folder}/x/2", 3),
            (f"{folder}/x/sub/3", 7),
        ]

    async def test_what_is_deleted_is_gone_and_deleting_it_again_is_no_error(self, subject: Objects) -> None:
        folder = _marker().decode()
        await subject.put_new(f"{folder}/a", b"1")
        await subject.put_new(f"{folder}/b", b"2")
        await subject.delete([f"{folder}/a", f"{folder}/never"])
        await subject.delete([f"{folder}/a"])
        assert [item.path for item in await subject.list(folder)] == [f"{folder}/b"]
        with pytest.raises(NoSuchObject, match="a"):
            await subject.get(f"{folder}/a")
        with pytest.raises(NoSuchObject):
            await subject.get_range(f"{folder}/a", 0, 1)
        assert await subject.put_new(f"{folder}/a", b"anew")

    async def test_an_empty_object_is_an_object(self, subject: Objects) -> None:
        path = f"{_marker().decode()}/empty"
        assert await subject.put_new(path, b"")
        assert await subject.get(path) == b""

    async def test_absence_of_the_store_is_told_as_transient(self, unavailable: Objects | None) -> None:
        if unavailable is None:
            pytest.skip("this store can't be taken away")
        with pytest.raises(Unavailable):
            await unavailable.put_new("a/b", b"x")


@dataclass(slots=True)
class WarehouseSubject:
    """A warehouse under test with the project's tables, and how a reader sees them."""

    warehouse: Warehouse
    rows: Callable[[str, str], Awaitable[list[dict[str, Any]]]]
    """(rows table, user_id) to the rows of that user that its view shows: name of the ``…_rows`` table."""


class WarehouseContract:
    """``ports.Warehouse``."""

    @pytest.fixture
    def subject(self) -> WarehouseSubject:
        raise NotImplementedError

    @staticmethod
    def turn_row(user_id: str, turn_id: str, offset: int, text: str = "你好") -> dict[str, Any]:
        """A row of ``turns_rows``."""
        moment = dt.datetime(2026, 5, 20, 11, 3, 11, 250_000, tzinfo=dt.UTC)
        return {
            "user_id": user_id, "role_id": "lin", "turn_id": turn_id, "session_id": "s", "speaker": "user",
            "text": text, "occurred_at": moment, "recorded_at": moment, "name": None, "model": None,
            "recall_id": None, "captions": ["a bowl"], "metadata": "", "event_id": f"e-{offset}",
            "kafka_topic": "mnemolog.journal", "kafka_partition": 0, "kafka_offset": offset,
        }  # fmt: skip

    async def _insert(self, subject: WarehouseSubject, rows: list[dict[str, Any]]) -> None:
        await subject.warehouse.insert("turns_rows", tuple(rows[0]), [tuple(row.values()) for row in rows])

    async def test_rows_come_back_as_they_went_in(self, subject: WarehouseSubject) -> None:
        user = _marker().decode()
        row = self.turn_row(user, "t1", 7, "he said 'x'\n\\ 👍 昨天")
        await self._insert(subject, [row])
        found = await subject.rows("turns_rows", user)
        assert [{name: item[name] for name in row} for item in found] == [row]

    async def test_repeats_fold_into_the_first(self, subject: WarehouseSubject) -> None:
        user = _marker().decode()
        await self._insert(subject, [self.turn_row(user, "t1", 9, "later"), self.turn_row(user, "t2", 10)])
        await self._insert(subject, [self.turn_row(user, "t1", 5, "first")])
        await self._insert(subject, [self.turn_row(user, "t1", 5, "first"), self.turn_row(user, "t1", 12, "latest")])
        found = await subject.rows("turns_rows", user)
        assert sorted((row["turn_id"], row["text"], row["kafka_offset"]) for row in found) == [
            ("t1", "first", 5),
            ("t2", "你好", 10),
        ]

    async def test_no_rows_are_no_error(self, subject: WarehouseSubject) -> None:
        await subject.warehouse.insert("turns_rows", ("user_id",), [])

    async def test_offsets_are_the_greatest_that_were_stored(self, subject: WarehouseSubject) -> None:
        topic = _marker().decode()
        columns = ("kafka_topic", "kafka_partition", "next_offset")
        assert (topic, 0) not in await subject.warehouse.offsets()
        for offset in (5, 9, 7):
            await subject.warehouse.insert("kafka_offsets", columns, [(topic, 0, offset), (topic, 1, 2 * offset)])
        offsets = await subject.warehouse.offsets()
        assert (offsets[topic, 0], offsets[topic, 1]) == (9, 18)

    async def test_unknown_table_is_told(self, subject: WarehouseSubject) -> None:
        with pytest.raises(ValueError, match="no_such_table"):
            await subject.warehouse.insert("no_such_table", ("a",), [(1,)])


def _marker() -> bytes:
    return f"m{uuid.uuid4().hex}-".encode()
