"""The local stack: one supervisor for broker, ClickHouse, embeddings and the three roles.

`up` is the command, `running_stack` the same for tests and the demo. Start: the services side by side, then the
topics, then the roles. Stop: the roles first, so that they can still finish what they hold, then the services.

Invariants: all children are started by the one thread that runs `Stack.run`, so they die with the supervisor however
it dies (infra/guard.py). A crashed child is restarted with back-off, except the embedded broker: its log is gone with
it, and going on with an empty log would answer from nothing. At a start it is filled from the archive before the roles
start; at a stop `analytics` ends after the other roles, so that it archives their last records. Nothing is left behind:
lock, registry entry, temporary directory.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from types import FrameType

from infra.children import (
    CRASH_WINDOW_S,
    CRASHES_MAX,
    Child,
    ChildSpec,
    StopRequested,
    describe_exit,
    stop_all,
)
from infra.roster import Roster, local_roster
from infra.stack_data import DataDirectory, open_data
from infra.stack_options import BROKERS, Addresses, StackError, UpOptions, UsageError
from infra.stack_registry import newest_stack, register

__all__ = [
    "BROKERS",
    "Addresses",
    "Stack",
    "StackError",
    "UpOptions",
    "UsageError",
    "newest_stack",
    "running_stack",
    "up",
]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK_S = 0.05
LOG_CHECK_S = 5.0
ROLES_GRACE_S = 10.0  # what the roles are promised; they drain what they hold
SERVICES_GRACE_S = 5.0  # Kafka needs 0.4 s, chDB and the embedder less
_REPLICATION = 1  # one broker

RosterOf = Callable[[UpOptions, DataDirectory], Roster]
MakeTopics = Callable[[str, str, int, int], None]
Say = Callable[[str], None]


def up(options: UpOptions, roster_of: RosterOf = local_roster, make_topics: MakeTopics | None = None) -> int:
    """Run a stack in the foreground until it is stopped by Ctrl-C or SIGTERM: the command `mnemolog up`.

    Progress goes to stderr; once everything is ready, stdout gets a table of the addresses, or one line of JSON.

    Returns
    -------
    int
        Exit code: 0 when asked to stop, 1 when the stack can't start or go on, 2 for wrong options.
    """
    stack = Stack(options, _say_on_stderr, roster_of, make_topics)
    handlers = {number: signal.signal(number, stack.on_signal) for number in STOP_SIGNALS}
    try:
        stack.run(lambda addresses: _announce(addresses, options))
    except StackError as error:
        _say_on_stderr(str(error))
        return error.exit_code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


@contextmanager
def running_stack(
    options: UpOptions | None = None,
    say: Say = lambda _line: None,
    roster_of: RosterOf = local_roster,
    make_topics: MakeTopics | None = None,
) -> Iterator[Addresses]:
    """Run a stack in a thread for the length of a `with` block.

    Yields
    ------
    Addresses
        When everything is ready.

    Raises
    ------
    StackError
        It can't start; or, at the end of the block, it had stopped by itself.
    """
    stack = Stack(options or UpOptions(), say, roster_of, make_topics)
    ready: list[Addresses] = []
    failed: list[BaseException] = []
    changed = threading.Event()

    def on_ready(addresses: Addresses) -> None:
        ready.append(addresses)
        changed.set()

    def run() -> None:
        try:
            stack.run(on_ready)
        except BaseException as error:  # noqa: BLE001 - the thread's outermost level: raised again by the caller's thread
            failed.append(error)
        finally:
            changed.set()

    thread = threading.Thread(target=run, name="mnemolog-stack", daemon=True)
    thread.start()
    try:
        changed.wait()
        if ready:
            yield ready[0]
    finally:
        stack.request_stop()
        thread.join()
    if failed:
        raise failed[0]


class Stack:
    """Supervisor of one stack.

    Parameters
    ----------
    options : UpOptions
        What to start.
    say : callable
        Gets each line of progress.
    roster_of : callable
        Makes the children; tests give stand-ins.
    make_topics : callable, optional
        `(bootstrap, prefix, partitions, replication)`; `connectors.kafka.ensure_topics` by default.
    """

    def __init__(
        self,
        options: UpOptions,
        say: Say,
        roster_of: RosterOf = local_roster,
        make_topics: MakeTopics | None = None,
    ) -> None:
        self._options = options
        self._say = say
        self._roster_of = roster_of
        self._make_topics = make_topics or _ensure_topics
        self._services: list[Child] = []
        self._roles: list[Child] = []
        self._logs = Path()
        # Plain attributes: a signal handler may interrupt whoever holds the lock of an Event.
        self._stops = 0
        self._deadline_s: float | None = None
        self._log_check_due_s = 0.0

    def request_stop(self) -> None:
        """Ask the stack to stop; asked again, it kills what has not stopped yet."""
        self._stops += 1

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """`request_stop` as a signal handler."""
        self.request_stop()

    def run(self, on_ready: Callable[[Addresses], object]) -> None:
        """Start everything, call `on_ready`, keep it running until `request_stop`, stop everything.

        Raises
        ------
        StackError
            It can't start, or a part failed for good.
        """
        self._options.check()
        data = open_data(self._options, self._say)
        failed = True
        try:
            self._run_in(data, on_ready)
            failed = False
        except StopRequested:
            failed = False
        except StackError as error:
            kept = f" (logs are kept in {data.path / 'logs'})" if data.temporary else ""
            raise type(error)(f"{error}{kept}") from error
        finally:
            self._stop_children()
            data.close(keep_logs=failed)

    def _run_in(self, data: DataDirectory, on_ready: Callable[[Addresses], object]) -> None:
        started_s = time.monotonic()
        self._deadline_s = started_s + self._options.start_s_max
        self._logs = data.of("logs")
        roster = self._roster_of(self._options, data)
        self._start(roster)
        self._deadline_s = None
        entry = register(roster.addresses)
        try:
            self._say(f"ready after {time.monotonic() - started_s:.1f} s")
            if self._options.broker == "embedded" and self._options.has("broker"):
                self._say(
                    "the embedded broker keeps everything in memory, for this run only: "
                    "use --data DIR, or --broker kafka, to keep it"
                    if data.temporary
                    else f"the embedded broker keeps its log in memory; every record is archived within seconds under "
                    f"{data.path} and is there again at the next start"
                )
            on_ready(roster.addresses)
            while True:
                self._tick()
        finally:
            entry.unlink(missing_ok=True)

    def _start(self, roster: Roster) -> None:
        names = [spec.name for spec in roster.services] + (["broker"] if roster.broker else [])
        self._say(f"starting {', '.join(sorted(names))}")
        self._services += [self._child(spec) for spec in roster.services]
        if roster.broker:
            self._services.append(self._child(roster.broker(self._check_stop, self._say)))
        self._await_ready(self._services)
        if roster.roles:
            if self._options.broker == "embedded" and self._make_topics is _ensure_topics:
                self._aside("the log could not be restored", lambda: self._restore(roster.addresses))
            self._say("creating topics")
            self._create_topics(roster.addresses)
            self._say(f"starting {', '.join(spec.name for spec in roster.roles)}")
            self._roles += [self._child(spec) for spec in roster.roles]
            self._await_ready(self._roles)

    def _child(self, spec: ChildSpec) -> Child:
        child = Child(spec, self._logs)
        child.start()
        return child

    def _await_ready(self, children: list[Child]) -> None:
        while not all(child.ready for child in children):
            self._tick()

    def _create_topics(self, addresses: Addresses) -> None:
        def create() -> None:
            self._make_topics(addresses.kafka, addresses.prefix, self._options.partitions, _REPLICATION)

        self._aside(f"the topics {addresses.prefix}* could not be created", create)

    def _restore(self, addresses: Addresses) -> None:
        """Fill the embedded broker from what was archived before."""
        from infra.stack_restore import restore_embedded  # late, as in `_ensure_topics`

        restore_embedded(addresses, self._options.partitions, self._say)

    def _aside(self, failure: str, work: Callable[[], None]) -> None:
        """Do something in a thread of its own: it blocks, and a stop must not wait for it."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the thread's outermost level: reported by the supervisor
                failed.append(error)

        thread = threading.Thread(target=run, name="mnemolog-aside", daemon=True)
        thread.start()
        while thread.is_alive():
            self._tick()
        if failed:
            raise StackError(f"{failure}: {failed[0]}") from failed[0]

    def _tick(self) -> None:
        """One round: look after every child, then sleep."""
        self._check_stop()
        for child in (*self._services, *self._roles):
            self._look_after(child)
        now_s = time.monotonic()
        if now_s >= self._log_check_due_s:
            self._log_check_due_s = now_s + LOG_CHECK_S
            for child in (*self._services, *self._roles):
                child.bound_log()
        time.sleep(TICK_S)

    def _check_stop(self) -> None:
        if self._stops:
            raise StopRequested
        if self._deadline_s is not None and time.monotonic() > self._deadline_s:
            late = [child for child in (*self._services, *self._roles) if not child.ready]
            named = ", ".join(f"{child.spec.name} ({child.log})" for child in late) or "the broker's files"
            raise StackError(f"not ready within {self._options.start_s_max:g} s: {named}; see the logs named")

    def _look_after(self, child: Child) -> None:
        if child.start_due_s is not None:
            if time.monotonic() >= child.start_due_s:
                child.start()
            return
        code = child.exit_code()
        if code is None:
            was_ready = child.ready
            if child.check_ready() and not was_ready and not child.crashes.empty:
                self._say(f"{child.spec.name} is ready again")
            return
        child.signal(signal.SIGKILL)  # whatever it left behind in its session
        self._on_crash(child, code)

    def _on_crash(self, child: Child, code: int) -> None:
        name, how = child.spec.name, describe_exit(code)
        what = f"{name} ended by itself ({how}, last line: {child.last_line() or 'none'}; log: {child.log})"
        if child.spec.volatile:
            raise StackError(
                f"{what}, and the log that it kept in memory is lost, so the stack stops: "
                "start it again for an empty one, or use --broker kafka to keep a log"
                if child.ready
                else f"{what} before it was ready, so the stack stops"
            )
        delay_s = child.crashes.record(time.monotonic())
        if delay_s is None:
            raise StackError(
                f"{what}, for the {CRASHES_MAX}th time within {CRASH_WINDOW_S:.0f} s, so the stack stops: "
                "mend what its log complains about, then start again"
            )
        self._say(f"{what}; starting it again in {delay_s:g} s")
        child.ready, child.start_due_s = False, time.monotonic() + delay_s

    def _stop_children(self) -> None:
        asked = self._stops
        archiving = [child for child in self._roles if child.spec.name == "analytics"]
        writing = [child for child in self._roles if child not in archiving]
        for children, grace_s in (
            (writing, ROLES_GRACE_S),
            (archiving, ROLES_GRACE_S),
            (self._services, SERVICES_GRACE_S),
        ):
            for name in stop_all(children, grace_s, lambda: self._stops > max(asked, 1)):
                self._say(f"{name} did not stop in time and was killed")


def _ensure_topics(bootstrap: str, prefix: str, partitions: int, replication: int) -> None:
    from connectors.kafka import ensure_topics  # late: librdkafka takes 50 ms to load, and `--only broker` needs none

    ensure_topics(bootstrap, prefix, partitions, replication)


def _say_on_stderr(line: str) -> None:
    print(f"mnemolog: {line}", file=sys.stderr, flush=True)


def _announce(addresses: Addresses, options: UpOptions) -> None:
    if options.json:
        print(json.dumps(asdict(addresses)), flush=True)
        return
    rows = [(field.name, getattr(addresses, field.name)) for field in fields(addresses)]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        if value:
            shown = value if isinstance(value, str) else "  ".join(f"{key}={url}" for key, url in value.items())
            print(f"{name:<{width}}  {shown}")
    sys.stdout.flush()
