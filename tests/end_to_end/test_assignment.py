"""``a[key] = value`` and in-place operators: in place where nobody else can see the old value, else on a copy."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import eagerd
from eagerd import EagerSession, ResourceCleanupStrategy
from tests.daemon_process import DaemonProcess, run_daemon

N = 250_000  # float64 of 2 MB, so that values are seen in shared memory
LIMIT = 5_000_000
"""Bytes of a session that has no room for a third array of N."""


def assign_one(array: Any) -> None:
    array[0] = 1.0


def assign_slice(array: Any) -> None:
    array[:10:3] = 1.0


def assign_mask(array: Any) -> None:
    mask = np.zeros(N, np.bool_)
    mask[:5] = True
    array[mask] = 1.0


def assign_integers(array: Any) -> None:
    array[[0, 7]] = 1.0


def add_in_place(array: Any) -> None:
    array += 1.0


def multiply_and_add(array: Any) -> None:
    array *= 2.0
    array += 1.0


CHANGES: list[Callable[[Any], None]] = [
    assign_one,
    assign_slice,
    assign_mask,
    assign_integers,
    add_in_place,
    multiply_and_add,
]


def zeros(session: EagerSession) -> Any:
    """An array that the daemon computed, and nothing of which is anyone else's."""
    return session.namespace.zeros((N,)) + 0.0


Observer = Callable[[EagerSession, EagerSession, Any], Callable[[], float]]


