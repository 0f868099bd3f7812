"""What a local stack is asked for (`UpOptions`), where it is reached (`Addresses`), how it refuses (`StackError`).

StackError          one sentence for people: what, expected versus got, what to do; exit code 1
└── UsageError      the options contradict each other or are out of range; exit code 2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BROKERS = ("embedded", "kafka")
PARTS = ("broker", "clickhouse", "embeddings", "roles")
PORTS = 4  # kafka, clickhouse, embeddings, and the KRaft controller, in this order from the port base
PARTITIONS_MAX = 1024  # far above what one machine serves; catches a port given as a partition count


class StackError(Exception):
    """The stack can't be started or kept running; its text is one sentence for people."""

    exit_code = 1


class UsageError(StackError):
    """The options are wrong, whatever the state of the machine."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of `mnemolog up`.

    Attributes
    ----------
    broker : str
        `embedded` (Tansu, in memory) or `kafka` (Apache Kafka from Maven jars, on disk).
    data : Path or None
        Directory of all files. None: see `keep`.
    port_base : int or None
        Kafka on this port, ClickHouse, embeddings and the Kafka controller on the next three. None: free ports.
    prefix : str
        Put before every topic name.
    partitions : int
        Partitions of `turns`, `feedback`, `requests` and `journal`.
    json : bool
        Announce the addresses as one line of JSON instead of a table.
    only : tuple of str
        The parts to start, of `broker`, `clickhouse`, `embeddings`, `roles`; empty means all. Topics are made with
        the roles.
    presets : Path or None
        TOML file with presets of the user's, for the memory role.
    keep : bool
        Without `data`: use a directory of the user's, `$XDG_DATA_HOME/mnemolog` for `kafka`, `…/mnemolog-embedded` for
        `embedded`, so that what was said is there again at the next start. False: a temporary one for `embedded`.
    start_s_max : float
        Longest time until everything is ready; the first start with `kafka` downloads 45 MB within it.
    """

    broker: str = "embedded"
    data: Path | None = None
    port_base: int | None = None
    prefix: str = "mnemolog."
    partitions: int = 4
    json: bool = False
    only: tuple[str, ...] = ()
    presets: Path | None = None
    keep: bool = False
    start_s_max: float = 300.0

    def has(self, part: str) -> bool:
        """Whether `part` is to be started."""
        return not self.only or part in self.only

    def check(self) -> None:
        """Check ranges and combinations.

        Raises
        ------
        UsageError
            An option is out of range.

        >>> UpOptions(broker="redpanda").check()
        Traceback (most recent call last):
        infra.stack_options.UsageError: unknown broker 'redpanda': expected embedded or kafka
        """
        if self.broker not in BROKERS:
            raise UsageError(f"unknown broker {self.broker!r}: expected {' or '.join(BROKERS)}")
        if self.port_base is not None and not 1 <= self.port_base <= 65536 - PORTS:
            raise UsageError(f"port base {self.port_base} is out of range: expected 1 to {65536 - PORTS}")
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            raise UsageError(f"{self.partitions} partitions are out of range: expected 1 to {PARTITIONS_MAX}")
        if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", self.prefix):
            raise UsageError(f"topic prefix {self.prefix!r} is not allowed: expected up to 100 of A-Z a-z 0-9 . _ -")
        if unknown := [part for part in self.only if part not in PARTS]:
            raise UsageError(f"unknown part {unknown[0]!r}: expected one of {', '.join(PARTS)}")
        if self.has("roles") and not all(self.has(part) for part in PARTS):
            raise UsageError("the roles need broker, clickhouse and embeddings: name all of them or none")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a running stack can be reached; an empty string for a part that was not started.

    Attributes
    ----------
    kafka : str
        Bootstrap address, `host:port`.
    clickhouse, embeddings : str
        Base URLs; that of the embeddings ends in `/v1`.
    objects : str
        `file://` URL of the object directory.
    prefix : str
        Topic prefix.
    data : str
        Absolute path of the data directory.
    broker : str
        `embedded` or `kafka`: clients pick their session timeout by it.
    cluster_id : str
        Id that the broker reports; a changed id means another log.
    metrics : mapping of str to str
        Base URL of each role's figures: `/metrics`, `/status`, `/ready`.
    """

    kafka: str
    clickhouse: str
    embeddings: str
    objects: str
    prefix: str
    data: str
    broker: str = "embedded"
    cluster_id: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
