"""Find the newest installed JDK.

A machine often has several JDKs and the one on PATH is seldom the newest: Kafka 4 needs 17, Lucene 21. Looked at:
JAVA_HOME, PATH, the usual installation directories, SDKMAN and macOS's registry. Invariant: nothing is executed but
the `java` that has no readable `release` file beside it (with a timeout).
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LUCENE_JAVA_MIN = 21
_HOME_PATTERNS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/*",
    "/opt/*/jdk*",
    "/usr/local/opt/openjdk*",
    "/opt/homebrew/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)


@dataclass(frozen=True, slots=True, order=True)
class Java:
    """A Java runtime: its version as numbers, (25, 0, 3), and the path of its `java`."""

    version: tuple[int, ...]
    path: Path

    @property
    def major(self) -> int:
        """Feature release: 25 of (25, 0, 3)."""
        return self.version[0]

    @property
    def home(self) -> Path:
        """What JAVA_HOME names: the directory above that of `java`."""
        return self.path.parent.parent

    def __str__(self) -> str:
        return f"Java {'.'.join(map(str, self.version))} ({self.path})"


def find_java(minimum: int = 0, environment: Mapping[str, str] = os.environ) -> Java | None:
    """Find the newest Java of at least the feature release `minimum`; None if there is none."""
    found = {java.path: java for home in _homes(environment) if (java := _java_of(home))}
    candidates = [java for java in found.values() if java.major >= minimum]
    return max(candidates, default=None)


def parse_version(text: str) -> tuple[int, ...] | None:
    """Read a Java version, the old scheme (1.8 means 8) included.

    >>> parse_version("25.0.3"), parse_version("1.8.0_402"), parse_version("17.0.15+6"), parse_version("x")
    ((25, 0, 3), (8, 0), (17, 0, 15), None)
    """
    match = re.match(r"\d+(?:\.\d+)*", text)
    if match is None:
        return None
    numbers = tuple(int(part) for part in match.group().split("."))
    return numbers[1:] if numbers[0] == 1 and len(numbers) > 1 else numbers


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if on_path := shutil.which("java", path=environment.get("PATH")):
        yield Path(on_path).resolve().parent.parent
    user_home = environment.get("HOME", "~")
    for pattern in _HOME_PATTERNS:
        expanded = pattern.replace("~", user_home, 1) if pattern.startswith("~") else pattern
        yield from (Path(match) for match in sorted(glob.glob(expanded)))


def _java_of(home: Path) -> Java | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK) or not java.is_file():
        return None
    version = _version_in_release(home / "release") or _version_said_by(java)
    return Java(version, java.resolve()) if version else None


def _version_in_release(release: Path) -> tuple[int, ...] | None:
    try:
        match = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return parse_version(match.group(1)) if match else None


def _version_said_by(java: Path) -> tuple[int, ...] | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return parse_version(match.group(1)) if match else None
