"""Ask a Kafka broker who it is, without a client library.

The supervisor and `doctor` need one answer within a bounded time: is somebody there, and is it *our* cluster? A
client library retries in threads of its own, logs to stderr and may create the topic that it is asked for. This is
one Metadata request (version 5: the oldest with `allow_auto_topic_creation`, not yet "flexible", spoken by Apache
Kafka 2 to 4 and by Tansu) on one socket. Invariant: no call lasts longer than its timeout, and none changes anything
on the broker.

References: https://kafka.apache.org/protocol#The_Messages_Metadata
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

_METADATA, _METADATA_VERSION, _CORRELATION_ID = 3, 5, 7
# An answer lists every topic and partition; a local cluster has hundreds of bytes. A foreign protocol on the port
# shows as a nonsensical length (HTTP's "HTTP" reads as 1.2 GB), which must not be allocated.
_ANSWER_BYTES_MAX = 64 * 1024 * 1024


class ProbeError(Exception):
    """Nobody answers, or what answers does not speak the Kafka protocol."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What a broker says about its cluster.

    Attributes
    ----------
    cluster_id : str or None
        The id that the cluster was formatted with.
    brokers : tuple of str
        Advertised `host:port` of each broker.
    topics : dict of str to int
        Partition count by topic name; internal topics included.
    """

    cluster_id: str | None
    brokers: tuple[str, ...]
    topics: dict[str, int]


def split_address(address: str) -> tuple[str, int]:
    """Split the first `host:port` of a bootstrap list.

    Raises
    ------
    ValueError
        The address has no port.

    >>> split_address("127.0.0.1:9092,other:9092")
    ('127.0.0.1', 9092)
    """
    host, _, port = address.split(",", maxsplit=1)[0].strip().rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is no broker address: expected host:port")
    return host.strip("[]"), int(port)


def describe_cluster(bootstrap: str, timeout_s: float = 2.0) -> ClusterInfo:
    """Ask the first broker of `bootstrap` for its cluster id, brokers and topics.

    Parameters
    ----------
    bootstrap : str
        `host:port`; of a list only the first is asked.
    timeout_s : float
        Bound on the whole call.

    Raises
    ------
    ProbeError
        No answer in time, or not in the Kafka protocol.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection(split_address(bootstrap), timeout=timeout_s) as connection:
            connection.sendall(_metadata_request())
            (length,) = struct.unpack(">i", _receive(connection, 4, deadline))
            if not 0 < length <= _ANSWER_BYTES_MAX:
                raise ProbeError(f"what listens on {bootstrap} does not speak the Kafka protocol")
            return _parse(_receive(connection, length, deadline))
    except OSError as error:
        raise ProbeError(f"no Kafka broker answers on {bootstrap}: {error}") from error
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ProbeError(f"what listens on {bootstrap} does not speak the Kafka protocol") from error


def _metadata_request() -> bytes:
    client = b"mnemolog-probe"
    header = struct.pack(">hhih", _METADATA, _METADATA_VERSION, _CORRELATION_ID, len(client)) + client
    body = header + struct.pack(">i?", -1, False)  # all topics, create none
    return struct.pack(">i", len(body)) + body


def _receive(connection: socket.socket, length: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while length:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s)
        part = connection.recv(min(length, 65536))
        if not part:
            raise ConnectionError("connection closed")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class _Reader:
    """Cursor over an answer in Kafka's pre-flexible encoding: big endian, int16 string and int32 array lengths."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self._data, self._at)
        self._at += struct.calcsize(">" + code)
        return int(value)

    def string(self) -> str | None:
        length = self.number("h")
        if length < 0:
            return None
        raw = self._data[self._at : self._at + length]
        if len(raw) < length:
            raise ValueError("answer ends inside a string")
        self._at += length
        return raw.decode()

    def skip_int32s(self) -> None:
        count = max(0, self.number("i"))
        self._at += 4 * count


def _parse(data: bytes) -> ClusterInfo:
    read = _Reader(data)
    if read.number("i") != _CORRELATION_ID:
        raise ValueError("answer to another request")
    read.number("i")  # throttle time
    brokers = []
    for _ in range(read.number("i")):
        read.number("i")  # node id
        host, port = read.string(), read.number("i")
        read.string()  # rack
        brokers.append(f"{host}:{port}")
    cluster_id = read.string()
    read.number("i")  # controller id
    topics = {}
    for _ in range(read.number("i")):
        read.number("h")  # error code
        name = read.string()
        read.number("b")  # internal?
        partitions = read.number("i")
        for _ in range(partitions):
            for code in "hii":  # error, partition, leader
                read.number(code)
            for _ in range(3):  # replicas, in sync, offline
                read.skip_int32s()
        topics[name or ""] = partitions
    return ClusterInfo(cluster_id, tuple(brokers), topics)
