"""Arrays through a real daemon: indexing, scalars, texts, values bit for bit, and nothing left behind."""

import copy
import ctypes
import enum
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import eagerd
from eagerd import EagerSession, ResourceCleanupStrategy
from tests.daemon_process import DaemonProcess, run_daemon
from tests.end_to_end.waiting import wait_until


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with run_daemon() as process:
        yield process


@pytest.fixture
def session(daemon: DaemonProcess) -> Iterator[EagerSession]:
    with EagerSession(daemon.address, label="reader") as opened:
        yield opened


MODEL = np.arange(120.0).reshape(4, 5, 6)
MASK = MODEL % 7 == 0

KEYS: dict[str, Any] = {
    "an integer": 1,
    "integers": (1, -2, 3),
    "a slice": slice(1, 3),
    "steps, backwards": (slice(None, None, -2), slice(4, 0, -3)),
    "an ellipsis": (..., 2),
    "a new axis": (None, 1, ..., None),
    "a full mask": MASK,
    "a mask of rows": MASK[:, 0, 0],
    "a mask in the middle": (slice(None), MASK[0, :, 0]),
    "a mask and a slice": (MASK[:, :, 0], slice(1, 4)),
    "True": True,
    "False": (False, ...),
    "a list": ([0, 2],),
    "an integer array": np.array([[0, -1], [2, 2]]),
    "integer arrays apart": (np.array([0, 1]), slice(None), np.array([3, 2])),
    "integer arrays apart, after a slice": (slice(1, 3), np.array([0, 1]), None, np.array([3, 2])),
    "integer arrays and an integer apart": (slice(1, 3), np.array([[0], [1]]), None, 4),
    "integer arrays apart by an ellipsis of nothing": (slice(1, 3), np.array([0, 1]), ..., np.array([3, 2])),
    "a mask and an integer apart by nothing": (slice(1, 3), MASK[0, :, 0], ..., 4),
    "a slice beyond 64 bits": slice(-(10**30), 10**30),
    "integer arrays side by side": (slice(None), np.array([0, 1]), np.array([[3], [2]])),
    "an integer array and an integer": (np.array([0, 1]), 2),
    "an empty list": [],
    "a mask that picks nothing": MODEL < 0,
    "a mask of no rows": np.zeros((0, 5), np.bool_),
    "unsigned bytes": np.array([1, 0], np.uint8),
}


