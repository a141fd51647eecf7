"""Elementwise functions whose special values the standard gives and numpy misses: infinities and NaN.

Each computes as numpy does, then puts right the few elements that are special, if there are any.
"""

from typing import Any, TypeAlias

import numpy as np

AnyArray: TypeAlias = np.ndarray[Any, Any]


def floor_divide(x1: Any, x2: Any) -> AnyArray:
    """The floor of the quotient, also where one side is infinite; numpy pairs it with the remainder instead."""
    result = np.asarray(np.floor_divide(x1, x2))
    if result.dtype.kind == "f":
        special = np.isinf(x1) | np.isinf(x2)
        if special.any():
            np.copyto(result, np.floor(np.divide(x1, x2)), where=special)
    return result


def expm1(x: AnyArray) -> AnyArray:
    """``exp(x) - 1``; complex infinities and NaN are those of exp, and of either zero comes +0."""
    result = np.asarray(np.expm1(x))
    if result.dtype.kind == "c":
        special = ~np.isfinite(x)
        if special.any():
            values = np.exp(x[special])
            values.real -= 1
            result[special] = values
        result.real[x == 0] = 0
    return result


def tanh(x: AnyArray) -> AnyArray:
    """The hyperbolic tangent; far out on the real axis it is ±1, with a zero of the imaginary part's sign."""
    result = np.asarray(np.tanh(x))
    if result.dtype.kind == "c":
        special = np.isinf(x.real) & np.isfinite(x.imag)
        if special.any():
            result.real[special] = np.copysign(1, x.real[special])
            result.imag[special] = np.copysign(0, x.imag[special])
    return result
