"""The chat in a terminal, on a stage with a scripted model: its commands, its errors, Chinese, and what it stops."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from connectors.inprocess import ScriptedChatModel
from connectors.ports import Unavailable
from infra.commands_chat import Chat, Endpoint, http_model, lines_of, why
from infra.stack_options import UsageError
from schemas.recalls import Message
from streams.closed_loop import Conversation
from tests import builders
from tests.streams.stage import Stage
from tests.streams.stage_client import StageClient


def told(response: str) -> str:
    """An output in form."""
    return f"<analysis>Needs experience. E1 says so.</analysis><response>{response}</response>"


class Terminal:
    """A chat on a stage, with what it printed."""

    def __init__(self, model: ScriptedChatModel, *, hold: bool = True, language: str = "en") -> None:
        self.stage = Stage()
        self.language = language
        self.memory = StageClient(self.stage)
        self.out, self.errors = io.StringIO(), io.StringIO()
        self.made: list[tuple[str, str, str | None]] = []
        talk = Conversation(self.memory, model, user_id="u42", role_id="lin", session_id="s1", hold=hold)
        self.chat = Chat(
            talk, self.memory, Endpoint("scripted", "http://a/v1", "KEY"), self.model, out=self.out, errors=self.errors
        )

    def model(self, name: str, url: str, key_env: str | None) -> ScriptedChatModel:
        self.made.append((name, url, key_env))
        return ScriptedChatModel(lambda _: told(f"It is {name} now."), name)

    async def type(self, *lines: str) -> str:
        """What the chat prints for these lines."""
        begun = self.out.tell()
        persona = builders.persona(name="Lin", language=self.language, boundaries=["Never gives medical doses."])
        await self.stage.post("personas", persona)
        await self.stage.catch_up()
        await self.chat.run(lines_of(io.StringIO("".join(line + "\n" for line in lines))))
        return self.out.getvalue()[begun:]

    def turns(self) -> list[tuple[str, str]]:
        return [(e["speaker"], e["text"]) for e in self.stage.events() if e["type"] == "TurnRecorded"]


async def test_piped_lines_are_answered_and_both_turns_posted() -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("馄饨，荠菜猪肉馅。")), language="zh")
    printed = await terminal.type("我昨天吃了什么？", "", "/quit", "never said")
    assert printed == "馄饨，荠菜猪肉馅。\n"
    assert terminal.turns() == [("user", "我昨天吃了什么？"), ("assistant", "馄饨，荠菜猪肉馅。")]
    assert terminal.errors.getvalue() == ""


async def test_why_shows_evidence_by_mark_analysis_and_grade() -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("You had wontons.")))
    await terminal.memory.post_turn(
        user_id="u42", role_id="lin", session_id="s0", speaker="user", text="Yesterday I had wontons for dinner"
    )
    printed = await terminal.type("What did I have for dinner?", "/why")
    assert "[E1]*" in printed
    assert "Yesterday I had wontons" in printed
    assert "analysis: Needs experience. E1 says so." in printed
    assert "grade (rules): plausibility" in printed


async def test_model_is_swapped_in_mid_conversation_and_a_key_stays_with_its_endpoint() -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("First.")))
    printed = await terminal.type(
        "a", "/model second", "b", "/model third http://b/v1", "c", "/model x http://c/v1 OTHER"
    )
    assert "It is second now." in printed
    assert "It is third now." in printed
    assert terminal.made == [
        ("second", "http://a/v1", "KEY"),
        ("third", "http://b/v1", None),
        ("x", "http://c/v1", "OTHER"),
    ]
    models = [
        e["model"] for e in terminal.stage.events() if e["type"] == "TurnRecorded" and e["speaker"] == "assistant"
    ]
    assert models == ["scripted", "second", "third"]


async def test_as_of_answers_from_then_and_posts_nothing() -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("So it was.")))
    await terminal.type("My locker is number 417.")
    before = terminal.turns()
    asked = terminal.chat.conversation.model.asked  # type: ignore[attr-defined]
    printed = await terminal.type("My locker is number 933 now.", "/as-of round:1", "Which locker?", "/as-of now")
    assert "as of round:1: nothing is posted" in printed
    assert [text for _, text in terminal.turns()[len(before) :]] == ["My locker is number 933 now.", "So it was."]
    prompt = "\n".join(message.content for message in asked[-1])
    assert "417" in prompt
    assert "933" not in prompt
    atoms = [e for e in terminal.stage.events() if e["type"] == "AtomDistilled"]
    assert len(atoms) == 2, "what is asked as of the past becomes none"
    assert terminal.chat.conversation.as_of is None


async def test_forget_last_takes_the_atom_from_recall_and_says_that_the_turns_stay() -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("Noted, the kayak is red.")))
    await terminal.type("My kayak is red.")

    async def found(path: str) -> list[str]:
        reply = await terminal.memory.ask(kind="recall", query="red kayak", user_id="u42", role_id="lin")
        return [piece.text for piece in reply.evidence or () if piece.path == path]

    assert any("kayak" in text for text in [*await found("memory"), *await found("experience")])
    owner = terminal.stage.memory.shards[terminal.stage.home()].state.owners["u42", "lin"]
    (atom,) = [e["memory_id"] for e in terminal.stage.events() if e["type"] == "AtomDistilled"]
    printed = await terminal.type("/forget-last")
    assert "Not undone: the two turns stay" in printed
    feedback = [e for e in terminal.stage.events() if e["type"] == "FeedbackRecorded"]
    assert [e["kind"] for e in feedback] == ["deny"] * 3
    assert [e["target"]["memory_id"] for e in feedback] == [atom, None, None]
    assert [e["target"]["turn_id"] is not None for e in feedback] == [False, True, True]
    assert owner.memory is not None
    assert await found("memory") == []
    assert any("kayak is red" in text for text in await found("experience")), "as the command says"


async def test_facts_of_nobody_are_told_so() -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("Yes.")))
    assert await terminal.type("/facts") == "no facts\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/nonsense", "there is no command /nonsense"),
        ("/as-of", "takes a point in time"),
        ("/as-of the day before", "no point in time"),
        ("/model", "takes a name"),
        ("/why", "nothing was said"),
        ("/forget-last", "no round to forget"),
    ],
)
async def test_wrong_command_is_one_sentence_and_the_chat_goes_on(line: str, says: str) -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("Still here.")))
    assert await terminal.type(line, "Hello?") == "Still here.\n"
    assert terminal.errors.getvalue().count("\n") == 1
    assert says in terminal.errors.getvalue()


async def test_model_that_is_away_is_one_sentence_and_the_chat_goes_on() -> None:
    model = ScriptedChatModel(lambda _: told("Back."))
    terminal = Terminal(model)
    model.away = True
    await terminal.type("Hello?")
    assert "the model is away" in terminal.errors.getvalue()
    model.away = False
    assert "Back." in await terminal.type("And now?")


async def test_ctrl_c_stops_the_answer_keeps_what_was_shown_and_the_chat_goes_on() -> None:
    class Endless(ScriptedChatModel):
        def __init__(self) -> None:
            super().__init__(lambda _: told("Done."))
            self.begun = asyncio.Event()

        async def stream(self, messages: Sequence[Message], **_: Any) -> AsyncIterator[str]:  # type: ignore[override]
            yield "<analysis>none</analysis><response>One two three "
            yield "four "
            self.begun.set()
            await asyncio.Event().wait()

    model = Endless()
    terminal = Terminal(model, hold=False)
    typing = asyncio.create_task(terminal.type("Count.", "/help"))
    await model.begun.wait()
    assert terminal.chat.stop_answer()
    printed = await typing
    assert "(stopped)" in printed
    assert "/forget-last" in printed
    assert terminal.turns()[-1][1].startswith("One two")
    assert not terminal.chat.stop_answer()


async def test_streamed_answer_that_breaks_the_persona_is_told_as_such() -> None:
    terminal = Terminal(ScriptedChatModel(lambda _: told("As an AI language model, I have no name.")), hold=False)
    assert "it did not pass the check" in await terminal.type("Who are you?")


def test_key_that_is_not_set_and_what_is_no_url_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UsageError, match="NO_SUCH_KEY"):
        http_model("m", "http://a/v1", "NO_SUCH_KEY")
    for url in ("localhost:8000", "http://[bad", "http://", "http://host:99999/v1", "ftp://host/v1"):
        with pytest.raises(UsageError, match="base URL"):
            http_model("m", url, None)


async def test_why_of_a_round_without_a_grade_says_so() -> None:
    model = ScriptedChatModel(lambda _: "")
    terminal = Terminal(model)
    model.answer = _away
    await terminal.type("Hello?")
    assert terminal.chat.conversation.last is not None
    assert why(terminal.chat.conversation.last)[-1] == "no grade: no output was checked"


def _away(_: Sequence[Message]) -> str:
    raise Unavailable("gone")
