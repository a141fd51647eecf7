"""`Namespace`: the array API standard's functions, bound to a session, made from the catalogue.

A function comes into being when it is first used: its exact signature is compiled from the catalogue's row.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from eagerd.array import Array
from eagerd_protocol.catalogue import CATALOGUE, Operation
from eagerd_protocol.dtypes import DTYPE_NAMES, as_dtype
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.parameters import as_device

if TYPE_CHECKING:
    from eagerd.session import EagerSession

_CONSTANTS: Final = {"e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None, "pi": np.pi}
_DTYPE_FUNCTIONS: Final = ("can_cast", "finfo", "iinfo", "isdtype", "result_type")
_NO_FUNCTIONS: Final = {"getitem", "setitem"}
"""Operations that are reached by indexing, not by name."""


class Namespace:
    """The functions, dtypes and constants of one session; `special` and `linalg` are namespaces within."""

    __array_api_version__ = "2024.12"

    def __init__(self, session: "EagerSession", prefix: str = "") -> None:
        self._session = session
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"<array namespace {self._prefix or 'of'} {self._session!r}>"

    def __dir__(self) -> list[str]:
        names = {
            name.removeprefix(self._prefix).partition(".")[0]
            for name in CATALOGUE.keys() - _NO_FUNCTIONS
            if name.startswith(self._prefix)
        }
        if not self._prefix:
            names |= {*DTYPE_NAMES, *_CONSTANTS, *_DTYPE_FUNCTIONS, "asarray"}
        return sorted(names)

    def __getattr__(self, name: str) -> Any:
        full_name = self._prefix + name
        operation = CATALOGUE.get(full_name)
        found: Any
        if operation is not None and full_name not in _NO_FUNCTIONS:
            found = make_function(operation, self._session)
        elif any(known.startswith(f"{full_name}.") for known in CATALOGUE):
            found = Namespace(self._session, f"{full_name}.")
        elif not self._prefix and name in _CONSTANTS:
            found = _CONSTANTS[name]
        elif not self._prefix and name in DTYPE_NAMES:
            found = np.dtype(name)
        elif not self._prefix and name in _DTYPE_FUNCTIONS:
            found = _dtype_function(name)
        else:
            raise AttributeError(f"the array namespace has no {full_name!r}")
        self.__dict__[name] = found  # the next look-up finds it without coming here
        return found

    def asarray(
        self, obj: object, /, *, dtype: object = None, device: object = None, copy: bool | None = None
    ) -> Array:
        """Return `obj` as an array of the session: a scalar, nested sequences or a buffer are uploaded.

        Raises
        ------
        InvalidTypeError
            The dtype is one that eagerd does not carry.
        InvalidArgumentError
            `copy` is False, and an upload would copy.
        """
        as_device(device)
        wanted = None if dtype is None else as_dtype(dtype)
        if type(obj) is Array:
            if obj.session is self._session:
                if wanted is not None and wanted != obj.dtype:
                    if copy is False:
                        raise InvalidArgumentError(f"{obj.dtype} cannot become {wanted} without a copy")
                    return obj.astype(wanted)
                return obj.astype(obj.dtype) if copy else obj
            obj = obj.numpy()
        if copy is False:
            raise InvalidArgumentError("an upload always copies; use copy=None")
        return self._session.upload(obj, wanted)


def make_function(operation: Operation, session: "EagerSession") -> Callable[..., Any]:
    """Compile the function of a catalogue row: its signature exactly, and one call."""
    short = operation.name.rpartition(".")[2]
    parts, markers = _parts_of(operation)
    operands = "".join(f"*{p.name}, " if p.kind == "operands" else f"{p.name}, " for p in operation.operands)
    lines = [f"def {short}({parts}):", "    given = {}"]
    for parameter in operation.attributes.values():
        line = f"given[{parameter.name!r}] = {parameter.name}"
        default = parameter.default
        if not parameter.is_required:
            compare = "is not" if default is None or isinstance(default, bool) else "!="
            line = f"if {parameter.name} {compare} {default!r}: {line}"
        lines.append(f"    {line}")
    lines.append(f"    return finish(run({operation.name!r}, ({operands}), given))")
    scope: dict[str, Any] = {"run": session.run, "finish": _finisher(operation)}
    exec("\n".join(lines), scope)
    function: Callable[..., Any] = scope[short]
    function.__doc__ = f"``{operation.name}`` of the array API standard, computed by the daemon.{markers}"
    function.__module__ = __name__
    return function


def _parts_of(operation: Operation) -> tuple[str, str]:
    """Return the signature without our annotations, and what the docstring adds for named outputs."""
    import ast

    (definition,) = ast.parse(f"def f{operation.signature}: ...").body
    assert isinstance(definition, ast.FunctionDef)
    arguments = definition.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    outputs = f" Returns ({', '.join(operation.outputs)})." if operation.outputs else ""
    return ast.unparse(arguments), outputs


def _finisher(operation: Operation) -> Callable[[tuple[Array, ...]], Any]:
    """Return what makes the function's result of the outputs: the only one, a tuple, or a named tuple."""
    if operation.outputs:
        name = operation.name.rpartition(".")[2].title().replace("_", "") + "Result"
        result_type: Any = NamedTuple(name, [(output, Array) for output in operation.outputs])  # type: ignore[misc]
        return lambda outputs: result_type(*outputs)
    if operation.has_many_outputs:
        return lambda outputs: outputs
    return lambda outputs: outputs[0]


def _dtype_function(name: str) -> Callable[..., Any]:
    """Functions of dtypes alone are numpy's, which take ours as dtypes."""
    function = getattr(np, name)

    def call(*arguments: object) -> Any:
        try:
            return function(*(a.dtype if type(a) is Array else a for a in arguments))
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"{name}: {error}") from None

    call.__name__ = name
    call.__doc__ = f"``{name}`` of the array API standard, for dtypes and arrays; no round trip."
    return call
