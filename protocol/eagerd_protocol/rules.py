"""Rules: from the operands' shapes and dtypes and the parameters to those of the outputs.

A rule raises at once what the operation would raise; it never sees values. Where numpy itself can tell
(`ufunc.resolve_dtypes`, `np.result_type`, `np.broadcast_shapes`), it is asked, so that there is one truth.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from eagerd_protocol.dtypes import (
    BOOL,
    DEFAULT_COMPLEX,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    DType,
    dtype_from_name,
)
from eagerd_protocol.errors import (
    InvalidArgumentError,
    InvalidIndexError,
    InvalidTypeError,
)
from eagerd_protocol.limits import MAX_DIMENSIONS
from eagerd_protocol.parameters import key_from_wire, scalar_from_wire
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
        raise InvalidIndexError(f"axis {axis} is out of range for an array of {dimensions} dimensions")
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
    try:
        return check_size(np.broadcast_shapes(*shapes))
    except ValueError:
        listed = ", ".join(map(str, shapes))
        raise InvalidArgumentError(f"shapes {listed} cannot be broadcast together") from None


def promote(*operands: OperandSpec | DType) -> DType:
    """The dtype that arrays, dtypes and (weak) Python scalars promote to."""
    parts = [spec.dtype if isinstance(spec, ArraySpec) else spec for spec in operands]
    try:
        return np.result_type(*parts)
    except TypeError as error:
        raise InvalidTypeError(str(error)) from None


def check_scalar(value: Scalar, dtype: DType) -> None:
    """Refuse an integer that its array's dtype cannot hold; numpy would overflow."""
    if type(value) is int and dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise InvalidArgumentError(f"{value} is out of range for {dtype}, which holds {info.min} to {info.max}")


# Elementwise


