"""The catalogue of operations: one table from which the client's namespace, the daemon's dispatch, the
documentation and the tests derive.

A row is a name, a signature in Python's own notation, and a rule. In a signature a parameter without an
annotation is an operand: an array, or a Python scalar where the rule allows one; ``arrays`` and ``*arrays``
take any number. An annotation names one of `parameters.KINDS`. Operands come before other parameters.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from eagerd_protocol import rules
from eagerd_protocol.dtypes import BOOL, DEFAULT_FLOAT, DType
from eagerd_protocol.errors import EagerdError, InvalidArgumentError
from eagerd_protocol.limits import INLINE_BYTES
from eagerd_protocol.parameters import KINDS
from eagerd_protocol.rules import Rule
from eagerd_protocol.specs import ArraySpec, OperandSpec, Plan

_BYTE_SECONDS: Final = 0.5e-9
"""To write one byte of a result that lies in a segment: fresh pages cost a page fault each."""

_CALL_SECONDS: Final = 2e-6


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a signature."""

    name: str
    kind: str
    """A key of `KINDS`; "operand" or "operands" for arrays."""

    default: Any = None
    is_required: bool = True


@dataclass(frozen=True)
class Operation:
    """One row of the catalogue."""

    name: str
    """Dotted where the operation lives in a namespace of its own: ``linalg.svd``, ``special.erf``."""

    signature: str
    rule: Rule
    outputs: tuple[str, ...] = ()
    """Names of the outputs where there are several and the standard names them."""

    element_seconds: float = 0.5e-9
    """About how long one element of the largest operand or result takes."""

    is_view: bool = False
    """The outputs share their operand's memory."""

    has_many_outputs: bool = False
    """The outputs come as a tuple, however many there are."""

    is_memoisable: bool = True
    """The same specs and parameters always give the same plan; not where a scalar's own value decides."""

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters of the signature, operands first."""
        (function,) = ast.parse(f"def f{self.signature}: ...").body
        assert isinstance(function, ast.FunctionDef)
        arguments = function.args
        plain = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
        defaults += [*arguments.defaults, *arguments.kw_defaults]
        pairs = zip([*plain, *arguments.kwonlyargs], defaults, strict=True)
        found = [_parameter(argument, default) for argument, default in pairs]
        if arguments.vararg is not None:
            found.insert(0, Parameter(arguments.vararg.arg, "operands"))
        return tuple(found)

    @cached_property
    def operands(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.kind.startswith("operand"))

    @cached_property
    def attributes(self) -> Mapping[str, Parameter]:
        """The parameters that are no operands, by name."""
        return {p.name: p for p in self.parameters if not p.kind.startswith("operand")}

    @cached_property
    def is_variadic(self) -> bool:
        return any(p.kind == "operands" for p in self.operands)

    def check_parameters(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return all parameters in wire form, defaults filled in.

        Raises
        ------
        InvalidArgumentError
            A parameter is unknown, missing, or has a wrong value; the message names it.
        """
        for name in given:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise InvalidArgumentError(f"{self.name} has no parameter {name!r}; it has: {known}")
        checked = {}
        for name, parameter in self.attributes.items():
            if name in given:
                try:
                    checked[name] = KINDS[parameter.kind](given[name])
                except EagerdError as error:
                    raise type(error)(f"{self.name}: {name}: {error}", **error.details) from None
            elif parameter.is_required:
                raise InvalidArgumentError(f"{self.name} needs the parameter {name!r}")
            else:
                checked[name] = parameter.default
        return checked

    def plan(self, operands: Sequence[OperandSpec], parameters: Mapping[str, Any]) -> Plan:
        """Infer the outputs and estimate the cost; raise what the operation would raise.

        `parameters` is what `check_parameters` returned; all shapes of `operands` are known.
        """
        if not self.is_variadic and len(operands) != len(self.operands):
            raise InvalidArgumentError(f"{self.name} takes {len(self.operands)} operands, not {len(operands)}")
        for parameter, operand in zip(self.operands, operands, strict=False):
            if operand is None and parameter.is_required:
                raise InvalidArgumentError(f"{self.name} needs the operand {parameter.name!r}")
        try:
            outputs = self.rule(operands, parameters)
        except EagerdError as error:
            raise type(error)(f"{self.name}: {error}", **error.details) from None
        return Plan(outputs, self._estimate_seconds(operands, outputs), self.is_view)

    def _estimate_seconds(self, operands: Sequence[OperandSpec], outputs: tuple[ArraySpec, ...]) -> float:
        if self.is_view:
            return _CALL_SECONDS
        arrays = [spec for spec in operands if isinstance(spec, ArraySpec)]
        work = max((spec.size for spec in (*arrays, *outputs)), default=0)
        if self.rule is rules.matmul:
            work = outputs[0].size * (arrays[0].shape[-1] or 0)
        written = sum(spec.nbytes for spec in outputs)
        seconds = _CALL_SECONDS + work * self.element_seconds
        return seconds + written * _BYTE_SECONDS if written > INLINE_BYTES else seconds


