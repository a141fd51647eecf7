"""The embedded daemon: a child process on a private socket, for programs that were given no other.

It watches the pipe that is its standard input, which the kernel closes however this process ends, and then
closes everything and removes its folder. One for each process, from first use to exit.
"""

import atexit
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from typing import Final

from eagerd_protocol.address import IpcAddress
from eagerd_protocol.errors import DaemonUnavailableError

_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 10.0


class _EmbeddedDaemon:
    """A started child; owned by this module."""

    def __init__(self) -> None:
        # A short path first: sockets allow 107 bytes.
        folder = tempfile.mkdtemp(prefix="eagerd-", dir=os.environ.get("XDG_RUNTIME_DIR") or None)
        self.address = IpcAddress.parse(f"ipc://{folder}/eagerd.sock")
        self._folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eagerd_daemon", "serve", "--embedded", "--listen", str(self.address)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is this program's to handle; the daemon ends after it
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], _START_SECONDS)
        if not ready or self.process.stdout.readline() != b"ready\n":
            self.process.kill()
            code = self.process.wait()
            self._close_pipes()
            shutil.rmtree(folder, ignore_errors=True)
            raise DaemonUnavailableError(
                f"the embedded daemon did not start (exit code {code}); its messages are on stderr. "
                "Is the eagerd_daemon package installed?"
            )

    def stop(self) -> None:
        """End it and wait."""
        self._close_pipes()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)  # the daemon does it, unless it was killed

    def let_go(self) -> None:
        """In a forked child: the daemon is the parent's, and must not outlive it for our copy of the pipe."""
        self._close_pipes()
        self.process.returncode = 0  # not ours to wait for, and Popen warns of it otherwise

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


_lock = threading.Lock()
_daemon: _EmbeddedDaemon | None = None


def embedded_address() -> IpcAddress:
    """Return the address of this process's embedded daemon, started if none runs."""
    global _daemon
    with _lock:
        if _daemon is not None and _daemon.process.poll() is not None:
            _daemon.stop()
            _daemon = None
        if _daemon is None:
            _daemon = _EmbeddedDaemon()
        return _daemon.address


def stop_embedded() -> None:
    """End the embedded daemon if one runs; at exit, after the sessions."""
    global _daemon
    with _lock:
        daemon, _daemon = _daemon, None
    if daemon is not None:
        daemon.stop()


def _after_fork_in_child() -> None:
    global _daemon, _lock
    _lock = threading.Lock()
    if _daemon is not None:
        _daemon.let_go()
        _daemon = None


atexit.register(stop_embedded)
os.register_at_fork(after_in_child=_after_fork_in_child)
