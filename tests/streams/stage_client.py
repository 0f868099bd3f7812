"""``closed_loop.Memory`` on a stage: what ``connectors.client.Client`` is on a broker."""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from connectors.errors import error_of
from schemas.codec import decode
from schemas.recalls import Reply
from schemas.responses import Check
from tests import builders
from tests.streams.stage import Stage


class StageClient:
    """Posts and asks on a stage, which takes a step after each."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.posted = 0

    async def post_turn(self, **turn: Any) -> str:
        """See ``Client.post_turn``; times are a minute apart."""
        given = {name: value for name, value in turn.items() if value is not None}
        given.setdefault("turn_id", f"t-{uuid.uuid4()}")
        self.posted += 1
        await self.stage.post("turns", {**builders.turn(self.posted), **given})
        await self.stage.catch_up()
        await self.stage.embed_all()
        return str(given["turn_id"])

    async def assemble(self, query: str, *, user_id: str, role_id: str, **options: Any) -> Reply:
        """See ``Client.assemble``."""
        return await self.ask(kind="assemble", query=query, user_id=user_id, role_id=role_id, **options)

    async def read(self, kind: str, *, user_id: str, role_id: str, **options: Any) -> Reply:
        """See ``Client.read``."""
        return await self.ask(kind=kind, user_id=user_id, role_id=role_id, **options)

    async def post_feedback(self, **given: Any) -> str:
        """See ``Client.post_feedback``."""
        self.posted += 1
        feedback = {**builders.feedback(self.posted), "feedback_id": f"f-{uuid.uuid4()}", **given}
        await self.stage.post("feedback", feedback)
        await self.stage.catch_up()
        return str(feedback["feedback_id"])

    async def check(self, recall_id: str, answer: str, *, user_id: str, role_id: str, **options: Any) -> Check:
        """See ``Client.check``."""
        reply = await self.ask(
            kind="check", recall_id=recall_id, answer=answer, user_id=user_id, role_id=role_id, **options
        )
        assert reply.check is not None
        return reply.check

    async def ask(self, **request: Any) -> Reply:
        """The reply to a request, as it is read from the wire."""
        body = {name: value for name, value in request.items() if value is not None}
        raw = await self.stage.ask({"request_id": f"q-{uuid.uuid4()}", **body})
        await self.stage.catch_up()
        reply: Reply = decode("replies", orjson.dumps(raw))
        if reply.error is not None:
            raise error_of(reply.error)
        return reply
