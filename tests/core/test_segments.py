"""Segments: bytes in are bytes out, damage is noticed, turns are found, chains have neither gap nor double."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.zstd import compress, decompress
from schemas.codec import encode
from streams.core.chains import (
    BrokenChain,
    Span,
    chain_of,
    span_of,
    superfluous,
    whole_chain,
)
from streams.core.segments import (
    ArchivedRecord,
    DamagedSegment,
    blocks_of,
    decode_block,
    decode_directory,
    directory_length,
    encode_block,
    encode_segment,
    find_in_index,
    owner_hash,
    owner_in_index,
    records_of,
    session_hash,
    turn_hash,
)
from tests.builders import turn_recorded


def recorded(**given):
    """The value of a turn's event."""
    return encode(turn_recorded(**given))


optional_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3).map(tuple)
ids = st.text(st.characters(exclude_categories=("C",)), max_size=4)
contents = st.lists(
    st.tuples(st.integers(-(2**40), 2**45), optional_bytes, optional_bytes, headers), min_size=1, max_size=30
)


def _records(rows, first=0):
    return [ArchivedRecord(first + number, *row) for number, row in enumerate(rows)]


def _segment(records, per_block):
    parts = [records[start : start + per_block] for start in range(0, len(records), per_block)]
    return encode_segment("t", 3, [encode_block(part, compress) for part in parts])


@given(contents, st.integers(1, 9), st.integers(0, 2**40))
def test_records_come_back_byte_for_byte(rows, per_block, first):
    records = _records(rows, first)
    segment = _segment(records, per_block)
    directory = decode_directory(segment)
    found = []
    for place in directory.blocks:
        found += decode_block(segment[place.at : place.at + place.length], place, decompress)
    assert found == records
    assert [r for block in blocks_of(segment, directory) for r in records_of(block, decompress)] == records
    assert (directory.first, directory.next) == (first, first + len(records))
    assert directory.time_max == max(record.timestamp for record in records)
    assert _segment(records, per_block) == segment


@settings(max_examples=200)
@given(st.data())
def test_a_changed_byte_is_noticed_wherever_it_is(data):
    turns = [ArchivedRecord(n, n, b"k", recorded(turn_id=f"t{n}"), ()) for n in range(12)]
    segment = bytearray(_segment(turns, 4))
    place = data.draw(st.integers(0, len(segment) - 1))
    segment[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedSegment):
        blocks_of(bytes(segment), decode_directory(bytes(segment)))


def test_a_segment_that_was_cut_is_noticed():
    segment = _segment([ArchivedRecord(n, n, None, b"x" * 50, ()) for n in range(9)], 3)
    for length in range(len(segment)):
        with pytest.raises(DamagedSegment):
            decode_directory(segment[:length])


def test_the_tail_says_how_much_of_it_is_needed():
    segment = _segment([ArchivedRecord(n, n, None, b"x", ()) for n in range(300)], 1)
    length = directory_length(segment[-64:])
    assert decode_directory(segment[-length:]) == decode_directory(segment)
    with pytest.raises(DamagedSegment, match=f"has {length} bytes, only 64"):
        decode_directory(segment[-64:])


def test_turns_are_found_by_owner_session_and_id_and_nothing_else_is():
    records = [
        ArchivedRecord(n, n, None, recorded(user_id=f"u{n % 3}", session_id=f"s{n % 4}", turn_id=f"t{n}"), ())
        for n in range(60)
    ] + [
        ArchivedRecord(60, 60, None, b'{"type":"TurnEmbedded","turn_id":"t1"}', ()),
        ArchivedRecord(61, 61, None, b"{"),
    ]
    segment = _segment(records, 7)
    directory = decode_directory(segment)
    index = segment[directory.index_at : directory.index_at + directory.index_length]
    hits = find_in_index(index, directory, session_hash("u1", "lin", "s0"))
    blocks = blocks_of(segment, directory)
    found = [records_of(blocks[hit.block], decompress)[hit.row] for hit in hits]
    wanted = [record for record in records[:60] if record.offset % 3 == 1 and record.offset % 4 == 0]
    assert found == wanted
    assert [hit.turn for hit in hits] == [turn_hash(f"t{record.offset}") for record in wanted]
    assert owner_in_index(index, directory, owner_hash("u1", "lin"))
    assert not owner_in_index(index, directory, owner_hash("u1", "mei"))
    assert find_in_index(index, directory, session_hash("u1", "mei", "s0")) == []


