"""LoCoMo files as histories: turns in order, and questions with the turns that hold their evidence.

References
----------
Maharana et al. (2024), Evaluating very long-term conversational memory of LLM agents. ACL 2024.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.imports.times import parse_time
from infra.bench.metrics import CATEGORIES
from infra.stack_options import UsageError

TURN_STEP = dt.timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Said:
    """One utterance."""

    id: str
    session: str
    speaker: str
    """``user`` or ``assistant``: LoCoMo's speaker_a and speaker_b."""
    name: str
    text: str
    captions: tuple[str, ...]
    at: dt.datetime

    @property
    def shown(self) -> str:
        """Text and captions, as the core shows a turn."""
        return " ".join([self.text, *(f"[{caption}]" for caption in self.captions)])


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ids of the turns that answer it."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A sample: its own owner."""

    id: str
    turns: tuple[Said, ...]
    questions: tuple[Question, ...]
    dropped: int
    """Evidence ids that name no turn."""


def read(paths: Iterable[Path]) -> list[Conversation]:
    """All samples of some files.

    Raises
    ------
    UsageError
        A file is not LoCoMo's JSON.
    """
    found: list[Conversation] = []
    for path in paths:
        try:
            raw = path.read_bytes()
            value = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}; expected LoCoMo's JSON, plain or gzip") from error
        samples = value if isinstance(value, list) else [value]
        if not all(isinstance(sample, dict) and "conversation" in sample and "qa" in sample for sample in samples):
            raise UsageError(f"{path} is not LoCoMo: expected samples with `conversation` and `qa`")
        found += [_conversation(sample, f"{path.name}:{n}") for n, sample in enumerate(samples)]
    return found


def _conversation(sample: dict[str, Any], default_id: str) -> Conversation:
    talk = sample["conversation"]
    turns: list[Said] = []
    numbers = sorted(int(key[8:]) for key, value in talk.items() if re.fullmatch(r"session_\d+", key) and value)
    for number in numbers:
        started = parse_time(talk[f"session_{number}_date_time"], dt.UTC)
        for index, turn in enumerate(talk[f"session_{number}"]):
            caption = turn.get("blip_caption")
            turns.append(
                Said(
                    id=turn["dia_id"],
                    session=f"s{number}",
                    speaker="user" if turn["speaker"] == talk["speaker_a"] else "assistant",
                    name=turn["speaker"],
                    text=turn["text"],
                    captions=(caption,) if caption else (),
                    at=started + index * TURN_STEP,
                )
            )
    known = {turn.id for turn in turns}
    questions: list[Question] = []
    dropped = 0
    for asked in sample["qa"]:
        named = [str(part) for part in asked.get("evidence") or ()]
        evidence = frozenset(part for part in named if part in known)
        if asked.get("category") not in CATEGORIES:
            continue
        dropped += len(named) - len([part for part in named if part in known])
        if evidence:
            questions.append(Question(asked["question"], asked["category"], evidence))
    return Conversation(str(sample.get("sample_id") or default_id), tuple(turns), tuple(questions), dropped)
