"""Parameters of operations: their kinds, and each kind's way from a user's value to the wire and back.

A kind has one function that accepts what users write and returns the one form that travels: nil, bool, int,
float, str, or an array of those. The daemon applies the same function to what it receives, so nothing that a
client sends reaches a kernel unchecked.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np

from eagerd_protocol.dtypes import as_dtype, dtype_name
from eagerd_protocol.errors import InvalidArgumentError, InvalidIndexError, InvalidTypeError
from eagerd_protocol.limits import MAX_DIMENSIONS
from eagerd_protocol.specs import Scalar

Wire: TypeAlias = Any
"""nil, bool, int, float, str, or a tuple of those."""

_INT64: Final = range(-(2**63), 2**64)


def as_int(value: object) -> int:
    """Return `value` as an int that msgpack can carry."""
    if isinstance(value, bool | np.bool_):
        raise InvalidTypeError(f"expected an integer, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidTypeError(f"expected an integer, got {type(value).__name__} {value!r}") from None
    if number not in _INT64:
        shown = str(number) if number.bit_length() < 200 else f"of {number.bit_length()} bits"
        raise InvalidArgumentError(f"the integer {shown} does not fit in 64 bits")
    return number


def as_optional_int(value: object) -> int | None:
    return None if value is None else as_int(value)


def as_bool(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InvalidTypeError(f"expected True or False, got {type(value).__name__} {value!r}")
    return bool(value)


def as_optional_bool(value: object) -> bool | None:
    return None if value is None else as_bool(value)


def as_ints(value: object) -> int | tuple[int, ...]:
    """An int, or several."""
    if isinstance(value, tuple | list):
        return tuple(as_int(item) for item in value)
    return as_int(value)


def as_optional_ints(value: object) -> int | tuple[int, ...] | None:
    return None if value is None else as_ints(value)


def as_shape(value: object) -> tuple[int, ...]:
    """A shape; an int is a shape of one dimension. -1 is left to the rule of the operation."""
    dimensions = as_ints(value)
    shape = dimensions if isinstance(dimensions, tuple) else (dimensions,)
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidArgumentError(f"a shape of {len(shape)} dimensions; at most {MAX_DIMENSIONS} are possible")
    return shape


def as_dtype_name(value: object) -> str:
    return dtype_name(as_dtype(value))


def as_optional_dtype_name(value: object) -> str | None:
    return None if value is None else as_dtype_name(value)


def as_scalar(value: object) -> Wire:
    """A Python or numpy scalar; a complex one travels as ("complex", real, imaginary)."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return as_int(value)
    if isinstance(value, complex):
        return ("complex", value.real, value.imag)
    if isinstance(value, tuple) and len(value) == 3 and value[0] == "complex":
        _, real, imaginary = value
        if isinstance(real, float) and isinstance(imaginary, float):
            return value
    raise InvalidTypeError(f"expected a Python scalar, got {type(value).__name__}")


def as_optional_scalar(value: object) -> Wire:
    return None if value is None else as_scalar(value)


def scalar_from_wire(value: Wire) -> Scalar:
    """The inverse of `as_scalar`."""
    if isinstance(value, tuple):
        return complex(value[1], value[2])
    return value  # type: ignore[no-any-return]


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidTypeError(f"expected a string, got {type(value).__name__}")
    return value


def as_device(value: object) -> None:
    """The only device is the daemon's memory."""
    if value not in (None, "cpu"):
        raise InvalidArgumentError(f"unknown device {value!r}; the only one is 'cpu'")


def as_order(value: object) -> Wire:
    """The order of a norm: a number, or "fro" or "nuc"."""
    if isinstance(value, str):
        if value not in ("fro", "nuc"):
            raise InvalidArgumentError(f"the order of a norm is a number, 'fro' or 'nuc', not {value!r}")
        return value
    order = None if isinstance(value, bool) else as_scalar(value)
    if order is None or isinstance(order, tuple):
        raise InvalidTypeError(f"the order of a norm is a number, 'fro' or 'nuc', not {value!r}")
    return order


def as_axes(value: object) -> Wire:
    """The axes of tensordot: how many, or a pair of lists of axes."""
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise InvalidArgumentError(f"expected a number of axes or a pair of lists of axes, got {value!r}")
        return tuple((axes,) if isinstance(axes, int) else axes for axes in map(as_ints, value))
    return as_int(value)


ELLIPSIS: Final = "..."
INDEX_ARRAY: Final = "array"
"""In a key: here stands the next of the index operands."""


def as_key(value: object) -> tuple[Wire, ...]:
    """An index: integers, slices, ellipsis, newaxis and places of index operands, in a tuple or alone.

    On the wire a slice is ("slice", start, stop, step), an ellipsis "...", newaxis nil, an index operand "array".
    """
    items = value if isinstance(value, tuple) else (value,)
    return tuple(_as_key_item(item) for item in items)


def _as_bound(value: object) -> int | None:
    """A bound of a slice; what is beyond 64 bits is beyond any array, where Python clamps."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = max(-(2**63), min(value, 2**63 - 1))
    return as_optional_int(value)


def _as_key_item(item: object) -> Wire:
    if item is None or item is Ellipsis:
        return None if item is None else ELLIPSIS
    if isinstance(item, str) and item in (ELLIPSIS, INDEX_ARRAY):
        return item
    if isinstance(item, slice):
        return ("slice", *map(_as_bound, (item.start, item.stop, item.step)))
    if isinstance(item, tuple) and len(item) == 4 and item[0] == "slice":
        return ("slice", *(as_optional_int(part) for part in item[1:]))
    try:
        return as_int(item)
    except InvalidArgumentError as error:
        raise InvalidIndexError(str(error)) from None
    except InvalidTypeError:
        raise InvalidIndexError(
            f"an index holds integers, slices, ..., None, and arrays of integers or booleans, not {type(item).__name__}"
        ) from None


def key_from_wire(key: Iterable[Wire], indices: Iterable[Any] = ()) -> tuple[Any, ...]:
    """The inverse of `as_key`, with the index operands in their places."""
    remaining = iter(indices)
    return tuple(
        Ellipsis
        if item == ELLIPSIS
        else next(remaining)
        if item == INDEX_ARRAY
        else slice(*item[1:])
        if isinstance(item, tuple)
        else item
        for item in key
    )


KINDS: Final[dict[str, Callable[[object], Wire]]] = {
    "bool": as_bool,
    "bool?": as_optional_bool,
    "int": as_int,
    "int?": as_optional_int,
    "ints": as_ints,
    "ints?": as_optional_ints,
    "shape": as_shape,
    "dtype": as_dtype_name,
    "dtype?": as_optional_dtype_name,
    "scalar": as_scalar,
    "scalar?": as_optional_scalar,
    "text": as_text,
    "device": as_device,
    "key": as_key,
    "order": as_order,
    "axes": as_axes,
}