@given(st.sets(st.tuples(ids, ids), max_size=40))
def test_the_filter_never_misses_an_owner_or_a_session(pairs):
    records = [
        ArchivedRecord(n, n, None, recorded(user_id=f"u{user}", session_id=f"s{session}"), ())
        for n, (user, session) in enumerate(sorted(pairs))
    ] or [ArchivedRecord(0, 0, None, b"x", ())]
    directory = decode_directory(_segment(records, 5))
    for user, session in pairs:
        assert directory.may_hold(owner_hash(f"u{user}", "lin"))
        assert directory.may_hold(session_hash(f"u{user}", "lin", f"s{session}"))


def test_the_filter_keeps_most_segments_from_being_read():
    records = [ArchivedRecord(n, n, None, recorded(session_id=f"s{n}"), ()) for n in range(500)]
    directory = decode_directory(_segment(records, 100))
    assert sum(directory.may_hold(session_hash("u42", "lin", f"other{n}")) for n in range(1000)) < 30


def test_ids_do_not_run_into_each_other():
    assert session_hash("a", "bc", "d") != session_hash("ab", "c", "d")
    assert owner_hash("a", "bc") != owner_hash("ab", "c")


spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda pair: Span(pair[0], pair[0] + pair[1])), max_size=12
)


@given(spans)
def test_a_chain_reads_each_offset_once_up_to_the_first_that_is_missing(found):
    links = chain_of(found)
    ends = [link.start for link in links[1:]] + [link.span.next for link in links[-1:]]
    read = [offset for link, end in zip(links, ends, strict=True) for offset in range(link.start, end)]
    covered = {offset for span in found for offset in range(span.first, span.next)}
    expected = []
    at = min(covered, default=0)
    while at in covered:
        expected.append(at)
        at += 1
    assert read == expected
    assert all(link.span.first <= link.start < link.span.next for link in links)


@given(spans, st.randoms(use_true_random=False))
def test_the_order_of_a_listing_and_superfluous_segments_change_no_chain(found, rng):
    links = chain_of(found)
    shuffled = list(found)
    rng.shuffle(shuffled)
    assert chain_of(shuffled) == links
    gone = superfluous(found, links)
    assert chain_of([span for span in found if span not in gone]) == links


def test_missing_offsets_are_named():
    assert [link.span for link in whole_chain([Span(0, 5), Span(5, 6)], first=0)] == [Span(0, 5), Span(5, 6)]
    assert whole_chain([], first=0) == ()
    with pytest.raises(BrokenChain, match="offsets 0 to 6 are missing"):
        whole_chain([Span(7, 9)], first=0)
    with pytest.raises(BrokenChain, match="offsets 5 to 6 are missing"):
        whole_chain([Span(0, 5), Span(7, 9), Span(20, 30)])


def test_only_names_of_segments_are_spans():
    assert span_of(Span(7, 2**62).name) == Span(7, 2**62)
    for name in ("topic.json", Span(0, 1).name + "#1", "0-1.zst", f"{5:020d}-{5:020d}.zst", f"{6:020d}-{5:020d}.zst"):
        assert span_of(name) is None


def test_a_block_covers_the_hole_before_it():
    block = encode_block([ArchivedRecord(8, 0, None, b"x")], compress, first=5)
    assert (block.first, block.next, block.count) == (5, 9, 1)
    with pytest.raises(ValueError, match="begins before"):
        encode_segment("t", 0, [block, block])


def test_what_is_no_turn_is_kept_and_not_indexed():
    values = (b'"TurnRecorded"', orjson.dumps({"type": "TurnRecorded"}), orjson.dumps(["TurnRecorded"]), None, b"")
    block = encode_block([ArchivedRecord(n, 0, None, value) for n, value in enumerate(values)], compress)
    assert block.turns == ()
    assert [record.value for record in records_of(block, decompress)] == list(values)
