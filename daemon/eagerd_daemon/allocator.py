"""NumPy's data allocator (NEP 49), so that results are born in segments. The only module that knows ctypes.

While a thread has a pool (`using`), every array data allocation over `INLINE_BYTES` that numpy makes on that
thread comes from the pool, temporaries included; a refusal of the pool makes numpy raise MemoryError, and
`take_refusal` tells why. An array keeps this handler alive and frees through it on whatever thread drops it.
"""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

from eagerd_daemon.pool import Block, SegmentPool
from eagerd_protocol.errors import EagerdError
from eagerd_protocol.limits import INLINE_BYTES

_SET_HANDLER: Final = 304  # PyDataMem_SetHandler's place in numpy's C API table
_VERSION: Final = 1

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_REALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of numpy/ndarraytypes.h."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("ctx", ctypes.c_void_p),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    )


class _ThreadState(threading.local):
    """What each thread has: the pool of the session it works for, and why the pool last refused."""

    pool: SegmentPool | None = None
    refusal: EagerdError | None = None
    crossing: BaseException | None = None


_state: Final = _ThreadState()

# Where each live array data of ours lies, by address. A dict's single operations are atomic, and `_free` may
# run inside any of them, on any thread, so there is no lock here.
_blocks: Final[dict[int, Block]] = {}

# Heap memory of freed arrays, by address; see `_free`.
_heap_garbage: Final[list[int]] = []

_libc: Final = ctypes.PyDLL(None)
_libc_malloc, _libc_calloc, _libc_realloc, _libc_free = (
    _libc.malloc,
    _libc.calloc,
    _libc.realloc,
    _libc.free,
)
_libc_malloc.restype = _libc_calloc.restype = _libc_realloc.restype = ctypes.c_void_p
_libc_malloc.argtypes = [ctypes.c_size_t]
_libc_calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc_realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc_free.argtypes = [ctypes.c_void_p]
_libc_free.restype = None


def _take(pool: SegmentPool, nbytes: int) -> Block | None:
    """Return a block, or None with the reason in the thread's state: an exception cannot cross C."""
    try:
        block = pool.allocate(nbytes)
    except EagerdError as error:
        _state.refusal = error
        return None
    _blocks[block.address] = block
    return block


def _malloc(_: int, nbytes: int) -> int | None:
    pool = _state.pool
    if _heap_garbage:
        collect()
    if pool is None or nbytes <= INLINE_BYTES:
        return _libc_malloc(nbytes)  # type: ignore[no-any-return]
    block = _take(pool, nbytes)
    return None if block is None else block.address


def _calloc(_: int, count: int, size: int) -> int | None:
    pool, nbytes = _state.pool, count * size
    if _heap_garbage:
        collect()
    if pool is None or nbytes <= INLINE_BYTES:
        return _libc_calloc(count, size)  # type: ignore[no-any-return]
    block = _take(pool, nbytes)
    if block is None:
        return None
    if not block.is_zeroed:
        ctypes.memset(block.address, 0, nbytes)
    return block.address


def _realloc(_: int, address: int | None, nbytes: int) -> int | None:
    old = _blocks.get(address or 0)
    if old is None:
        return _libc_realloc(address, nbytes)  # type: ignore[no-any-return]
    if nbytes <= old.nbytes:
        return address
    block = _take(old.pool, nbytes)
    if block is None:
        return None
    ctypes.memmove(block.address, old.address, old.charged_bytes)
    _free(0, old.address, 0)
    return block.address


def _free(_: int, address: int, __: int) -> None:
    # numpy frees arrays also while it unwinds from an error, with that exception set. Then any call to a C
    # function from here would be taken to have failed, so there is none: only operators, on dicts and lists.
    if address in _blocks:
        block = _blocks[address]
        del _blocks[address]
        freed = block.pool.freed
        freed += (block,)
    else:
        garbage = _heap_garbage
        garbage += (address,)


def collect() -> None:
    """Give back the heap memory of arrays that were freed; segments go back through their pools."""
    while _heap_garbage:
        try:
            address = _heap_garbage.pop()
        except IndexError:  # another thread took the last one
            return
        _libc_free(address)


def _keep_crossing_exception(unraisable: "sys.UnraisableHookArgs") -> None:
    """Keep an exception that was set while numpy freed an array.

    Python finds it set when `_free` returns, takes it for a failure of `_free`, and clears it; numpy's own
    error then has no exception any more and surfaces as SystemError. `restore_exception` gives it back.
    """
    error = unraisable.exc_value
    if unraisable.object is not _free or error is None:
        sys.__unraisablehook__(unraisable)
    else:
        _state.crossing = error.__cause__ if isinstance(error, SystemError) else error


def restore_exception(error: Exception) -> Exception:
    """Return the exception that a kernel really raised, where it was lost on the way through `_free`."""
    crossing, _state.crossing = _state.crossing, None
    return crossing if isinstance(error, SystemError) and isinstance(crossing, Exception) else error


# These live as long as the process: arrays call them to the end, so the daemon leaves by os._exit.
_handler: Final = _Handler(
    b"eagerd", _VERSION, None, _MALLOC(_malloc), _CALLOC(_calloc), _REALLOC(_realloc), _FREE(_free)
)


def _make_setter() -> tuple[Any, Any]:
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(get_pointer(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    setter = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    return setter, new_capsule(ctypes.addressof(_handler), b"mem_handler", None)


_set_handler, _capsule = _make_setter()


sys.unraisablehook = _keep_crossing_exception


def install_on_thread() -> None:
    """Let this thread's arrays come from the pool that it is `using`; once, when the thread starts."""
    _set_handler(_capsule)


@contextmanager
def using(pool: SegmentPool) -> Iterator[None]:
    """Have this thread's large arrays born in `pool`; the handler must be installed on the thread."""
    _state.pool = pool
    try:
        yield
    finally:
        _state.pool = None


def allocate_bytes(pool: SegmentPool, nbytes: int, *, is_upload: bool = False) -> "np.ndarray[Any, Any]":
    """Return an array of `nbytes` uint8 in `pool`, that frees its block as results do; on any thread.

    Raises
    ------
    ResourceExhaustedError
        The pool refused.
    """
    block = pool.allocate(nbytes, is_upload=is_upload)
    _next.block = block
    previous = _set_handler(_granting_capsule)
    try:
        return np.empty(nbytes, np.uint8)
    finally:
        _set_handler(previous)


class _NextBlock(threading.local):
    """The block that the next allocation on this thread is to get."""

    block: Block | None = None


_next: Final = _NextBlock()


def _grant(_: int, nbytes: int) -> int | None:
    block, _next.block = _next.block, None
    if block is None:
        return _libc_malloc(nbytes)  # type: ignore[no-any-return]
    _blocks[block.address] = block
    return block.address


_granting: Final = _Handler(
    b"eagerd", _VERSION, None, _MALLOC(_grant), _CALLOC(_calloc), _REALLOC(_realloc), _FREE(_free)
)
_granting_capsule: Final = ctypes.pythonapi.PyCapsule_New(ctypes.addressof(_granting), b"mem_handler", None)


def take_refusal() -> EagerdError | None:
    """Return why this thread's last allocation was refused, once."""
    refusal, _state.refusal = _state.refusal, None
    return refusal


def find_block(root: "np.ndarray[Any, Any]") -> Block | None:
    """Return the block that an array which owns its data lies in; None when that is the heap."""
    return _blocks.get(root.__array_interface__["data"][0])
