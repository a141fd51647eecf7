"""`Session`: its steps in order, its handles, its memory, its cleanup strategy.

Threads: the loop calls `accept` and `close`; while `_is_busy` a worker is in `run_queued`, and steps only
queue. So one thread at a time executes steps of a session, and `_lock` guards nothing but who that is.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import Enum
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from eagerd_daemon import allocator, kernels
from eagerd_daemon.cleanup import make_strategy
from eagerd_daemon.handles import AnyArray, HandleTable, Storage, Tensor, root_of
from eagerd_daemon.pool import Account, Budget, SegmentPool
from eagerd_daemon.published import Publications, copy_into
from eagerd_protocol.codec import decode_step
from eagerd_protocol.dtypes import dtype_from_name, dtype_name
from eagerd_protocol.errors import (
    EagerdError,
    InvalidArgumentError,
    InvalidHandleError,
    InvalidIndexError,
    InvalidTypeError,
    MalformedMessageError,
    OperationCancelledError,
    OperationFailedError,
    OverloadedError,
    ResourceExhaustedError,
    SessionClosedError,
)
from eagerd_protocol.limits import INLINE_BYTES, MAX_OPERANDS
from eagerd_protocol.messages import (
    STEP_TAGS,
    Abandon,
    Acknowledged,
    Attach,
    Batch,
    Commit,
    Describe,
    Described,
    Done,
    Failed,
    Failure,
    Fetch,
    GetStatistics,
    ListPublished,
    Publish,
    Published,
    Put,
    Refused,
    Release,
    Reply,
    Reserve,
    Reserved,
    Run,
    SafePoint,
    SessionClosed,
    Statistics,
    Step,
    Synchronize,
    Synchronized,
    Unpublish,
    Value,
)
from eagerd_protocol.parameters import as_scalar, scalar_from_wire
from eagerd_protocol.planner import Planner
from eagerd_protocol.rules.checks import check_size
from eagerd_protocol.specs import OperandSpec, Plan
from eagerd_protocol.strategy import ResourceCleanupStrategy

log: Final = logging.getLogger("eagerd.session")

INLINE_SECONDS: Final = 50e-6
"""An operation under this estimate runs in the loop: handing it to a worker costs 30 to 100 µs."""

_INLINE_STEPS_SECONDS: Final = 2e-3
"""After this long with one batch the loop hands the rest of it to a worker, for the sake of other sessions."""

_SLICE_SECONDS: Final = 10e-3
"""After this long a worker turns to the next session in line."""

_MOST_FAILURES_KEPT: Final = 100


class Sender(Protocol):
    """Sends replies to one client, from any thread."""

    def __call__(self, reply: Reply, frame: bytes | None = None, /) -> None: ...


class State(Enum):
    """Of a session's life; it only moves forward."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Prepared(NamedTuple):
    """An operation with its operands resolved and its parameters checked."""

    operands: list[Any]
    tensors: list[Tensor]
    foreign: list[Storage]
    """Of the tensors, what belongs to other sessions."""

    plan: Plan
    parameters: dict[str, Any]


class _Queued(NamedTuple):
    step: tuple[Any, ...]
    frames: Sequence[bytes]
    sequence: int | None
    """Of the batch that this step is the last of."""


class _CloseMarker(NamedTuple):
    request: int | None


