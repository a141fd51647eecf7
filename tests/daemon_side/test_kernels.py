"""Kernels of our own: special values of the standard that numpy misses, and orders that hold."""

import warnings
from typing import Any

import numpy as np
import pytest

from eagerd_daemon.kernels import run_kernel

INF, NAN = np.inf, np.nan


def run(name: str, *operands: Any, **parameters: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        (result,) = run_kernel(name, operands, parameters)
    return result


def same(value: complex, expected: complex) -> bool:
    """Equal, signs of zeros included, and NaN where NaN is expected."""
    parts = [(complex(value).real, complex(expected).real), (complex(value).imag, complex(expected).imag)]
    return all((np.isnan(a) and np.isnan(b)) or (a == b and np.signbit(a) == np.signbit(b)) for a, b in parts)


QUOTIENTS = [
    (INF, 2.0, INF),
    (INF, -2.0, -INF),
    (-INF, 2.0, -INF),
    (-INF, -2.0, INF),
    (INF, 0.0, INF),
    (INF, -0.0, -INF),
    (2.0, INF, 0.0),
    (2.0, -INF, -0.0),
    (-2.0, INF, -0.0),
    (-2.0, -INF, 0.0),
    (0.0, -INF, -0.0),
    (INF, INF, NAN),
    (INF, NAN, NAN),
    (7.0, 2.0, 3.0),
    (-7.0, 2.0, -4.0),
    (7.0, 0.0, INF),
]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floor_divide_of_infinities_is_the_floor_of_the_quotient(dtype: Any) -> None:
    x1, x2, expected = (np.array(column, dtype) for column in zip(*QUOTIENTS, strict=True))
    result = run("floor_divide", x1, x2)
    assert result.dtype == dtype
    assert [same(a, b) for a, b in zip(result, expected, strict=True)] == [True] * len(QUOTIENTS)
    for a, b, value in QUOTIENTS:
        assert same(run("floor_divide", np.array(a, dtype), b), value)
        assert same(run("floor_divide", a, np.array(b, dtype)), value)
    np.testing.assert_array_equal(run("floor_divide", x1[:, None], x2)[0], run("floor_divide", INF, x2))
    assert run("floor_divide", np.array([7, -7]), 2).tolist() == [3, -4]


EXPM1 = [
    (complex(INF, 0), complex(INF, 0)),
    (complex(-INF, NAN), complex(-1, 0)),
    (complex(NAN, 0), complex(NAN, 0)),
    (complex(0, INF), complex(NAN, NAN)),
    (complex(2, NAN), complex(NAN, NAN)),
    (complex(0, 0), complex(0, 0)),
    (complex(-0.0, 0), complex(0, 0)),
    (complex(0, -0.0), complex(0, -0.0)),
]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_expm1_has_the_standards_special_values(dtype: Any) -> None:
    for value, expected in EXPM1:
        assert same(run("expm1", np.array(value, dtype)), expected), value
    result = run("expm1", np.array([value for value, _ in EXPM1] + [1e-9 + 1e-9j, 1 + 2j], dtype))
    assert result.dtype == dtype
    assert same(result[0], EXPM1[0][1])
    np.testing.assert_allclose(result[-2], 1e-9 + 1e-9j, rtol=1e-6)
    np.testing.assert_allclose(result[-1], np.exp(1 + 2j) - 1, rtol=1e-6)
    for imaginary in (INF, NAN):
        infinite = complex(run("expm1", np.array(complex(INF, imaginary), dtype)))
        assert np.isinf(infinite.real)
        assert np.isnan(infinite.imag)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_tanh_far_out_is_one_with_a_zero_of_the_imaginary_sign(dtype: Any) -> None:
    for real in (INF, -INF):
        for imaginary in (1.0, 2.0, 3.0, 1e9, -1.0, -2.0, 0.0, -0.0):
            expected = complex(np.copysign(1, real), np.copysign(0, imaginary))
            assert same(run("tanh", np.array(complex(real, imaginary), dtype)), expected), (real, imaginary)
    np.testing.assert_allclose(run("tanh", np.array([0.5 + 0.25j], dtype)), np.tanh(0.5 + 0.25j), rtol=1e-6)


def test_descending_orders_keep_equal_values_in_their_order() -> None:
    x = np.array([[2, 1, 2, 3, 1], [5, 5, 5, 5, 5]])
    order = run("argsort", x, axis=-1, descending=True, stable=True)
    assert order.tolist() == [[3, 0, 2, 1, 4], [0, 1, 2, 3, 4]]
    assert run("sort", x, axis=0, descending=True, stable=True).tolist() == [[5, 5, 5, 5, 5], [2, 1, 2, 3, 1]]
    assert run("argsort", x, axis=1, descending=False, stable=True).tolist() == [[1, 4, 0, 2, 3], [0, 1, 2, 3, 4]]


def test_eigenvalues_are_complex_whatever_they_are() -> None:
    values, vectors = run_kernel("linalg.eig", (np.eye(2, dtype=np.float32),), {})
    assert (values.dtype, vectors.dtype) == (np.complex64, np.complex64)
    (only_values,) = run_kernel("linalg.eigvals", (np.eye(2),), {})
    assert only_values.dtype == np.complex128


def test_arange_may_stop_beyond_its_dtype() -> None:
    assert run("arange", start=0, stop=300, step=100, dtype="uint8").tolist() == [0, 100, 200]
    assert run("arange", start=0, stop=-3, step=1, dtype="uint8").tolist() == []
    assert run("arange", start=5, stop=None, step=2, dtype="int8").dtype == np.int8
