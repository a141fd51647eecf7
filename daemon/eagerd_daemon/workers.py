"""`WorkerPool`: threads that run the dear steps of sessions, one session at a time each."""

import logging
import queue
import threading
from typing import Final, Protocol

import numpy as np

from eagerd_daemon import allocator

log: Final = logging.getLogger("eagerd.workers")


class Runnable(Protocol):
    """What a worker runs; a session."""

    def run_queued(self) -> bool:
        """Work for a slice of time; True where more is left."""
        ...


class WorkerPool:
    """A fixed number of threads; owned by the server, started with it and joined at its end."""

    def __init__(self, count: int) -> None:
        self._line: queue.SimpleQueue[Runnable | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=f"worker-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def schedule(self, session: Runnable) -> None:
        """Put a session in line; it must not be in line already."""
        self._line.put(session)

    def stop(self) -> None:
        """Let the threads finish what is in line, and join them."""
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        allocator.install_on_thread()
        np.seterr(all="ignore")  # a division by zero gives inf, as the standard says, and nobody a warning
        while (session := self._line.get()) is not None:
            is_unfinished = True
            try:
                is_unfinished = session.run_queued()
            except Exception:  # a defect of ours: the step is lost, those behind it are not
                log.exception("a worker failed outside any operation")
            if is_unfinished:
                self._line.put(session)  # behind those that waited
            del session  # while blocked in get, this frame must not keep a closed session alive
