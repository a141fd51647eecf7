"""Handles that Python no longer references, on their way back to the daemon.

`HandleReference.__del__` runs wherever a reference count falls to zero or the garbage collector strikes: in
the middle of a send, with locks held, on any thread. So it appends to a deque and does nothing else that could
block: no lock, no socket, no logging. A flusher that sleeps is woken through a `SimpleQueue`, whose `put` is
documented as reentrant for exactly this use.
"""

import os
import queue
import threading
import weakref
from collections import deque
from typing import Any, Final

_TICK_SECONDS: Final = 0.003


class ReleaseQueue(deque[int]):
    """Handles of one session that nobody references; drained into the session's next batch."""

    __slots__ = ("flusher",)

    def __init__(self, flusher: "Flusher | None") -> None:
        super().__init__()
        self.flusher = flusher


class HandleReference:
    """The client's one claim on a handle: shared by an array and the numpy views on it."""

    __slots__ = ("handle", "releases")

    def __init__(self, handle: int, releases: ReleaseQueue) -> None:
        self.handle = handle
        self.releases = releases

    def disarm(self) -> None:
        """Another operation has taken the handle over; there is nothing left to release."""
        self.handle = 0

    def __del__(self) -> None:
        if self.handle == 0:
            return
        self.releases.append(self.handle)
        flusher = self.releases.flusher
        if flusher is not None and flusher.is_parked:
            flusher.is_parked = False
            flusher.wake.put(None)


class Flusher:
    """The thread that carries releases to the daemon while the program is idle, for IN_BACKGROUND sessions.

    One for each process, started with the first such session, ended with the last. Asleep for as long as
    nothing happens; while the program is busy its own batches carry the releases, and the flusher only looks on.
    """

    def __init__(self) -> None:
        self.is_parked = False
        self.wake: queue.SimpleQueue[bool | None] = queue.SimpleQueue()  # True: end
        self._sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, session: Any) -> None:
        with self._lock:
            self._sessions.add(session)
            if self._thread is None:
                self.wake = queue.SimpleQueue()
                self._thread = threading.Thread(target=self._run, name="eagerd-flusher", daemon=True)
                self._thread.start()

    def discard(self, session: Any) -> None:
        with self._lock:
            self._sessions.discard(session)
            if self._sessions or self._thread is None:
                return
            thread, self._thread = self._thread, None
            self.wake.put(True)
        if thread is not threading.current_thread():
            thread.join()

    def nudge(self) -> None:
        """Something was submitted and not sent; see to it when the program goes idle."""
        if self.is_parked:
            self.is_parked = False
            self.wake.put(None)

    def forget_thread(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._lock = threading.Lock()
        self._thread = None
        self._sessions = weakref.WeakSet()
        self.is_parked = False

    def _run(self) -> None:
        wake = self.wake
        before: dict[int, int] = {}
        while True:
            self.is_parked = True
            # Parked first, looked second: what comes after the look finds the thread parked and wakes it.
            if not any(session.has_unsent() for session in self._all()) and wake.get():
                return
            self.is_parked = False
            while True:
                try:
                    if wake.get(timeout=_TICK_SECONDS):
                        return
                except queue.Empty:
                    pass
                now = self._flush_idle(before)
                is_quiet = now == before
                before = now
                if is_quiet:
                    break

    def _flush_idle(self, before: dict[int, int]) -> dict[int, int]:
        """Send what sessions have where nothing was submitted since `before`; return what there is to compare now."""
        now = {}
        for session in self._all():  # in a function of its own: asleep, the thread must not keep a session alive
            now[id(session)] = session.submissions
            if session.submissions == before.get(id(session)):
                session.flush_quietly()
        return now

    def _all(self) -> list[Any]:
        with self._lock:
            return list(self._sessions)


FLUSHER: Final = Flusher()

os.register_at_fork(after_in_child=FLUSHER.forget_thread)
