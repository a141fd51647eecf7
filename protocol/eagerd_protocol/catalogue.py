"""The catalogue of operations: one table from which the client's namespace, the daemon's dispatch, the
documentation and the tests derive.

A row is a name, a signature in Python's own notation, and a rule. In a signature a parameter without an
annotation is an operand: an array, or a Python scalar where the rule allows one; ``arrays`` and ``*arrays``
take any number. An annotation names one of `parameters.KINDS`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from eagerd_protocol.dtypes import DEFAULT_FLOAT
from eagerd_protocol.errors import InvalidArgumentError
from eagerd_protocol.operation import Operation
from eagerd_protocol.rules import (
    creation,
    elementwise,
    fourier,
    indexing,
    linear_algebra,
    picking,
    reductions,
    shapes,
)
from eagerd_protocol.rules.checks import Parameters, Rule
from eagerd_protocol.specs import ArraySpec


def _words(text: str) -> list[str]:
    return text.split()


def _multiplications(operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], _: Parameters) -> float:
    """Of a matmul: one for each element of the result and each of a row; integers have no BLAS."""
    multiplications = outputs[0].size * (operands[0].shape[-1] or 0)
    has_blas = outputs[0].dtype.kind in "fc" and outputs[0].dtype.itemsize > 2
    return max(multiplications * (1 if has_blas else 10), 2 * sum(spec.size for spec in operands))


def _contractions(operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], _: Parameters) -> float:
    """Of a tensordot: with f and g axes left and s summed over, sizes are fs, sg and fg, and the work is fsg."""
    return math.sqrt(operands[0].size * operands[1].size * outputs[0].size)


def _eliminations(operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], parameters: Parameters) -> float:
    """Of a decomposition: one for each element of the matrix and each of its rows or columns; of a power, more.

    As much as 250 for each matrix of a stack: so long takes the call for it.
    """
    once = operands[0].size * max(n or 0 for n in operands[0].shape[-2:])
    stacks = [math.prod(n or 0 for n in spec.shape[:-2]) for spec in (operands[0], outputs[0])]
    exponent: int = parameters.get("n", 0)
    return (once + outputs[0].size + 250 * max(stacks)) * (1 + abs(exponent).bit_length())


def _reductions_of(operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], _: Parameters) -> float:
    """Of a reduction: one for each element, and 30 for the loop that each result takes."""
    return operands[0].size + 30 * outputs[0].size


def _shifts(operands: Sequence[ArraySpec], _: Sequence[ArraySpec], parameters: Parameters) -> float:
    """Of a roll: numpy copies two parts for each axis, each in two for the next."""
    axes = parameters["axis"] if "axis" in parameters else parameters["axes"]
    dimensions = len(operands[0].shape)
    count = dimensions if axes is None else min(dimensions, len(axes)) if isinstance(axes, tuple) else 1
    return operands[0].size + 1000.0 * 2.0**count


def _transforms(operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], _: Parameters) -> float:
    """Of a transform along several axes: as much as 500 for each of them, beside the elements."""
    return max(operands[0].size, outputs[0].size) + 500 * len(operands[0].shape)


def _positions(operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], _: Parameters) -> float:
    """Of nonzero: each dimension has a vector of them."""
    return operands[0].size * (1 + len(outputs))


def _passes(operands: Sequence[ArraySpec], _: Sequence[ArraySpec], parameters: Parameters) -> float:
    """Of a diff: one for each element and order; there are no more orders than the axis is long."""
    size = sum(spec.size for spec in operands)
    longest = sum(max((n or 0 for n in spec.shape), default=0) for spec in operands)
    orders: int = min(parameters["n"], longest)
    return (size + 1) * (1 + orders)


def _picks(operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], _: Parameters) -> float:
    """Of a gather: one for each element that may be picked, or is looked at to find them."""
    return max(operands[0].size, indexing.most_elements(outputs[0], operands[1:]))


def _repetitions(_operands: Sequence[ArraySpec], outputs: Sequence[ArraySpec], _: Parameters) -> float:
    """Of a repeat: its result's size, which may be anything where an array says how often."""
    return outputs[0].size if outputs[0].is_known else math.inf


