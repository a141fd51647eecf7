"""Rules of linear algebra: products, decompositions, norms. Operands are matrices, or stacks of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from eagerd_protocol.dtypes import DEFAULT_INT, DType
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.rules.checks import (
    Outputs,
    Parameters,
    Rule,
    Shape,
    array,
    broadcast,
    check_choice,
    check_matrix,
    check_size,
    dtype_or,
    normalize_axes,
    normalize_axis,
    probe,
    real_dtype,
    shape_of,
)
from eagerd_protocol.rules.elementwise import ufunc
from eagerd_protocol.rules.reductions import accumulated, reduced
from eagerd_protocol.specs import ArraySpec, OperandSpec

# Products


def _product_dtype(loop: np.ufunc, x1: ArraySpec, x2: ArraySpec) -> DType:
    (result,) = ufunc(loop, [ArraySpec((), x1.dtype), ArraySpec((), x2.dtype)], {})
    return result.dtype


def matmul(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Columns of the first meet rows of the second, stacks broadcast; a vector is a row or a column."""
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
    shape = check_size((*broadcast(left[:-2], right[:-2]), *rows, *columns))
    return (ArraySpec(shape, _product_dtype(np.matmul, x1, x2)),)


def contracted_axes(axes: int | tuple[Any, Any], a: Shape, b: Shape) -> tuple[Shape, Shape]:
    """The axes of `a` and of `b` that tensordot sums over, counted from the front."""
    if isinstance(axes, int):
        if not 0 <= axes <= min(len(a), len(b)):
            raise InvalidArgumentError(f"{axes} axes cannot be contracted of shapes {a} and {b}")
        return tuple(range(len(a) - axes, len(a))), tuple(range(axes))
    first, second = normalize_axes(axes[0], len(a)), normalize_axes(axes[1], len(b))
    if len(first) != len(second):
        raise InvalidArgumentError(f"{len(first)} axes of the first meet {len(second)} of the second")
    return first, second


