"""``chat`` and ``proxy``: the closed loop in a terminal, and for programs that speak OpenAI's form.

The chat reads lines from wherever they come, so it runs on pipes as well. Invariants: an error is one sentence and the
chat goes on; Ctrl-C stops an answer, never the chat; a key is sent to the endpoint that it was given for, no other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TextIO
from urllib.parse import urlsplit

import typer
from rich.console import Console

from connectors.client import Client
from connectors.errors import MnemologError
from connectors.llm import HttpChatModel
from connectors.ports import ChatModel
from infra.commands_ask import CONSOLE_WIDTH_MIN, parse_as_of
from infra.commands_memory import facts_table
from infra.stack_options import StackError, UsageError
from infra.target import KafkaOption, PrefixOption, find
from schemas.recalls import Evidence, Reply
from streams.closed_loop import Conversation, Memory, ModelsFailed, Round

PROMPT = "> "
PIECE_CHARACTERS_MAX = 160
HELP = """\
/why              evidence, analysis and grade of the last answer
/facts            what memory holds as facts of this user, now or as of the chosen time
/as-of WHEN       answer as from then: 2026-05-20, a time, round:N, turn:ID, offset:N; posts nothing; /as-of now ends it
/model NAME [URL [KEY_ENV]]   another model; at another URL no key is sent, but the one that KEY_ENV names
/forget-last      deny the last round's atom and the facts of its turns; the turns stay
/help, /quit      this list; the end (so does Ctrl-D)
Ctrl-C stops an answer. Everything else is said to the role."""
FORGOTTEN = """\
posted: the last round's atom leaves recall, and facts already taken from its turns count as denied from here on.
Not undone: the two turns stay in the journal, in the recent turns and in recall, and facts that are taken from them
later aren't touched. As of a time before now everything is as it was."""

BaseUrlOption = Annotated[
    str, typer.Option("--base-url", help="Of an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1")
]
KeyEnvOption = Annotated[
    str | None, typer.Option("--key-env", help="Name of the environment variable that holds its key")
]
Models = Callable[[str, str, str | None], ChatModel]
"""From a model's name, base URL and the name of a key's variable."""


class ChatMemory(Memory, Protocol):
    """What a chat needs of ``connectors.client.Client`` beside a conversation."""

    async def read(self, kind: str, *, user_id: str, role_id: str, **options: Any) -> Reply:
        """Facts of an owner."""
        ...

    async def post_feedback(
        self, *, user_id: str, role_id: str, kind: str, target: Mapping[str, str] | None = None
    ) -> str:
        """Post a feedback."""
        ...


@dataclass(slots=True)
class Endpoint:
    """Where the model of a chat is."""

    name: str
    url: str
    key_env: str | None = None


