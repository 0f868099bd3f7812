"""An answer computed again from its record is the answer that was given, whatever has been folded since."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.inprocess import START_MS
from schemas.recalls import AsOf, RecallAnswered, Request
from streams.core.again import again
from streams.core.answer import Answer, answer, moment_of, names_at
from streams.core.conversation import JournalState
from streams.core.library import LibraryState
from streams.core.ranking import query_passage
from streams.core.settings import resolve
from tests import builders
from tests.core.test_fold import EMBEDDER, OWNERS, PRESETS, _library, fold, fold_library, journals


def answered(journal: JournalState, library: LibraryState, request: Request) -> Answer:
    """A live answer."""
    chosen = resolve(request.preset, request.set)
    moment = moment_of(journal, library, request, START_MS)
    passage = query_passage(request.query, names_at(journal, request, moment), chosen)
    vector = asyncio.run(EMBEDDER.embed([passage], "query"))[0] if passage.strip() else None
    return answer(
        journal,
        library,
        request,
        builders.position(7, "mnemolog.requests"),
        chosen,
        vector,
        moment=moment,
        config={"embedder": EMBEDDER.name},
        recorded_at=builders.at(9),
    )


REQUESTS = st.builds(
    lambda query, preset, as_of, owner, kind: Request(
        request_id="q",
        kind=kind,
        user_id=owner[0],
        role_id=owner[1],
        query=query,
        preset=preset,
        as_of=as_of,
        set={"experience.lambda_hours": 99.0} if preset == "arpm" else None,
    ),
    st.sampled_from(["Where is my guitar?", "馄饨 in Lisbon", "moved cat", ""]),
    st.sampled_from([*PRESETS, None]),
    st.one_of(
        st.none(),
        st.builds(lambda n: AsOf(offset=n), st.integers(-1, 30)),
        st.builds(lambda n: AsOf(round=n), st.integers(0, 9)),
        st.builds(lambda n: AsOf(occurred_at=builders.at(n)), st.integers(-999, 999)),
    ),
    st.sampled_from(OWNERS[:3]),
    st.sampled_from(["assemble", "assemble", "recall", "facts"]),
)


@given(journals(), st.integers(0, 2**32), REQUESTS, st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_answer_again_is_the_answer_that_was_given(events: list[Any], seed: int, request: Request, cut: int) -> None:
    books = _library(seed)
    journal, library = fold(events[:cut]), fold_library(books[: cut // 5])
    original = answered(journal, library, request)
    fold(events[cut:], len(events[:cut]), journal)
    for offset, event in enumerate(books[cut // 5 :], len(books[: cut // 5])):
        library.apply(offset, event)
    repeated = again(journal, library, original.event)
    assert repeated.reply == original.reply
    assert repeated.event == original.event


def test_record_from_before_a_setting_was_added_is_answered_again() -> None:
    journal, library = fold([builders.turn_recorded(0)]), LibraryState(EMBEDDER.name)
    request = Request(request_id="q", kind="assemble", user_id="u42", role_id="lin", query="馄饨")
    event: RecallAnswered = answered(journal, library, request).event
    old = {
        part: {name: value for name, value in values.items() if name not in ("scene_weight", "pool")}
        if isinstance(values, dict)
        else values
        for part, values in event.parameters.items()
    }
    del old["rerank"]
    found = again(journal, library, dataclasses.replace(event, parameters=old))
    assert found.reply.messages_sha256 == event.messages_sha256
