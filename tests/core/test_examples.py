"""Examples in docstrings hold."""

import doctest
import importlib
from pathlib import Path

import pytest

import streams.core

MODULES = [
    path.stem
    for path in sorted(Path(streams.core.__file__).parent.glob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_a_module_hold(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"streams.core.{module}")).failed == 0
