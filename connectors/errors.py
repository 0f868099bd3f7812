"""The errors of the client. All are ``MnemologError``.

MnemologError
├── Rejected            the request itself is wrong: mend it, don't repeat it
│   ├── BadRequest      ``bad_request``
│   ├── UnknownPreset   ``unknown_preset``
│   └── TooLarge        ``too_large``
└── Transient           worth another try
    ├── NotReady        ``not_ready``: the partition is still being read
    ├── TurnNotSeen     ``turn_not_seen``: a turn of ``after`` did not arrive in time
    ├── DeadlineExceeded  ``deadline_exceeded``, or no reply came before the deadline
    ├── Overloaded      ``overloaded``
    ├── Internal        ``internal``
    └── BrokerUnavailable   no broker answered
"""

from __future__ import annotations

from schemas.recalls import Failure


class MnemologError(Exception):
    """Base of all errors of the client; ``failure`` is what the reply said, if one came."""

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class Rejected(MnemologError):
    """The request is wrong."""


class BadRequest(Rejected):
    """A field is wrong."""


class UnknownPreset(Rejected):
    """There is no such preset."""


class TooLarge(Rejected):
    """A field is too long."""


class Transient(MnemologError):
    """Worth another try."""


class NotReady(Transient):
    """The owner's partition is still being read."""


class TurnNotSeen(Transient):
    """A turn of ``after`` did not arrive before the deadline."""


class DeadlineExceeded(Transient):
    """No answer before the deadline."""


class Overloaded(Transient):
    """Too many requests in work."""


class Internal(Transient):
    """A fault of ours."""


class BrokerUnavailable(Transient):
    """No broker answered."""


BY_CODE: dict[str, type[MnemologError]] = {
    "bad_request": BadRequest,
    "unknown_preset": UnknownPreset,
    "too_large": TooLarge,
    "not_ready": NotReady,
    "turn_not_seen": TurnNotSeen,
    "deadline_exceeded": DeadlineExceeded,
    "overloaded": Overloaded,
    "internal": Internal,
}


def error_of(failure: Failure) -> MnemologError:
    """The exception of an error reply."""
    return BY_CODE.get(failure.code, Internal)(f"{failure.code}: {failure.message}", failure)
