"""`Segment`: one piece of shared memory, a sealed memfd that the daemon has mapped.

A result segment is sealed against new writable mappings from birth (F_SEAL_FUTURE_WRITE), so no client can
ever write there. An upload segment is written by the one client it was granted to, and never shown to another:
publishing copies out of it. Neither can shrink or grow, so that no reader can meet SIGBUS.
"""

import fcntl
import itertools
import mmap
import os
from typing import Final

import numpy as np

_SEAL_FUTURE_WRITE: Final = 0x10  # not in the fcntl module
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_numbers: Final = itertools.count(1)


class Segment:
    """Shared memory of `nbytes` bytes; owned by a pool, which closes it."""

    __slots__ = ("_fd", "_inode", "_map", "address", "blocks_in_use", "is_upload", "nbytes", "number")

    def __init__(self, nbytes: int, *, is_upload: bool) -> None:
        self.number = next(_numbers)  # never used again: clients cache their mappings by it
        self.nbytes = nbytes
        self.is_upload = is_upload
        self.blocks_in_use = 0  # under the lock of the pool that owns this
        self._fd = os.memfd_create("eagerd", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(self._fd, 0o600 if is_upload else 0o400)
            os.ftruncate(self._fd, nbytes)
            # The writable mapping first: after the seal there can be no other.
            self._map = mmap.mmap(self._fd, nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS if is_upload else _SEALS | _SEAL_FUTURE_WRITE)
        except BaseException:
            os.close(self._fd)
            raise
        self._inode = os.fstat(self._fd).st_ino
        interface = np.frombuffer(self._map, np.uint8).__array_interface__
        self.address: int = interface["data"][0]

    def __repr__(self) -> str:
        return f"<Segment {self.number}: {self.nbytes} bytes, {self.blocks_in_use} blocks in use>"

    def open_descriptor(self, *, writable: bool) -> int:
        """Return a new descriptor for a client: read-only, or writable for an upload segment; or raise OSError."""
        flags = os.O_RDWR if writable and self.is_upload else os.O_RDONLY
        fd = os.open(f"/proc/self/fd/{self._fd}", flags | os.O_CLOEXEC)
        if os.fstat(fd).st_ino != self._inode:  # closed meanwhile, and the number given to another file
            os.close(fd)
            raise FileNotFoundError(f"segment {self.number} is closed")
        return fd

    def close(self) -> None:
        """Unmap; clients' own mappings live on. Nothing of the daemon may point here any more."""
        fd, self._fd = self._fd, -1
        self._map.close()
        os.close(fd)
