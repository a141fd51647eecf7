"""Rules of operations that pick, search or count elements."""

from collections.abc import Sequence

from eagerd_protocol.dtypes import BOOL, DEFAULT_INT
from eagerd_protocol.errors import InvalidArgumentError, InvalidIndexError, InvalidTypeError
from eagerd_protocol.rules.checks import (
    Outputs,
    Parameters,
    array,
    broadcast,
    check_choice,
    normalize_axis,
    promote,
    shape_of,
)
from eagerd_protocol.specs import ArraySpec, OperandSpec


def take(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The indices' shape in place of the axis."""
    x, indices, axis = array(operands[0]), array(operands[1]), parameters["axis"]
    if indices.dtype.kind not in "iu":
        raise InvalidTypeError(f"indices must be integers, not {indices.dtype}")
    if axis is None:
        if len(x.shape) != 1:
            raise InvalidArgumentError(f"axis must be given for an array of {len(x.shape)} dimensions")
        axis = 0
    axis = normalize_axis(axis, len(x.shape))
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    if shape_of(x)[axis] == 0 and 0 not in shape:
        raise InvalidIndexError(f"axis {axis} of shape {x.shape} has nothing to take")
    return (ArraySpec(shape, x.dtype),)


def nonzero(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """One vector of positions for each dimension; their length depends on data."""
    x = array(operands[0])
    if not x.shape:
        raise InvalidArgumentError("nonzero needs at least one dimension")
    return (ArraySpec((None,), DEFAULT_INT),) * len(x.shape)


def unique(names: Sequence[str], operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Vectors whose length depends on data; the inverse has the shape of the operand."""
    x = array(operands[0])
    specs = {
        "values": ArraySpec((None,), x.dtype),
        "indices": ArraySpec((None,), DEFAULT_INT),
        "inverse_indices": ArraySpec(x.shape, DEFAULT_INT),
        "counts": ArraySpec((None,), DEFAULT_INT),
    }
    return tuple(specs[name] for name in names)


def take_along_axis(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The indices' length along the axis, the broadcast of both elsewhere."""
    x, indices = array(operands[0]), array(operands[1])
    if indices.dtype.kind not in "iu":
        raise InvalidTypeError(f"indices must be integers, not {indices.dtype}")
    a, b = shape_of(x), shape_of(indices)
    if len(a) != len(b):
        raise InvalidArgumentError(f"indices of {len(b)} dimensions for an array of {len(a)}")
    axis = normalize_axis(parameters["axis"], len(a))
    rest = broadcast((*a[:axis], 1, *a[axis + 1 :]), (*b[:axis], 1, *b[axis + 1 :]))
    shape = (*rest[:axis], b[axis], *rest[axis + 1 :])
    if a[axis] == 0 and 0 not in shape:
        raise InvalidIndexError(f"axis {axis} of shape {a} has nothing to take")
    return (ArraySpec(shape, x.dtype),)


def searchsorted(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """One position for each element of the second operand."""
    x1, x2, sorter = operands
    check_choice(parameters["side"], "side", "left", "right")
    if len(array(x1).shape) != 1:
        raise InvalidArgumentError(f"x1 must be a vector, not of shape {array(x1).shape}")
    if promote(array(x1), x2).kind == "c":
        raise InvalidTypeError("complex numbers have no order")
    if sorter is not None:
        if array(sorter).dtype.kind not in "iu":
            raise InvalidTypeError(f"sorter must hold integers, not {array(sorter).dtype}")
        if array(sorter).shape != array(x1).shape:
            raise InvalidArgumentError(f"sorter has shape {array(sorter).shape}, and x1 {array(x1).shape}")
    return (ArraySpec(shape_of(x2), DEFAULT_INT),)


def isin(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """One truth value for each element of the first operand."""
    x1, x2 = operands
    if not isinstance(x1, ArraySpec) and not isinstance(x2, ArraySpec):
        raise InvalidTypeError("x1 or x2 must be an array")
    promote(x1, x2)
    return (ArraySpec(shape_of(x1), BOOL),)
