"""A real daemon in a process of its own, as tests start, watch and end it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

START_SECONDS = 15.0
STOP_SECONDS = 10.0
# sockaddr_un holds 108 bytes with the closing zero; the daemon puts other sockets beside this one.
LONGEST_SOCKET_PATH_BYTES = 107 - len(".memory")


@dataclass(slots=True)
class DaemonProcess:
    """One running daemon; ends with the fixture that made it, or before, through `stop` or `kill`."""

    address: str
    folder: Path
    process: subprocess.Popen[bytes]
    stderr_path: Path
    ended_by_test: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def stderr_text(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def stop(self) -> None:
        """Ask it to end and wait for it; fail unless it ends in time with exit code 0."""
        self.ended_by_test = True
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._end_with_stacks()
            pytest.fail(self._report(f"still ran {STOP_SECONDS:g} s after SIGTERM"))
        if code != 0:
            pytest.fail(self._report(f"ended with exit code {code} after SIGTERM"))

    def kill(self) -> None:
        """End it as `kill -9` does, and wait for it."""
        self.ended_by_test = True
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it unless the test did; fail if it had ended by itself."""
        if self.ended_by_test:
            return
        code = self.process.poll()
        if code is None:
            self.stop()
        elif code not in (0, -signal.SIGKILL):  # a test may also signal it by its pid
            pytest.fail(self._report(f"ended by itself with exit code {code}"))

    def wait_until_listening(self) -> None:
        """Return once its socket is there; fail with what it said if it ends or takes too long."""
        socket_path = Path(self.address.removeprefix("ipc://"))
        deadline = time.monotonic() + START_SECONDS
        while not socket_path.exists():
            try:
                code = self.process.wait(0.01)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self._end_with_stacks()
                pytest.fail(self._report(f"did not listen on {self.address} within {START_SECONDS:g} s"))
            pytest.fail(self._report(f"ended with exit code {code} before it listened"))

    def _end_with_stacks(self) -> None:
        """Have its fault handler write all stacks to stderr, then make sure that it is gone."""
        self.process.send_signal(signal.SIGABRT)
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _report(self, what: str) -> str:
        return f"the daemon (pid {self.pid}) {what}; its stderr:\n{self.stderr_text() or '(empty)'}"


@contextmanager
def run_daemon(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[DaemonProcess]:
    """Start a daemon on a socket in a folder of its own, `arguments` added to ``serve``; end it after."""
    with tempfile.TemporaryDirectory(prefix="eagerd-") as folder:
        socket_path = Path(folder, "eagerd.sock")
        length = len(os.fsencode(socket_path))
        if length > LONGEST_SOCKET_PATH_BYTES:
            pytest.fail(
                f"{socket_path} has {length} bytes, and a socket's path at most {LONGEST_SOCKET_PATH_BYTES}; "
                "set TMPDIR to a shorter folder"
            )
        address = f"ipc://{socket_path}"
        stderr_path = Path(folder, "stderr")
        with stderr_path.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "eagerd_daemon", "serve", "--listen", address, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env={**os.environ, "PYTHONFAULTHANDLER": "1", **(environment or {})},
            )
        daemon = DaemonProcess(address, Path(folder), process, stderr_path)
        try:
            daemon.wait_until_listening()
            yield daemon
            daemon.close()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
