"""The examples in the importers' docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import connectors.imports

MODULES = [module.name for module in pkgutil.iter_modules(connectors.imports.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module_hold(name: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(f"connectors.imports.{name}"))
    assert failures == 0
