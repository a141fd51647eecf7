"""Addresses of daemons: `ipc://PATH`, and the files that lie beside that path."""

import os
from typing import NamedTuple, Self

from eagerd_protocol.errors import InvalidArgumentError

MAX_SOCKET_PATH_BYTES = 107
"""sockaddr_un holds 108 bytes, the closing zero included (unix(7))."""

_MEMORY_SUFFIX = ".memory"


class IpcAddress(NamedTuple):
    """Where a daemon listens for clients of its own machine."""

    path: str

    @classmethod
    def parse(cls, address: str) -> Self:
        """Check `address` and return it taken apart.

        Raises
        ------
        InvalidArgumentError
            It is no ``ipc://`` address, or its path is too long for a Unix socket.
        """
        scheme, separator, path = address.partition("://")
        if not separator or not path:
            raise InvalidArgumentError(f"{address!r} is no address; write ipc:///path/of/a/socket")
        if scheme != "ipc":
            raise InvalidArgumentError(f"{address!r}: this version speaks ipc:// only, not {scheme}://")
        if path.startswith("@"):
            raise InvalidArgumentError(f"{address!r}: abstract sockets are not supported; give a path")
        if "\0" in path:
            raise InvalidArgumentError(f"{address!r}: a path cannot hold a zero byte")
        path = os.path.abspath(path)
        length, most = len(os.fsencode(path)), MAX_SOCKET_PATH_BYTES - len(_MEMORY_SUFFIX)
        if length > most:
            raise InvalidArgumentError(
                f"the socket path {path} has {length} bytes, and at most {most} fit; choose a shorter folder",
                length=length,
                limit=most,
            )
        return cls(path)

    def __str__(self) -> str:
        return f"ipc://{self.path}"

    @property
    def memory_path(self) -> str:
        """The Unix socket that hands out segments, beside the ZeroMQ one."""
        return self.path + _MEMORY_SUFFIX

    @property
    def lock_path(self) -> str:
        """The file that the daemon holds locked for as long as it owns the path."""
        return self.path + ".lock"


def default_ipc_paths(environment: dict[str, str]) -> list[str]:
    """Return where a daemon may listen when no address is given: the user's socket, then the system's."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    user = [f"{runtime}/eagerd/eagerd.sock"] if runtime else []
    return [*user, "/run/eagerd/eagerd.sock"]
