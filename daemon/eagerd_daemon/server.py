"""`Server`: the loop. One ROUTER, one blocking receive; follow a request from `run` downwards.

The loop owns the ZeroMQ sockets, the sessions by token and the clients' lists of sessions; no other thread
touches those. Others reach it through `post`: an event in a deque, and a wake-up message on an inproc socket
whose routing id is random, so that no outside peer can speak as one.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import zmq

from eagerd_daemon.clients import Client, ClientRegistry
from eagerd_daemon.config import Config
from eagerd_daemon.endpoint import Endpoint
from eagerd_daemon.execution import Sender
from eagerd_daemon.handles import Tensor
from eagerd_daemon.memory_socket import MemorySocket
from eagerd_daemon.pool import Account, Budget, SegmentPool
from eagerd_daemon.published import Publications
from eagerd_daemon.segment import Segment
from eagerd_daemon.session import Session
from eagerd_daemon.workers import WorkerPool
from eagerd_protocol.codec import decode_request, encode
from eagerd_protocol.errors import (
    DaemonShuttingDownError,
    EagerdError,
    InvalidArgumentError,
    InvalidHandleError,
    InvalidStateError,
    OperationFailedError,
    OverloadedError,
    SessionClosedError,
    SessionLostError,
    VersionMismatchError,
)
from eagerd_protocol.limits import MAX_CONTROL_FRAME_BYTES, MAX_NAME_BYTES, TOKEN_BYTES
from eagerd_protocol.messages import (
    Batch,
    CloseSession,
    Failed,
    Hello,
    OpenSession,
    Ping,
    Pong,
    Refused,
    Reply,
    Request,
    Retired,
    SessionClosed,
    SessionOpened,
    ShuttingDown,
    Welcome,
)
from eagerd_protocol.planner import Planner
from eagerd_protocol.strategy import ResourceCleanupStrategy
from eagerd_protocol.version import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, __version__

log: Final = logging.getLogger("eagerd.server")

_INPROC: Final = "inproc://loop"
_MAX_UNREAD_REPLIES: Final = 20_000
"""A client that reads none of its replies is cut off at this many."""

Event: TypeAlias = Callable[[], None]


class Server:
    """The daemon; `run` serves until `stop`. Everything it owns is closed when `run` returns."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._instance = os.urandom(TOKEN_BYTES)
        self._budget = Budget(config.memory_limit_bytes)
        published = SegmentPool(Account(config.memory_limit_bytes), self._budget, on_retired=self._retire_published)
        self._publications = Publications(published)
        self._planner = Planner()
        self._clients = ClientRegistry()
        self._by_routing_id: dict[bytes, Client] = {}
        self._sessions: dict[bytes, Session] = {}
        self._session_count = 0
        self._stop_reason: str | None = None
        self._events: deque[Event] = deque()
        self._loop_thread = threading.get_ident()

        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL_FRAME_BYTES)
        self._router.setsockopt(zmq.SNDHWM, _MAX_UNREAD_REPLIES)
        self._router.setsockopt(zmq.LINGER, 1000)
        self._router.bind(_INPROC)
        self._wake_id = os.urandom(TOKEN_BYTES)
        self._waker = self._context.socket(zmq.DEALER)
        self._waker.setsockopt(zmq.IDENTITY, self._wake_id)
        self._waker.setsockopt(zmq.LINGER, 0)
        self._waker.connect(_INPROC)
        self._wake_lock = threading.Lock()
        self._is_woken = False
        self._is_ticking = False
        self._is_trimming = False

    # From any thread

    def stop(self, reason: str) -> None:
        """Ask the loop to end."""

        def end() -> None:
            self._stop_reason = self._stop_reason or reason

        self.post(end)

    def post(self, event: Event) -> None:
        """Have the loop call `event`."""
        self._events.append(event)
        if not self._is_woken:
            self._is_woken = True
            with self._wake_lock:
                self._waker.send(b"")

    # The loop

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`, then drain, tell the clients, and close everything."""
        address = self._config.listen
        with Endpoint(address, remove_folder=self._config.is_embedded):
            # Nobody but the owner and group may connect; both sockets are made under this mask.
            previous_mask = os.umask(0o007)
            try:
                memory_socket = MemorySocket(address.memory_path, self._clients, self._on_client_gone)
                self._workers = WorkerPool(self._config.workers)
                self._router.bind(str(address))
            finally:
                os.umask(previous_mask)
            np.seterr(all="ignore")
            log.info("listening at %s", address)
            on_ready()
            try:
                while self._stop_reason is None:
                    self._receive_one()
            finally:
                self._close_sessions(self._stop_reason or "failed")
                memory_socket.close()  # its thread posts to the loop, so it ends before the sockets do
                self._router.close()
                self._waker.close()
                self._context.term()

    def _receive_one(self) -> None:
        try:
            routing_id, *frames = self._router.recv_multipart()
        except zmq.Again:
            self._schedule_trimming()
            return
        if routing_id == self._wake_id:
            self._handle_events()
        elif frames:
            self._handle(routing_id, frames[0], frames[1:])
        if not self._is_ticking and self._budget.segments:
            self._set_ticking(True)

    def _handle_events(self) -> None:
        self._is_woken = False
        while self._events:
            self._events.popleft()()

    def _handle(self, routing_id: bytes, control: bytes, frames: Sequence[bytes]) -> None:
        """Decode, decide, answer; the one place that turns any failure into a reply."""
        number = 0
        try:
            request = decode_request(control)
            number = getattr(request, "request", 0)
            reply = self._dispatch(routing_id, request, frames)
        except EagerdError as error:
            reply = Failed(number, error.code, error.message, error.details)
        except Exception:
            log.exception("a request failed")
            reply = Failed(number, OperationFailedError.code, "the daemon failed; its log says why", {})
        if reply is not None:
            self._send_now(routing_id, reply, None)

    def _dispatch(self, routing_id: bytes, request: Request, frames: Sequence[bytes]) -> Reply | None:
        match request:
            case Batch():
                session = self._find_session(routing_id, request.token)
                if isinstance(session, EagerdError):
                    return Refused(request.token, request.sequence, session.code, session.message, session.details)
                session.accept(request, frames)
                return None
            case Hello():
                return self._greet(routing_id, request)
            case OpenSession():
                return self._open_session(self._client_of(routing_id), request)
            case CloseSession():
                return self._close_session(self._client_of(routing_id), request)
            case Ping():
                return Pong(request.request, __version__)

    def _client_of(self, routing_id: bytes) -> Client:
        client = self._by_routing_id.get(routing_id)
        if client is None:
            raise SessionLostError("this daemon does not know this connection; say hello first")
        return client

    def _find_session(self, routing_id: bytes, token: bytes) -> Session | EagerdError:
        client = self._by_routing_id.get(routing_id)
        if client is None:
            return SessionLostError("this daemon does not know this connection; its sessions were another daemon's")
        session = client.sessions.get(token)
        if session is not None:
            return session  # type: ignore[no-any-return]
        if token in client.closed_tokens:
            return SessionClosedError("the session is closed")
        return InvalidHandleError("this client has no such session")

    def _greet(self, routing_id: bytes, request: Hello) -> Reply:
        version = min(PROTOCOL_VERSION, request.newest_version)
        if version < max(OLDEST_PROTOCOL_VERSION, request.oldest_version):
            raise VersionMismatchError(
                f"this daemon ({__version__}) speaks protocol {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}, the "
                f"client {request.oldest_version} to {request.newest_version}; bring both to one release",
                oldest=OLDEST_PROTOCOL_VERSION,
                newest=PROTOCOL_VERSION,
            )
        client = self._clients.find(request.memory_token)
        if client is None:
            raise InvalidStateError("unknown memory token; connect to the memory socket first, and stay connected")
        if client.routing_id is not None and client.routing_id != routing_id:
            raise InvalidStateError("this memory token is in use by another connection")
        client.routing_id = routing_id
        self._by_routing_id[routing_id] = client
        return Welcome(request.request, version, __version__, self._instance)

    def _open_session(self, client: Client, request: OpenSession) -> Reply:
        if self._stop_reason is not None:
            raise DaemonShuttingDownError("the daemon is ending")
        if len(self._sessions) >= self._config.max_sessions:
            raise OverloadedError(
                f"{len(self._sessions)} sessions are open, and at most {self._config.max_sessions} may be; close some",
                limit=self._config.max_sessions,
            )
        label = request.label or ""
        if len(label.encode()) > MAX_NAME_BYTES:
            raise InvalidArgumentError(f"a label has at most {MAX_NAME_BYTES} bytes, not {len(label.encode())}")
        limit = request.memory_limit
        if limit is None:
            limit = self._config.memory_limit_bytes
        self._session_count += 1
        session = Session(
            token=os.urandom(TOKEN_BYTES),
            label=label or f"{client.pid}-{self._session_count}",
            cleanup=ResourceCleanupStrategy.parse(request.cleanup),
            memory_limit_bytes=min(limit, self._config.memory_limit_bytes),
            max_queued_steps=self._config.max_queued_steps,
            budget=self._budget,
            publications=self._publications,
            planner=self._planner,
            send=self._sender_to(client),
            schedule=self._workers.schedule,
            find_foreign=lambda token, handle: self._find_foreign(client, token, handle),
            on_segment_shown=lambda segment: _show(client, segment),
            on_segments_retired=lambda numbers: self._retire(client, numbers),
            on_closed=lambda session: self.post(lambda: self._forget_session(client, session)),
        )
        self._sessions[session.token] = session
        client.sessions[session.token] = session
        return SessionOpened(request.request, session.token, session.account.limit_bytes)

    def _close_session(self, client: Client, request: CloseSession) -> Reply | None:
        session = client.sessions.get(request.token)
        if session is not None:
            session.close(request.grace_seconds, request.request)
            return None  # it answers when it has closed
        if request.token in client.closed_tokens:
            return SessionClosed(request.request, True, 0, ())
        raise InvalidHandleError("this client has no such session")

    def _forget_session(self, client: Client, session: Session) -> None:
        self._schedule_trimming()
        self._sessions.pop(session.token, None)
        if client.sessions.pop(session.token, None) is not None:
            client.closed_tokens.add(session.token)

    def _find_foreign(self, client: Client, token: object, handle: object) -> Tensor:
        """Return the tensor of another session of the same client; called by whatever thread runs the step."""
        session = client.sessions.get(token) if type(token) is bytes else None
        if session is None:
            raise InvalidHandleError(f"handle {handle!r} is of a session that is not this client's, or is closed")
        tensor: Tensor = session.table.get(handle)
        tensor.storage.is_lent = True
        return tensor

    def _on_client_gone(self, client: Client) -> None:
        """The memory socket saw the end of file: everything of that client's goes. Any thread."""

        def close_all() -> None:
            if client.routing_id is not None:
                self._by_routing_id.pop(client.routing_id, None)
            client.visible.clear()
            for session in list(client.sessions.values()):
                session.close(0.0, None)

        self.post(close_all)

    # Sending

    def _sender_to(self, client: Client) -> Sender:
        def send(reply: Reply, frame: bytes | None = None, /) -> None:
            routing_id = client.routing_id
            if routing_id is None:
                return
            if threading.get_ident() == self._loop_thread:
                self._send_now(routing_id, reply, frame)
            else:
                self.post(lambda: self._send_now(routing_id, reply, frame))

        return send

    def _send_now(self, routing_id: bytes, reply: Reply, frame: bytes | None) -> None:
        frames = [routing_id, encode(reply)] if frame is None else [routing_id, encode(reply), frame]
        try:
            self._router.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            client = self._by_routing_id.get(routing_id)
            log.warning("client %s left %d replies unread and is cut off", client, _MAX_UNREAD_REPLIES)
            if client is not None:
                self._on_client_gone(client)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:  # it is gone, and so is whoever waited
                raise

    def _retire(self, client: Client, numbers: list[int]) -> None:
        """Have a client drop its mappings of segments that are closed. Any thread, under a pool's lock."""
        shown = [number for number in numbers if client.visible.pop(number, None) is not None]
        if shown and client.routing_id is not None:
            routing_id = client.routing_id
            self.post(lambda: self._send_now(routing_id, Retired(tuple(shown)), None))

    def _retire_published(self, numbers: list[int]) -> None:
        for client in self._clients.all():
            self._retire(client, numbers)

    # Time

    def run_queued(self) -> bool:
        """Give idle memory back; on a worker, since unmapping a gigabyte takes a tenth of a second."""
        has_idle = self._budget.trim(self._config.pool_idle_seconds)
        self._publications.trim()
        self.post(lambda: self._end_trimming(has_idle))
        return False

    def _schedule_trimming(self) -> None:
        if not self._is_trimming:
            self._is_trimming = True
            self._workers.schedule(self)

    def _end_trimming(self, has_idle: bool) -> None:
        self._is_trimming = False
        self._set_ticking(has_idle)

    def _set_ticking(self, ticking: bool) -> None:
        """While memory lies idle, receive with a time-out; otherwise an idle daemon never wakes."""
        if ticking != self._is_ticking:
            self._is_ticking = ticking
            seconds = self._config.pool_idle_seconds / 2
            self._router.setsockopt(zmq.RCVTIMEO, max(1, int(seconds * 1000)) if ticking else -1)

    # The end

    def _close_sessions(self, reason: str) -> None:
        log.info("ending: %s", reason)
        for routing_id in list(self._by_routing_id):
            self._send_now(routing_id, ShuttingDown(reason), None)
        for session in list(self._sessions.values()):
            session.close(self._config.drain_seconds, None)
        self._workers.stop()
        self._handle_events()  # the last replies
        self._publications.close()


def _show(client: Client, segment: Segment) -> None:
    client.visible[segment.number] = segment
