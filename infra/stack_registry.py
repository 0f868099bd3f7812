"""Which local stacks are running: one JSON file a stack, so that other commands find the newest one.

Invariant: a file is believed only while its process lives; process id *and* start time are compared, since ids are
used again. Files of dead stacks are removed by whoever reads them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from infra.stack_options import Addresses


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A stack that is running: its supervisor's process id, when it became ready (RFC 3339), its addresses."""

    pid: int
    ready_at: str
    addresses: Addresses


def state_directory() -> Path:
    """Directory of the registry: `MNEMOLOG_STATE`, else under XDG_RUNTIME_DIR, else the user's state directory."""
    if own := os.environ.get("MNEMOLOG_STATE"):
        return Path(own)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "mnemolog" / "stacks"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "mnemolog" / "stacks"


def register(addresses: Addresses) -> Path:
    """Announce a stack of this process; returns the file to remove at its end."""
    directory = state_directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    pid = os.getpid()
    content = {
        "pid": pid,
        "process_started": process_start(pid),
        "ready_at": datetime.now(UTC).isoformat(),
        "addresses": asdict(addresses),
    }
    file = directory / f"{pid}-{uuid.uuid4().hex[:8]}.json"
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content) + "\n")
    part.replace(file)
    return file


def running_stacks() -> list[RunningStack]:
    """All running stacks of this user, newest first; removes the files of dead ones."""
    found = []
    for file in state_directory().glob("*.json"):
        stack = _read(file)
        if stack is None:
            file.unlink(missing_ok=True)
        else:
            found.append(stack)
    return sorted(found, key=lambda stack: stack.ready_at, reverse=True)


def newest_stack() -> Addresses | None:
    """Addresses of the stack that became ready last, None if none is running."""
    stacks = running_stacks()
    return stacks[0].addresses if stacks else None


def process_start(pid: int) -> str | None:
    """When a process started, in whatever unit the system has; None if there is no such process (a zombie is none)."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        after_name = stat.rpartition(")")[2].split()  # the name, field 2, may hold spaces and parentheses
        return None if after_name[0] in "ZX" else after_name[19]  # field 22, ticks since boot
    said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return said.stdout.strip() or None


def _read(file: Path) -> RunningStack | None:
    try:
        content = json.loads(file.read_text())
        pid = int(content["pid"])
        if content["process_started"] != process_start(pid):
            return None
        known = {item.name for item in fields(Addresses)}
        addresses = Addresses(**{key: value for key, value in content["addresses"].items() if key in known})
        return RunningStack(pid, str(content["ready_at"]), addresses)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # half removed, or written by another version
        return None
