"""Every error of eagerd, in one tree, split by blame.

EagerdError
├── CallerError                        the caller's mistake
│   ├── InvalidArgumentError           (ValueError) a wrong value, shape, name or parameter
│   ├── InvalidTypeError               (TypeError) a wrong type or dtype
│   ├── InvalidIndexError              (IndexError) an index out of range
│   │   └── InvalidAxisError           (IndexError, ValueError) an axis out of range; also an InvalidArgumentError
│   ├── InvalidHandleError             (LookupError) no such handle in this session
│   ├── NotFoundError                  (LookupError) nothing is published under this name
│   ├── AlreadyExistsError             the name is taken
│   ├── PermissionDeniedError          (PermissionError) another user's, or not allowed
│   └── InvalidStateError              (RuntimeError) not now
│       ├── SessionClosedError         the session is closed
│       └── ForkedClientError          the session belongs to the parent process
├── PeerError                          the other side broke the protocol
│   ├── MalformedMessageError          a frame that is not what SPEC.md says
│   └── VersionMismatchError           no protocol version in common
├── LimitError                         a limit was met
│   ├── ResourceExhaustedError         (MemoryError) a session's or the daemon's memory, descriptors
│   ├── OverloadedError                too much in flight
│   └── DeadlineExceededError          (TimeoutError) no answer in time
└── DaemonError                        the daemon failed, or is not there
    ├── DaemonUnavailableError         (ConnectionError) nothing answers at the address
    ├── SessionLostError               (ConnectionError) the daemon that had this session is gone
    ├── DaemonShuttingDownError        the daemon is ending
    ├── OperationCancelledError        cancelled before it ran, since its session closed
    └── OperationFailedError           a kernel failed for a reason that is nobody's mistake

Each has one stable wire code: `code` on the class; `WIRE_CODES` maps back.
"""

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

ErrorDetail: TypeAlias = str | int | float | bool | None


class EagerdError(Exception):
    """Root of all errors; `details` holds the numbers and names of the message, by name."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **details: ErrorDetail) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.details))


class CallerError(EagerdError):
    """The caller's mistake."""

    code = "caller_error"


class InvalidArgumentError(CallerError, ValueError):
    """A wrong value, shape, name or parameter."""

    code = "invalid_argument"


class InvalidTypeError(CallerError, TypeError):
    """A wrong type or data type."""

    code = "invalid_type"


class InvalidIndexError(CallerError, IndexError):
    """An index out of range."""

    code = "invalid_index"


class InvalidAxisError(InvalidIndexError, InvalidArgumentError):
    """An axis out of range: to the standard an IndexError, to much code a ValueError; as numpy's, it is both."""

    code = "invalid_axis"


class InvalidHandleError(CallerError, LookupError):
    """No such handle in this session: never made, or released."""

    code = "invalid_handle"


class NotFoundError(CallerError, LookupError):
    """Nothing is published under this name."""

    code = "not_found"


class AlreadyExistsError(CallerError):
    """The name is taken."""

    code = "already_exists"


class PermissionDeniedError(CallerError, PermissionError):
    """It belongs to another user, or is not allowed."""

    code = "permission_denied"


class InvalidStateError(CallerError, RuntimeError):
    """The call is right, but not in this state."""

    code = "invalid_state"


class SessionClosedError(InvalidStateError):
    """The session is closed."""

    code = "session_closed"


class ForkedClientError(InvalidStateError):
    """The session belongs to the parent of this forked process."""

    code = "forked_client"


class PeerError(EagerdError):
    """The other side broke the protocol."""

    code = "peer_error"


class MalformedMessageError(PeerError):
    """A frame is not what the protocol says."""

    code = "malformed_message"


class VersionMismatchError(PeerError):
    """Client and daemon have no protocol version in common."""

    code = "version_mismatch"


class LimitError(EagerdError):
    """A limit was met."""

    code = "limit"


class ResourceExhaustedError(LimitError, MemoryError):
    """Memory or descriptors of the session or the daemon are used up; nothing was allocated."""

    code = "resource_exhausted"


class OverloadedError(LimitError):
    """Too much is in flight."""

    code = "overloaded"


class DeadlineExceededError(LimitError, TimeoutError):
    """No answer in time; what was asked for may still happen."""

    code = "deadline_exceeded"


class DaemonError(EagerdError):
    """The daemon failed, or is not there."""

    code = "daemon_error"


class DaemonUnavailableError(DaemonError, ConnectionError):
    """Nothing answers at the address."""

    code = "daemon_unavailable"


class SessionLostError(DaemonError, ConnectionError):
    """The daemon that had this session is gone, and the session with it."""

    code = "session_lost"


class DaemonShuttingDownError(DaemonError):
    """The daemon is ending and takes no new work."""

    code = "shutting_down"


class OperationCancelledError(DaemonError):
    """The operation was cancelled before it ran, since its session closed."""

    code = "cancelled"


class OperationFailedError(DaemonError):
    """A kernel failed for a reason that is nobody's mistake."""

    code = "operation_failed"


def _all_errors(root: type[EagerdError]) -> list[type[EagerdError]]:
    return [root, *(error for child in root.__subclasses__() for error in _all_errors(child))]


WIRE_CODES: Mapping[str, type[EagerdError]] = {error.code: error for error in _all_errors(EagerdError)}


def _rebuild(error: type[EagerdError], message: str, details: dict[str, ErrorDetail]) -> EagerdError:
    return error(message, **details)


def error_from_wire(code: str, message: str, details: Mapping[str, ErrorDetail]) -> EagerdError:
    """Return the exception that a wire code stands for; a code from a newer peer becomes a `DaemonError`."""
    return _rebuild(WIRE_CODES.get(code, DaemonError), message, dict(details))
