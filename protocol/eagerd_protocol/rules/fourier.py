"""Rules of Fourier transforms. The dtypes are numpy's: single precision stays single."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from eagerd_protocol.dtypes import DEFAULT_FLOAT
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.rules.checks import (
    Outputs,
    Parameters,
    Rule,
    array,
    check_choice,
    check_size,
    dtype_or,
    normalize_axes,
    normalize_axis,
    probe,
    shape_of,
)
from eagerd_protocol.specs import ArraySpec, OperandSpec


def _same(n: int) -> int:
    return n


def _half(n: int) -> int:
    return n // 2 + 1


def _double(n: int) -> int:
    return 2 * (n - 1)


def along_axis(function: Callable[..., Any]) -> Rule:
    """The rule of a transform of numpy's along one axis."""
    return partial(_along_axis, function)


def along_axes(function: Callable[..., Any]) -> Rule:
    """The rule of a transform of numpy's along several axes."""
    return partial(_along_axes, function)


def _along_axis(function: Callable[..., Any], operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The axis becomes n long (n // 2 + 1 for rfft and ihfft; by default 2 (n - 1) for irfft and hfft)."""
    x = array(operands[0])
    axis = normalize_axis(parameters["axis"], len(x.shape))
    n = parameters["n"]
    return _transformed(function, x, (axis,), None if n is None else (n,), parameters["norm"])


def _along_axes(function: Callable[..., Any], operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The axes become s long; the last is halved or doubled where the transform is of real values."""
    x = array(operands[0])
    sizes, axes = parameters["s"], parameters["axes"]
    sizes = (sizes,) if isinstance(sizes, int) else sizes
    if sizes is not None and axes is None:
        raise InvalidArgumentError(f"s={sizes} needs axes: say which {len(sizes)} axes are meant")
    normal = normalize_axes(axes, len(x.shape))
    if not normal:
        raise InvalidArgumentError("a transform needs at least one axis")
    if sizes is not None and len(sizes) != len(normal):
        raise InvalidArgumentError(f"{len(sizes)} sizes for {len(normal)} axes")
    return _transformed(function, x, normal, sizes, parameters["norm"])


def _transformed(
    function: Callable[..., Any], x: ArraySpec, axes: Sequence[int], sizes: Sequence[int] | None, norm: str
) -> Outputs:
    check_choice(norm, "norm", "backward", "ortho", "forward")
    shape = list(shape_of(x))
    name = function.__name__
    to_real = name in ("irfft", "irfftn", "hfft")
    of_real = name in ("rfft", "rfftn", "ihfft")
    if of_real and x.dtype.kind == "c":
        raise InvalidTypeError(f"defined for real values, not for {x.dtype}")
    if to_real and x.dtype.name == "float16":  # numpy 2.4 computes it wrongly
        raise InvalidTypeError("not defined for float16; convert it: astype(x, xp.float32)")
    for position, axis in enumerate(axes):
        is_last = position == len(axes) - 1
        n = shape[axis] if sizes is None or sizes[position] == -1 else sizes[position]
        if sizes is None and is_last and to_real:
            n = _double(n)
        if n < 1:
            raise InvalidArgumentError(f"axis {axis} would have {n} points (shape {x.shape}); at least 1 is needed")
        shape[axis] = _half(n) if is_last and of_real else n
    (dtype,) = probe(_of_one_point if not to_real else _of_two_points, function, x.dtype)
    return (ArraySpec(check_size(shape), dtype),)


def _of_one_point(function: Callable[..., Any], x: Any) -> Any:
    return function(x)


def _of_two_points(function: Callable[..., Any], x: Any) -> Any:
    return function(np.ones((2, 2), x.dtype))


def frequencies(length: Callable[[int], int], _: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """n sample frequencies, n // 2 + 1 for rfftfreq."""
    n, dtype = parameters["n"], dtype_or(parameters["dtype"], DEFAULT_FLOAT)
    if n < 1:
        raise InvalidArgumentError(f"n must be at least 1, not {n}")
    if dtype.kind != "f":
        raise InvalidTypeError(f"frequencies are real floating-point numbers, not {dtype}")
    spacing = parameters["d"]
    if isinstance(spacing, tuple):
        raise InvalidTypeError("d must be real")
    if spacing == 0 or math.isnan(spacing):
        raise InvalidArgumentError(f"the sample spacing must not be {spacing}")
    return (ArraySpec(check_size((length(n),)), dtype),)


fftfreq: Rule = partial(frequencies, _same)
rfftfreq: Rule = partial(frequencies, _half)


def shift(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape and dtype of the operand."""
    x = array(operands[0])
    if not normalize_axes(parameters["axes"], len(x.shape)):
        raise InvalidArgumentError("a shift needs at least one axis")
    return (x,)
