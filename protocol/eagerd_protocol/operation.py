"""`Operation`: one row of the catalogue: its name, signature, rule and cost, and what follows from them."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from eagerd_protocol.errors import EagerdError, InvalidArgumentError, InvalidTypeError
from eagerd_protocol.limits import INLINE_BYTES, MAX_OPERANDS
from eagerd_protocol.parameters import KINDS
from eagerd_protocol.rules.checks import Rule
from eagerd_protocol.specs import ArraySpec, OperandSpec, Plan

_BYTE_SECONDS: Final = 0.5e-9
"""To write one byte of a result that lies in a segment: fresh pages cost a page fault each."""

_CALL_SECONDS: Final = 2e-6
_ARRAY_SECONDS: Final = 0.5e-6
"""For each operand and output: naming it, and numpy's own bookkeeping."""

_SLOW_DTYPES: Final = {"float16": 8.0, "complex64": 6.0, "complex128": 6.0}
"""How much longer an element takes than one of float64: numpy has no instructions for half precision."""

Work: TypeAlias = Callable[[Sequence[ArraySpec], Sequence[ArraySpec], Mapping[str, Any]], float]


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
    """About how long one element of the largest operand or result takes, or one unit of `work`."""

    work: Work | None = None
    """How much there is to do, where that is not the size of the largest operand or result."""

    size_in_place: Callable[[Sequence[OperandSpec], Mapping[str, Any]], int] | None = None
    """How many elements are written where the output may take the place of the first operand, if not all are."""

    is_view: bool = False
    """The outputs share their operand's memory."""

    has_many_outputs: bool = False
    """The outputs come as a tuple, however many there are."""

    is_memoisable: bool = True
    """The same specs and parameters always give the same plan; not where a scalar's own value decides."""

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters of the signature, in its order."""
        arguments = self._parse_signature()
        plain = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
        defaults += [*arguments.defaults, *arguments.kw_defaults]
        pairs = zip([*plain, *arguments.kwonlyargs], defaults, strict=True)
        found = [_parameter(argument, default) for argument, default in pairs]
        if arguments.vararg is not None:
            found.insert(len(plain), Parameter(arguments.vararg.arg, "operands"))
        return tuple(found)

    @cached_property
    def public_signature(self) -> str:
        """The signature as the standard has it, without our annotations."""
        arguments = self._parse_signature()
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            argument.annotation = None
        return f"({ast.unparse(arguments)})"

    def _parse_signature(self) -> ast.arguments:
        (function,) = ast.parse(f"def f{self.signature}: ...").body
        assert isinstance(function, ast.FunctionDef)
        return function.args

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
        fixed = [p for p in self.operands if p.kind == "operand"]
        if len(operands) < len(fixed) or (not self.is_variadic and len(operands) > len(fixed)):
            at_least = "at least " if self.is_variadic else ""
            raise InvalidArgumentError(f"{self.name} takes {at_least}{len(fixed)} operands, not {len(operands)}")
        if len(operands) > MAX_OPERANDS:
            raise InvalidArgumentError(f"{self.name} of {len(operands)} operands; at most {MAX_OPERANDS} are possible")
        for parameter, operand in zip(fixed, operands, strict=False):
            if operand is None and parameter.is_required:
                raise InvalidTypeError(f"{self.name} needs the operand {parameter.name!r}")
        try:
            outputs = self.rule(operands, parameters)
        except EagerdError as error:
            raise type(error)(f"{self.name}: {error}", **error.details) from None
        if len(outputs) > MAX_OPERANDS:
            raise InvalidArgumentError(f"{self.name} into {len(outputs)} outputs; at most {MAX_OPERANDS} are possible")
        seconds = in_place_seconds = self._estimate_seconds(operands, outputs, parameters)
        if self.size_in_place is not None:
            in_place_seconds = _CALL_SECONDS + self.size_in_place(operands, parameters) * self.element_seconds
        return Plan(outputs, seconds, in_place_seconds, self.is_view, sum(spec.nbytes for spec in outputs))

    def _estimate_seconds(
        self, operands: Sequence[OperandSpec], outputs: tuple[ArraySpec, ...], parameters: Mapping[str, Any]
    ) -> float:
        arrays = [spec for spec in operands if isinstance(spec, ArraySpec)]
        seconds = _CALL_SECONDS + (len(arrays) + len(outputs)) * _ARRAY_SECONDS
        if self.is_view:
            return seconds
        if self.work is None:
            work: float = max((spec.size for spec in (*arrays, *outputs)), default=0)
        else:
            work = self.work(arrays, outputs, parameters)
        slowest = max((_SLOW_DTYPES.get(spec.dtype.name, 1.0) for spec in (*arrays, *outputs)), default=1.0)
        written = sum(spec.nbytes for spec in outputs)
        seconds += work * self.element_seconds * slowest
        return seconds + written * _BYTE_SECONDS if written > INLINE_BYTES else seconds


def _parameter(argument: ast.arg, default: ast.expr | None) -> Parameter:
    value = None if default is None else ast.literal_eval(default)
    if argument.annotation is None:
        kind = "operands" if argument.arg == "arrays" else "operand"
    else:
        kind = ast.literal_eval(argument.annotation)
    return Parameter(argument.arg, kind, value, default is None)
