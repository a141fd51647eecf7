"""What a session holds: tensors by handle, and the counts of what is live, released and reclaimed.

A handle is live until it is reclaimed. Releasing takes its name away and hands its entry to the session's
cleanup strategy; reclaiming drops the tensor. Both happen once for each handle, whatever arrives. The table's
lock covers names and counts; memory goes back outside it.
"""

import threading
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from eagerd_daemon.allocator import find_block
from eagerd_daemon.pool import Account, Block
from eagerd_protocol.errors import EagerdError, InvalidArgumentError, InvalidHandleError
from eagerd_protocol.limits import INLINE_BYTES, MAX_HANDLE
from eagerd_protocol.specs import ArraySpec

AnyArray: TypeAlias = np.ndarray[Any, Any]


def root_of(array: AnyArray) -> AnyArray:
    """Return the array that owns the memory which `array` shows."""
    while isinstance(base := array.base, np.ndarray):
        array = base
    return array


class Storage:
    """Memory that one or more tensors of a session show; freed when numpy drops the last of them."""

    __slots__ = ("block", "entries", "is_lent", "is_shared", "named", "nbytes", "root")

    def __init__(self, root: AnyArray, *, is_shared: bool = False) -> None:
        self.root = root
        # Shared memory is the daemon's own and counts for no session.
        self.nbytes = 0 if is_shared else root.nbytes
        self.is_shared = is_shared
        self.is_lent = False  # an operation of another session was given it, so it must never change
        self.block: Block | None = find_block(root) if root.nbytes > INLINE_BYTES else None
        self.entries = 0  # handles not reclaimed yet; under the table's lock
        self.named = 0  # of those, not released yet

    @property
    def is_exclusive(self) -> bool:
        """One handle shows it, no matter how many released ones wait beside it, and no other session ever did."""
        return self.named == 1 and not self.is_shared and not self.is_lent


class Tensor:
    """A value that a handle names. Immutable, but for `setitem` when nobody else can see it."""

    __slots__ = ("array", "spec", "storage")

    def __init__(self, array: AnyArray, storage: Storage, spec: ArraySpec) -> None:
        self.array = array
        self.storage = storage
        self.spec = spec


class Entry:
    """What a handle stands for: a tensor, or the error of the operation that should have made it."""

    __slots__ = ("content", "handle")

    def __init__(self, handle: int, content: Tensor | EagerdError) -> None:
        self.handle = handle
        self.content: Tensor | EagerdError | None = content  # None once reclaimed


@dataclass(slots=True)
class Counts:
    """Counters of one session; live ones include what is released and waits."""

    live_handles: int = 0
    live_bytes: int = 0
    released_handles: int = 0
    released_bytes: int = 0
    reclaimed_handles: int = 0
    reclaimed_bytes: int = 0


