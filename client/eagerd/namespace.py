"""`Namespace`: the array API standard's functions, bound to a session, made from the catalogue.

A function comes into being when it is first used: its exact signature is compiled from the catalogue's row.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from eagerd import dtype_functions
from eagerd.array import Array
from eagerd.namespace_info import NamespaceInfo
from eagerd_protocol.catalogue import ALIASES, CATALOGUE, INDEXING, LOCAL_FUNCTIONS
from eagerd_protocol.dtypes import DTYPE_NAMES, as_dtype
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.operation import Operation
from eagerd_protocol.parameters import as_device

if TYPE_CHECKING:
    from eagerd.session import EagerSession

API_VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
_CONSTANTS: Final = {"e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None, "pi": np.pi}
_FUNCTION_NAMES: Final = frozenset({*CATALOGUE, *ALIASES, *LOCAL_FUNCTIONS} - INDEXING)


class Namespace:
    """The functions, dtypes and constants of one session; `linalg`, `fft` and `special` are namespaces within."""

    __array_api_version__: str

    def __init__(self, session: "EagerSession", prefix: str = "", api_version: str = API_VERSIONS[-1]) -> None:
        self._session = session
        self._prefix = prefix
        self.__name__ = f"eagerd.{prefix}".rstrip(".")  # array-api-compat knows namespaces by it
        self.__array_api_version__ = api_version
        self._versions = {api_version: self}

    def __repr__(self) -> str:
        return f"<array namespace {self._prefix.rstrip('.') or 'of'} {self._session!r}>"

    def __dir__(self) -> list[str]:
        names = {
            name.removeprefix(self._prefix).partition(".")[0]
            for name in _FUNCTION_NAMES
            if name.startswith(self._prefix)
        }
        if not self._prefix:
            names |= {*DTYPE_NAMES, *_CONSTANTS, "__array_api_version__"}
        return sorted(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of Python's own protocols, such as copying, which ask before there is a prefix
            raise AttributeError(name)
        full_name = self._prefix + name
        found: Any
        if full_name in ALIASES:
            found = getattr(self._session.namespace, ALIASES[full_name])
        elif full_name in CATALOGUE and full_name not in INDEXING:
            found = make_function(CATALOGUE[full_name], self._session, self.__array_api_version__)
        elif any(known.startswith(f"{full_name}.") for known in CATALOGUE):
            found = Namespace(self._session, f"{full_name}.", self.__array_api_version__)
        elif not self._prefix and name in _CONSTANTS:
            found = _CONSTANTS[name]
        elif not self._prefix and name in DTYPE_NAMES:
            found = getattr(np, name)  # the scalar type, as in numpy: equal to the dtype, and callable
        elif not self._prefix and name in LOCAL_FUNCTIONS:
            found = getattr(dtype_functions, name)
        else:
            raise AttributeError(f"the array namespace has no {full_name!r}{_hint(full_name)}")
        self.__dict__[name] = found  # the next look-up finds it without coming here
        return found

    def __array_namespace_info__(self) -> NamespaceInfo:
        """Return what the namespace can do: capabilities, devices, dtypes."""
        return NamespaceInfo(self.__array_api_version__)

    def of_version(self, api_version: str | None) -> "Namespace":
        """Return the namespace as a version of the standard has it; None for this one."""
        if api_version is None:
            return self
        if api_version not in API_VERSIONS:
            raise InvalidArgumentError(f"array API {api_version!r} is not known; known are {', '.join(API_VERSIONS)}")
        if api_version not in self._versions:
            self._versions[api_version] = Namespace(self._session, api_version=api_version)
        return self._versions[api_version]

    def asarray(
        self, obj: object, /, *, dtype: object = None, device: object = None, copy: bool | None = None
    ) -> Array:
        """Return `obj` as an array of the session: a scalar, nested sequences or a buffer are uploaded.

        Raises
        ------
        InvalidTypeError
            The dtype is one that eagerd does not carry.
        InvalidArgumentError
            `copy` is False, and an upload would copy; or sequences are ragged, or a value does not fit the dtype.
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

    def from_dlpack(self, x: Any, /, *, device: object = None, copy: bool | None = None) -> Array:
        """Return the array of another library, on the CPU, as an array of the session; its bytes are uploaded.

        Raises
        ------
        InvalidTypeError
            `x` does not speak DLPack, or its dtype is one that eagerd does not carry.
        BufferError
            Its memory cannot be reached from the CPU, or `copy` is False, and an upload would copy.
        """
        as_device(device)
        if type(x) is Array:
            if x.session is self._session:
                return x.astype(x.dtype) if copy else x
        elif not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
            raise InvalidTypeError(f"{type(x).__name__} does not speak DLPack; use asarray")
        if copy is False:
            raise BufferError("an upload always copies; use copy=None")
        return self._session.upload(np.from_dlpack(x))


def _hint(name: str) -> str:
    from difflib import get_close_matches  # only for the message

    near = get_close_matches(name, _FUNCTION_NAMES, 3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def make_function(operation: Operation, session: "EagerSession", api_version: str) -> Callable[..., Any]:
    """Compile the function of a catalogue row: its signature exactly, and one call."""
    short = operation.name.rpartition(".")[2]
    operands = "".join(f"*{p.name}, " if p.kind == "operands" else f"{p.name}, " for p in operation.operands)
    lines = [f"def {short}{operation.public_signature}:", "    given = {}"]
    scope: dict[str, Any] = {"Array": Array, "run": session.run, "finish": _finisher(operation, api_version)}
    for parameter in operation.attributes.values():
        line = f"given[{parameter.name!r}] = {parameter.name}"
        if parameter.name == "fill_value":  # scipy fills with arrays of no dimensions, as numpy lets it
            line += ".item() if type(fill_value) is Array else fill_value"
        if not parameter.is_required:  # by identity: 1.0 is not 1, and an array is compared with nothing
            scope[f"{parameter.name}_default"] = parameter.default
            line = f"if {parameter.name} is not {parameter.name}_default: {line}"
        lines.append(f"    {line}")
    lines.append(f"    return finish(run({operation.name!r}, ({operands}), given))")
    exec("\n".join(lines), scope)
    function: Callable[..., Any] = scope[short]
    returns = f" Returns ({', '.join(operation.outputs)})." if operation.outputs else ""
    function.__doc__ = f"``{operation.name}`` of the array API standard, computed by the daemon.{returns}"
    function.__module__ = __name__
    return function


def _finisher(operation: Operation, api_version: str) -> Callable[[tuple[Array, ...]], Any]:
    """Return what makes the function's result of the outputs: the only one, a tuple, or a named tuple."""
    if operation.outputs:
        name = operation.name.rpartition(".")[2].title().replace("_", "") + "Result"
        result_type: Any = NamedTuple(name, [(output, Array) for output in operation.outputs])  # type: ignore[misc]
        return lambda outputs: result_type(*outputs)
    if operation.has_many_outputs and operation.is_variadic and api_version < "2025.12":
        return list  # of broadcast_arrays and meshgrid, as the standard had it
    if operation.has_many_outputs:
        return lambda outputs: outputs
    return lambda outputs: outputs[0]
