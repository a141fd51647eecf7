"""The leak fixtures themselves: each kind of leak is found and named, and what ends in time is none."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests import leaks
from tests.leaks import MemoryGauge, find_leaks, take_snapshot

pytest_plugins = ["pytester"]


def never_sleep(seconds: float) -> None:
    raise AssertionError("waited for something that was already gone")


def test_nothing_new_is_no_leak_and_costs_no_wait() -> None:
    assert find_leaks(take_snapshot(), wait_seconds=60, sleep=never_sleep) == []


def test_a_leaked_thread_is_named() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="eagerd-forgotten")
    before = take_snapshot()
    thread.start()
    try:
        assert find_leaks(before, wait_seconds=0) == ["thread 'eagerd-forgotten'"]
    finally:
        end.set()
        thread.join()
    assert find_leaks(before, wait_seconds=2) == []


def test_a_leaked_file_is_named_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "forgotten"
    path.touch()
    before = take_snapshot()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert find_leaks(before, wait_seconds=0) == [f"file descriptor {descriptor} -> {path}"]
    finally:
        os.close(descriptor)
    assert find_leaks(before, wait_seconds=0) == []


def test_leaked_sockets_and_memory_files_are_named() -> None:
    before = take_snapshot()
    one, other = socket.socketpair()
    memory = os.memfd_create("eagerd-forgotten")
    try:
        found = "\n".join(find_leaks(before, wait_seconds=0))
        assert f"file descriptor {one.fileno()} -> socket:[" in found
        assert f"file descriptor {other.fileno()} -> socket:[" in found
        assert f"file descriptor {memory} -> /memfd:eagerd-forgotten" in found
    finally:
        one.close()
        other.close()
        os.close(memory)


def test_a_number_that_another_file_took_is_a_leak() -> None:
    first = os.memfd_create("first")
    before = take_snapshot()
    second = os.memfd_create("second")
    try:
        os.dup2(second, first)
        assert f"file descriptor {first} -> /memfd:second (deleted)" in find_leaks(before, wait_seconds=0)
    finally:
        os.close(first)
        os.close(second)


def test_a_leaked_child_and_its_own_child_are_named() -> None:
    inner = "import sys; sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}, 'inner'])"
    before = take_snapshot()
    with subprocess.Popen([sys.executable, "-c", outer, "outer"], stdin=subprocess.PIPE) as child:
        found = find_leaks(before, wait_seconds=0)
        assert any(f"child process {child.pid}: " in leak and leak.endswith(" outer") for leak in found)
        assert is_found_soon(before, " inner")
    assert find_leaks(before, wait_seconds=2) == []


def is_found_soon(before: leaks.Snapshot, ending: str) -> bool:
    """Look until it is there: the inner child is started by the outer one, in its own time."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if any(leak.endswith(ending) for leak in find_leaks(before, wait_seconds=0)):
            return True
    return False


def test_a_child_that_nobody_waited_for_is_named() -> None:
    before = take_snapshot()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert find_leaks(before, wait_seconds=0) == [f"child process {pid}: ended but not waited for"]
    finally:
        os.waitpid(pid, 0)


@pytest.mark.skipif(not leaks.SHARED_MEMORY.is_dir(), reason="this machine has no /dev/shm")
def test_a_file_left_in_shared_memory_is_named() -> None:
    before = take_snapshot()
    with tempfile.NamedTemporaryFile(dir=leaks.SHARED_MEMORY, prefix="eagerd-") as file:
        assert file.name in find_leaks(before, wait_seconds=0)
    assert find_leaks(before, wait_seconds=0) == []


def test_what_ends_while_it_is_waited_for_is_no_leak() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    waits: list[float] = []

    def end_the_thread(seconds: float) -> None:
        waits.append(seconds)
        end.set()
        thread.join()

    before = take_snapshot()
    thread.start()
    assert find_leaks(before, wait_seconds=60, sleep=end_the_thread) == []
    assert waits


def test_garbage_is_collected_before_it_counts_as_a_leak() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
            self.me = self

        def __del__(self) -> None:
            self.file.close()

    before = take_snapshot()
    Cycle()
    assert find_leaks(before, wait_seconds=0, sleep=never_sleep) == []


def test_an_allowed_name_is_no_leak() -> None:
    before = take_snapshot()
    memory = os.memfd_create("eagerd-allowed")
    try:
        assert find_leaks(before, wait_seconds=0, allowed=("*/memfd:eagerd-allowed*",)) == []
    finally:
        os.close(memory)


def test_memory_that_grew_is_reported_with_its_numbers(flat_memory: MemoryGauge) -> None:
    gauge = MemoryGauge(limit_mib=8)
    gauge.restart()
    held = np.ones(32 * leaks.MIB, np.uint8)
    (growth,) = gauge.find_growth()
    assert f"process {os.getpid()} grew by 3" in growth
    assert "the limit is 8 MiB" in growth
    del held
    assert gauge.find_growth() == []


def test_a_test_that_leaks_fails_by_name_but_one_that_failed_is_not_blamed_twice(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    pytester.makeconftest("import tests.conftest; tests.conftest.LEAK_WAIT_SECONDS = 0.0")
    pytester.makepyfile(
        """
        import os

        left = []

        def test_leaks():
            left.append(os.memfd_create("forgotten"))

        def test_fails():
            left.append(os.memfd_create("excused"))
            assert False

        def test_grows(flat_memory):
            flat_memory.limit_mib = 1
            left.append(b"x" * (8 << 20))

        def test_is_clean(flat_memory):
            pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "tests.conftest")
    result.assert_outcomes(passed=3, failed=1, errors=2)
    output = result.stdout.str()
    assert "the test left behind:" in output
    assert "-> /memfd:forgotten" in output
    assert "-> /memfd:excused" not in output
    assert "the limit is 1 MiB" in output
