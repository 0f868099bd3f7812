"""Stand-in children for supervisor tests: small scripts that behave as they are told through files and arguments."""

import json
import os
import sys
from pathlib import Path

from infra.children import ChildSpec
from infra.roster import Roster, choose_ports, local_addresses, python_environment

# Writes its pid, then a ready file, then sleeps until SIGTERM. `crash`: exits 3 at once; `stubborn` ignores
# SIGTERM; `slow` never becomes ready.
CHILD = """
import os, pathlib, signal, sys, time
name, run, mode = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
print(name, "says hello", flush=True)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    def end(*_):
        (run / "stops").open("a").write(name + "\\n"); sys.exit(0)
    signal.signal(signal.SIGTERM, end)
(run / (name + ".pid")).write_text(str(os.getpid()))
if mode == "crash":
    print("the disk is on fire", flush=True); sys.exit(3)
if mode != "slow":
    (run / (name + ".ready")).touch()
while True:
    time.sleep(0.02)
"""


def spec(data, name, mode="good", volatile=False):
    run = data.of("run")
    ready = run / f"{name}.ready"
    return ChildSpec(
        name,
        (sys.executable, "-I", "-S", "-c", CHILD, name, str(run), mode),
        python_environment(),
        is_ready=lambda _child: ready.exists(),
        volatile=volatile,
        before_start=lambda: ready.unlink(missing_ok=True),
    )


def roster_of(modes=None):
    """A roster of four stand-ins; `modes` by name."""
    modes = modes or {}

    def make(options, data):
        addresses = local_addresses(options, data, choose_ports(options))
        broker = spec(data, "broker", modes.get("broker", "good"), volatile=options.broker == "embedded")
        services = (spec(data, "clickhouse", modes.get("clickhouse", "good")),)
        roles = tuple(spec(data, name, modes.get(name, "good")) for name in ("ingest", "memory"))
        return Roster(addresses, services, lambda _check, _say: broker, roles)

    return make


def no_topics(*_arguments):
    """Stands in for connectors.kafka.ensure_topics."""


def main():
    """Run `up` with stand-ins: `stack_standins.py OPTIONS MODES`, both JSON."""
    from infra.stack import UpOptions, up

    options = json.loads(sys.argv[1])
    if options.get("data"):
        options["data"] = Path(options["data"])
    sys.exit(up(UpOptions(**options), roster_of(json.loads(sys.argv[2])), no_topics))


if __name__ == "__main__":
    os.umask(0o077)
    main()
