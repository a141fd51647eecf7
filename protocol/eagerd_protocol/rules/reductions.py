"""Rules of reductions and of what runs along an axis."""

from collections.abc import Sequence

import numpy as np

from eagerd_protocol.dtypes import BOOL, DEFAULT_FLOAT, DEFAULT_INT, DType
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.rules.checks import (
    Outputs,
    Parameters,
    Shape,
    array,
    dtype_or,
    normalize_axes,
    normalize_axis,
    real_dtype,
    shape_of,
)
from eagerd_protocol.specs import ArraySpec, OperandSpec


def reduced(shape: Shape, axes: int | Sequence[int] | None, keepdims: bool) -> Shape:
    """The shape that is left when some axes, or all, are reduced."""
    gone = normalize_axes(axes, len(shape))
    if keepdims:
        return tuple(1 if i in gone else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def accumulated(dtype: DType) -> DType:
    """The dtype of sums and products: small integers (and bool) widen to the default integer."""
    if dtype.kind in "ib":
        return max(dtype, DEFAULT_INT, key=lambda d: d.itemsize)
    return np.dtype("uint64") if dtype.kind == "u" else dtype


def accumulating(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape without the axes; small integers widen to the default integer."""
    x = array(operands[0])
    dtype = dtype_or(parameters["dtype"], accumulated(x.dtype))
    return (ArraySpec(reduced(shape_of(x), parameters["axis"], parameters["keepdims"]), dtype),)


def averaging(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape without the axes; integers give the default float, complex numbers a real variance."""
    x = array(operands[0])
    dtype = DEFAULT_FLOAT if x.dtype.kind in "iub" else x.dtype
    correction = parameters.get("correction")
    if correction is not None:
        if isinstance(correction, tuple):
            raise InvalidTypeError("correction must be real")
        dtype = real_dtype(dtype)
    return (ArraySpec(reduced(shape_of(x), parameters["axis"], parameters["keepdims"]), dtype),)


def selecting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """max and min: undefined over nothing."""
    x = array(operands[0])
    shape = shape_of(x)
    for axis in normalize_axes(parameters["axis"], len(shape)):
        if shape[axis] == 0:
            raise InvalidArgumentError(f"axis {axis} has no elements to choose from (shape {shape})")
    if x.dtype.kind == "c":
        raise InvalidTypeError(f"{x.dtype} has no order")
    return (ArraySpec(reduced(shape, parameters["axis"], parameters["keepdims"]), x.dtype),)


def truth(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape without the axes; bool."""
    x = array(operands[0])
    return (ArraySpec(reduced(shape_of(x), parameters["axis"], parameters["keepdims"]), BOOL),)


def position(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape without the axis; the default integer. Undefined over nothing."""
    (spec,) = selecting(operands, parameters)
    return (ArraySpec(spec.shape, DEFAULT_INT),)


def counting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape without the axes; the default integer."""
    (spec,) = truth(operands, parameters)
    return (ArraySpec(spec.shape, DEFAULT_INT),)


def cumulative(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape of the operand, one longer with an initial element; small integers widen."""
    x, axis = array(operands[0]), parameters["axis"]
    shape = list(shape_of(x))
    if axis is None:
        if len(shape) != 1:
            raise InvalidArgumentError(f"axis must be given for an array of {len(shape)} dimensions")
        axis = 0
    axis = normalize_axis(axis, len(shape))
    shape[axis] += bool(parameters["include_initial"])
    dtype = dtype_or(parameters["dtype"], accumulated(x.dtype))
    return (ArraySpec(tuple(shape), dtype),)


def sorting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape and dtype of the operand, which must have an order."""
    x = array(operands[0])
    if x.dtype.kind == "c":
        raise InvalidTypeError(f"{x.dtype} has no order")
    normalize_axis(parameters["axis"], len(x.shape))
    return (x,)


def argsorting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape of the operand; the default integer."""
    (spec,) = sorting(operands, parameters)
    return (ArraySpec(spec.shape, DEFAULT_INT),)