def _rows() -> Iterable[Operation]:
    yield from _elementwise()
    yield from _reductions()
    yield from _linear_algebra()
    yield from _fourier()
    yield from _shapes()
    yield from _picking()
    yield from _creation()
    # Extensions, in a namespace of their own
    yield Operation("special.erf", UNARY, elementwise.extension_float, element_seconds=10e-9)


UNARY, BINARY = "(x, /)", "(x1, x2, /)"


def _elementwise() -> Iterable[Operation]:
    """One row for each elementwise function of the standard; most are ufuncs, whose names numpy shares."""
    row, named = Operation, elementwise.named
    for name in _words("abs bitwise_invert ceil conj floor isfinite isinf isnan logical_not negative positive"):
        yield row(name, UNARY, named(name))
    for name in _words("reciprocal sign signbit square sqrt trunc"):
        yield row(name, UNARY, named(name), element_seconds=1e-9)
    for name in _words("acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 sin sinh tan tanh"):
        yield row(name, UNARY, named(name), element_seconds=10e-9)
    for name in _words(
        "add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal greater "
        "greater_equal less less_equal logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal "
        "subtract"
    ):
        yield row(name, BINARY, named(name))
    for name in _words("atan2 floor_divide hypot logaddexp pow remainder"):
        yield row(name, BINARY, named(name), element_seconds=15e-9)
    yield row("round", UNARY, elementwise.numeric)
    yield row("real", UNARY, elementwise.real_part)
    yield row("imag", UNARY, elementwise.real_part)
    yield row("clip", "(x, /, min=None, max=None)", elementwise.clip, element_seconds=1e-9)
    yield row("where", "(condition, x1, x2, /)", elementwise.where, element_seconds=2e-9)
    signature = "(x, dtype: 'dtype', /, *, copy: 'bool' = True, device: 'device' = None)"
    yield row("astype", signature, elementwise.astype)


def _reductions() -> Iterable[Operation]:
    row = Operation
    keep = "axis: 'ints?' = None, keepdims: 'bool' = False"
    for name in ("sum", "prod"):
        signature = "(x, /, *, axis: 'ints?' = None, dtype: 'dtype?' = None, keepdims: 'bool' = False)"
        yield row(name, signature, reductions.accumulating, work=_reductions_of)
    yield row("mean", f"(x, /, *, {keep})", reductions.averaging, work=_reductions_of)
    for name in ("std", "var"):
        signature = "(x, /, *, axis: 'ints?' = None, correction: 'scalar' = 0.0, keepdims: 'bool' = False)"
        yield row(name, signature, reductions.averaging, work=_reductions_of, element_seconds=4e-9)
    for name in ("max", "min"):
        yield row(name, f"(x, /, *, {keep})", reductions.selecting, work=_reductions_of)
    for name in ("all", "any"):
        yield row(name, f"(x, /, *, {keep})", reductions.truth, work=_reductions_of)
    for name in ("argmax", "argmin"):
        yield row(
            name, "(x, /, *, axis: 'int?' = None, keepdims: 'bool' = False)", reductions.position, work=_reductions_of
        )
    yield row("count_nonzero", f"(x, /, *, {keep})", reductions.counting, work=_reductions_of)
    for name in ("cumulative_sum", "cumulative_prod"):
        signature = "(x, /, *, axis: 'int?' = None, dtype: 'dtype?' = None, include_initial: 'bool' = False)"
        yield row(name, signature, reductions.cumulative, element_seconds=4e-9)
    order = "(x, /, *, axis: 'int' = -1, descending: 'bool' = False, stable: 'bool' = True)"
    yield row("sort", order, reductions.sorting, element_seconds=60e-9)
    yield row("argsort", order, reductions.argsorting, element_seconds=80e-9)


