"""A caller's mistake gets a clear exception of ours with the numbers in it, and loses nothing."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eagerd
from eagerd import EagerSession
from tests.daemon_process import DaemonProcess, run_daemon


@pytest.fixture
def session(daemon: DaemonProcess) -> Iterator[EagerSession]:
    with EagerSession(daemon.address) as opened:
        yield opened


MISTAKES: list[tuple[str, Callable[[Any], object], type[Exception], str]] = [
    ("matmul", lambda xp: xp.ones((2, 3)) @ xp.ones((2, 3)), eagerd.InvalidArgumentError, r"\(2, 3\).*3 columns"),
    ("broadcast", lambda xp: xp.ones((3,)) + xp.ones((4,)), eagerd.InvalidArgumentError, r"\(3,\), \(4,\)"),
    ("axis", lambda xp: xp.sum(xp.ones((3,)), axis=2), eagerd.InvalidIndexError, "axis 2 .* 1 dimensions"),
    ("reshape", lambda xp: xp.reshape(xp.ones((6,)), (4, -1)), eagerd.InvalidArgumentError, "6 elements"),
    ("bitwise floats", lambda xp: xp.ones((3,)) & xp.ones((3,)), eagerd.InvalidTypeError, "float64, float64"),
    ("integer range", lambda xp: xp.ones((3,), dtype=xp.uint8) + 300, eagerd.InvalidArgumentError, "300 .* 0 to 255"),
    ("64 bits", lambda xp: xp.ones((3,)) + 2**70, eagerd.InvalidArgumentError, "64 bits"),
    ("index", lambda xp: xp.ones((3,))[5], eagerd.InvalidIndexError, r"index 5 .* shape \(3,\)"),
    ("assigned shape", lambda xp: _assign(xp.ones((3,)), np.ones(2)), eagerd.InvalidArgumentError, r"\(2,\)"),
    ("a petabyte", lambda xp: xp.ones((10**7, 10**8)).numpy(), eagerd.ResourceExhaustedError, "PiB"),
    ("beyond memory", lambda xp: xp.zeros((2**40, 2**40)), eagerd.InvalidArgumentError, "too many elements"),
    ("unknown dtype", lambda xp: xp.ones((3,), dtype="float31"), eagerd.InvalidTypeError, "float31"),
    ("unknown parameter", lambda xp: xp.sum(xp.ones((3,)), axes=0), TypeError, "axes"),
    ("numpy operand", lambda xp: xp.ones((3,)) + np.ones(3), eagerd.InvalidTypeError, "asarray"),
    ("list operand", lambda xp: xp.exp([1.0]), eagerd.InvalidTypeError, "list"),
    ("empty max", lambda xp: xp.max(xp.ones((0,))), eagerd.InvalidArgumentError, "no elements"),
    ("infinite arange", lambda xp: xp.arange(float("inf")), eagerd.InvalidArgumentError, "no finite length"),
    ("object dtype", lambda xp: xp.asarray(np.array([None])), eagerd.InvalidTypeError, "object"),
    ("str dtype", lambda xp: xp.asarray(np.array(["a"])), eagerd.InvalidTypeError, "<U1"),
    ("datetime", lambda xp: xp.asarray(np.array(["2026-01-01"], "M8[D]")), eagerd.InvalidTypeError, "datetime64"),
    ("structured", lambda xp: xp.asarray(np.zeros(2, [("a", "i4")])), eagerd.InvalidTypeError, "'a'"),
    ("byte order", lambda xp: xp.asarray(np.ones(2, ">f4")), eagerd.InvalidTypeError, "byte order"),
    ("imaginary", lambda xp: xp.asarray(np.array([1j]), dtype=xp.float64), eagerd.InvalidTypeError, "imaginary part"),
    ("long double", lambda xp: xp.asarray(np.ones(2, np.longdouble)), eagerd.InvalidTypeError, "longdouble|float128"),
    ("ragged", lambda xp: xp.asarray([[1], [2, 3]]), ValueError, "inhomogeneous"),
]


def _assign(array: Any, value: object) -> None:
    array[:] = value


@pytest.mark.parametrize(("call", "error", "words"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_raises_on_its_line_and_loses_nothing(
    session: EagerSession, call: Callable[[Any], object], error: type[Exception], words: str
) -> None:
    xp = session.namespace
    kept = xp.asarray([1.0, 2.0])
    with pytest.raises(error, match=words):
        call(xp)
    assert (kept + 1).numpy().tolist() == [2.0, 3.0]
    del kept
    session.safe_point()


def test_an_unknown_function_is_an_attribute_error_that_names_it(session: EagerSession) -> None:
    with pytest.raises(AttributeError, match="matmull"):
        session.namespace.matmull  # noqa: B018


def test_a_foreign_handle_is_refused(session: EagerSession, daemon: DaemonProcess) -> None:
    with run_daemon() as other_daemon, EagerSession(other_daemon.address) as other:
        theirs = other.namespace.ones((3,))
        with pytest.raises(eagerd.InvalidHandleError, match="another daemon"):
            session.namespace.ones((3,)) + theirs
        with pytest.raises(eagerd.InvalidHandleError, match="another session"):
            session.publish("theirs", theirs)


def test_a_released_array_is_refused(session: EagerSession) -> None:
    array = session.namespace.ones((3,))
    array.release()
    array.release()
    with pytest.raises(eagerd.InvalidHandleError, match="released"):
        array + 1
    with pytest.raises(eagerd.InvalidHandleError, match="released"):
        array.numpy()


def test_publishing_twice_and_attaching_nothing_are_refused(session: EagerSession) -> None:
    array = session.namespace.ones((3,))
    session.publish("weights", array)
    with pytest.raises(eagerd.AlreadyExistsError, match="'weights'"):
        session.publish("weights", array)
    with pytest.raises(eagerd.NotFoundError, match="'nothing'"):
        session.attach("nothing")
    with pytest.raises(eagerd.NotFoundError, match="'nothing'"):
        session.unpublish("nothing")
    with pytest.raises(eagerd.InvalidArgumentError, match="1 to 255 bytes, not 256"):
        session.publish("x" * 256, array)


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("ipc:///nowhere/at/all.sock", eagerd.DaemonUnavailableError, "eagerd serve"),
        ("nonsense", eagerd.InvalidArgumentError, "ipc://"),
        ("tcp://127.0.0.1:7740", eagerd.InvalidArgumentError, "ipc:// only"),
        (f"ipc:///tmp/{'x' * 120}", eagerd.InvalidArgumentError, "125 bytes, and at most 100"),
    ],
)
def test_an_address_where_nothing_can_answer_is_refused_at_once(
    address: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        EagerSession(address, timeout=5)


def test_wrong_options_are_refused(daemon: DaemonProcess) -> None:
    with pytest.raises(eagerd.InvalidArgumentError, match="IN_BACKGROUND, ON_SAFE_POINTS, ON_SESSION_CLOSE"):
        EagerSession(daemon.address, cleanup="SOMETIMES")
    with pytest.raises(eagerd.InvalidArgumentError, match="execution"):
        EagerSession(daemon.address, execution="eventually")
    with pytest.raises(eagerd.InvalidArgumentError, match="memory_limit"):
        EagerSession(daemon.address, memory_limit=-1)
    with pytest.raises(eagerd.InvalidArgumentError, match="255 bytes"):
        EagerSession(daemon.address, label="x" * 300)


def test_a_daemon_that_is_killed_is_noticed_at_once(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address)
    array = session.namespace.ones((3,))
    session.synchronize()
    daemon.kill()
    with pytest.raises(eagerd.SessionLostError, match="gone"):
        (array + 1).numpy()
    with pytest.raises(eagerd.SessionLostError):
        session.namespace.ones((3,))
    session.close()


def test_more_operands_or_outputs_than_a_message_holds_are_refused_or_split(session: EagerSession) -> None:
    xp = session.namespace
    x = xp.arange(20_000)
    with pytest.raises(eagerd.InvalidArgumentError, match="unstack into 20000 outputs; at most 4096"):
        xp.unstack(x)
    with pytest.raises(eagerd.InvalidArgumentError, match="stack of 5000 operands; at most 4096"):
        xp.stack([x[0]] * 5000)
    rows = list(x)
    assert (len(rows), int(rows[-1])) == (20_000, 19_999)
    stacks = [xp.stack(rows[:4096]) for _ in range(64)]  # one batch by the number of steps, 2 MB as a frame
    assert int(stacks[-1][4095]) == 4095


def test_releases_of_300_000_arrays_at_once_reach_the_daemon(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, cleanup="ON_SAFE_POINTS") as session:
        arrays = [session.namespace.asarray(1.0) for _ in range(300_000)]
        assert session.stats().live_handles == 300_000
        del arrays
        assert session.stats().released_handles == 300_000
        session.safe_point()
        assert session.stats().live_handles == 0


def test_a_daemon_that_cannot_read_a_message_ends_the_sessions_with_its_words(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address, timeout=20)
    session._connection.send([b"\xc1"])
    with pytest.raises(eagerd.MalformedMessageError, match="not a msgpack message"):
        session.synchronize()
    with pytest.raises(eagerd.MalformedMessageError):
        session.namespace.ones((2,))
    session.close()


def test_nothing_in_dev_shm(session: EagerSession) -> None:
    before = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()
    view = session.namespace.ones((1_000_000,)).numpy()
    assert view[-1] == 1.0
    if Path("/dev/shm").is_dir():
        assert set(os.listdir("/dev/shm")) == before
