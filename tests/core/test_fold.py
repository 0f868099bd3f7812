"""The folds: pure and total. Same journal, same state, however it arrives; and no owner ever touches another."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.inprocess import START_MS, HashEmbedder
from schemas.codec import JOURNAL_EVENTS, LIBRARY_EVENTS, convert, decode_event, encode
from schemas.documents import DocumentRemoved
from schemas.envelope import derived_id, instant_of
from schemas.feedback import FeedbackRecorded
from schemas.positions import Position
from schemas.recalls import Request
from schemas.turns import TurnRecorded
from streams.core import intake
from streams.core.answer import Refused, answer, moment_of, names_at
from streams.core.conversation import JournalState
from streams.core.library import LibraryState
from streams.core.ranking import query_passage
from streams.core.settings import resolve
from tests import builders

EMBEDDER = HashEmbedder()
OWNERS = (("u", "lin"), ("u/lin", "x"), ("u", "lin/x"), ("U", "lin"), ("ｕ", "lin"), ("u1", "lin"), ("u", "lin "))
WORDS = [
    "river",
    "bicycle",
    "馄饨",
    "上海",
    "guitar",
    "雨伞",
    "museum",
    "ginger",
    "火车",
    "昨天",
    "moved",
    "to",
    "Lisbon",
    "my",
    "cat",
]
PRESETS = ("balanced", "arpm", "no_bm25", "no_vectors", "no_temporal", "dialogue_only")


def vector_of(text: str) -> list[int]:
    """Vector of a text, without a loop of one's own."""
    return asyncio.run(EMBEDDER.embed([text], "passage"))[0].tolist()


def journals(owners: Sequence[tuple[str, str]] = OWNERS[:3], size: int = 30) -> st.SearchStrategy[list[Any]]:
    """Events as a journal holds them: turns, repeats, conflicts, vectors (late, twice, foreign), refusals, feedback."""

    @st.composite
    def build(draw: st.DrawFn) -> list[Any]:
        rng = random.Random(draw(st.integers(0, 2**32)))
        events: list[Any] = []
        turns: list[TurnRecorded] = []
        for number in range(draw(st.integers(1, size))):
            kind = rng.choice(
                ["turn", "turn", "turn", "repeat", "conflict", "vector", "vector", "feedback", "memory", "newer"]
            )
            owner = rng.choice(owners)
            if kind == "turn" or not turns:
                turn = builders.turn_recorded(
                    number,
                    user_id=owner[0],
                    role_id=owner[1],
                    text=" ".join(rng.choices(WORDS, k=rng.randint(1, 6))),
                    session_id=f"s{rng.randint(0, 2)}",
                    name=rng.choice([None, "Anna", "Bo"]),
                    occurred_at=instant_of(START_MS + rng.randint(-(10**9), 10**9)),
                )
                turns.append(turn)
                events.append(turn)
            elif kind == "repeat":
                events.append(rng.choice(events))
            elif kind == "conflict":
                known = rng.choice(turns)
                other = dataclasses.replace(known, text="other", event_id=derived_id(known.event_id, rng.randint(0, 1)))
                events += [other] if rng.random() < 0.5 else [other, builders.turn_refused(other), other]
            elif kind == "vector":
                known = rng.choice(turns)
                name = "other#1" if rng.random() < 0.1 else EMBEDDER.name
                events.append(builders.turn_embedded(known, vector_of(known.text), name))
            elif kind == "memory":
                fact = (rng.choice(["home", "likes"]), rng.choice(WORDS), rng.choice(["assert", "correct", "retract"]))
                events.append(builders.memories_extracted(rng.choice(turns), fact))
            elif kind == "feedback":
                feedback = builders.feedback(number % 4, user_id=owner[0], role_id=owner[1])
                source = builders.position(number, "mnemolog.feedback")
                events.append(intake.feedback_recorded(orjson.dumps(feedback), source, builders.at(number)))
            else:
                events.append(None)
        return events

    return build()


def fold(events: Sequence[Any], start: int = 0, state: JournalState | None = None) -> JournalState:
    """Apply events at offsets from ``start`` on."""
    state = state or JournalState(0, EMBEDDER.name)
    for offset, event in enumerate(events, start):
        state.apply(offset, event)
    return state


