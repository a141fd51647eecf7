"""Rules of operations that give their operands another shape, or join them."""

import math
from collections.abc import Sequence

from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.rules.checks import (
    Outputs,
    Parameters,
    array,
    broadcast,
    check_choice,
    check_matrix,
    check_size,
    normalize_axes,
    normalize_axis,
    promote,
    shape_of,
)
from eagerd_protocol.specs import ArraySpec, OperandSpec


def matrix_transpose(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """The last two dimensions swapped."""
    x = check_matrix(operands[0])
    return (ArraySpec((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype),)


def reshape(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The shape that is asked for, -1 for what is left."""
    x, shape = array(operands[0]), parameters["shape"]
    size, known = x.size, math.prod(n for n in shape if n != -1)
    if shape.count(-1) > 1:
        raise InvalidArgumentError(f"shape {shape} has more than one -1")
    if -1 in shape and known and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if -1 in shape or math.prod(shape) != size:
        raise InvalidArgumentError(f"{size} elements of shape {x.shape} do not fit shape {parameters['shape']}")
    return (ArraySpec(check_size(shape), x.dtype),)


def permute_dims(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The dimensions in the order that is asked for."""
    x = array(operands[0])
    axes = normalize_axes(parameters["axes"], len(x.shape))
    if len(axes) != len(x.shape):
        raise InvalidArgumentError(f"axes {axes} are no permutation of the {len(x.shape)} dimensions")
    return (ArraySpec(tuple(x.shape[axis] for axis in axes), x.dtype),)


_MOST_BROADCAST_DIMENSIONS = 32
"""Of numpy's broadcast_to; its elementwise functions broadcast twice as many."""


def _check_broadcast(shape: Sequence[int]) -> None:
    if len(shape) > _MOST_BROADCAST_DIMENSIONS:
        raise InvalidArgumentError(
            f"a shape of {len(shape)} dimensions; at most {_MOST_BROADCAST_DIMENSIONS} can be broadcast to"
        )


def broadcast_to(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The shape that is asked for."""
    x, shape = array(operands[0]), check_size(parameters["shape"])
    _check_broadcast(shape)
    if broadcast(shape_of(x), shape) != shape:
        raise InvalidArgumentError(f"shape {x.shape} cannot be broadcast to {shape}")
    return (ArraySpec(shape, x.dtype),)


def broadcast_arrays(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Each operand in the broadcast shape."""
    shape = broadcast(*map(shape_of, operands)) if operands else ()
    _check_broadcast(shape)
    return tuple(ArraySpec(shape, array(spec).dtype) for spec in operands)


def expand_dims(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """A dimension of one at each axis."""
    x, axes = array(operands[0]), parameters["axis"]
    axes = (axes,) if isinstance(axes, int) else axes
    shape = list(shape_of(x))
    for axis in sorted(normalize_axes(axes, len(shape) + len(axes))):
        shape.insert(axis, 1)
    return (ArraySpec(check_size(shape), x.dtype),)


def squeeze(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape without the axes, which have one element each."""
    x = array(operands[0])
    axes = normalize_axes(parameters["axis"], len(x.shape))
    for axis in axes:
        if x.shape[axis] != 1:
            raise InvalidArgumentError(f"axis {axis} of shape {x.shape} is not 1")
    return (ArraySpec(tuple(n for i, n in enumerate(x.shape) if i not in axes), x.dtype),)


def flip(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape and dtype of the operand."""
    x = array(operands[0])
    normalize_axes(parameters["axis"], len(x.shape))
    return (x,)


def concat(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The axis as long as those of all operands together; the dtype that they promote to."""
    specs, axis = [array(spec) for spec in operands], parameters["axis"]
    if not specs:
        raise InvalidArgumentError("nothing to join; give at least one array")
    dtype = promote(*specs)
    if axis is None:
        return (ArraySpec((sum(spec.size for spec in specs),), dtype),)
    first = shape_of(specs[0])
    axis = normalize_axis(axis, len(first))
    rest = {(*shape_of(s)[:axis], None, *shape_of(s)[axis + 1 :]) for s in specs}
    if len(rest) > 1:
        shapes = ", ".join(str(spec.shape) for spec in specs[:4])
        raise InvalidArgumentError(f"shapes {shapes} differ elsewhere than on axis {axis}")
    joined = sum(shape_of(spec)[axis] for spec in specs)
    return (ArraySpec(check_size((*first[:axis], joined, *first[axis + 1 :])), dtype),)


def stack(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """A new axis as long as the number of operands; the dtype that they promote to."""
    specs = [array(spec) for spec in operands]
    if not specs:
        raise InvalidArgumentError("nothing to stack; give at least one array")
    if len({spec.shape for spec in specs}) > 1:
        raise InvalidArgumentError(f"shapes {', '.join(str(spec.shape) for spec in specs[:4])} differ")
    shape = shape_of(specs[0])
    axis = normalize_axis(parameters["axis"], len(shape) + 1)
    return (ArraySpec(check_size((*shape[:axis], len(specs), *shape[axis:])), promote(*specs)),)


def unstack(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """As many outputs as the axis is long, without that axis."""
    x = array(operands[0])
    shape = shape_of(x)
    axis = normalize_axis(parameters["axis"], len(shape))
    return (ArraySpec((*shape[:axis], *shape[axis + 1 :]), x.dtype),) * shape[axis]


def moveaxis(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The dimensions in another order."""
    x = array(operands[0])
    shape = shape_of(x)
    source = normalize_axes(parameters["source"], len(shape))
    destination = normalize_axes(parameters["destination"], len(shape))
    if len(source) != len(destination):
        raise InvalidArgumentError(f"{len(source)} source axes for {len(destination)} destinations")
    order = [axis for axis in range(len(shape)) if axis not in source]
    for to, axis in sorted(zip(destination, source, strict=True)):
        order.insert(to, axis)
    return (ArraySpec(tuple(shape[axis] for axis in order), x.dtype),)


def roll(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape and dtype of the operand."""
    x = array(operands[0])
    shift, axis = parameters["shift"], parameters["axis"]
    if shift == ():
        raise InvalidArgumentError("roll needs at least one shift")
    if isinstance(shift, tuple) and (not isinstance(axis, tuple) or len(axis) != len(shift)):
        raise InvalidArgumentError(f"a tuple of {len(shift)} shifts needs a tuple of as many axes, not {axis}")
    if axis == ():
        raise InvalidArgumentError("roll needs at least one axis; leave it out to roll all elements as one row")
    for one in axis if isinstance(axis, tuple) else () if axis is None else (axis,):
        normalize_axis(one, len(x.shape))
    return (x,)


def tile(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Each dimension times its repetitions, dimensions of one added in front as needed."""
    x = array(operands[0])
    shape, repetitions = shape_of(x), check_size(parameters["repetitions"])
    length = max(len(shape), len(repetitions))
    shape = (1,) * (length - len(shape)) + shape
    repetitions = (1,) * (length - len(repetitions)) + repetitions
    return (ArraySpec(check_size([n * m for n, m in zip(shape, repetitions, strict=True)]), x.dtype),)


def repeat(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The axis times the repeats, flattened without one; with an array of repeats its length depends on data."""
    x, repeats, axis = array(operands[0]), operands[1], parameters["axis"]
    shape = (x.size,) if axis is None else shape_of(x)
    axis = 0 if axis is None else normalize_axis(axis, len(shape))
    length: int | None = None
    if isinstance(repeats, ArraySpec):
        if repeats.dtype.kind not in "iu":
            raise InvalidTypeError(f"repeats must be integers, not {repeats.dtype}")
        if len(repeats.shape) > 1 or (repeats.shape and repeats.shape[0] not in (1, shape[axis])):
            raise InvalidArgumentError(f"repeats of shape {repeats.shape} do not fit {shape[axis]} elements")
    elif type(repeats) is not int:
        raise InvalidTypeError(f"repeats must be an integer or an array of them, not {type(repeats).__name__}")
    elif repeats < 0:
        raise InvalidArgumentError(f"repeats must not be negative, not {repeats}")
    else:
        length = shape[axis] * repeats
        check_size((*shape[:axis], length, *shape[axis + 1 :]))
    return (ArraySpec((*shape[:axis], length, *shape[axis + 1 :]), x.dtype),)


def meshgrid(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """As many outputs as operands, with a dimension for each; "xy" swaps the first two."""
    specs = [array(spec) for spec in operands]
    check_choice(parameters["indexing"], "indexing", "xy", "ij")
    for spec in specs:
        if len(spec.shape) != 1:
            raise InvalidArgumentError(f"meshgrid takes vectors, not shape {spec.shape}")
    lengths = [spec.size for spec in specs]
    if parameters["indexing"] == "xy" and len(lengths) > 1:
        lengths[:2] = lengths[1], lengths[0]
    shape = check_size(lengths)
    _check_broadcast(shape)
    return tuple(ArraySpec(shape, spec.dtype) for spec in specs)


def diff(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The axis with what is put before and after it, less n elements."""
    x, *others = operands
    axis, n = normalize_axis(parameters["axis"], len(array(x).shape)), parameters["n"]
    if n < 0:
        raise InvalidArgumentError(f"n must not be negative, not {n}")
    (joined,) = concat([x, *(other for other in others if other is not None)], {"axis": axis})
    shape = list(shape_of(joined))
    shape[axis] = max(0, shape[axis] - n)
    return (ArraySpec(tuple(shape), joined.dtype),)
