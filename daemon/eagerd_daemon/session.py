"""`Session`: its steps in order, its handles, its memory, its cleanup strategy.

Threads: the loop calls `accept` and `close`; while `_is_busy` a worker is in `run_queued`, and steps only
queue. So one thread at a time executes steps of a session, and `_lock` guards nothing but who that is.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from eagerd_daemon.cleanup import make_strategy
from eagerd_daemon.execution import Executor, FindForeign, Sender, request_of
from eagerd_daemon.handles import HandleTable
from eagerd_daemon.pool import Account, Budget, SegmentPool
from eagerd_daemon.published import Publications
from eagerd_protocol.codec import is_foreign
from eagerd_protocol.errors import (
    EagerdError,
    MalformedMessageError,
    OperationCancelledError,
    OverloadedError,
    SessionClosedError,
)
from eagerd_protocol.messages import Acknowledged, Batch, Failed, Refused, SessionClosed
from eagerd_protocol.planner import Planner
from eagerd_protocol.strategy import ResourceCleanupStrategy

_INLINE_STEPS_SECONDS: Final = 2e-3
"""After this long with one batch the loop hands the rest of it to a worker, for the sake of other sessions."""

_SLICE_SECONDS: Final = 10e-3
"""After this long a worker turns to the next session in line."""


class State(Enum):
    """Of a session's life; it only moves forward."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class _Queued(NamedTuple):
    step: tuple[Any, ...]
    frames: Sequence[bytes]
    sequence: int | None
    """Of the batch that this step is the last of."""


class _CloseMarker(NamedTuple):
    request: int | None


