"""Which daemon a session means: the one named, the one that runs, or one of its own."""

import os
import socket

from eagerd.embedded import embedded_address
from eagerd_protocol.address import IpcAddress, default_ipc_paths
from eagerd_protocol.errors import InvalidArgumentError


def find_daemon(address: str | None) -> IpcAddress:
    """Return where to connect; may start the embedded daemon, where nothing else is named or answers."""
    named = address or os.environ.get("EAGERD_ADDRESS")
    if named:
        return IpcAddress.parse(named)
    for path in default_ipc_paths(dict(os.environ)):
        try:
            found = IpcAddress.parse(f"ipc://{path}")
        except InvalidArgumentError:  # too long a path for a socket: no daemon can be there
            continue
        if _answers(found):
            return found
    return embedded_address()


def _answers(address: IpcAddress) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect(address.memory_path)
        except OSError:
            return False
        return True
