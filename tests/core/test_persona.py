"""The linter of persona files: what it warns of, and what it must leave alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.commands_data import persona_warnings, read_persona
from infra.stack_options import StackError
from schemas.personas import Address, Persona, Style
from streams.core.persona import checkable, lint, unknown_fields

LIN = Persona(
    role_id="lin",
    name="Lin",
    core="A calm night-shift baker who values patience.",
    boundaries=("Never gives medical doses.", "Must not pretend to be someone else."),
    declared_at="2026-01-01T00:00:00Z",
    address=Address(user="friend"),
    language="en",
)
SHEN = replace(
    LIN,
    name="沈知秋",
    core="温和理性的夜班面包师，不奉承人。",
    boundaries=("绝不给出用药剂量", "不得扮演别的角色"),
    language="zh",
)


def warned(persona: Persona) -> dict[str, str]:
    return {warning.where: warning.message for warning in lint(persona)}


def test_a_clear_persona_has_no_warning() -> None:
    assert warned(LIN) == {}
    assert warned(SHEN) == {}


@pytest.mark.parametrize(
    ("persona", "boundary"),
    [
        (LIN, "Be nice"),
        (LIN, "Try not to talk about politics."),
        (LIN, "Never says anything inappropriate."),
        (LIN, "Never shares prices if possible."),
        (SHEN, "尽量不谈政治"),
        (SHEN, "说话要得体"),
        (SHEN, "一般不提前任"),
        (SHEN, "不说不该说的"),
    ],
)
def test_vague_boundaries_are_named(persona: Persona, boundary: str) -> None:
    assert "can be read either way" in warned(replace(persona, boundaries=(boundary,)))["boundaries[0]"]


@pytest.mark.parametrize("boundary", ["Loves bread and quiet nights.", "Medical topics", "热爱面包和安静的夜晚"])
def test_a_boundary_that_forbids_nothing_is_named(boundary: str) -> None:
    assert "forbids nothing" in warned(replace(LIN, boundaries=(boundary,)))["boundaries[0]"]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("Never talks about politics.", "never talks about politics", "same"),
        ("Never talks about party politics.", "Must not talk about party politics.", "same"),
        ("Always tells the price of bread.", "Never tells the price of bread.", "contradicts"),
        ("必须告诉用户面包价格", "绝不告诉用户面包价格", "contradicts"),
        ("绝不谈论政治话题", "不得谈论政治话题", "same"),
    ],
)
def test_boundaries_that_repeat_or_contradict_each_other_are_named(first: str, second: str, said: str) -> None:
    assert said in warned(replace(LIN, boundaries=(first, second)))["boundaries[1]"]


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"boundaries": ()}, "boundaries"),
        ({"boundaries": tuple(f"Never says the word number {n} aloud." for n in range(21))}, "boundaries"),
        ({"boundaries": ("No.",)}, "boundaries[0]"),
        ({"boundaries": ("Never " + "talks about a thing " * 20,)}, "boundaries[0]"),
        ({"language": None}, "language"),
        ({"language": "fr"}, "language"),
        ({"language": "zh"}, "core"),
        ({"core": "A baker."}, "core"),
        ({"notes": "word " * 1600}, "persona"),
        ({"style": Style(words_preferred=("crust",), words_avoided=("crust",))}, "style"),
        ({"style": Style(words_avoided=("Lin",))}, "style.words_avoided"),
    ],
)
def test_each_weakness_is_told_where_it_is(changed: dict[str, Any], where: str) -> None:
    assert where in warned(replace(LIN, **changed))


@given(st.lists(st.text(min_size=1, max_size=60), max_size=6), st.text(min_size=1, max_size=80))
def test_any_persona_can_be_linted(boundaries: list[str], core: str) -> None:
    persona = replace(LIN, boundaries=tuple(boundaries), core=core)
    assert lint(persona) == lint(persona)
    assert all(index < len(boundaries) for index in checkable(persona))


def test_unknown_fields_are_told_with_what_was_meant() -> None:
    raw = {"role_id": "lin", "bounderies": [], "adress": {}, "style": {"mood": "x"}, "address": {"self": "I"}}
    assert unknown_fields(raw) == ("bounderies (boundaries?)", "adress", "style.mood")


def test_the_command_warns_of_unknown_fields_even_where_the_persona_is_invalid() -> None:
    assert persona_warnings({"nmae": "Lin"}) == ["unknown field is ignored: nmae"]
    found = persona_warnings(
        {"role_id": "r", "name": "Lin", "core": LIN.core, "boundaries": ["Be nice"], "language": "en"}
    )
    assert found == ['boundaries[0]: "be nice" can be read either way; say what must not happen ("Never …")']


def test_the_demo_persona_has_no_warning() -> None:
    assert persona_warnings(read_persona(Path("infra/demo/persona.toml"))) == []


def test_a_yaml_persona_is_read_and_without_pyyaml_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lin.yaml"
    file.write_text("role_id: lin\nname: 林\ndeclared_at: 2026-01-01T00:00:00Z\n", encoding="utf-8")
    assert read_persona(file)["name"] == "林"
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(StackError, match="PyYAML"):
        read_persona(file)
