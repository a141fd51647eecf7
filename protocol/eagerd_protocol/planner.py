"""`Planner`: remembers what the rules say of operations that come again and again."""

from collections.abc import Mapping
from typing import Any

from eagerd_protocol.catalogue import get_operation
from eagerd_protocol.dtypes import BOOL, DType
from eagerd_protocol.errors import EagerdError
from eagerd_protocol.rules.checks import check_scalar
from eagerd_protocol.specs import ArraySpec, OperandSpec, Plan


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
            tuple([(k, type(v), v) for k, v in given.items()]) if given else (),
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
            # Beware: True == 1 == 1.0 as keys, within tuples.
            if is_hashable and operation.is_memoisable:
                if len(self._plans) >= self.MOST:
                    self._plans.clear()
                self._plans[key] = found
        for operand in operands:
            if type(operand) is int and get_operation(name).is_memoisable:
                _check_weak_integer(name, operand, found[0].outputs[0].dtype)
        return found


def _check_weak_integer(name: str, value: int, dtype: DType) -> None:
    """Refuse a Python integer that the dtype it is weakly promoted to cannot hold."""
    if dtype == BOOL:  # a comparison: numpy compares exactly whatever the size
        return
    try:
        check_scalar(value, dtype)
    except EagerdError as error:
        raise type(error)(f"{name}: {error}") from None
