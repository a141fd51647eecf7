"""Section B of the semantics: cases from public bug reports of systems like this one."""

import gc
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest

import eagerd
from eagerd import EagerSession, ResourceCleanupStrategy
from tests.daemon_process import DaemonProcess
from tests.leaks import MemoryGauge

STRATEGIES = list(ResourceCleanupStrategy)
RECLAIMING = [ResourceCleanupStrategy.IN_BACKGROUND, ResourceCleanupStrategy.ON_SAFE_POINTS]


def run_in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in `count` threads at once and raise what any of them raised."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_b03_operands_dropped_right_after_use_are_never_unknown(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy
) -> None:
    with EagerSession(daemon.address, cleanup=strategy, timeout=15) as session:
        xp = session.namespace

        def work(number: int) -> None:
            for i in range(2500):
                a = xp.asarray(float(i % 7 + number))
                b = a + a
                del a
                c = b * b
                del b
                if i % 50 == 0:
                    assert float(c) == (2 * (i % 7 + number)) ** 2

        run_in_threads(4, work)
        session.synchronize()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("strategy", RECLAIMING)
def test_b05_a_variable_rebound_100_000_times_keeps_few_handles(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy, flat_memory: MemoryGauge
) -> None:
    with EagerSession(daemon.address, cleanup=strategy, timeout=15) as session:
        x = session.namespace.zeros((8,))
        for _ in range(5_000):  # warm-up
            x = x + 1
        session.synchronize()
        flat_memory.restart(daemon.pid)
        for i in range(95_000):
            x = x + 1
            if i % 10_000 == 0:
                assert session.stats().live_handles < 100
        assert x.numpy().tolist() == [100_000.0] * 8
        session.safe_point()
        assert session.stats().live_handles < 100


def test_b09_a_put_over_the_limit_gives_its_error_at_once_and_the_next_works(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, memory_limit=1024 * 1024) as session:
        xp = session.namespace
        with pytest.raises(eagerd.ResourceExhaustedError, match=r"needs 2\.0 MiB, 1\.0 MiB of this session's 1\.0 MiB"):
            xp.asarray(np.ones(2 * 1024 * 1024, np.uint8)).numpy()
        small = xp.asarray(np.arange(256, dtype=np.float32))
        np.testing.assert_array_equal(small.numpy(), np.arange(256, dtype=np.float32))


def test_b09_an_operation_over_the_limit_gives_its_error_to_whoever_reads(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, memory_limit=1024 * 1024) as session:
        xp = session.namespace
        big = xp.ones((2 * 1024 * 1024,), dtype=xp.uint8)
        later = big + big
        with pytest.raises(eagerd.ResourceExhaustedError, match="ones: needs"):
            later.numpy()
        assert float(xp.sum(xp.ones((16,)))) == 16.0


def test_b10_a_failed_operation_gives_its_own_error_to_those_who_use_it_and_to_nobody_else(
    daemon: DaemonProcess,
) -> None:
    session = EagerSession(daemon.address)
    xp = session.namespace
    x = xp.asarray([1.0, 2.0])
    failed = xp.take(x, xp.asarray([7]))
    derived = failed + x
    with pytest.raises(eagerd.InvalidIndexError, match="take: index 7 is out of bounds"):
        derived.numpy()
    assert (x + x).numpy().tolist() == [2.0, 4.0]
    session.synchronize()  # somebody has looked at that failure
    del failed, derived
    pending = xp.take(x, xp.asarray([9]))
    with pytest.raises(eagerd.InvalidIndexError, match="index 9"):
        session.close()
    assert session.closed
    with pytest.raises(eagerd.SessionClosedError):
        pending.numpy()


def test_b10_failed_handles_can_be_released(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS") as session:
        xp = session.namespace
        x = xp.asarray([1.0, 2.0])
        before = session.stats().live_handles
        failed = xp.take(x, xp.asarray([7]))
        with pytest.raises(eagerd.InvalidIndexError):
            session.synchronize()
        failed.release()
        session.safe_point()
        assert session.stats().live_handles == before


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_b16_a_slice_outlives_array_session_and_daemon(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy
) -> None:
    source = np.random.default_rng(16).random((600, 400))
    session = EagerSession(daemon.address, cleanup=strategy)
    array = session.namespace.asarray(source) * 1.0
    piece = array.numpy()[1:].T
    del array
    for _ in range(20):  # whatever is reclaimed now would be written over
        session.namespace.ones((600, 400)) + 1.0
    session.close()
    del session
    gc.collect()
    daemon.stop()
    np.testing.assert_array_equal(piece, source[1:].T)


def test_b16_views_are_whole_while_another_thread_closes(daemon: DaemonProcess) -> None:
    source = np.arange(300_000, dtype=np.float64)
    for _ in range(20):
        session = EagerSession(daemon.address)
        view = (session.namespace.asarray(source) + 1.0).numpy()
        closing = threading.Thread(target=session.close)
        closing.start()
        np.testing.assert_array_equal(view[1:], source[1:] + 1.0)
        closing.join(30)
        np.testing.assert_array_equal(view, source + 1.0)


@pytest.mark.parametrize("strategy", RECLAIMING)
def test_b16_a_view_keeps_its_tensor_from_being_reclaimed(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy
) -> None:
    with EagerSession(daemon.address, cleanup=strategy, timeout=15) as session:
        array = session.namespace.ones((100_000,))
        view = array.numpy()[5:]
        array.release()
        session.safe_point()
        assert session.stats().live_handles == 1
        del view
        session.safe_point()

        def is_reclaimed() -> bool:
            return session.stats().live_handles == 0

        deadline = threading.Event()
        for _ in range(100):
            if is_reclaimed():
                break
            deadline.wait(0.01)
        assert is_reclaimed()


def test_b17_releases_and_closes_in_the_middle_of_slow_operations(daemon: DaemonProcess) -> None:
    source = np.random.default_rng(17).random((300, 300)).astype(np.float32)
    choose = random.Random(17)
    for _ in range(100):
        session = EagerSession(daemon.address, cleanup=choose.choice(STRATEGIES))
        x = session.namespace.asarray(source)
        y = x @ x
        for act in choose.sample(["release input", "release output", "more", "ask"], 4):
            if act == "release input":
                x.release()
            elif act == "release output":
                y.release()
            elif act == "ask":
                session.stats()
            elif choose.random() < 0.5:
                try:
                    session.namespace.matmul(y, y)
                except eagerd.InvalidHandleError:
                    pass  # released before
        session.close()
    with EagerSession(daemon.address) as session:
        np.testing.assert_allclose((session.namespace.asarray(source) + 1).numpy(), source + 1)
        assert session.stats().live_handles <= 2


@pytest.mark.parametrize("make", ["small", "large"])
def test_b24_a_fetched_view_is_read_only_and_a_copy_is_not(daemon: DaemonProcess, make: str) -> None:
    with EagerSession(daemon.address) as session:
        array = session.namespace.ones((4,) if make == "small" else (400_000,))
        view = array.numpy()
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 5.0
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            view.flags.writeable = True
        copy = array.numpy(copy=True)
        copy[0] = 5.0
        assert float(array[0]) == 1.0
