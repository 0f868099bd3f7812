"""The codec: what is accepted comes back equal, what is not is told with a code; golden events decode for ever."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import (
    JOURNAL_EVENTS,
    LIBRARY_EVENTS,
    NEWEST_VERSION,
    PUBLIC,
    content_digest,
    decode,
    decode_event,
    encode,
    turn_of,
)
from schemas.envelope import ContractError, derived_id, instant_ms, instant_of
from schemas.topics import murmur2, partition_of
from schemas.upcasts import upcast
from tests import builders

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
GENERATED = ROOT / "schemas" / "generated"
TYPES: dict[str, type] = {**JOURNAL_EVENTS, **LIBRARY_EVENTS, **{cls.__name__: cls for cls, _, _ in PUBLIC.values()}}
TOPIC_OF = {cls.__name__: topic for topic, (cls, _, _) in PUBLIC.items()}

names = st.text(
    st.characters(min_codepoint=0x20, exclude_categories=["Cs"], exclude_characters="\x7f"), min_size=1, max_size=30
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=80)
spoken = texts.filter(lambda text: bool(text.strip()))
instants = st.builds(
    lambda ms, zone: (
        instant_of(ms)
        if zone is None
        else instant_of(ms + 60_000 * zone).replace(
            "Z", f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02d}:{abs(zone) % 60:02d}"
        )
    ),
    st.integers(-2_000_000_000_000, 10_000_000_000_000),
    st.none() | st.integers(-14 * 60, 14 * 60),
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
metadata = st.dictionaries(texts, values, max_size=3)


def message(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Messages in which any of the optional fields may be absent."""
    return st.fixed_dictionaries(required, optional=optional)