FindForeign: TypeAlias = Callable[[bytes, object], Tensor]


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
        self.operations = 0
        self.state = State.OPEN
        self._publications = publications
        self._planner = planner
        self._send = send
        self._schedule = schedule
        self._find_foreign = find_foreign
        self._on_segment_shown = on_segment_shown
        self._on_closed = on_closed
        self._clock = clock
        self._max_queued_steps = max_queued_steps
        self._lock = threading.Lock()
        self._queue: deque[_Queued | _CloseMarker] = deque()
        self._is_busy = False
        self._cancel_at: float | None = None  # set by close, read by the worker between steps
        self._cancelled = 0
        self._failures: list[EagerdError] = []  # that nobody has looked at
        self._reservations: dict[int, AnyArray] = {}
        self._next_reservation = 1
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
        items = deque(_Queued(step, frames, None) for step in batch.steps[:-1])
        items.append(_Queued(batch.steps[-1], frames, batch.sequence))
        with self._lock:
            is_idle = not self._is_busy
        if is_idle:  # only this thread makes it busy, so it stays idle until we say otherwise
            stop_at = self._clock() + _INLINE_STEPS_SECONDS
            while items and (len(items) & 7 or self._clock() < stop_at):
                if not self._execute(items[0], may_be_dear=False):
                    break
                items.popleft()
        if is_idle:
            self.strategy.settle()
        if items:
            self._enqueue(self._pin_foreign(items))

    def close(self, grace_seconds: float, request: int | None) -> None:
        """Refuse new steps, let queued ones run for `grace_seconds`, then cancel, free everything and answer."""
        if self.state is State.OPEN:
            self.state = State.CLOSING
            self._cancel_at = self._clock() + grace_seconds
        self._enqueue([_CloseMarker(request)])

    def _enqueue(self, items: Sequence[_Queued | _CloseMarker] | deque[_Queued]) -> None:
        with self._lock:
            self._queue.extend(items)
            if self._is_busy:
                return
            self._is_busy = True
        self._schedule(self)

    def _pin_foreign(self, items: deque[_Queued]) -> list[_Queued]:
        """Resolve operands of other sessions now: they may be released before a worker comes to them."""
        return [
            item._replace(step=self._with_foreign_pinned(item.step))
            if any(type(o) is tuple and len(o) == 2 for o in _operands(item.step))
            else item
            for item in items
        ]

    def _with_foreign_pinned(self, step: tuple[Any, ...]) -> tuple[Any, ...]:
        tag, name, outputs, operands, *rest = step
        pinned: list[Any] = []
        for operand in operands:
            try:
                is_foreign = type(operand) is tuple and len(operand) == 2
                pinned.append(self._find_foreign(*operand) if is_foreign else operand)
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
                self._execute(item, may_be_dear=True)
            del item  # it may hold the last reference to an operand
            if self._clock() >= stop_at:
                self.strategy.settle()
                return True

    # Executing steps

    def _execute(self, item: _Queued, *, may_be_dear: bool) -> bool:
        """Do one step and answer it; False, with nothing done, where it is dear and that may not be."""
        request = _request_of(item.step)
        answered = False
        try:
            step = decode_step(item.step)
            if type(step) is Run:
                if not self._run(step, may_be_dear=may_be_dear):
                    return False
            elif type(step) is Publish and not may_be_dear:
                return False
            else:
                reply, frame = self._do(step, item.frames)
                if reply is not None:
                    self._send(reply, frame)
                    answered = True
        except Exception as error:
            failure = self._as_eagerd_error(error, str(item.step[0]))
            if request:
                self._forget(failure)
                self._send(Failed(request, failure.code, failure.message, failure.details))
                answered = True
            else:
                self._note_failure(failure)
        if item.sequence is not None and not answered:
            self._send(Acknowledged(self.token, item.sequence))
        return True

    def _do(self, step: Step, frames: Sequence[bytes]) -> tuple[Reply | None, bytes | None]:
        """Every step but Run; returns its reply, with the frame that goes with it."""
        match step:
            case Put():
                self._make(step.handle, lambda: self._put(step, frames))
            case Commit():
                self._make(step.handle, lambda: self._commit(step))
            case Abandon():
                self._reservations.pop(step.reservation, None)
            case Release():
                self._release(step.handles)
            case SafePoint():
                self.strategy.safe_point()
            case Fetch():
                return self._fetch(step)
            case Describe():
                tensor = self.table.get(step.handle)
                return Described(step.request, dtype_name(tensor.spec.dtype), tensor.spec.shape), None
            case Synchronize():
                return Synchronized(step.request, self._take_failures()), None
            case GetStatistics():
                return Statistics(step.request, self.statistics()), None
            case Reserve():
                return self._reserve(step), None
            case Publish():
                tensor = self.table.get(step.handle)
                if self._publications.publish(step.name, tensor):
                    self.table.move_storage_out(tensor.storage)
                return Described(step.request, dtype_name(tensor.spec.dtype), tensor.spec.shape), None
            case Attach():
                handle = self.table.check_new(step.handle)
                array, storage = self._publications.attach(step.name)
                tensor = self.table.add_array(handle, array, storage)
                return Described(step.request, dtype_name(tensor.spec.dtype), tensor.spec.shape), None
            case Unpublish():
                self._publications.unpublish(step.name)
                return Done(step.request), None
            case ListPublished():
                return Published(step.request, tuple(self._publications.names())), None
            case Run():
                raise AssertionError("a Run goes to _run")
        return None, None

    def _run(self, step: Run, *, may_be_dear: bool) -> bool:
        """Run one operation; whatever goes wrong becomes the content of its outputs."""
        try:
            prepared = self._prepare(step)
            plan = prepared.plan
            is_in_place = bool(step.donated) and _may_overwrite(step, prepared)
            if is_in_place:
                is_dear = plan.in_place_seconds > INLINE_SECONDS
            else:
                is_dear = plan.cost_seconds > INLINE_SECONDS or (plan.nbytes > INLINE_BYTES and not plan.is_view)
            if not may_be_dear and is_dear:
                return False
            outputs = [self.table.check_new(handle) for handle in step.outputs]
            if any(b <= a for a, b in pairwise(outputs)):
                raise InvalidArgumentError(f"the outputs {outputs} of {step.operation} do not rise")
        except Exception as error:
            self.strategy.safe_point()
            self._fail(step, error)
            self._release(step.donated)
            return True
        self.strategy.safe_point()
        self.operations += 1
        try:
            self._compute(step, prepared, outputs, is_in_place=is_in_place)
        except Exception as error:
            self._fail(step, error)
        del prepared  # the operands are pinned no more
        if step.donated:
            self._release(step.donated)
        self.strategy.safe_point()
        return True

    def _prepare(self, step: Run) -> Prepared:
        values: list[Any] = []
        specs: list[OperandSpec] = []
        tensors: list[Tensor] = []
        foreign: list[Storage] = []
        if len(step.operands) > MAX_OPERANDS:
            raise InvalidArgumentError(f"{len(step.operands)} operands; at most {MAX_OPERANDS} are possible")
        for operand in step.operands:
            kind = type(operand)
            if kind is int:
                tensor = self.table.get(operand)
            elif operand is None:
                values.append(None)
                specs.append(None)
                continue
            elif kind is tuple and len(operand) == 1:
                scalar = scalar_from_wire(as_scalar(operand[0]))
                values.append(scalar)
                specs.append(scalar)
                continue
            elif kind is tuple and len(operand) == 2:
                tensor = self._find_foreign(*operand)
                foreign.append(tensor.storage)
            elif kind is Tensor:  # of another session, pinned when this step was queued
                tensor = operand
                foreign.append(tensor.storage)
            elif isinstance(operand, EagerdError):
                raise operand
            else:
                raise MalformedMessageError(f"{step.operation}: {operand!r} is no operand")
            tensors.append(tensor)
            values.append(tensor.array)
            specs.append(tensor.spec)
        plan, parameters = self._planner.plan(step.operation, tuple(specs), step.parameters)
        expected = len(plan.outputs)
        if len(step.outputs) != expected:
            raise InvalidArgumentError(
                f"{step.operation} has {expected} output{'s' if expected != 1 else ''}, not {len(step.outputs)}",
                outputs=expected,
            )
        return Prepared(values, tensors, foreign, plan, parameters)

    def _compute(self, step: Run, prepared: Prepared, outputs: list[int], *, is_in_place: bool) -> None:
        operands, tensors, foreign, plan, parameters = prepared
        results: tuple[AnyArray, ...]
        if is_in_place:
            results = (kernels.run_in_place(step.operation, operands, parameters),)
        else:
            results = self._kernel(step.operation, operands, parameters, plan)
        for handle, result in zip(outputs, results, strict=True):
            if result.base is None and result.flags.owndata and not any(result is t.array for t in tensors):
                self.table.add_array(handle, result)
                continue
            root = root_of(result)
            storage = next((t.storage for t in tensors if t.storage.root is root), None)
            if storage is not None and storage in foreign:  # a view of what may go before this session does
                self.table.add_array(handle, copy_into(self.pool, result))
            else:
                self.table.add_array(handle, result, storage)

    def _kernel(self, name: str, operands: list[Any], parameters: dict[str, Any], plan: Plan) -> tuple[AnyArray, ...]:
        if plan.is_view or (plan.nbytes <= INLINE_BYTES and plan.cost_seconds <= INLINE_SECONDS):
            return kernels.run_kernel(name, operands, parameters)  # nothing here is for a segment
        self.strategy.settle()  # what is released before a dear operation is reclaimed beside it, not after
        allocator.take_refusal()  # one from before, that nobody asked for
        with allocator.using(self.pool):
            return kernels.run_kernel(name, operands, parameters)

    def _fail(self, step: Run, error: Exception) -> None:
        failure = self._as_eagerd_error(error, step.operation)
        is_inherited = any(self.table.find_failure(operand) is failure for operand in step.operands)
        new = [handle for handle in step.outputs if self.table.is_new(handle)]
        for handle in new:
            self.table.add_failure(handle, failure)
        # An operation that was only given a failed operand has no failure of its own to report.
        if not (is_inherited and new):
            self._note_failure(failure)

    def _make(self, handle: int, make: Callable[[], AnyArray]) -> None:
        """Run `make`, a Put or Commit, as operations run: between safe points, failing into its handle."""
        self.table.check_new(handle)
        self.strategy.safe_point()
        self.operations += 1
        try:
            self.table.add_array(handle, make())
        except Exception as error:
            failure = self._as_eagerd_error(error, "put")
            self.table.add_failure(handle, failure)
            self._note_failure(failure)
        self.strategy.safe_point()

    def _put(self, step: Put, frames: Sequence[bytes]) -> AnyArray:
        if step.frame >= len(frames):
            raise MalformedMessageError(f"put names frame {step.frame}, and the message has {len(frames)}")
        dtype, shape = dtype_from_name(step.dtype), _checked_shape(step.shape)
        data = frames[step.frame]
        expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if len(data) != expected:
            raise InvalidArgumentError(f"put: {step.dtype} of shape {shape} has {expected} bytes, not {len(data)}")
        if len(data) > INLINE_BYTES:
            raise InvalidArgumentError(
                f"put: {len(data)} bytes in a frame; over {INLINE_BYTES} they go through a reservation"
            )
        return np.frombuffer(data, dtype).reshape(shape)

    def _commit(self, step: Commit) -> AnyArray:
        dtype, shape = dtype_from_name(step.dtype), _checked_shape(step.shape)
        data = self._reservations.pop(step.reservation, None)
        if data is None:
            raise InvalidHandleError(f"there is no reservation {step.reservation}")
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if nbytes > data.nbytes:
            raise InvalidArgumentError(f"commit: {nbytes} bytes do not fit a reservation of {data.nbytes}")
        return data[:nbytes].view(dtype).reshape(shape)

    def _reserve(self, step: Reserve) -> Reserved:
        nbytes = max(step.nbytes, INLINE_BYTES + 1)  # smaller ones would lie on the heap
        data = allocator.allocate_bytes(self.pool, nbytes, is_upload=True)
        block = allocator.find_block(data)
        assert block is not None
        number, self._next_reservation = self._next_reservation, self._next_reservation + 1
        self._reservations[number] = data
        self._on_segment_shown(block.segment)
        return Reserved(step.request, number, block.segment.number, block.offset)

    def _release(self, handles: Sequence[object]) -> None:
        """Release those that exist; a handle that does not is nobody's loss, and its neighbours go on."""
        for handle in handles:
            entry = self.table.release(handle)
            if entry is not None:
                self.strategy.released(entry)

    def _fetch(self, step: Fetch) -> tuple[Reply, bytes | None]:
        tensor = self.table.get(step.handle)
        array, name = tensor.array, dtype_name(tensor.spec.dtype)
        if array.nbytes <= INLINE_BYTES:
            strides = np.empty(array.shape, np.bool_).strides if array.size else (0,) * array.ndim
            strides = tuple(n * array.itemsize for n in strides)
            return Value(step.request, name, array.shape, strides, 0, None), array.tobytes()
        address = array.__array_interface__["data"][0]
        block = tensor.storage.block
        if block is None:  # a view, larger than the heap memory that it repeats
            root = tensor.storage.root
            offset = address - root.__array_interface__["data"][0]
            return Value(step.request, name, array.shape, array.strides, offset, None), root.tobytes("A")
        self._on_segment_shown(block.segment)
        offset = address - block.segment.address
        return Value(step.request, name, array.shape, array.strides, offset, block.segment.number), None

    def statistics(self) -> dict[str, int]:
        """Return the session's counters, by the names of the client's `SessionStats`."""
        pooled = self.pool.idle_bytes
        return {
            **asdict(self.table.snapshot()),
            "reclaim_errors": self.strategy.errors,
            "pooled_bytes": pooled,
            "memory_limit": self.account.limit_bytes,
            "operations": self.operations,
        }

    def _relieve(self) -> None:
        """Memory ran out: what is released but not reclaimed yet goes first, where the strategy allows."""
        self.strategy.relieve()
        self.pool.take_in_freed()

    # Failures

    def _as_eagerd_error(self, error: Exception, operation: str) -> EagerdError:
        """Translate what a kernel raised; an error of ours stays the same object, so that it is told once."""
        error = allocator.restore_exception(error)
        if isinstance(error, EagerdError):
            return error
        if isinstance(error, MemoryError):
            refusal = allocator.take_refusal()
            if refusal is not None:
                return type(refusal)(f"{operation}: {refusal}", operation=operation, **refusal.details)
            return ResourceExhaustedError(f"{operation}: {error}", operation=operation)
        kinds: tuple[tuple[type[Exception], type[EagerdError]], ...] = (
            (IndexError, InvalidIndexError),
            (TypeError, InvalidTypeError),
            (ValueError, InvalidArgumentError),
            (ArithmeticError, InvalidArgumentError),
        )
        for foreign, ours in kinds:
            if isinstance(error, foreign):
                return ours(f"{operation}: {error}", operation=operation)
        log.error("operation %s failed", operation, exc_info=error)
        return OperationFailedError(f"{operation}: {type(error).__name__}: {error}", operation=operation)

    def _note_failure(self, failure: EagerdError) -> None:
        if len(self._failures) < _MOST_FAILURES_KEPT:
            self._failures.append(failure)

    def _forget(self, failure: EagerdError) -> None:
        """Somebody has looked at it."""
        self._failures = [kept for kept in self._failures if kept is not failure]

    def _take_failures(self) -> tuple[Failure, ...]:
        failures, self._failures = self._failures, []
        return tuple(map(Failure.of, failures))

    # Closing

    def _cancel(self, item: _Queued) -> None:
        error = OperationCancelledError("the session closed before this was done")
        self._cancelled += item.step[0] == "run"
        request = _request_of(item.step)
        if request:
            self._send(Failed(request, error.code, error.message, error.details))

    def _finish_close(self, request: int | None) -> None:
        """Free everything; the second of two closes only answers."""
        was_closed_already = self.state is State.CLOSED
        if not was_closed_already:
            self._reservations.clear()
            for entry in self.table.release_all():
                self.strategy.released(entry)
            self.strategy.stop()
            self.pool.close()
            self.state = State.CLOSED
        if request is not None:
            self._send(SessionClosed(request, was_closed_already, self._cancelled, self._take_failures()))
        if not was_closed_already:
            self._on_closed(self)


