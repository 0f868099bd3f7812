"""The Python client against real stacks: read your own writes, as of, personas, documents, privacy, typed errors."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from connectors.clickhouse import ClickHouse
from connectors.client import Client, SyncClient
from connectors.errors import BadRequest, DeadlineExceeded, TurnNotSeen, UnknownPreset

pytestmark = pytest.mark.integration


def _user() -> str:
    return f"u-{uuid.uuid4()}"


@pytest.fixture
async def client(stack):
    async with Client(stack.addresses.kafka, prefix=stack.addresses.prefix) as made:
        yield made


async def _say(client: Client, user: str, *texts: str, role: str = "lin") -> list[str]:
    ids = []
    for index, text in enumerate(texts):
        speaker = "user" if index % 2 == 0 else "assistant"
        at = f"2026-05-{1 + index // 20:02d}T10:{index % 60:02d}:00+08:00"
        ids.append(
            await client.post_turn(
                user_id=user, role_id=role, session_id="s1", speaker=speaker, text=text, occurred_at=at
            )
        )
    return ids


async def test_a_client_reads_its_own_writes(client):
    user = _user()
    for index in range(5):
        turn = await client.post_turn(
            user_id=user, role_id="lin", session_id="s", speaker="user", text=f"my locker number is {index}{index}7"
        )
        reply = await client.recall("locker number", user_id=user, role_id="lin", after=[turn])
        assert turn in [item.turn_id for item in reply.evidence]


async def test_paraphrases_are_found_by_vectors_in_both_languages(client):
    user = _user()
    turns = await _say(
        client,
        user,
        "我对花生过敏，吃了会喘不上气",
        "记住了",
        "My sister works as a nurse in Leeds",
        "Noted",
        "今天下雨了",
    )
    reply = await client.recall("what food should I avoid?", user_id=user, role_id="lin", after=turns)
    assert turns[0] in [item.turn_id for item in reply.evidence[:3]]
    assert all("vector" in item.parts for item in reply.evidence)


async def test_as_of_answers_from_the_past(client):
    user = _user()
    only = {"user_id": user, "role_id": "lin", "limits": {"knowledge": 0}}
    turns = await _say(client, user, "I live in Porto", "Nice", "I moved to Turin", "Good luck", "I love trams")
    now = await client.recall("where do I live?", **only, after=turns)
    assert {turns[0], turns[2]} <= {item.turn_id for item in now.evidence}
    for as_of in ({"turn_id": turns[1]}, {"round": 1}, {"occurred_at": "2026-05-01T10:01:30+08:00"}):
        then = await client.recall("where do I live?", **only, as_of=as_of)
        assert {item.turn_id for item in then.evidence} <= set(turns[:2]), as_of
        assert turns[0] in {item.turn_id for item in then.evidence}
        assert then.round == 2
    offset = then.watermark.journal
    again = await client.recall("where do I live?", **only, as_of={"offset": next(iter(offset.values()))})
    assert {item.turn_id for item in again.evidence} <= set(turns[:2])
    before = await client.recall("where do I live?", **only, as_of={"offset": -1})
    assert before.evidence == ()


async def test_a_document_is_learned_replaced_and_removed(client):
    user, document = _user(), f"d-{uuid.uuid4()}"
    word = f"zorblax{uuid.uuid4().hex[:8]}"

    async def found(query: str, wanted: str | None) -> bool:
        until = time.monotonic() + 40
        while time.monotonic() < until:
            reply = await client.recall(query, user_id=user, role_id="lin")
            texts = [item.text for item in reply.evidence if item.document_id == document]
            if (not texts) if wanted is None else any(wanted in text for text in texts):
                return True
            await asyncio.sleep(0.2)
        return False

    await client.learn(f"The {word} is fed with blue lettuce.", document_id=document, title="Zoo")
    assert await found(f"what does the {word} eat", "blue lettuce")
    await client.learn(f"The {word} is fed with red beans.", document_id=document, title="Zoo")
    assert await found(f"what does the {word} eat", "red beans")
    await client.learn(None, document_id=document, deleted=True)
    assert await found(f"what does the {word} eat", None)


async def test_the_anchor_stands_first_in_the_system_message(client):
    role = f"role-{uuid.uuid4()}"
    await client.declare_persona(
        {"role_id": role, "name": "Mira", "core": "A lighthouse keeper.", "boundaries": ["Never claims to be human."]}
    )
    until = time.monotonic() + 20
    while True:
        reply = await client.assemble("Who are you?", user_id="u", role_id=role)
        if reply.anchor is not None or time.monotonic() > until:
            break
        await asyncio.sleep(0.1)
    system = reply.messages[0]
    assert system.role == "system"
    assert "Mira" in system.content
    assert "A lighthouse keeper." in system.content
    assert "Never claims to be human." in system.content


async def test_an_owner_never_sees_another_owners_turns(client):
    alice, bob = _user(), _user()
    (secret,) = await _say(client, alice, "my secret word is marzipan")
    (other,) = await _say(client, bob, "the weather is fine")
    (third,) = await _say(client, alice, "as a doctor I prescribe walks", role="doctor")
    for user, role, own in ((bob, "lin", {other}), (alice, "doctor", {third}), (_user(), "lin", set())):
        reply = await client.assemble("what is the secret word marzipan?", user_id=user, role_id=role, after=list(own))
        assert {item.turn_id for item in reply.evidence if item.path == "experience"} <= own
        assert "my secret word" not in "".join(message.content for message in reply.messages)
    reply = await client.recall("secret word", user_id=alice, role_id="lin", after=[secret])
    assert [item.turn_id for item in reply.evidence if item.path == "experience"] == [secret]


async def test_the_same_turn_twice_is_one_and_other_content_is_a_dead_letter(client, stack):
    user, turn_id = _user(), f"t-{uuid.uuid4()}"
    turn = {
        "user_id": user,
        "role_id": "lin",
        "session_id": "s",
        "speaker": "user",
        "turn_id": turn_id,
        "occurred_at": "2026-05-01T10:00:00Z",
    }
    for text in ("the first words", "the first words", "other words"):
        await client.post_turn(text=text, **turn)
    reply = await client.recall("words", user_id=user, role_id="lin", after=[turn_id])
    assert [item.text for item in reply.evidence if item.path == "experience"] == ["the first words"]
    clickhouse = ClickHouse(stack.addresses.clickhouse, "mnemolog")
    until = time.monotonic() + 30
    while time.monotonic() < until:
        letters = clickhouse.rows(
            "SELECT error_code FROM dead_letters WHERE error_message LIKE {id:String}",
            {"id": f"%{turn_id}%"},
        )
        texts = clickhouse.rows("SELECT text FROM turns WHERE turn_id = {id:String}", {"id": turn_id})
        if letters and texts:
            break
        await asyncio.sleep(0.2)
    clickhouse.close()
    assert letters == [("conflicting_duplicate",)]
    assert texts == [("the first words",)]


async def test_errors_are_typed(client):
    with pytest.raises(UnknownPreset, match="balanced"):
        await client.recall("q", user_id="u", role_id="r", preset="nope")
    with pytest.raises(BadRequest, match="lambda_hours"):
        await client.recall("q", user_id="u", role_id="r", set={"experience.lambda_hours": -1})
    with pytest.raises(BadRequest, match="occurred_at"):
        await client.post_turn(
            user_id="u", role_id="r", session_id="s", speaker="user", text="x", occurred_at="yesterday"
        )
    with pytest.raises(TurnNotSeen, match="t-none"):
        await client.recall("q", user_id=_user(), role_id="r", after=["t-none"], timeout_ms=2000)
    with pytest.raises(BadRequest, match="t-none"):
        await client.recall("q", user_id=_user(), role_id="r", as_of={"turn_id": "t-none"})


@pytest.mark.parametrize("query", ["", "   ", "the of and", "😀🎉", "？！。", "字" * 100_000])
async def test_odd_queries_get_a_clear_answer(client, query):
    user = _user()
    turns = await _say(client, user, "hello there", "hi")
    reply = await client.assemble(query, user_id=user, role_id="lin", after=turns, timeout_ms=20_000)
    assert reply.status == "ok"


def test_the_sync_face_does_the_same(stack):
    with SyncClient(stack.addresses.kafka, prefix=stack.addresses.prefix) as client:
        user = _user()
        turn = client.post_turn(user_id=user, role_id="lin", session_id="s", speaker="user", text="我的猫叫芝麻")
        reply = client.recall("猫叫什么", user_id=user, role_id="lin", after=[turn])
        assert [item.turn_id for item in reply.evidence if item.path == "experience"] == [turn]
        with pytest.raises(AttributeError):
            client.nonsense  # noqa: B018


async def test_no_memory_role_means_a_deadline_error(stack):
    from connectors.kafka import create_topics

    prefix = f"empty-{uuid.uuid4().hex[:6]}."
    await create_topics(stack.addresses.kafka, prefix, 1, 1)
    async with Client(stack.addresses.kafka, prefix=prefix) as client:
        with pytest.raises(DeadlineExceeded, match="memory role"):
            await client.recall("q", user_id="u", role_id="r", timeout_ms=1500)