def ufunc(loop: np.ufunc, operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """One output of the broadcast shape; dtype as the ufunc itself resolves it, Python scalars weak."""
    if not any(isinstance(spec, ArraySpec) for spec in operands):
        raise InvalidTypeError("at least one operand must be an array")
    kinds: list[DType | type] = [
        spec.dtype if isinstance(spec, ArraySpec) else BOOL if isinstance(spec, bool) else type(spec)
        for spec in operands
    ]
    try:
        resolved = loop.resolve_dtypes((*kinds, *[None] * loop.nout))
    except TypeError:
        given = ", ".join(kind.__name__ if isinstance(kind, type) else kind.name for kind in kinds)
        raise InvalidTypeError(f"not defined for {given}") from None
    shape = broadcast(*map(shape_of, operands))
    return tuple(ArraySpec(shape, dtype) for dtype in resolved[loop.nin :])


def numeric(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Shape and dtype of the operand, which may hold any numbers."""
    x = array(operands[0])
    if x.dtype == BOOL:
        raise InvalidTypeError("not defined for bool")
    return (x,)


def real_part(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    x = array(operands[0])
    kinds = {"complex64": "float32", "complex128": "float64"}
    return (ArraySpec(x.shape, np.dtype(kinds.get(x.dtype.name, x.dtype))),)


def clip(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    x, *bounds = operands
    for bound in bounds:
        if isinstance(bound, ArraySpec) and promote(x, bound) != array(x).dtype:
            raise InvalidTypeError(f"bounds of {bound.dtype} do not fit an array of {array(x).dtype}")
    return (ArraySpec(broadcast(*map(shape_of, operands)), array(x).dtype),)


def where(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    condition, x1, x2 = operands
    if array(condition).dtype != BOOL:
        raise InvalidTypeError(f"the condition must be bool, not {array(condition).dtype}")
    if not isinstance(x1, ArraySpec) and not isinstance(x2, ArraySpec):
        raise InvalidTypeError("x1 or x2 must be an array")
    return (ArraySpec(broadcast(*map(shape_of, operands)), promote(x1, x2)),)


def astype(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x, to = array(operands[0]), dtype_from_name(parameters["dtype"])
    if x.dtype.kind == "c" and to.kind not in "cb":
        raise InvalidTypeError(f"{x.dtype} to {to} would drop the imaginary part; take real() first")
    return (ArraySpec(x.shape, to),)


def extension_float(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Defined for real floats, of which it keeps the dtype."""
    x = array(operands[0])
    if x.dtype.name not in ("float32", "float64"):
        raise InvalidTypeError(f"defined for float32 and float64, not for {x.dtype}")
    return (x,)


# Reductions and what runs along an axis


def _reduced(shape: Shape, axes: int | Sequence[int] | None, keepdims: bool) -> Shape:
    gone = normalize_axes(axes, len(shape))
    if keepdims:
        return tuple(1 if i in gone else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def _accumulated(dtype: DType) -> DType:
    """The dtype of sums and products: small integers (and bool) widen to the default integer."""
    if dtype.kind in "ib":
        return max(dtype, DEFAULT_INT, key=lambda d: d.itemsize)
    return np.dtype("uint64") if dtype.kind == "u" else dtype


def accumulating(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    dtype = dtype_from_name(parameters["dtype"]) if parameters["dtype"] else _accumulated(x.dtype)
    return (ArraySpec(_reduced(shape_of(x), parameters["axis"], parameters["keepdims"]), dtype),)


def averaging(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    dtype = DEFAULT_FLOAT if x.dtype.kind in "iub" else x.dtype
    if parameters.get("correction") is not None:
        dtype = real_part([ArraySpec((), dtype)], {})[0].dtype
    return (ArraySpec(_reduced(shape_of(x), parameters["axis"], parameters["keepdims"]), dtype),)


def selecting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """max and min: undefined over nothing."""
    x = array(operands[0])
    shape = shape_of(x)
    for axis in normalize_axes(parameters["axis"], len(shape)):
        if shape[axis] == 0:
            raise InvalidArgumentError(f"axis {axis} has no elements to choose from (shape {shape})")
    if x.dtype.kind == "c":
        raise InvalidTypeError(f"{x.dtype} has no order")
    return (ArraySpec(_reduced(shape, parameters["axis"], parameters["keepdims"]), x.dtype),)


def truth(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    return (ArraySpec(_reduced(shape_of(x), parameters["axis"], parameters["keepdims"]), BOOL),)


def position(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    (spec,) = selecting(operands, parameters)
    return (ArraySpec(spec.shape, DEFAULT_INT),)


def counting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    (spec,) = truth(operands, parameters)
    return (ArraySpec(spec.shape, DEFAULT_INT),)


def cumulative(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x, axis = array(operands[0]), parameters["axis"]
    shape = list(shape_of(x))
    if axis is None:
        if len(shape) != 1:
            raise InvalidArgumentError(f"axis must be given for an array of {len(shape)} dimensions")
        axis = 0
    axis = normalize_axis(axis, len(shape))
    shape[axis] += bool(parameters["include_initial"])
    dtype = dtype_from_name(parameters["dtype"]) if parameters["dtype"] else _accumulated(x.dtype)
    return (ArraySpec(tuple(shape), dtype),)


def sorting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    if x.dtype.kind == "c":
        raise InvalidTypeError(f"{x.dtype} has no order")
    normalize_axis(parameters["axis"], len(x.shape))
    return (x,)


def argsorting(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    (spec,) = sorting(operands, parameters)
    return (ArraySpec(spec.shape, DEFAULT_INT),)


# Linear algebra


def matmul(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    x1, x2 = array(operands[0]), array(operands[1])
    a, b = shape_of(x1), shape_of(x2)
    if not a or not b:
        raise InvalidArgumentError("the operands of matmul must have at least one dimension")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise InvalidArgumentError(f"matmul of shapes {a} and {b}: {left[-1]} columns meet {right[-2]} rows")
    rows = () if len(a) == 1 else (left[-2],)
    columns = () if len(b) == 1 else (right[-1],)
    (dtyped,) = ufunc(np.matmul, [ArraySpec((), x1.dtype), ArraySpec((), x2.dtype)], {})
    return (ArraySpec((*broadcast(left[:-2], right[:-2]), *rows, *columns), dtyped.dtype),)


def matrix_transpose(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    x = array(operands[0])
    if len(x.shape) < 2:
        raise InvalidArgumentError(f"a matrix has at least two dimensions, not {len(x.shape)}")
    return (ArraySpec((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype),)


def svd(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    if len(x.shape) < 2:
        raise InvalidArgumentError(f"a matrix has at least two dimensions, not {len(x.shape)}")
    if x.dtype.name not in ("float32", "float64", "complex64", "complex128"):
        raise InvalidTypeError(f"not defined for {x.dtype}")
    *batch, m, n = shape_of(x)
    k = min(m, n)
    columns, rows = (m, n) if parameters["full_matrices"] else (k, k)
    (values,) = real_part([x], {})
    return (
        ArraySpec((*batch, m, columns), x.dtype),
        ArraySpec((*batch, k), values.dtype),
        ArraySpec((*batch, rows, n), x.dtype),
    )


# Shapes


def reshape(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
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
    x = array(operands[0])
    axes = normalize_axes(parameters["axes"], len(x.shape))
    if len(axes) != len(x.shape):
        raise InvalidArgumentError(f"axes {axes} are no permutation of the {len(x.shape)} dimensions")
    return (ArraySpec(tuple(x.shape[axis] for axis in axes), x.dtype),)


def broadcast_to(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x, shape = array(operands[0]), check_size(parameters["shape"])
    if broadcast(shape_of(x), shape) != shape:
        raise InvalidArgumentError(f"shape {x.shape} cannot be broadcast to {shape}")
    return (ArraySpec(shape, x.dtype),)


def broadcast_arrays(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    shape = broadcast(*map(shape_of, operands))
    return tuple(ArraySpec(shape, array(spec).dtype) for spec in operands)


def expand_dims(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    axis = normalize_axis(parameters["axis"], len(x.shape) + 1)
    return (ArraySpec((*x.shape[:axis], 1, *x.shape[axis:]), x.dtype),)


def squeeze(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    axes = normalize_axes(parameters["axis"], len(x.shape))
    for axis in axes:
        if x.shape[axis] != 1:
            raise InvalidArgumentError(f"axis {axis} of shape {x.shape} is not 1")
    return (ArraySpec(tuple(n for i, n in enumerate(x.shape) if i not in axes), x.dtype),)


def flip(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    normalize_axes(parameters["axis"], len(x.shape))
    return (x,)


def concat(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
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
    specs = [array(spec) for spec in operands]
    if not specs:
        raise InvalidArgumentError("nothing to stack; give at least one array")
    if len({spec.shape for spec in specs}) > 1:
        raise InvalidArgumentError(f"shapes {', '.join(str(spec.shape) for spec in specs[:4])} differ")
    shape = shape_of(specs[0])
    axis = normalize_axis(parameters["axis"], len(shape) + 1)
    return (ArraySpec(check_size((*shape[:axis], len(specs), *shape[axis:])), promote(*specs)),)


def unstack(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    shape = shape_of(x)
    axis = normalize_axis(parameters["axis"], len(shape))
    return (ArraySpec((*shape[:axis], *shape[axis + 1 :]), x.dtype),) * shape[axis]


# Picking


def take(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x, indices, axis = array(operands[0]), array(operands[1]), parameters["axis"]
    if indices.dtype.kind not in "iu":
        raise InvalidTypeError(f"indices must be integers, not {indices.dtype}")
    if len(indices.shape) > 1:
        raise InvalidArgumentError(f"indices must have one dimension, not {len(indices.shape)}")
    if axis is None:
        if len(x.shape) != 1:
            raise InvalidArgumentError(f"axis must be given for an array of {len(x.shape)} dimensions")
        axis = 0
    axis = normalize_axis(axis, len(x.shape))
    if shape_of(x)[axis] == 0 and indices.size:
        raise InvalidIndexError(f"axis {axis} of shape {x.shape} has nothing to take")
    return (ArraySpec((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype),)


def indexed(spec: ArraySpec, key: Sequence[Any]) -> ArraySpec:
    """The spec of ``x[key]`` for a basic index; numpy is asked, over memory that does not exist."""
    probe = np.lib.stride_tricks.as_strided(np.empty((), np.bool_), shape_of(spec), (0,) * len(spec.shape))
    try:
        return ArraySpec(probe[key_from_wire(key)].shape, spec.dtype)
    except IndexError as error:
        raise InvalidIndexError(f"{error} (shape {spec.shape})") from None
    except ValueError as error:
        raise InvalidArgumentError(f"{error} (shape {spec.shape})") from None


def getitem(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    return (indexed(array(operands[0]), parameters["key"]),)


def setitem(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x, value = array(operands[0]), operands[1]
    target = indexed(x, parameters["key"])
    if broadcast(shape_of(target), shape_of(value)) != target.shape:
        raise InvalidArgumentError(f"a value of shape {shape_of(value)} does not fit {target.shape}")
    if isinstance(value, ArraySpec):
        if not np.can_cast(value.dtype, x.dtype, "same_kind"):
            raise InvalidTypeError(f"{value.dtype} values cannot be stored in an array of {x.dtype}")
    elif value is not None and promote(x, value).kind != x.dtype.kind:
        raise InvalidTypeError(f"a {type(value).__name__} cannot be stored in an array of {x.dtype}")
    return (x,)


def nonzero(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    x = array(operands[0])
    if not x.shape:
        raise InvalidArgumentError("nonzero needs at least one dimension")
    return (ArraySpec((None,), DEFAULT_INT),) * len(x.shape)


def unique(names: Sequence[str], operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    x = array(operands[0])
    specs = {
        "values": ArraySpec((None,), x.dtype),
        "indices": ArraySpec((None,), DEFAULT_INT),
        "inverse_indices": ArraySpec(x.shape, DEFAULT_INT),
        "counts": ArraySpec((None,), DEFAULT_INT),
    }
    return tuple(specs[name] for name in names)


# Creation


def filled(default: DType, _: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    dtype = dtype_from_name(parameters["dtype"]) if parameters["dtype"] else default
    return (ArraySpec(check_size(parameters["shape"]), dtype),)


def _scalar_dtype(value: Scalar) -> DType:
    kinds: dict[type, DType] = {bool: BOOL, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
    return kinds[type(value)]


def _check_fill(value: Scalar, dtype: DType) -> None:
    order = "biufc"
    if order.index({"u": "i"}.get(_scalar_dtype(value).kind, _scalar_dtype(value).kind)) > order.index(
        dtype.kind
    ) and not (type(value) is int and dtype.kind == "u"):
        raise InvalidTypeError(f"a {type(value).__name__} cannot fill an array of {dtype}")
    check_scalar(value, dtype)


def full(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    value = scalar_from_wire(parameters["fill_value"])
    outputs = filled(_scalar_dtype(value), operands, parameters)
    _check_fill(value, outputs[0].dtype)
    return outputs


def like(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    x = array(operands[0])
    dtype = dtype_from_name(parameters["dtype"]) if parameters["dtype"] else x.dtype
    if "fill_value" in parameters:
        _check_fill(scalar_from_wire(parameters["fill_value"]), dtype)
    return (ArraySpec(x.shape, dtype),)


def arange(_: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
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
    except (ValueError, OverflowError):
        raise InvalidArgumentError(f"arange from {start} to {stop} by {step} has no finite length") from None
    integer = all(isinstance(v, int) for v in (start, stop, step))
    dtype = DEFAULT_INT if integer else DEFAULT_FLOAT
    if parameters["dtype"]:
        dtype = dtype_from_name(parameters["dtype"])
    return (ArraySpec(check_size((length,)), dtype),)


def linspace(_: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    start, stop = scalar_from_wire(parameters["start"]), scalar_from_wire(parameters["stop"])
    default = DEFAULT_COMPLEX if isinstance(start, complex) or isinstance(stop, complex) else DEFAULT_FLOAT
    dtype = dtype_from_name(parameters["dtype"]) if parameters["dtype"] else default
    return (ArraySpec(check_size((parameters["num"],)), dtype),)


def eye(_: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    rows, columns = parameters["n_rows"], parameters["n_cols"]
    dtype = dtype_from_name(parameters["dtype"]) if parameters["dtype"] else DEFAULT_FLOAT
    return (ArraySpec(check_size((rows, rows if columns is None else columns)), dtype),)


def triangle(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    x = array(operands[0])
    if len(x.shape) < 2:
        raise InvalidArgumentError(f"a matrix has at least two dimensions, not {len(x.shape)}")
    return (x,)


def named(name: str) -> Rule:
    """The rule of the numpy ufunc called `name`."""
    return partial(ufunc, getattr(np, name))
