"""Kernels: from an operation's name to the function that computes it. NumPy's, but for what is listed here.

A kernel takes the operands by position and the parameters by name, in their wire form, and returns an array,
or a tuple of them. Results are plain numpy: the allocator decides where they lie.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from eagerd_daemon import special_cases
from eagerd_protocol.catalogue import CATALOGUE
from eagerd_protocol.errors import OperationFailedError
from eagerd_protocol.operation import Operation
from eagerd_protocol.parameters import key_from_wire, scalar_from_wire

AnyArray: TypeAlias = np.ndarray[Any, Any]
Kernel: TypeAlias = Callable[..., Any]


def _astype(x: AnyArray, *, dtype: str, copy: bool) -> AnyArray:
    result: AnyArray = x.astype(np.dtype(dtype), copy=copy)
    return result


def _imag(x: AnyArray) -> AnyArray:
    return np.imag(x) if x.dtype.kind == "c" else np.zeros_like(x)


def _clip(x: AnyArray, low: Any, high: Any) -> AnyArray:
    if low is None and high is None:
        return x.copy()
    return np.clip(x, low, high, dtype=x.dtype)


def _mean(x: AnyArray, *, axis: Any, keepdims: bool) -> Any:
    return np.mean(x, axis=axis, keepdims=keepdims)


def _sort(x: AnyArray, *, axis: int, descending: bool, stable: bool) -> AnyArray:
    result = np.sort(x, axis=axis, stable=stable)
    return np.flip(result, axis=axis) if descending else result


def _argsort(x: AnyArray, *, axis: int, descending: bool, stable: bool) -> AnyArray:
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    # Reversed twice, so that equal values keep their order.
    reverse = np.flip(np.argsort(np.flip(x, axis=axis), axis=axis, stable=stable), axis=axis)
    return np.asarray(x.shape[axis] - 1 - reverse)


def _reshape(x: AnyArray, *, shape: tuple[int, ...], copy: bool | None) -> AnyArray:
    return np.reshape(x, shape, copy=copy)


def _permute_dims(x: AnyArray, *, axes: int | tuple[int, ...]) -> AnyArray:
    return np.permute_dims(x, (axes,) if isinstance(axes, int) else axes)


def _take(x: AnyArray, indices: AnyArray, *, axis: int | None) -> AnyArray:
    # numpy's mode="raise" checks each index before it reads by it.
    return np.take(x, indices, axis=0 if axis is None else axis)


def _basic_index(key: Sequence[Any]) -> tuple[Any, ...]:
    """The index of a key without arrays; with an ellipsis a single element is a view, too."""
    index = key_from_wire(key)
    return index if Ellipsis in index else (*index, ...)


def _getitem(x: AnyArray, *, key: Sequence[Any]) -> AnyArray:
    return np.asarray(x[_basic_index(key)])


def _gather(x: AnyArray, *indices: AnyArray, key: Sequence[Any]) -> AnyArray:
    return np.asarray(x[key_from_wire(key, indices)])


def _assign(x: AnyArray, value: Any, *indices: AnyArray, key: Sequence[Any]) -> AnyArray:
    x[key_from_wire(key, indices) if indices else _basic_index(key)] = value
    return x


def _assign_to_copy(x: AnyArray, value: Any, *indices: AnyArray, key: Sequence[Any]) -> AnyArray:
    return _assign(x.copy(), value, *indices, key=key)


def _broadcast_arrays(*arrays: AnyArray) -> tuple[AnyArray, ...]:
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    return tuple(np.broadcast_to(x, shape) for x in arrays)


def _full(*, shape: tuple[int, ...], fill_value: Any, dtype: str | None) -> AnyArray:
    return np.full(shape, scalar_from_wire(fill_value), dtype)


def _full_like(x: AnyArray, *, fill_value: Any, dtype: str | None) -> AnyArray:
    return np.full(x.shape, scalar_from_wire(fill_value), dtype or x.dtype)


def _like(make: Callable[[tuple[int, ...], Any], AnyArray]) -> Kernel:
    def kernel(x: AnyArray, *, dtype: str | None) -> AnyArray:
        return make(x.shape, dtype or x.dtype)

    return kernel


def _arange(*, start: Any, stop: Any, step: Any, dtype: str | None) -> AnyArray:
    if stop is None:
        start, stop = 0, start
    arange: Callable[..., AnyArray] = np.arange
    try:
        return arange(start, stop, step, dtype)
    except OverflowError:  # all values fit the dtype, but the stop, which is none of them, does not
        return arange(start, stop, step).astype(dtype)


def _linspace(*, start: Any, stop: Any, num: int, dtype: str | None, endpoint: bool) -> AnyArray:
    return np.linspace(scalar_from_wire(start), scalar_from_wire(stop), num, endpoint=endpoint, dtype=dtype)


def _eye(*, n_rows: int, n_cols: int | None, k: int, dtype: str | None) -> AnyArray:
    return np.eye(n_rows, n_cols, k, dtype or "float64")


def _tile(x: AnyArray, *, repetitions: tuple[int, ...]) -> AnyArray:
    return np.tile(x, repetitions)


def _meshgrid(*arrays: AnyArray, indexing: Any) -> tuple[AnyArray, ...]:
    return tuple(np.meshgrid(*arrays, indexing=indexing, copy=False))


def _diff(x: AnyArray, prepend: AnyArray | None, append: AnyArray | None, *, axis: int, n: int) -> AnyArray:
    # Not diff's own prepend and append: for n=0 it would leave them out.
    parts = [part for part in (prepend, x, append) if part is not None]
    joined = np.concat(parts, axis=axis) if len(parts) > 1 else x
    if n >= joined.shape[axis] or not joined.size:  # numpy would go on with nothing, n times
        shape = list(joined.shape)
        shape[axis] = max(0, shape[axis] - n)
        return np.empty(shape, joined.dtype)
    return np.diff(joined, n=n, axis=axis)


def _searchsorted(x1: AnyArray, x2: Any, sorter: AnyArray | None, *, side: Any) -> Any:
    return np.searchsorted(x1, x2, side=side, sorter=sorter)


def _eig(x: AnyArray) -> tuple[AnyArray, AnyArray]:
    values, vectors = np.linalg.eig(x)
    return _as_complex(values), _as_complex(vectors)


def _eigvals(x: AnyArray) -> AnyArray:
    return _as_complex(np.linalg.eigvals(x))


def _unique_values(x: AnyArray) -> AnyArray:
    """Sorted, which the standard leaves open and scikit-learn counts on."""
    return np.unique(x, equal_nan=False)


def _as_complex(x: AnyArray) -> AnyArray:
    """numpy gives real eigenvalues where it can, which would make the dtype depend on data."""
    return x.astype(np.result_type(x, np.complex64), copy=False)


def _matrix_rank(x: AnyArray, rtol: Any) -> Any:
    return np.linalg.matrix_rank(x, rtol=rtol)


def _pinv(x: AnyArray, rtol: Any) -> AnyArray:
    return np.linalg.pinv(x, rtol=rtol)


def _along_axes(function: Callable[..., AnyArray]) -> Kernel:
    def kernel(x: AnyArray, *, s: Any, axes: Any, norm: Any) -> AnyArray:
        return function(x, (s,) if isinstance(s, int) else s, (axes,) if isinstance(axes, int) else axes, norm)

    return kernel


def _frequencies(function: Callable[..., AnyArray]) -> Kernel:
    def kernel(*, n: int, d: float, dtype: str | None) -> AnyArray:
        return function(n, d).astype(dtype or "float64", copy=False)

    return kernel


def _cumulative(function: Callable[..., AnyArray]) -> Kernel:
    def kernel(x: AnyArray, *, axis: int | None, dtype: str | None, include_initial: bool) -> AnyArray:
        return function(x, axis=0 if axis is None else axis, dtype=dtype, include_initial=include_initial)

    return kernel


def _erf(x: AnyArray) -> Any:
    try:
        from scipy.special import erf  # an extra, and 30 MB that most daemons never need
    except ImportError:
        raise OperationFailedError(
            "special.erf needs scipy where the daemon runs; install it there: pip install 'eagerd[special]'"
        ) from None
    return erf(x)


_OWN: Final[dict[str, Kernel]] = {
    "floor_divide": special_cases.floor_divide,
    "expm1": special_cases.expm1,
    "tanh": special_cases.tanh,
    "astype": _astype,
    "imag": _imag,
    "clip": _clip,
    "mean": _mean,
    "sort": _sort,
    "argsort": _argsort,
    "reshape": _reshape,
    "permute_dims": _permute_dims,
    "take": _take,
    "getitem": _getitem,
    "setitem": _assign_to_copy,
    "gather": _gather,
    "scatter": _assign_to_copy,
    "broadcast_arrays": _broadcast_arrays,
    "meshgrid": _meshgrid,
    "tile": _tile,
    "diff": _diff,
    "searchsorted": _searchsorted,
    "unique_values": _unique_values,
    "full": _full,
    "full_like": _full_like,
    "empty_like": _like(np.empty),
    "ones_like": _like(np.ones),
    "zeros_like": _like(np.zeros),
    "arange": _arange,
    "linspace": _linspace,
    "eye": _eye,
    "cumulative_sum": _cumulative(np.cumulative_sum),
    "cumulative_prod": _cumulative(np.cumulative_prod),
    "linalg.eig": _eig,
    "linalg.eigvals": _eigvals,
    "linalg.matrix_rank": _matrix_rank,
    "linalg.pinv": _pinv,
    "fft.fftn": _along_axes(np.fft.fftn),
    "fft.ifftn": _along_axes(np.fft.ifftn),
    "fft.rfftn": _along_axes(np.fft.rfftn),
    "fft.irfftn": _along_axes(np.fft.irfftn),
    "fft.fftfreq": _frequencies(np.fft.fftfreq),
    "fft.rfftfreq": _frequencies(np.fft.rfftfreq),
    "special.erf": _erf,
}


def _kernel_of(operation: Operation) -> Kernel:
    kernel: Kernel = _OWN.get(operation.name) or attrgetter(operation.name)(np)
    if operation.signature.startswith("(arrays"):
        joined = kernel
        return lambda *arrays, **parameters: joined(arrays, **parameters)
    return kernel


_KERNELS: Final[dict[str, Kernel]] = {name: _kernel_of(operation) for name, operation in CATALOGUE.items()}


def run_kernel(name: str, operands: Sequence[Any], parameters: dict[str, Any]) -> tuple[AnyArray, ...]:
    """Compute an operation whose operands and parameters the catalogue has accepted."""
    if parameters:
        result = _KERNELS[name](*operands, **{k: v for k, v in parameters.items() if k != "device"})
    else:
        result = _KERNELS[name](*operands)
    if type(result) is np.ndarray:
        return (result,)
    if isinstance(result, tuple | list):
        return tuple(map(np.asarray, result))
    return (np.asarray(result),)  # a numpy scalar, where an array of no dimensions is meant


def overwritable_operands(name: str) -> Literal["any", "first", "none"]:
    """Tell which operand an operation can write its result over, if shape and dtype are the same."""
    kernel = _KERNELS[name]
    if kernel is _assign_to_copy:
        return "first"
    return "any" if isinstance(kernel, np.ufunc) and kernel.signature is None and kernel.nout == 1 else "none"


def run_in_place(name: str, operands: Sequence[Any], parameters: dict[str, Any], out: AnyArray) -> AnyArray:
    """Compute an operation into `out`, one of its operands, and return that."""
    kernel = _KERNELS[name]
    if isinstance(kernel, np.ufunc):
        return kernel(*operands, out=out)  # type: ignore[no-any-return]
    return _assign(*operands, key=parameters["key"])
