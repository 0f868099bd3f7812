"""From a conversation over two models to the report, and verdicts of people out and back, on the embedded stack."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from connectors.clickhouse import ClickHouse
from connectors.client import Client
from tests.integration.conftest import RunningStack

pytestmark = pytest.mark.integration

ANCHOR = {
    "name": "Lin", "core": "A calm night-shift baker who speaks slowly.", "boundaries": ["Never gives medical doses."],
    "occupation": "baker", "address": {"user": "friend"}, "language": "en",
}  # fmt: skip
SAID = {
    "model-one": "Good bread takes its time, friend. You told me that you like rye bread.",
    "model-two": "As an AI language model I can't bake, sir! You told me that you {}.",
}
QUERY = "I like rye bread. Which bread do I like?"
MADE_UP = ("own a yacht", "climbed Everest", "collect stamps", "speak Finnish")
"""One a round: an answer is evidence for the next, so a claim that is made twice supports itself."""


async def graded(client: Client, recall_id: str, output: str, **given: Any) -> None:
    """Have an output graded that was shown already."""
    await client.check(recall_id, output, final=True, usage={"shown": True}, **given)


async def converse(stack: RunningStack, user: str, role: str) -> None:
    """Eight rounds, the model and the session swapped in the middle; each answer graded and posted."""
    owner = {"user_id": user, "role_id": role}
    async with Client(stack.addresses.kafka, prefix=stack.addresses.prefix) as client:
        await client.declare_persona({"role_id": role, **ANCHOR})
        await client.learn("Rye bread: the sourdough rests for a day.", document_id=f"d-{role}", role_id=role)
        for number in range(8):
            model = "model-one" if number < 4 else "model-two"
            session = f"s-{model}"
            asked = await client.post_turn(**owner, session_id=session, speaker="user", text=QUERY)
            reply = await client.assemble(QUERY, **owner, session_id=session, after=[asked])
            said = SAID[model].format(MADE_UP[number % 4])
            output = f"<analysis>Needs experience: E1.</analysis><response>{said}</response>"
            answer_id = f"t-{uuid.uuid4()}"
            await graded(client, reply.recall_id or "", output, **owner, model=model, turn_ids=[asked, answer_id])
            await client.post_turn(
                **owner, session_id=session, speaker="assistant", text=said, turn_id=answer_id, model=model,
                recall_id=reply.recall_id,
            )  # fmt: skip


def rows_of(stack: RunningStack, query: str) -> list[tuple[Any, ...]]:
    database = ClickHouse(stack.addresses.clickhouse, "mnemolog")
    try:
        return database.rows(query)
    finally:
        database.close()


async def await_rows(stack: RunningStack, query: str, expected: int) -> None:
    async with asyncio.timeout(30):
        while rows_of(stack, query) != [(expected,)]:
            await asyncio.sleep(0.1)


def fill(file: Path, verdict_of: dict[bool, str]) -> list[dict[str, Any]]:
    """Judge each answer by whether model one gave it."""
    rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"), newline="")))
    told = io.StringIO(newline="")
    writer = csv.DictWriter(told, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow(row | {"verdict": verdict_of["rye" in row["answer"]]})
    file.write_bytes(told.getvalue().encode("utf-8-sig"))
    return rows


async def test_a_swapped_model_is_reported_and_people_correct_the_rules(embedded: RunningStack, tmp_path: Path) -> None:
    user, role = f"u-{uuid.uuid4()}", f"r-{uuid.uuid4()}"
    await converse(embedded, user, role)
    await await_rows(embedded, f"SELECT count() FROM responses WHERE role_id = '{role}' AND final", 8)
    await await_rows(embedded, f"SELECT count() FROM turns WHERE role_id = '{role}'", 16)

    page = tmp_path / "report.html"
    report = json.loads(embedded.mnemolog("report", "continuity", "--role", role, "--out", str(page), "--json").stdout)
    first, second = report["stages"]
    assert (report["user_id"], report["rounds"], report["anchor"]) == (user, 8, True)
    assert [(stage["model"], stage["session_changed"]) for stage in (first, second)] == [
        ("model-one", None),
        ("model-two", True),
    ]
    values = [{name: cell["value"] for name, cell in stage["cells"].items()} for stage in (first, second)]
    assert (values[0]["boundary"], values[1]["boundary"]) == (1.0, 0.0)
    assert (values[0]["accuracy"], values[1]["accuracy"]) == (1.0, 0.0)
    assert (values[0]["address"], values[1]["address"]) == (1.0, 0.0)
    assert [row["name"] for row in report["protocol"]] == ["model-one", "model-two"]
    assert "model-two" in page.read_text("utf-8")
    table = embedded.mnemolog("report", "continuity", "--role", role).stdout.splitlines()
    assert [line.split()[:4] for line in table[1:3]] == [
        ["1", "model-one", "4", "1.00"],
        ["2", "model-two", "4", "cleared"],
    ]
    in_sql = (
        f"SELECT model, rounds, boundary_transfer, accuracy_of_past FROM continuity_stages WHERE role_id = '{role}'"
    )
    assert rows_of(embedded, f"{in_sql} ORDER BY stage") == [("model-one", 4, 1, 1), ("model-two", 4, 0, 0)]

    sheets = tmp_path / "sheets"
    embedded.mnemolog("review", "export", "--role", role, "--annotators", "ann,bob", "--out", str(sheets))
    rows = fill(sheets / "ann.csv", {True: "1", False: "1"})
    fill(sheets / "bob.csv", {True: "1", False: "1"})
    assert "model-" not in (sheets / "ann.csv").read_text("utf-8-sig").replace("language model", "")
    assert any("user: I like rye bread" in row["evidence"] for row in rows)
    assert any("the sourdough rests for a day" in row["evidence"] for row in rows)
    told = json.loads(embedded.mnemolog("review", "import", str(sheets), "--json").stdout)
    assert (told["verdicts"], told["posted"], told["empty"]) == (16, 16, 0)
    overlay = told["dimensions"]["accuracy"]["overlay"]
    assert (overlay["raised"], overlay["lowered"], overlay["human_all"]) == (4, 0, 1.0)
    assert overlay["rolling"][-1] == {"round": 8, "automatic": 0.5, "only_raised": 1.0, "human": 1.0}

    await await_rows(embedded, f"SELECT count() FROM reviews WHERE role_id = '{role}'", 16)
    again = json.loads(embedded.mnemolog("review", "import", str(sheets), "--json").stdout)
    assert (again["posted"], again["unchanged"]) == (0, 16)
    fill(sheets / "bob.csv", {True: "0", False: "1"})
    changed = json.loads(embedded.mnemolog("review", "import", str(sheets / "bob.csv"), "--json").stdout)
    assert (changed["posted"], changed["unchanged"]) == (4, 4)
    assert changed["dimensions"]["accuracy"]["overlay"]["tied"] == 4
    await await_rows(embedded, f"SELECT countIf(is_current) FROM reviews WHERE role_id = '{role}'", 16)
    shown = embedded.mnemolog("review", "import", str(sheets)).stdout
    assert "Krippendorff's alpha" in shown
    corrected = f"SELECT count() FROM review_overlay WHERE role_id = '{role}' AND correction = '0->1'"
    await await_rows(embedded, corrected, 4)


def test_a_bad_sheet_is_refused_whole(embedded: RunningStack, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("recall_id,dimension,annotator,verdict\nr-none,accuracy,ann,1\n", "utf-8")
    done = embedded.mnemolog("review", "import", str(tmp_path), check=False)
    assert done.returncode == 1
    assert "a.csv:2: unknown recall_id 'r-none'" in done.stderr
    nothing = embedded.mnemolog("report", "continuity", "--role", f"r-{uuid.uuid4()}", check=False)
    assert nothing.returncode == 1
    assert "nothing to report" in nothing.stderr
