"""Rules of ``x[key]`` and ``x[key] = value``, with numpy's meaning of every kind of index.

A key on the wire is a list of integers, slices, new axes and an ellipsis; each ``"array"`` in it stands for
the next of the index operands. Integers beside an index array are index arrays of no dimensions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerd_protocol.dtypes import BOOL
from eagerd_protocol.errors import InvalidArgumentError, InvalidIndexError, InvalidTypeError
from eagerd_protocol.limits import MAX_DIMENSIONS
from eagerd_protocol.parameters import ELLIPSIS, INDEX_ARRAY
from eagerd_protocol.rules.checks import Outputs, Parameters, array, broadcast, holds, shape_of
from eagerd_protocol.specs import ArraySpec, OperandSpec

Dimensions = tuple[int | None, ...]


def getitem(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """A view: integers drop their axis, slices keep it, None adds one."""
    return gather(operands, parameters)


def gather(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The index arrays' broadcast shape in place of the axes that they index; a mask's length depends on data."""
    x, *indices = operands
    return (indexed(array(x), parameters["key"], [array(index) for index in indices]),)


def setitem(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape and dtype of the first operand, changed where the key says; in place where nobody else can see it."""
    return scatter(operands, parameters)


def scatter(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """As setitem, with index arrays."""
    x, value, *indices = operands
    target = indexed(array(x), parameters["key"], [array(index) for index in indices])
    _check_value(array(x), value, target.shape)
    return (array(x),)


def assigned_size(operands: Sequence[OperandSpec], parameters: Parameters) -> int:
    """About how many elements an assignment writes, or looks at in its index arrays."""
    x, _, *indices = operands
    arrays = [array(index) for index in indices]
    return most_elements(indexed(array(x), parameters["key"], arrays), arrays)


def most_elements(picked: ArraySpec, indices: Sequence[ArraySpec]) -> int:
    """The most elements that an index may pick: a mask picks at most as many as it has."""
    largest = max((index.size for index in indices), default=1)
    return max(picked.size * (1 if picked.is_known else largest), largest)


def _check_value(x: ArraySpec, value: OperandSpec, target: Dimensions) -> None:
    """Refuse a value that does not fit the target's shape, as far as that is known, or the array's dtype."""
    given = shape_of(value)
    fits = len([n for n in given if n != 1]) <= len(target)
    for n, m in zip(reversed(given), reversed(target), strict=False):
        fits = fits and (n in (1, m) or m is None)
    if not fits or any(n != 1 for n in given[: max(0, len(given) - len(target))]):
        raise InvalidArgumentError(f"a value of shape {given} does not fit {target}")
    if isinstance(value, ArraySpec):
        if not np.can_cast(value.dtype, x.dtype, "same_kind"):
            raise InvalidTypeError(f"{value.dtype} values cannot be stored in an array of {x.dtype}")
    elif value is None:
        raise InvalidTypeError("None cannot be stored in an array")
    elif not holds(x.dtype, value):
        raise InvalidTypeError(f"a {type(value).__name__} cannot be stored in an array of {x.dtype}")


def indexed(x: ArraySpec, key: Sequence[Any], indices: Sequence[ArraySpec]) -> ArraySpec:
    """The spec of ``x[key]``."""
    shape = shape_of(x)
    items = _expanded(key, indices, len(shape))
    has_arrays = bool(indices)
    before: list[int | None] = []  # dimensions so far; those of the index arrays are put in at `place`
    picked: list[Dimensions] = []
    place: int | None = None
    is_parted = False  # the index arrays do not stand side by side: then their dimensions come first
    last_was_array = False
    axis = 0
    for item in items:
        is_array = isinstance(item, ArraySpec) or (has_arrays and isinstance(item, int))
        if is_array:
            is_parted = is_parted or (place is not None and not last_was_array)
            place = len(before) if place is None else place
        last_was_array = is_array
        if item == ELLIPSIS:
            continue
        if item is None:
            before.append(1)
        elif type(item) is tuple:
            before.append(_sliced(item, shape[axis]))
            axis += 1
        elif isinstance(item, int):
            if not -shape[axis] <= item < shape[axis]:
                raise InvalidIndexError(f"index {item} is out of range for axis {axis} of shape {shape}")
            axis += 1
        elif item.dtype == BOOL:
            taken = shape[axis : axis + len(item.shape)]
            if any(m not in (n, 0) for m, n in zip(item.shape, taken, strict=True)):  # 0: it picks nothing
                raise InvalidIndexError(f"a mask of shape {item.shape} does not fit {taken} of shape {shape}")
            picked.append((None,))
            axis += len(item.shape)
        else:
            if shape[axis] == 0 and item.size:
                raise InvalidIndexError(f"axis {axis} of shape {shape} has no elements to index")
            picked.append(item.shape)
            axis += 1
    middle = _broadcast(picked) if has_arrays else ()
    at = 0 if is_parted else place or 0
    result = (*before[:at], *middle, *before[at:])
    if len(result) > MAX_DIMENSIONS:
        raise InvalidIndexError(f"the result has {len(result)} dimensions; at most {MAX_DIMENSIONS} are possible")
    return ArraySpec(result, x.dtype)


def _expanded(key: Sequence[Any], indices: Sequence[ArraySpec], dimensions: int) -> list[Any]:
    """The key with its index arrays in place and as many full slices as it leaves out."""
    remaining = iter(indices)
    items: list[Any] = []
    for item in key:
        if item == INDEX_ARRAY:
            index = next(remaining, None)
            if index is None:
                raise InvalidIndexError(f"the key names more index arrays than the {len(indices)} given")
            if index.dtype.kind not in "biu":
                raise InvalidIndexError(f"an index array holds integers or booleans, not {index.dtype}")
            items.append(index)
        else:
            items.append(item)
    if next(remaining, None) is not None:
        raise InvalidIndexError(f"{len(indices)} index arrays are given, and the key names fewer")
    used = sum(
        len(item.shape) if isinstance(item, ArraySpec) and item.dtype == BOOL else item not in (None, ELLIPSIS)
        for item in items
    )
    if used > dimensions:
        raise InvalidIndexError(f"too many indices: {used} for an array of {dimensions} dimensions")
    full: list[Any] = [("slice", None, None, None)] * (dimensions - used)
    ellipses = [position for position, item in enumerate(items) if item == ELLIPSIS]
    if len(ellipses) > 1:
        raise InvalidIndexError("an index can only have a single ellipsis ('...')")
    if not ellipses:
        return items + full
    # One that covers no axis stays: it parts index arrays all the same.
    return items[: ellipses[0]] + (full or [ELLIPSIS]) + items[ellipses[0] + 1 :]


def _sliced(item: tuple[Any, ...], n: int) -> int:
    _, start, stop, step = item
    if step == 0:
        raise InvalidArgumentError("slice step cannot be zero")
    return len(range(*slice(start, stop, step).indices(n)))


def _broadcast(shapes: Sequence[Dimensions]) -> Dimensions:
    """The broadcast of index arrays' shapes, where a mask's length is not known."""
    known = [tuple(1 if n is None else n for n in shape) for shape in shapes]
    try:
        result: Dimensions = broadcast(*known)
    except InvalidArgumentError as error:
        raise InvalidIndexError(str(error)) from None
    has_unknown = any(shape == (None,) for shape in shapes)
    if has_unknown and (not result or result[-1] == 1):
        return (*result[:-1], None)
    return result
