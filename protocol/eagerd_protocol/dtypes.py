"""The data types that eagerd carries: those of the array API standard, and float16.

numpy has others (object, str, datetime64, structured, long double, big-endian ones); they are refused by
name, never converted.
"""

from typing import Any, Final, TypeAlias

import numpy as np

from eagerd_protocol.errors import InvalidTypeError

DType: TypeAlias = np.dtype[Any]

DTYPE_NAMES: Final = (
    "bool",
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)

_BY_NAME: Final[dict[str, DType]] = {name: np.dtype(name) for name in DTYPE_NAMES}
_NAMES: Final[dict[DType, str]] = {dtype: name for name, dtype in _BY_NAME.items()}

DEFAULT_FLOAT: Final = _BY_NAME["float64"]
DEFAULT_COMPLEX: Final = _BY_NAME["complex128"]
DEFAULT_INT: Final = _BY_NAME["int64"]
BOOL: Final = _BY_NAME["bool"]


def dtype_name(dtype: DType) -> str:
    """Return the wire's name for `dtype`; raise `InvalidTypeError` where eagerd does not carry it."""
    name = _NAMES.get(dtype)
    if name is not None:
        return name
    if dtype.newbyteorder("=") in _NAMES:
        raise InvalidTypeError(
            f"dtype {dtype.str!r} has the other byte order; convert it: a.astype({dtype.newbyteorder('=').name!r})"
        )
    raise InvalidTypeError(f"dtype {dtype} is not supported; supported are {', '.join(DTYPE_NAMES)}")


def dtype_from_name(name: object) -> DType:
    """Return the dtype that the wire calls `name`."""
    dtype = _BY_NAME.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise InvalidTypeError(f"unknown dtype {name!r}; supported are {', '.join(DTYPE_NAMES)}")
    return dtype


def as_dtype(value: object) -> DType:
    """Return what a user means by `value`: a dtype, its name, a numpy scalar type or a Python type."""
    try:
        dtype = np.dtype(value)  # type: ignore[call-overload]
    except TypeError:
        raise InvalidTypeError(f"{value!r} is no dtype") from None
    dtype_name(dtype)
    return dtype  # type: ignore[no-any-return]
