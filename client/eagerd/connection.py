"""`Connection`: this process's line to one daemon, shared by its sessions and their threads.

There is no receiving thread: a reply handed from thread to thread costs 30 to 100 µs. Whoever waits for a
reply takes the socket's lock and becomes the leader: it receives, and hands the others theirs. A thread that
only sends appends to the outbox; if the leader has the socket, the leader sends it. `_lock` is the right to
touch the socket; nothing is ever waited for while a session's lock is held.
"""

import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import zmq

from eagerd.mappings import Mappings
from eagerd_protocol.address import IpcAddress
from eagerd_protocol.codec import decode_reply, encode
from eagerd_protocol.errors import (
    DaemonShuttingDownError,
    DaemonUnavailableError,
    DeadlineExceededError,
    EagerdError,
    SessionLostError,
    error_from_wire,
)
from eagerd_protocol.messages import (
    Acknowledged,
    CloseSession,
    Failed,
    Hello,
    Refused,
    Reply,
    Request,
    Retired,
    ShuttingDown,
    Welcome,
)
from eagerd_protocol.version import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, __version__

_PATIENCE_MILLISECONDS: Final = 2
"""How long the leader receives before it polls: polling minds wake-ups, but costs some 20 µs a reply."""

_SENDS_BETWEEN_LOOKS: Final = 16
"""A look for acknowledgements that finds none costs 10 µs, as much as sending; the window has room for 64."""


class SessionEnd(Protocol):
    """What a connection tells its sessions."""

    def on_acknowledged(self, sequence: int) -> None: ...
    def on_refused(self, sequence: int, error: EagerdError) -> None: ...
    def on_lost(self, error: EagerdError) -> None: ...
    def on_forked(self) -> None: ...


class Pending:
    """A request that waits for its reply."""

    __slots__ = ("frame", "reply", "sequence", "token")

    def __init__(self, token: bytes = b"", sequence: int = 0) -> None:
        self.reply: Reply | None = None
        self.frame: bytes = b""
        self.token = token  # of the session, where the reply also acknowledges a batch
        self.sequence = sequence

    def is_done(self) -> bool:
        return self.reply is not None


