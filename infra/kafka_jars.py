"""The jars of Apache Kafka, fetched once by Maven into the user's cache.

Invariant: a cache directory with a `pom.xml` in it is complete: jars are copied into a directory beside it, which is
then renamed; stacks that start at the same time wait for each other on a lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from infra.children import run_tool
from infra.java import Java
from infra.stack_data import check_space
from infra.stack_options import StackError

KAFKA_VERSION = "4.4.0"
JAVA_MIN = 17
POM = Path(__file__).with_name("kafka") / "pom.xml"
LOG_CONFIGURATION = POM.with_name("log4j2.properties")


def cache_directory() -> Path:
    """`MNEMOLOG_CACHE`, else `$XDG_CACHE_HOME/mnemolog`, else `~/.cache/mnemolog`."""
    if own := os.environ.get("MNEMOLOG_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mnemolog"


def cached_jars() -> Path | None:
    """The directory with the jars, None if it is missing or was made from another pom."""
    jars = cache_directory() / f"kafka-{KAFKA_VERSION}"
    try:
        return jars if (jars / POM.name).read_bytes() == POM.read_bytes() else None
    except OSError:
        return None


def check_maven() -> None:
    """Refuse to start what would need Maven and lacks it.

    Raises
    ------
    StackError
        The jars are not in the cache and there is no `mvn` to fetch them.
    """
    if cached_jars() is None and shutil.which("mvn") is None:
        raise StackError(
            "--broker kafka fetches Apache Kafka with Maven, but there is no mvn on PATH: install Maven "
            f"(apt install maven, brew install maven), or copy {cache_directory()} from a machine that has it"
        )


def ensure_jars(java: Java, log: Path, check_stop: Callable[[], None], say: Callable[[str], None]) -> Path:
    """Return the directory with Kafka's jars, fetching them first if need be.

    Parameters
    ----------
    java : Java
        Runs Maven if JAVA_HOME is not set.
    log : Path
        Gets Maven's output.
    check_stop : callable
        Called while waiting; may raise to break off.
    say : callable
        Gets a line of progress if something has to be fetched.

    Raises
    ------
    StackError
        Maven is missing or fails, or the disk is full.
    """
    if jars := cached_jars():
        return jars
    check_maven()
    cache = cache_directory()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        check_space(cache)
        with (cache / f"kafka-{KAFKA_VERSION}.lock").open("a") as lock:
            _wait_for(lock.fileno(), check_stop, say)
            return cached_jars() or _fetch(cache, java, log, check_stop, say)
    except OSError as error:
        raise StackError(
            f"can't write the cache {cache}: {error.strerror}; name another directory in MNEMOLOG_CACHE"
        ) from error


def _wait_for(lock: int, check_stop: Callable[[], None], say: Callable[[str], None]) -> None:
    said = False
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not said:
                say(f"waiting for another stack that is fetching Apache Kafka {KAFKA_VERSION}")
                said = True
            check_stop()
            time.sleep(0.1)


def _fetch(cache: Path, java: Java, log: Path, check_stop: Callable[[], None], say: Callable[[str], None]) -> Path:
    say(f"fetching Apache Kafka {KAFKA_VERSION} with Maven (45 MB, once) into {cache}")
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as scratch:
        part = Path(scratch) / "jars"
        part.mkdir()
        argv = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
        # Maven writes `target` beside the pom it is given, which may be in site-packages: give it a copy.
        argv[4] = shutil.copy(POM, scratch)
        java_home = os.environ.get("JAVA_HOME") or str(java.path.parent.parent)
        code = run_tool(argv, log, check_stop, {"JAVA_HOME": java_home})
        if code != 0 or not any(part.glob(f"kafka_*-{KAFKA_VERSION}.jar")):
            raise StackError(
                f"Maven could not fetch Apache Kafka {KAFKA_VERSION} (exit code {code}): "
                f"check the network and the proxy in ~/.m2/settings.xml; its output is in {log}"
            )
        shutil.copy(POM, part / POM.name)
        jars = cache / f"kafka-{KAFKA_VERSION}"
        if jars.exists():  # from another pom; a broker that runs from it keeps its open files
            jars.rename(Path(scratch) / "old")
        part.rename(jars)
    return jars
