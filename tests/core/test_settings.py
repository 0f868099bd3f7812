"""Presets, overrides and digests."""

import math
from typing import Any

import pytest

from streams.core import settings
from streams.core.settings import BadSetting, Catalogue, UnknownPreset, as_dict, digest, presets, resolve

NAMES = [
    "balanced",
    "arpm",
    "full",
    "strong_consistency",
    "no_history",
    "no_bm25",
    "no_vectors",
    "no_temporal",
    "knowledge_only",
    "dialogue_only",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_resolves_under_its_name(name: str) -> None:
    assert resolve(name).preset == name
    assert set(NAMES) == set(presets())


def test_arpm_has_the_papers_constants() -> None:
    arpm = resolve("arpm")
    for path in (arpm.experience, arpm.knowledge):
        assert (path.lambda_round, path.lambda_hours, path.floor, path.k_rrf) == (20.0, 168.0, 0.0, 60.0)
    assert (arpm.experience.fusion, arpm.knowledge.fusion, arpm.query.augment) == ("cosine", "rrf", "prefix")


@pytest.mark.parametrize("name", ["nope", "", "Balanced", 7])
def test_an_unknown_preset_is_named_with_the_known_ones(name: Any) -> None:
    with pytest.raises(UnknownPreset, match="balanced"):
        resolve(name)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("experience.lambda_hours", math.nan, "0.001 to"),
        ("experience.lambda_hours", math.inf, "0.001 to"),
        ("experience.lambda_hours", -1, "got -1"),
        ("experience.lambda_hours", 0, "got 0"),
        ("experience.lambda_hours", "336", "got '336'"),
        ("experience.lambda_hours", True, "got True"),
        ("experience.lambda_hours", None, "got None"),
        ("experience.lambda_hours", [1], "got"),
        ("experience.pool", 2.5, "whole number"),
        ("experience.pool", 10**30, "1 to 1000"),
        ("experience.floor", 1.01, "0 to 1"),
        ("experience.enabled", 1, "true or false"),
        ("experience.fusion", "best", "zsum, rrf, cosine"),
        ("experience.fusion", ["rrf"], "zsum, rrf, cosine"),
        ("experience", {}, "unknown setting"),
        ("experience.nope", 1, "unknown setting"),
        ("nope.floor", 1, "unknown setting"),
        ("preset", "arpm", "unknown setting"),
        ("prompt.share_memory", 0.9, "sum to more than 1"),
        ("chunking.child_characters", 5000, "exceeds"),
    ],
)
def test_a_bad_override_says_which_key_what_it_takes_and_what_it_got(key: str, value: Any, told: str) -> None:
    with pytest.raises(BadSetting) as raised:
        resolve("balanced", {key: value})
    assert told in str(raised.value)
    assert key in str(raised.value)


def test_digest_follows_the_numbers_and_not_their_spelling() -> None:
    assert digest(resolve(None, {"experience.lambda_hours": 336})) == digest(
        resolve("full", {"experience.lambda_hours": 336.0})
    )
    digests = {digest(resolve(name)) for name in NAMES}
    assert len(digests) == len(NAMES) - 1  # full is balanced
    assert digest(resolve(), {"embedder": "a"}) != digest(resolve(), {"embedder": "b"})


def test_known_settings_can_each_be_set_to_what_they_are() -> None:
    chosen = resolve("balanced")
    tree = as_dict(chosen)
    whole = {key: tree[key.split(".")[0]][key.split(".")[1]] for key in settings.known_settings()}
    assert resolve("balanced", whole) == chosen


def test_a_users_preset_extends_shipped_ones_and_each_other() -> None:
    mine = Catalogue(
        """
        [patient]
        description = "a month is nothing"
        [patient.experience]
        lambda_hours = 720
        [terse]
        extends = "patient"
        [terse.prompt]
        recent_turns = 2
        """,
        origin="mine.toml",
    )
    terse = resolve("terse", {"prompt.temperature": 0.1}, mine)
    assert (terse.preset, terse.experience.lambda_hours, terse.prompt.recent_turns) == ("terse", 720.0, 2)
    assert terse.prompt.temperature == 0.1
    assert mine.names()["patient"] == "a month is nothing"
    assert mine.resolve("arpm") == resolve("arpm")
    with pytest.raises(UnknownPreset, match="patient"):
        mine.resolve("nope")
    with pytest.raises(UnknownPreset):
        resolve("patient")


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("[a", "is no TOML"),
        ("a = 1", "expected a table"),
        ("[balanced]", "taken by a preset"),
        ("['two words']", "letters, digits"),
        ("[a]\nextends = 'nope'", "unknown preset 'nope'"),
        ("[a]\nextends = 1", "takes a string"),
        ("[a]\nextends = 'a'", "circle: a -> a"),
        ("[a]\nextends = 'b'\n[b]\nextends = 'a'", "circle"),
        ("[a.experiance]\nfloor = 1", "unknown table 'experiance'"),
        ("[a]\nexperience = 1", "takes a table"),
        ("[a.experience]\nflour = 1", "unknown setting 'experience.flour'"),
        ("[a.experience]\nfloor = 2", "0 to 1, got 2"),
        ("[a.experience]\nfloor = nan", "got nan"),
        ("[a.experience]\nenabled = 'yes'", "true or false"),
        ("[a.prompt]\nshare_memory = 0.9", "sum to more than 1"),
    ],
)
def test_a_bad_catalogue_says_where_and_what(toml: str, told: str) -> None:
    with pytest.raises(BadSetting) as raised:
        Catalogue(toml, origin="mine.toml")
    assert told in str(raised.value)
    assert str(raised.value).startswith("mine.toml")