def _linear_algebra() -> Iterable[Operation]:
    rule = linear_algebra
    multiplying: dict[str, Any] = {"element_seconds": 0.1e-9, "work": _multiplications}
    yield Operation("matmul", BINARY, rule.matmul, **multiplying)
    yield Operation("matrix_transpose", UNARY, shapes.matrix_transpose, is_view=True)
    contracting: dict[str, Any] = {"element_seconds": 1e-9, "work": _contractions}  # integers have no BLAS
    yield Operation("tensordot", "(x1, x2, /, *, axes: 'axes' = 2)", rule.tensordot, **contracting)
    yield Operation("vecdot", "(x1, x2, /, *, axis: 'int' = -1)", rule.vecdot, element_seconds=1e-9)

    def row(name: str, signature: str, rule: Rule, *outputs: str, seconds: float = 20e-9) -> Operation:
        return Operation(f"linalg.{name}", signature, rule, outputs, element_seconds=seconds, work=_eliminations)

    yield row("cholesky", "(x, /, *, upper: 'bool' = False)", rule.square(np.linalg.cholesky, 0), seconds=2e-9)
    yield row("det", UNARY, rule.square(np.linalg.det, 2), seconds=2e-9)
    yield row("eig", UNARY, partial(rule.eigen, 2), "eigenvalues", "eigenvectors", seconds=60e-9)
    yield row("eigh", UNARY, rule.square(np.linalg.eigh, 1, 0), "eigenvalues", "eigenvectors")
    yield row("eigvals", UNARY, partial(rule.eigen, 1), seconds=40e-9)
    yield row("eigvalsh", UNARY, rule.square(np.linalg.eigvalsh, 1))
    yield row("inv", UNARY, rule.square(np.linalg.inv, 0), seconds=4e-9)
    yield row("matrix_norm", "(x, /, *, keepdims: 'bool' = False, ord: 'order' = 'fro')", rule.matrix_norm)
    yield row("matrix_power", "(x, n: 'int', /)", rule.matrix_power)
    yield row("matrix_rank", "(x, /, *, rtol=None)", rule.matrix_rank)
    yield row("pinv", "(x, /, *, rtol=None)", rule.pinv)
    yield row("qr", "(x, /, *, mode: 'text' = 'reduced')", rule.qr, "Q", "R")
    yield row("slogdet", UNARY, rule.square(np.linalg.slogdet, 2, 2), "sign", "logabsdet", seconds=2e-9)
    yield row("solve", BINARY, rule.solve, seconds=4e-9)
    yield row("svd", "(x, /, *, full_matrices: 'bool' = True)", rule.svd, "U", "S", "Vh")
    yield row("svdvals", UNARY, rule.svdvals)

    signature = "(x, /, *, offset: 'int' = 0)"
    yield Operation("linalg.diagonal", signature, rule.diagonal, is_view=True)
    signature = "(x, /, *, offset: 'int' = 0, dtype: 'dtype?' = None)"
    yield Operation("linalg.trace", signature, rule.trace)
    yield Operation("linalg.cross", "(x1, x2, /, *, axis: 'int' = -1)", rule.cross, element_seconds=10e-9)
    yield Operation("linalg.outer", BINARY, rule.outer)
    signature = "(x, /, *, axis: 'ints?' = None, keepdims: 'bool' = False, ord: 'order' = 2)"
    yield Operation("linalg.vector_norm", signature, rule.vector_norm, element_seconds=20e-9)


