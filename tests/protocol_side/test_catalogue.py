"""The mistakes that the catalogue catches before anything is computed, and what its planner remembers.

What the rules accept is held against numpy in `test_rules`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eagerd_daemon.execution import INLINE_SECONDS
from eagerd_daemon.kernels import run_kernel
from eagerd_protocol.catalogue import CATALOGUE
from eagerd_protocol.errors import (
    EagerdError,
    InvalidArgumentError,
    InvalidAxisError,
    InvalidIndexError,
    InvalidTypeError,
)
from eagerd_protocol.operation import Operation
from eagerd_protocol.planner import Planner
from eagerd_protocol.specs import ArraySpec

F = np.dtype("float32")
C = np.dtype("complex64")
MASK = ArraySpec((8000,), np.dtype("bool"))


@pytest.mark.parametrize(
    ("name", "operands", "given", "error", "words"),
    [
        ("addd", (ArraySpec((), F),), {}, InvalidArgumentError, "did you mean add"),
        ("add", (ArraySpec((), F),), {}, InvalidArgumentError, "takes 2 operands, not 1"),
        ("add", (1, 2), {}, InvalidTypeError, "at least one operand"),
        ("add", (ArraySpec((), np.dtype("int8")), 200), {}, InvalidArgumentError, "200 is out of range for int8"),
        ("sum", (ArraySpec((2,), F),), {"axis": (0, 0)}, InvalidArgumentError, "twice"),
        ("sum", (ArraySpec((2,), F),), {"keepdims": 1}, InvalidTypeError, "keepdims: expected True or False"),
        ("squeeze", (ArraySpec((2,), F),), {"axis": 0}, InvalidArgumentError, "is not 1"),
        ("concat", (), {}, InvalidArgumentError, "at least one array"),
        ("concat", (ArraySpec((2, 3), F), ArraySpec((2, 4), F)), {}, InvalidArgumentError, "differ elsewhere"),
        ("take", (ArraySpec((2, 3), F), ArraySpec((1,), np.dtype("int8"))), {}, InvalidArgumentError, "axis must be"),
        ("take", (ArraySpec((2,), F), ArraySpec((1,), F)), {}, InvalidTypeError, "indices must be integers"),
        ("where", (ArraySpec((2,), F), 1, 2), {}, InvalidTypeError, "must be bool, not float32"),
        ("getitem", (ArraySpec((2,), F),), {"key": (0, 0)}, InvalidIndexError, "too many indices"),
        ("getitem", (ArraySpec((2,), F),), {"key": slice(0, 2, 0)}, InvalidArgumentError, "step cannot be zero"),
        ("getitem", (ArraySpec((2,), F),), {"key": 1.5}, InvalidIndexError, "not float"),
        ("reshape", (ArraySpec((2,), F),), {"shape": (-1, -1)}, InvalidArgumentError, "more than one -1"),
        ("full", (), {"shape": (2,), "fill_value": 2.5, "dtype": "int8"}, InvalidTypeError, "float cannot fill"),
        ("zeros", (), {"shape": (-2,)}, InvalidArgumentError, "negative"),
        ("zeros", (), {"shape": (1,) * 65}, InvalidArgumentError, "65 dimensions"),
        ("zeros", (), {"shape": (2**62, 2**62)}, InvalidArgumentError, "too many elements"),
        ("zeros", (), {}, InvalidArgumentError, "needs the parameter 'shape'"),
        ("special.erf", (ArraySpec((), np.dtype("int8")),), {}, InvalidTypeError, "float32 and float64"),
        # What has no order
        ("sort", (ArraySpec((2,), C),), {}, InvalidTypeError, "complex64 has no order"),
        ("argsort", (ArraySpec((2,), C),), {}, InvalidTypeError, "complex64 has no order"),
        ("max", (ArraySpec((2,), C),), {}, InvalidTypeError, "complex64 has no order"),
        ("argmin", (ArraySpec((2,), C),), {}, InvalidTypeError, "complex64 has no order"),
        ("clip", (ArraySpec((2,), C), None, 1), {}, InvalidTypeError, "complex64 has no order"),
        ("searchsorted", (ArraySpec((2,), C), 1, None), {}, InvalidTypeError, "no order"),
        ("maximum", (ArraySpec((2,), F), 200 + 1j), {"out": 1}, InvalidArgumentError, "no parameter 'out'"),
        # What is larger than any memory
        ("ones", (), {"shape": (2**32, 2**32)}, InvalidArgumentError, "too many elements"),
        ("full", (), {"shape": (2**31, 2**31, 2**31), "fill_value": 0}, InvalidArgumentError, "too many elements"),
        ("zeros", (), {"shape": (0, -1)}, InvalidArgumentError, "negative"),
        ("eye", (), {"n_rows": 2**40}, InvalidArgumentError, "too many elements"),
        ("tile", (ArraySpec((2**20,), F),), {"repetitions": 2**45}, InvalidArgumentError, "too many elements"),
        ("repeat", (ArraySpec((2**20,), F), 2**45), {}, InvalidArgumentError, "too many elements"),
        ("linalg.outer", (ArraySpec((2**31,), F),) * 2, {}, InvalidArgumentError, "too many elements"),
        ("meshgrid", (ArraySpec((2**31,), F),) * 2, {}, InvalidArgumentError, "too many elements"),
        ("broadcast_to", (ArraySpec((1,), F),), {"shape": (2**40, 2**40)}, InvalidArgumentError, "too many elements"),
        ("tensordot", (ArraySpec((2**31,), F),) * 2, {"axes": 0}, InvalidArgumentError, "too many elements"),
        ("add", (ArraySpec((2**31, 1), F), ArraySpec((2**31,), F)), {}, InvalidArgumentError, "too many elements"),
        ("linspace", (), {"start": 0, "stop": 1, "num": 2**62}, InvalidArgumentError, "too many elements"),
        ("fft.fft", (ArraySpec((2,), F),), {"n": 2**61}, InvalidArgumentError, "too many elements"),
        ("meshgrid", (ArraySpec((1,), F),) * 33, {}, InvalidArgumentError, "33 dimensions; at most 32"),
        ("broadcast_to", (ArraySpec((1,), F),), {"shape": (1,) * 40}, InvalidArgumentError, "at most 32"),
        ("broadcast_arrays", (ArraySpec((1,) * 40, F),) * 2, {}, InvalidArgumentError, "at most 32"),
        # Reductions of nothing
        ("max", (ArraySpec((0, 3), F),), {}, InvalidArgumentError, "axis 0 has no elements"),
        ("min", (ArraySpec((3, 0), F),), {"axis": 1}, InvalidArgumentError, "axis 1 has no elements"),
        ("argmax", (ArraySpec((0,), F),), {}, InvalidArgumentError, "no elements"),
        ("argmin", (ArraySpec((2, 0), F),), {"axis": -1}, InvalidArgumentError, "no elements"),
        ("linalg.matrix_norm", (ArraySpec((0, 3), F),), {"ord": -2}, InvalidArgumentError, "without elements"),
        ("linalg.vector_norm", (ArraySpec((0,), F),), {"ord": -np.inf}, InvalidArgumentError, "without elements"),
        ("fft.fft", (ArraySpec((0,), F),), {}, InvalidArgumentError, "would have 0 points"),
        # Overflow
        ("arange", (), {"start": 0, "stop": 2**63 - 1, "step": 1}, InvalidArgumentError, "too many elements"),
        ("arange", (), {"start": 2**63, "stop": 2**63 + 2}, InvalidArgumentError, "out of range for int64"),
        ("arange", (), {"start": 0, "stop": 300, "dtype": "int8"}, InvalidArgumentError, "299 is out of range"),
        ("arange", (), {"start": -1, "stop": 2, "dtype": "uint8"}, InvalidArgumentError, "-1 is out of range"),
        ("arange", (), {"start": 0, "stop": 1e300}, InvalidArgumentError, "too many elements"),
        ("arange", (), {"start": 0, "stop": 1, "step": 5e-324}, InvalidArgumentError, "no finite length"),
        ("arange", (), {"start": float("nan")}, InvalidArgumentError, "no finite length"),
        ("arange", (), {"start": 2, "dtype": "bool"}, InvalidTypeError, "not defined for bool"),
        ("arange", (), {"start": 1, "stop": 5, "step": 0}, InvalidArgumentError, "never ends"),
        ("linspace", (), {"start": -1e308, "stop": 1e308, "num": 3}, InvalidArgumentError, "more than a float"),
        ("linspace", (), {"start": 0, "stop": 300, "num": 3, "dtype": "int8"}, InvalidArgumentError, "out of range"),
        ("linspace", (), {"start": 0, "stop": 1, "num": -1}, InvalidArgumentError, "negative"),
        ("linspace", (), {"start": 0, "stop": 1j, "num": 2, "dtype": "float32"}, InvalidTypeError, "complex limits"),
        ("full", (), {"shape": 2, "fill_value": 300, "dtype": "int8"}, InvalidArgumentError, "out of range for int8"),
        # Words and pairs
        ("fft.fft", (ArraySpec((2,), F),), {"norm": "none"}, InvalidArgumentError, "'backward', 'ortho', 'forward'"),
        ("linalg.qr", (ArraySpec((2, 2), F),), {"mode": "r"}, InvalidArgumentError, "'reduced', 'complete', not 'r'"),
        ("meshgrid", (ArraySpec((2,), F),), {"indexing": "yx"}, InvalidArgumentError, "'xy', 'ij', not 'yx'"),
        ("linalg.matrix_norm", (ArraySpec((2, 2), F),), {"ord": "max"}, InvalidArgumentError, "'fro' or 'nuc'"),
        ("tensordot", (ArraySpec((2,), F),) * 2, {"axes": (0, 0, 0)}, InvalidArgumentError, "pair of lists"),
        ("linalg.inv", (ArraySpec((2, 3), F),), {}, InvalidArgumentError, r"square matrices, got shape \(2, 3\)"),
        ("linalg.cross", (ArraySpec((2,), F),) * 2, {}, InvalidArgumentError, "three elements"),
        ("linalg.eigh", (ArraySpec((2, 2), np.dtype("float16")),), {}, InvalidTypeError, "float16"),
        ("astype", (ArraySpec((2,), C),), {"dtype": "float32"}, InvalidTypeError, "imaginary part"),
        ("add", (ArraySpec((2,), F), None), {}, InvalidTypeError, "needs the operand 'x2'"),
    ],
    ids=lambda value: None,
)  # fmt: skip
def test_a_mistake_is_named(
    name: str, operands: tuple[Any, ...], given: dict[str, Any], error: type[EagerdError], words: str
) -> None:
    with pytest.raises(error, match=words):
        Planner().plan(name, operands, given)


def an_operand(name: str, dimensions: int) -> ArraySpec:
    """Something that the operation accepts, but for its axis."""
    dtype = "int64" if name in ("indices", "sorter") else "float64"
    return ArraySpec((3,) * dimensions, np.dtype(dtype))


def with_axis(operation: Operation, axis: int) -> dict[str, Any]:
    """The operation's parameters with the axis in the place of each that names axes."""
    given: dict[str, Any] = {}
    for parameter in operation.attributes.values():
        if parameter.name in AXES:
            given[parameter.name] = ((axis,), (0,)) if parameter.kind == "axes" else axis
        elif parameter.name == "shift":
            given["shift"] = 1
    return given