def tensordot(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The axes that are not summed over, of the first, then of the second."""
    x1, x2 = array(operands[0]), array(operands[1])
    a, b = shape_of(x1), shape_of(x2)
    first, second = contracted_axes(parameters["axes"], a, b)
    if [a[i] for i in first] != [b[i] for i in second]:
        raise InvalidArgumentError(f"axes {first} of shape {a} do not match axes {second} of shape {b}")
    left, right = (n for i, n in enumerate(a) if i not in first), (n for i, n in enumerate(b) if i not in second)
    return (ArraySpec(check_size((*left, *right)), _product_dtype(np.matmul, x1, x2)),)


def vecdot(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The broadcast shape without the axis that is summed over."""
    x1, x2, axis = array(operands[0]), array(operands[1]), parameters["axis"]
    a, b = shape_of(x1), shape_of(x2)
    i, j = normalize_axis(axis, len(a)), normalize_axis(axis, len(b))
    if a[i] != b[j]:
        raise InvalidArgumentError(f"axis {axis} of shapes {a} and {b} has {a[i]} and {b[j]} elements")
    shape = broadcast((*a[:i], *a[i + 1 :]), (*b[:j], *b[j + 1 :]))
    return (ArraySpec(shape, _product_dtype(np.vecdot, x1, x2)),)


def outer(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Every element of one vector with every element of the other."""
    x1, x2 = array(operands[0]), array(operands[1])
    if len(x1.shape) != 1 or len(x2.shape) != 1:
        raise InvalidArgumentError(f"outer takes two vectors, not shapes {x1.shape} and {x2.shape}")
    shape = check_size((*shape_of(x1), *shape_of(x2)))
    return (ArraySpec(shape, _product_dtype(np.multiply, x1, x2)),)


def cross(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The broadcast shape; the axis has three elements."""
    x1, x2, axis = array(operands[0]), array(operands[1]), parameters["axis"]
    a, b = shape_of(x1), shape_of(x2)
    i, j = normalize_axis(axis, len(a)), normalize_axis(axis, len(b))
    if a[i] != 3 or b[j] != 3:
        raise InvalidArgumentError(f"axis {axis} has three elements in a cross product; shapes are {a} and {b}")
    rest = broadcast((*a[:i], *a[i + 1 :]), (*b[:j], *b[j + 1 :]))
    k = normalize_axis(axis, len(rest) + 1)
    dtype = _product_dtype(np.multiply, x1, x2)
    if dtype.kind == "b":
        raise InvalidTypeError("not defined for bool")
    return (ArraySpec((*rest[:k], 3, *rest[k:]), dtype),)


# Decompositions


def _split(x: ArraySpec) -> tuple[Shape, int, int]:
    *stack, m, n = shape_of(x)
    return tuple(stack), m, n


def _check_square(spec: OperandSpec) -> ArraySpec:
    x = check_matrix(spec)
    if x.shape[-1] != x.shape[-2]:
        raise InvalidArgumentError(f"expected square matrices, got shape {x.shape}")
    return x


def square(function: Callable[..., Any], *drops: int) -> Rule:
    """The rule of a numpy function of square matrices whose outputs drop so many of the last dimensions."""
    return partial(_square, function, drops)


def _square(
    function: Callable[..., Any], drops: Sequence[int], operands: Sequence[OperandSpec], _: Parameters
) -> Outputs:
    """Square matrices; floating-point dtypes."""
    x = _check_square(operands[0])
    shape = shape_of(x)
    dtypes = probe(function, x.dtype)
    return tuple(ArraySpec(shape[: len(shape) - drop], dtype) for drop, dtype in zip(drops, dtypes, strict=True))


def eigen(outputs: int, operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Square matrices; always complex, whatever the values are."""
    x = _check_square(operands[0])
    (dtype,) = probe(np.linalg.eigvals, x.dtype)
    dtype = np.dtype(f"complex{real_dtype(dtype).itemsize * 16}")
    return (ArraySpec(x.shape[:-1], dtype), ArraySpec(x.shape, dtype))[:outputs]


def solve(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """Square matrices, and right sides: a vector, or a matrix of columns for each."""
    x1, x2 = _check_square(operands[0]), array(operands[1])
    a, b = shape_of(x1), shape_of(x2)
    if not b or a[-1] != b[-1 if len(b) == 1 else -2]:
        raise InvalidArgumentError(f"{a[-1]} equations of shape {a} do not meet right sides of shape {b}")
    (dtype,) = probe(np.linalg.solve, x1.dtype, x2.dtype)
    if len(b) == 1:
        return (ArraySpec(a[:-1], dtype),)
    return (ArraySpec((*broadcast(a[:-2], b[:-2]), *b[-2:]), dtype),)


def svd(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """U, S and Vh of m×n matrices, with min(m, n) singular values."""
    x = check_matrix(operands[0])
    stack, m, n = _split(x)
    k = min(m, n)
    columns, rows = (m, n) if parameters["full_matrices"] else (k, k)
    u, s, vh = probe(np.linalg.svd, x.dtype)
    return (
        ArraySpec((*stack, m, columns), u),
        ArraySpec((*stack, k), s),
        ArraySpec((*stack, rows, n), vh),
    )


def svdvals(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """min(m, n) real values for each m×n matrix."""
    x = check_matrix(operands[0])
    stack, m, n = _split(x)
    (dtype,) = probe(np.linalg.svdvals, x.dtype)
    return (ArraySpec((*stack, min(m, n)), dtype),)


def qr(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Q and R; "reduced" with min(m, n) columns of Q, "complete" with m."""
    x = check_matrix(operands[0])
    check_choice(parameters["mode"], "mode", "reduced", "complete")
    stack, m, n = _split(x)
    k = m if parameters["mode"] == "complete" else min(m, n)
    q, r = probe(np.linalg.qr, x.dtype)
    return (ArraySpec((*stack, m, k), q), ArraySpec((*stack, k, n), r))


def pinv(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """n×m matrices for m×n ones."""
    x = check_matrix(operands[0])
    stack, m, n = _split(x)
    _check_rtol(operands[1], stack)
    (dtype,) = probe(np.linalg.pinv, x.dtype)
    return (ArraySpec((*stack, n, m), dtype),)


def matrix_rank(operands: Sequence[OperandSpec], _: Parameters) -> Outputs:
    """One integer for each matrix."""
    x = check_matrix(operands[0])
    stack, *_matrix = _split(x)
    _check_rtol(operands[1], stack)
    probe(np.linalg.svdvals, x.dtype)
    return (ArraySpec(stack, DEFAULT_INT),)


def _check_rtol(rtol: OperandSpec, stack: Shape) -> None:
    if isinstance(rtol, complex) or (isinstance(rtol, ArraySpec) and rtol.dtype.kind == "c"):
        raise InvalidTypeError("rtol must be real")
    if broadcast(shape_of(rtol), stack) != stack:
        raise InvalidArgumentError(f"rtol of shape {shape_of(rtol)} does not fit a stack of shape {stack}")


def matrix_power(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape of the operand."""
    x = _check_square(operands[0])
    (dtype,) = probe(np.linalg.matrix_power, x.dtype, max(-1, min(parameters["n"], 3)))
    return (ArraySpec(x.shape, dtype),)


def diagonal(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """The diagonal as the last dimension."""
    x = check_matrix(operands[0])
    stack, m, n = _split(x)
    offset = parameters["offset"]
    length = min(m, n - offset) if offset >= 0 else min(m + offset, n)
    return (ArraySpec((*stack, max(0, length)), x.dtype),)


def trace(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """One sum for each matrix."""
    x = check_matrix(operands[0])
    return (ArraySpec(_split(x)[0], dtype_or(parameters["dtype"], accumulated(x.dtype))),)


# Norms


def _matrix_norm_of_one(x: Any, order: Any) -> Any:
    return np.linalg.matrix_norm(x, ord=order)


def _vector_norm_of_one(x: Any, order: Any) -> Any:
    return np.linalg.vector_norm(x, ord=order)


def matrix_norm(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """One real number for each matrix."""
    x = check_matrix(operands[0])
    (dtype,) = probe(_matrix_norm_of_one, x.dtype, parameters["ord"])
    _, m, n = _split(x)
    smallest_of = {-1: n, -2: min(m, n), float("-inf"): m}  # columns' sums, singular values, rows' sums
    if smallest_of.get(parameters["ord"]) == 0:
        raise InvalidArgumentError(f"order {parameters['ord']} of matrices without elements (shape {x.shape})")
    return (ArraySpec(reduced(shape_of(x), (-2, -1), parameters["keepdims"]), dtype),)


def vector_norm(operands: Sequence[OperandSpec], parameters: Parameters) -> Outputs:
    """Shape without the axes; real."""
    x = array(operands[0])
    shape, order = shape_of(x), parameters["ord"]
    if isinstance(order, str) or order is None:
        raise InvalidArgumentError(f"the order of a vector norm is a number, not {order!r}")
    axes = normalize_axes(parameters["axis"], len(shape))
    if order == float("-inf") and any(shape[axis] == 0 for axis in axes):
        raise InvalidArgumentError(f"order {order} of a vector without elements (shape {shape})")
    (dtype,) = probe(_vector_norm_of_one, x.dtype, order)
    return (ArraySpec(reduced(shape, axes, parameters["keepdims"]), dtype),)
