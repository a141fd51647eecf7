"""`Array`: a handle on a tensor in the daemon, with the array API standard's methods and operators."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from eagerd.display import as_html, as_text
from eagerd.releases import HandleReference
from eagerd_protocol.dtypes import DType
from eagerd_protocol.errors import (
    EagerdError,
    InvalidArgumentError,
    InvalidHandleError,
    InvalidIndexError,
    InvalidTypeError,
)
from eagerd_protocol.limits import INLINE_BYTES, MAX_OPERANDS
from eagerd_protocol.parameters import INDEX_ARRAY, as_key
from eagerd_protocol.rules.checks import holds
from eagerd_protocol.specs import ArraySpec

if TYPE_CHECKING:
    from eagerd.namespace import Namespace
    from eagerd.session import EagerSession

_DLPACK_CPU = (1, 0)  # kDLCPU, and its number
_SCALARS = (bool, int, float, complex, np.generic)


class Array:
    """An array of a session; immutable but for ``a[i] = v`` and in-place operators, which rebind it.

    Made by the session's namespace. Dropping the last reference (this object's, or a numpy view's) releases the
    handle. Shape and dtype are known without asking the daemon, unless they depend on data.
    """

    __slots__ = ("__weakref__", "_reference", "_spec", "session")

    __array_ufunc__ = None  # numpy's operators leave mixed expressions to ours, which say what to do
    __array_priority__ = 1000

    def __init__(self, session: "EagerSession", reference: HandleReference, spec: ArraySpec) -> None:
        self.session = session
        self._reference: HandleReference | None = reference
        self._spec = spec

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def __copy__(self) -> "Array":
        return self.astype(self.dtype)

    def __deepcopy__(self, _: object) -> "Array":
        return self.astype(self.dtype)

    def __reduce__(self) -> Any:
        raise InvalidTypeError(
            "an array cannot be pickled, for its handle means nothing elsewhere; send array.numpy(), "
            "or publish it and attach to it in the other process"
        )

    # What it is

    @property
    def reference(self) -> HandleReference:
        """The claim on the handle: it stays while this is held; `InvalidHandleError` after `release`."""
        if self._reference is None:
            raise InvalidHandleError("this array was released")
        return self._reference

    @property
    def handle(self) -> int:
        """The client's number for this array in its session; `InvalidHandleError` after `release`."""
        return self.reference.handle

    @property
    def dtype(self) -> DType:
        """The data type, as a `numpy.dtype`."""
        return self._spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions; asked of the daemon where they depend on data."""
        return self.known_spec().shape  # type: ignore[return-value]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._spec.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.known_spec().size

    @property
    def nbytes(self) -> int:
        """The size in bytes of all elements; a view may take less memory."""
        return self.known_spec().nbytes

    @property
    def device(self) -> str:
        """The only device: the daemon's memory."""
        return "cpu"

    def to_device(self, device: object, /, *, stream: object = None) -> Self:
        """Return the array itself; the only device is "cpu"."""
        if device != "cpu" or stream is not None:
            raise InvalidArgumentError(f"unknown device {device!r} or stream {stream!r}; the only device is 'cpu'")
        return self

    @property
    def is_released(self) -> bool:
        """Whether the handle was let go of."""
        return self._reference is None

    @property
    def likely_shape(self) -> tuple[int | None, ...]:
        """The dimensions without a round trip; None where one depends on data and nobody has asked yet."""
        return self._spec.shape

    def known_spec(self, timeout: float | None = None) -> ArraySpec:
        """Return shape and dtype with no dimension unknown, after a round trip if need be."""
        if None in self._spec.shape:
            self._spec = self.session.describe(self.handle, timeout)
        return self._spec

    # Its value

    def numpy(self, *, copy: bool = False) -> "np.ndarray[Any, Any]":
        """Wait for the value and return it.

        Without `copy` the result is read-only. Over 64 KiB it is a view of shared memory, which keeps this
        array's tensor alive and stays valid and unchanged when session and daemon are gone; a smaller value came
        in the reply and is the caller's own. With `copy`, a writable array of the caller's own.

        Raises
        ------
        EagerdError
            What went wrong in the operation that should have made this array.
        """
        view = self.fetch()
        return np.array(view) if copy else view

    def fetch(self, timeout: float | None = None, *, is_private: bool = False) -> "np.ndarray[Any, Any]":
        """Return what `numpy` does without a copy, with a timeout in seconds of its own; see `EagerSession.fetch`."""
        return self.session.fetch(self.reference, timeout, is_private=is_private)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        view = self.numpy()
        if dtype is not None and np.dtype(dtype) != view.dtype:  # type: ignore[call-overload]
            if copy is False:
                raise InvalidArgumentError(f"{view.dtype} cannot become {dtype} without a copy")
            return view.astype(dtype)  # type: ignore[call-overload, no-any-return]
        return np.array(view) if copy else view

    def __array_namespace__(self, *, api_version: str | None = None) -> "Namespace":
        """Return the session's namespace, as the array API standard of that version has it."""
        return self.session.namespace.of_version(api_version)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the value as a DLPack capsule: read-only, and of shared memory with no copy where `numpy` is.

        A consumer that ignores the read-only flag, as torch does, writes to pages of its own. One of DLPack 0
        cannot be told, and is given a copy.

        Raises
        ------
        BufferError
            Another device than the CPU is asked for; or `copy` is False, and a copy would be needed.
        """
        if stream is not None:
            raise InvalidArgumentError(f"memory of the CPU has no stream {stream!r}")
        if dl_device is not None and tuple(dl_device) != _DLPACK_CPU:
            raise BufferError(f"the array is on the CPU, DLPack device {_DLPACK_CPU}, and not on {dl_device}")
        view = self.fetch(is_private=True)
        if max_version is None or max_version[0] < 1:
            # A value that came in the reply is this caller's alone: made writable, not shared.
            if copy is False and view.nbytes > INLINE_BYTES:
                raise BufferError("shared memory is read-only, which DLPack 0 cannot say; ask for max_version=(1, 0)")
            view, copy = view.copy(), None
        return view.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU

    def item(self) -> bool | int | float | complex:
        """Return the only element as a Python scalar."""
        if self.size != 1:
            raise InvalidArgumentError(f"only an array of one element is a scalar, not shape {self.shape}")
        value: bool | int | float | complex = self.numpy().item()
        return value

    def _scalar(self, kinds: str, what: str) -> Any:
        if self.shape != ():
            raise InvalidTypeError(f"only an array of no dimensions converts to {what}, not shape {self.shape}")
        if self.dtype.kind not in kinds:
            raise InvalidTypeError(f"{self.dtype} does not convert to {what}")
        return self.item()

    def __bool__(self) -> bool:
        if self.shape != ():
            raise InvalidArgumentError(f"the truth of an array of shape {self.shape} is ambiguous; use any() or all()")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._scalar("biuf", "int"))

    def __float__(self) -> float:
        return float(self._scalar("biuf", "float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("biufc", "complex"))

    def __index__(self) -> int:
        return int(self._scalar("iu", "an index"))

    def __len__(self) -> int:
        if not self.shape:
            raise InvalidTypeError("an array of no dimensions has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator["Array"]:
        if not self.shape:
            raise InvalidTypeError("an array of no dimensions cannot be iterated")
        return self._iterate()

    def _iterate(self) -> Iterator["Array"]:
        unstack = self.session.namespace.unstack
        for start in range(0, self.shape[0], MAX_OPERANDS):
            yield from unstack(self[start : start + MAX_OPERANDS])

    # Its life

    def release(self) -> None:
        """Let go of the handle now; a numpy view that exists keeps the tensor until it goes. Twice does no harm."""
        self._reference = None

    def rebind(self, reference: HandleReference) -> None:
        """Take another handle, whose tensor has the same shape and dtype."""
        self._reference = reference

    # Picking

    def __getitem__(self, key: object) -> "Array":
        wire_key, indices = self._index(key)
        name = "gather" if indices else "getitem"
        return self.session.run(name, (self, *indices), {"key": wire_key})[0]

    def __setitem__(self, key: object, value: object) -> None:
        wire_key, indices = self._index(key)
        if isinstance(value, np.ndarray | list | tuple):
            value = self.session.upload(value, None if isinstance(value, np.ndarray) else self._weak_dtype(value))
        name = "scatter" if indices else "setitem"
        self.session.run_in_place(name, self, (value, *indices), {"key": wire_key})

    def _weak_dtype(self, values: "list[Any] | tuple[Any, ...]") -> DType | None:
        """The array's own dtype, where Python scalars like these, which are weak, would leave it; else None."""
        try:
            found = np.asarray(values)
        except (ValueError, OverflowError):  # the upload says what is wrong
            return None
        scalar = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}.get(found.dtype.kind)
        if found.size == 0 or (scalar is not None and holds(self.dtype, scalar)):
            return self.dtype
        return None

    def _index(self, key: object) -> tuple[tuple[Any, ...], list["Array"]]:
        """Return an index in the wire's form, and the arrays in it; lists and numpy arrays are uploaded."""
        items: list[Any] = []
        indices: list[Array] = []
        for item in key if isinstance(key, tuple) else (key,):
            if isinstance(item, str):  # on the wire there are words for what is no string here
                raise InvalidIndexError("an index holds integers, slices, ..., None, and arrays, not str")
            if isinstance(item, list | np.ndarray | bool | np.bool_):
                # numpy takes an empty list for floats, where an index of nothing is meant.
                is_nothing = isinstance(item, list) and not np.size(item)
                item = self.session.upload(item, np.dtype(np.int64) if is_nothing else None)
            if type(item) is Array:
                indices.append(item)
                item = INDEX_ARRAY
            items.append(item)
        try:
            return as_key(tuple(items)), indices
        except EagerdError as error:
            raise type(error)(f"indexing: {error}") from None

    def astype(self, dtype: object, /, *, copy: bool = True) -> "Array":
        """Return the array in another dtype."""
        return self.session.run("astype", (self,), {"dtype": dtype, "copy": copy})[0]

    @property
    def T(self) -> "Array":  # noqa: N802 - the standard's name
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise InvalidArgumentError(f"T is for two dimensions, not {self.ndim}; use permute_dims or mT")
        return self.session.run("permute_dims", (self,), {"axes": (1, 0)})[0]

    @property
    def mT(self) -> "Array":  # noqa: N802 - the standard's name
        """The transpose of each matrix in a stack of them."""
        return self.session.run("matrix_transpose", (self,), {})[0]

    # Operators

    def __add__(self, other: object) -> "Array":
        return self._binary("add", self, other)

    def __radd__(self, other: object) -> "Array":
        return self._binary("add", other, self)

    def __iadd__(self, other: object) -> Self:
        return self._in_place("add", other)

    def __sub__(self, other: object) -> "Array":
        return self._binary("subtract", self, other)

    def __rsub__(self, other: object) -> "Array":
        return self._binary("subtract", other, self)

    def __isub__(self, other: object) -> Self:
        return self._in_place("subtract", other)

    def __mul__(self, other: object) -> "Array":
        return self._binary("multiply", self, other)

    def __rmul__(self, other: object) -> "Array":
        return self._binary("multiply", other, self)

    def __imul__(self, other: object) -> Self:
        return self._in_place("multiply", other)

    def __truediv__(self, other: object) -> "Array":
        return self._binary("divide", self, other)

    def __rtruediv__(self, other: object) -> "Array":
        return self._binary("divide", other, self)

    def __itruediv__(self, other: object) -> Self:
        return self._in_place("divide", other)

    def __floordiv__(self, other: object) -> "Array":
        return self._binary("floor_divide", self, other)

    def __rfloordiv__(self, other: object) -> "Array":
        return self._binary("floor_divide", other, self)

    def __ifloordiv__(self, other: object) -> Self:
        return self._in_place("floor_divide", other)

    def __mod__(self, other: object) -> "Array":
        return self._binary("remainder", self, other)

    def __rmod__(self, other: object) -> "Array":
        return self._binary("remainder", other, self)

    def __imod__(self, other: object) -> Self:
        return self._in_place("remainder", other)

    def __pow__(self, other: object) -> "Array":
        return self._binary("pow", self, other)

    def __rpow__(self, other: object) -> "Array":
        return self._binary("pow", other, self)

    def __ipow__(self, other: object) -> Self:
        return self._in_place("pow", other)

    def __matmul__(self, other: object) -> "Array":
        return self._binary("matmul", self, other)

    def __rmatmul__(self, other: object) -> "Array":
        return self._binary("matmul", other, self)

    def __imatmul__(self, other: object) -> Self:
        return self._in_place("matmul", other)

    def __and__(self, other: object) -> "Array":
        return self._binary("bitwise_and", self, other)

    def __rand__(self, other: object) -> "Array":
        return self._binary("bitwise_and", other, self)

    def __iand__(self, other: object) -> Self:
        return self._in_place("bitwise_and", other)

    def __or__(self, other: object) -> "Array":
        return self._binary("bitwise_or", self, other)

    def __ror__(self, other: object) -> "Array":
        return self._binary("bitwise_or", other, self)

    def __ior__(self, other: object) -> Self:
        return self._in_place("bitwise_or", other)

    def __xor__(self, other: object) -> "Array":
        return self._binary("bitwise_xor", self, other)

    def __rxor__(self, other: object) -> "Array":
        return self._binary("bitwise_xor", other, self)

    def __ixor__(self, other: object) -> Self:
        return self._in_place("bitwise_xor", other)

    def __lshift__(self, other: object) -> "Array":
        return self._binary("bitwise_left_shift", self, other)

    def __rlshift__(self, other: object) -> "Array":
        return self._binary("bitwise_left_shift", other, self)

    def __ilshift__(self, other: object) -> Self:
        return self._in_place("bitwise_left_shift", other)

    def __rshift__(self, other: object) -> "Array":
        return self._binary("bitwise_right_shift", self, other)

    def __rrshift__(self, other: object) -> "Array":
        return self._binary("bitwise_right_shift", other, self)

    def __irshift__(self, other: object) -> Self:
        return self._in_place("bitwise_right_shift", other)

    def __lt__(self, other: object) -> "Array":
        return self._binary("less", self, other)

    def __le__(self, other: object) -> "Array":
        return self._binary("less_equal", self, other)

    def __gt__(self, other: object) -> "Array":
        return self._binary("greater", self, other)

    def __ge__(self, other: object) -> "Array":
        return self._binary("greater_equal", self, other)

    def __eq__(self, other: object) -> "Array":  # type: ignore[override]
        return self._binary("equal", self, other)

    def __ne__(self, other: object) -> "Array":  # type: ignore[override]
        return self._binary("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> "Array":
        return self.session.run("negative", (self,), {})[0]

    def __pos__(self) -> "Array":
        return self.session.run("positive", (self,), {})[0]

    def __abs__(self) -> "Array":
        return self.session.run("abs", (self,), {})[0]

    def __invert__(self) -> "Array":
        return self.session.run("bitwise_invert", (self,), {})[0]

    def _binary(self, name: str, left: object, right: object) -> "Array":
        other = right if left is self else left
        if type(other) is not Array and not _is_operand(name, other):
            return NotImplemented  # type: ignore[no-any-return] # a word to Python, from the operators
        return self.session.run(name, (left, right), {})[0]

    def _in_place(self, name: str, other: object) -> Self:
        if not _is_operand(name, other):
            return NotImplemented  # type: ignore[no-any-return]
        self.session.run_in_place(name, self, (other,), {})
        return self


def _is_operand(name: str, value: object) -> bool:
    if isinstance(value, np.ndarray | list | tuple):
        kind = "numpy array" if isinstance(value, np.ndarray) else type(value).__name__
        raise InvalidTypeError(f"{name}: one operand is a {kind}; upload it first: xp.asarray(x)")
    return type(value) is Array or isinstance(value, _SCALARS)