def _fourier() -> Iterable[Operation]:
    seconds = 20e-9
    signature = "(x, /, *, n: 'int?' = None, axis: 'int' = -1, norm: 'text' = 'backward')"
    for one in (np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft):
        yield Operation(f"fft.{one.__name__}", signature, fourier.along_axis(one), element_seconds=seconds)
    signature = "(x, /, *, s: 'ints?' = None, axes: 'ints?' = None, norm: 'text' = 'backward')"
    for several in (np.fft.fftn, np.fft.ifftn, np.fft.rfftn, np.fft.irfftn):
        yield Operation(
            f"fft.{several.__name__}", signature, fourier.along_axes(several), work=_transforms, element_seconds=seconds
        )
    signature = "(n: 'int', /, *, d: 'scalar' = 1.0, dtype: 'dtype?' = None, device: 'device' = None)"
    yield Operation("fft.fftfreq", signature, fourier.fftfreq, is_memoisable=False)
    yield Operation("fft.rfftfreq", signature, fourier.rfftfreq, is_memoisable=False)
    for name in ("fftshift", "ifftshift"):
        yield Operation(
            f"fft.{name}", "(x, /, *, axes: 'ints?' = None)", fourier.shift, work=_shifts, element_seconds=1e-9
        )


def _shapes() -> Iterable[Operation]:
    row, rule = Operation, shapes
    # A reshape of what is not contiguous copies, so its cost counts.
    yield row("reshape", "(x, /, shape: 'shape', *, copy: 'bool?' = None)", rule.reshape)
    yield row("permute_dims", "(x, /, axes: 'ints')", rule.permute_dims, is_view=True)
    signature = "(x, source: 'ints', destination: 'ints', /)"
    yield row("moveaxis", signature, rule.moveaxis, is_view=True)
    yield row("broadcast_to", "(x, /, shape: 'shape')", rule.broadcast_to, is_view=True)
    yield row("broadcast_arrays", "(*arrays)", rule.broadcast_arrays, is_view=True, has_many_outputs=True)
    signature = "(*arrays, indexing: 'text' = 'xy')"
    yield row("meshgrid", signature, rule.meshgrid, is_view=True, has_many_outputs=True)
    yield row("expand_dims", "(x, /, axis: 'ints')", rule.expand_dims, is_view=True)
    yield row("squeeze", "(x, /, axis: 'ints')", rule.squeeze, is_view=True)
    yield row("flip", "(x, /, *, axis: 'ints?' = None)", rule.flip, is_view=True)
    yield row("concat", "(arrays, /, *, axis: 'int?' = 0)", rule.concat)
    yield row("stack", "(arrays, /, *, axis: 'int' = 0)", rule.stack)
    yield row("unstack", "(x, /, *, axis: 'int' = 0)", rule.unstack, is_view=True, has_many_outputs=True)
    yield row("repeat", "(x, repeats, /, *, axis: 'int?' = None)", rule.repeat, work=_repetitions, is_memoisable=False)
    yield row("tile", "(x, repetitions: 'shape', /)", rule.tile)
    yield row("roll", "(x, /, shift: 'ints', *, axis: 'ints?' = None)", rule.roll, work=_shifts, element_seconds=1e-9)
    signature = "(x, /, *, axis: 'int' = -1, n: 'int' = 1, prepend=None, append=None)"
    yield row("diff", signature, rule.diff, work=_passes, element_seconds=2e-9)


def _picking() -> Iterable[Operation]:
    row, rule = Operation, picking
    yield row("take", "(x, indices, /, *, axis: 'int?' = None)", rule.take, element_seconds=3e-9)
    yield row("take_along_axis", "(x, indices, /, *, axis: 'int' = -1)", rule.take_along_axis, element_seconds=10e-9)
    signature = "(x1, x2, /, *, side: 'text' = 'left', sorter=None)"
    yield row("searchsorted", signature, rule.searchsorted, element_seconds=100e-9, is_memoisable=False)
    signature = "(x1, x2, /, *, invert: 'bool' = False)"
    yield row("isin", signature, rule.isin, element_seconds=150e-9, is_memoisable=False)
    yield row("nonzero", UNARY, rule.nonzero, work=_positions, element_seconds=5e-9, has_many_outputs=True)
    for name, outputs in {
        "unique_all": ("values", "indices", "inverse_indices", "counts"),
        "unique_counts": ("values", "counts"),
        "unique_inverse": ("values", "inverse_indices"),
    }.items():
        yield row(name, UNARY, partial(rule.unique, outputs), outputs, element_seconds=100e-9)
    yield row("unique_values", UNARY, partial(rule.unique, ("values",)), element_seconds=80e-9)
    # Reached by indexing, not by name: `INDEXING`.
    yield row("getitem", "(x, /, key: 'key')", indexing.getitem, is_view=True)
    signature, size = "(x, value, /, key: 'key')", indexing.assigned_size
    yield row("setitem", signature, indexing.setitem, size_in_place=size, element_seconds=1e-9)
    yield row("gather", "(x, /, *indices, key: 'key')", indexing.gather, work=_picks, element_seconds=5e-9)
    signature = "(x, value, /, *indices, key: 'key')"
    yield row("scatter", signature, indexing.scatter, size_in_place=size, element_seconds=5e-9)