def an_alias(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    view = session.namespace.reshape(array, (N // 10, 10))
    return lambda: float(view[0, 0])


def a_slice(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    view = array[:100]
    return lambda: float(view[0])


def a_numpy_view(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    view = array.numpy()
    return lambda: float(view[0])


def a_part_of_a_numpy_view(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    view = np.asarray(array)[:10]
    return lambda: float(view[0])


def a_dlpack_view(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    view = np.from_dlpack(array)
    return lambda: float(view[0])


def a_published_name(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    session.publish(f"zeros of {session.label}", array)
    return lambda: float(other.attach(f"zeros of {session.label}")[0])


def an_attached_array(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    session.publish(f"zeros of {session.label}", array)
    attached = other.attach(f"zeros of {session.label}")
    session.unpublish(f"zeros of {session.label}")
    return lambda: float(attached[0])


def another_sessions_result(session: EagerSession, other: EagerSession, array: Any) -> Callable[[], float]:
    sums = other.namespace.reshape(array, (N // 10, 10))
    return lambda: float(sums[0, 0])


OBSERVERS: list[Observer] = [
    an_alias,
    a_slice,
    a_numpy_view,
    a_part_of_a_numpy_view,
    a_dlpack_view,
    a_published_name,
    an_attached_array,
    another_sessions_result,
]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with run_daemon() as process:
        yield process


@pytest.fixture
def sessions(daemon: DaemonProcess) -> Iterator[tuple[EagerSession, EagerSession]]:
    with ExitStack() as stack:
        yield tuple(stack.enter_context(EagerSession(daemon.address)) for _ in range(2))  # type: ignore[misc]


def name_of(function: Any) -> str:
    return str(function.__name__)


@pytest.mark.parametrize("observe", OBSERVERS, ids=name_of)
@pytest.mark.parametrize("change", CHANGES, ids=name_of)
def test_who_saw_the_old_value_goes_on_seeing_it(
    sessions: tuple[EagerSession, EagerSession], change: Callable[[Any], None], observe: Observer
) -> None:
    session, other = sessions
    array = zeros(session)
    look = observe(session, other, array)
    assert look() == 0.0
    change(array)
    assert float(array[0]) == 1.0
    assert look() == 0.0


@pytest.mark.parametrize("change", CHANGES, ids=name_of)
def test_what_nobody_else_sees_is_changed_in_place(daemon: DaemonProcess, change: Callable[[Any], None]) -> None:
    with EagerSession(daemon.address, memory_limit=LIMIT, cleanup="ON_SAFE_POINTS") as session:
        array = zeros(session)
        blocker = session.namespace.zeros((280_000,))  # 2.24 MB: no copy of the array fits beside it
        for _ in range(5):
            change(array)
        session.synchronize()
        assert float(array[0]) >= 1.0
        del blocker


def test_a_copy_is_made_where_the_old_value_is_seen_and_refused_where_it_does_not_fit(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, memory_limit=LIMIT, cleanup="ON_SAFE_POINTS") as session:
        array = zeros(session)
        blocker = session.namespace.zeros((280_000,))
        alias = array[:]
        array[0] = 1.0
        with pytest.raises(eagerd.ResourceExhaustedError, match="setitem"):
            array.numpy()
        assert float(alias[0]) == 0.0
        session.synchronize()
        del blocker


def test_what_an_operation_of_another_session_waits_for_is_not_changed(
    sessions: tuple[EagerSession, EagerSession],
) -> None:
    session, other = sessions
    array = session.namespace.zeros((1500, 1500)) + 0.0
    product = ones = other.namespace.ones((1500, 1500))
    for _ in range(3):
        product = product @ ones * 1e-4  # keeps the other session busy
    late = product + array
    array[0, 0] = 1e9
    assert float(late[0, 0]) < 1e6
    assert float(array[0, 0]) == 1e9


def test_an_attached_array_that_is_assigned_to_changes_for_nobody_else(
    sessions: tuple[EagerSession, EagerSession],
) -> None:
    session, other = sessions
    session.publish(f"zeros of {session.label}", zeros(session))
    mine, theirs = (each.attach(f"zeros of {session.label}") for each in sessions)
    mine[0] = 1.0
    theirs += 2.0
    assert (float(mine[0]), float(theirs[0])) == (1.0, 2.0)
    assert float(other.attach(f"zeros of {session.label}")[0]) == 0.0


def test_an_array_assigned_to_itself_is_read_before_it_is_written(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        xp = session.namespace
        model = np.arange(float(N))
        array = xp.asarray(model) + 0.0
        array[1:] = array[:-1]
        model[1:] = model[:-1].copy()
        np.testing.assert_array_equal(array.numpy(), model)
        array += array
        array -= array[::-1]
        model = 2 * model - (2 * model)[::-1]
        np.testing.assert_array_equal(array.numpy(), model)
        shuffled, values = (np.random.default_rng(seed).permutation(N) for seed in (1, 2))
        order = xp.asarray(shuffled) + 0
        order[order] = xp.asarray(values)  # the index changes while it is read
        expected = shuffled.copy()
        expected[shuffled] = values
        np.testing.assert_array_equal(order.numpy(), expected)


def test_the_same_object_by_two_names_is_one_array(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        array = same = session.namespace.zeros((3,))
        array[0] = 5.0
        array += 1.0
        assert same is array
        assert same.numpy().tolist() == [6.0, 1.0, 1.0]


@pytest.mark.parametrize("execution", ["async", "sync"])
def test_a_wrong_assignment_loses_nothing(daemon: DaemonProcess, execution: str) -> None:
    with EagerSession(daemon.address, execution=execution) as session:
        xp = session.namespace
        array = xp.asarray([1, 2, 3], dtype=xp.int8)
        wrong: list[tuple[Callable[[], Any], type[Exception]]] = [
            (lambda: array.__setitem__(0, 1.5), TypeError),
            (lambda: array.__setitem__(0, 300), ValueError),
            (lambda: array.__setitem__(3, 1), IndexError),
            (lambda: array.__setitem__(slice(None), [1, 2]), ValueError),
            (lambda: array.__setitem__(0, None), TypeError),
            (lambda: array.__setitem__("a", 1), IndexError),
            (lambda: array.__setitem__(1.5, 1), IndexError),
            (lambda: array.__setitem__(xp.asarray([0.5]), 1), IndexError),
            (lambda: array.__setitem__(xp.asarray([True, False]), 1), IndexError),
            (lambda: array.__iadd__(1.5), TypeError),
            (lambda: array.__iadd__(xp.ones((2, 3), dtype=xp.int8)), ValueError),
            (lambda: array.__itruediv__(2), TypeError),
        ]
        for assign, error in wrong:
            with pytest.raises(error):
                assign()
            assert array.numpy().tolist() == [1, 2, 3]


def test_an_index_that_only_values_show_to_be_wrong_keeps_the_array_of_a_session_in_sync(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, execution="sync") as session:
        array = session.namespace.asarray([1.0, 2.0]) + 0.0
        with pytest.raises(eagerd.InvalidIndexError, match="index 7 is out of bounds"):
            array[[0, 7]] = 5.0
        assert array.numpy().tolist() == [1.0, 2.0]
    with EagerSession(daemon.address) as session:
        array = session.namespace.asarray([1.0, 2.0]) + 0.0
        array[[0, 7]] = 5.0
        with pytest.raises(eagerd.InvalidIndexError, match="index 7 is out of bounds"):
            array.numpy()


def test_rows_assigned_in_place_copy_nothing(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SESSION_CLOSE", memory_limit=20_000_000) as session:
        array = session.namespace.zeros((1000, 1000))  # 8 MB: not even three copies would fit
        for row in range(20):
            array[row, :] = float(row)
        assert array.numpy()[:20, 0].tolist() == list(range(20))
        assert session.stats().live_bytes < 8_100_000


@pytest.mark.parametrize("strategy", ResourceCleanupStrategy)
def test_temporaries_are_overwritten_unless_all_must_stay(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy
) -> None:
    with EagerSession(daemon.address, cleanup=strategy, memory_limit=100 * N * 8) as session:
        array = session.namespace.ones((N,))
        for _ in range(10):
            array = (array * 0.5 + 1.0) * 0.5 + 0.25
        session.synchronize()
        stats = session.stats()
        assert float(array[0]) == 1.0
        if strategy is ResourceCleanupStrategy.ON_SESSION_CLOSE:
            assert (stats.live_handles, stats.live_bytes) == (41, 41 * N * 8)
        else:
            assert stats.live_bytes <= 12 * N * 8


def test_what_dies_after_the_last_operation_waits_for_the_next_safe_point(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS") as session:
        array = session.namespace.ones((N,))
        result = array + 1.0
        del array
        stats = session.stats()
        assert (stats.released_handles, stats.reclaimed_handles, stats.live_bytes) == (1, 0, 2 * N * 8)
        session.safe_point()
        assert session.stats().live_bytes == N * 8
        del result


def test_lists_are_weak_as_scalars_are(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        xp = session.namespace
        small = xp.zeros((3,), dtype=xp.uint8)
        small[:] = [1, 2, 3]
        small[[]] = []
        small[0:0] = []
        assert small.numpy().tolist() == [1, 2, 3]
        for wrong, error in [([300, 1, 1], ValueError), ([0.5, 1, 1], TypeError)]:
            with pytest.raises(error):
                small[:] = wrong
        halves = xp.zeros((2,), dtype=xp.float16)
        halves[:] = (0.5, True)
        assert halves.numpy().tolist() == [0.5, 1.0]


def test_threads_that_change_and_read_one_array_lose_at_most_updates(daemon: DaemonProcess) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with EagerSession(daemon.address) as session:
            xp = session.namespace
            array = xp.zeros((20,))
            failures: list[BaseException] = []

            def repeat(change: Callable[[], object]) -> None:
                try:
                    for _ in range(400):
                        change()
                except BaseException as error:
                    failures.append(error)

            changes = [lambda: array.__iadd__(1.0)] * 3 + [lambda: xp.sum(array * 2.0), lambda: array[0]]
            threads = [threading.Thread(target=repeat, args=(change,)) for change in changes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures
            assert 400 <= float(array[0]) <= 1200
    finally:
        sys.setswitchinterval(interval)


def test_an_assignment_that_is_interrupted_while_it_waits_leaves_a_value(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EagerSession(daemon.address) as session:
        array = session.namespace.zeros((3,))

        def interrupt() -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(session, "_after_submission", interrupt)  # where a full window is waited for
            with pytest.raises(KeyboardInterrupt):
                array += 1.0
        assert array.numpy().tolist() == [1.0] * 3