@given(journals(), st.lists(st.integers(0, 30), max_size=8))
@settings(max_examples=60, deadline=None)
def test_split_and_repetition_of_a_journal_do_not_matter(events: list[Any], cuts: list[int]) -> None:
    whole = fold(events)
    state = JournalState(0, EMBEDDER.name)
    for cut in cuts:  # each time from somewhere before: what was seen is ignored
        begin = min(cut // 2, state.next_offset)
        fold(events[begin : min(cut, len(events))], begin, state)
    begin = min(3, state.next_offset)
    fold(events[begin:], begin, state)
    assert state.digest() == whole.digest()


@given(journals(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_repeated_posts_and_effects_change_nothing_but_positions(events: list[Any], rng: random.Random) -> None:
    def memory(state: JournalState) -> Any:
        return (
            {
                key: (
                    owner.rounds,
                    [(view.turn_id, view.text, view.round) for view in owner.views],
                    sorted(owner.feedback),
                    sorted((turn_id, entry.event_id) for turn_id, entry in owner.turns.items()),
                    [(part[0], part[1], part[2], part[4]) for part in owner.experience.vectors.dumped(10**9)[1]],
                    [name for _, name in owner.experience.vectors.uses.until(10**9)],
                )
                for key, owner in state.owners.items()
            },
            list(state.unembedded),
            sorted(state.conflicts),
            state.refused,
        )

    repeated: list[Any] = []
    for event in events:
        repeated.append(event)
        repeated += rng.sample(repeated, min(len(repeated), rng.randint(0, 2)))
    assert memory(fold(repeated)) == memory(fold(events))


@given(journals())
@settings(max_examples=30, deadline=None)
def test_events_survive_the_wire(events: list[Any]) -> None:
    decoded = [event and decode_event(encode(event), JOURNAL_EVENTS) for event in events]
    assert decoded == events
    assert fold(decoded).digest() == fold(events).digest()


def _library(seed: int) -> list[Any]:
    rng = random.Random(seed)
    events: list[Any] = []
    for number in range(rng.randint(0, 6)):
        text = f"doc {number} " + " ".join(rng.choices(WORDS, k=8))
        at = builders.at(5 * number)
        source = Position(topic="mnemolog.documents", partition=0, offset=number)
        identity = rng.choice(["d1", "d2"])
        if rng.random() < 0.2:
            document = intake.document_of(orjson.dumps({"document_id": identity, "deleted": True}))
            events.append(intake.document_removed(document, source, at))
        elif rng.random() < 0.3:
            persona = builders.persona(number, role_id="lin")
            events.append(intake.persona_declared(orjson.dumps(persona), source, at))
        else:
            vector = builders.turn_embedded(builders.turn_recorded(0), vector_of(text)).vector
            raw = {
                "type": "DocumentChunked", "version": 1, "event_id": f"e{number}", "occurred_at": at,
                "recorded_at": at, "document_id": identity, "revision_id": f"r{number}", "part": 0, "parts": 1,
                "embedder": EMBEDDER.name, "source": {"topic": "t", "partition": 0, "offset": number},
                "role_id": rng.choice([None, "lin", "x"]), "causation_id": f"c{number}",
                "parents": [{"index": 0, "start": 0, "text": text, "children": [
                    {"start": 0, "end": len(text), "vector": vector}]}],
            }  # fmt: skip
            events.append(convert(raw, LIBRARY_EVENTS["DocumentChunked"]))
    return events


def fold_library(events: Sequence[Any]) -> LibraryState:
    """Apply events of the library."""
    state = LibraryState(EMBEDDER.name)
    for offset, event in enumerate(events):
        state.apply(offset, event)
    return state


def reply_bytes(journal: JournalState, library: LibraryState, request: Request, record_ms: int = START_MS) -> bytes:
    """Reply and event of a request, on the wire (nothing in them says how long anything took)."""
    chosen = resolve(request.preset, request.set)
    moment = moment_of(journal, library, request, record_ms)
    passage = query_passage(request.query, names_at(journal, request, moment), chosen)
    vector = asyncio.run(EMBEDDER.embed([passage], "query"))[0] if passage.strip() else None
    answered = answer(
        journal,
        library,
        request,
        builders.position(0, "mnemolog.requests"),
        chosen,
        vector,
        moment=moment,
        config={"embedder": EMBEDDER.name},
        recorded_at=builders.at(0),
    )
    return encode(answered.reply) + b"\n" + encode(answered.event)


@st.composite
def questions(draw: st.DrawFn, owners: Sequence[tuple[str, str]] = OWNERS[:3]) -> dict[str, Any]:
    """Requests of any owner, kind and preset."""
    owner = draw(st.sampled_from(owners))
    return builders.request(
        user_id=owner[0],
        role_id=owner[1],
        kind=draw(st.sampled_from(["assemble", "recall"])),
        query=" ".join(draw(st.lists(st.sampled_from([*WORDS, "Anna"]), max_size=4))),
        preset=draw(st.sampled_from(PRESETS)),
        explain=draw(st.booleans()),
        limits={"experience": draw(st.sampled_from([1, 3, 50])), "knowledge": 3},
    )


@given(journals(), st.integers(0, 1000), questions(), st.integers(-1, 40))
@settings(max_examples=150, deadline=None)
def test_answer_as_of_an_offset_is_the_answer_of_a_replay_to_it(
    events: list[Any], library_seed: int, body: dict[str, Any], offset: int
) -> None:
    library_events = _library(library_seed)
    request = convert(body | {"as_of": {"offset": offset}}, Request)
    live, live_library = fold(events), fold_library(library_events)
    cut = min(offset, len(events) - 1)
    if offset >= len(events) - 1:
        prefix_library = live_library
    else:
        at = live.recorded.time_at(cut)
        end = live_library.recorded.offset_at(at) + 1 if at is not None else 0
        prefix_library = fold_library(library_events[:end])
    replayed = reply_bytes(fold(events[: cut + 1]), prefix_library, request)
    assert reply_bytes(live, live_library, request) == replayed


@given(journals(owners=OWNERS, size=40), st.integers(0, 100), questions(owners=OWNERS))
@settings(max_examples=100, deadline=None)
def test_owner_is_answered_as_if_nobody_else_had_spoken(
    events: list[Any], library_seed: int, body: dict[str, Any]
) -> None:
    owner = (body["user_id"], body["role_id"])
    alone = [event if event and (event.user_id, event.role_id) == owner else None for event in events]
    library = fold_library(_library(library_seed))
    request = convert(body, Request)
    assert reply_bytes(fold(events), library, request) == reply_bytes(fold(alone), library, request)


separators = st.sampled_from(["/", ":", " ", ".", "%2F", "\\", "'", '"', "\u200b", "́", "é", "é", "Ａ", "a", "A", "林"])
ids = st.lists(separators, min_size=1, max_size=4).map("".join)


@given(st.lists(st.tuples(ids, ids), min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_no_reply_holds_a_byte_of_another_owners_turn(owners: list[tuple[str, str]], rng: random.Random) -> None:
    events: list[Any] = []
    for number in range(4 * len(owners)):
        index = rng.randrange(len(owners))
        user_id, role_id = owners[index]
        turn = builders.turn_recorded(
            number,
            turn_id=f"t{number // 3}",
            user_id=user_id,
            role_id=role_id,
            text=f"secret{index}zz 馄饨 river",
            name=f"Name{index}zz",
            session_id="s",
        )
        events += [turn, builders.turn_embedded(turn, vector_of(turn.text))]
    state, library = fold(events), LibraryState(EMBEDDER.name)
    for index, (user_id, role_id) in enumerate(owners):
        query = "馄饨 river " + " ".join(f"secret{other}zz Name{other}zz" for other in range(len(owners)))
        request = convert(builders.request(user_id=user_id, role_id=role_id, query="馄饨 river", explain=True), Request)
        asked = reply_bytes(state, library, request) + reply_bytes(
            state, library, dataclasses.replace(request, query=query, kind="recall")
        ).replace(query.encode(), b"")
        for other in range(len(owners)):
            if other != index:
                assert f"secret{other}zz".encode() not in asked
                assert f"Name{other}zz".encode() not in asked


@given(st.integers(0, 10_000), st.lists(st.integers(0, 10), max_size=6))
@settings(max_examples=60, deadline=None)
def test_split_and_repetition_of_the_library_do_not_matter(seed: int, cuts: list[int]) -> None:
    events = _library(seed)
    state = LibraryState(EMBEDDER.name)
    for cut in [*cuts, len(events)]:
        for offset in range(min(cut // 2, state.next_offset), min(cut, len(events))):
            state.apply(offset, events[offset])
    assert state.digest() == fold_library(events).digest()


def test_removal_before_the_first_document_is_no_error() -> None:
    removed = intake.document_removed(
        intake.document_of(b'{"document_id": "d", "deleted": true}'), builders.position(0), builders.at(0)
    )
    assert isinstance(removed, DocumentRemoved)
    assert fold_library([removed, removed]).watermark == 1


def test_feedback_counts_once_by_id() -> None:
    raw = orjson.dumps(builders.feedback(0))
    events = [intake.feedback_recorded(raw, builders.position(n, "f"), builders.at(n)) for n in range(3)]
    assert all(isinstance(event, FeedbackRecorded) for event in events)
    (owner,) = fold(events).owners.values()
    assert owner.feedback == {"f-0": 0}


coordinates = st.one_of(
    st.just(None),
    st.fixed_dictionaries({"offset": st.integers(-1, 40)}),
    st.fixed_dictionaries({"round": st.integers(0, 12)}),
    st.fixed_dictionaries({"turn_id": st.integers(0, 20).map(lambda number: f"t-{number}")}),
    st.fixed_dictionaries({"recorded_at": st.integers(-2, 40).map(builders.at)}),
    st.fixed_dictionaries(
        {"occurred_at": st.integers(-(10**9), 10**9).map(lambda milliseconds: instant_of(START_MS + milliseconds))}
    ),
)


@given(journals(), st.integers(0, 1000), questions(), coordinates)
@settings(max_examples=200, deadline=None)
def test_answer_is_that_of_a_replay_to_its_watermark(
    events: list[Any], library_seed: int, body: dict[str, Any], as_of: dict[str, Any] | None
) -> None:
    library_events = _library(library_seed)
    request = convert(body | {"as_of": as_of}, Request)
    live, live_library = fold(events), fold_library(library_events)
    try:
        moment = moment_of(live, live_library, request, START_MS)
    except Refused:
        return
    journal = fold(events[: moment.journal.offset + 1])
    library = fold_library(library_events[: moment.library.offset + 1])
    assert reply_bytes(journal, library, request) == reply_bytes(live, live_library, request)