def _may_overwrite(step: Run, prepared: Prepared) -> bool:
    """Tell whether a result may take the place of the first operand: given up, as large, and seen by nobody else.

    Other operands may overlap it, or be it: numpy reads them as if they did not.
    """
    if not (kernels.can_run_in_place(step.operation) and step.operands[0] in step.donated):
        return False
    first = prepared.tensors[0]
    return (
        prepared.plan.outputs == (first.spec,)
        and first.storage.is_exclusive
        and first.array.flags.writeable
        and first.array.flags.owndata
    )


def _request_of(step: tuple[Any, ...]) -> int:
    """Return the request number that a step carries, readable even where the rest of it is not; 0 for none."""
    fields = getattr(STEP_TAGS.get(step[0]), "_fields", ())
    is_numbered = fields[:1] == ("request",) and len(step) > 1 and type(step[1]) is int and step[1] > 0
    return step[1] if is_numbered else 0


def _operands(step: tuple[Any, ...]) -> Sequence[Any]:
    if len(step) >= 5 and step[0] == "run" and type(step[3]) is tuple:
        return step[3]
    return ()


def _checked_shape(shape: Sequence[object]) -> tuple[int, ...]:
    if not all(type(n) is int for n in shape):
        raise MalformedMessageError(f"a shape is made of integers, not {shape!r}")
    return check_size(shape)  # type: ignore[arg-type]
