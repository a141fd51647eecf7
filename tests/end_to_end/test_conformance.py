"""Section A of the semantics: conformance with TensorFlow Java's EagerSession."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

import eagerd
from eagerd import EagerSession, ResourceCleanupStrategy
from eagerd.releases import FLUSHER
from eagerd_protocol.codec import encode
from eagerd_protocol.messages import (
    Acknowledged,
    Batch,
    CloseSession,
    Failed,
    Refused,
    SessionClosed,
    Statistics,
    Synchronized,
    Value,
)
from tests.daemon_process import DaemonProcess
from tests.end_to_end.programs import run_program
from tests.end_to_end.raw_client import RawClient
from tests.end_to_end.waiting import wait_until

STRATEGIES = list(ResourceCleanupStrategy)
MIB = 1024 * 1024


def test_a01_closing_twice_does_no_harm(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    session.close()
    session.close()
    assert session.closed
    with RawClient(daemon.address) as raw:
        first, second = raw.close_session(5), raw.close_session(6)
        assert isinstance(first, SessionClosed)
        assert isinstance(second, SessionClosed)
        assert (first.was_closed_already, second.was_closed_already) == (False, True)


def test_a02_on_session_close_frees_nothing_before_the_close(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SESSION_CLOSE") as session:
        xp = session.namespace
        array = xp.ones((MIB,), dtype=xp.uint8)
        kept = xp.asarray(1.0)
        before = session.stats()
        del array
        after_release = session.stats()
        kept + 1
        session.safe_point()
        after_operation = session.stats()
        assert after_release.live_bytes == before.live_bytes
        assert after_release.released_bytes == MIB
        assert after_operation.live_bytes >= before.live_bytes
        assert after_operation.reclaimed_handles == 0
        memory = psutil.Process(daemon.pid)
        shared = memory.memory_info().shared
    assert memory.memory_info().shared <= shared - MIB


def test_a03_on_safe_points_garbage_stays_until_the_next_safe_point(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS") as session:
        xp = session.namespace
        array = xp.ones((MIB,), dtype=xp.uint8)
        kept = xp.asarray(1.0)
        before = session.stats()
        del array
        waiting = session.stats()
        assert (waiting.live_bytes, waiting.released_handles, waiting.released_bytes) == (before.live_bytes, 1, MIB)
        more = kept + 1
        after = session.stats()
        assert after.live_bytes == before.live_bytes - MIB + 8
        assert (after.released_handles, after.reclaimed_handles) == (0, 1)
        del more
        session.safe_point()
        assert session.stats().live_handles == 1


def test_a03_garbage_is_gone_before_the_next_operations_kernel_runs(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS", memory_limit=5 * MIB) as session:
        xp = session.namespace
        first = xp.ones((3 * MIB,), dtype=xp.uint8)
        session.synchronize()
        del first
        second = xp.ones((4 * MIB,), dtype=xp.uint8)  # fits only where the first is gone
        assert int(xp.sum(second)) == 4 * MIB


def test_a04_in_background_garbage_goes_with_no_further_call(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        xp = session.namespace
        kept = xp.asarray(1.0)
        array = xp.ones((300_000,))
        before = session.stats()
        assert before.live_bytes == 300_000 * 8 + 8
        wait_until(lambda: FLUSHER.is_parked, what="the program is idle, and the flusher asleep")
        del array
        # Nothing of this session is called: the client's thread sends the release, the daemon's reclaims.
        wait_until(lambda: not session.has_unsent(), 2.0, "the release is sent with no further call")
        wait_until(lambda: session.stats().reclaimed_handles == 1, 2.0, "it is reclaimed")
        after = session.stats()
        assert (after.live_handles, after.live_bytes, after.reclaimed_bytes) == (1, 8, 300_000 * 8)
        assert float(kept) == 1.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a05_a_published_tensor_survives_its_session(daemon: DaemonProcess, strategy: ResourceCleanupStrategy) -> None:
    with EagerSession(daemon.address, cleanup=strategy) as session:
        array = session.namespace.arange(500_000, dtype=session.namespace.float64) * 2
        session.publish("kept", array)
    process = psutil.Process(daemon.pid)
    with EagerSession(daemon.address) as other:
        attached = other.attach("kept")
        np.testing.assert_array_equal(attached.numpy(), np.arange(500_000.0) * 2)
        shared = process.memory_info().shared
        other.unpublish("kept")
        assert other.published() == []
        assert float(attached[7]) == 14.0
    # 4 MB go; what is left over is code of numpy that was read in since, which counts as shared, too.
    wait_until(lambda: process.memory_info().shared <= shared - 3_500_000, 12, "unpublished memory goes")


def test_a06_a07_a13_using_a_closed_session_is_an_error_without_a_round_trip(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    xp = session.namespace
    array = xp.ones((2, 3))
    multiply = xp.multiply
    session.close()
    daemon.kill()  # nothing of this can reach a daemon any more
    uses: list[Callable[[], object]] = [
        lambda: array + 1,
        lambda: multiply(array, 2),
        lambda: xp.zeros((3,)),
        lambda: xp.asarray([1.0]),
        lambda: xp.asarray(np.ones(100_000)),
        lambda: session.writer((3,)),
        lambda: session.writer((300_000,)),
        lambda: session.attach("x"),
        lambda: session.publish("x", array),
        lambda: array.numpy(),
        lambda: float(array[0, 0]),
        session.stats,
        session.synchronize,
        session.safe_point,
    ]
    for use in uses:
        with pytest.raises(eagerd.SessionClosedError):
            use()
    assert (array.shape, array.dtype) == ((2, 3), np.float64)


def test_a06_the_daemon_goes_on_after_a_batch_for_a_closed_session(daemon: DaemonProcess) -> None:
    with RawClient(daemon.address) as raw:
        raw.close_session()
        refused = raw.batch(("put", 1, "float64", (), 0), frames=(bytes(8),))
        assert isinstance(refused, Refused)
        assert refused.code == "session_closed"
        with EagerSession(daemon.address) as session:
            assert float(session.namespace.asarray(2.0) * 2) == 4.0


def test_a08_the_default_session(daemon: DaemonProcess) -> None:
    output = run_program(
        """
        import threading
        from eagerd import EagerSession, InvalidStateError
        found, start = set(), threading.Barrier(8)
        def use():
            start.wait()
            found.add(EagerSession.get_default())
        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        (session,) = found
        for wrong in (session.close, EagerSession.init_default):
            try:
                wrong()
            except InvalidStateError as error:
                print(error)
        print(float(session.namespace.asarray(1.0) + 1), session.closed)
        """,
        environment={"EAGERD_ADDRESS": daemon.address},
    )
    lines = output.splitlines()
    assert "cannot be closed" in lines[0]
    assert "exists already" in lines[1]
    assert lines[2] == "2.0 False"


def test_a08_initialising_the_default_session_first_sets_its_options(daemon: DaemonProcess) -> None:
    output = run_program(
        """
        from eagerd import EagerSession
        session = EagerSession.init_default(cleanup="ON_SAFE_POINTS", label="first")
        assert EagerSession.get_default() is session
        print(session.cleanup)
        """,
        environment={"EAGERD_ADDRESS": daemon.address},
    )
    assert output == "ON_SAFE_POINTS\n"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a09_releasing_three_times_frees_once(daemon: DaemonProcess, strategy: ResourceCleanupStrategy) -> None:
    with RawClient(daemon.address, strategy.name) as raw:
        raw.batch(("put", 1, "float64", (2,), 0), ("put", 2, "float64", (2,), 1), frames=(bytes(16), bytes(16)))
        raw.batch(("release", (1, 1, 77)), ("release", (1,)))
        raw.batch(("release", (1,)), ("safe_point",))

        def counted() -> dict[str, int]:
            reply = raw.batch(("statistics", 9))
            assert isinstance(reply, Statistics)
            return reply.values

        if strategy is ResourceCleanupStrategy.ON_SESSION_CLOSE:
            assert (counted()["live_handles"], counted()["released_handles"]) == (2, 1)
        else:
            wait_until(lambda: counted()["live_handles"] == 1)
            assert (counted()["reclaimed_handles"], counted()["reclaimed_bytes"]) == (1, 16)
        assert counted()["live_bytes"] >= 16


def test_a10_dtype_and_shape_are_known_without_fetching(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        xp = session.namespace
        const = xp.asarray([[1, 2, 3], [4, 5, 6]], dtype=xp.int32)
        total = xp.matmul(const, xp.matrix_transpose(const))
        session.flush()
        daemon.kill()  # nobody can be asked
        assert (const.shape, str(const.dtype), const.ndim, const.nbytes) == ((2, 3), "int32", 2, 24)
        assert (total.shape, str(total.dtype)) == ((2, 2), "int32")


def test_a11_add_of_scalars(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        xp = session.namespace
        total = xp.add(xp.asarray(2, dtype=xp.int32), xp.asarray(4, dtype=xp.int32))
        assert (total.ndim, total.shape, str(total.dtype)) == (0, (), "int32")
        value = total.numpy()
        assert (value.item(), value.ndim, value.dtype) == (6, 0, np.int32)


def test_a12_outputs_have_their_number_and_order(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        xp = session.namespace
        values, counts = xp.unique_counts(xp.asarray([3, 1, 3, 3]))
        assert (values.numpy().tolist(), counts.numpy().tolist()) == ([1, 3], [1, 3])
        result = xp.linalg.svd(xp.asarray([[3.0, 0.0], [0.0, 2.0]]))
        assert result._fields == ("U", "S", "Vh")
        np.testing.assert_allclose(result.S.numpy(), [3.0, 2.0])
        rows = xp.unstack(xp.asarray([[1, 2], [3, 4], [5, 6]]))
        assert [row.numpy().tolist() for row in rows] == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        (("run", "frobnicate", (2,), (1,), {}), "invalid_argument", "'frobnicate'"),
        (("run", "add", (2,), (1,), {}), "invalid_argument", "add takes 2 operands, not 1"),
        (("run", "sum", (2,), (1,), {"axes": 0}), "invalid_argument", "no parameter 'axes'; it has: axis"),
        (("run", "sum", (2,), (1,), {"axis": "x"}), "invalid_type", "axis"),
        (("run", "add", (2, 3), (1, 1), {}), "invalid_argument", "add has 1 output, not 2"),
        (("run", "unique_counts", (2,), (1,), {}), "invalid_argument", "unique_counts has 2 outputs, not 1"),
        (("run", "add", (2,), (1, 55), {}), "invalid_handle", "no handle 55"),
        (("run", "add", (1,), (1, 1), {}), "invalid_argument", "never used twice"),
        (("run", "add", (-1,), (1, 1), {}), "invalid_argument", "-1"),
        (("run", "add", (2,), (1, (1, 2, 3)), {}), "malformed_message", "no operand"),
        (("run", "add", 2, (1, 1), {}), "malformed_message", "outputs"),
        (("walk",), "malformed_message", "'walk'"),
    ],
)
def test_a12_a14_wrong_names_and_numbers_on_the_wire_are_named(
    daemon: DaemonProcess, run: tuple[Any, ...], code: str, words: str
) -> None:
    with RawClient(daemon.address) as raw:
        raw.batch(("put", 1, "float64", (2,), 0), frames=(np.asarray([1.0, 2.0]).tobytes(),))
        assert isinstance(raw.batch(run), Acknowledged)
        told = raw.batch(("synchronize", 7))
        assert isinstance(told, Synchronized)
        ((told_code, message, _),) = told.failures
        assert told_code == code
        assert words in message
        value = raw.batch(("fetch", 8, 1))
        assert isinstance(value, Value)  # nothing is lost


def test_a14_an_output_that_is_not_there_is_an_error(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session, pytest.raises(IndexError):
        session.namespace.unique_counts(session.namespace.asarray([1]))[2]
    with RawClient(daemon.address) as raw:
        answer = raw.batch(("fetch", 8, 1))
        assert isinstance(answer, Failed)
        assert answer.code == "invalid_handle"


def test_a15_a_writer_open_across_the_close_is_an_error(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    writers = [session.writer((3,)), session.writer((300_000,))]
    session.close()
    for writer in writers:
        writer.array[:] = 1.0  # its memory is still the process's own
        with pytest.raises(eagerd.SessionClosedError):
            writer.commit()


def test_a15_a_writer_is_filled_and_committed_once(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS") as session:
        for shape in [(3,), (300_000,)]:
            with session.writer(shape, "float32") as writer:
                writer.array[:] = 2.5
                array = writer.commit()
                with pytest.raises(eagerd.InvalidStateError):
                    writer.commit()
            assert float(array[-1]) == 2.5
            del array
        with session.writer((300_000,)):
            pass  # abandoned
        session.safe_point()
        assert session.stats().live_bytes == 0


def test_a16_attaching_twice_and_detaching_twice(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS") as session:
        xp = session.namespace
        session.publish("x", xp.ones((200_000,)))
        first, second = session.attach("x"), session.attach("x")
        first.release()
        first.release()
        session.safe_point()
        assert session.stats().live_handles == 1
        assert session.stats().live_bytes == 0  # the daemon's, counted for nobody
        assert float(second[0]) == 1.0
        session.unpublish("x")
        with pytest.raises(eagerd.NotFoundError):
            session.unpublish("x")


def test_a17_a_fetched_tensor_outlives_the_close(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    small = session.namespace.asarray([1.0, 2.0]).numpy()
    large = (session.namespace.ones((300_000,)) * 3).numpy()
    session.close()
    with EagerSession(daemon.address) as other:
        for _ in range(5):
            other.namespace.zeros((300_000,)).numpy()
    assert small.tolist() == [1.0, 2.0]
    assert np.all(large == 3.0)


def test_a18_operands_of_two_sessions(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as first, EagerSession(daemon.address) as second:
        total = first.namespace.asarray(5.0) + second.namespace.asarray(6.0)
        assert float(total) == 11.0
        big = second.namespace.ones((300_000,)) * 4
        view = first.namespace.reshape(big, (300, 1000))  # a view would go with the other session: it is copied
        sum_of_both = first.namespace.ones((300_000,)) + big
        del big
        second.close()
        assert float(sum_of_both[-1]) == 5.0
        assert float(view[0, 0]) == 4.0
    with RawClient(daemon.address) as raw, RawClient(daemon.address) as stranger:
        raw.batch(("put", 1, "float64", (), 0), frames=(bytes(8),))
        stranger.batch(("run", "negative", (1,), ((raw.token, 1),), {}))
        told = stranger.batch(("synchronize", 3))
        assert isinstance(told, Synchronized)
        assert told.failures[0][0] == "invalid_handle"
        stolen = stranger
        stolen.token = raw.token
        refused = stolen.batch(("fetch", 4, 1))
        assert isinstance(refused, Refused)
        assert refused.code == "invalid_handle"


def test_a20_a_handle_may_be_used_in_the_batch_that_makes_it(daemon: DaemonProcess) -> None:
    with RawClient(daemon.address) as raw:
        value = raw.batch(
            ("put", 1, "float64", (2, 2), 0),
            ("run", "matmul", (2,), (1, 1), {}),
            ("release", (1,)),
            ("fetch", 5, 2),
            frames=(np.asarray([[1.0, 2.0], [3.0, 4.0]]).tobytes(),),
        )
        assert isinstance(value, Value)
        assert (value.shape, value.segment) == ((2, 2), None)


def test_a21_a_long_operation_meets_its_deadline_and_the_session_still_closes(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    x = session.namespace.asarray(np.full((1500, 1500), 1e-3))
    for _ in range(40):
        x = x @ x
    with pytest.raises(eagerd.DeadlineExceededError, match=r"within 0\.05 s"):
        session.synchronize(timeout=0.05)
    session.close()
    assert session.closed
    with RawClient(daemon.address) as raw:
        raw.batch(("run", "ones", (1,), (), {"shape": (1500, 1500)}))
        raw.sequence += 1
        steps: tuple[Any, ...] = tuple(("run", "matmul", (n,), (1, 1), {}) for n in range(2, 40))
        raw.send_frames(encode(Batch(raw.token, raw.sequence, (*steps, ("synchronize", 8)))))
        raw.send_frames(encode(CloseSession(9, raw.token, 0.0)))
        told, closed = raw.receive(), raw.receive()
        assert isinstance(told, Failed)
        assert (told.request, told.code) == (8, "cancelled")
        assert isinstance(closed, SessionClosed)
        assert 30 < closed.cancelled < 39  # what ran was waited for, the rest never ran
    with EagerSession(daemon.address) as other:
        assert float(other.namespace.asarray(1.0)) == 1.0


def test_a22_the_enum() -> None:
    strategy = ResourceCleanupStrategy
    assert [member.name for member in strategy] == ["IN_BACKGROUND", "ON_SAFE_POINTS", "ON_SESSION_CLOSE"]
    assert [member.value for member in strategy] == [0, 1, 2]
    assert strategy["ON_SAFE_POINTS"] is strategy.ON_SAFE_POINTS
    assert strategy.IN_BACKGROUND < strategy.ON_SESSION_CLOSE
    assert str(strategy.IN_BACKGROUND) == "IN_BACKGROUND"
    assert len({strategy.IN_BACKGROUND, strategy.parse("IN_BACKGROUND")}) == 1
    with pytest.raises(KeyError):
        strategy["SOMETIMES"]
    with pytest.raises(eagerd.InvalidArgumentError):
        strategy.parse("SOMETIMES")


def test_a22_the_default_is_in_background(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address) as session:
        assert session.cleanup is ResourceCleanupStrategy.IN_BACKGROUND


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a23_eight_threads_submit_while_another_closes(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy
) -> None:
    session = EagerSession(daemon.address, cleanup=strategy)
    outcomes: list[str] = []
    started = threading.Barrier(9)

    def submit() -> None:
        xp = session.namespace
        started.wait()
        try:
            for i in range(10_000):
                x = xp.asarray(float(i))
                assert float(x + 1) == i + 1.0
            outcomes.append("finished")
        except eagerd.SessionClosedError:
            outcomes.append("closed")

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    threading.Event().wait(0.3)
    session.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert outcomes == ["closed"] * 8


def test_a24_async_arrays_are_not_ready_yet_and_close_reports_what_failed(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    xp = session.namespace
    slow = xp.asarray(np.full((1200, 1200), 1e-3))
    for _ in range(3):
        slow = slow @ slow
    xp.take(slow[0, :], xp.asarray([5000]))  # behind the slow ones
    with pytest.raises(eagerd.InvalidIndexError, match="take: index 5000"):
        session.close()
    assert session.closed


def test_a24_sync_raises_on_the_operations_own_line(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, execution="sync") as session:
        xp = session.namespace
        x = xp.asarray([1.0])
        with pytest.raises(eagerd.InvalidIndexError, match="take"):
            xp.take(x, xp.asarray([5]))
        assert float((x + 1)[0]) == 2.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a25_a_loop_of_m_iterations_of_n_operations(daemon: DaemonProcess, strategy: ResourceCleanupStrategy) -> None:
    iterations, limit = 200, 40 * MIB
    most = 0
    session = EagerSession(daemon.address, cleanup=strategy, memory_limit=limit)
    xp = session.namespace
    x = xp.ones((128, 256))  # 256 KiB
    refused = None
    try:
        for _ in range(iterations):
            x = xp.sqrt(x * x + 1.0) - 0.5
            most = max(most, session.stats().live_handles)
        session.synchronize()
    except eagerd.ResourceExhaustedError as error:
        refused = error
    if strategy is ResourceCleanupStrategy.ON_SESSION_CLOSE:
        assert most > limit // (256 * 1024) * 0.9
        assert "this session's 40.0 MiB is free" in str(refused)
        with pytest.raises(eagerd.ResourceExhaustedError):
            x.numpy()
        try:
            session.close()
        except eagerd.ResourceExhaustedError:
            pass  # those behind it in the same batch
    else:
        assert refused is None
        assert most <= 12
        session.close()


def cleanup_threads(pid: int) -> int:
    return psutil.Process(pid).num_threads()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a26_each_background_session_has_a_thread_of_its_own(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy
) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS"):  # opens the connection
        before = cleanup_threads(daemon.pid)
        own = 1 if strategy is ResourceCleanupStrategy.IN_BACKGROUND else 0
        sessions = [EagerSession(daemon.address, cleanup=strategy) for _ in range(5)]
        assert cleanup_threads(daemon.pid) == before + 5 * own
        for session in sessions:
            float(session.namespace.asarray(1.0) + 1)
        assert cleanup_threads(daemon.pid) == before + 5 * own
        names = [thread.name for thread in threading.enumerate() if thread.name == "eagerd-flusher"]
        assert len(names) == own
        for n, session in enumerate(sessions):
            session.close()
            left = before + (4 - n) * own
            # Joined before close returned; the kernel takes a moment more to strike it off its list.
            wait_until(lambda left=left: cleanup_threads(daemon.pid) == left, 1.0, f"{left} threads")  # type: ignore[misc]
        assert not [thread for thread in threading.enumerate() if thread.name == "eagerd-flusher"]