def on_daemon(session: EagerSession, key: Any) -> Any:
    """The key with session's arrays in the place of numpy's."""
    asarray = session.namespace.asarray
    if isinstance(key, tuple):
        return tuple(asarray(k) if isinstance(k, np.ndarray) else k for k in key)
    return asarray(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("name", KEYS)
def test_every_kind_of_index_reads_what_numpy_reads(session: EagerSession, name: str) -> None:
    key = KEYS[name]
    expected = MODEL[np.array([], np.int64) if isinstance(key, list) and not key else key]
    x = session.namespace.asarray(MODEL)
    for result in (x[key], x[on_daemon(session, key)]):
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("name", KEYS)
def test_every_kind_of_index_writes_what_numpy_writes(session: EagerSession, name: str) -> None:
    key = KEYS[name]
    index = np.array([], np.int64) if isinstance(key, list) and not key else key
    for value in (-1.0, np.asarray(MODEL[index] * 3), np.float64(2)):
        expected = MODEL.copy()
        expected[index] = value
        x = session.namespace.asarray(MODEL)
        x[on_daemon(session, key)] = session.namespace.asarray(value) if isinstance(value, np.ndarray) else value
        np.testing.assert_array_equal(x.numpy(), expected)


def test_an_array_of_one_integer_is_an_index(session: EagerSession) -> None:
    xp = session.namespace
    x = xp.asarray(MODEL)
    assert x[xp.asarray(1), xp.asarray(2)].shape == (6,)
    assert list(range(10))[xp.asarray(3)] == 3
    assert float(x[xp.argmax(x) // 30, 0, 0]) == 90.0


WRONG_KEYS: list[tuple[str, Any, str]] = [
    ("a float", 1.5, "not float"),
    ("a string", "a", "not str"),
    ("a word of the wire", "array", "not str"),
    ("an integer beyond 64 bits", 10**30, "64 bits"),
    ("floats", np.array([0.5]), "integers or booleans, not float64"),
    ("beyond the end", 4, "index 4 is out of range for axis 0"),
    ("before the start", (0, 0, -7), "index -7 is out of range for axis 2"),
    ("too many", (0, 0, 0, 0), "too many indices: 4 for an array of 3"),
    ("two ellipses", (..., 0, ...), "a single ellipsis"),
    ("a mask of another shape", np.ones(5, np.bool_), "mask of shape"),
    ("a mask of more dimensions", np.ones((4, 5, 6, 1), np.bool_), "too many indices"),
    ("arrays that do not broadcast", (np.array([0, 1]), np.array([0, 1, 2])), "cannot be broadcast"),
]


@pytest.mark.parametrize(("key", "words"), [w[1:] for w in WRONG_KEYS], ids=[w[0] for w in WRONG_KEYS])
def test_a_wrong_index_is_an_index_error_on_its_line(session: EagerSession, key: Any, words: str) -> None:
    x = session.namespace.asarray(MODEL)
    with pytest.raises(IndexError, match=words):
        x[key]
    with pytest.raises(IndexError, match=words):
        x[key] = 1.0
    np.testing.assert_array_equal(x.numpy(), MODEL)


def test_views_share_the_segment_of_their_base(session: EagerSession) -> None:
    xp = session.namespace
    base = xp.ones((1000, 1000)) + 1.0
    session.synchronize()
    session.safe_point()
    wait_until(lambda: session.stats().live_bytes <= 8_000_000, what="the operand of + is reclaimed")
    kept = [base[100:], base[:, ::2], base[None, ..., ::-1], xp.permute_dims(base, (1, 0)), base.T, base.mT]
    kept += [xp.broadcast_to(base, (50, 1000, 1000)), xp.reshape(base, (10, 100_000)), *xp.unstack(base[:3])]
    kept += [xp.flip(base), xp.moveaxis(base, 0, 1), xp.linalg.diagonal(base), *xp.meshgrid(base[0], base[1])]
    kept += [xp.expand_dims(base, 0), xp.squeeze(base[None], 0), *xp.broadcast_arrays(base, base[0])]
    kept += [xp.astype(base, xp.float64, copy=False), xp.real(base)]
    session.synchronize()
    assert session.stats().live_bytes == 8_000_000
    assert float(kept[3][5, 7]) == 2.0


@pytest.mark.parametrize("key", [slice(500, None), (slice(None), 3), (slice(None, None, -2), slice(None, None, 3))])
def test_a_view_reads_as_numpy_reads_it(session: EagerSession, key: Any) -> None:
    model = np.arange(1_000_000.0).reshape(1000, 1000)
    view = session.namespace.asarray(model)[key].numpy()
    assert view.strides == model[key].strides or view.nbytes <= 65536
    np.testing.assert_array_equal(view, model[key])


# Scalars


def test_python_scalars_are_weak(session: EagerSession) -> None:
    xp = session.namespace
    for dtype, scalar, expected in [
        ("float32", 1.5, "float32"),
        ("int8", 2, "int8"),
        ("int8", True, "int8"),
        ("uint8", 1.5, "float64"),
        ("complex64", 1j, "complex64"),
        ("float32", 1j, "complex64"),
        ("bool", True, "bool"),
        ("float16", 3, "float16"),
    ]:
        x = xp.ones((2,), dtype=dtype)
        for result in (x + scalar, scalar + x) if dtype != "bool" else (x & scalar, scalar | x):
            assert result.dtype == np.dtype(expected)
            assert result.numpy().dtype == np.dtype(expected)
    assert complex((xp.asarray([1 + 2j]) * (3 - 1j))[0]) == (1 + 2j) * (3 - 1j)
    assert int((xp.asarray([1], dtype=xp.uint64) + (2**64 - 2))[0]) == 2**64 - 1
    assert float((xp.asarray([1.0]) * float("-inf"))[0]) == float("-inf")


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30, 10**5000], ids=["2**64", "low", "10**30", "10**5000"])
def test_integers_beyond_64_bits_are_refused(session: EagerSession, value: int) -> None:
    xp = session.namespace
    calls: list[Callable[[], Any]] = [
        lambda: xp.ones((2,)) + value,
        lambda: xp.full((2,), value),
        lambda: xp.arange(value),
        lambda: xp.zeros(value),
        lambda: xp.ones((2,))[value],
        lambda: xp.asarray(value),
    ]
    for call in calls:
        with pytest.raises((ValueError, TypeError, IndexError)) as caught:
            call()
        assert isinstance(caught.value, eagerd.EagerdError)


def test_results_of_several_outputs_have_names(session: EagerSession) -> None:
    xp = session.namespace
    x = xp.asarray([[2.0, 0.0], [0.0, 3.0]])
    assert xp.linalg.eigh(x).eigenvalues.numpy().tolist() == [2.0, 3.0]
    q, r = xp.linalg.qr(x)
    np.testing.assert_allclose((q @ r).numpy(), x.numpy())
    assert xp.unique_counts(x).counts.numpy().tolist() == [2, 1, 1]
    rows, columns = xp.nonzero(x)
    assert (rows.numpy().tolist(), columns.numpy().tolist()) == ([0, 1], [0, 1])


def test_shapes_that_depend_on_data_are_known_when_asked_for(session: EagerSession) -> None:
    xp = session.namespace
    x = xp.asarray([3, 0, 5])
    (positions,) = xp.nonzero(x)
    picked = x[x > 0]
    repeated = xp.repeat(x, xp.asarray([1, 0, 2]))
    for array in (positions, picked, repeated):
        assert array.likely_shape == (None,)
        assert array.ndim == 1
    assert (positions.shape, picked.shape, repeated.shape) == ((2,), (2,), (3,))
    assert picked.likely_shape == (2,)
    assert (picked + 1).numpy().tolist() == [4, 6]


def test_parameters_are_told_by_type(session: EagerSession) -> None:
    xp = session.namespace
    assert xp.arange(0, 5, 1.0).dtype == xp.arange(5, step=1.0).dtype == np.float64
    x = xp.ones((2, 2))
    for _ in range(2):  # what was remembered of True is nothing to 1
        with pytest.raises(TypeError, match="keepdims"):
            xp.sum(x, axis=0, keepdims=1)
        with pytest.raises(TypeError, match="axis"):
            xp.sort(x, axis=-1.0)
        assert xp.sum(x, axis=0, keepdims=True).shape == (1, 2)
        xp.sort(x, axis=-1)

    class Answer(enum.IntEnum):
        A = 2

    class Real(float):
        pass

    assert (xp.asarray([1, 2]) + Answer.A).dtype == np.int64
    assert (x * Real(2)).dtype == xp.full(2, Real(1)).dtype == np.float64
    with pytest.raises(TypeError, match="upload it first"):
        _ = x == [1.0, 2.0]


def test_unique_values_are_sorted_and_fill_values_may_be_arrays(session: EagerSession) -> None:
    xp = session.namespace
    assert xp.unique_values(xp.asarray(np.arange(30) * 7 % 10)).numpy().tolist() == list(range(10))
    assert xp.full((2,), xp.asarray(3), dtype=xp.int8).numpy().tolist() == [3, 3]


# DLPack


def test_dlpack_exports_shared_memory_and_a_write_to_it_stays_there(session: EagerSession) -> None:
    xp = session.namespace
    array = xp.ones((8_000_000,)) + 1.0
    session.synchronize()
    private = psutil.Process().memory_full_info().uss
    view = np.from_dlpack(array)
    assert (view[0], view.sum(), view.flags.writeable) == (2.0, 16_000_000.0, False)
    assert psutil.Process().memory_full_info().uss < private + 8_000_000
    ctypes.c_double.from_address(view.ctypes.data).value = 5.0  # as torch would, which knows no read-only tensors
    assert view[0] == 5.0
    assert array.numpy()[0] == np.from_dlpack(array)[0] == float(array[0]) == 2.0
    del array
    session.synchronize()
    assert view[-1] == 2.0


# Texts


def test_an_array_shows_its_values_where_they_are_few(session: EagerSession) -> None:
    xp = session.namespace
    assert repr(xp.asarray([1.0, 2.5])) == "eagerd.Array([1. , 2.5], shape=(2,), dtype=float64, session='reader')"
    assert repr(xp.asarray(True)) == "eagerd.Array(True, shape=(), dtype=bool, session='reader')"
    big = repr(xp.zeros((1000, 1000)))
    assert big == "eagerd.Array(shape=(1000, 1000), dtype=float64, session='reader'; 7.6 MiB)"
    x = xp.asarray([1, 0, 2])
    assert repr(x[x > 0]) == "eagerd.Array([1, 2], shape=(2,), dtype=int64, session='reader')"
    assert repr(xp.nonzero(xp.ones((5000,)))[0]).endswith("shape=(5000,), dtype=int64, session='reader'; 39.1 KiB)")
    assert str(x) == repr(x)


def test_an_array_that_has_no_values_says_why(daemon: DaemonProcess) -> None:
    session = EagerSession(daemon.address, label="reader")
    xp = session.namespace
    released = xp.ones((2,))
    released.release()
    assert repr(released).endswith("session='reader'; released)")
    failed = xp.take(xp.ones((2,)), xp.asarray([5]))
    assert "failed: take: index 5 is out of bounds" in repr(failed)
    big = xp.ones((2000, 2000))
    for _ in range(4):
        big = big @ big * 1e-4
    late = xp.sum(big)
    assert repr(late).endswith("session='reader'; not computed yet)")
    kept = xp.ones((2,))
    session.close()
    assert repr(kept).endswith("session='reader'; the session is closed)")
    assert "the session is closed" in kept._repr_html_()


def test_a_notebook_shows_a_table_and_no_markup_of_the_users(daemon: DaemonProcess) -> None:
    with EagerSession(daemon.address, label="<b>&reader") as session:
        html = session.namespace.asarray([1.0, 2.0])._repr_html_()
    assert "<td>(2,)</td>" in html
    assert "<td>float64</td>" in html
    assert "&lt;b&gt;&amp;reader" in html
    assert "<b>" not in html
    assert "[1., 2.]" in html


def test_looking_at_an_array_downloads_no_more_than_it_shows(session: EagerSession) -> None:
    huge = session.namespace.broadcast_to(session.namespace.asarray(1.0), (10**6, 10**6))  # 8 TB, if it were
    assert "7.3 TiB" in repr(huge)
    assert "7.3 TiB" in huge._repr_html_()


def test_copies_are_arrays_of_their_own_and_pickles_are_refused(session: EagerSession) -> None:
    x = session.namespace.asarray([1.0, 2.0])
    for duplicate in (copy.copy(x), copy.deepcopy(x), copy.deepcopy([x])[0]):
        duplicate[0] = 9.0
        assert x.numpy().tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match=r"cannot be pickled.*publish it"):
        pickle.dumps(x)


