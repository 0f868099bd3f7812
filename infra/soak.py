"""Faults under load on real Kafka, then proof: ``python -m infra.soak --minutes 15 --seed 7``.

Two workers of each role work while turns (some twice, some late, some with a taken id), feedback, documents and
requests come in and things break in rotation. Afterwards ``soak_verify`` reads the logs with code of its own and says
whether anything that was acknowledged was lost, doubled or shown to somebody else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from connectors.client import Client
from connectors.errors import BrokerUnavailable, MnemologError
from infra.soak_verify import Posted, Verdict, verify
from infra.stack import running_stack
from infra.stack_options import Addresses, UpOptions

ROLES = ("ingest", "memory", "analytics")
OWNERS = 12
HOMES = ("Lisbon", "Porto", "Oslo", "Turin", "Lyon")
"""Some turns state one of these, so facts are extracted, contested and corrected all the while."""
SEGMENT_IDLE_S = 5.0
FIRST_ANSWER_S_MAX = 150.0
"""Six workers import and join their groups at once: 10 s on two idle cores, a minute and more beside other work."""
SETTLE_S = 12.0
REQUEST_TIMEOUT_MS = 4_000
FAILOVER_S_MAX = 25.0
"""Kill -9 is noticed after the session timeout (10 s), then the partitions are read by the other worker."""


@dataclass(slots=True)
class Worker:
    """A worker of a role that is killed and started again."""

    role: str
    number: int
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        self.ready.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "infra.worker", self.role], env=self.env, stderr=log, stdout=log
            )

    @property
    def ready(self) -> Path:
        """There once the worker is ready."""
        return Path(self.env["MNEMOLOG_READY_FILE"])

    def end(self, number: int, seconds: float = 15.0) -> int:
        """Send a signal, wait for the end and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@dataclass(slots=True)
class Run:
    """What a soak run did, for the verifier and the report."""

    seed: int
    posted: Posted = field(default_factory=Posted)
    faults: list[str] = field(default_factory=list)
    answered: int = 0
    unanswered: int = 0
    refused: int = 0
    unanswered_after: list[float] = field(default_factory=list)
    """Seconds from the last fault that stops answers to each request that got none."""
    foreign: list[str] = field(default_factory=list)
    last_fault: float = field(default_factory=time.monotonic)
    problems: list[str] = field(default_factory=list)


class Load:
    """Turns, feedback, documents and requests of random owners."""

    def __init__(self, client: Client, run: Run, rate: float, random_: random.Random) -> None:
        self._client = client
        self._run = run
        self._rate = rate
        self._random = random_
        self._number = 0
        self._asks: set[asyncio.Task[None]] = set()

    async def work(self, until: float) -> None:
        """Post and ask until a time, at about the rate of turns a second."""
        while time.monotonic() < until:
            await self._turn()
            if self._random.random() < 0.05:
                await self._feedback()
            if self._random.random() < 0.02:
                await self._document()
            if self._random.random() < 0.3 and len(self._asks) < 32:
                task = asyncio.create_task(self._ask())
                self._asks.add(task)
                task.add_done_callback(self._asks.discard)
            await asyncio.sleep(self._random.expovariate(self._rate))
        await asyncio.gather(*self._asks)

    async def _turn(self) -> None:
        self._number += 1
        owner = f"owner{self._random.randrange(OWNERS)}"
        turn_id = f"t{self._number}"
        token = f"tok{self._number}x{self._run.seed}"
        late_days = self._random.choice((0, 0, 0, 0, 3, 40))
        fields: dict[str, Any] = {
            "user_id": owner,
            "role_id": "lin",
            "session_id": f"s{self._number // 50}",
            "speaker": self._random.choice(("user", "assistant")),
            "turn_id": turn_id,
            "text": f"{owner}的话 {token} 第{self._number}句, said by {owner}",
            "occurred_at": f"2026-{10 - (1 if late_days > 30 else 0):02d}-{28 - min(late_days, 20):02d}T10:00:00Z",
        }
        if fields["speaker"] == "user" and self._random.random() < 0.2:
            fields["text"] += f". I live in {self._random.choice(HOMES)}."
        copies = 2 if self._random.random() < 0.1 else 1
        for _ in range(copies):
            if await self._acknowledged(self._client.post_turn(**fields)):
                self._run.posted.turns[owner, turn_id] = fields["text"]
        if self._random.random() < 0.02 and (owner, turn_id) in self._run.posted.turns:
            changed = {**fields, "text": f"{owner} other words under {turn_id}"}
            if await self._acknowledged(self._client.post_turn(**changed)):
                self._run.posted.conflicts.add((owner, turn_id))

    async def _feedback(self) -> None:
        id_ = f"f{uuid.UUID(int=self._random.getrandbits(128))}"
        ends = self._random.random() < 0.3
        posting = self._client.post_feedback(
            user_id=f"owner{self._random.randrange(OWNERS)}",
            role_id="lin",
            kind="session_end" if ends else "complaint",
            target={"session_id": f"s{self._number // 50}"} if ends else None,
            feedback_id=id_,
        )
        if await self._acknowledged(posting):
            self._run.posted.feedback.add(id_)

    async def _document(self) -> None:
        id_ = f"doc{self._random.randrange(8)}"
        self._number += 1
        text = f"Revision {self._number} of {id_} speaks of doctok{self._number}x{self._run.seed}. " * 3
        if await self._acknowledged(self._client.learn(text, document_id=id_)):
            self._run.posted.documents[id_] = f"doctok{self._number}x{self._run.seed}"

    async def _acknowledged(self, posting: Any) -> bool:
        try:
            await posting
        except BrokerUnavailable:
            return False
        except MnemologError:
            raise
        except Exception as error:
            if "kafka" not in type(error).__module__:
                raise
            return False
        return True

    async def _ask(self) -> None:
        owner = f"owner{self._random.randrange(OWNERS)}"
        sent = time.monotonic()
        try:
            reply = await self._client.assemble(
                f"what did {owner} say 第几句", user_id=owner, role_id="lin", timeout_ms=REQUEST_TIMEOUT_MS
            )
        except MnemologError as error:
            if error.failure is not None:
                self._run.refused += 1
            else:
                self._run.unanswered += 1
                self._run.unanswered_after.append(max(0.0, sent - self._run.last_fault))
            return
        self._run.answered += 1
        said = [item.text for item in reply.evidence or () if item.path == "experience"]
        said += [message.content for message in reply.messages or ()]
        others = [f"said by owner{n}" for n in range(OWNERS) if f"owner{n}" != owner]
        for text in said:
            self._run.foreign += [f"{owner} was shown {other!r}" for other in others if _whole(other, text)]


