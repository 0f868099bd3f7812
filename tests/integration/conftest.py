"""Real stacks, one a session and broker: embedded, and Apache Kafka with two workers of each role."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.stack import running_stack
from infra.stack_options import Addresses, UpOptions
from infra.target import Target

READY_S_MAX = 90.0
ROLES = ("ingest", "memory", "analytics")


@dataclass(slots=True)
class Worker:
    """A role worker that a test started beside those of the stack."""

    role: str
    env: dict[str, str]
    ready: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.ready.unlink(missing_ok=True)
        log = self.ready.with_suffix(".log").open("ab")
        self.process = subprocess.Popen([sys.executable, "-m", "infra.worker", self.role], env=self.env, stderr=log)
        log.close()

    def await_ready(self) -> None:
        assert self.process is not None
        until = time.monotonic() + READY_S_MAX
        while not self.ready.exists():
            assert self.process.poll() is None, f"{self.role} ended with {self.process.returncode}"
            assert time.monotonic() < until, f"{self.role} was not ready within {READY_S_MAX} s"
            time.sleep(0.05)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(15)


@dataclass(slots=True)
class RunningStack:
    """A stack with the workers that were added to it."""

    addresses: Addresses
    folder: Path
    workers: list[Worker] = field(default_factory=list)

    @property
    def target(self) -> Target:
        a = self.addresses
        return Target(a.kafka, a.clickhouse, a.embeddings, a.objects, a.prefix, "test")

    @property
    def env(self) -> dict[str, str]:
        a = self.addresses
        return {
            **os.environ,
            "MNEMOLOG_KAFKA": a.kafka,
            "MNEMOLOG_CLICKHOUSE": a.clickhouse,
            "MNEMOLOG_EMBEDDINGS": a.embeddings,
            "MNEMOLOG_OBJECTS": a.objects,
            "MNEMOLOG_PREFIX": a.prefix,
            "MNEMOLOG_BROKER": a.broker,
        }

    def worker(self, role: str) -> Worker:
        ready = self.folder / f"extra-{role}-{len(self.workers)}"
        data = ready.with_suffix(".data")
        env = {**self.env, "MNEMOLOG_READY_FILE": str(ready), "MNEMOLOG_DATA": str(data)}
        worker = Worker(role, env, ready)
        self.workers.append(worker)
        return worker

    def mnemolog(self, *args: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user does: another process, addresses by the environment."""
        done = subprocess.run(
            [sys.executable, "-m", "infra.cli", *args],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        if check:
            assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """The embedded stack: Tansu, chDB, e5, one worker a role."""
    folder = tmp_path_factory.mktemp("embedded")
    with running_stack(UpOptions(data=folder / "data"), say=_say) as addresses:
        yield RunningStack(addresses, folder)


@pytest.fixture(scope="session")
def on_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Apache Kafka with two workers of each role."""
    if (shutil.which("java") is None or shutil.which("mvn") is None) and not os.environ.get("CI"):
        pytest.skip("Apache Kafka needs java and mvn on PATH")
    folder = tmp_path_factory.mktemp("kafka")
    with running_stack(UpOptions(broker="kafka", data=folder / "data"), say=_say) as addresses:
        stack = RunningStack(addresses, folder)
        workers = [stack.worker(role) for role in ROLES]
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.await_ready()
            yield stack
        finally:
            for worker in stack.workers:
                if worker.process is not None and worker.process.poll() is None:
                    worker.stop()


@pytest.fixture(params=["embedded", pytest.param("on_kafka", marks=pytest.mark.kafka)])
def stack(request: pytest.FixtureRequest) -> RunningStack:
    """Each test on both brokers."""
    running: RunningStack = request.getfixturevalue(request.param)
    return running


def _say(line: str) -> None:
    print(line, file=sys.stderr)