def _creation() -> Iterable[Operation]:
    row, rule = Operation, creation
    made: dict[str, Any] = {"element_seconds": 1e-9, "is_memoisable": False}
    tail = "dtype: 'dtype?' = None, device: 'device' = None)"
    for name in ("empty", "ones", "zeros"):
        yield row(name, f"(shape: 'shape', *, {tail}", partial(rule.filled, DEFAULT_FLOAT), **made)
        yield row(f"{name}_like", f"(x, /, *, {tail}", rule.like, **made)
    yield row("full", f"(shape: 'shape', fill_value: 'scalar', *, {tail}", rule.full, **made)
    yield row("full_like", f"(x, /, fill_value: 'scalar', *, {tail}", rule.like, **made)
    signature = f"(start: 'scalar', /, stop: 'scalar?' = None, step: 'scalar' = 1, *, {tail}"
    yield row("arange", signature, rule.arange, **made)
    signature = f"(start: 'scalar', stop: 'scalar', /, num: 'int', *, {tail[:-1]}, endpoint: 'bool' = True)"
    yield row("linspace", signature, rule.linspace, **made)
    signature = f"(n_rows: 'int', n_cols: 'int?' = None, /, *, k: 'int' = 0, {tail}"
    yield row("eye", signature, rule.eye, **made)
    for name in ("tril", "triu"):
        yield row(name, "(x, /, *, k: 'int' = 0)", rule.triangle, element_seconds=4e-9)


CATALOGUE: Final[Mapping[str, Operation]] = {operation.name: operation for operation in _rows()}

INDEXING: Final = frozenset({"getitem", "setitem", "gather", "scatter"})
"""Operations that users reach by ``x[key]`` and ``x[key] = value``, not by name."""

ALIASES: Final[Mapping[str, str]] = {
    f"linalg.{name}": name for name in ("matmul", "matrix_transpose", "tensordot", "vecdot")
}
"""Second names that the standard gives; on the wire there is one."""

LOCAL_FUNCTIONS: Final[Mapping[str, str]] = {
    "asarray": "(obj, /, *, dtype=None, device=None, copy=None)",
    "from_dlpack": "(x, /, *, device=None, copy=None)",
    "broadcast_shapes": "(*shapes)",
    "can_cast": "(from_, to, /)",
    "finfo": "(type, /)",
    "iinfo": "(type, /)",
    "isdtype": "(dtype, kind)",
    "result_type": "(*arrays_and_dtypes)",
    "__array_namespace_info__": "()",
}
"""Functions of the standard that the client answers without the daemon, but for the upload of what is new."""


def get_operation(name: object) -> Operation:
    """Return the row called `name`; raise `InvalidArgumentError` with the nearest names where there is none."""
    operation = CATALOGUE.get(name) if isinstance(name, str) else None
    if operation is None:
        from difflib import get_close_matches  # only for the message

        near = get_close_matches(str(name), CATALOGUE, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InvalidArgumentError(f"unknown operation {name!r}{hint}")
    return operation
