"""The default session: one for each process, made on first use, ended with the process."""

import atexit
import os
import threading
from typing import Any

from eagerd.session import EagerSession
from eagerd_protocol.errors import EagerdError, InvalidStateError

_lock = threading.Lock()
_session: EagerSession | None = None


def init_default(**options: Any) -> EagerSession:
    """Make the default session with the constructor's `options`.

    Raises
    ------
    InvalidStateError
        There is one already: it was made by an earlier call, or by its first use.
    """
    with _lock:
        if _session is not None:
            raise InvalidStateError("the default session exists already; initialise it before anything uses it")
        return _make(options)


def get_default() -> EagerSession:
    """Return the default session, made with default options on first use."""
    with _lock:
        return _session or _make({})


def _make(options: dict[str, Any]) -> EagerSession:
    global _session
    _session = EagerSession(**options)
    _session._is_default = True
    return _session


def close_at_exit() -> None:
    """Close the default session, which nobody else can."""
    global _session
    with _lock:
        session, _session = _session, None
    if session is not None:
        try:
            session._close()
        except EagerdError:  # the program ends, and never looked at this failure
            return


def _after_fork_in_child() -> None:
    global _lock, _session
    _lock = threading.Lock()
    _session = None  # the parent's; the child makes its own on first use


atexit.register(close_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
