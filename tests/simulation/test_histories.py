"""Histories of crashes, repeats, delays and absences, one a seed, each judged by the verifier.

``MNEMOLOG_SEEDS=5000`` runs so many; ``MNEMOLOG_SEED=17`` runs one. A failure names its seed and prints its trace.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.history import History, run
from tests.simulation.verifier import verify

SEEDS_DEFAULT = 100


def _seeds() -> range:
    one = os.environ.get("MNEMOLOG_SEED")
    return range(int(one), int(one) + 1) if one else range(int(os.environ.get("MNEMOLOG_SEEDS", SEEDS_DEFAULT)))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("seed", _seeds())
def test_nothing_is_lost_doubled_or_leaked(seed: int) -> None:
    history = run(seed)
    try:
        verify(history)
    except AssertionError as error:
        error.add_note(f"MNEMOLOG_SEED={seed}\n" + "\n".join(history.world.trace[-60:]))
        raise


def test_seed_decides_every_byte() -> None:
    assert _bytes(run(7)) == _bytes(run(7))


def _bytes(history: History) -> str:
    sha = hashlib.sha256()
    for topic in ("journal", "library", "dead-letters", "replies", "requests"):
        for record in history.world.log.read_all(history.world.topic(topic)):
            sha.update(repr((record.partition, record.offset, record.timestamp, record.value)).encode())
    return sha.hexdigest()
