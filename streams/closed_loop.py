"""A conversation with memory and any chat model: assemble, ask, check, post; the loop that makes the next memory.

    async with Client("127.0.0.1:9092") as memory:
        talk = Conversation(memory, model, user_id="u42", role_id="lin")
        async for piece in talk.say("我昨天吃了什么？"):
            print(piece, end="")

Two ways of showing. ``hold`` (the default): nothing is shown before it has passed the check, so an answer that breaks
the persona is never seen; it is repaired once, then asked for again with the preset ``strong_consistency``, and in the
end a refusal in character is said. Without ``hold`` the response is shown as it comes, without its analysis; a check
that fails then is told in ``last``, since what was said can't be unsaid.

As of a point in the past (``as_of``) a conversation only looks: it answers from what memory held then, posts no turn
and becomes no atom; what was asked and how the answer was graded is recorded all the same.

Invariants: the user's turn is acknowledged before the model is asked; whatever the user was shown is posted, also where
the answer was broken off; the analysis is never shown; instructions of a client never reach the system message.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from connectors.ports import ChatModel, ModelRefused, Unavailable
from schemas.recalls import Message, Reply
from schemas.responses import Check
from streams.core.prompt import escaped
from streams.core.protocol import Stream
from streams.core.summaries import clipped
from streams.core.wording import tongue_of, wording

log = structlog.get_logger("conversation")

ATTEMPTS_MAX = 2
TOKENS_MAX = 1_200
"""Of an answer with its analysis: several times what people read in a chat."""
STRICT_PRESET = "strong_consistency"
PIECE_CHARACTERS = 24
"""Of a held answer, which is shown in pieces so that callers have one way to show."""
INSTRUCTIONS_CHARACTERS_MAX = 8_000
"""Of a client's own instructions: as much as the context message may hold at the most usual budget."""


