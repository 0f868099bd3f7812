"""Rerankers keep their port's contract; the HTTP one speaks Cohere's and TEI's forms and refuses half a ranking."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from connectors.inprocess import OverlapReranker
from connectors.ports import Reranker, Unavailable
from connectors.rerank import HttpReranker
from connectors.settings import Settings
from tests.contracts import RerankerContract


class Server(httpx.AsyncBaseTransport):
    """A rerank endpoint of one form, which knows what it was asked."""

    def __init__(self, field: str, answer: Any = None, status: int = 200) -> None:
        self._field = field
        self._answer = answer
        self._status = status
        self.requests: list[httpx.Request] = []
        self.bodies: list[dict[str, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        body = orjson.loads(request.content)
        self.bodies.append(body)
        if self._status != 200:
            return httpx.Response(self._status, text="no")
        if self._field not in body:
            return httpx.Response(422, text=f"missing field `{self._field}`")
        if self._answer is not None:
            return httpx.Response(200, content=self._answer)
        scores = await OverlapReranker().rerank(body["query"], body[self._field])
        ranked = sorted(enumerate(scores), key=lambda pair: -pair[1])
        if self._field == "texts":
            return httpx.Response(200, json=[{"index": index, "score": score} for index, score in ranked])
        results = [{"index": index, "relevance_score": score} for index, score in ranked]
        return httpx.Response(200, json={"model": "m", "results": results[: body["top_n"]]})


class TestOverlapReranker(RerankerContract):
    @pytest.fixture
    def subject(self) -> Reranker:
        return OverlapReranker()

    @pytest.fixture
    def unavailable(self) -> Reranker:
        reranker = OverlapReranker()
        reranker.away = True
        return reranker


class TestHttpReranker(RerankerContract):
    @pytest.fixture
    async def subject(self):
        reranker = HttpReranker("http://rerank.test/v2", "m", transport=Server("documents"))
        yield reranker
        await reranker.stop()

    @pytest.fixture
    async def unavailable(self):
        reranker = HttpReranker("http://127.0.0.1:1")
        yield reranker
        await reranker.stop()


class TestTextEmbeddingsInference(RerankerContract):
    @pytest.fixture
    async def subject(self):
        reranker = HttpReranker("http://rerank.test", transport=Server("texts"))
        yield reranker
        await reranker.stop()

    @pytest.fixture
    async def unavailable(self):
        reranker = HttpReranker("http://rerank.test", transport=Server("texts", status=503))
        yield reranker
        await reranker.stop()


def ask(server: Server, url: str = "http://rerank.test/v2", **options: Any) -> list[float]:
    async def call() -> list[float]:
        reranker = HttpReranker(url, transport=server, **options)
        try:
            await reranker.rerank("red tea", ["red", "tea time"])
            return await reranker.rerank("red tea", ["red", "red tea"])
        finally:
            await reranker.stop()

    return asyncio.run(call())


def test_body_path_and_key_are_those_of_the_public_form():
    server = Server("documents")
    assert ask(server, model="rerank-v3.5", key="s3cret") == [0.5, 1.0]
    assert str(server.requests[0].url) == "http://rerank.test/v2/rerank"
    assert server.requests[0].headers["authorization"] == "Bearer s3cret"
    assert server.bodies[0] == {
        "model": "rerank-v3.5", "query": "red tea", "documents": ["red", "tea time"], "top_n": 2,
    }  # fmt: skip


def test_url_of_the_endpoint_itself_is_taken_as_it_is():
    server = Server("documents")
    ask(server, url="http://rerank.test/rerank")
    assert str(server.requests[0].url) == "http://rerank.test/rerank"


def test_form_that_the_server_takes_is_kept():
    server = Server("texts")
    assert ask(server) == [0.5, 1.0]
    assert ["texts" in body for body in server.bodies] == [False, True, True]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_overloaded_server_is_transient(status):
    with pytest.raises(Unavailable, match=str(status)):
        ask(Server("documents", status=status))


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_refusal_is_not_transient_and_says_so(status):
    with pytest.raises(ValueError, match=f"refused: {status}"):
        ask(Server("documents", status=status))


@pytest.mark.parametrize(
    "answer",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"results": null}',
        b'{"results": [{"index": 0, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 2, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": null}, {"index": 1, "relevance_score": 1}]}',
        b'[{"index": 0, "score": "nan"}, {"index": 1, "score": 1}]',
        b'[{"index": 0, "score": "1e999"}, {"index": 1, "score": 1}]',
        b'[["index", 0]]',
    ],
)
def test_half_a_ranking_is_refused_with_what_was_expected(answer):
    with pytest.raises(ValueError, match=r"rerank.test.*expected"):
        ask(Server("documents", answer=answer))


def test_long_texts_are_cut():
    server = Server("documents", answer=b'{"results": [{"index": 0, "relevance_score": 1}]}')

    async def call() -> None:
        reranker = HttpReranker("http://rerank.test", transport=server)
        await reranker.rerank("q" * 100_000, ["d" * 1_000_000])
        await reranker.stop()

    asyncio.run(call())
    assert len(server.requests[0].content) < 10_000


def test_settings_without_a_url_name_no_reranker():
    assert HttpReranker.from_settings(Settings()) is None
