"""A session that a program drops without closing goes with the next message of another."""

import gc

import numpy as np

from eagerd import EagerSession
from tests.daemon_process import DaemonProcess
from tests.end_to_end.programs import run_program


def test_a_dropped_session_is_closed_by_the_next_message(daemon: DaemonProcess) -> None:
    output = run_program(
        """
        import gc, psutil, time
        from eagerd import EagerSession
        pid = PID
        with EagerSession() as session:
            before = psutil.Process(pid).num_threads()
            for _ in range(20):
                EagerSession().namespace.ones((100_000,))
            gc.collect()
            deadline = time.monotonic() + 10
            while psutil.Process(pid).num_threads() > before:
                assert time.monotonic() < deadline, "the daemon still has their cleanup threads"
                session.stats()
            print("gone")
        """.replace("PID", str(daemon.pid)),
        environment={"EAGERD_ADDRESS": daemon.address},
    )
    assert output == "gone\n"
    gc.collect()
    with EagerSession(daemon.address) as session:
        assert np.all(session.namespace.ones((3,)).numpy() == 1)
