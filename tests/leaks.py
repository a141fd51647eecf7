"""What a process holds that a test could leave behind: threads, file descriptors, children, /dev/shm, memory.

Plain functions over /proc, so that they are tested like anything else; conftest.py makes fixtures of them.
"""

import gc
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything held at one moment: from what identifies it to the words that name it in a report."""

    held: dict[tuple[object, ...], str]


def take_snapshot() -> Snapshot:
    """Look at this process now; takes one to two milliseconds."""
    held: dict[tuple[object, ...], str] = {}
    held.update(_threads())
    held.update(_descriptors())
    held.update(_children())
    held.update(_shared_memory())
    return Snapshot(held)


def find_leaks(
    before: Snapshot,
    *,
    wait_seconds: float,
    allowed: tuple[str, ...] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Name what is held now and was not `before`; empty when all is gone before `wait_seconds` are over.

    What ends asynchronously (a thread that was told to stop, a socket that another thread closes) gets that
    time. `allowed` are shell patterns over the names, such as ``"thread 'zmq*"``.
    """
    deadline = time.monotonic() + wait_seconds
    collected = False
    while True:
        now = take_snapshot()
        leaks = [
            words
            for identity, words in now.held.items()
            if identity not in before.held and not any(fnmatchcase(words, pattern) for pattern in allowed)
        ]
        if not leaks:
            return []
        if not collected:
            gc.collect()
            collected = True
        elif time.monotonic() >= deadline:
            return leaks
        else:
            sleep(0.01)


def _threads() -> dict[tuple[object, ...], str]:
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    held: dict[tuple[object, ...], str] = {}
    for task in os.listdir("/proc/self/task"):
        number = int(task)
        if number in names:
            held["thread", number] = f"thread {names[number]!r}"
            continue
        try:
            name = Path("/proc/self/task", task, "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):  # ended between the listing and the look
            continue
        held["thread", number] = f"thread {name!r} (not made by Python)"
    return held


def _descriptors() -> dict[tuple[object, ...], str]:
    held: dict[tuple[object, ...], str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            status = os.fstat(int(name))
        except OSError:  # the listing's own descriptor, or one closed since
            continue
        # The inode too: a number that was closed and opened again is another file.
        held["descriptor", int(name), status.st_dev, status.st_ino] = f"file descriptor {name} -> {target}"
    return held


def _children() -> dict[tuple[object, ...], str]:
    held: dict[tuple[object, ...], str] = {}
    for child in psutil.Process().children(recursive=True):
        try:
            with child.oneshot():
                zombie = child.status() == psutil.STATUS_ZOMBIE
                words = "ended but not waited for" if zombie else " ".join(child.cmdline())
                held["child", child.pid, child.create_time()] = f"child process {child.pid}: {words}"
        except psutil.NoSuchProcess:
            continue
    return held


def _shared_memory() -> dict[tuple[object, ...], str]:
    if not SHARED_MEMORY.is_dir():
        return {}
    return {("shared memory", name): f"{SHARED_MEMORY / name}" for name in os.listdir(SHARED_MEMORY)}


def memory_bytes(pid: int) -> int:
    """Return a process' proportional share of memory, where each page counts once over all who map it."""
    process = psutil.Process(pid)
    try:
        return int(process.memory_full_info().pss)
    except psutil.AccessDenied:  # a process that made itself undumpable, seen by another than root
        return int(process.memory_info().rss)


@dataclass(slots=True)
class MemoryGauge:
    """How much processes grow from `restart` (at first: from the start of the test) to the test's end."""

    limit_mib: float = 16.0
    start_bytes: dict[int, int] = field(default_factory=dict)

    def restart(self, *pids: int) -> None:
        """Measure from here: after a warm-up, say. With `pids`, measure those processes, not this one."""
        gc.collect()
        self.start_bytes = {pid: memory_bytes(pid) for pid in pids or (os.getpid(),)}

    def find_growth(self) -> list[str]:
        """Name each process that grew by more than the limit."""
        gc.collect()
        grown: list[str] = []
        for pid, start in self.start_bytes.items():
            end = memory_bytes(pid)
            if end - start > self.limit_mib * MIB:
                grown.append(
                    f"process {pid} grew by {(end - start) / MIB:.1f} MiB, "
                    f"from {start / MIB:.1f} to {end / MIB:.1f} MiB; the limit is {self.limit_mib:g} MiB"
                )
        return grown
