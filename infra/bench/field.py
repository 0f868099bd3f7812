"""Other ways to rank bare turns, for comparison: BM25+, vectors, RRF of both, and mem0 where it is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.bench.embedded import CachedEmbedder
from infra.bench.locomo import Conversation
from streams.core import bm25, fusion, text
from streams.core.vectors import Vectors

LIMIT = 20
POOL = 100
K_RRF = 60.0

Ranker = Callable[[str], list[str]]
"""From a question to turn ids, best first."""


class BareTurns:
    """A conversation's turns as they were said: no dates, names or neighbours indexed along, no time."""

    def __init__(self, talk: Conversation, embedder: CachedEmbedder) -> None:
        self._ids = [turn.id for turn in talk.turns]
        self._postings = bm25.Postings()
        for turn in talk.turns:
            self._postings.add(text.tokens(turn.shown))
        self._vectors = Vectors()
        self._vectors.add(embedder.vectors([turn.shown for turn in talk.turns], "passage"))
        self._embedder = embedder
        self._everything = np.ones(len(self._ids), dtype=bool)

    def bm25(self, query: str) -> list[str]:
        """By the project's BM25+ alone."""
        return self._named(self._by_words(query))

    def vectors(self, query: str) -> list[str]:
        """By inner product alone; the query is embedded as it stands."""
        return self._named(self._by_vectors(query))

    def rrf(self, query: str) -> list[str]:
        """Both lists by reciprocal rank fusion."""
        lists = [self._by_words(query), self._by_vectors(query)]
        ids = np.unique(np.concatenate(lists))
        return self._named(ids[fusion.order(fusion.rrf(lists, ids, K_RRF), ids, ids)])

    def _by_words(self, query: str) -> npt.NDArray[np.int64]:
        segment = bm25.Segment(self._postings, self._everything)
        return fusion.top(bm25.scores(text.query_tokens(query), [segment], bm25.Parameters())[0], POOL)

    def _by_vectors(self, query: str) -> npt.NDArray[np.int64]:
        return self._vectors.nearest(self._embedder.vectors([query], "query")[0], POOL, self._everything)[0]

    def _named(self, ids: npt.NDArray[np.int64]) -> list[str]:
        return [self._ids[index] for index in ids[:LIMIT].tolist()]


def mem0_version() -> str | None:
    """Version of mem0, None where it is not installed (extra ``bench``)."""
    return importlib.metadata.version("mem0ai") if importlib.util.find_spec("mem0") else None


class Mem0:
    """mem0 without a model: ``infer=False``, our embedder, FAISS on disk in a directory that is gone afterwards."""

    def __init__(self, talk: Conversation, embedder: CachedEmbedder) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mnemolog-bench-mem0-")
        # Read on import: without these it calls home and writes to the home directory.
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": self._folder.name}
        from mem0 import Memory  # type: ignore[import-not-found, unused-ignore]

        logging.getLogger("mem0").setLevel(logging.CRITICAL)  # it warns of every optional part, in every instance
        dimension = embedder.floats([talk.turns[0].text], "passage").shape[1]
        self._memory = Memory.from_config(
            {
                "embedder": {"provider": "openai", "config": {"api_key": "none", "embedding_dims": dimension}},
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "vector_store": {
                    "provider": "faiss",
                    "config": {
                        "path": f"{self._folder.name}/faiss",
                        "collection_name": "turns",
                        "embedding_model_dims": dimension,
                        "distance_strategy": "cosine",
                    },
                },
                "history_db_path": f"{self._folder.name}/history.db",
            }
        )
        self._memory.embedding_model = _Mem0Embedder(embedder)
        for turn in talk.turns:
            said = [{"role": turn.speaker, "content": turn.shown, "name": turn.name}]
            self._memory.add(said, user_id="owner", infer=False, metadata={"turn_id": turn.id})

    def rank(self, query: str) -> list[str]:
        """The ids that mem0's search returns, best first."""
        found = self._memory.search(query, filters={"user_id": "owner"}, top_k=LIMIT, threshold=0.0)
        return [item["metadata"]["turn_id"] for item in found["results"]]

    def close(self) -> None:
        """Remove its files."""
        self._folder.cleanup()


class _Mem0Embedder:
    """mem0's embedder interface over the cache."""

    def __init__(self, embedder: CachedEmbedder) -> None:
        self._embedder = embedder
        self.config: Any = None

    def embed(self, text: str, memory_action: str | None = "add") -> list[float]:
        vector = self._embedder.floats([text], "query" if memory_action == "search" else "passage")[0]
        return [float(value) for value in vector]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = "add") -> list[list[float]]:
        return [self.embed(text, memory_action) for text in texts]
