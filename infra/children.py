"""Child processes of the supervisor: start, watch, log, stop.

Invariants: a child never outlives the thread that started it (infra/guard.py); its log is bounded; it is in a session
of its own, so that Ctrl-C reaches the supervisor alone, which then stops the children in order.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOG_BYTES_MAX = 16 * 1024 * 1024
LINE_CHARS_MAX = 200
LOGS_KEPT = 3
CRASHES_MAX = 5
CRASH_WINDOW_S = 60.0
_BACK_OFF_S = (
    0.25,
    0.5,
    1.0,
    2.0,
)  # before the 2nd, 3rd, … start; the sum (3.75 s) keeps five crashes within the window
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_GUARD = Path(__file__).with_name("guard.py")


class StopRequested(Exception):
    """Somebody asked the stack to stop; raised out of every wait."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to run one child.

    Attributes
    ----------
    name : str
        Shown to people; names the log file.
    argv : tuple of str
        The command.
    env : mapping
        Added to the supervisor's environment.
    is_ready : callable
        Asked until it says True; must return within about a second.
    volatile : bool
        Its data die with it: it must not be restarted.
    before_start : callable
        Run before each start (removes a stale ready file).
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[Child], bool] = lambda _child: True
    volatile: bool = False
    before_start: Callable[[], None] = lambda: None


class Child:
    """One child process, across its restarts."""

    def __init__(self, spec: ChildSpec, logs: Path) -> None:
        self.spec = spec
        self.log = logs / f"{spec.name}.log"
        self.ready = False
        self.start_due_s: float | None = None
        self.crashes = Crashes()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0
        rotate(self.log)

    def start(self) -> None:
        """Start or restart; call it from a thread that outlives the child."""
        self.spec.before_start()
        self.ready, self.start_due_s = False, None
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            self._process = spawn(self.spec.argv, {**os.environ, **self.spec.env}, log.fileno())

    @property
    def pid(self) -> int | None:
        """Process id of the latest start."""
        return self._process.pid if self._process else None

    def exit_code(self) -> int | None:
        """Exit code (negative: the signal that ended it), None while it runs or before its first start."""
        return self._process.poll() if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def check_ready(self) -> bool:
        """Ask once more whether it is ready, and remember a yes."""
        self.ready = self.ready or (self.running and self.spec.is_ready(self))
        return self.ready

    def log_contains(self, text: str) -> bool:
        """Whether the log of the present run contains `text`."""
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            return text.encode() in log.read(LOG_BYTES_MAX)

    def last_line(self) -> str:
        """The last non-empty line of the log, without colours and not too long, for an error message."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 8192))
            text = log.read().decode(errors="replace")
        lines = [line.strip() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
        return lines[-1][:LINE_CHARS_MAX] if lines else ""

    def bound_log(self) -> None:
        """Move a log that has grown too large aside; the child writes on at the start of the (appended) file."""
        if self.log.stat().st_size > LOG_BYTES_MAX:
            shutil.copyfile(self.log, self.log.with_name(self.log.name + ".1"))
            os.truncate(self.log, 0)
            self._log_from = 0

    def signal(self, number: int) -> None:
        """Signal the child's whole session, if it is still there."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # PermissionError: macOS says so of a zombie
            pass

    def reap(self) -> None:
        """Collect the exit code after SIGKILL."""
        if self._process is not None:
            self._process.wait()


class Crashes:
    """Crash times of one child: how long to wait before the next start, and when to give up.

    >>> crashes = Crashes()
    >>> [crashes.record(at_s) for at_s in (0.0, 1.0, 2.0, 3.0, 4.0)]
    [0.25, 0.5, 1.0, 2.0, None]
    >>> crashes.record(100.0)
    0.25
    """

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=CRASHES_MAX)

    @property
    def empty(self) -> bool:
        """Whether it never crashed."""
        return not self._times

    def record(self, at_s: float) -> float | None:
        """Record a crash; returns the seconds to wait before the next start, None when it crashed too often."""
        self._times.append(at_s)
        while self._times[0] < at_s - CRASH_WINDOW_S:
            self._times.popleft()
        count = len(self._times)
        return None if count >= CRASHES_MAX else _BACK_OFF_S[count - 1]


def spawn(argv: Sequence[str], env: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    """Start a process that dies with the calling thread, in a session of its own; stdout and stderr go to `output`."""
    guarded = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *argv]
    return subprocess.Popen(
        guarded, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )


def run_tool(
    argv: Sequence[str], log: Path, check_stop: Callable[[], None], env: Mapping[str, str] | None = None
) -> int:
    """Run a program to its end, its output in `log`; `check_stop` may raise to break it off.

    Returns
    -------
    int
        Its exit code.
    """
    with log.open("ab") as output:
        process = spawn(argv, {**os.environ, **(env or {})}, output.fileno())
    try:
        while process.poll() is None:
            check_stop()
            time.sleep(0.02)
        return process.returncode
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def stop_all(children: Sequence[Child], grace_s: float, is_forced: Callable[[], bool]) -> list[str]:
    """SIGTERM to all, SIGKILL to those that are still there after `grace_s` (at once if `is_forced`).

    Returns
    -------
    list of str
        Names of the children that had to be killed.
    """
    started = [child for child in children if child.running]
    waiting = started
    for child in started:
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while waiting and time.monotonic() < deadline and not is_forced():
        time.sleep(0.02)
        waiting = [child for child in waiting if child.running]
    for child in started:  # also what a child that is gone left behind in its session
        child.signal(signal.SIGKILL)
        child.reap()
    return [child.spec.name for child in waiting]


def rotate(log: Path) -> None:
    """Start a new log: NAME.log becomes NAME.log.1, that NAME.log.2, and so on; the oldest goes."""
    for number in range(LOGS_KEPT - 1, -1, -1):
        old = log.with_name(f"{log.name}.{number}") if number else log
        if old.exists():
            old.replace(log.with_name(f"{log.name}.{number + 1}"))
    log.touch()


def describe_exit(code: int) -> str:
    """Exit code or signal in words.

    >>> describe_exit(3), describe_exit(-9)
    ('exit code 3', 'signal SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
