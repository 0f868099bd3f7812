"""The benchmark of the proxy: what counts as a first token, and how what is added is told from the rest."""

from __future__ import annotations

import doctest

import httpx
import pytest
from aiohttp import web

import infra.bench.proxy
import infra.proxy_forms
from infra.bench.proxy import added, first_token, rows_of
from infra.listening import listening
from infra.model_server import Script, Server


@pytest.mark.parametrize("module", [infra.bench.proxy, infra.proxy_forms])
def test_examples_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_added_is_split_from_assemble_endpoint_and_acknowledgement() -> None:
    found = {
        "by hand: post": [1.0] * 6,
        "by hand: assemble": [20.0] * 6,
        "endpoint": [5.0] * 6,
        "first": [40.0] * 6,
        "post": [3.0] * 6,
        "assemble": [20.0] * 6,
    }
    rows = {row["what"]: row for row in rows_of(found | added(found))}
    assert rows["added to assemble and endpoint"]["p50 ms"].median == 15.0
    assert rows["added, without the turn's acknowledgement"]["p95 ms"] == 12.0


async def test_first_token_is_of_the_response_and_the_answer_is_read_to_its_end() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await Server(
            Script.of_toml('[[rule]]\nanswer = "<analysis>long thoughts</analysis><response>Hi there.</response>"')
        ).complete(request)
        seen.append("read")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = listening("127.0.0.1", 0)
    await web.SockSite(runner, listener).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
    try:
        async with httpx.AsyncClient() as http:
            ms, header = await first_token(http, url, body)
            assert ms > 0
            assert header == ""
            with pytest.raises(httpx.HTTPStatusError):
                await first_token(http, url, {"model": "scripted", "messages": []})
    finally:
        await runner.cleanup()
    assert seen == ["read", "read"]