AXES = ("axis", "axes", "source", "destination")
WITH_AXES = [o for o in CATALOGUE.values() if any(name in o.attributes for name in AXES)]


@pytest.mark.parametrize("operation", WITH_AXES, ids=lambda operation: str(operation.name))
@pytest.mark.parametrize("beyond", [-1, 0], ids=["negative", "positive"])
def test_an_axis_out_of_range_is_an_index_error_and_a_value_error(operation: Operation, beyond: int) -> None:
    dimensions = 2
    operands = tuple(
        None if not p.is_required else 2 if p.name == "repeats" else an_operand(p.name, dimensions)
        for p in operation.operands
    )
    limit = dimensions + (operation.name in ("expand_dims", "stack"))
    axis = limit if beyond == 0 else -limit - 1
    with pytest.raises(InvalidAxisError, match=rf"axis {axis} is out of range for an array of \d dimensions") as caught:
        Planner().plan(operation.name, operands, with_axis(operation, axis))
    assert isinstance(caught.value, IndexError)
    assert isinstance(caught.value, ValueError)


def test_axes_are_in_thirty_operations_or_more() -> None:
    assert len(WITH_AXES) > 40


def test_a_remembered_plan_tells_scalars_by_type() -> None:
    planner, x = Planner(), ArraySpec((3,), np.dtype("int32"))
    dtypes: list[str] = [planner.plan("add", (x, scalar), {})[0].outputs[0].dtype.name for scalar in (1, 1.0, True, 1j)]
    assert dtypes == ["int32", "float64", "int32", "complex128"]
    kinds: list[Callable[[float], Any]] = [bool, int, float]
    filled = [planner.plan("full", (), {"shape": 1, "fill_value": kind(1)})[0].outputs[0].dtype.name for kind in kinds]
    assert filled == ["bool", "int64", "float64"]