class Chat:
    """One conversation with its commands.

    Parameters
    ----------
    models : Models
        Makes the model that ``/model`` names.
    out, errors : TextIO
        Answers and tables; one sentence an error.
    """

    def __init__(
        self,
        conversation: Conversation,
        memory: ChatMemory,
        endpoint: Endpoint,
        models: Models,
        *,
        out: TextIO,
        errors: TextIO,
    ) -> None:
        self.conversation = conversation
        self._memory = memory
        self._endpoint = endpoint
        self._models = models
        self._out, self._errors = out, errors
        self._answering: asyncio.Task[None] | None = None
        self._commands: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "/why": self._why,
            "/facts": self._facts,
            "/as-of": self._as_of,
            "/model": self._model,
            "/forget-last": self._forget_last,
            "/help": self._help,
        }

    async def run(self, lines: AsyncIterator[str]) -> None:
        """Answer line by line until ``/quit`` or the end."""
        async for line in lines:
            text = line.strip()
            if text in ("/quit", "/exit"):
                return
            if text:
                await self.take(text)

    async def take(self, text: str) -> None:
        """A command, or something said; whatever fails is told in one sentence."""
        name, *arguments = text.split()
        self._answering = asyncio.ensure_future(
            self._commands[name](arguments) if name in self._commands else self._said(text)
        )
        try:
            await self._answering
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._print("\n(stopped)")
        except (MnemologError, ModelsFailed, StackError) as error:
            self._errors.write(f"mnemolog: {' '.join(str(error).split())}\n")
            self._errors.flush()
        finally:
            self._answering = None

    def stop_answer(self) -> bool:
        """What Ctrl-C does; False: there is nothing to stop."""
        if self._answering is None or self._answering.done():
            return False
        self._answering.cancel()
        return True

    async def _said(self, text: str) -> None:
        if text.startswith("/"):
            raise UsageError(f"there is no command {text.split(maxsplit=1)[0]}; /help lists them")
        async with aclosing(self.conversation.say(text)) as pieces:
            try:
                async for piece in pieces:
                    self._out.write(piece)
                    self._out.flush()
            finally:
                self._print("")
        last = self.conversation.last
        check = last.check if last is not None else None
        if check is not None and not self.conversation.hold and not check.passed:
            broken = ", ".join(violation.rule for violation in check.violations) or "no readable answer"
            self._print(f"(it did not pass the check: {broken}; /why says more)")

    async def _help(self, _arguments: list[str]) -> None:
        self._print(HELP)

    async def _why(self, _arguments: list[str]) -> None:
        if self.conversation.last is None:
            raise UsageError("nothing was said yet")
        self._print("\n".join(why(self.conversation.last)))

    async def _facts(self, _arguments: list[str]) -> None:
        owner = {"user_id": self.conversation.user_id, "role_id": self.conversation.role_id}
        reply = await self._memory.read("facts", **owner, as_of=self.conversation.as_of)
        if not reply.facts:
            self._print("no facts")
            return
        console = Console(file=self._out, width=CONSOLE_WIDTH_MIN, highlight=False, markup=False)
        console.print(facts_table(reply.facts, history=False))

    async def _as_of(self, arguments: list[str]) -> None:
        if not arguments:
            raise UsageError("/as-of takes a point in time, or now")
        when = " ".join(arguments)
        self.conversation.as_of = None if when == "now" else parse_as_of(when)
        self._print("as of now" if when == "now" else f"as of {when}: nothing is posted until /as-of now")

    async def _model(self, arguments: list[str]) -> None:
        if not 1 <= len(arguments) <= 3:
            raise UsageError("/model takes a name, perhaps a base URL, perhaps the name of a key's variable")
        name, url, key_env = [*arguments, "", ""][:3]
        moved = bool(url) and url.rstrip("/") != self._endpoint.url.rstrip("/")
        chosen = Endpoint(name, url or self._endpoint.url, key_env or (None if moved else self._endpoint.key_env))
        model = self._models(chosen.name, chosen.url, chosen.key_env)
        before, self.conversation.model = self.conversation.model, model
        self._endpoint = chosen
        await stopped(before)
        self._print(f"{chosen.name} at {chosen.url} from here on")

    async def _forget_last(self, _arguments: list[str]) -> None:
        last = self.conversation.last
        turns = [turn for turn in (last.turn_id, last.answer_turn_id) if turn] if last is not None else []
        if last is None or last.turn_id is None:
            raise UsageError("there is no round to forget: nothing was posted by the last answer")
        atoms = [attempt.check.atom_id for attempt in last.attempts if attempt.check and attempt.check.atom_id]
        targets = [{"memory_id": atom} for atom in atoms] + [{"turn_id": turn} for turn in turns]
        owner = {"user_id": self.conversation.user_id, "role_id": self.conversation.role_id}
        for target in targets:
            await self._memory.post_feedback(**owner, kind="deny", target=target)
        self._print(FORGOTTEN)

    def _print(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def why(last: Round) -> list[str]:
    """Lines that say what an answer rests on: evidence by mark, analysis, grade."""
    lines = [f"asked: {_short(last.query)}"]
    check, reply = last.check, last.reply
    used = frozenset(check.marks) if check is not None else frozenset()
    lines += [_shown(piece, piece.mark in used) for piece in (reply.evidence if reply is not None else None) or ()]
    if reply is not None and not reply.evidence:
        lines.append("no evidence: memory holds nothing on this")
    for attempt in last.attempts:
        tokens = "" if attempt.tokens_out is None else f", {attempt.tokens_in} + {attempt.tokens_out} tokens"
        repaired = " (repair)" if attempt.repaired else ""
        lines.append(f"model {attempt.model}{repaired}: {attempt.latency_ms:.0f} ms{tokens}")
    if check is None:
        return [*lines, "no grade: no output was checked"]
    lines.append(f"analysis: {check.analysis or '(none)'}")
    lines.append(
        f"grade ({check.method}): plausibility {check.plausibility}, compliance {check.compliance}, "
        f"needs {check.need}, marks {' '.join(check.marks) or 'none'}"
    )
    told: Sequence[tuple[str, Sequence[str]]] = (
        ("form broken", check.faults),
        ("marks that don't exist", check.unknown_marks),
        ("against the persona", [f"{violation.rule} ({violation.text})" for violation in check.violations]),
        ("of the past without evidence", check.unsupported_claims),
        ("said by nothing in the prompt", check.unsupported_values),
    )
    lines += [f"{what}: {', '.join(found)}" for what, found in told if found]
    if last.refused:
        lines.append("no output passed, so a refusal in character was said")
    return lines


def _shown(piece: Evidence, used: bool) -> str:
    when = (piece.occurred_at or "")[:16].replace("T", " ")
    who = piece.title or piece.name or piece.speaker or piece.source or ""
    return f"[{piece.mark}]{'*' if used else ' '} {piece.score:.3f}  {when}  {who}: {_short(piece.text)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PIECE_CHARACTERS_MAX else line[: PIECE_CHARACTERS_MAX - 1] + "…"


async def stopped(model: ChatModel) -> None:
    """Close a model's connections, if it has any."""
    if isinstance(model, HttpChatModel):
        await model.stop()


def key_of(name: str | None) -> str | None:
    """The key that a variable holds; raises ``UsageError`` where there is none."""
    if name is None:
        return None
    if not os.environ.get(name):
        raise UsageError(f"the environment variable {name}, which is to hold the model's key, isn't set")
    return os.environ[name]


def http_model(name: str, url: str, key_env: str | None) -> ChatModel:
    """A model at an endpoint; raises ``UsageError`` for what is no URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address in them, a port that is none
        usable = False
    if not usable:
        raise UsageError(f"{url!r} is no base URL: expected http://host:port/v1 or https://…")
    return HttpChatModel(url, name, key=key_of(key_env))


async def lines_of(file: TextIO) -> AsyncIterator[str]:
    """Lines as they are typed or piped, read in a thread; on a terminal with a prompt."""
    typed = file.isatty()
    while True:
        if typed:
            print(PROMPT, end="", flush=True)
        line = await asyncio.to_thread(file.readline)
        if not line:
            return
        yield line


def chat(
    role: Annotated[str, typer.Option("--role", help="role_id of the persona")],
    user: Annotated[str, typer.Option("--user", help="user_id, whose memory it is")],
    model: Annotated[str, typer.Option("--model", help="As the endpoint names it")],
    base_url: BaseUrlOption,
    key_env: KeyEnvOption = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Show answers as they come, before they are checked")
    ] = False,
    session: Annotated[str | None, typer.Option(help="session_id to go on with [default: a new one]")] = None,
    kafka: KafkaOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Talk with a role: memory, persona and check around any model. /help lists what else it does."""
    target = find(kafka, prefix=prefix)
    endpoint = Endpoint(model, base_url, key_env)
    made = http_model(model, base_url, key_env)
    asyncio.run(_chat(target.kafka, target.prefix, endpoint, made, user, role, session, hold=not stream))


async def _chat(
    kafka: str,
    prefix: str,
    endpoint: Endpoint,
    model: ChatModel,
    user: str,
    role: str,
    session: str | None,
    *,
    hold: bool,
) -> None:
    for stream in (sys.stdin, sys.stdout):
        if hasattr(stream, "reconfigure"):  # what is typed in another encoding is no reason to stop
            stream.reconfigure(encoding="utf-8", errors="replace")
    async with Client(kafka, prefix=prefix) as memory:
        talk = Conversation(memory, model, user_id=user, role_id=role, session_id=session, hold=hold)
        one = Chat(talk, memory, endpoint, http_model, out=sys.stdout, errors=sys.stderr)

        def interrupted() -> None:
            if not one.stop_answer():
                print("\n(/quit ends the chat)", file=sys.stderr, flush=True)

        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted)
        print(f"session {talk.session_id}; /help lists commands", file=sys.stderr, flush=True)
        try:
            await one.run(lines_of(sys.stdin))
        finally:
            await stopped(talk.model)


