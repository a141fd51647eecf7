"""`Mappings`: segments of the daemon as this process has them mapped, fetched by descriptor and cached.

A mapping is never closed by hand: numpy views point into it, so it goes when the last of them lets go. The
memory socket's connection lives as long as the connection that owns this; its end tells the daemon that this
process is gone, and its end from the other side that the daemon is.
"""

import mmap
import os
import socket
import threading
from typing import Any, Final

import numpy as np

from eagerd_protocol.address import IpcAddress
from eagerd_protocol.errors import (
    DaemonUnavailableError,
    InvalidHandleError,
    ResourceExhaustedError,
    SessionLostError,
)
from eagerd_protocol.memory_wire import (
    GREETING_BYTES,
    REPLY_BYTES,
    SegmentReply,
    SegmentRequest,
    SegmentStatus,
)

_CONNECT_SECONDS: Final = 10.0


class Mapping:
    """One segment in this process's address space; lives as long as a view or the cache holds it."""

    __slots__ = ("bytes",)

    def __init__(self, fd: int, nbytes: int, *, writable: bool, is_private: bool = False) -> None:
        protection = mmap.PROT_READ | mmap.PROT_WRITE if writable or is_private else mmap.PROT_READ
        mapped = mmap.mmap(fd, nbytes, mmap.MAP_PRIVATE if is_private else mmap.MAP_SHARED, protection)
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(mapped, np.uint8)


class Mappings:
    """Owned by a connection; `get` and `drop` from any thread."""

    def __init__(self, address: IpcAddress) -> None:
        self._lock = threading.Lock()
        self._cache: dict[tuple[int, bool], Mapping] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_CONNECT_SECONDS)
        try:
            self._socket.connect(address.memory_path)
            self.token = self._receive(GREETING_BYTES)
        except (OSError, SessionLostError) as error:
            self._socket.close()
            raise DaemonUnavailableError(
                f"no daemon answers at {address}: {error}; start one with: eagerd serve --listen {address}"
            ) from None

    def fileno(self) -> int:
        """The descriptor that becomes readable when the daemon is gone."""
        return self._socket.fileno()

    def is_daemon_gone(self) -> bool:
        """Tell whether the daemon closed its end."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def get(self, segment: int, *, writable: bool = False) -> Mapping:
        """Return a segment's mapping, read-only unless it is one to upload into.

        Raises
        ------
        ResourceExhaustedError
            This process or the daemon has no file descriptor left for it.
        """
        mapping = self._cache.get((segment, writable))
        if mapping is None:
            mapping = self._cache[segment, writable] = self._map(segment, writable=writable)
        return mapping

    def get_private(self, segment: int) -> Mapping:
        """Return a mapping of a segment that is nobody else's: shared memory, until it is written.

        For consumers that do not keep to read-only memory. It must not be cached: a page that was written keeps
        what was written when the segment is used again.
        """
        return self._map(segment, writable=False, is_private=True)

    def _map(self, segment: int, *, writable: bool, is_private: bool = False) -> Mapping:
        with self._lock:
            fd, nbytes = self._request(SegmentRequest(segment, writable))
        try:
            return Mapping(fd, nbytes, writable=writable, is_private=is_private)
        except OSError as error:
            raise ResourceExhaustedError(f"cannot map {nbytes} bytes of shared memory: {error.strerror}") from None
        finally:
            os.close(fd)

    def drop(self, segments: "tuple[int, ...]") -> None:
        """Forget segments that the daemon let go of; views that exist stay valid."""
        for segment in segments:
            self._cache.pop((segment, False), None)
            self._cache.pop((segment, True), None)

    def close(self) -> None:
        """Tell the daemon that this client is gone. Views stay valid."""
        self._socket.close()
        self._cache.clear()

    def _request(self, request: SegmentRequest) -> tuple[int, int]:
        try:
            self._socket.sendall(request.to_bytes())
            data, fds, flags, _ = socket.recv_fds(self._socket, REPLY_BYTES, 1)
            if data and len(data) < REPLY_BYTES:
                data += self._receive(REPLY_BYTES - len(data))
        except OSError as error:
            raise SessionLostError(f"the daemon is gone ({error})") from None
        if not data:
            raise SessionLostError("the daemon is gone; its sessions went with it")
        reply = SegmentReply.from_bytes(data)
        if reply.status is SegmentStatus.GIVEN and (not fds or flags & socket.MSG_CTRUNC):
            raise ResourceExhaustedError(
                "this process has no file descriptor left to map a tensor with; "
                "drop numpy views that you need no more, or raise its limit (ulimit -n)"
            )
        if reply.status is SegmentStatus.UNKNOWN:
            raise InvalidHandleError(f"the daemon has no segment {request.segment} for this client")
        if reply.status is SegmentStatus.FAILED:
            raise ResourceExhaustedError("the daemon has no file descriptor left to share a tensor with")
        return fds[0], reply.nbytes

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise SessionLostError("the daemon closed the connection")
            data += piece
        return data


class _Exporter:
    """What a view's memory belongs to, as numpy sees it: keeps mapping and handle for as long as it is shown.

    NumPy collapses chains of views down to the array whose base is no array, so this object dies only after
    the last slice and memoryview (a finalizer on the first view would fire too early).
    """

    __slots__ = ("__array_interface__", "_keep")

    def __init__(self, interface: dict[str, Any], keep: object) -> None:
        self.__array_interface__ = interface
        self._keep = keep


def view_of(
    mapping: Mapping,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    offset: int,
    strides: tuple[int, ...],
    keep: object,
) -> "np.ndarray[Any, Any]":
    """Return an array on a mapping, read-only where the mapping is, that keeps `keep` alive while it is shown."""
    # np.ndarray checks that all of it lies inside the mapping.
    checked: np.ndarray[Any, Any] = np.ndarray(shape, dtype, mapping.bytes.data, offset, strides)
    return np.asarray(_Exporter(checked.__array_interface__, (mapping, keep)))