def test_erf_is_right_to_2e_7() -> None:
    import math

    x = np.linspace(-5, 5, 2001, dtype=np.float32)
    (result,) = run_kernel("special.erf", (x,), {})
    assert max(abs(float(r) - math.erf(float(v))) for r, v in zip(result, x, strict=True)) < 2e-7


@pytest.mark.parametrize(
    ("name", "operands", "given"),
    [
        ("repeat", (ArraySpec((1,), F), ArraySpec((1,), np.dtype("int64"))), {}),
        ("diff", (ArraySpec((8000,), F), None, None), {"n": 5000}),
        ("linalg.matrix_power", (ArraySpec((20, 20), F),), {"n": 2**60}),
        ("linalg.svd", (ArraySpec((30, 30), F),), {}),
        ("tensordot", (ArraySpec((400, 300), F), ArraySpec((300, 2), F)), {"axes": 1}),
        ("isin", (ArraySpec((2,), F), ArraySpec((5000,), F)), {}),
        ("gather", (ArraySpec((8000, 1000), F), ArraySpec((8000,), np.dtype("bool"))), {"key": ("array",)}),
        ("setitem", (ArraySpec((1000, 1000), F), 0.0), {"key": 1}),
        ("gather", (ArraySpec((8000, 1), F), MASK, ArraySpec((8000, 1), np.dtype("int64"))), {"key": ("array",) * 2}),
        ("diff", (ArraySpec((0, 10**6), F), None, None), {"n": 10**6}),
        ("diff", (ArraySpec((1,), F), ArraySpec((60_000,), F), None), {"n": 60_000}),
        ("broadcast_arrays", (ArraySpec((1,), F),) * 4096, {}),
        ("roll", (ArraySpec((2,) * 13, F),), {"shift": (1,) * 13, "axis": tuple(range(13))}),
        ("matmul", (ArraySpec((75, 75), np.dtype("int64")),) * 2, {}),
        ("linalg.solve", (ArraySpec((1, 1), F), ArraySpec((8000, 1, 1), F)), {}),
        ("linalg.det", (ArraySpec((8000, 1, 1), F),), {}),
        ("sum", (ArraySpec((8000, 2), F),), {"axis": 1}),
        ("fft.fftn", (ArraySpec((1,) * 64, F),), {}),
        ("exp", (ArraySpec((4000,), np.dtype("float16")),), {}),
        ("nonzero", (ArraySpec((*(1,) * 63, 9000), F),), {}),
    ],
    ids=lambda value: None,
)  # fmt: skip
def test_what_may_take_long_is_not_for_the_loop(name: str, operands: tuple[Any, ...], given: dict[str, Any]) -> None:
    assert Planner().plan(name, operands, given)[0].cost_seconds > INLINE_SECONDS


def test_an_assignment_by_a_mask_counts_all_that_it_may_write() -> None:
    plan, _ = Planner().plan(
        "scatter", (ArraySpec((5000, 5000), F), 1.0, ArraySpec((5000,), MASK.dtype)), {"key": ("array",)}
    )
    assert plan.in_place_seconds > INLINE_SECONDS


def test_more_shifts_than_dimensions_are_planned() -> None:
    given = {"shift": (1,) * 2000, "axis": (0,) * 2000}
    assert Planner().plan("roll", (ArraySpec((5,), F),), given)[0].outputs == (ArraySpec((5,), F),)


def test_a_row_assigned_in_place_is_for_the_loop() -> None:
    plan, _ = Planner().plan("setitem", (ArraySpec((1000, 1000), F), 0.0), {"key": 1})
    assert plan.in_place_seconds < INLINE_SECONDS < plan.cost_seconds