class Memory(Protocol):
    """What a conversation needs of ``connectors.client.Client``."""

    async def post_turn(
        self,
        *,
        user_id: str,
        role_id: str,
        session_id: str,
        speaker: str,
        text: str,
        turn_id: str | None = None,
        model: str | None = None,
        recall_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Post a turn; its id, once the broker has it."""
        ...

    async def assemble(self, query: str, *, user_id: str, role_id: str, **options: Any) -> Reply:
        """The messages for a model."""
        ...

    async def check(
        self,
        recall_id: str,
        answer: str,
        *,
        user_id: str,
        role_id: str,
        model: str | None = None,
        final: bool = False,
        turn_ids: Sequence[str] | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> Check:
        """A graded output."""
        ...


class ModelsFailed(RuntimeError):
    """Neither the model nor any of its substitutes gave an answer; the user's turn is in memory all the same."""


@dataclass(slots=True)
class Attempt:
    """One output of a model, as it was graded."""

    model: str
    output: str
    latency_ms: float
    repaired: bool
    check: Check | None = None
    first_token_ms: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    finish_reason: str = ""
    """As the endpoint told it; of a stream it isn't known."""


@dataclass(slots=True)
class Round:
    """What the last round was made of; ``/why`` shows it."""

    query: str
    turn_id: str | None
    """None: nothing is posted, since it is asked as of the past."""
    reply: Reply | None = None
    attempts: list[Attempt] = field(default_factory=list)
    said: str = ""
    answer_turn_id: str | None = None
    refused: bool = False
    """No output passed, so a safe refusal was said."""
    truncated: bool = False

    @property
    def check(self) -> Check | None:
        """Of the last output that was graded."""
        return self.attempts[-1].check if self.attempts else None


class Conversation:
    """One owner's conversation in one session.

    Parameters
    ----------
    memory : Memory
        A started ``Client``.
    model : ChatModel
    user_id, role_id : str
    session_id : str, optional
        A new one by default.
    preset : str, optional
        Of the first attempt.
    hold : bool
        Show nothing before the check has passed; see the module.
    attempts_max : int
        Outputs asked for before the refusal, repairs apart.
    fallbacks : sequence of ChatModel
        Asked in turn where the model is away or refuses.
    temperature : float, optional
        By default what memory suggests: lower for serious topics.
    instructions : str, optional
        Of the client program; quoted in a user-role message after the context, so that they never override the anchor.
    """

    def __init__(
        self,
        memory: Memory,
        model: ChatModel,
        *,
        user_id: str,
        role_id: str,
        session_id: str | None = None,
        preset: str | None = None,
        hold: bool = True,
        attempts_max: int = ATTEMPTS_MAX,
        fallbacks: Sequence[ChatModel] = (),
        temperature: float | None = None,
        tokens_max: int = TOKENS_MAX,
        timeout_s: float | None = None,
        ask: Mapping[str, Any] | None = None,
        instructions: str | None = None,
    ) -> None:
        self.memory = memory
        self.model = model
        self.user_id, self.role_id = user_id, role_id
        self.session_id = session_id or f"s-{uuid.uuid4()}"
        self.preset = preset
        self.hold = hold
        self.attempts_max = attempts_max
        self.fallbacks = tuple(fallbacks)
        self.temperature = temperature
        self.tokens_max = tokens_max
        self.timeout_s = timeout_s
        self.ask = dict(ask or {})
        """More options of every ``assemble``, such as ``limits``."""
        self.instructions = instructions
        self.as_of: Mapping[str, Any] | None = None
        """A point in the past to answer from, as ``assemble`` takes it; see the module. None: now."""
        self.last: Round | None = None

    async def say(self, text: str, *, turn_id: str | None = None, posted: bool = False) -> AsyncGenerator[str, None]:
        """Say something; the answer in pieces.

        Parameters
        ----------
        turn_id : str, optional
            Of the user's turn; a new one by default.
        posted : bool
            The turn ``turn_id`` is in memory already, from a try that got no answer.

        Raises
        ------
        MnemologError
            Memory can't be asked. What was acknowledged stays in memory.
        ModelsFailed
            No model gave an answer.
        """
        this = Round(text, turn_id if self.as_of is None else None)
        if self.as_of is None and not posted:
            this.turn_id = await self.memory.post_turn(
                user_id=self.user_id,
                role_id=self.role_id,
                session_id=self.session_id,
                speaker="user",
                text=text,
                turn_id=turn_id,
            )
        self.last = this
        this.reply = await self._assemble(this, self.preset)
        pieces = self._held(this) if self.hold else self._streamed(this)
        try:
            async for piece in pieces:
                this.said += piece
                yield piece
        except BaseException:
            # Broken off, by the caller or by a fault: what was shown was said.
            if this.said and this.answer_turn_id is None:
                this.truncated = True
                await asyncio.shield(self._post(this))
            raise
        finally:
            await pieces.aclose()

    async def answer(self, text: str) -> str:
        """The whole answer at once."""
        return "".join([piece async for piece in self.say(text)])

    async def _assemble(self, this: Round, preset: str | None) -> Reply:
        options: dict[str, Any] = {"session_id": self.session_id, "preset": preset, **self.ask}
        if this.turn_id is not None:
            options["after"] = [this.turn_id]
        elif self.as_of is not None:
            options["as_of"] = self.as_of
        return await self.memory.assemble(this.query, user_id=self.user_id, role_id=self.role_id, **options)

    def _with_instructions(self, this: Round, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Messages for the model: the client's instructions stand after the context, before what was said."""
        if not self.instructions or not self.instructions.strip():
            return tuple(messages)
        quoted = wording("client_instructions", tongue_of(None, this.query)).substitute(
            text=escaped(clipped(self.instructions.strip(), INSTRUCTIONS_CHARACTERS_MAX))
        )
        first = [index for index, message in enumerate(messages) if message.role == "system"]
        after = first[-1] + 2 if first else 1
        return (*messages[:after], Message(role="user", content=quoted), *messages[after:])

    # -- held -------------------------------------------------------------------------------------------------------

    async def _held(self, this: Round) -> AsyncGenerator[str, None]:
        answer_turn_id = f"t-{uuid.uuid4()}"
        said: str | None = None
        for number in range(1, self.attempts_max + 1):
            if number > 1:
                this.reply = await self._assemble(this, STRICT_PRESET)
            said = await self._attempt(this, number, answer_turn_id)
            if said is not None:
                break
        if said is None:
            this.refused = True
            check = this.check
            said = (check.refusal if check is not None else None) or ""
        this.said = said
        this.answer_turn_id = answer_turn_id
        await self._post(this)
        this.said = ""
        for start in range(0, len(said), PIECE_CHARACTERS):
            yield said[start : start + PIECE_CHARACTERS]

    async def _attempt(self, this: Round, number: int, answer_turn_id: str) -> str | None:
        """An output that passes, repaired once where it must be; None: it doesn't."""
        assert this.reply is not None
        messages = self._with_instructions(this, this.reply.messages or ())
        for repaired in (False, True):
            attempt = await self._complete(this, messages, repaired)
            this.attempts.append(attempt)
            check = attempt.check = await self._check(this, attempt, number, [this.turn_id, answer_turn_id])
            if check.passed and (repaired or not check.needs_repair):
                return check.response
            if repaired or check.repair is None:
                break
            messages = self._with_instructions(this, [Message(**message) for message in check.repair["messages"]])
        # A repair may be worse than what it was to repair: the first output counts if it passed.
        first = next((a for a in this.attempts[-2:] if a.check is not None and a.check.passed), None)
        if first is None:
            return None
        first.check = await self._check(this, first, number, [this.turn_id, answer_turn_id], shown=True)
        return first.check.response

    async def _complete(self, this: Round, messages: Sequence[Message], repaired: bool) -> Attempt:
        failures: list[str] = []
        for model in (self.model, *self.fallbacks):
            begun = time.perf_counter()
            try:
                done = await model.complete(
                    messages,
                    temperature=self._temperature(this),
                    max_tokens=self.tokens_max,
                    timeout_s=self.timeout_s,
                )
            except (Unavailable, ModelRefused) as error:
                failures.append(f"{model.name}: {error}")
                log.warning("model_failed", model=model.name, error=str(error))
                continue
            latency_ms = round((time.perf_counter() - begun) * 1000, 1)
            return Attempt(
                model.name,
                _recordable(done.text),
                latency_ms,
                repaired,
                tokens_in=done.tokens_in,
                tokens_out=done.tokens_out,
                finish_reason=done.finish_reason,
            )
        raise ModelsFailed("; ".join(failures))

    # -- streamed -----------------------------------------------------------------------------------------------------

    async def _streamed(self, this: Round) -> AsyncGenerator[str, None]:
        assert this.reply is not None
        messages = self._with_instructions(this, this.reply.messages or ())
        attempt: Attempt | None = None
        for model in (self.model, *self.fallbacks):
            stream, begun = Stream(), time.perf_counter()
            attempt = Attempt(model.name, "", 0.0, repaired=False)
            shown = False
            try:
                async for given in model.stream(
                    messages,
                    temperature=self._temperature(this),
                    max_tokens=self.tokens_max,
                    timeout_s=self.timeout_s,
                ):
                    chunk = _recordable(given)
                    attempt.output += chunk
                    piece = stream.feed(chunk)
                    if piece:
                        if not shown:
                            attempt.first_token_ms = round((time.perf_counter() - begun) * 1000, 1)
                        shown = True
                        yield piece
            except (Unavailable, ModelRefused) as error:
                log.warning("model_failed", model=model.name, error=str(error))
                if shown:
                    raise ModelsFailed(f"{model.name} broke off: {error}") from error
                continue
            rest = stream.end()
            attempt.latency_ms = round((time.perf_counter() - begun) * 1000, 1)
            this.attempts.append(attempt)
            if rest:
                yield rest
            break
        else:
            raise ModelsFailed(f"no answer from {', '.join(m.name for m in (self.model, *self.fallbacks))}")
        this.answer_turn_id = f"t-{uuid.uuid4()}"
        if not this.said.strip():
            # Nothing could be told as a response: it is worth the repair that a held answer gets.
            async for piece in self._held(this):
                yield piece
            return
        await self._post(this)
        attempt.check = await self._check(this, attempt, 1, [this.turn_id, this.answer_turn_id], shown=True)

    # -- both -------------------------------------------------------------------------------------------------------

    async def _check(
        self, this: Round, attempt: Attempt, number: int, turn_ids: Sequence[str | None], *, shown: bool = False
    ) -> Check:
        assert this.reply is not None
        assert this.reply.recall_id is not None
        return await self.memory.check(
            this.reply.recall_id,
            attempt.output or "…",
            user_id=self.user_id,
            role_id=self.role_id,
            model=attempt.model,
            final=this.turn_id is not None,
            turn_ids=[turn_id for turn_id in turn_ids if turn_id is not None] if this.turn_id is not None else None,
            usage={
                "tokens_in": attempt.tokens_in,
                "tokens_out": attempt.tokens_out,
                "latency_ms": attempt.latency_ms,
                "attempt": number,
                "repaired": attempt.repaired,
                "temperature": self._temperature(this),
                "shown": shown,
            },
        )

    async def _post(self, this: Round) -> None:
        this.answer_turn_id = this.answer_turn_id or f"t-{uuid.uuid4()}"
        notes = {"refused": this.refused, "truncated": this.truncated}
        model = this.attempts[-1].model if this.attempts else self.model.name
        if not this.said.strip() or this.turn_id is None:
            return
        await self.memory.post_turn(
            user_id=self.user_id,
            role_id=self.role_id,
            session_id=self.session_id,
            speaker="assistant",
            text=this.said,
            turn_id=this.answer_turn_id,
            model=model,
            recall_id=this.reply.recall_id if this.reply else None,
            metadata={name: True for name, given in notes.items() if given} or None,
        )

    def _temperature(self, this: Round) -> float:
        if self.temperature is not None:
            return self.temperature
        suggested = this.reply.temperature if this.reply is not None else None
        return suggested if suggested is not None else 0.7


def _recordable(output: str) -> str:
    """An output without NUL, which no text of memory may hold: an answer that can't be recorded would be lost."""
    return output.replace("\0", "")
