"""The rules of the catalogue against what numpy really computes, and the mistakes that they catch."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eagerd_daemon.kernels import run_kernel
from eagerd_protocol.catalogue import CATALOGUE
from eagerd_protocol.errors import CallerError, EagerdError, InvalidArgumentError, InvalidIndexError, InvalidTypeError
from eagerd_protocol.planner import Planner
from eagerd_protocol.specs import ArraySpec

REAL = ("bool", "int8", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
SHAPES = [(), (3,), (2, 3), (0, 3), (4, 1, 3)]

Case = tuple[tuple[Any, ...], dict[str, Any]]


def array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> "np.ndarray[Any, Any]":
    values = np.random.default_rng(seed).integers(1, 5, shape)
    return np.asarray(values).astype(dtype)


def each(shapes: list[tuple[int, ...]], dtypes: tuple[str, ...], *parameters: dict[str, Any]) -> list[Case]:
    """One operand of every shape and dtype, with each set of parameters."""
    return [((array(s, d),), p) for s, d, p in itertools.product(shapes, dtypes, parameters or ({},))]


def pairs() -> list[Case]:
    mixed = [*zip(REAL, REAL, strict=True), ("int8", "uint8"), ("float32", "float64"), ("int32", "float32")]
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((2, 3), (3,)), ((), (4,)), ((2, 1), (1, 3)), ((), ())]
    cases: list[Case] = [((array(a, d), array(b, e, 1)), {}) for (a, b), (d, e) in itertools.product(shapes, mixed)]
    cases += [((array((3,), d), 2), {}) for d in REAL] + [((1.5, array((3,), d)), {}) for d in REAL]
    cases += [((array((2,), "complex64"), array((2,), "complex128")), {}), ((array((2,), "float32"), 1j), {})]
    return cases


UNARY = each(SHAPES, (*REAL, *COMPLEX))
AXES: tuple[dict[str, Any], ...] = (
    {},
    {"axis": 0},
    {"axis": -1, "keepdims": True},
    {"axis": (0, 1)},
    {"keepdims": True},
)
FULL = [(3,), (2, 3), (4, 1, 3)]

CASES: dict[str, list[Case]] = {
    **{name: UNARY for name, row in CATALOGUE.items() if row.signature == "(x, /)"},
    **{name: pairs() for name, row in CATALOGUE.items() if row.signature == "(x1, x2, /)"},
    "clip": [((array((2, 3), d), 2, 3), {}) for d in REAL[1:]] + [((array((2, 3), "float32"), None, 2.5), {})],
    "where": [((array((2, 3), "bool"), array((3,), d), 1), {}) for d in REAL],
    "astype": each(SHAPES, REAL, {"dtype": "float32"}, {"dtype": "int8"}, {"dtype": "bool", "copy": False}),
    **{name: each(SHAPES, (*REAL, *COMPLEX), *AXES, {"dtype": "float64"}) for name in ("sum", "prod")},
    **{name: each(FULL, (*REAL, *COMPLEX), *AXES) for name in ("mean", "all", "any", "count_nonzero")},
    **{name: each(FULL, (*REAL, *COMPLEX), *AXES, {"correction": 1.0}) for name in ("std", "var")},
    **{name: each(FULL, REAL, *AXES) for name in ("max", "min")},
    **{name: each(FULL, REAL, {}, {"axis": 0}, {"axis": -1, "keepdims": True}) for name in ("argmax", "argmin")},
    **{
        name: each(FULL, REAL, {"axis": 0}, {"axis": -1, "include_initial": True}, {"axis": 0, "dtype": "float64"})
        for name in ("cumulative_sum", "cumulative_prod")
    },
    **{name: each(FULL, REAL, {}, {"descending": True}, {"axis": 0, "stable": False}) for name in ("sort", "argsort")},
    "matmul": [
        ((array(a, d), array(b, d, 1)), {})
        for d in (*REAL, *COMPLEX)
        for a, b in [((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 2)), ((5, 2, 3), (3,)), ((5, 1, 2, 3), (4, 3, 2))]
    ],
    "matrix_transpose": each([(2, 3), (4, 2, 3)], REAL),
    "linalg.svd": each([(3, 2), (2, 3), (4, 3, 3)], ("float32", "float64", "complex64"), {}, {"full_matrices": False}),
    "reshape": each([(2, 3)], REAL, {"shape": (6,)}, {"shape": (3, -1)}, {"shape": (1, 6), "copy": True}),
    "permute_dims": each([(4, 2, 3)], REAL, {"axes": (2, 0, 1)}, {"axes": (-1, 0, 1)}),
    "broadcast_to": each([(3,), ()], REAL, {"shape": (2, 3)}, {"shape": (0, 3)}),
    "broadcast_arrays": [((array((3,), "int8"), array((2, 1), "float32")), {}), ((array((), "bool"),), {})],
    "expand_dims": each(SHAPES, ("float32",), {}, {"axis": -1}),
    "squeeze": each([(4, 1, 3), (1, 1)], ("float32",), {"axis": 1}, {"axis": (-2,)}),
    "flip": each(FULL, ("float32",), {}, {"axis": 0}),
    "concat": [((array((2, 3), a), array((1, 3), b)), p) for a, b in [("int8", "uint8"), ("float32", "float64")]
               for p in ({}, {"axis": None})],
    "stack": [((array((2, 3), "int8"), array((2, 3), "float32")), p) for p in ({}, {"axis": -1}, {"axis": 1})],
    "unstack": each([(2, 3)], REAL, {}, {"axis": 1}),
    "take": [((array((4, 3), d), array((5,), "int64") - 1), {"axis": a}) for d in REAL for a in (0, -2)],
    "getitem": each([(4, 5)], REAL, {"key": 1}, {"key": (slice(None, None, -2), None, ...)}, {"key": (1, 2)}),
    "setitem": [((array((4, 5), "float32"), array((5,), "int8")), {"key": 1}), ((array((4,), "int8"), 3), {"key": 0})],
    "nonzero": each(FULL, REAL),
    **{
        name: each([s, (0,)], ("int8", "float32", "complex64"), {"dtype": None}, {"dtype": "int32"})
        for name in ("empty_like", "ones_like", "zeros_like")
        for s in FULL[:1]
    },
    **{
        name: [((), {"shape": s, "dtype": d}) for s in (3, (2, 3), (), (0, 4)) for d in (None, "int8", "complex64")]
        for name in ("empty", "ones", "zeros")
    },
    "full": [((), {"shape": (2, 3), "fill_value": v}) for v in (True, 3, 2.5, 1j)]
    + [((), {"shape": 2, "fill_value": 3, "dtype": "uint8"})],
    "full_like": [((array((2, 3), "float32"),), {"fill_value": 3}), ((array((2,), "int8"),), {"fill_value": -3})],
    "arange": [((), p) for p in (
        {"start": 5}, {"start": 1, "stop": 10, "step": 3}, {"start": 5, "stop": -5, "step": -2},
        {"start": 0.0, "stop": 1.0, "step": 0.3}, {"start": 0, "stop": 1, "step": 0.1})],
    "linspace": [((), {"start": 0, "stop": 1, "num": n, **p}) for n in (0, 1, 7)
                 for p in ({}, {"endpoint": False}, {"dtype": "float32"}, {"stop": 1j})],
    "eye": [((), p) for p in ({"n_rows": 3}, {"n_rows": 2, "n_cols": 4, "k": 1}, {"n_rows": 0, "dtype": "int8"})],
    **{name: each([(3, 4), (2, 3, 3)], REAL, {}, {"k": 1}) for name in ("tril", "triu")},
    "special.erf": each(SHAPES, ("float32", "float64")),
}  # fmt: skip


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_rule_gives_what_numpy_computes(name: str) -> None:
    computed = 0
    for operands, given in CASES[name]:
        specs = tuple(ArraySpec(o.shape, o.dtype) if isinstance(o, np.ndarray) else o for o in operands)
        try:
            plan, parameters = Planner().plan(name, specs, given)
        except CallerError:
            continue  # numpy would refuse it, or the standard does; the table of mistakes says which
        with np.errstate(all="ignore"):
            results = run_kernel(name, operands, parameters)
        computed += 1
        assert len(results) == len(plan.outputs)
        for result, spec in zip(results, plan.outputs, strict=True):
            assert result.dtype == spec.dtype, (specs, given)
            assert len(result.shape) == len(spec.shape), (specs, given)
            known = zip(result.shape, spec.shape, strict=True)
            assert all(planned in (None, real) for real, planned in known), (specs, given, result.shape, spec.shape)
            shares = any(isinstance(o, np.ndarray) and np.shares_memory(o, result) for o in operands)
            assert not (shares and not plan.is_view and name not in ("reshape", "astype", "real", "imag")), name
    assert computed >= 2, "no case was accepted"


F = np.dtype("float32")


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
    ],
    ids=lambda value: None,
)  # fmt: skip
def test_a_mistake_is_named(
    name: str, operands: tuple[Any, ...], given: dict[str, Any], error: type[EagerdError], words: str
) -> None:
    with pytest.raises(error, match=words):
        Planner().plan(name, operands, given)


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
