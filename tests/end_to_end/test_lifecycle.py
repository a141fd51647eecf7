"""Starting, ending, being killed: daemon, clients, the embedded daemon, forked children."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import eagerd
from eagerd import EagerSession
from tests.daemon_process import DaemonProcess
from tests.end_to_end.programs import end_program, run_program, start_program
from tests.end_to_end.waiting import wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_everything_and_ends_with_0(daemon: DaemonProcess, number: signal.Signals) -> None:
    session = EagerSession(daemon.address)
    view = session.namespace.ones((300_000,)).numpy()
    daemon.ended_by_test = True
    daemon.process.send_signal(number)
    assert daemon.process.wait(10) == 0
    assert [path.name for path in daemon.folder.iterdir()] == ["stderr"]
    assert "Traceback" not in daemon.stderr_text()
    with pytest.raises(eagerd.DaemonError, match=r"ending|gone"):
        session.synchronize()
    session.close()
    assert view[-1] == 1.0


def test_a_signal_during_work_still_ends_in_time(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    x = session.namespace.asarray(np.ones((700, 700), np.float32))
    for _ in range(30):
        x = x @ x
    daemon.stop()
    session.close()


def serve(address: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "eagerd_daemon", "serve", "--listen", address],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_second_daemon_on_the_same_path_refuses_and_the_first_goes_on(daemon: DaemonProcess) -> None:
    refused = serve(daemon.address)
    assert refused.returncode == 1
    assert f"(pid {daemon.pid}) already listens" in refused.stderr
    assert "Traceback" not in refused.stderr
    with EagerSession(daemon.address) as session:
        assert float(session.namespace.asarray(3.0) + 1) == 4.0


def test_a_daemon_starts_over_what_a_killed_one_left(daemon: DaemonProcess) -> None:
    daemon.kill()
    left = sorted(path.name for path in daemon.folder.iterdir())
    assert left == ["eagerd.sock", "eagerd.sock.lock", "eagerd.sock.memory", "stderr"]
    with subprocess.Popen(
        [sys.executable, "-m", "eagerd_daemon", "serve", "--listen", daemon.address], stderr=subprocess.PIPE, text=True
    ) as second:
        assert second.stderr is not None
        assert "listens at" in second.stderr.readline()
        with EagerSession(daemon.address) as session:
            assert float(session.namespace.asarray(3.0) + 1) == 4.0
        second.terminate()
        assert second.wait(10) == 0


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nonsense", "ipc:///path"),
        ("ipc:///proc/nothing/here.sock", "cannot listen"),
        (f"ipc:///tmp/{'x' * 120}", "125 bytes, and at most 100 fit"),
    ],
)
def test_a_wrong_address_is_refused_in_one_line(address: str, words: str) -> None:
    refused = serve(address)
    assert refused.returncode == 1
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1


def memory_of(pid: int) -> int:
    """Bytes of shared memory that a process has mapped and touched."""
    return int(psutil.Process(pid).memory_info().shared)


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_a_killed_client_leaves_nothing_in_the_daemon(daemon: DaemonProcess) -> None:
    threads, memory = psutil.Process(daemon.pid).num_threads(), memory_of(daemon.pid)
    descriptors = descriptors_of(daemon.pid)
    with EagerSession(daemon.address, label="survivor") as survivor:
        kept = survivor.namespace.asarray(np.arange(200_000.0))
        survivor.synchronize()
        client = start_program(
            """
            import sys, eagerd, numpy as np
            session = eagerd.EagerSession()
            arrays = [session.namespace.ones((1_000_000,)) for _ in range(10)]
            writer = session.writer((500_000,))          # half-way through an upload
            session.synchronize()
            print("ready", flush=True)
            sys.stdin.read()
            """,
            environment={"EAGERD_ADDRESS": daemon.address},
        )
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            assert memory_of(daemon.pid) > memory + 75_000_000
            client.kill()
            wait_until(lambda: memory_of(daemon.pid) < memory + 10_000_000, what="the dead client's memory is freed")
        finally:
            end_program(client)
        np.testing.assert_array_equal(kept.numpy(), np.arange(200_000.0))
    wait_until(lambda: psutil.Process(daemon.pid).num_threads() == threads, what="no cleanup thread is left")
    wait_until(lambda: descriptors_of(daemon.pid) == descriptors, what="no descriptor is left")


EMBEDDED = """
    import sys, eagerd
    session = eagerd.EagerSession()
    print(session.address, flush=True)
    print(float(session.namespace.asarray(1.0) + 1), flush=True)
