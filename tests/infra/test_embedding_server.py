"""The embedding endpoint: OpenAI's shapes, bounds, the same vector every time, and queries that do not wait."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from connectors.embeddings import Calibration
from infra.calibrate import quantized
from infra.embedding_engine import PASSAGE_CHARS_MAX, QUERY_CHARS_MAX
from infra.embedding_server import CHARS_MAX, INPUTS_MAX, PASSAGES_WAITING_MAX, Asked, Server, asked, batches

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
MODEL = "multilingual-e5-small"
TEXTS = [
    "I ate wontons yesterday.",
    "昨天吃了馄饨。",
    "",
    "The cat sleeps on the sofa. " * 20,
    "宝玉喜欢读书，不喜欢做官。",
]


def start(*options: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "infra.embedding_server", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().rpartition(" on ")[2].strip()


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> float:
    """Seconds that the process took to end."""
    started = time.monotonic()
    process.send_signal(number)
    process.wait(10)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    return time.monotonic() - started


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    process, url = start("--port", "0")
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
    finally:
        end(process)


def embed(http: httpx.Client, texts: str | Sequence[str], **fields: Any) -> NDArray[np.float32]:
    body = {"model": MODEL, "input": texts, "encoding_format": "base64", **fields}
    response = http.post("/embeddings", json=body)
    assert response.status_code == 200, response.text
    rows = [base64.b64decode(item["embedding"]) for item in response.json()["data"]]
    return np.stack([np.frombuffer(row, dtype="<f4") for row in rows])


def test_shapes_are_openais(http: httpx.Client) -> None:
    assert str(http.base_url).endswith("/v1/")
    answer = http.post("/embeddings", json={"model": MODEL, "input": ["a", "b"]}).json()
    assert answer["object"] == "list"
    assert answer["model"] == MODEL
    assert [(item["object"], item["index"]) for item in answer["data"]] == [("embedding", 0), ("embedding", 1)]
    assert {len(item["embedding"]) for item in answer["data"]} == {384}
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 4
    names = [item["id"] for item in http.get("/models").json()["data"]]
    assert MODEL in names
    assert f"{MODEL}-query" in names
    assert http.get(f"/models/{MODEL}").json()["id"] == MODEL
    health = http.get(str(http.base_url.copy_with(path="/health")))
    assert (health.status_code, health.json()["status"]) == (200, "ok")


def test_base64_equals_float(http: httpx.Client) -> None:
    answer = http.post("/embeddings", json={"model": MODEL, "input": TEXTS[0], "encoding_format": "float"}).json()
    floats = np.array(answer["data"][0]["embedding"], dtype=np.float32)
    assert np.array_equal(floats, embed(http, TEXTS[0])[0])


def test_a_text_has_one_vector_alone_in_a_batch_and_in_either_process(http: httpx.Client) -> None:
    together = embed(http, TEXTS)
    assert np.array_equal(together, np.concatenate([embed(http, text) for text in reversed(TEXTS)])[::-1])
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    queries = embed(http, TEXTS, input_type="query")
    assert np.array_equal(queries, np.concatenate([embed(http, text, input_type="query") for text in TEXTS]))
    code = (
        "import sys, json, numpy as np; from infra.embedding_engine import Engine, limit_threads; limit_threads(2);"
        "e = Engine(); t = json.loads(sys.stdin.read());"
        "sys.stdout.buffer.write(e.embed(t, False).vectors + e.embed(t, True).vectors)"
    )
    given = json.dumps(TEXTS).encode()
    run = subprocess.run([sys.executable, "-c", code], input=given, cwd=ROOT, capture_output=True, check=True)
    assert np.array_equal(np.frombuffer(run.stdout, "<f4").reshape(-1, 384), np.concatenate([together, queries]))


def test_kind_is_read_from_the_field_then_from_the_models_name(http: httpx.Client) -> None:
    passage, query = embed(http, "tea"), embed(http, "tea", input_type="query")
    assert not np.array_equal(passage, query)
    assert np.array_equal(query, embed(http, "tea", model=f"{MODEL}-query"))
    assert np.array_equal(query, embed(http, "tea", model=f"{MODEL}-passage", input_type="query"))
    assert np.array_equal(passage, embed(http, "tea", model=f"{MODEL}-q4-passage"))


def test_nul_and_lone_surrogates_do_not_cut_a_text(http: httpx.Client) -> None:
    assert np.array_equal(embed(http, "tea\0with milk"), embed(http, "tea with milk"))
    body = '{"model": "%s", "input": "tea \\ud800 milk", "encoding_format": "base64"}' % MODEL  # noqa: UP031
    assert http.post("/embeddings", content=body).status_code == 200


def test_long_texts_are_cut_at_their_bound(http: httpx.Client) -> None:
    word = "tea and milk "
    long = word * (QUERY_CHARS_MAX // len(word) + 100)
    assert np.array_equal(
        embed(http, long, input_type="query"), embed(http, long[:QUERY_CHARS_MAX], input_type="query")
    )
    assert [len(batch) for batch in batches((long * 20, "a", "b"))] == [1, 2]
    assert PASSAGE_CHARS_MAX < CHARS_MAX


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input": None}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": [1, 2]}, 400, "input"),
        ({"input": ["a"] * (INPUTS_MAX + 1)}, 400, "input"),
        ({"input": "a" * (CHARS_MAX + 1)}, 400, "input"),
        ({"model": "text-embedding-3-small"}, 404, "model"),
        ({"model": 7}, 404, "model"),
        ({"encoding_format": "hex"}, 400, "encoding_format"),
        ({"input_type": "other"}, 400, "input_type"),
        ({"dimensions": 64}, 400, "dimensions"),
    ],
)
def test_errors_say_which_field(http: httpx.Client, fields: dict[str, Any], status: int, param: str) -> None:
    response = http.post("/embeddings", json={"model": MODEL, "input": "a", **fields})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param)
    assert error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "param", "code"}


def test_other_errors_have_the_same_shape(http: httpx.Client) -> None:
    for response, status in (
        (http.post("/embeddings", content=b"{"), 400),
        (http.post("/embeddings", content=b"[]"), 400),
        (http.get("/embeddings"), 405),
        (http.get("/nope"), 404),
        (http.post("/embeddings", content=b" " * ((64 << 20) + 1)), 413),
    ):
        assert response.status_code == status
        assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        (
            "What did Anna eat for breakfast?",
            "Anna had porridge with honey this morning.",
            "The train to Leeds was late.",
        ),
        ("我早饭吃了什么？", "今天早上我喝了一碗小米粥。", "去北京的火车晚点了两个小时。"),
        ("我早饭吃了什么？", "I had porridge this morning.", "The train to Leeds was late."),
    ],
)
def test_the_right_passage_is_nearer(http: httpx.Client, query: str, right: str, wrong: str) -> None:
    near, far = embed(http, [right, wrong]) @ embed(http, query, input_type="query")[0]
    assert near > far


def test_queries_do_not_wait_behind_passages(http: httpx.Client) -> None:
    done = threading.Event()

    def fill() -> None:
        embed(http, [f"{number}: {TEXTS[3]}" for number in range(24)])
        done.set()

    thread = threading.Thread(target=fill)
    thread.start()
    with httpx.Client(base_url=http.base_url, timeout=60) as other:
        health = str(http.base_url.copy_with(path="/health"))
        while not other.get(health).json()["waiting"]["passages"] and not done.is_set():
            pass
        answered = 0
        for _ in range(5):
            embed(other, "Where is the cat?", input_type="query")
            answered += not done.is_set()
    assert answered == 5  # behind 24 passages of 140 tokens they would have come seconds later
    thread.join()


async def test_too_many_waiting_passages_are_sent_away() -> None:
    server = Server.__new__(Server)
    server._waiting = {True: 0, False: PASSAGES_WAITING_MAX}

    class Posted:
        async def read(self) -> bytes:
            return json.dumps({"model": MODEL, "input": "a"}).encode()

    with pytest.raises(Exception, match="texts wait already") as refused:
        await server._embeddings(Posted())  # type: ignore[arg-type]
    response = refused.value.response()  # type: ignore[attr-defined]
    assert (response.status, response.headers["Retry-After"]) == (429, "5")
    assert server._waiting == {True: 0, False: PASSAGES_WAITING_MAX}


def test_a_body_in_order_is_understood() -> None:
    assert asked({"input": "a"}) == Asked(("a",), f"{MODEL}-q4", False, False)


def test_a_signal_ends_it_and_its_process_for_passages() -> None:
    process, url = start("--port", "0")
    port = url.rsplit(":", 1)[1].removesuffix("/v1")
    second, _ = start("--port", port)
    assert second.wait(20) == 1
    assert second.stderr is not None
    assert second.stderr.read().startswith(f"embeddings: port {port} on 127.0.0.1 is taken")
    end(second)
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    threading.Thread(target=_ignoring, args=(url, TEXTS[3] * 7)).start()
    time.sleep(0.5)
    assert end(process) < 2
    assert process.returncode == 0
    for _ in range(50):
        if not Path(f"/proc/{child}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists()


def _ignoring(url: str, text: str) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{url}/embeddings", json={"model": MODEL, "input": text}, timeout=30)


def test_shipped_calibration_fits_what_is_recorded(http: httpx.Client) -> None:
    raw = json.loads((ROOT / "connectors/calibrations/multilingual-e5-small-q4.json").read_text("utf-8"))
    mean = np.array(raw["mean"], dtype=np.float32)
    vectors = embed(http, [*TEXTS[:2], TEXTS[4]])
    codes = quantized(vectors, mean, raw["scale"])
    assert np.array_equal(codes, Calibration(raw["embedder"], mean, raw["scale"]).quantize(vectors))
    assert raw["dimension"] == mean.shape[0] == 384
    assert 40 < np.abs(codes).max() <= 127
    assert np.mean(np.abs(codes) == 127) < 0.02


def test_help_names_the_options() -> None:
    command = [sys.executable, "-m", "infra.embedding_server", "--help"]
    assert "--threads" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
