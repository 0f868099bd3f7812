"""Real embeddings for benchmarks, remembered on disk: embedding is by far the slowest step (10-50 passages/s).

A cache is one SQLite file an embedder; a key is the SHA-256 of kind and text, a value float32 as the embedder gave
it. Recorded int8 vectors are made from these by the embedder's calibration, exactly as the roles make them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from connectors.embeddings import Calibration, HttpEmbedder, calibration_of
from connectors.ports import InputType
from infra.bench.report import say

MODEL = "multilingual-e5-small-q4"
BATCH = 32

Floats = npt.NDArray[np.float32]
Int8 = npt.NDArray[np.int8]


class Encoder(Protocol):
    """Texts to float vectors."""

    name: str

    def encode(self, texts: Sequence[str], input_type: InputType) -> Floats:
        """``(n, d)`` float32."""
        ...


class LocalEncoder:
    """The bundled model in this process."""

    name = MODEL

    def __init__(self) -> None:
        from infra.embedding_engine import DIMENSION, Engine, limit_threads

        limit_threads(os.cpu_count() or 1)
        self._engine = Engine()
        self._dimension = DIMENSION

    def encode(self, texts: Sequence[str], input_type: InputType) -> Floats:
        """See ``Encoder``."""
        embedded = self._engine.embed(texts, input_type == "query")
        return np.frombuffer(embedded.vectors, dtype="<f4").reshape(len(texts), self._dimension).astype(np.float32)


class HttpEncoder:
    """An OpenAI-compatible endpoint."""

    def __init__(self, url: str, model: str = MODEL) -> None:
        self.name = model
        self._url = url

    def encode(self, texts: Sequence[str], input_type: InputType) -> Floats:
        """See ``Encoder``."""
        return asyncio.run(self._encode(texts, input_type))

    async def _encode(self, texts: Sequence[str], input_type: InputType) -> Floats:
        embedder = HttpEmbedder(self._url, self.name)
        try:
            return await embedder._floats(texts, input_type)
        finally:
            await embedder.stop()


def cache_dir(given: Path | None) -> Path:
    """The directory given, else ``$XDG_CACHE_HOME/mnemolog/bench``."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return given or base / "mnemolog" / "bench"


class CachedEmbedder:
    """Vectors of texts, from the cache where they are there.

    Parameters
    ----------
    encoder : callable
        Makes the encoder when something must be embedded: a run that finds everything in the cache loads no model.
    """

    def __init__(self, name: str, encoder: type[LocalEncoder] | HttpEncoder | Encoder, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._encoder: Encoder | None = None if isinstance(encoder, type) else encoder
        self._make = encoder if isinstance(encoder, type) else None
        self._database = sqlite3.connect(folder / f"{name.replace('/', '_')}.sqlite")
        self._database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        self._calibration: Calibration | None = None
        self.embedded = 0
        self.seconds = 0.0

    @classmethod
    def open(cls, url: str | None, folder: Path) -> CachedEmbedder:
        """The endpoint at ``url``, or the bundled model in this process."""
        return cls(MODEL, HttpEncoder(url) if url else LocalEncoder, folder)

    def close(self) -> None:
        """Close the cache."""
        self._database.close()

    def floats(self, texts: Sequence[str], input_type: InputType) -> Floats:
        """``(n, d)`` float32 in the order of ``texts``."""
        keys = [hashlib.sha256(f"{input_type}\0{text}".encode("utf-8", "surrogatepass")).digest() for text in texts]
        found = self._found(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        found |= self._embed(list(missing.items()), input_type)
        return np.stack([found[key] for key in keys]) if keys else np.empty((0, 0), dtype=np.float32)

    def vectors(self, texts: Sequence[str], input_type: InputType) -> Int8:
        """``(n, d)`` int8 as they are recorded."""
        floats = self.floats(texts, input_type)
        return self.quantize(floats) if len(texts) else np.empty((0, 0), dtype=np.int8)

    def quantize(self, floats: Floats) -> Int8:
        """Recorded vectors of an embedder's floats."""
        if self._calibration is None:
            self._calibration = calibration_of(self.name, floats.shape[1])
        return self._calibration.quantize(floats)

    def _found(self, keys: Iterable[bytes]) -> dict[bytes, Floats]:
        found = {}
        for key in set(keys):
            row = self._database.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found[key] = np.frombuffer(row[0], dtype=np.float32)
        return found

    def _embed(self, missing: Sequence[tuple[bytes, str]], input_type: InputType) -> dict[bytes, Floats]:
        made: dict[bytes, Floats] = {}
        if missing and self._encoder is None and self._make is not None:
            self._encoder = self._make()
        told = begun = time.monotonic()
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            assert self._encoder is not None
            rows = self._encoder.encode([text for _, text in batch], input_type)
            pairs = [(key, row.tobytes()) for (key, _), row in zip(batch, rows, strict=True)]
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", pairs)
            made |= {key: row for (key, _), row in zip(batch, rows, strict=True)}
            if time.monotonic() - told > 10:
                told = time.monotonic()
                say(f"embedded {len(made)} of {len(missing)} ({len(made) / (told - begun):.0f} a second)")
        self.embedded += len(made)
        self.seconds += time.monotonic() - begun
        return made