class Connection:
    """Made by the first session at an address, closed with the last."""

    def __init__(self, address: IpcAddress, timeout_seconds: float) -> None:
        self.address = address
        self.numbers = itertools.count(1)
        self.failure: EagerdError | None = None  # once set, nothing is sent or received any more
        self.sessions: weakref.WeakValueDictionary[bytes, SessionEnd] = weakref.WeakValueDictionary()
        self.mappings = Mappings(address)
        self._lock = threading.Lock()
        self.orphans: deque[bytes] = deque()  # sessions that nobody references and nobody closed
        self._outbox: deque[Sequence[bytes]] = deque()
        self._pending: dict[int, Pending] = {}
        self._turn = threading.Condition(threading.Lock())  # followers wait here for a reply or for the lead
        self._is_led = False
        self._sends_since_look = 0
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # what is in flight is bounded by the window of batches
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, _PATIENCE_MILLISECONDS)
        self._socket.connect(str(address))
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._wake_fd, zmq.POLLIN)
        self._poller.register(self.mappings.fileno(), zmq.POLLIN)
        self._is_closed = False
        try:
            hello = Hello(
                next(self.numbers), OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, __version__, self.mappings.token
            )
            welcome, _ = self.request(hello, timeout_seconds)
            assert isinstance(welcome, Welcome)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = f"failed: {self.failure}" if self.failure else f"{len(self.sessions)} sessions"
        return f"<Connection {self.address}: {state}>"

    # Asking

    def request(self, message: Request, timeout_seconds: float) -> tuple[Reply, bytes]:
        """Send a message and return its reply; raise the error that the daemon answers with."""
        pending = self.expect(message.request)  # type: ignore[union-attr]
        self.send([encode(message)])
        return self.wait(pending, timeout_seconds, type(message).__name__)

    def expect(self, number: int, token: bytes = b"", sequence: int = 0) -> Pending:
        """Take note that a reply to request `number` will come; before it is sent."""
        pending = self._pending[number] = Pending(token, sequence)
        return pending

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message, after all that were sent before it; never blocks."""
        if self.failure is not None:
            raise self.failure
        while self.orphans:
            self._outbox.append([encode(CloseSession(0, self.orphans.popleft(), 0.0))])
        self._outbox.append(frames)
        self._flush_outbox()

    def wait(self, pending: Pending, timeout_seconds: float, what: str) -> tuple[Reply, bytes]:
        """Return the reply of `pending`; raise what the daemon answered, or `DeadlineExceededError`."""
        self.wait_until(pending.is_done, timeout_seconds, what)
        reply = pending.reply
        assert reply is not None
        if type(reply) is Failed:
            raise error_from_wire(reply.code, reply.message, reply.details)
        return reply, pending.frame

    def wait_until(self, is_done: Callable[[], bool], timeout_seconds: float, what: str) -> None:
        """Receive, or let another thread receive, until `is_done()`."""
        deadline = time.monotonic() + timeout_seconds
        while not is_done():
            if self.failure is not None:
                raise self.failure
            if self._lock.acquire(blocking=False):
                try:
                    self._lead(is_done, deadline, what, timeout_seconds)
                finally:
                    with self._turn:
                        self._is_led = False
                        self._turn.notify_all()
                    self._lock.release()
                self._flush_outbox()
            else:
                with self._turn:
                    if self._is_led and not is_done() and self.failure is None:
                        self._turn.wait(max(0.0, deadline - time.monotonic()))
                if time.monotonic() > deadline and not is_done():
                    raise _deadline_exceeded(what, timeout_seconds)

    def receive_waiting(self) -> None:
        """Take in what has arrived, if no other thread is receiving; never blocks."""
        if self._lock.acquire(blocking=False):
            try:
                self._receive_waiting()
            finally:
                self._lock.release()

    # The socket; the lock is held

    def _lead(self, is_done: Callable[[], bool], deadline: float, what: str, timeout_seconds: float) -> None:
        self._is_led = True
        self._send_outbox()
        is_patient = True
        while not is_done() and self.failure is None:
            if is_patient:
                try:
                    self._dispatch(self._socket.recv_multipart())
                except zmq.Again:
                    is_patient = False
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise _deadline_exceeded(what, timeout_seconds)
            ready = dict(self._poller.poll(int(min(remaining, 3600.0) * 1000) + 1))
            if self._wake_fd in ready:
                os.eventfd_read(self._wake_fd)
            self._send_outbox()
            self._receive_waiting()
            if self.mappings.fileno() in ready and self._socket not in ready and self.mappings.is_daemon_gone():
                self._fail(SessionLostError(f"the daemon at {self.address} is gone, and its sessions with it"))

    def _send_outbox(self) -> None:
        while self._outbox:
            self._socket.send_multipart(self._outbox.popleft(), zmq.NOBLOCK)

    def _receive_waiting(self) -> None:
        self._sends_since_look = 0
        try:
            while True:
                self._dispatch(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            return

    def _flush_outbox(self) -> None:
        # After an unlock the outbox is looked at again: who came meanwhile found the lock taken and went on.
        while self._outbox and self.failure is None:
            if not self._lock.acquire(blocking=False):
                os.eventfd_write(self._wake_fd, 1)
                return
            try:
                self._send_outbox()
                self._sends_since_look += 1
                if self._sends_since_look >= _SENDS_BETWEEN_LOOKS:
                    self._receive_waiting()
            finally:
                self._lock.release()

    def _dispatch(self, frames: Sequence[bytes]) -> None:
        reply = decode_reply(frames[0])
        match reply:
            case Acknowledged(token, sequence):
                session = self.sessions.get(token)
                if session is not None:
                    session.on_acknowledged(sequence)
            case Refused(token, sequence, code, message, details):
                session = self.sessions.get(token)
                if session is not None:
                    session.on_refused(sequence, error_from_wire(code, message, details))
            case Retired(segments):
                self.mappings.drop(segments)
            case Failed(0, code, message, details):  # it could not read what it was sent, and did none of it
                self._fail(error_from_wire(code, message, details))
            case ShuttingDown(reason):
                self._fail(DaemonShuttingDownError(f"the daemon at {self.address} is ending ({reason})"))
            case _:
                pending = self._pending.pop(reply.request, None)
                if pending is not None:  # else it came after its deadline
                    pending.frame = frames[1] if len(frames) > 1 else b""
                    pending.reply = reply
                    if pending.token:
                        session = self.sessions.get(pending.token)
                        if session is not None:
                            session.on_acknowledged(pending.sequence)
        if self._is_led:
            with self._turn:
                self._turn.notify_all()

    def refuse(self, token: bytes, sequence: int, error: EagerdError) -> None:
        """Answer the requests of a refused batch, which get no reply of their own."""
        for number, pending in list(self._pending.items()):
            if pending.token == token and pending.sequence == sequence:
                del self._pending[number]
                pending.reply = Failed(number, error.code, error.message, error.details)

    # The end

    def _fail(self, error: EagerdError) -> None:
        self.failure = error
        for session in list(self.sessions.values()):
            session.on_lost(error)

    def on_forked(self) -> None:
        """This is the child of a fork: the line is the parent's."""
        for session in list(self.sessions.values()):
            session.on_forked()
        self.mappings.close()  # or the daemon would not notice the parent's end

    def close(self) -> None:
        """Close the sockets; all sessions are closed or lost."""
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
        if self.failure is None:
            self.failure = DaemonUnavailableError("the connection is closed")
        os.eventfd_write(self._wake_fd, 1)
        with self._lock:
            self._socket.close()
            self._context.term()
            self.mappings.close()
            os.close(self._wake_fd)


def _deadline_exceeded(what: str, timeout_seconds: float) -> DeadlineExceededError:
    return DeadlineExceededError(
        f"{what}: no answer within {timeout_seconds:g} s; what was submitted may still be done. "
        "Wait longer with a larger timeout",
        timeout_seconds=timeout_seconds,
    )


_connections_lock = threading.Lock()
_connections: dict[str, tuple[Connection, int]] = {}


def open_connection(address: IpcAddress, timeout_seconds: float) -> Connection:
    """Return this process's connection to `address`, made if there is none; close it with `close_connection`."""
    key = str(address)
    with _connections_lock:
        found = _connections.get(key)
        if found is not None and found[0].failure is None:
            connection, users = found
        else:
            connection, users = Connection(address, timeout_seconds), 0
        _connections[key] = (connection, users + 1)
        return connection


def close_connection(connection: Connection) -> None:
    """Let go of a connection; the last to let go closes it."""
    key = str(connection.address)
    with _connections_lock:
        found = _connections.get(key)
        if found is None or found[0] is not connection:
            is_last = True  # it failed and another took its place
        else:
            is_last = found[1] == 1
            if is_last:
                del _connections[key]
            else:
                _connections[key] = (connection, found[1] - 1)
    if is_last:
        connection.close()


def _after_fork_in_child() -> None:
    global _connections_lock
    _connections_lock = threading.Lock()
    for connection, _ in _connections.values():
        connection.on_forked()
        _inherited.append(connection)
    _connections.clear()


# Connections of the parent: kept, since closing ZeroMQ sockets in a forked child hangs.
_inherited: Final[list[Any]] = []

os.register_at_fork(after_in_child=_after_fork_in_child)