# B23: what goes in comes out, bit for bit


def signalling_nan() -> "np.ndarray[Any, Any]":
    return np.array([0x7F800001, 0xFFA00001], np.uint32).view(np.float32)


ROUND_TRIPS: dict[str, Callable[[], "np.ndarray[Any, Any]"]] = {
    "C order": lambda: np.arange(24, dtype=np.int16).reshape(2, 3, 4),
    "Fortran order": lambda: np.asfortranarray(np.arange(24.0).reshape(4, 6)),
    "transposed": lambda: np.arange(24.0, dtype=np.float32).reshape(4, 6).T,
    "strided": lambda: np.arange(100, dtype=np.uint8)[::7],
    "reversed": lambda: np.arange(10, dtype=np.int64)[::-1],
    "stride 0": lambda: np.broadcast_to(np.array([1.5, 2.5]), (3, 2)),
    "no dimensions": lambda: np.array(3 + 4j, np.complex64),
    "no elements": lambda: np.zeros((0,), np.uint32),
    "no rows": lambda: np.zeros((2, 0), np.float64),
    "float16": lambda: np.array([1.5, -0.0, 65504, np.inf, 6e-8], np.float16),
    "bool byte 2": lambda: np.array([0, 1, 2, 255], np.uint8).view(np.bool_),
    "signalling NaN": signalling_nan,
    "negative zero": lambda: np.array([-0.0, 0.0]),
    "uint64 max": lambda: np.array([2**64 - 1, 0], np.uint64),
    "int64 min": lambda: np.array([-(2**63), 2**63 - 1], np.int64),
    "complex NaN": lambda: np.array([complex(np.nan, -0.0), complex(-np.inf, 1)], np.complex128),
    "large, Fortran order": lambda: np.asfortranarray(np.arange(60_000.0).reshape(200, 300)),
    "large, transposed": lambda: np.arange(60_000, dtype=np.int64).reshape(200, 300).T,
    "large, reversed": lambda: np.arange(60_000.0)[::-1],
    "large, stride 0": lambda: np.broadcast_to(np.arange(3.0), (20_000, 3)),
    "large, signalling NaN": lambda: np.tile(signalling_nan(), 20_000),
    "large, bool byte 2": lambda: np.full(70_000, 2, np.uint8).view(np.bool_),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_b23_shape_dtype_and_bits_come_back(session: EagerSession, name: str) -> None:
    value = ROUND_TRIPS[name]()
    for array in (session.namespace.asarray(value), _written(session, value)):
        result = array.numpy()
        assert (result.shape, result.dtype, array.shape, array.dtype) == (value.shape, value.dtype) * 2
        assert result.tobytes() == value.tobytes()
        assert not result.flags.writeable
        assert np.array(array, copy=True).tobytes() == value.tobytes()


def _written(session: EagerSession, value: "np.ndarray[Any, Any]") -> Any:
    with session.writer(value.shape, value.dtype) as writer:
        writer.array.view(np.uint8 if value.dtype == np.bool_ else value.dtype)[...] = (
            value.view(np.uint8) if value.dtype == np.bool_ else value
        )
        return writer.commit()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([None, 1]), "object"),
        (np.zeros(2, [("a", "i4"), ("b", "f8")]), "'a'"),
        (np.array(["2026-01-01"], "M8[D]"), "datetime64"),
        (np.array([1], "m8[s]"), "timedelta64"),
        (np.arange(4, dtype=">i4"), "byte order; convert it.*astype"),
        (np.ones(2, ">f8"), "byte order"),
        (np.array(["a"]), "<U1"),
        (np.array([b"a"]), r"\|S1"),
        (np.ones(2, np.longdouble), "longdouble|float128"),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)  # fmt: skip