def _whole(name: str, text: str) -> bool:
    index = text.find(name)
    while index >= 0:
        after = text[index + len(name) : index + len(name) + 1]
        if not after.isdigit():
            return True
        index = text.find(name, index + 1)
    return False


class Faults:
    """Breaks one thing after the other, in an order that the seed decides."""

    def __init__(self, addresses: Addresses, workers: list[Worker], run: Run, random_: random.Random) -> None:
        self._addresses = addresses
        self._workers = workers
        self._run = run
        self._random = random_

    async def work(self, until: float, pause_s: float) -> None:
        """Go through all faults, again and again, until a time."""
        while time.monotonic() < until:
            faults = self._all()
            self._random.shuffle(faults)
            for name, fault in faults:
                if time.monotonic() >= until:
                    return
                self._run.faults.append(name)
                self._run.last_fault = time.monotonic()
                print(f"soak: {name}", file=sys.stderr, flush=True)
                await fault()
                self._run.last_fault = time.monotonic()
                await asyncio.sleep(pause_s)

    def _all(self) -> list[tuple[str, Callable[[], Any]]]:
        faults: list[tuple[str, Callable[[], Any]]] = []
        for role in ROLES:
            for number, word in ((signal.SIGKILL, "kill -9"), (signal.SIGTERM, "SIGTERM")):
                worker = self._random.choice([w for w in self._workers if w.role == role])
                faults.append((f"{word} {role}/{worker.number}", partial(self._restart, worker, number)))
        faults.append(("clickhouse kill -9", lambda: self._kill_child("infra.clickhouse_server")))
        faults.append(("embeddings kill -9", lambda: self._kill_child("infra.embedding_server")))
        faults.append(("embeddings stopped for 3 s", lambda: self._pause_child("infra.embedding_server", 3)))
        faults.append(("embeddings five times slower for 15 s", lambda: self._slow_child("infra.embedding_server", 15)))
        faults.append(("clickhouse stopped for 3 s", lambda: self._pause_child("infra.clickhouse_server", 3)))
        frozen = self._random.choice([w for w in self._workers if w.role == "memory"])
        faults.append((f"memory/{frozen.number} frozen for 14 s", partial(self._freeze, frozen, 14)))
        faults.append(("broker kill -9", lambda: self._kill_child("kafka.Kafka")))
        faults.append(("broker stopped for 3 s", lambda: self._pause_child("kafka.Kafka", 3)))
        return faults

    async def _restart(self, worker: Worker, number: int) -> None:
        await asyncio.to_thread(worker.end, number)
        await asyncio.sleep(self._random.uniform(0.1, 2.0))
        worker.start()

    async def _freeze(self, worker: Worker, seconds: float) -> None:
        """Longer than the session: the other worker takes over, and this one must not answer when it wakes."""
        assert worker.process is not None
        until = time.monotonic() + FIRST_ANSWER_S_MAX
        while not worker.ready.exists() and time.monotonic() < until:
            await asyncio.sleep(0.2)  # one that is still starting holds nothing, so there is nothing to lose
        worker.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        worker.process.send_signal(signal.SIGCONT)
        try:
            await asyncio.to_thread(worker.process.wait, 15)
        except subprocess.TimeoutExpired:
            self._run.problems.append(f"memory/{worker.number} went on after {seconds} s of suspension")
            return
        worker.start()

    async def _kill_child(self, word: str) -> None:
        for pid in self._pids(word):
            os.kill(pid, signal.SIGKILL)

    async def _pause_child(self, word: str, seconds: float) -> None:
        pids = self._pids(word)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    async def _slow_child(self, word: str, seconds: float) -> None:
        """Let it run a fifth of the time: the backlog of vectors grows, and questions wait for theirs."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self._pause_child(word, 0.4)
            await asyncio.sleep(0.1)

    def _pids(self, word: str) -> list[int]:
        """Processes of our own stack: by their command line and our process as an ancestor."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes().split(b"\0")
                    ours = _descends(int(entry.name), os.getpid())
                except (OSError, ValueError):
                    continue
                if ours and word.encode() in command:
                    found.append(int(entry.name))
        return found


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


