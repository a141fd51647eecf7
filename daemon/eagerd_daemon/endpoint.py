"""A daemon's claim on its socket paths: one owner at a time, held by a lock that the kernel drops with the owner.

Binding ipc:// would silently steal a live daemon's path (libzmq unlinks it first), so the lock comes before.
"""

import fcntl
import os
from contextlib import suppress
from types import TracebackType
from typing import Self

from eagerd_protocol.address import IpcAddress
from eagerd_protocol.errors import AlreadyExistsError, InvalidArgumentError


class Endpoint:
    """The locked right to listen at an address; owned by the server, from start to end."""

    def __init__(self, address: IpcAddress, *, remove_folder: bool = False) -> None:
        self.address = address
        self._remove_folder = remove_folder
        self._lock_fd = _lock(address)
        # What a killed predecessor left. Nobody else can own these: the lock is ours.
        self._remove_sockets()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the sockets and the lock file, then let go of the lock."""
        self._remove_sockets()
        with suppress(FileNotFoundError):
            os.unlink(self.address.lock_path)
        os.close(self._lock_fd)
        if self._remove_folder:
            with suppress(OSError):
                os.rmdir(os.path.dirname(self.address.path))

    def _remove_sockets(self) -> None:
        for path in (self.address.path, self.address.memory_path):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _lock(address: IpcAddress) -> int:
    path = address.lock_path
    try:
        os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A closing owner unlinks the file before it unlocks: then this lock is on a file without a name.
                if os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):
                    os.truncate(fd, 0)
                    os.write(fd, f"{os.getpid()}\n".encode())
                    return fd
            except BlockingIOError:
                owner = os.read(fd, 20).decode(errors="replace").strip()
                os.close(fd)
                raise AlreadyExistsError(
                    f"a daemon (pid {owner or 'unknown'}) already listens at {address}; "
                    "stop it, or choose another path with --listen",
                    pid=owner,
                ) from None
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
    except OSError as error:
        raise InvalidArgumentError(f"cannot listen at {address}: {error.strerror} ({error.filename})") from None
