"""The extractor on labelled turns, scored on key, normalised value and kind.

``dev``: rules were written against it. ``seen``: was held out, was looked at, and is development since. ``held_out``:
not looked at while rules were written. In a file a turn is a line; its facts are the indented lines below it: "="
asserted, "~" corrected or changed, "-" retracted, "(was X)" the value that a correction names. What is uncertain,
wished for, asked, quoted or about friends states nothing; a divorce retracts the spouse; what is said with "now",
"现在", "actually" or by the event that changes it (moved, turned 40) corrects a single-valued key.
"""

from __future__ import annotations

import pytest

from streams.core.facts.statements import extract, normalise
from tests.core.facts.labelled import SAID_AT, score, turns

PRECISION_MIN, RECALL_MIN = 0.95, 0.70
"""Of the rules on turns that they were not written against (issue 6)."""


@pytest.mark.parametrize("tongue", ["en", "zh"])
def test_each_language_has_its_labelled_turns_and_hard_negatives(tongue: str):
    for split, turns_min in (("dev", 150), ("held_out", 150)):
        found = turns(f"{tongue}_{split}")
        assert len(found) >= turns_min
        assert len({turn.text for turn in found}) == len(found)
        assert sum(not turn.marks for turn in found) >= 0.4 * len(found)


@pytest.mark.parametrize("tongue", ["en", "zh"])
def test_no_turn_is_in_two_splits(tongue: str):
    texts = [turn.text for split in ("dev", "seen", "held_out") for turn in turns(f"{tongue}_{split}")]
    assert sorted({text for text in texts if texts.count(text) > 1}) == []


@pytest.mark.parametrize("tongue", ["en", "zh"])
def test_held_out_turns_are_extracted_precisely(tongue: str):
    found = score(f"{tongue}_held_out")
    assert found.precision >= PRECISION_MIN, f"precision {found.precision:.3f}, {len(found.wrong)} wrong"
    assert found.recall >= RECALL_MIN, f"recall {found.recall:.3f}, {len(found.missed)} missed"


@pytest.mark.parametrize("split", ["en_dev", "zh_dev", "en_seen", "zh_seen"])
def test_development_turns_stay_extracted(split: str):
    found = score(split)
    assert found.precision >= 0.99, found.wrong
    assert found.recall >= 0.98, found.missed


@pytest.mark.parametrize("split", ["en_dev", "zh_dev"])
def test_corrections_name_what_they_replace(split: str):
    for turn in turns(split):
        said = {found.key: found.old_value for found in extract(turn.text, occurred_at=SAID_AT) if found.old_value}
        assert {key: normalise(key, old) for key, old in said.items()} == turn.olds, turn.text
