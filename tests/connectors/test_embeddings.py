"""The embedder's endpoint as a test server plays it: a model that changes under way, and the one before it."""

from __future__ import annotations

import httpx
import orjson
import pytest

from connectors.embeddings import HttpEmbedder
from connectors.ports import EmbedderChanged
from connectors.settings import PreviousEmbedder, Settings


def answering(embedder: HttpEmbedder, dimensions: list[int]) -> None:
    """Have its endpoint answer with vectors of these dimensions, one after the other."""

    def answer(request: httpx.Request) -> httpx.Response:
        dimension = dimensions.pop(0) if len(dimensions) > 1 else dimensions[0]
        texts = orjson.loads(request.content)["input"]
        data = [{"index": index, "embedding": [0.1] * dimension} for index in range(len(texts))]
        return httpx.Response(200, json={"data": data})

    embedder._http = httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def test_dimension_that_changes_under_way_is_told_in_one_sentence() -> None:
    embedder = HttpEmbedder("http://embeddings/v1", "some-model")
    answering(embedder, [8, 16])
    with pytest.raises(EmbedderChanged) as raised:
        await embedder.embed(["a", "b"], "passage")
    assert str(raised.value) == (
        "the embedder at http://embeddings/v1 gave 2 vectors of 16 dimensions for 2 texts, expected 8 dimensions: its "
        f"model changed while {embedder.name} was in use; restart, and what is in memory is embedded anew"
    )


async def test_model_whose_calibration_is_of_another_dimension_is_told_in_one_sentence() -> None:
    embedder = HttpEmbedder("http://embeddings/v1", "multilingual-e5-small-q4")
    answering(embedder, [8])
    with pytest.raises(
        ValueError, match=r"^embedder multilingual-e5-small-q4 gives 8 dimensions, .* 384: set MNEMOLOG"
    ):
        await embedder.start()


async def test_another_dimension_is_another_name() -> None:
    names = []
    for dimension in (8, 16):
        embedder = HttpEmbedder("http://embeddings/v1", "some-model")
        answering(embedder, [dimension])
        await embedder.start()
        names.append(embedder.name)
    assert names[0] != names[1]


def test_embedder_before_is_given_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    given = '{"url": "http://old/v1", "model": "old-model", "query_prefix": "query: "}'
    monkeypatch.setenv("MNEMOLOG_EMBEDDINGS_PREVIOUS", given)
    settings = Settings()
    assert settings.embeddings_previous == PreviousEmbedder(
        url="http://old/v1", model="old-model", query_prefix="query: "
    )
    before = HttpEmbedder.previous(settings)
    assert before is not None
    assert before.name == "old-model"


@pytest.mark.parametrize(
    "given", ['{"url": "http://old/v1"}', '{"url": "u", "model": "m", "modle": "x"}', "http://old"]
)
def test_embedder_before_that_is_no_such_thing_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMOLOG_EMBEDDINGS_PREVIOUS", given)
    with pytest.raises(ValueError, match="embeddings_previous"):
        Settings()


def test_without_a_setting_there_is_none() -> None:
    assert HttpEmbedder.previous(Settings()) is None
