"""Eager array sessions in a daemon, with shared-memory tensors and a choice of when they are reclaimed.

>>> import eagerd
>>> with eagerd.EagerSession() as session:
...     xp = session.namespace
...     x = xp.ones((2, 3))
...     print((x + 1).numpy())
[[2. 2. 2.]
 [2. 2. 2.]]
"""

from eagerd.array import Array
from eagerd.session import EagerSession, SessionStats
from eagerd.writer import Writer
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
