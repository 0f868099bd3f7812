"""Embeddings from any OpenAI-compatible endpoint, as recorded vectors.

A recorded vector is ``round((v - mean) * scale)`` clipped to int8 in [-127, 127], with mean and scale from the
embedder's calibration. Inner products of such vectors are exact in float32 up to 1,024 dimensions (127**2 * 1024 <
2**24), so rankings are the same on every machine.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray

from connectors.ports import EmbedderChanged, InputType, Unavailable
from connectors.settings import Settings

DIMENSION_EXACT_MAX = 1024
EMBED_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Mean ``(d,) float32`` and scale that turn an embedder's floats into int8."""

    embedder: str
    mean: NDArray[np.float32]
    scale: float

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.mean.shape[0])

    @property
    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of mean and scale: part of the name of recorded vectors."""
        return hashlib.sha256(self.mean.tobytes() + np.float32(self.scale).tobytes()).hexdigest()[:12]

    def quantize(self, vectors: NDArray[np.float32]) -> NDArray[np.int8]:
        """``(n, d) float32`` to ``(n, d) int8`` in [-127, 127]."""
        limit = (
            127 if self.dimension <= DIMENSION_EXACT_MAX else int(127 * (DIMENSION_EXACT_MAX / self.dimension) ** 0.5)
        )
        scaled = np.rint((vectors - self.mean) * (self.scale * limit / 127))
        return np.clip(scaled, -limit, limit).astype(np.int8)


def calibration_of(embedder: str, dimension: int) -> Calibration:
    """The calibration that ships for an embedder, else a generic one for unit vectors of that dimension.

    Generic: mean 0, and 3.5 standard deviations of a unit vector's component (1 / sqrt(d)) at 127.
    """
    file = importlib.resources.files("connectors").joinpath("calibrations", f"{embedder.replace('/', '_')}.json")
    if file.is_file():
        raw = json.loads(file.read_text("utf-8"))
        mean = np.asarray(raw["mean"], dtype=np.float32)
        if mean.shape != (dimension,):
            raise ValueError(
                f"embedder {embedder} gives {dimension} dimensions, its calibration has {mean.shape[0]}: "
                f"set MNEMOLOG_EMBEDDINGS_MODEL to the model that the endpoint really serves"
            )
        return Calibration(embedder, mean, float(raw["scale"]))
    return Calibration(embedder, np.zeros(dimension, dtype=np.float32), 127 * dimension**0.5 / 3.5)


class HttpEmbedder:
    """``ports.Embedder`` over ``POST /embeddings``.

    Tells queries from passages by ``input_type`` (ignored by servers that don't know it) and, if set, by a prefix.
    """

    def __init__(
        self, url: str, model: str, *, key: str | None = None, query_prefix: str = "", passage_prefix: str = ""
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._url = url.rstrip("/")
        self._model = model
        self._prefix = {"query": query_prefix, "passage": passage_prefix}
        self._http = httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(EMBED_TIMEOUT_S, connect=5.0))
        self.calibration: Calibration | None = None
        self.name = model
        self.dimension = 0

    @classmethod
    def from_settings(cls, settings: Settings) -> HttpEmbedder:
        """The embedder that the settings name."""
        return cls(
            settings.embeddings,
            settings.embeddings_model,
            key=settings.embeddings_key,
            query_prefix=settings.embeddings_query_prefix,
            passage_prefix=settings.embeddings_passage_prefix,
        )

    @classmethod
    def previous(cls, settings: Settings) -> HttpEmbedder | None:
        """The embedder that the settings name as the one before; None: they name none."""
        before = settings.embeddings_previous
        if before is None:
            return None
        return cls(before.url, before.model, key=before.key, query_prefix=before.query_prefix)

    async def start(self) -> None:
        """Learn the dimension by one embedding; raises ``Unavailable``."""
        probe = await self._floats(["dimension"], "passage")
        self.calibration = calibration_of(self._model, probe.shape[1])
        self.dimension = probe.shape[1]
        self.name = f"{self._model}#{self.calibration.digest}"

    async def stop(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def embed(self, texts: Sequence[str], input_type: InputType) -> NDArray[np.int8]:
        """See ``ports.Embedder``."""
        if self.calibration is None:
            await self.start()
        assert self.calibration is not None
        if not texts:
            return np.empty((0, self.dimension), dtype=np.int8)
        floats = await self._floats(texts, input_type)
        if floats.shape != (len(texts), self.dimension):
            raise EmbedderChanged(
                f"the embedder at {self._url} gave {floats.shape[0]} vectors of {floats.shape[-1]} dimensions for "
                f"{len(texts)} texts, expected {self.dimension} dimensions: its model changed while {self.name} was in "
                f"use; restart, and what is in memory is embedded anew"
            )
        return self.calibration.quantize(floats)

    async def _floats(self, texts: Sequence[str], input_type: InputType) -> NDArray[np.float32]:
        body = {
            "model": self._model,
            "input": [self._prefix[input_type] + text for text in texts],
            "input_type": input_type,
            "encoding_format": "base64",
        }
        try:
            response = await self._http.post(
                f"{self._url}/embeddings", content=orjson.dumps(body), headers={"content-type": "application/json"}
            )
        except httpx.HTTPError as error:
            raise Unavailable(
                f"no embedding endpoint answers at {self._url}: {error!r}; set MNEMOLOG_EMBEDDINGS"
            ) from error
        if response.status_code == 429 or response.status_code >= 500:
            raise Unavailable(f"embedding endpoint {self._url}: {response.status_code} {response.text[:200]}")
        if response.status_code != 200:
            raise ValueError(f"embedding endpoint {self._url} refused: {response.status_code} {response.text[:500]}")
        data = sorted(orjson.loads(response.content)["data"], key=lambda item: item["index"])
        return np.stack([_vector(item["embedding"]) for item in data])


def _vector(embedding: str | list[float]) -> NDArray[np.float32]:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype=np.float32)
    return np.asarray(embedding, dtype=np.float32)
