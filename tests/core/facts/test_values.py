"""Values in the form in which paraphrases are equal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core.facts.values import normalise, same_value
from streams.core.facts.vocabulary import KEYS
from tests.core.facts.labelled import turns

ANY_KEY = st.sampled_from([*KEYS, "sister_occupation", "favourite_food"])
WORDS = st.lists(
    st.sampled_from(
        [
            "a",
            "the",
            "one",
            "to",
            "dog",
            "(",
            ")",
            "工程师",
            "一名",
            "了",
            "我",
            "12",
            "岁",
            "--05-03",
            " ",
            "'",
            ",",
            "吃",
            "eating",
        ]
    ),
    max_size=6,
).map(" ".join)


@pytest.mark.parametrize(
    ("key", "paraphrases"),
    [
        (
            "occupation",
            ["a software engineer", "Software Engineer", "the software  engineer.", "ｓｏｆｔｗａｒｅ engineer"],
        ),
        ("occupation", ["工程师", "一名工程师", "工程師", "一位工程师", "个工程师"]),
        ("age", ["34", "thirty-four", "三十四", "三十四岁", "34 years old"]),
        ("diet", ["vegetarian", "a vegetarian", "吃素", "素食者", "素食主義者"]),
        ("marital_status", ["married", "结婚了", "已婚", "got married"]),
        ("pet", ["Biscuit (dog)", "Biscuit (puppy)", "biscuit (狗)", "“Biscuit” (dog)"]),
        ("likes", ["to hike", "hike", "Hike!"]),
        ("likes", ["喝奶茶", "奶茶", "吃奶茶"]),
        ("language", ["French", "法语", "法文", "french."]),
        ("possession", ["一辆自行车", "自行车"]),
        ("birthday", ["1991-05-03", " 1991-05-03 "]),
        ("routine", ["每周三晚上我都去上课", "每周三晚上去上课"]),
    ],
)
def test_paraphrases_are_one_value(key: str, paraphrases: list[str]):
    assert len({normalise(key, value) for value in paraphrases}) == 1


@pytest.mark.parametrize(
    ("key", "a", "b"),
    [
        ("home", "Lyon", "Leon"),
        ("occupation", "家庭主妇", "主妇"),
        ("occupation", "部门总监", "总监"),
        ("pet", "Max (dog)", "Biscuit (dog)"),
        ("birthday", "1991-05-03", "--05-04"),
        ("allergy", "花生", "花粉"),
        ("age", "34", "43"),
    ],
)
def test_other_values_stay_apart(key: str, a: str, b: str):
    assert normalise(key, a) != normalise(key, b)
    assert not same_value(key, a, b)


@pytest.mark.parametrize(
    ("key", "exact", "vague"),
    [
        ("birthday", "1991-05-03", "--05-03"),
        ("birthday", "1991-05-03", "1991"),
        ("pet", "Biscuit (dog)", "dog"),
        ("sibling", "Anna (sister)", "my sister"),
        ("home", "Lyon, France", "Lyon"),
        ("likes", "board games", "board game"),
    ],
)
def test_a_vague_value_agrees_with_an_exact_one(key: str, exact: str, vague: str):
    assert same_value(key, exact, vague)
    assert same_value(key, vague, exact)


@settings(max_examples=300, deadline=None)
@given(ANY_KEY, st.one_of(st.text(max_size=60), WORDS))
def test_the_normal_form_of_a_normal_form_is_itself(key: str, value: str):
    once = normalise(key, value)
    assert normalise(key, once) == once


@settings(max_examples=150, deadline=None)
@given(ANY_KEY, WORDS, WORDS)
def test_sameness_is_symmetric(key: str, a: str, b: str):
    assert same_value(key, a, b) == same_value(key, b, a)


def test_normal_forms_of_labelled_values_are_fixed():
    for split in ("en_dev", "zh_dev", "en_seen", "zh_seen"):
        for turn in turns(split):
            for key, norm, _ in turn.marks:
                assert normalise(key, norm) == norm
