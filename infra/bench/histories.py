"""Made-up histories: texts of a Zipf vocabulary, clustered int8 vectors, turns, and the events that a journal holds.

Deterministic: the same seed gives the same bytes. Texts are half Chinese, half English; words are drawn by Zipf's law
(exponent 1) from 20,000 of each, so that postings of common words are as long as in real dialogue. Vectors scatter
around 200 centres, which gives neighbours at all distances as real sentence vectors have them.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from schemas.codec import content_digest, encode
from schemas.envelope import derived_id, instant_of
from schemas.positions import Position
from schemas.turns import Turn, TurnEmbedded, TurnRecorded

DIMENSION = 384
CENTRES = 200
VOCABULARY = 20_000
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
TURN_STEP_MS = 60_000
SESSION_TURNS = 40

_ONSETS = "b br c ch d dr f fl g gr h j k l m n p pl qu r s sh sl st t tr v w z"
_VOWELS = "a e i o u ai ea oo"
_CODAS = " n r s t l m nd st ck"
_HAN_FIRST, _HAN_COUNT = 0x4E00, 3000


class Texts:
    """An endless source of utterances."""

    def __init__(self, seed: int = 1) -> None:
        self._english = _english()
        self._chinese = _chinese()
        ranks = 1.0 / np.arange(1, VOCABULARY + 1)
        self._cumulative = np.cumsum(ranks / ranks.sum())
        self._draws = np.random.default_rng(seed)

    def utterance(self, words: int = 14) -> str:
        """About ``words`` words, in Chinese or English."""
        return self.utterances(1, words)[0]

    def utterances(self, count: int, words: int = 14) -> list[str]:
        """Many at once: one draw for all of them."""
        lengths = self._draws.integers(max(1, words // 2), words * 3 // 2 + 1, size=count)
        drawn = np.searchsorted(self._cumulative, self._draws.random(int(lengths.sum())))
        drawn = np.minimum(drawn, VOCABULARY - 1)
        out = []
        for index, part in enumerate(np.split(drawn, np.cumsum(lengths)[:-1])):
            if index % 2:
                out.append("".join(self._chinese[word] for word in part.tolist()) + "。")
            else:
                out.append(" ".join(self._english[word] for word in part.tolist()) + ".")
        return out


@cache
def _english() -> list[str]:
    random_ = random.Random(11)
    words: dict[str, None] = {}
    onsets, vowels, codas = (part.split(" ") for part in (_ONSETS, _VOWELS, _CODAS))
    while len(words) < VOCABULARY:
        syllables = random_.choice((1, 2, 2, 3))
        word = "".join(random_.choice(onsets) + random_.choice(vowels) for _ in range(syllables))
        words[word + random_.choice(codas)] = None
    return list(words)


@cache
def _chinese() -> list[str]:
    random_ = random.Random(12)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        size = random_.choice((1, 2, 2, 2, 3))
        words["".join(chr(_HAN_FIRST + random_.randrange(_HAN_COUNT)) for _ in range(size))] = None
    return list(words)


class VectorSource:
    """Clustered int8 vectors ``(n, 384)`` of about the length of recorded e5 vectors."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._centres = np.random.default_rng(5).normal(size=(CENTRES, DIMENSION)) * 22

    def take(self, count: int) -> npt.NDArray[np.int8]:
        """The next ``count`` vectors."""
        centres = self._centres[self._rng.integers(0, CENTRES, size=count)]
        noise = self._rng.standard_normal((count, DIMENSION), dtype=np.float32) * 24
        return np.clip(np.rint(centres + noise), -127, 127).astype(np.int8)


@dataclass(frozen=True, slots=True)
class Owned:
    """An owner of a made-up history."""

    user_id: str
    role_id: str = "lin"


def turns(count: int, owners: list[Owned], seed: int = 1) -> Iterator[Turn]:
    """Turns of the owners in rotation, a minute apart, users and assistants by turns."""
    texts = Texts(seed)
    for start in range(0, count, 1000):
        for index, text in enumerate(texts.utterances(min(1000, count - start)), start):
            owner = owners[index % len(owners)]
            own = index // len(owners)
            yield Turn(
                turn_id=f"t{index}",
                user_id=owner.user_id,
                role_id=owner.role_id,
                session_id=f"s{own // SESSION_TURNS}",
                speaker="user" if own % 2 == 0 else "assistant",
                text=text,
                occurred_at=instant_of(START_MS + index * TURN_STEP_MS),
            )


def events(
    count: int, owners: list[Owned], embedder: str, seed: int = 1, *, vectors: bool = True
) -> Iterator[TurnRecorded | TurnEmbedded]:
    """What ``ingest`` and ``memory`` record of ``count`` turns: each turn, and after 16 turns their vectors."""
    source = VectorSource(seed)
    waiting: list[TurnRecorded] = []
    for index, turn in enumerate(turns(count, owners, seed)):
        recorded = TurnRecorded(
            event_id=derived_id("turn", turn.user_id, turn.role_id, turn.turn_id, content_digest(turn)),
            occurred_at=turn.occurred_at,
            recorded_at=turn.occurred_at,
            user_id=turn.user_id,
            role_id=turn.role_id,
            turn_id=turn.turn_id,
            session_id=turn.session_id,
            speaker=turn.speaker,
            text=turn.text,
            source=Position(topic="turns", partition=0, offset=index, timestamp=START_MS),
        )
        yield recorded
        if not vectors:
            continue
        waiting.append(recorded)
        if len(waiting) == 16 or index == count - 1:
            rows = source.take(len(waiting))
            for event, row in zip(waiting, rows, strict=True):
                yield _embedded(event, embedder, row)
            waiting.clear()


def _embedded(event: TurnRecorded, embedder: str, row: npt.NDArray[np.int8]) -> TurnEmbedded:
    return TurnEmbedded(
        event_id=derived_id(event.event_id, "TurnEmbedded", embedder),
        occurred_at=event.recorded_at,
        recorded_at=event.recorded_at,
        user_id=event.user_id,
        role_id=event.role_id,
        turn_id=event.turn_id,
        embedder=embedder,
        vector=base64.b64encode(row.tobytes()).decode(),
        causation_id=event.event_id,
    )


def encoded_events(count: int, owners: list[Owned], embedder: str, seed: int = 1) -> Iterator[tuple[str, bytes]]:
    """Events as (user_id, value), as a producer of the journal needs them."""
    for event in events(count, owners, embedder, seed):
        yield event.user_id, encode(event)
