"""Rules of operations that work element by element."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from eagerd_protocol.dtypes import BOOL, DType, dtype_from_name
from eagerd_protocol.errors import InvalidTypeError
from eagerd_protocol.rules.checks import (
    Outputs,
    Parameters,
    Rule,
    array,
    broadcast,
    promote,
    real_dtype,
    shape_of,
)
from eagerd_protocol.specs import ArraySpec, OperandSpec


def named(name: str) -> Rule:
    """The rule of the numpy ufunc called `name`."""
    return partial(ufunc, getattr(np, name))


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
    """Shape of the operand; a complex dtype gives that of its parts."""
    x = array(operands[0])
    return (ArraySpec(x.shape, real_dtype(x.dtype)),)


def clip(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """The broadcast shape; dtype of the first operand, which the bounds must not exceed."""
    x, *bounds = operands
    dtype = array(x).dtype
    if dtype.kind == "c":
        raise InvalidTypeError(f"{dtype} has no order")
    for bound in bounds:
        if bound is not None and promote(x, bound) != dtype:
            kind = bound.dtype if isinstance(bound, ArraySpec) else type(bound).__name__
            raise InvalidTypeError(f"bounds of {kind} do not fit an array of {dtype}")
    return (ArraySpec(broadcast(*map(shape_of, operands)), dtype),)


def where(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """The broadcast shape; the dtype that the second and third operand promote to."""
    condition, x1, x2 = operands
    if array(condition).dtype != BOOL:
        raise InvalidTypeError(f"the condition must be bool, not {array(condition).dtype}")
    if not isinstance(x1, ArraySpec) and not isinstance(x2, ArraySpec):
        raise InvalidTypeError("x1 or x2 must be an array")
    return (ArraySpec(broadcast(*map(shape_of, operands)), promote(x1, x2)),)


def astype(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape of the operand, the dtype that is asked for."""
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