class HandleTable:
    """The handles of one session; owned by it."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._entries: dict[int, Entry] = {}
        self._lock = threading.Lock()
        self._highest = 0
        self.counts = Counts()

    def __len__(self) -> int:
        return len(self._entries)

    def check_new(self, handle: object) -> int:
        """Return `handle` if a client may use it for something new.

        Handles of a session only rise, which is how one used before is recognised without remembering all.
        """
        if type(handle) is not int or not 0 < handle <= MAX_HANDLE:
            raise InvalidArgumentError(f"a handle is an integer from 1 to 2**63 - 1, not {handle!r}")
        if handle <= self._highest:
            raise InvalidArgumentError(
                f"handle {handle} is not above {self._highest}, the highest so far; a handle is never used twice"
            )
        return handle

    def is_new(self, handle: object) -> bool:
        """Tell whether `check_new` would accept `handle`."""
        return type(handle) is int and self._highest < handle <= MAX_HANDLE

    def find_failure(self, handle: object) -> EagerdError | None:
        """Return the error that a handle stands for, if it stands for one."""
        entry = self._entries.get(handle) if type(handle) is int else None
        return entry.content if entry is not None and isinstance(entry.content, EagerdError) else None

    def get(self, handle: object) -> Tensor:
        """Return the tensor of a handle.

        Raises
        ------
        InvalidHandleError
            There is no such handle: never made, or released.
        EagerdError
            The operation that should have made it failed; this is its error, the same object each time.
        """
        try:
            content = self._entries[handle].content  # type: ignore[index]
        except (KeyError, TypeError):
            raise InvalidHandleError(
                f"this session has no handle {handle!r}: it was never made, or is released",
                handle=handle if type(handle) is int else repr(handle),
            ) from None
        if type(content) is Tensor:
            return content
        assert isinstance(content, EagerdError)
        raise content

    def add_array(
        self, handle: int, array: AnyArray, storage: Storage | None = None, spec: ArraySpec | None = None
    ) -> Tensor:
        """Name `array` by `handle`, on `storage` or on new storage of its own.

        Heap memory is charged here, to the session's account; segments were charged when they were allocated.
        `spec` is the array's, where the caller has it: one object for many tensors is found faster by the planner.
        """
        if storage is None:
            storage = Storage(array if array.base is None else root_of(array))
            if storage.block is None:
                self._account.charge(storage.nbytes)
        if spec is None or spec.shape != array.shape:
            spec = ArraySpec(array.shape, array.dtype)
        tensor = Tensor(array, storage, spec)
        entry = Entry(handle, tensor)
        counts = self.counts
        with self._lock:
            if storage.entries == 0:
                counts.live_bytes += storage.nbytes
            elif storage.named == 0:  # all its other handles are released, and now it has a name again
                counts.released_bytes -= storage.nbytes
            storage.entries += 1
            storage.named += 1
            self._add(handle, entry)
        return tensor

    def add_failure(self, handle: int, error: EagerdError) -> None:
        """Let `handle` stand for the error of the operation that should have made it."""
        with self._lock:
            self._add(handle, Entry(handle, error))

    def _add(self, handle: int, entry: Entry) -> None:
        self._entries[handle] = entry
        if handle > self._highest:
            self._highest = handle
        self.counts.live_handles += 1

    def release(self, handle: object) -> Entry | None:
        """Take the name away and return what it named; None where there is no such handle (any more)."""
        with self._lock:
            try:
                entry = self._entries.pop(handle)  # type: ignore[call-overload]
            except (KeyError, TypeError):
                return None
            self.counts.released_handles += 1
            if type(entry.content) is Tensor:
                storage = entry.content.storage
                storage.named -= 1
                if storage.named == 0:
                    self.counts.released_bytes += storage.nbytes
            return entry  # type: ignore[no-any-return]

    def release_all(self) -> list[Entry]:
        """Release every handle, in the order they were made."""
        return [entry for handle in list(self._entries) if (entry := self.release(handle)) is not None]

    def reclaim(self, entry: Entry) -> bool:
        """Drop what a released entry holds; False where that was done before."""
        counts = self.counts
        freed = None
        with self._lock:
            content, entry.content = entry.content, None
            if content is None:
                return False
            counts.live_handles -= 1
            counts.released_handles -= 1
            counts.reclaimed_handles += 1
            if type(content) is Tensor:
                storage = content.storage
                storage.entries -= 1
                if storage.entries == 0:
                    counts.live_bytes -= storage.nbytes
                    counts.released_bytes -= storage.nbytes
                    counts.reclaimed_bytes += storage.nbytes
                    freed = storage
        if freed is not None and freed.block is None and not freed.is_shared:
            self._account.refund(freed.nbytes)
        return True

    def snapshot(self) -> Counts:
        with self._lock:
            c = self.counts
            return Counts(
                c.live_handles,
                c.live_bytes,
                c.released_handles,
                c.released_bytes,
                c.reclaimed_handles,
                c.reclaimed_bytes,
            )

    def move_storage_out(self, storage: Storage) -> None:
        """Count `storage`, now published, for no session any more."""
        with self._lock:
            self.counts.live_bytes -= storage.nbytes
            storage.nbytes = 0
            storage.is_shared = True