def _parameter(argument: ast.arg, default: ast.expr | None) -> Parameter:
    value = None if default is None else ast.literal_eval(default)
    if argument.annotation is None:
        kind = "operands" if argument.arg == "arrays" else "operand"
    else:
        kind = ast.literal_eval(argument.annotation)
    return Parameter(argument.arg, kind, value, default is None)


def _words(text: str) -> list[str]:
    return text.split()


def _rows() -> Iterable[Operation]:
    row = Operation
    unary, binary = "(x, /)", "(x1, x2, /)"
    named = rules.named

    # Elementwise: one row for each ufunc of the standard, whose names numpy shares.
    for name in _words("abs bitwise_invert ceil conj floor isfinite isinf isnan logical_not negative positive"):
        yield row(name, unary, named(name))
    for name in _words("reciprocal sign signbit square sqrt trunc"):
        yield row(name, unary, named(name), element_seconds=1e-9)
    for name in _words("acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 sin sinh tan tanh"):
        yield row(name, unary, named(name), element_seconds=10e-9)
    for name in _words(
        "add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal greater "
        "greater_equal less less_equal logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal "
        "subtract"
    ):
        yield row(name, binary, named(name))
    for name in _words("atan2 floor_divide hypot logaddexp pow remainder"):
        yield row(name, binary, named(name), element_seconds=15e-9)
    yield row("round", unary, rules.numeric)
    yield row("real", unary, rules.real_part)
    yield row("imag", unary, rules.real_part)
    yield row("clip", "(x, /, min=None, max=None)", rules.clip, element_seconds=1e-9)
    yield row("where", "(condition, x1, x2, /)", rules.where, element_seconds=2e-9)
    yield row("astype", "(x, /, dtype: 'dtype', *, copy: 'bool' = True, device: 'device' = None)", rules.astype)

    # Reductions
    keep = "axis: 'ints?' = None, keepdims: 'bool' = False"
    for name in ("sum", "prod"):
        signature = "(x, /, *, axis: 'ints?' = None, dtype: 'dtype?' = None, keepdims: 'bool' = False)"
        yield row(name, signature, rules.accumulating)
    yield row("mean", f"(x, /, *, {keep})", rules.averaging)
    for name in ("std", "var"):
        signature = "(x, /, *, axis: 'ints?' = None, correction: 'scalar' = 0.0, keepdims: 'bool' = False)"
        yield row(name, signature, rules.averaging, element_seconds=4e-9)
    for name in ("max", "min"):
        yield row(name, f"(x, /, *, {keep})", rules.selecting)
    for name in ("all", "any"):
        yield row(name, f"(x, /, *, {keep})", rules.truth)
    for name in ("argmax", "argmin"):
        yield row(name, "(x, /, *, axis: 'int?' = None, keepdims: 'bool' = False)", rules.position)
    yield row("count_nonzero", f"(x, /, *, {keep})", rules.counting)
    for name in ("cumulative_sum", "cumulative_prod"):
        signature = "(x, /, *, axis: 'int?' = None, dtype: 'dtype?' = None, include_initial: 'bool' = False)"
        yield row(name, signature, rules.cumulative, element_seconds=4e-9)
    order = "(x, /, *, axis: 'int' = -1, descending: 'bool' = False, stable: 'bool' = True)"
    yield row("sort", order, rules.sorting, element_seconds=60e-9)
    yield row("argsort", order, rules.argsorting, element_seconds=80e-9)

    # Linear algebra
    yield row("matmul", binary, rules.matmul, element_seconds=0.1e-9)
    yield row("matrix_transpose", unary, rules.matrix_transpose, is_view=True)
    factors = ("U", "S", "Vh")
    yield row("linalg.svd", "(x, /, *, full_matrices: 'bool' = True)", rules.svd, factors, element_seconds=1e-6)

    # Shapes
    signature = "(x, /, shape: 'shape', *, copy: 'bool?' = None)"
    # A reshape of what is not contiguous copies, so its cost counts.
    yield row("reshape", signature, rules.reshape)
    yield row("permute_dims", "(x, /, axes: 'ints')", rules.permute_dims, is_view=True)
    yield row("broadcast_to", "(x, /, shape: 'shape')", rules.broadcast_to, is_view=True)
    yield row("broadcast_arrays", "(*arrays)", rules.broadcast_arrays, is_view=True, has_many_outputs=True)
    yield row("expand_dims", "(x, /, *, axis: 'int' = 0)", rules.expand_dims, is_view=True)
    yield row("squeeze", "(x, /, axis: 'ints')", rules.squeeze, is_view=True)
    yield row("flip", "(x, /, *, axis: 'ints?' = None)", rules.flip, is_view=True)
    yield row("concat", "(arrays, /, *, axis: 'int?' = 0)", rules.concat)
    yield row("stack", "(arrays, /, *, axis: 'int' = 0)", rules.stack)
    yield row("unstack", "(x, /, *, axis: 'int' = 0)", rules.unstack, is_view=True, has_many_outputs=True)

    # Picking
    yield row("take", "(x, indices, /, *, axis: 'int?' = None)", rules.take, element_seconds=3e-9)
    yield row("getitem", "(x, /, key: 'key')", rules.getitem, is_view=True)
    yield row("setitem", "(x, value, /, key: 'key')", rules.setitem)
    yield row("nonzero", unary, rules.nonzero, element_seconds=5e-9, has_many_outputs=True)
    for name, outputs in {
        "unique_all": ("values", "indices", "inverse_indices", "counts"),
        "unique_counts": ("values", "counts"),
        "unique_inverse": ("values", "inverse_indices"),
    }.items():
        yield row(name, unary, partial(rules.unique, outputs), outputs, element_seconds=100e-9)
    yield row("unique_values", unary, partial(rules.unique, ("values",)), element_seconds=80e-9)

    # Creation
    made: dict[str, Any] = {"element_seconds": 1e-9, "is_memoisable": False}
    tail = "dtype: 'dtype?' = None, device: 'device' = None)"
    for name in ("empty", "ones", "zeros"):
        yield row(name, f"(shape: 'shape', *, {tail}", partial(rules.filled, DEFAULT_FLOAT), **made)
        yield row(f"{name}_like", f"(x, /, *, {tail}", rules.like, **made)
    yield row("full", f"(shape: 'shape', fill_value: 'scalar', *, {tail}", rules.full, **made)
    yield row("full_like", f"(x, /, fill_value: 'scalar', *, {tail}", rules.like, **made)
    signature = f"(start: 'scalar', /, stop: 'scalar?' = None, step: 'scalar' = 1, *, {tail}"
    yield row("arange", signature, rules.arange, **made)
    signature = f"(start: 'scalar', stop: 'scalar', /, num: 'int', *, {tail[:-1]}, endpoint: 'bool' = True)"
    yield row("linspace", signature, rules.linspace, **made)
    signature = f"(n_rows: 'int', n_cols: 'int?' = None, /, *, k: 'int' = 0, {tail}"
    yield row("eye", signature, rules.eye, **made)
    for name in ("tril", "triu"):
        yield row(name, "(x, /, *, k: 'int' = 0)", rules.triangle, element_seconds=4e-9)

    # Extensions, in a namespace of their own
    yield row("special.erf", unary, rules.extension_float, element_seconds=10e-9)


