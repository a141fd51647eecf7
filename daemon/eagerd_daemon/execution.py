"""`Executor`: carries out the steps of one session on its handles, its memory and its cleanup strategy.

One thread at a time calls it: the loop while the session is idle, else the worker that has the session. What a
run goes through is written out in few functions, since each call more costs 0.1 µs of the 6 that a small one takes.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from eagerd_daemon import allocator, kernels
from eagerd_daemon.cleanup import CleanupStrategy
from eagerd_daemon.handles import AnyArray, HandleTable, Storage, Tensor, root_of
from eagerd_daemon.pool import Account, SegmentPool
from eagerd_daemon.published import Publications, copy_into
from eagerd_protocol.codec import decode_step, find_run
from eagerd_protocol.dtypes import dtype_from_name, dtype_name
from eagerd_protocol.errors import (
    EagerdError,
    InvalidArgumentError,
    InvalidHandleError,
    InvalidIndexError,
    InvalidTypeError,
    MalformedMessageError,
    OperationFailedError,
    ResourceExhaustedError,
)
from eagerd_protocol.limits import INLINE_BYTES, MAX_OPERANDS
from eagerd_protocol.messages import (
    STEP_TAGS,
    Abandon,
    Acknowledged,
    Attach,
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
    Release,
    Reply,
    Reserve,
    Reserved,
    Run,
    SafePoint,
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

log: Final = logging.getLogger("eagerd.session")

INLINE_SECONDS: Final = 50e-6
"""An operation under this estimate runs in the loop: handing it to a worker costs 30 to 100 µs."""

_LONG_SECONDS: Final = 2e-3
"""From this estimate on, waking the cleanup thread beside an operation costs less than the wait after it keeps."""

_MOST_FAILURES_KEPT: Final = 100

FindForeign: TypeAlias = Callable[[bytes, object], Tensor]


class Sender(Protocol):
    """Sends replies to one client, from any thread."""

    def __call__(self, reply: Reply, frame: bytes | None = None, /) -> None: ...


class Executor:
    """Owned by its session, and gone with it."""

    def __init__(
        self,
        *,
        token: bytes,
        account: Account,
        pool: SegmentPool,
        table: HandleTable,
        strategy: CleanupStrategy,
        planner: Planner,
        publications: Publications,
        send: Sender,
        find_foreign: FindForeign,
        on_segment_shown: Callable[[Any], None],
    ) -> None:
        self.operations = 0
        self._token = token
        self._account = account
        self._pool = pool
        self._table = table
        self._strategy = strategy
        self._planner = planner
        self._publications = publications
        self._send = send
        self._find_foreign = find_foreign
        self._on_segment_shown = on_segment_shown
        self._failures: list[EagerdError] = []  # that nobody has looked at
        self._reservations: dict[int, AnyArray] = {}
        self._next_reservation = 1

    def execute(
        self, step: tuple[Any, ...], frames: Sequence[bytes], sequence: int | None, *, may_be_dear: bool
    ) -> bool:
        """Do one step and answer it; False, with nothing done, where it is dear and that may not be.

        `sequence` is that of the batch that this step is the last of, to be acknowledged with it.
        """
        is_answered = False
        run = find_run(step)
        if run is not None:
            if not self._run(*run, may_be_dear=may_be_dear):
                return False
        elif step[0] == "release" and len(step) == 2 and type(step[1]) is tuple:
            self._release(step[1])  # as frequent as runs
        elif not may_be_dear and step[0] == "publish":
            return False
        else:
            is_answered = self._execute_other(step, frames)
        if sequence is not None and not is_answered:
            self._send(Acknowledged(self._token, sequence))
        return True

    def take_failures(self) -> tuple[Failure, ...]:
        """Return the errors that nobody has looked at, for the last time."""
        failures, self._failures = self._failures, []
        return tuple(map(Failure.of, failures))

    def drop_reservations(self) -> None:
        """Give back what was reserved and never committed."""
        self._reservations.clear()

    # Runs

    def _run(
        self,
        name: str,
        outputs: tuple[Any, ...],
        operands: tuple[Any, ...],
        given: dict[str, Any],
        donated: tuple[Any, ...] = (),
        *,
        may_be_dear: bool,
    ) -> bool:
        """Run one operation; whatever goes wrong becomes the content of its outputs."""
        try:
            values, tensors, foreign, plan, parameters = self._prepare(name, operands, given)
            overwritten = _find_overwritable(name, operands, donated, tensors, plan) if donated else None
            if overwritten is not None:
                is_dear = plan.in_place_seconds > INLINE_SECONDS
            else:
                is_dear = plan.cost_seconds > INLINE_SECONDS or (plan.nbytes > INLINE_BYTES and not plan.is_view)
            if is_dear and not may_be_dear:
                return False
            self._check_outputs(name, outputs, plan)
        except Exception as error:
            self._strategy.safe_point()
            self._fail(name, outputs, operands, error)
            self._release(donated)
            return True
        self._strategy.safe_point()
        self.operations += 1
        try:
            if overwritten is not None:
                result = kernels.run_in_place(name, values, parameters, overwritten.array)
                self._table.add_array(outputs[0], result, overwritten.storage, overwritten.spec)
            else:
                self._compute(name, outputs, values, tensors, foreign, plan, parameters)
        except Exception as error:
            self._fail(name, outputs, operands, error)
        del values, tensors, overwritten  # the operands are pinned no more
        if donated:
            self._release(donated)
        self._strategy.safe_point()
        return True

    def _prepare(
        self, name: str, operands: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[list[Any], list[Tensor], list[Storage], Plan, dict[str, Any]]:
        """Resolve the operands and look up the plan: values, tensors, storages of other sessions, plan, parameters."""
        if len(operands) > MAX_OPERANDS:
            raise InvalidArgumentError(f"{len(operands)} operands; at most {MAX_OPERANDS} are possible")
        values: list[Any] = []
        specs: list[OperandSpec] = []
        tensors: list[Tensor] = []
        foreign: list[Storage] = []
        get = self._table.get
        for operand in operands:
            kind = type(operand)
            if kind is int:
                tensor = get(operand)
            elif operand is None:
                values.append(None)
                specs.append(None)
                continue
            elif kind is tuple and len(operand) == 1:
                scalar = operand[0]
                if type(scalar) is not float:
                    scalar = scalar_from_wire(as_scalar(scalar))
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
                raise MalformedMessageError(f"{name}: {operand!r} is no operand")
            tensors.append(tensor)
            values.append(tensor.array)
            specs.append(tensor.spec)
        plan, parameters = self._planner.plan(name, tuple(specs), given)
        return values, tensors, foreign, plan, parameters

    def _check_outputs(self, name: str, outputs: tuple[Any, ...], plan: Plan) -> None:
        if len(outputs) != len(plan.outputs):
            expected = len(plan.outputs)
            raise InvalidArgumentError(
                f"{name} has {expected} output{'s' if expected != 1 else ''}, not {len(outputs)}", outputs=expected
            )
        check_new = self._table.check_new
        for handle in outputs:
            check_new(handle)
        if len(outputs) > 1 and any(b <= a for a, b in pairwise(outputs)):
            raise InvalidArgumentError(f"the outputs {list(outputs)} of {name} do not rise")

    def _compute(
        self,
        name: str,
        outputs: tuple[int, ...],
        values: list[Any],
        tensors: list[Tensor],
        foreign: list[Storage],
        plan: Plan,
        parameters: dict[str, Any],
    ) -> None:
        """Run the kernel and name its results; a view shares the storage of the operand that it shows."""
        if plan.is_view or (plan.nbytes <= INLINE_BYTES and plan.cost_seconds <= INLINE_SECONDS):
            results = kernels.run_kernel(name, values, parameters)  # nothing here is for a segment
        else:
            if plan.cost_seconds > _LONG_SECONDS:
                self._strategy.settle()  # what is released before a long operation is reclaimed beside it, not after
            allocator.take_refusal()  # one from before, that nobody asked for
            with allocator.using(self._pool):
                results = kernels.run_kernel(name, values, parameters)
        for handle, result, spec in zip(outputs, results, plan.outputs, strict=True):
            root = result if result.base is None else root_of(result)
            storage = None
            for tensor in tensors:  # a result that shows an operand's memory, or is the operand
                if tensor.storage.root is root:
                    storage = tensor.storage
            if storage is not None and storage in foreign:  # a view of what may go before this session does
                self._table.add_array(handle, copy_into(self._pool, result))
            else:
                self._table.add_array(handle, result, storage, spec)

    def _fail(self, name: str, outputs: tuple[Any, ...], operands: tuple[Any, ...], error: Exception) -> None:
        failure = self._as_eagerd_error(error, name)
        is_inherited = any(self._table.find_failure(operand) is failure for operand in operands)
        new = [handle for handle in outputs if self._table.is_new(handle)]
        for handle in new:
            self._table.add_failure(handle, failure)
        # An operation that was only given a failed operand has no failure of its own to report.
        if not (is_inherited and new):
            self._note_failure(failure)

    # Other steps

    def _execute_other(self, step: tuple[Any, ...], frames: Sequence[bytes]) -> bool:
        """Do any step but a run; tell whether it was answered."""
        try:
            reply, frame = self._do(decode_step(step), frames)
        except Exception as error:
            failure = self._as_eagerd_error(error, str(step[0]))
            request = request_of(step)
            if not request:
                self._note_failure(failure)
                return False
            self._forget(failure)
            reply, frame = Failed(request, failure.code, failure.message, failure.details), None
        if reply is None:
            return False
        self._send(reply, frame)
        return True

    def _do(self, step: Step, frames: Sequence[bytes]) -> tuple[Reply | None, bytes | None]:
        """Return the reply of a step, with the frame that goes with it."""
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
                self._strategy.safe_point()
            case Fetch():
                return self._fetch(step)
            case Describe():
                tensor = self._table.get(step.handle)
                return Described(step.request, dtype_name(tensor.spec.dtype), tensor.spec.shape), None
            case Synchronize():
                return Synchronized(step.request, self.take_failures()), None
            case GetStatistics():
                return Statistics(step.request, self.statistics()), None
            case Reserve():
                return self._reserve(step), None
            case Publish():
                tensor = self._table.get(step.handle)
                if self._publications.publish(step.name, tensor):
                    self._table.move_storage_out(tensor.storage)
                return Described(step.request, dtype_name(tensor.spec.dtype), tensor.spec.shape), None
            case Attach():
                handle = self._table.check_new(step.handle)
                array, storage = self._publications.attach(step.name)
                tensor = self._table.add_array(handle, array, storage)
                return Described(step.request, dtype_name(tensor.spec.dtype), tensor.spec.shape), None
            case Unpublish():
                self._publications.unpublish(step.name)
                return Done(step.request), None
            case ListPublished():
                return Published(step.request, tuple(self._publications.names())), None
            case Run():
                raise AssertionError("a run goes to _run")
        return None, None

    def _make(self, handle: int, make: Callable[[], AnyArray]) -> None:
        """Run `make`, a Put or Commit, as operations run: between safe points, failing into its handle."""
        self._table.check_new(handle)
        self._strategy.safe_point()
        self.operations += 1
        try:
            self._table.add_array(handle, make())
        except Exception as error:
            failure = self._as_eagerd_error(error, "put")
            self._table.add_failure(handle, failure)
            self._note_failure(failure)
        self._strategy.safe_point()

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
        data = allocator.allocate_bytes(self._pool, nbytes, is_upload=True)
        block = allocator.find_block(data)
        assert block is not None
        number, self._next_reservation = self._next_reservation, self._next_reservation + 1
        self._reservations[number] = data
        self._on_segment_shown(block.segment)
        return Reserved(step.request, number, block.segment.number, block.offset)

    def _release(self, handles: Sequence[object]) -> None:
        """Release those that exist; a handle that does not is nobody's loss, and its neighbours go on."""
        for handle in handles:
            entry = self._table.release(handle)
            if entry is not None:
                self._strategy.released(entry)

    def _fetch(self, step: Fetch) -> tuple[Reply, bytes | None]:
        tensor = self._table.get(step.handle)
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
        pooled = self._pool.idle_bytes
        return {
            **asdict(self._table.snapshot()),
            "reclaim_errors": self._strategy.errors,
            "pooled_bytes": pooled,
            "memory_limit": self._account.limit_bytes,
            "operations": self.operations,
        }

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