def test_b23_what_is_not_carried_is_refused_by_name(
    session: EagerSession, value: "np.ndarray[Any, Any]", words: str
) -> None:
    with pytest.raises(eagerd.InvalidTypeError, match=words):
        session.namespace.asarray(value)
    with pytest.raises(eagerd.InvalidTypeError, match=words):
        session.writer(value.shape, value.dtype)


# B6: operations with hidden temporaries, also such that fail half-way


@pytest.mark.parametrize("strategy", [s for s in ResourceCleanupStrategy if s.name != "ON_SESSION_CLOSE"])
def test_b06_hidden_temporaries_are_gone_after_each_of_10_000(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy
) -> None:
    with EagerSession(daemon.address, cleanup=strategy) as session:
        xp = session.namespace
        x = xp.asarray(np.arange(200.0))
        mask = x > 100
        far = xp.asarray([3, 500])
        singular = xp.zeros((3, 3))
        session.synchronize()
        base = session.stats()

        def is_back() -> bool:
            session.safe_point()
            now = session.stats()
            return (now.live_handles, now.live_bytes) == (base.live_handles, base.live_bytes)

        wait_until(is_back, what="the base")
        base = session.stats()
        for n in range(10_000):
            match n % 5:
                case 0:
                    assert x[mask].shape == (99,)
                case 1:
                    with pytest.raises(IndexError, match="500 is out of bounds"):
                        x[far].numpy()
                case 2:
                    with pytest.raises(ValueError, match=r"[Ss]ingular"):
                        xp.linalg.inv(singular).numpy()
                case 3:
                    x[mask] = 7.0
                case _:
                    with pytest.raises(IndexError, match="out of bounds"):
                        (xp.take(xp.sort(x[mask]), far) + 1).numpy()
            if n % 100 == 0 or n > 9_950:
                wait_until(is_back, what=f"the base after {n} operations")
        assert session.stats().reclaim_errors == 0
