"""LoCoMo: two people over many dated sessions (Maharana et al. 2024, https://arxiv.org/abs/2402.17753), whole or bare.

speaker_a is the user, speaker_b the assistant. All turns of a session share its date; each gets a second more than the
one before, at most an hour in all. Of pictures the caption is kept in brackets, never the link. Questions, summaries
and observations are no turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from connectors.imports.building import Collector, Draft, clean, clean_id, digest
from connectors.imports.messages import kind_of
from connectors.imports.model import Speaker
from connectors.imports.times import parse_time

# A session's turns must end before the next one may begin; sessions of the data set are days apart.
_SPREAD = timedelta(hours=1)


def is_conversation(value: Any) -> bool:
    """True for the object that holds speakers and sessions."""
    return isinstance(value, dict) and (
        any(isinstance(item, list) and re.fullmatch(r"session_\d+", key) for key, item in value.items())
        or ("speaker_a" in value and "speaker_b" in value)
    )


def is_sample(value: Any) -> bool:
    """True for a sample around a conversation, or the conversation alone."""
    return isinstance(value, dict) and (is_conversation(value.get("conversation")) or is_conversation(value))


def read(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read samples; ids are `<sample>-<dia_id>`, sessions `<sample>-<n>`."""
    for where, item in items:
        talk = item.get("conversation", item) if isinstance(item, dict) else None
        if not is_conversation(talk):
            collector.fault(where, f"sample {where} has no conversation; expected speaker_a, speaker_b and session_1")
            continue
        assert isinstance(talk, dict)
        assert isinstance(item, dict)
        sample = clean_id(item.get("sample_id")) if "conversation" in item else None
        _sample(sample or _made_id(talk), talk, collector)


def _made_id(talk: dict[str, Any]) -> str:
    """Make an id from what a later copy has too: the speakers and the begin of the first session."""
    numbers = _numbers(talk)
    first = talk[f"session_{numbers[0]}"][:1] if numbers else []
    date = talk.get(f"session_{numbers[0]}_date_time") if numbers else ""
    words = first[0].get("text") if first and isinstance(first[0], dict) else ""
    return "locomo-" + digest(talk.get("speaker_a"), talk.get("speaker_b"), date, words)[:12]


def _numbers(talk: dict[str, Any]) -> list[int]:
    found = (re.fullmatch(r"session_(\d+)", key) for key, value in talk.items() if isinstance(value, list))
    return sorted(int(match[1]) for match in found if match)


def _sample(sample: str, talk: dict[str, Any], collector: Collector) -> None:
    speakers: dict[str, Speaker] = {}
    if isinstance(talk.get("speaker_a"), str):
        speakers[talk["speaker_a"].strip()] = "user"
    if isinstance(talk.get("speaker_b"), str):
        speakers.setdefault(talk["speaker_b"].strip(), "assistant")
    numbers = _numbers(talk)
    if not numbers:
        collector.skip(sample, "no sessions")
    previous: datetime | None = None
    for number in numbers:
        turns = talk[f"session_{number}"]
        session_id = clean_id(f"{sample}-{number}") or sample
        started = _session_time(talk, number, sample, previous, collector)
        if started is None:
            continue
        previous = started
        drafts = [
            _draft(turn, f"{sample}-D{number}:{index}", sample, speakers, collector)
            for index, turn in enumerate(turns, 1)
        ]
        kept = [draft for draft in drafts if draft is not None]
        apart = min(timedelta(seconds=1), _SPREAD / max(1, len(kept)))
        for index, draft in enumerate(kept):
            draft.at = started + apart * index
        collector.add("locomo", session_id, kept, number, started)


def _session_time(
    talk: dict[str, Any], number: int, sample: str, previous: datetime | None, collector: Collector
) -> datetime | None:
    value = talk.get(f"session_{number}_date_time")
    if value in (None, ""):  # a day after the session before, as nothing tells more
        return previous + timedelta(days=1) if previous is not None else collector.slot(number)
    try:
        return parse_time(value, collector.zone)
    except ValueError as error:
        collector.fault(f"{sample}-{number}", f"session_{number}_date_time: {error}")
        return None


def _draft(turn: Any, where: str, sample: str, speakers: dict[str, Speaker], collector: Collector) -> Draft | None:
    if not isinstance(turn, dict):
        collector.fault(where, f"turn is {kind_of(turn)}, not an object")
        return None
    name = turn.get("speaker")
    if not isinstance(name, str) or not name.strip():
        collector.fault(where, "turn without speaker")
        return None
    name = name.strip()
    if name not in speakers:
        if len(speakers) > 1:
            collector.fault(where, f"speaker {name!r:.80} is neither of {', '.join(speakers)}")
            return None
        speakers[name] = "assistant" if "user" in speakers.values() else "user"
    dia_id = clean_id(turn.get("dia_id"))
    text = turn.get("text")
    captions = turn.get("blip_caption")
    kept = [captions] if isinstance(captions, str) else captions if isinstance(captions, list) else []
    words = tuple(clean(caption).strip() for caption in kept if isinstance(caption, str) and caption.strip())
    spoken = text if isinstance(text, str) else ""
    marked = " ".join([spoken.rstrip(), *(f"[{caption}]" for caption in words)]).strip() if words else spoken
    native = f"{sample}-{dia_id}" if dia_id else where
    return Draft(speakers[name], marked, native, None, native, name=name, captions=words)
