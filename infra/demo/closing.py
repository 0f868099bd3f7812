"""The last steps of the demo: a fact that is corrected, with its history, and one round of the closed loop.

No model runs here. The loop's answer is written in model.toml and is labelled as scripted wherever it is shown; what is
real is everything around it: memory, prompt, parser, check, and the turns and the atom that come of the round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from rich.console import Console

from connectors.client import Client
from connectors.llm import HttpChatModel
from infra.commands_chat import why
from infra.commands_memory import facts_table
from infra.listening import listening
from infra.model_server import MODEL, Script, Server
from schemas.memories import Fact
from schemas.recalls import Reply
from streams.closed_loop import Conversation

USER, ROLE = "mo", "lin"
SCRIPT = Path(__file__).parent / "model.toml"
STATEMENTS = (
    ("m-001", "我在一家出版社当编辑。", "2026-03-02T20:00:00+08:00"),
    ("m-002", "我换工作了，现在是图书管理员。", "2026-05-19T20:00:00+08:00"),
)
KEY, BEFORE, NOW = "occupation", "编辑", "图书管理员"
QUESTION = "我现在做什么工作？"
TIMEOUT_MS = 60_000
"""A busy machine may take long to embed what the questions wait for."""
FACTS_S_MAX = 30.0
"""How long the demo waits for the extraction of two turns, which takes a fraction of a second."""


async def corrected_fact(client: Client, out: Console) -> dict[str, Any]:
    """Two statements, the end of their session, and what memory makes of them."""
    owner: dict[str, Any] = {"user_id": USER, "role_id": ROLE}
    for turn_id, text, at in STATEMENTS:
        await client.post_turn(**owner, session_id="s-work", speaker="user", turn_id=turn_id, text=text, occurred_at=at)
    # The session's end must not overtake them.
    await client.recall("", **owner, after=[turn_id for turn_id, _, _ in STATEMENTS], timeout_ms=TIMEOUT_MS)
    await client.post_feedback(**owner, kind="session_end", target={"session_id": "s-work"})
    until = time.monotonic() + FACTS_S_MAX
    while True:
        reply = await client.read("facts", **owner, history=True)
        if holds_correction(reply.facts or ()) or time.monotonic() > until:
            break
        await asyncio.sleep(0.1)
    facts = reply.facts or ()
    out.rule("7. a fact that was corrected: facts --history")
    for _, text, at in STATEMENTS:
        out.print(f"{at[:10]}  {text}", highlight=False, markup=False)
    out.print(facts_table(facts, history=True))
    return {
        "query": "a corrected fact and its history",
        "found": holds_correction(facts),
        "facts": [{"key": fact.key, "value": fact.value, "status": fact.status} for fact in facts],
    }


def holds_correction(facts: tuple[Fact, ...]) -> bool:
    """Whether the newer value holds alone, and the older is there with the change that ended it."""
    by_value = {fact.value: fact for fact in facts if fact.key == KEY}
    before, now = by_value.get(BEFORE), by_value.get(NOW)
    if before is None or now is None:
        return False
    ended = [change.status for change in before.history or ()]
    return now.status == "active" and before.status == "superseded" and ended[:1] == ["active"] and len(ended) > 1


async def closed_loop(client: Client, out: Console) -> dict[str, Any]:
    """One round with the scripted model: prompt, answer, check, and the memory that it becomes."""
    out.rule("8. the closed loop, with a SCRIPTED model")
    async with scripted_model() as model:
        talk = Conversation(
            client,
            model,
            user_id=USER,
            role_id=ROLE,
            session_id="s-loop",
            ask={"limits": {"knowledge": 1}, "timeout_ms": TIMEOUT_MS},
        )
        said = await talk.answer(QUESTION)
    last = talk.last
    assert last is not None
    assert last.reply is not None
    out.print(f"{USER}: {QUESTION}", highlight=False, markup=False)
    out.print(f"lin (scripted, no model: its words stand in {SCRIPT.name}): {said}", highlight=False, markup=False)
    for line in why(last):
        out.print(line, style="dim", highlight=False, markup=False)
    turns = [turn for turn in (last.turn_id, last.answer_turn_id) if turn]
    after = await client.recall(QUESTION, user_id=USER, role_id=ROLE, after=turns, timeout_ms=TIMEOUT_MS)
    check = last.check
    passed = check is not None and check.passed and not check.needs_repair and not check.unknown_marks
    remembered = remembers(after, said) and check is not None and check.atom_id is not None
    found = passed and remembered and NOW in said and rests_on_fact(last.reply)
    told = "both turns and an atom of the round are in memory" if remembered else "the round is NOT in memory"
    out.print(told, highlight=False)
    return {"query": QUESTION, "model": "scripted", "said": said, "found": found}


def rests_on_fact(reply: Reply) -> bool:
    """Whether the fact that holds now is the first evidence of user memory."""
    return any(piece.mark == "M1" and NOW in piece.text for piece in reply.evidence or ())


def remembers(reply: Reply, said: str) -> bool:
    """Whether what was answered is found by the next question."""
    return any(said in piece.text for piece in reply.evidence or ())


@asynccontextmanager
async def scripted_model() -> AsyncIterator[HttpChatModel]:
    """The scripted endpoint on a free port, and a client of it."""
    runner = web.AppRunner(Server(Script.of_file(SCRIPT)).application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = listening("127.0.0.1", 0)
    await web.SockSite(runner, listener).start()
    model = HttpChatModel(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", MODEL)
    try:
        yield model
    finally:
        await model.stop()
        await runner.cleanup()