def proxy(
    port: Annotated[int, typer.Option("--port", help="To listen on; 0: any free one")],
    base_url: BaseUrlOption,
    model: Annotated[str | None, typer.Option("--model", help="Asked whatever model clients name")] = None,
    key_env: KeyEnvOption = None,
    hold: Annotated[bool, typer.Option("--hold", help="Send nothing of a stream before it passed the check")] = False,
    role: Annotated[str | None, typer.Option("--role", help="Where a client names none")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Where a client sends no `user`")] = None,
    without_memory: Annotated[
        bool, typer.Option("--without-memory", help="Where memory is away pass requests through as they are")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on; there are no passwords")] = "127.0.0.1",
    kafka: KafkaOption = None,
    prefix: PrefixOption = None,
) -> None:
    """An OpenAI-compatible endpoint with memory and persona: point a client's base URL at it.

    Whose memory: the field `user`; the header X-Mnemolog-Role, or a model named model@role. Without --key-env the
    client's own key is sent on.
    """
    try:
        from infra.listening import CannotStart
        from infra.proxy import serve
        from infra.proxy_forms import Defaults
        from infra.proxy_upstream import Upstream
    except ModuleNotFoundError as error:
        raise StackError(f"the proxy needs {error.name}: pip install 'mnemolog[embedded]'") from error
    target = find(kafka, prefix=prefix)
    if not base_url.startswith(("http://", "https://")):
        raise UsageError(f"--base-url {base_url!r} is no base URL: expected http://host:port/v1 or https://…")
    defaults = Defaults(model=model, user=user, role=role, hold=hold, without_memory=without_memory)
    key = key_of(key_env)

    async def run() -> None:
        await serve(target.kafka, target.prefix, Upstream(base_url, key=key), defaults, host, port)

    try:
        asyncio.run(run())
    except CannotStart as error:
        raise StackError(str(error)) from error