CATALOGUE: Final[Mapping[str, Operation]] = {operation.name: operation for operation in _rows()}


def get_operation(name: object) -> Operation:
    """Return the row called `name`; raise `InvalidArgumentError` with the nearest names where there is none."""
    operation = CATALOGUE.get(name) if isinstance(name, str) else None
    if operation is None:
        from difflib import get_close_matches  # only for the message

        near = get_close_matches(str(name), CATALOGUE, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InvalidArgumentError(f"unknown operation {name!r}{hint}")
    return operation


class Planner:
    """Plans of operations, remembered by operation, operands' specs and parameters.

    Threads may share one: two that meet may infer the same plan twice, which does no harm.
    """

    MOST = 4096

    def __init__(self) -> None:
        self._plans: dict[Any, tuple[Plan, dict[str, Any]]] = {}

    def plan(
        self, name: str, operands: tuple[OperandSpec, ...], given: Mapping[str, object]
    ) -> tuple[Plan, dict[str, Any]]:
        """Return the plan and the checked parameters; raise what the operation would raise."""
        # A scalar's type decides, not its value: 1 and 2.0 are two keys, 1 and 2 are one.
        key = (
            name,
            tuple([o if type(o) is ArraySpec else type(o) for o in operands]),
            tuple(given.items()) if given else (),
        )
        is_hashable = True
        try:
            found = self._plans.get(key)
        except TypeError:  # a list among the parameters
            found, is_hashable = None, False
        if found is None:
            operation = get_operation(name)
            parameters = operation.check_parameters(given)
            found = operation.plan(operands, parameters), parameters
            # True == 1 == 1.0 as keys, so only parameters of which that is harmless are remembered.
            if is_hashable and operation.is_memoisable:
                if len(self._plans) >= self.MOST:
                    self._plans.clear()
                self._plans[key] = found
        for operand in operands:
            if type(operand) is int:
                check_weak_integer(name, operand, found[0].outputs[0].dtype)
        return found


def check_weak_integer(name: str, value: int, dtype: DType) -> None:
    """Refuse a Python integer that the dtype it is weakly promoted to cannot hold."""
    if dtype == BOOL:  # a comparison: numpy compares exactly whatever the size
        return
    try:
        rules.check_scalar(value, dtype)
    except EagerdError as error:
        raise type(error)(f"{name}: {error}") from None
