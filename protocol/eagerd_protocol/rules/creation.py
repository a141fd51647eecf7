"""Rules of operations that make arrays of nothing but parameters."""

import cmath
import math
from collections.abc import Sequence

from eagerd_protocol.dtypes import BOOL, DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INT, DType
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.parameters import scalar_from_wire
from eagerd_protocol.rules.checks import (
    Outputs,
    Parameters,
    array,
    check_matrix,
    check_scalar,
    check_size,
    dtype_or,
    holds,
)
from eagerd_protocol.specs import ArraySpec, OperandSpec, Scalar


def filled(default: DType, _: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The shape and dtype that are asked for."""
    dtype = dtype_or(parameters["dtype"], default)
    return (ArraySpec(check_size(parameters["shape"]), dtype),)


def _scalar_dtype(value: Scalar) -> DType:
    kinds: dict[type, DType] = {bool: BOOL, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
    return kinds[type(value)]


def _check_fill(value: Scalar, dtype: DType) -> None:
    if not holds(dtype, value):
        raise InvalidTypeError(f"a {type(value).__name__} cannot fill an array of {dtype}")
    check_scalar(value, dtype)


def full(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The shape that is asked for; the dtype too, else that of the value."""
    value = scalar_from_wire(parameters["fill_value"])
    outputs = filled(_scalar_dtype(value), operands, parameters)
    _check_fill(value, outputs[0].dtype)
    return outputs


def like(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape of the operand; its dtype, unless another is asked for."""
    x = array(operands[0])
    dtype = dtype_or(parameters["dtype"], x.dtype)
    if "fill_value" in parameters:
        _check_fill(scalar_from_wire(parameters["fill_value"]), dtype)
    return (ArraySpec(x.shape, dtype),)


def arange(_: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """As long as the steps take; integers unless start, stop or step is a float."""
    start, stop, step = (
        scalar_from_wire(parameters[n]) if parameters[n] is not None else None for n in ("start", "stop", "step")
    )
    if stop is None:
        start, stop = 0, start
    if isinstance(start, complex) or isinstance(stop, complex) or isinstance(step, complex):
        raise InvalidTypeError("arange is not defined for complex numbers")
    assert start is not None
    assert stop is not None
    assert step is not None
    if step == 0:
        raise InvalidArgumentError("arange with a step of 0 never ends")
    try:
        steps = -((start - stop) // step) if isinstance(step, int) else math.ceil((stop - start) / step)
        length = max(0, int(steps))
        if length == 0 and stop != start and (stop > start) == (step > 0):
            length = 1  # a step so long, or infinite, that the division gave 0
    except (ValueError, OverflowError):
        raise InvalidArgumentError(f"arange from {start} to {stop} by {step} has no finite length") from None
    is_integer = all(isinstance(v, int) for v in (start, stop, step))
    dtype = dtype_or(parameters["dtype"], DEFAULT_INT if is_integer else DEFAULT_FLOAT)
    if dtype == BOOL:
        raise InvalidTypeError("arange is not defined for bool")
    if is_integer and length:
        _check_fill(start, dtype)
        _check_fill(start + (length - 1) * step, dtype)
    return (ArraySpec(check_size((length,)), dtype),)


def linspace(_: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """num elements; floating-point."""
    start, stop = scalar_from_wire(parameters["start"]), scalar_from_wire(parameters["stop"])
    default = DEFAULT_COMPLEX if isinstance(start, complex) or isinstance(stop, complex) else DEFAULT_FLOAT
    dtype = dtype_or(parameters["dtype"], default)
    if default == DEFAULT_COMPLEX and dtype.kind != "c":
        raise InvalidTypeError(f"complex limits do not fit {dtype}")
    for limit in (start, stop):
        if dtype.kind in "iu" and not isinstance(limit, complex):
            if not math.isfinite(limit):
                raise InvalidArgumentError(f"{limit} does not fit {dtype}")
            check_scalar(math.trunc(limit), dtype)
    if cmath.isfinite(start) and cmath.isfinite(stop) and not cmath.isfinite(complex(stop) - complex(start)):
        raise InvalidArgumentError(f"from {start} to {stop} is more than a float can hold")
    return (ArraySpec(check_size((parameters["num"],)), dtype),)


def eye(_: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """n_rows by n_cols."""
    rows, columns = parameters["n_rows"], parameters["n_cols"]
    dtype = dtype_or(parameters["dtype"], DEFAULT_FLOAT)
    return (ArraySpec(check_size((rows, rows if columns is None else columns)), dtype),)


def triangle(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Shape and dtype of the operand, a matrix or a stack of them."""
    return (check_matrix(operands[0]),)