class Session:
    """One session of one client; owned by the server, from OpenSession until it has closed."""

    def __init__(
        self,
        *,
        token: bytes,
        label: str,
        cleanup: ResourceCleanupStrategy,
        memory_limit_bytes: int,
        max_queued_steps: int,
        budget: Budget,
        publications: Publications,
        planner: Planner,
        send: Sender,
        schedule: Callable[["Session"], None],
        find_foreign: FindForeign,
        on_segment_shown: Callable[[Any], None],
        on_segments_retired: Callable[[list[int]], None],
        on_closed: Callable[["Session"], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.token = token
        self.label = label
        self.cleanup = cleanup
        self.account = Account(memory_limit_bytes)
        self.pool = SegmentPool(self.account, budget, on_retired=on_segments_retired)
        self.table = HandleTable(self.account)
        self.strategy = make_strategy(cleanup, self.table.reclaim, label)
        self.account.relieve = self._relieve
        self.state = State.OPEN
        self._executor = Executor(
            token=token,
            account=self.account,
            pool=self.pool,
            table=self.table,
            strategy=self.strategy,
            planner=planner,
            publications=publications,
            send=send,
            find_foreign=find_foreign,
            on_segment_shown=on_segment_shown,
        )
        self._send = send
        self._schedule = schedule
        self._find_foreign = find_foreign
        self._on_closed = on_closed
        self._clock = clock
        self._max_queued_steps = max_queued_steps
        self._lock = threading.Lock()
        self._queue: deque[_Queued | _CloseMarker] = deque()
        self._is_busy = False
        self._cancel_at: float | None = None  # set by close, read by the worker between steps
        self._cancelled = 0
        self._last_sequence = 0

    def __repr__(self) -> str:
        counts = self.table.snapshot()
        return (
            f"<Session {self.label}: {self.state.value}, {self.cleanup}, {counts.live_handles} handles, "
            f"{counts.live_bytes} bytes, {len(self._queue)} steps queued>"
        )

    # Called by the loop

    def accept(self, batch: Batch, frames: Sequence[bytes]) -> None:
        """Do the cheap steps now, up to the first dear one; queue that and all after it for a worker."""
        error: EagerdError | None = None
        if self.state is not State.OPEN:
            error = SessionClosedError("the session is closed")
        elif len(self._queue) + len(batch.steps) > self._max_queued_steps:
            error = OverloadedError(
                f"{len(self._queue)} steps are queued, and at most {self._max_queued_steps} may be",
                queued=len(self._queue),
                limit=self._max_queued_steps,
            )
        elif batch.sequence <= self._last_sequence:
            error = MalformedMessageError(
                f"batch {batch.sequence} came after batch {self._last_sequence}; sequence numbers only rise"
            )
        if error is not None:
            self._send(Refused(batch.token, batch.sequence, error.code, error.message, error.details))
            return
        self._last_sequence = batch.sequence
        if not batch.steps:
            self._send(Acknowledged(self.token, batch.sequence))
            return
        steps, last, done = batch.steps, len(batch.steps) - 1, 0
        with self._lock:
            is_idle = not self._is_busy
        if is_idle:  # only this thread makes it busy, so it stays idle until we say otherwise
            execute = self._executor.execute
            stop_at = self._clock() + _INLINE_STEPS_SECONDS
            while done <= last and (done & 7 or self._clock() < stop_at):
                sequence = batch.sequence if done == last else None
                if not execute(steps[done], frames, sequence, may_be_dear=False):
                    break
                done += 1
            self.strategy.settle()
        if done <= last:
            items = [_Queued(step, frames, None) for step in steps[done:last]]
            items.append(_Queued(steps[last], frames, batch.sequence))
            self._enqueue(self._pin_foreign(items))

    def close(self, grace_seconds: float, request: int | None) -> None:
        """Refuse new steps, let queued ones run for `grace_seconds`, then cancel, free everything and answer."""
        if self.state is State.OPEN:
            self.state = State.CLOSING
            self._cancel_at = self._clock() + grace_seconds
        self._enqueue([_CloseMarker(request)])

    def _enqueue(self, items: Sequence[_Queued | _CloseMarker]) -> None:
        with self._lock:
            self._queue.extend(items)
            if self._is_busy:
                return
            self._is_busy = True
        self._schedule(self)

    def _pin_foreign(self, items: list[_Queued]) -> list[_Queued]:
        """Resolve operands of other sessions now: they may be released before a worker comes to them."""
        return [
            item._replace(step=self._with_foreign_pinned(item.step))
            if any(map(is_foreign, _operands(item.step)))
            else item
            for item in items
        ]

    def _with_foreign_pinned(self, step: tuple[Any, ...]) -> tuple[Any, ...]:
        tag, name, outputs, operands, *rest = step
        pinned: list[Any] = []
        for operand in operands:
            try:
                pinned.append(self._find_foreign(*operand) if is_foreign(operand) else operand)
            except EagerdError as error:
                pinned.append(error)
        return (tag, name, outputs, tuple(pinned), *rest)

    # Called by a worker

    def run_queued(self) -> bool:
        """Execute what is queued; True where the slice of time ended before the queue did."""
        stop_at = self._clock() + _SLICE_SECONDS
        while True:
            with self._lock:
                item = self._queue.popleft() if self._queue else None
            if item is None:
                self.strategy.settle()
                with self._lock:
                    if not self._queue:
                        self._is_busy = False
                        return False
                continue
            if isinstance(item, _CloseMarker):
                self._finish_close(item.request)
            elif self._cancel_at is not None and self._clock() >= self._cancel_at:
                self._cancel(item)
            else:
                self._executor.execute(*item, may_be_dear=True)
            del item  # it may hold the last reference to an operand
            if self._clock() >= stop_at:
                self.strategy.settle()
                return True

    def _relieve(self) -> None:
        """Memory ran out: what is released but not reclaimed yet goes first, where the strategy allows."""
        self.strategy.relieve()
        self.pool.take_in_freed()

    # Closing

    def _cancel(self, item: _Queued) -> None:
        error = OperationCancelledError("the session closed before this was done")
        self._cancelled += item.step[0] == "run"
        request = request_of(item.step)
        if request:
            self._send(Failed(request, error.code, error.message, error.details))

    def _finish_close(self, request: int | None) -> None:
        """Free everything; the second of two closes only answers."""
        was_closed_already = self.state is State.CLOSED
        if not was_closed_already:
            self._executor.drop_reservations()
            for entry in self.table.release_all():
                self.strategy.released(entry)
            self.strategy.stop()
            self.pool.close()
            self.state = State.CLOSED
        if request is not None:
            self._send(SessionClosed(request, was_closed_already, self._cancelled, self._executor.take_failures()))
        if not was_closed_already:
            self._on_closed(self)


def _operands(step: tuple[Any, ...]) -> Sequence[Any]:
    if len(step) >= 5 and step[0] == "run" and type(step[3]) is tuple:
        return step[3]
    return ()
