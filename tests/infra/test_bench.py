"""Each benchmark that needs no service runs on tiny inputs and gives valid rows."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from infra.bench import corrections, field, fold, latency, locomo, memory, noise, recall
from infra.bench.cores import variants
from infra.bench.embedded import CachedEmbedder
from infra.bench.histories import Owned, encoded_events
from infra.bench.report import Report
from infra.cli import app
from infra.stack_options import UsageError
from streams.core.text import tokens

DIMENSION = 64


class ToyEncoder:
    """A bag of hashed terms: texts that share words are near each other."""

    name = "toy"

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str], input_type: str) -> np.ndarray:
        self.encoded += texts
        rows = np.full((len(texts), DIMENSION), 0.01, dtype=np.float32)
        for row, said in zip(rows, texts, strict=True):
            for term in tokens(said):
                row[zlib.crc32(term.encode()) % DIMENSION] += 1
        return rows / np.linalg.norm(rows, axis=1)[:, None]


@pytest.fixture
def embedder(tmp_path: Path) -> Iterator[CachedEmbedder]:
    found = CachedEmbedder("toy", ToyEncoder(), tmp_path)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _no_mem0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field, "mem0_version", lambda: None)


def valid(report: Report) -> dict:
    """The report as JSON, its text checked for a table."""
    found = json.loads(report.as_json())
    assert found["rows"]
    assert found["machine"]["python"]
    assert len(report.as_text().splitlines()) > len(found["rows"])
    return found


SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ann", "dia_id": "D1:1", "text": "I adopted a parrot called Kiwi."},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Lovely!", "blip_caption": "a green parrot"},
        ],
        "session_2_date_time": "9:00 am on 1 June, 2023",
        "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "My bakery opens in July."}],
    },
    "qa": [
        {"question": "What is Ann's parrot called?", "category": 4, "evidence": ["D1:1", "D9:9"]},
        {"question": "When does the bakery open?", "category": 2, "evidence": ["D2:1"]},
        {"question": "No evidence at all?", "category": 1, "evidence": []},
        {"question": "Adversarial?", "category": 5, "evidence": ["D1:1"]},
    ],
}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "locomo.json.gz"
    path.write_bytes(gzip.compress(json.dumps([SAMPLE]).encode()))
    return path


def test_locomo_is_read_without_what_cannot_be_judged(sample):
    (talk,) = locomo.read([sample])
    assert [turn.id for turn in talk.turns] == ["D1:1", "D1:2", "D2:1"]
    assert talk.turns[1].shown == "Lovely! [a green parrot]"
    assert talk.turns[0].at.isoformat() == "2023-05-08T13:56:00+00:00"
    assert [question.category for question in talk.questions] == [4, 2]
    assert talk.questions[0].evidence == {"D1:1"}
    assert talk.dropped == 1


def test_a_file_that_is_not_locomo_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('[{"a": 1}]')
    with pytest.raises(UsageError, match="not LoCoMo"):
        locomo.read([path])


def test_recall_ranks_with_presets_and_bare_methods(sample, embedder):
    report = recall.run([sample], embedder=embedder, split=True, chosen=variants(["balanced", "no_history"]))
    found = valid(report)
    rows = {row["method"]: row for row in found["rows"]}
    assert rows["balanced"]["n"] == 2
    assert rows["balanced"]["recall@10"] == 1
    assert rows["balanced"]["by_conversation"]["conv-1"]["hit@10"] == 1
    assert rows["no_history"]["recall@20"] == 0
    assert {"bm25+ (bare turns)", "vectors (bare turns)", "rrf (bare turns)"} <= set(rows)
    assert any("mem0 is not installed" in note for note in found["notes"])


def test_embeddings_are_made_once(tmp_path):
    first = ToyEncoder()
    cached = CachedEmbedder("toy", first, tmp_path)
    vectors = cached.vectors(["a b", "c", "a b"], "passage")
    cached.close()
    assert first.encoded == ["a b", "c"]
    second = ToyEncoder()
    again = CachedEmbedder("toy", second, tmp_path)
    assert np.array_equal(again.vectors(["a b", "c", "a b"], "passage"), vectors)
    assert again.vectors(["c"], "query").shape == (1, DIMENSION)
    again.close()
    assert second.encoded == ["c"]
    assert vectors.dtype == np.int8


def test_corrections_are_made_the_same_every_time_and_in_order():
    cases = list(corrections.cases(14))
    assert cases == list(corrections.cases(14))
    assert cases != list(corrections.cases(14, seed=2))
    assert {case.language for case in cases} == {"zh", "en"}
    for case in cases:
        assert 1 <= case.corrections == len(case.statements) - 1
        assert [line.at for line in case.lines] == sorted(line.at for line in case.lines)
        assert "{" not in "".join(line.text for line in case.lines) + case.question


def test_held_out_facts_and_look_alikes_are_no_facts_that_were_tuned_on():
    tuned = {line.text for case in corrections.cases(60) for line in case.statements}
    apart = [*corrections.cases(60, written=corrections.HELD_OUT), *corrections.look_alikes()]
    assert not tuned & {line.text for case in apart for line in case.statements}
    assert len({case.id for case in [*corrections.cases(60), *apart]}) == 120 + len(apart)
    assert all("{" not in line.text for case in apart for line in case.lines)


def test_corrections_are_judged_now_and_as_of_the_past(embedder):
    rows = valid(corrections.run(embedder=embedder, count=2, chosen=variants(["balanced"], ["experience.floor=0.5"])))[
        "rows"
    ]
    assert [row["language"] for row in rows] == ["zh", "en", "all", "held out", "look-alikes"] * 2
    assert rows[5]["method"] == "balanced experience.floor=0.5"
    assert rows[4]["n"] == len(list(corrections.look_alikes()))
    assert 0 <= rows[4]["asked first"] <= rows[4]["asked found"] <= 1
    assert rows[2]["n"] == 4
    assert rows[2]["past n"] >= 4
    assert rows[2]["leaks"] == 0


def test_planted_facts_are_fifty_and_no_question_holds_its_answer():
    plan = noise.planted()
    assert len(plan.facts) == 50
    assert sum(fact.where == "dialogue" for fact in plan.facts) == 25
    assert 20 <= sum(fact.language == "zh" for fact in plan.facts) <= 30
    assert all(fact.key in fact.text and fact.key not in fact.ask for fact in plan.facts)


def test_noise_puts_planted_facts_among_text(tmp_path, embedder):
    path = tmp_path / "novel.txt"
    path.write_text("\n\n".join(f"话说第{n}回，山中有一老者，" + "行路读书饮酒" * 8 for n in range(60)), "utf-8")
    report = noise.run(
        [path], embedder=embedder, ratios=[0.2], embed_max=7, turns_max=5, chosen=variants(["balanced", "no_history"])
    )
    rows = valid(report)["rows"]
    assert [row["method"] for row in rows] == ["balanced", "no_history"]
    assert rows[0]["n"] == 50
    assert rows[0]["in prompt"] > 0.8
    assert rows[1]["dialogue"] == 0
    assert rows[0]["turns"] <= 5
    assert rows[0]["noise embedded"].startswith("7 of ")


def test_latency_times_the_core_and_its_engines():
    rows = valid(latency.run(turns=60, chunks=[70], queries=4))["rows"]
    assert [row["what"] for row in rows[:2]] == ["core: recall", "core: assemble"]
    assert all(row["p50 ms"]["median"] >= 0 for row in rows)


def test_the_core_of_latency_holds_what_was_asked_for():
    core = latency.build(50, 70)
    owner = core.journal.owners["ada", "lin"]
    assert len(owner.turns) == 50
    assert not core.journal.unembedded
    assert core.library.next_offset == 2


def test_fold_steps_fold_the_whole_history():
    values = [value for _, value in encoded_events(30, [Owned("a"), Owned("b")], fold.EMBEDDER)]
    records = fold.records_of(values)
    folded = asyncio.run(fold.fold_records(records))
    assert folded.shards[0].state.next_offset == len(values) == 60
    assert not folded.shards[0].state.unembedded
    rows = fold.measure(fold.in_memory(records), len(values), 2)
    assert all(row["events/s"].repeats == 2 and row["events/s"].low > 0 for row in rows)


def test_a_history_is_the_same_every_time():
    owners = [Owned("a")]
    assert list(encoded_events(20, owners, "e")) == list(encoded_events(20, owners, "e"))
    assert list(encoded_events(20, owners, "e")) != list(encoded_events(20, owners, "e", seed=2))


def test_memory_measures_turns_and_chunks():
    turns, chunks = memory.of_turns(200), memory.of_chunks(70)
    row = memory.row_of("turns", 200, turns)
    assert row["text bytes"] > 20
    assert row["apply events/CPU-s"] > 0
    assert memory.row_of("chunks", 70, chunks)["recall CPU p50 ms"] is None


def test_the_command_prints_json_and_says_how_it_measures():
    runner = CliRunner()
    run = runner.invoke(app, ["bench", "latency", "--turns", "30", "--chunks", "30", "--queries", "3", "--json"])
    assert run.exit_code == 0
    assert json.loads(run.stdout)["bench"] == "latency"
    for name in ("answer", "intake", "fold", "recover", "embed", "memory", "recall", "corrections", "noise", "latency"):
        shown = runner.invoke(app, ["bench", name, "--help"])
        assert shown.exit_code == 0
        assert "--json" in shown.stdout


@pytest.mark.parametrize(
    "wrong", [["--preset", "nope"], ["--set", "experience.flour=1"], ["--set", "experience.floor=2"]]
)
def test_a_wrong_preset_or_setting_is_misuse(wrong, tmp_path):
    run = CliRunner().invoke(app, ["bench", "corrections", "--cache", str(tmp_path), *wrong])
    assert isinstance(run.exception, UsageError)