async def soak(
    addresses: Addresses, folder: Path, *, seconds: float, seed: int, rate: float, pause_s: float
) -> dict[str, Any]:
    """Run load and faults, then verify; returns the report, whose ``ok`` is the verdict."""
    random_ = random.Random(seed)
    run = Run(seed)
    workers = [
        Worker(role, number, _env(addresses, folder, role, number), folder / f"{role}-{number}.log")
        for role in ROLES
        for number in (1, 2)
    ]
    try:
        for worker in workers:
            worker.start()
        async with Client(addresses.kafka, prefix=addresses.prefix) as client:
            await _first_answer(client)
            until = time.monotonic() + seconds
            load = Load(client, run, rate, random_)
            await asyncio.gather(
                load.work(until), Faults(addresses, workers, run, random.Random(seed + 1)).work(until, pause_s)
            )
            print("soak: load has ended; settling", file=sys.stderr, flush=True)
            for worker in workers:
                if worker.process is None or worker.process.poll() is not None:
                    worker.start()  # a role that stopped itself is started again, as a supervisor does
            await asyncio.sleep(SETTLE_S)
            verdict = await verify(addresses, client, run.posted)
    finally:
        codes = [worker.end(signal.SIGTERM) for worker in workers if worker.process and worker.process.poll() is None]
    return _report(run, verdict, codes)


def _report(run: Run, verdict: Verdict, codes: list[int]) -> dict[str, Any]:
    late = [round(after, 1) for after in run.unanswered_after if after > FAILOVER_S_MAX]
    problems = list(verdict.problems) + run.problems
    problems += [f"foreign: {what}" for what in run.foreign[:10]]
    problems += [f"unanswered {after} s after the last fault, the bound is {FAILOVER_S_MAX}" for after in late]
    problems += [f"a worker ended with {code} after SIGTERM" for code in codes if code != 0]
    return {
        "ok": not problems,
        "seed": run.seed,
        "faults": run.faults,
        "requests": {"answered": run.answered, "unanswered": run.unanswered, "refused": run.refused},
        **{name: value for name, value in asdict(verdict).items() if name != "problems"},
        "problems": problems,
    }


async def _first_answer(client: Client) -> None:
    until = time.monotonic() + FIRST_ANSWER_S_MAX
    while True:
        try:
            await client.recall("ready?", user_id="nobody", role_id="lin", timeout_ms=3000)
            return
        except MnemologError:
            if time.monotonic() > until:
                raise


def _env(addresses: Addresses, folder: Path, role: str, number: int) -> dict[str, str]:
    return {
        **os.environ,
        "MNEMOLOG_KAFKA": addresses.kafka,
        "MNEMOLOG_CLICKHOUSE": addresses.clickhouse,
        "MNEMOLOG_EMBEDDINGS": addresses.embeddings,
        "MNEMOLOG_OBJECTS": addresses.objects,
        "MNEMOLOG_PREFIX": addresses.prefix,
        "MNEMOLOG_BROKER": addresses.broker,
        "MNEMOLOG_SEGMENT_IDLE_S": str(SEGMENT_IDLE_S),
        "MNEMOLOG_DATA": str(folder / f"{role}-{number}"),
        "MNEMOLOG_READY_FILE": str(folder / f"{role}-{number}.ready"),
    }


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m infra.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=10.0, help="turns a second, about")
    parser.add_argument("--pause", type=float, default=8.0, help="seconds between faults")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="mnemolog-soak-") as folder:
        report = run_soak(Path(folder), options.minutes * 60, options.seed, options.rate, options.pause)
    print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    return 0 if report["ok"] else 1


def run_soak(folder: Path, seconds: float, seed: int, rate: float, pause_s: float) -> dict[str, Any]:
    """A soak on a stack of its own: Apache Kafka, ClickHouse, embeddings; the roles are started by the soak."""
    from connectors.kafka import ensure_topics

    options = UpOptions(broker="kafka", data=folder / "data", only=("broker", "clickhouse", "embeddings"))
    with running_stack(options, say=lambda line: print(f"soak: {line}", file=sys.stderr)) as addresses:
        ensure_topics(addresses.kafka, addresses.prefix, options.partitions, 1)
        return asyncio.run(soak(addresses, folder, seconds=seconds, seed=seed, rate=rate, pause_s=pause_s))


if __name__ == "__main__":
    sys.exit(main())