"""


def folder_of(address: str) -> Path:
    return Path(address.removeprefix("ipc://")).parent


def test_an_embedded_daemon_ends_with_a_program_that_never_closed(tmp_path: Path) -> None:
    address, result = run_program(EMBEDDED, environment={"XDG_RUNTIME_DIR": str(tmp_path)}).split()
    assert result == "2.0"
    assert not folder_of(address).exists()


def test_an_embedded_daemon_ends_when_its_program_is_killed(tmp_path: Path) -> None:
    program = start_program(EMBEDDED + "    sys.stdin.read()", environment={"XDG_RUNTIME_DIR": str(tmp_path)})
    try:
        assert program.stdout is not None
        address = program.stdout.readline().strip()
        program.stdout.readline()
        (daemon,) = psutil.Process(program.pid).children()
        program.kill()
        wait_until(lambda: not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE, 10, "the daemon ends")
        wait_until(lambda: not folder_of(address).exists(), 10, "its folder is gone")
    finally:
        end_program(program)


def test_a_forked_childs_handles_are_inert_and_the_parent_goes_on(daemon: DaemonProcess) -> None:
    output = run_program(
        """
        import os, sys, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)      # forking with threads, which is the point
        import eagerd
        session = eagerd.EagerSession()
        parents_default = eagerd.EagerSession.get_default()
        array = session.namespace.ones((100_000,))
        session.synchronize()
        for leave in (os._exit, sys.exit):
            pid = os.fork()
            if pid == 0:
                for use in (array.numpy, lambda: array + 1, session.stats, session.synchronize):
                    try:
                        use()
                    except eagerd.ForkedClientError:
                        pass
                    else:
                        os._exit(7)
                del array
                with eagerd.EagerSession() as own:               # a session of its own works
                    assert float(own.namespace.asarray(1.0) + 1) == 2.0
                    assert "eagerd-flusher" in [thread.name for thread in threading.enumerate()]
                default = eagerd.EagerSession.get_default()      # and one of its own by default
                assert default is not parents_default
                assert float(default.namespace.asarray(1.0)) == 1.0
                leave(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert array.numpy()[0] == 1.0
        assert session.stats().live_handles == 1
        session.close()
        print("parent done")
        """,
        environment={"EAGERD_ADDRESS": daemon.address},
    )
    assert output == "parent done\n"


def test_publish_hands_a_result_over_without_a_copy(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        xp = session.namespace
        big = xp.ones((2_000_000,)) + 1
        session.synchronize()
        memory = memory_of(daemon.pid)
        session.publish("big", big)
        assert memory_of(daemon.pid) < memory + 1_000_000
        assert session.stats().live_bytes <= 16_000_000  # the operand of +, if it is not reclaimed yet
        uploaded = xp.asarray(np.full(300_000, 7.0))
        session.publish("uploaded", uploaded)
        view = xp.ones((500_000,))[10:20]
        session.publish("view", view)
    with EagerSession(daemon.address) as other:
        assert other.published() == ["big", "uploaded", "view"]
        assert float(other.namespace.sum(other.attach("big"))) == 4_000_000.0
        attached = other.attach("uploaded")
        assert attached.numpy()[-1] == 7.0
        assert other.attach("view").shape == (10,)
        other.unpublish("uploaded")
        with pytest.raises(eagerd.NotFoundError):
            other.attach("uploaded")
        assert attached.numpy()[0] == 7.0
        attached[0] = 5.0  # rebinds: what others see does not change
        assert float(attached[0]) == 5.0
        assert other.stats().live_handles >= 2
