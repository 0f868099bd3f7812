"""Listening sockets of the local servers, and errors that tell the person who starts one what to do."""

from __future__ import annotations

import errno
import socket

BACKLOG = 128


class CannotStart(Exception):
    """One sentence: what is in the way, and what to do."""


def listening(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes any free one. Raises ``CannotStart``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError) as error:
        raise CannotStart(f"can't resolve {host}:{port}: {error}; choose another --host or --port") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"port {port} on {host} is taken: stop the program that listens there, or choose another --port"
            ) from error
        raise CannotStart(f"can't listen on {host}:{port}: {error}; choose another --host or --port") from error
    return listener