MESSAGES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "turns": message(
        {
            "turn_id": names,
            "user_id": names,
            "role_id": names,
            "session_id": names,
            "speaker": st.sampled_from(["user", "assistant"]),
            "text": spoken,
            "occurred_at": instants,
        },
        {
            "type": st.just("turn"),
            "version": st.just(1),
            "name": st.none() | texts,
            "model": texts,
            "recall_id": names,
            "captions": st.lists(texts, max_size=3),
            "metadata": metadata,
            "a field of the future": values,
        },
    ),
    "feedback": message(
        {
            "feedback_id": names,
            "user_id": names,
            "role_id": names,
            "kind": st.sampled_from(["confirm", "deny", "complaint", "review", "remember", "session_end"]),
            "occurred_at": instants,
        },
        {
            "target": st.one_of(
                [st.fixed_dictionaries({name: names}) for name in ("memory_id", "turn_id", "recall_id", "session_id")]
            ),
            "value": values,
            "text": texts,
            "author": texts,
        },
    ),
    "documents": message(
        {"document_id": names, "text": spoken},
        {"title": texts, "source": texts, "role_id": names, "published_at": instants, "metadata": metadata},
    ),
    "personas": message(
        {
            "role_id": names,
            "name": spoken,
            "core": texts.filter(bool),
            "boundaries": st.lists(texts.filter(bool), max_size=3),
            "declared_at": instants,
        },
        {
            "occupation": texts,
            "address": st.fixed_dictionaries({}, optional={"user": texts, "self": texts}),
            "style": st.fixed_dictionaries(
                {},
                optional={"tone": texts, "emoji": st.booleans() | texts, "words_avoided": st.lists(texts, max_size=2)},
            ),
            "notes": texts.filter(bool),
        },
    ),
    "requests": message(
        {
            "request_id": names,
            "kind": st.sampled_from(["assemble", "recall"]),
            "user_id": names,
            "role_id": names,
            "query": texts,
        },
        {
            "now": instants,
            "after": st.lists(names, max_size=3),
            "as_of": st.one_of(
                st.fixed_dictionaries({"offset": st.integers(-1, 2**40)}),
                st.fixed_dictionaries({"occurred_at": instants}),
                st.fixed_dictionaries({"turn_id": names}),
            ),
            "set": metadata,
            "limits": st.fixed_dictionaries({}, optional={"experience": st.integers(0, 200)}),
            "explain": st.booleans(),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("topic", sorted(MESSAGES))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_accepted_is_read_back_equal(topic: str, data: st.DataObject) -> None:
    raw = data.draw(MESSAGES[topic])
    decoded = decode(topic, orjson.dumps(raw))
    encoded = encode(decoded)
    assert decode(topic, encoded) == decoded
    assert encode(decode(topic, encoded)) == encoded
    _validate(type(decoded).__name__, orjson.loads(encoded))


@given(MESSAGES["turns"])
@settings(max_examples=60, deadline=None)
def test_turn_survives_the_journal(raw: dict[str, Any]) -> None:
    event = builders.intake.turn_recorded(orjson.dumps(raw), builders.position(), builders.at(0))
    again = decode_event(encode(event), JOURNAL_EVENTS)
    assert again == event
    assert turn_of(again) == decode("turns", orjson.dumps(raw))
    assert content_digest(again) == content_digest(turn_of(again))


@given(MESSAGES["turns"], st.sampled_from(["text", "session_id", "speaker", "occurred_at", "metadata"]))
@settings(max_examples=60, deadline=None)
def test_other_content_has_another_digest(raw: dict[str, Any], name: str) -> None:
    turn = decode("turns", orjson.dumps(raw))
    other: dict[str, Any] = {
        "text": turn.text + "!",
        "session_id": turn.session_id[:100] + "x",
        "speaker": "user" if turn.speaker == "assistant" else "assistant",
        "occurred_at": "2001-01-01T00:00:00.123Z",
        "metadata": {**(turn.metadata or {}), "a key that is new": 1},
    }
    assert content_digest(dataclasses.replace(turn, **{name: other[name]})) != content_digest(turn)


@given(st.binary(max_size=200) | values.map(orjson.dumps), st.sampled_from(sorted(PUBLIC)))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_message_or_a_contract_error(value: bytes, topic: str) -> None:
    for read in (lambda: decode(topic, value), lambda: decode_event(value, {**JOURNAL_EVENTS, **LIBRARY_EVENTS})):
        with suppress(ContractError):
            read()


@given(st.sampled_from(sorted(TYPES)), st.data())
@settings(max_examples=200, deadline=None)
def test_any_field_may_hold_anything_without_a_crash(name: str, data: st.DataObject) -> None:
    raw = orjson.loads((GOLDEN / f"{name}.v1.json").read_bytes())
    raw[data.draw(st.sampled_from(sorted(raw)))] = data.draw(values)
    with suppress(ContractError):
        _decode(name, orjson.dumps(raw))


# -- golden events are frozen: a file in tests/golden is never edited; a change of a type is a new version and file --


def _decode(name: str, value: bytes) -> Any:
    return decode(TOPIC_OF[name], value) if name in TOPIC_OF else decode_event(value, TYPES)


def _validate(name: str, value: Any) -> None:
    schema = orjson.loads((GENERATED / f"{name}.v1.schema.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_golden_event_is_read_and_written_as_it_ever_was(name: str) -> None:
    golden = (GOLDEN / f"{name}.v1.json").read_bytes()
    value = _decode(name, golden)
    assert type(value).__name__ == name
    written = orjson.loads(encode(value))
    frozen = orjson.loads(golden)
    # Optional fields that came later are written as null; nothing that was there may change or go.
    assert _as_before(written, frozen) == frozen


def _as_before(written: Any, frozen: Any) -> Any:
    """What was written without the empty fields that the frozen one doesn't have, at any depth."""
    if isinstance(written, dict) and isinstance(frozen, dict):
        return {
            key: _as_before(item, frozen.get(key))
            for key, item in written.items()
            if key in frozen or item not in (None, [], {})
        }
    if isinstance(written, list) and isinstance(frozen, list) and len(written) == len(frozen):
        return [_as_before(item, before) for item, before in zip(written, frozen, strict=True)]
    return written


@pytest.mark.parametrize("name", sorted(TYPES))
def test_generated_schema_accepts_the_golden_event(name: str) -> None:
    _validate(name, orjson.loads((GOLDEN / f"{name}.v1.json").read_bytes()))


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_required_field_is_required_by_codec_and_schema(name: str) -> None:
    golden = orjson.loads((GOLDEN / f"{name}.v1.json").read_bytes())
    required = [
        field.name
        for field in dataclasses.fields(TYPES[name])
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    assert required
    for field_name in required:
        without = {key: value for key, value in golden.items() if key != field_name}
        with pytest.raises(ContractError, match=field_name):
            _decode(name, orjson.dumps(without))
        with pytest.raises(jsonschema.ValidationError):
            _validate(name, without)


@pytest.mark.parametrize("kind", ["facts", "conflicts", "summaries", "persona", "transcript"])
def test_reads_take_no_query_and_searches_need_one(kind: str) -> None:
    request = {"request_id": "q", "user_id": "u", "role_id": "r"}
    assert decode("requests", orjson.dumps(request | {"kind": kind})).query == ""
    with pytest.raises(ContractError, match="query"):
        decode("requests", orjson.dumps(request | {"kind": "recall"}))


def test_there_is_a_golden_event_of_every_type_and_version() -> None:
    wanted = {f"{name}.v{version}.json" for name in TYPES for version in range(1, NEWEST_VERSION.get(name, 1) + 1)}
    assert {file.name for file in GOLDEN.glob("*.v*.json")} == wanted


def test_version_is_lifted_one_at_a_time() -> None:
    upcasts = {
        ("T", 1): lambda raw: {**raw, "b": raw["a"]},
        ("T", 2): lambda raw: {**raw, "c": raw["b"]},
    }
    assert upcast({"a": 1, "version": 1}, "T", 3, upcasts) == {"a": 1, "b": 1, "c": 1, "version": 3}
    for version in (0, 4, "1", None, True, 1.0):
        with pytest.raises(ContractError, match="version"):
            upcast({"version": version}, "T", 3, upcasts)


# -- small parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(text: str, expected: int) -> None:
    """Vectors of org.apache.kafka.common.utils.UtilsTest.testMurmur2."""
    assert murmur2(text.encode()) == expected & 0xFFFFFFFF


@given(names, names, st.integers(1, 4096))
def test_partition_is_within_the_count(user_id: str, role_id: str, count: int) -> None:
    assert 0 <= partition_of(user_id, role_id, count) < count


@given(st.integers(-2_208_988_800_000, 10_413_791_999_999))
def test_instants_and_milliseconds_are_the_same(milliseconds: int) -> None:
    assert instant_ms(instant_of(milliseconds)) == milliseconds


@given(st.integers())
def test_any_timestamp_gives_an_instant_that_can_be_read(milliseconds: int) -> None:
    instant_ms(instant_of(milliseconds))


@pytest.mark.parametrize(
    "instant",
    [
        "1900-01-01T00:00:00+00:01",
        "2299-12-31T23:59:59-00:01",
        "1899-12-31T23:59:59Z",
        "2300-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2026-02-29T00:00:00Z",
        "2026-05-20T24:00:00Z",
        "2026-05-20T00:00:60Z",
        "2026-05-20T00:00:00",
        "2026-05-20T00:00:00+25:00",
        "2026-05-20",
        "",
        "now",
        "２０２６-05-20T00:00:00Z",
        "2026-05-20T00:00:00Z\n",
    ],
)
def test_time_that_cannot_be_stored_is_refused(instant: str) -> None:
    with pytest.raises(ContractError) as raised:
        instant_ms(instant)
    assert raised.value.code == "bad_time"


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_ids_of_different_parts_differ(left: list[str], right: list[str]) -> None:
    assert (derived_id(*left) == derived_id(*right)) == (left == right)
