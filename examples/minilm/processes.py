"""The worker processes as the main process sees them: started together, told to go on, heard, always ended.

Each sends events as lines of JSON on its standard output. Its standard input carries one byte for each "go on",
and ends with the main process, however that ends: then the worker ends, too.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

Event = dict[str, Any]
_END_SECONDS = 10.0


class WorkerFailedError(Exception):
    """A worker ended before its work was done, or says that it cannot do it."""


class Workers:
    """Running worker processes; their events arrive in one queue. Made and ended by `worker_processes`."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._arrived: SimpleQueue[tuple[int, Event | None]] = SimpleQueue()

    def start(self, arguments: Sequence[str]) -> None:
        """Start one more."""
        number = len(self.processes)
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), *arguments, "--number", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the main process's to handle; workers end with it
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # they compute nothing themselves
        )
        self.processes.append(process)
        reader = threading.Thread(target=self._read, args=(number, process), name=f"worker-{number}", daemon=True)
        self._readers.append(reader)
        reader.start()

    def collect(self, name: str, each: int = 1, on_other: Callable[[Event], None] | None = None) -> list[Event]:
        """Return the next `each` events of that name from every worker, in the workers' order."""
        found: list[list[Event]] = [[] for _ in self.processes]
        while any(len(events) < each for events in found):
            number, event = self._arrived.get()
            if event is None:
                if len(found[number]) < each:
                    raise WorkerFailedError(f"worker {number} {self._end_of(number)}, before it was done")
            elif event["event"] == "failed":
                raise WorkerFailedError(f"worker {number}: {event['error']}")
            elif event["event"] == name:
                found[number].append(event)
            elif on_other is not None:
                on_other(event)
        return [event for events in found for event in events]

    def go_on(self) -> None:
        """Let all of them go on."""
        for number, process in enumerate(self.processes):
            assert process.stdin is not None
            try:
                process.stdin.write(b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                raise WorkerFailedError(f"worker {number} {self._end_of(number)}, before it was done") from None

    def join(self) -> None:
        """Wait until all have ended by themselves, their sessions closed."""
        for number, process in enumerate(self.processes):
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                raise WorkerFailedError(f"worker {number} was done, but did not end") from None

    def end(self) -> None:
        """End those that still run, and let go of everything."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        for reader in self._readers:
            reader.join()
        for process in self.processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()

    def _read(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._arrived.put((number, json.loads(line)))
        self._arrived.put((number, None))

    def _end_of(self, number: int) -> str:
        code = self.processes[number].wait(_END_SECONDS)
        return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


@contextmanager
def worker_processes(count: int, *arguments: str) -> Iterator[Workers]:
    """Start workers and end them, however the block ends."""
    workers = Workers()
    try:
        for _ in range(count):
            workers.start(arguments)
        yield workers
        workers.join()
    finally:
        workers.end()
