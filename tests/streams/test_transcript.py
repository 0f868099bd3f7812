"""The transcript: complete, of the owner that was asked for and of no other, found without a scan."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.archiver import PARTS_MAX
from streams.segment_store import ArchiveError
from streams.transcript import NotInTranscript, Session, TranscriptReader
from tests.streams.archives import JOURNAL, Bench, quick


async def _archive(bench: Bench, limit: int | None = None) -> None:
    archiver = await bench.archiver()
    await bench.feed(archiver, limit)
    await archiver.write()


async def _read(bench: Bench, session: Session, **given):
    reader = TranscriptReader(bench.store)
    archived = await reader.archived(session, 0)
    tail = bench.log.read(JOURNAL, 0, archived.archived_to)
    return await reader.read(session, 0, archived, tail, read_to=bench.log.end(JOURNAL, 0), **given)


def _ids(transcript):
    return [said.turn.turn_id for said in transcript.turns]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_each_session_is_complete_and_no_other_owner_is_ever_shown(seed: int) -> None:
    asyncio.run(_sessions(random.Random(seed)))


async def _sessions(rng: random.Random) -> None:
    bench = Bench(quick(bytes_max=rng.choice((2_000, 50_000))))
    said: dict[tuple[str, str, str], list[str]] = {}
    for number in range(rng.randrange(1, 80)):
        # The same session and turn ids with several owners, as importers of many users make them.
        owner = (rng.choice("ab"), rng.choice(("lin", "mei")), rng.choice(("s1", "s2")))
        turn_id = f"t{rng.randrange(40)}"
        bench.say(1, user_id=owner[0], role_id=owner[1], session_id=owner[2], turn_id=turn_id, text=f"{owner} {number}")
        known = {t for other, ids in said.items() if other[:2] == owner[:2] for t in ids}
        said.setdefault(owner, [])
        if turn_id not in known:
            said[owner].append(turn_id)
    await _archive(bench, rng.randrange(0, 81))
    for owner, ids in said.items():
        found = await _read(bench, Session(*owner))
        assert [i for i in _ids(found) if i in ids] == ids
        assert all((s.turn.user_id, s.turn.role_id, s.turn.session_id) == owner for s in found.turns)
        assert all(s.turn.text.startswith(str(owner)) for s in found.turns)
        assert all((s.source == "archive") == (s.offset < found.archived_to) for s in found.turns)


async def test_the_first_content_of_a_turn_counts() -> None:
    bench = Bench()
    bench.say(1, turn_id="t", text="first")
    bench.say(1, turn_id="t", text="another")
    await _archive(bench, 1)
    assert [said.turn.text for said in (await _read(bench, Session("u42", "lin", "s1"))).turns] == ["first"]


@pytest.mark.parametrize("archived", [0, 10, 25, 40])
async def test_a_turn_is_shown_with_its_neighbours(archived: int) -> None:
    bench = Bench(quick(bytes_max=3_000))
    for number in range(40):
        bench.say(1, session_id=f"s{number % 2}")
    await _archive(bench, archived)
    session = Session("u42", "lin", "s0")
    assert _ids(await _read(bench, session, around="t20", context=2)) == ["t16", "t18", "t20", "t22", "t24"]
    assert _ids(await _read(bench, session, around="t0", context=1)) == ["t0", "t2"]
    assert _ids(await _read(bench, session, around="t38", context=0)) == ["t38"]
    with pytest.raises(NotInTranscript, match=r"has 20 turns, none of them 't21'"):
        await _read(bench, session, around="t21")


async def test_unknown_owners_sessions_and_turns_are_told_apart() -> None:
    bench = Bench()
    bench.say(4)
    for archived in (0, 2, 4):
        await _archive(bench, archived)
        with pytest.raises(NotInTranscript, match="no turn of user 'u42' with role 'mei' is known"):
            await _read(bench, Session("u42", "mei", "s1"))
        with pytest.raises(NotInTranscript, match="user 'u42' with role 'lin' has no session 's9'"):
            await _read(bench, Session("u42", "lin", "s9"))


async def test_a_lookup_reads_a_tail_of_each_segment_and_the_blocks_of_the_turn_only() -> None:
    bench = Bench(quick(bytes_max=30_000))
    rng = random.Random(1)
    for number in range(600):
        bench.say(1, user_id=f"u{number // 30}", session_id="s", text=rng.randbytes(1_000).hex())
    await _archive(bench)
    segments = len(bench.segments())
    assert segments > 15
    bench.objects.reads.clear()
    found = await _read(bench, Session("u7", "lin", "s"), around="t225", context=1)
    assert _ids(found) == ["t224", "t225", "t226"]
    # One listing, a tail each, and of at most three segments (the owner's turns lie in two, a false hit) an index and
    # a block.
    assert len(bench.objects.reads) <= 1 + segments + 3 * 2


async def test_a_segment_that_is_replaced_while_it_is_read_is_looked_for_anew() -> None:
    bench = Bench()
    archiver = await bench.archiver()
    states = []
    for _ in range(2 * PARTS_MAX):
        bench.say(1, text=random.Random(1).randbytes(40_000).hex())
        await bench.feed(archiver)
        await archiver.write()
        states.append(dict(bench.objects.objects))
    before, after = next(pair for pair in pairwise(states) if len(pair[1]) < len(pair[0]))

    def fault(operation: str, path: str) -> None:
        if operation == "get" and path not in after:
            bench.objects.objects = dict(after)

    bench.objects.objects = dict(before)
    bench.objects.fault = fault
    assert len(_ids(await _read(bench, Session("u42", "lin", "s1")))) == 2 * PARTS_MAX
    assert bench.objects.objects == after


async def test_damage_is_told_with_the_object() -> None:
    bench = Bench()
    bench.say(4)
    await _archive(bench)
    path = f"archive/{JOURNAL}/0/{bench.segments()[0]}"
    data = bytearray(bench.objects.objects[path])
    data[40] ^= 1
    bench.objects.objects[path] = bytes(data)
    with pytest.raises(ArchiveError, match="the block of offsets 0 to 3 is damaged"):
        await _read(bench, Session("u42", "lin", "s1"))
