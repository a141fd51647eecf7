"""Segments by session: `SegmentPool`; what they may take: `Account` for one session, `Budget` for the daemon.

Any thread may allocate. `SegmentPool.freed` is the one door back: numpy frees arrays on whatever thread drops
them, also during a garbage collection inside `allocate` itself, so freeing only appends, takes no lock and
counts nothing. What lies there is taken in at the next look at the pool.
"""

import os
import resource
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final

from eagerd_daemon.segment import Segment
from eagerd_protocol.errors import ResourceExhaustedError
from eagerd_protocol.sizes import format_bytes

SLAB_BYTES: Final = 4 * 1024 * 1024
LARGE_BYTES: Final = 1024 * 1024
"""From here up, a segment holds one block."""

_DESCRIPTORS_PER_SEGMENT: Final = 2  # ours, and the one that mmap keeps
_RESERVED_DESCRIPTORS: Final = 256
"""For sockets and files: libzmq aborts the process when it cannot accept on ipc://."""


def size_class(nbytes: int) -> int:
    """Return the size of the block that holds `nbytes`: four classes for each doubling, whole pages."""
    step = 1 << max(12, (nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class Account:
    """Bytes that one session has in use, against its limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        # Set by the session: reclaims what waits for it, where the session's strategy allows.
        self.relieve: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def charge(self, nbytes: int) -> None:
        """Book `nbytes`; raise `ResourceExhaustedError`, with nothing booked, where they are not there."""
        if self._book(nbytes):
            return
        self.relieve()
        if self._book(nbytes):
            return
        free = self.limit_bytes - self.used_bytes
        raise ResourceExhaustedError(
            f"needs {format_bytes(nbytes)}, {format_bytes(max(0, free))} of this session's "
            f"{format_bytes(self.limit_bytes)} is free; release arrays, "
            "or open the session with a larger memory_limit",
            needed=nbytes,
            free=max(0, free),
            limit=self.limit_bytes,
        )

    def refund(self, nbytes: int) -> None:
        with self._lock:
            self.used_bytes -= nbytes

    def _book(self, nbytes: int) -> bool:
        with self._lock:
            if self.used_bytes + nbytes > self.limit_bytes:
                return False
            self.used_bytes += nbytes
            return True


class Budget:
    """Bytes and descriptors that all segments may take together, live or pooled; one for each daemon."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.segment_bytes = 0
        self.segments = 0
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.max_segments = max(16, (soft - _RESERVED_DESCRIPTORS) // _DESCRIPTORS_PER_SEGMENT)
        self._lock = threading.Lock()
        self._pools: set[SegmentPool] = set()

    def add_pool(self, pool: "SegmentPool") -> None:
        """Take note of a pool that has segments: to trim looks at those, and not at thousands that have none."""
        with self._lock:
            self._pools.add(pool)

    def remove_pool(self, pool: "SegmentPool") -> None:
        with self._lock:
            self._pools.discard(pool)

    def admit(self, nbytes: int) -> None:
        """Book one segment; trim what pools hold idle before refusing it with `ResourceExhaustedError`."""
        if self._book(nbytes):
            return
        with self._lock:
            pools = list(self._pools)
        for pool in pools:
            # The asking pool holds its lock, and another may be asking too: whoever is busy is passed over.
            pool.trim_if_free(older_than_seconds=0.0)
            if self._book(nbytes):
                return
        if self.segments >= self.max_segments:
            raise ResourceExhaustedError(
                f"all {self.max_segments} segments that the daemon's descriptors allow are in use; "
                "release arrays, or raise LimitNOFILE",
                limit=self.max_segments,
            )
        raise ResourceExhaustedError(
            f"needs {format_bytes(nbytes)}, {format_bytes(self.limit_bytes - self.segment_bytes)} of the daemon's "
            f"{format_bytes(self.limit_bytes)} is free; release arrays, or start the daemon with a larger "
            "--memory-limit",
            needed=nbytes,
            free=self.limit_bytes - self.segment_bytes,
            limit=self.limit_bytes,
        )

    def _book(self, nbytes: int) -> bool:
        with self._lock:
            if self.segment_bytes + nbytes > self.limit_bytes or self.segments >= self.max_segments:
                return False
            self.segment_bytes += nbytes
            self.segments += 1
            return True

    def refund(self, nbytes: int) -> None:
        with self._lock:
            self.segment_bytes -= nbytes
            self.segments -= 1

    def trim(self, older_than_seconds: float) -> bool:
        """Give back what lay idle for so long, in every pool; True while some pool has idle memory left."""
        with self._lock:
            pools = list(self._pools)
        for pool in pools:
            pool.trim_if_free(older_than_seconds)
        return any(pool.idle_bytes for pool in pools)


class Block:
    """A piece of a segment: what one array lies in. Owned by that array until it comes back to the pool."""

    __slots__ = ("address", "charged_bytes", "freed_at", "is_zeroed", "nbytes", "offset", "pool", "segment")

    def __init__(self, pool: "SegmentPool", segment: Segment, offset: int, nbytes: int) -> None:
        self.pool = pool  # changes only when the tensor is published
        self.segment = segment
        self.offset = offset
        self.nbytes = nbytes
        self.address = segment.address + offset
        self.charged_bytes = 0
        self.is_zeroed = True  # never written since the kernel made it
        self.freed_at = 0.0

    @property
    def is_alone(self) -> bool:
        """The segment holds nothing else, now or later."""
        return self.nbytes == self.segment.nbytes


class SegmentPool:
    """The segments of one session (or those of all published tensors), used and idle.

    Owned by its session; segments never move to another session, whose client could still see old pages.
    """

    def __init__(
        self,
        account: Account,
        budget: Budget,
        clock: Callable[[], float] = time.monotonic,
        on_retired: Callable[[list[int]], None] = lambda _: None,
    ) -> None:
        self.account = account
        self.freed: list[Block] = []  # see the module's docstring
        self._budget = budget
        self._clock = clock
        self._on_retired = on_retired
        # Reentrant: charging the account may relieve it, which takes in what was freed here.
        self._lock = threading.RLock()
        self._idle: defaultdict[tuple[int, bool], deque[Block]] = defaultdict(deque)
        self._segments: dict[int, Segment] = {}
        self._idle_bytes = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<SegmentPool: {len(self._segments)} segments, {self._idle_bytes} bytes idle>"

    @property
    def idle_bytes(self) -> int:
        """Bytes that are mapped and wait for use."""
        with self._lock:
            self._take_in_freed()
            return self._idle_bytes

    def allocate(self, nbytes: int, *, is_upload: bool = False) -> Block:
        """Return a block of at least `nbytes`; raise `ResourceExhaustedError` before any memory exists."""
        with self._lock:
            self._take_in_freed()
            self.account.charge(nbytes)
            try:
                block = self._take(size_class(nbytes), is_upload)
            except BaseException:
                self.account.refund(nbytes)
                raise
            block.charged_bytes = nbytes
            block.segment.blocks_in_use += 1
            return block

    def take_in_freed(self) -> None:
        """Count what was freed since the last look."""
        with self._lock:
            self._take_in_freed()

    def trim_if_free(self, older_than_seconds: float) -> None:
        """Give idle segments back to the system, unless another thread is at work here."""
        if self._lock.acquire(blocking=False):
            try:
                self._take_in_freed()
                self._trim(older_than_seconds)
            finally:
                self._lock.release()

    def hand_over(self, block: Block, other: "SegmentPool") -> None:
        """Make `block`, alone in its segment, belong to `other`; its bytes move to the other account."""
        other.account.charge(block.charged_bytes)
        with self._lock:
            del self._segments[block.segment.number]
            if not self._segments:
                self._budget.remove_pool(self)
        with other._lock:
            other._segments[block.segment.number] = block.segment
            self._budget.add_pool(other)
        self.account.refund(block.charged_bytes)
        block.pool = other

    def close(self) -> None:
        """Close every segment; one that an operation of another session still reads closes when that lets go."""
        self._is_closed = True
        with self._lock:
            self._take_in_freed()
        self.trim_if_free(older_than_seconds=0.0)

    # Below here the lock is held.

    def _take(self, nbytes: int, is_upload: bool) -> Block:
        idle = self._idle[nbytes, is_upload]
        if not idle:
            self._add_segment(nbytes, is_upload)
        block = idle.pop()  # the one freed last: its pages are the warmest
        self._idle_bytes -= block.nbytes
        return block

    def _add_segment(self, block_bytes: int, is_upload: bool) -> None:
        count = 1 if block_bytes >= LARGE_BYTES else SLAB_BYTES // block_bytes
        nbytes = block_bytes * count
        self._budget.admit(nbytes)
        try:
            segment = Segment(nbytes, is_upload=is_upload)
        except OSError as error:
            self._budget.refund(nbytes)
            raise ResourceExhaustedError(
                f"the system gave no shared memory of {format_bytes(nbytes)}: {os.strerror(error.errno or 0)}",
                needed=nbytes,
            ) from None
        self._segments[segment.number] = segment
        self._budget.add_pool(self)
        now = self._clock()
        for index in range(count):
            block = Block(self, segment, index * block_bytes, block_bytes)
            block.freed_at = now
            self._idle[block_bytes, is_upload].append(block)
        self._idle_bytes += nbytes

    def _take_in_freed(self) -> None:
        freed = self.freed
        while freed:
            block = freed.pop()
            self.account.refund(block.charged_bytes)
            block.segment.blocks_in_use -= 1
            block.is_zeroed = False
            block.freed_at = self._clock()
            self._idle[block.nbytes, block.segment.is_upload].append(block)
            self._idle_bytes += block.nbytes
        if self._is_closed:  # the last array of a closed session is gone
            self._trim(older_than_seconds=0.0)

    def _trim(self, older_than_seconds: float) -> None:
        before = self._clock() - older_than_seconds
        closing = {
            block.segment.number: block.segment
            for idle in self._idle.values()
            for block in idle
            if block.segment.blocks_in_use == 0 and block.freed_at <= before
        }
        if not closing:
            return
        for key, idle in list(self._idle.items()):
            kept = deque(block for block in idle if block.segment.number not in closing)
            self._idle_bytes -= sum(block.nbytes for block in idle) - sum(block.nbytes for block in kept)
            self._idle[key] = kept
        for segment in closing.values():
            del self._segments[segment.number]
            segment.close()
            self._budget.refund(segment.nbytes)
        if not self._segments:
            self._budget.remove_pool(self)
        self._on_retired(list(closing))
