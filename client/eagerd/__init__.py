"""Eager array sessions in a daemon, with shared-memory tensors and a choice of when they are reclaimed.

>>> import eagerd
>>> with eagerd.EagerSession() as session:
...     xp = session.namespace
...     x = xp.ones((2, 3))
...     print((x + 1).numpy())
[[2. 2. 2.]
 [2. 2. 2.]]
"""

from typing import TYPE_CHECKING, Any, Final

from eagerd_protocol.errors import (
    AlreadyExistsError,
    CallerError,
    DaemonError,
    DaemonShuttingDownError,
    DaemonUnavailableError,
    DeadlineExceededError,
    EagerdError,
    ForkedClientError,
    InvalidArgumentError,
    InvalidAxisError,
    InvalidHandleError,
    InvalidIndexError,
    InvalidStateError,
    InvalidTypeError,
    LimitError,
    MalformedMessageError,
    NotFoundError,
    OperationCancelledError,
    OperationFailedError,
    OverloadedError,
    PeerError,
    PermissionDeniedError,
    ResourceExhaustedError,
    SessionClosedError,
    SessionLostError,
    VersionMismatchError,
)
from eagerd_protocol.strategy import ResourceCleanupStrategy
from eagerd_protocol.version import __version__

if TYPE_CHECKING:
    from eagerd.array import Array
    from eagerd.session import EagerSession, SessionStats
    from eagerd.writer import Writer

# What needs numpy and zmq is imported when it is first used: the command line mostly does without both.
_MODULES: Final = {
    "Array": "eagerd.array",
    "EagerSession": "eagerd.session",
    "SessionStats": "eagerd.session",
    "Writer": "eagerd.writer",
}


if not TYPE_CHECKING:  # or else a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'eagerd' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


__all__ = [
    "AlreadyExistsError",
    "Array",
    "CallerError",
    "DaemonError",
    "DaemonShuttingDownError",
    "DaemonUnavailableError",
    "DeadlineExceededError",
    "EagerSession",
    "EagerdError",
    "ForkedClientError",
    "InvalidArgumentError",
    "InvalidAxisError",
    "InvalidHandleError",
    "InvalidIndexError",
    "InvalidStateError",
    "InvalidTypeError",
    "LimitError",
    "MalformedMessageError",
    "NotFoundError",
    "OperationCancelledError",
    "OperationFailedError",
    "OverloadedError",
    "PeerError",
    "PermissionDeniedError",
    "ResourceCleanupStrategy",
    "ResourceExhaustedError",
    "SessionClosedError",
    "SessionLostError",
    "SessionStats",
    "VersionMismatchError",
    "Writer",
    "__version__",
]
