"""What rules are made of: checks of operands, axes and sizes, broadcasting, promotion."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np

from eagerd_protocol.dtypes import DType, dtype_from_name
from eagerd_protocol.errors import InvalidArgumentError, InvalidAxisError, InvalidTypeError
from eagerd_protocol.limits import MAX_DIMENSIONS
from eagerd_protocol.specs import ArraySpec, OperandSpec, Scalar

Parameters: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = tuple[ArraySpec, ...]
Rule: TypeAlias = Callable[[Sequence[OperandSpec], Parameters], Outputs]
Shape: TypeAlias = tuple[int, ...]


def shape_of(spec: OperandSpec) -> Shape:
    """The shape of an operand; a scalar has none. All dimensions are known when a rule is asked."""
    return spec.shape if isinstance(spec, ArraySpec) else ()  # type: ignore[return-value]


def array(spec: OperandSpec) -> ArraySpec:
    """The operand, which must be an array."""
    if not isinstance(spec, ArraySpec):
        raise InvalidTypeError(f"expected an array, got {type(spec).__name__}")
    return spec


def check_size(shape: Sequence[int]) -> Shape:
    """Return the shape of a result, refused where it has more bytes than any machine."""
    if any(n < 0 for n in shape):
        raise InvalidArgumentError(f"negative dimensions in shape {tuple(shape)}")
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidArgumentError(f"a shape of {len(shape)} dimensions; at most {MAX_DIMENSIONS} are possible")
    if math.prod(n for n in shape if n) >= 2**59:
        raise InvalidArgumentError(f"the shape {tuple(shape)} has too many elements for any memory")
    return tuple(shape)


def normalize_axis(axis: int, dimensions: int) -> int:
    """Return the axis counted from the front."""
    if not -dimensions <= axis < dimensions:
        raise InvalidAxisError(f"axis {axis} is out of range for an array of {dimensions} dimensions")
    return axis % dimensions


def normalize_axes(axes: int | Sequence[int] | None, dimensions: int) -> Shape:
    """Return several axes, all of them for None, counted from the front."""
    if axes is None:
        return tuple(range(dimensions))
    normal = tuple(normalize_axis(axis, dimensions) for axis in ([axes] if isinstance(axes, int) else axes))
    if len(set(normal)) != len(normal):
        raise InvalidArgumentError(f"axes {axes} name one axis twice")
    return normal


def broadcast(*shapes: Shape) -> Shape:
    """The shape that all broadcast to. Not numpy's: that fails on shapes which no memory holds, and is slower."""
    if len(set(shapes)) == 1:
        return shapes[0]
    result: list[int] = []
    for sizes in zip_longest(*map(reversed, shapes), fillvalue=1):
        size = 1
        for n in sizes:
            if n not in (1, size) and size != 1:
                raise InvalidArgumentError(f"shapes {', '.join(map(str, shapes))} cannot be broadcast together")
            size = size if n == 1 else n
        result.append(size)
    return check_size(result[::-1])


def promote(*operands: OperandSpec | DType) -> DType:
    """The dtype that arrays, dtypes and (weak) Python scalars promote to."""
    parts = [spec.dtype if isinstance(spec, ArraySpec) else spec for spec in operands]
    try:
        return np.result_type(*parts)
    except TypeError as error:
        raise InvalidTypeError(str(error)) from None


def holds(dtype: DType, value: Scalar) -> bool:
    """Tell whether an array of `dtype` takes scalars of this type: whether such a one, being weak, leaves the kind."""
    return promote(dtype, value).kind == dtype.kind


def check_scalar(value: Scalar, dtype: DType) -> None:
    """Refuse an integer that its array's dtype cannot hold; numpy would overflow."""
    if type(value) is int and dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise InvalidArgumentError(f"{value} is out of range for {dtype}, which holds {info.min} to {info.max}")


def dtype_or(name: str | None, default: DType) -> DType:
    """The dtype that a parameter names, else the default."""
    return default if name is None else dtype_from_name(name)


def real_dtype(dtype: DType) -> DType:
    """The dtype of the parts of a complex number; any other is its own."""
    return np.dtype(f"float{dtype.itemsize * 4}") if dtype.kind == "c" else dtype


def check_matrix(spec: OperandSpec) -> ArraySpec:
    """The operand, which must be a matrix or a stack of them."""
    x = array(spec)
    if len(x.shape) < 2:
        raise InvalidArgumentError(f"a matrix has at least two dimensions, not {len(x.shape)}")
    return x


def check_choice(value: str, what: str, *choices: str) -> None:
    """Refuse a word that is none of the choices."""
    if value not in choices:
        raise InvalidArgumentError(f"{what} is one of {', '.join(map(repr, choices))}, not {value!r}")


@lru_cache(maxsize=1024)
def probe(function: Callable[..., Any], *arguments: Any) -> tuple[DType, ...]:
    """The dtypes that numpy's `function` gives, found by calling it on an identity matrix for each dtype given."""
    made = [np.eye(1, dtype=a) if isinstance(a, np.dtype) else a for a in arguments]
    try:
        results = function(*made)
    except (TypeError, ValueError) as error:  # a dtype that it does not know, or a parameter
        raise InvalidTypeError(str(error)) from None
    return tuple(r.dtype for r in results) if isinstance(results, tuple) else (results.dtype,)
