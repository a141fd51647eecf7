"""`MemorySocket`: hands segments to clients as descriptors, and notices when a client dies.

One thread, one selector. Each client holds one connection from first to last: its end of file is the client's
death, `kill -9` included. A descriptor is only ever sent in answer to a request, one outstanding for each
client, since one left unread counts against every client of that user.
"""

import logging
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from eagerd_daemon.clients import Client, ClientRegistry
from eagerd_protocol.limits import TOKEN_BYTES
from eagerd_protocol.memory_wire import REQUEST_BYTES, SegmentReply, SegmentRequest, SegmentStatus

log: Final = logging.getLogger("eagerd.memory")

_BACKLOG: Final = 1024


@dataclass(slots=True)
class _Connection:
    """One client's connection; owned by the thread, closed at its end of file."""

    socket: socket.socket
    client: Client
    received: bytes = b""


class MemorySocket:
    """Owned by the server; the thread runs from `__init__` to `close`."""

    def __init__(self, path: str, clients: ClientRegistry, on_gone: Callable[[Client], None]) -> None:
        self._clients = clients
        self._on_gone = on_gone
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._listener.bind(path)
            self._listener.listen(_BACKLOG)
        except BaseException:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="memory-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and every connection; clients see the end of file."""
        self._wake_writer.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake_reader:
                    self._close_all()
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._serve(key.data)

    def _close_all(self) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:  # a client that gave up meanwhile, or no descriptors left
            log.warning("cannot accept a client: %s", error)
            return
        connection.setblocking(False)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        client = self._clients.add(TOKEN_BYTES, uid, pid)
        try:
            connection.sendall(client.memory_token)
        except OSError:
            self._clients.remove(client)
            connection.close()
            return
        self._selector.register(connection, selectors.EVENT_READ, _Connection(connection, client))

    def _serve(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(REQUEST_BYTES - len(connection.received))
            if data:
                connection.received += data
                if len(connection.received) == REQUEST_BYTES:
                    request = SegmentRequest.from_bytes(connection.received)
                    connection.received = b""
                    self._answer(connection, request)
                return
        except BlockingIOError as error:
            if not connection.received:  # a peer that does not read its answers
                log.warning("dropping client %s: %s", connection.client, error)
        except OSError as error:
            log.info("client %s: %s", connection.client, error)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._clients.remove(connection.client)
        self._on_gone(connection.client)

    def _answer(self, connection: _Connection, request: SegmentRequest) -> None:
        segment = connection.client.visible.get(request.segment)
        if segment is None or (request.writable and not segment.is_upload):
            reply = SegmentReply(request.segment, 0, SegmentStatus.UNKNOWN)
            connection.socket.sendall(reply.to_bytes())
            return
        try:
            fd = segment.open_descriptor(writable=request.writable)
        except OSError as error:
            log.warning("cannot open segment %d for client %s: %s", request.segment, connection.client, error)
            connection.socket.sendall(SegmentReply(request.segment, 0, SegmentStatus.FAILED).to_bytes())
            return
        try:
            reply = SegmentReply(request.segment, segment.nbytes, SegmentStatus.GIVEN)
            socket.send_fds(connection.socket, [reply.to_bytes()], [fd])
        finally:
            with suppress(OSError):
                os.close(fd)
