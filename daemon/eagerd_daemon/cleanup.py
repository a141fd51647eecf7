"""The three cleanup strategies, one small class each, with one interface: `CleanupStrategy`.

The rest of the daemon does not know which one a session has. `released` and `safe_point` are called by
whatever thread runs the session's steps, one at a time; the background thread is the only other.
"""

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final

from eagerd_daemon.allocator import collect
from eagerd_daemon.handles import Entry
from eagerd_protocol.strategy import ResourceCleanupStrategy

log: Final = logging.getLogger("eagerd.cleanup")

_STACK_BYTES: Final = 256 * 1024
"""Of a cleanup thread; the default of 8 MiB is address space only, but a container may count it."""


_NOBODY: Final = threading.Event()
"""For waking a thread that nobody waits for."""

_MOST_WAITING: Final = 8
"""Released entries that may wait for the background thread before the releasing one helps."""


class CleanupStrategy(ABC):
    """When a session's released entries are reclaimed. Owned by the session, ended by `stop`."""

    def __init__(self, reclaim: Callable[[Entry], object]) -> None:
        self._reclaim = reclaim
        self.errors = 0

    @abstractmethod
    def released(self, entry: Entry) -> None:
        """Take in an entry that nobody names any more."""

    def safe_point(self) -> None:  # noqa: B027 - most strategies do nothing here
        """Before and after each operation of the session, and when its client says so."""

    def settle(self) -> None:  # noqa: B027 - most strategies do nothing here
        """The session has done what it had to do and answered: the time for what may happen meanwhile."""

    def relieve(self) -> None:  # noqa: B027 - most strategies do nothing here
        """Memory ran out: reclaim now what this strategy allows to reclaim now."""

    @abstractmethod
    def stop(self) -> None:
        """The session closes: end the thread, if there is one, and reclaim all that waits."""

    def _reclaim_one(self, entry: Entry) -> None:
        """Reclaim once; a failure is counted and logged, and keeps no neighbour from its turn."""
        try:
            self._reclaim(entry)
            collect()
        except Exception:
            self.errors += 1
            log.exception("reclaiming handle %d failed", entry.handle)


class ReclaimInBackground(CleanupStrategy):
    """IN_BACKGROUND: a thread of the session's own, from open to close, asleep while nothing waits."""

    def __init__(self, reclaim: Callable[[Entry], object], name: str = "session") -> None:
        super().__init__(reclaim)
        self._waiting: deque[Entry] = deque()
        self._wake: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        previous = threading.stack_size(_STACK_BYTES)
        try:
            self._thread = threading.Thread(target=self._run, name=f"cleanup-{name}", daemon=True)
            self._thread.start()
        finally:
            threading.stack_size(previous)

    def released(self, entry: Entry) -> None:
        self._waiting.append(entry)
        if len(self._waiting) > _MOST_WAITING:
            # The thread did not get its turn: a session that floods small operations holds the interpreter's
            # lock while its garbage grows. Whoever takes an entry is its only owner, so helping is safe.
            self._drain()

    def settle(self) -> None:
        # Waking the thread before the reply was sent cost each small operation 80 µs of its 190.
        if self._waiting:
            self._wake.put(_NOBODY)

    def relieve(self) -> None:
        self._drain()
        done = threading.Event()
        self._wake.put(done)
        done.wait()  # the thread may still have been at one that it took before

    def stop(self) -> None:
        self._wake.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (waiter := self._wake.get()) is not None:
            self._drain()
            waiter.set()
        self._drain()

    def _drain(self) -> None:
        while True:
            try:
                entry = self._waiting.popleft()
            except IndexError:
                return
            self._reclaim_one(entry)


class ReclaimOnSafePoints(CleanupStrategy):
    """ON_SAFE_POINTS: no thread; drained by whoever passes a safe point."""

    def __init__(self, reclaim: Callable[[Entry], object]) -> None:
        super().__init__(reclaim)
        self._waiting: deque[Entry] = deque()

    def released(self, entry: Entry) -> None:
        self._waiting.append(entry)

    def safe_point(self) -> None:
        waiting = self._waiting
        while waiting:
            self._reclaim_one(waiting.popleft())

    def stop(self) -> None:
        self.safe_point()


class ReclaimOnSessionClose(CleanupStrategy):
    """ON_SESSION_CLOSE: releases are recorded, nothing is reclaimed before the close."""

    def __init__(self, reclaim: Callable[[Entry], object]) -> None:
        super().__init__(reclaim)
        self._kept: list[Entry] = []

    def released(self, entry: Entry) -> None:
        self._kept.append(entry)

    def stop(self) -> None:
        kept, self._kept = self._kept, []
        for entry in kept:
            self._reclaim_one(entry)


def make_strategy(strategy: ResourceCleanupStrategy, reclaim: Callable[[Entry], object], name: str) -> CleanupStrategy:
    """Return a new object of the class that `strategy` names."""
    match strategy:
        case ResourceCleanupStrategy.IN_BACKGROUND:
            return ReclaimInBackground(reclaim, name)
        case ResourceCleanupStrategy.ON_SAFE_POINTS:
            return ReclaimOnSafePoints(reclaim)
        case ResourceCleanupStrategy.ON_SESSION_CLOSE:
            return ReclaimOnSessionClose(reclaim)
