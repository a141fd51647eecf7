"""`Config`: every setting of the daemon, built once at start."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from eagerd_protocol.address import IpcAddress

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def find_machine_memory_bytes() -> int:
    """Return the memory that this process may use: the host's, or its cgroup's where that is less."""
    limit = psutil.virtual_memory().total
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limit = min(limit, int(text))
    return limit


def default_memory_limit_bytes() -> int:
    """Four fifths of the machine's memory: over a cgroup's limit a memfd is an OOM kill, never an error."""
    return find_machine_memory_bytes() * 4 // 5


def default_workers() -> int:
    """One worker for each core that this process may run on."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the daemon was started with."""

    # Where clients of this machine connect.
    listen: IpcAddress

    # Bytes of tensors, live and pooled, over all sessions. Also the limit of a session that names none.
    memory_limit_bytes: int

    # Threads that run dear operations, side by side for different sessions.
    workers: int

    # Sessions that may be open at once; each may have a thread.
    max_sessions: int = 10_000

    # Steps that a session may have queued before its client is refused; clients keep to a window far below.
    max_queued_steps: int = 100_000

    # Seconds that queued operations may still run when the daemon is asked to end.
    drain_seconds: float = 5.0

    # Seconds after which recycled memory that nobody used goes back to the system.
    pool_idle_seconds: float = 10.0

    # The daemon ends with the process that started it, and removes the folder of its sockets.
    is_embedded: bool = False
