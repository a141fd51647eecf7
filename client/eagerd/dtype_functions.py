"""Functions of the standard about dtypes and shapes: answered here, with no word to the daemon.

dtypes are numpy's objects. What numpy answers as the standard wants is asked of numpy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerd.array import Array
from eagerd_protocol.dtypes import DType, as_dtype
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.rules.checks import broadcast


@dataclass(frozen=True, slots=True)
class finfo_object:  # noqa: N801 - as the standard names it
    """Limits of a floating-point dtype, or of the parts of a complex one; all but `bits` and `dtype` are floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class iinfo_object:  # noqa: N801 - as the standard names it
    """Limits of an integer dtype, as Python integers."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: object) -> DType:
    return value.dtype if isinstance(value, Array | np.ndarray | np.generic) else as_dtype(value)


def finfo(type: object, /) -> finfo_object:  # noqa: A002 - the standard's name
    """Limits of a floating-point dtype, given by itself or by an array of it."""
    dtype = _dtype_of(type)
    if dtype.kind not in "fc":
        raise InvalidTypeError(f"finfo is for floating-point dtypes, not for {dtype}; see iinfo")
    found = np.finfo(dtype)
    eps, most, least, normal = map(float, (found.eps, found.max, found.min, found.smallest_normal))
    return finfo_object(int(found.bits), eps, most, least, normal, found.dtype)


def iinfo(type: object, /) -> iinfo_object:  # noqa: A002 - the standard's name
    """Limits of an integer dtype, given by itself or by an array of it."""
    dtype = _dtype_of(type)
    if dtype.kind not in "iu":
        raise InvalidTypeError(f"iinfo is for integer dtypes, not for {dtype}; see finfo")
    found = np.iinfo(dtype)
    return iinfo_object(int(found.bits), int(found.max), int(found.min), dtype)


def isdtype(dtype: object, kind: object) -> bool:
    """Tell whether a dtype is of a kind: a dtype, one of the standard's words for several, or a tuple of those."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    try:
        return any(bool(np.isdtype(as_dtype(dtype), one)) for one in kinds)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(str(error)) from None


def can_cast(from_: object, to: object, /) -> bool:
    """Tell whether a dtype, or an array's, casts to another without loss, by the rules of type promotion."""
    return bool(np.can_cast(_dtype_of(from_), _dtype_of(to)))


def result_type(*arrays_and_dtypes: object) -> DType:
    """Return the dtype that arrays, dtypes and (weak) Python scalars promote to."""
    if not arrays_and_dtypes:
        raise InvalidArgumentError("result_type needs at least one array or dtype")
    parts: list[Any] = [
        one if isinstance(one, bool | int | float | complex) and not isinstance(one, np.generic) else _dtype_of(one)
        for one in arrays_and_dtypes
    ]
    if not any(isinstance(part, np.dtype) for part in parts):
        raise InvalidTypeError("result_type needs at least one array or dtype among the scalars")
    try:
        return np.result_type(*parts)
    except (TypeError, OverflowError) as error:
        raise InvalidTypeError(str(error)) from None


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that several shapes broadcast to."""
    for shape in shapes:
        if not isinstance(shape, tuple):
            raise InvalidTypeError(f"a shape is a tuple, not {type(shape).__name__}")
        if None in shape:
            raise InvalidArgumentError(f"the shape {shape} is not known yet; ask its array for it")
    return broadcast(*shapes)