def _find_overwritable(
    name: str, operands: tuple[Any, ...], donated: tuple[Any, ...], tensors: list[Tensor], plan: Plan
) -> Tensor | None:
    """Return the operand whose place the result may take: given up, as large, and seen by nobody else.

    Other operands may overlap it, or be it: numpy reads them as if they did not.
    """
    which = kernels.overwritable_operands(name)
    if which == "none" or len(plan.outputs) != 1:
        return None
    spec = plan.outputs[0]
    # One for each tensor; that of another session is in no list of donated handles.
    handles = [
        operand for operand in operands if operand is not None and not (type(operand) is tuple and len(operand) == 1)
    ]
    for handle, tensor in zip(handles, tensors, strict=False):
        storage = tensor.storage
        if handle in donated and storage.is_exclusive and (tensor.spec is spec or tensor.spec == spec):
            flags = tensor.array.flags
            if flags.writeable and flags.owndata:
                return tensor
        if which == "first":
            break
    return None


def request_of(step: tuple[Any, ...]) -> int:
    """Return the request number that a step carries, readable even where the rest of it is not; 0 for none."""
    fields = getattr(STEP_TAGS.get(step[0]), "_fields", ())
    is_numbered = fields[:1] == ("request",) and len(step) > 1 and type(step[1]) is int and step[1] > 0
    return step[1] if is_numbered else 0


def _checked_shape(shape: Sequence[object]) -> tuple[int, ...]:
    if not all(type(n) is int for n in shape):
        raise MalformedMessageError(f"a shape is made of integers, not {shape!r}")
    return check_size(shape)  # type: ignore[arg-type]
