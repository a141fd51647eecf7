"""`EagerSession`: submits operations in ordered batches, reads results, releases handles.

An operation is appended to the session's batch, which is sent when it is full, when an operation is dear
enough that the daemon should start on it, or when a reply is needed. `_lock` covers the batch and nothing else.
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from sys import getrefcount
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from eagerd.address import find_daemon
from eagerd.array import Array
from eagerd.connection import Connection, close_connection, open_connection
from eagerd.mappings import view_of
from eagerd.namespace import Namespace
from eagerd.releases import FLUSHER, HandleReference, ReleaseQueue
from eagerd.writer import Writer
from eagerd_protocol.codec import encode, is_foreign, step_to_wire
from eagerd_protocol.dtypes import DEFAULT_FLOAT, DType, as_dtype, dtype_from_name, dtype_name
from eagerd_protocol.errors import (
    DaemonError,
    EagerdError,
    ForkedClientError,
    InvalidArgumentError,
    InvalidHandleError,
    InvalidStateError,
    InvalidTypeError,
    PeerError,
    SessionClosedError,
)
from eagerd_protocol.limits import INLINE_BYTES, MAX_UNACKNOWLEDGED_BATCHES
from eagerd_protocol.messages import (
    Abandon,
    Attach,
    Batch,
    CloseSession,
    Commit,
    Describe,
    Described,
    Failure,
    Fetch,
    GetStatistics,
    ListPublished,
    OpenSession,
    Publish,
    Published,
    Put,
    Reply,
    Reserve,
    Reserved,
    SafePoint,
    SessionClosed,
    SessionOpened,
    Statistics,
    Step,
    Synchronize,
    Synchronized,
    Unpublish,
    Value,
)
from eagerd_protocol.parameters import as_scalar, as_shape, scalar_from_wire
from eagerd_protocol.planner import Planner
from eagerd_protocol.rules.checks import check_size
from eagerd_protocol.specs import ArraySpec, OperandSpec, Plan
from eagerd_protocol.strategy import ResourceCleanupStrategy

_BATCH_STEPS: Final = 64
_BATCH_NUMBERS: Final = 32_768
"""Handles in a batch, at most 9 bytes each, so that its frame stays well under the limit of 1 MiB."""

_DEAR_SECONDS: Final = 20e-6
"""An operation over this estimate is sent at once where the daemon would run out of work: it may as well start."""

_LONG_SECONDS: Final = 2e-3
"""One over this estimate is sent at once in any case."""

_ENOUGH_AHEAD: Final = 4
"""Unacknowledged batches with which the daemon has work. To go on sending each operation of 1 MB alone made it
take each message up beside its computing, and a loop of them 1.9 times as long."""

_CLOSE_GRACE_SECONDS: Final = 1.0
"""How long queued operations may still run when their session closes; then they are cancelled."""

_PLANNER: Final = Planner()
_COUNT: Final = count(1)


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Counters of a session, as the daemon has them. Live ones include what is released and not reclaimed yet."""

    live_handles: int
    live_bytes: int
    """Of tensors that the session owns; attached ones are the daemon's."""
    released_handles: int
    released_bytes: int
    reclaimed_handles: int
    reclaimed_bytes: int
    reclaim_errors: int
    pooled_bytes: int
    """Shared memory that is mapped, warm, and waits to be used again."""
    memory_limit: int
    operations: int


class EagerSession:
    """A session of array operations in an eagerd daemon.

    Parameters
    ----------
    address
        ``ipc://PATH`` of a daemon. None: ``$EAGERD_ADDRESS``, else the user's or the system's daemon if one
        answers, else an embedded daemon, a child process that ends with this one.
    cleanup
        When unused resources are reclaimed: a `ResourceCleanupStrategy` or its name.
    execution
        "async": an operation that fails leaves its error in its outputs, raised where they are used.
        "sync": each operation is waited for and raises on its own line.
    memory_limit
        Bytes that the session's tensors may take; None: the daemon's limit.
    label
        A name for people, in the daemon's logs and listings; None: the process's number and the session's in it.
    timeout
        Seconds that any call may wait for the daemon.

    Raises
    ------
    DaemonUnavailableError
        Nothing answers at the address.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        cleanup: ResourceCleanupStrategy | str = ResourceCleanupStrategy.IN_BACKGROUND,
        execution: str = "async",
        memory_limit: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.cleanup: Final = ResourceCleanupStrategy.parse(cleanup)
        if execution not in ("async", "sync"):
            raise InvalidArgumentError(f'execution is "async" or "sync", not {execution!r}')
        if memory_limit is not None and not (type(memory_limit) is int and memory_limit > 0):
            raise InvalidArgumentError(f"memory_limit is a positive number of bytes, not {memory_limit!r}")
        if not timeout > 0:
            raise InvalidArgumentError(f"timeout is a positive number of seconds, not {timeout!r}")
        # So that an array's text, the daemon's logs and its listings name one session alike.
        self.label: Final = f"{os.getpid()}-{next(_COUNT)}" if label is None else label
        self._is_sync = execution == "sync"
        self._timeout = float(timeout)
        self._lock = threading.Lock()
        self._steps: list[tuple[Any, ...]] = []
        self._frames: list[bytes] = []
        self._numbers = 0  # in those steps
        self._next_handle = 1
        self._sequence = 0
        self._acknowledged = 0
        self._is_default = False
        self.submissions = 0  # of operations, for the flusher to see whether the program is idle

        self._connection: Connection = open_connection(find_daemon(address), self._timeout)
        try:
            message = OpenSession(next(self._connection.numbers), self.cleanup.name, memory_limit, self.label)
            opened, _ = self._connection.request(message, self._timeout)
        except BaseException:
            close_connection(self._connection)
            raise
        assert isinstance(opened, SessionOpened)
        self._token = opened.token
        self._end: EagerdError | None = None  # why nothing can be submitted any more
        in_background = self.cleanup is ResourceCleanupStrategy.IN_BACKGROUND
        self._releases = ReleaseQueue(FLUSHER if in_background else None)
        self._connection.sessions[self._token] = self
        if in_background:
            FLUSHER.add(self)
        self.namespace: Final = Namespace(self)

    def __repr__(self) -> str:
        state = "open" if self._end is None else "closed"
        return f"<EagerSession {self.label!r} at {self.address}: {state}, {self.cleanup}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except EagerdError as failure:
            if error is None:
                raise
            error.add_note(f"and closing the session reported: {failure}")

    def __del__(self) -> None:
        # Dropped without a close. This may run anywhere, as a handle's does: it only appends.
        if getattr(self, "_end", self) is None:
            self._connection.orphans.append(self._token)

    # What users call

    @property
    def address(self) -> str:
        """Where the daemon listens; give it to other processes."""
        return str(self._connection.address)

    @property
    def closed(self) -> bool:
        """Whether the session has ended: closed, or lost with its daemon."""
        return self._end is not None

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait until everything submitted is done, and raise the failure that nobody has looked at, if there is one.

        Raises
        ------
        DeadlineExceededError
            It took longer than `timeout` seconds (default: the session's).
        EagerdError
            The first failure since the last look; notes name the others.
        """
        reply = self._ask(Synchronize(self._number()), timeout)
        assert isinstance(reply, Synchronized)
        _raise_failures(reply.failures)

    def safe_point(self) -> None:
        """Have the daemon reclaim what is released, where the strategy is ON_SAFE_POINTS; returns when it has."""
        with self._lock:
            self._append(step_to_wire(SafePoint()))
        self._ask(GetStatistics(self._number()))

    def stats(self) -> SessionStats:
        """Return the session's counters, after all that was submitted before."""
        reply = self._ask(GetStatistics(self._number()))
        assert isinstance(reply, Statistics)
        return SessionStats(**{name: reply.values[name] for name in SessionStats.__dataclass_fields__})

    def writer(self, shape: int | Sequence[int], dtype: "DType | str | type" = DEFAULT_FLOAT) -> Writer:
        """Return shared memory to fill, which `Writer.commit` makes an array of with no copy."""
        spec = ArraySpec(check_size(as_shape(shape if isinstance(shape, int) else tuple(shape))), as_dtype(dtype))
        if spec.nbytes <= INLINE_BYTES:
            self._check_open()
            return Writer(self, spec, np.zeros(spec.shape, spec.dtype), None)
        reply = self._ask(Reserve(self._number(), spec.nbytes))
        assert isinstance(reply, Reserved)
        mapping = self._connection.mappings.get(reply.segment, writable=True)
        target = view_of(mapping, spec.shape, spec.dtype, reply.offset, _c_strides(spec), None)  # type: ignore[arg-type]
        return Writer(self, spec, target, reply.reservation)

    def publish(self, name: str, array: Array) -> None:
        """Share `array` under `name`: it now belongs to the daemon, and outlives this session.

        Raises
        ------
        AlreadyExistsError
            The name is taken.
        """
        self._ask(Publish(self._number(), name, self._own_handle(array)))

    def attach(self, name: str) -> Array:
        """Return a read-only array on the memory of what is published as `name`, with no copy.

        Raises
        ------
        NotFoundError
            Nothing is published under this name.
        """
        with self._lock:
            handle = self._take_handles(1)[0]
        reply = self._ask(Attach(self._number(), name, handle))
        assert isinstance(reply, Described)
        spec = ArraySpec(reply.shape, dtype_from_name(reply.dtype))
        return Array(self, HandleReference(handle, self._releases), spec)

    def unpublish(self, name: str) -> None:
        """Take a published name back; those attached keep the tensor until they let go."""
        self._ask(Unpublish(self._number(), name))

    def published(self) -> list[str]:
        """Return the published names, sorted."""
        reply = self._ask(ListPublished(self._number()))
        assert isinstance(reply, Published)
        return list(reply.names)

    def close(self) -> None:
        """Close the session and free all its resources; closing twice does no harm.

        Queued operations may still run for a second, then they are cancelled; a running one is waited for.

        Raises
        ------
        EagerdError
            The failure of an operation that nobody has looked at; the session is closed all the same.
        InvalidStateError
            This is the default session, which lives as long as the process.
        """
        if self._is_default:
            raise InvalidStateError("the default session cannot be closed; it ends with the process")
        self._close()

    @staticmethod
    def init_default(**options: Any) -> "EagerSession":
        """Make the process's default session with `options` of the constructor, before anything uses it."""
        from eagerd.default import init_default  # which imports this module

        return init_default(**options)

    @staticmethod
    def get_default() -> "EagerSession":
        """Return the process's default session, made on first use; it cannot be closed."""
        from eagerd.default import get_default

        return get_default()

    # What arrays and the namespace call

    def run(self, name: str, operands: Sequence[object], given: dict[str, object]) -> tuple[Array, ...]:
        """Submit an operation and return its outputs, which may not be computed yet."""
        if self._end is not None:
            raise self._end
        specs: list[OperandSpec] = []
        wire: list[Any] = []
        held: list[HandleReference] = []  # or another thread that assigns to an operand could have it released
        has_foreign = False
        for operand in operands:
            # The two common kinds first: to call `_operand` for them, too, took a fifth of the submission.
            if type(operand) is Array and operand.session is self:
                specs.append(operand.known_spec())
                held.append(operand.reference)
                wire.append(held[-1].handle)
            elif type(operand) is float:
                specs.append(operand)
                wire.append((operand,))
            else:
                spec, on_wire = self._operand(operand, name, len(specs), held)
                specs.append(spec)
                wire.append(on_wire)
                has_foreign = has_foreign or is_foreign(on_wire)
        plan, parameters = _PLANNER.plan(name, tuple(specs), given)
        if given:
            given = {key: parameters[key] for key in given}
        outputs = self._submit(name, wire, given, plan)
        if has_foreign:
            self.flush()  # while `operands` still holds the other session's arrays
        return outputs

    def run_in_place(self, name: str, target: Array, others: Sequence[object], given: dict[str, object]) -> None:
        """Submit an operation whose output becomes the value of `target`.

        Raises, with nothing lost, where the output would have another shape or dtype.
        """
        self._check_open()
        held: list[HandleReference] = []
        pairs = [self._operand(operand, name, position + 1, held) for position, operand in enumerate(others)]
        wire = [on_wire for _, on_wire in pairs]
        before = target.known_spec()
        plan, parameters = _PLANNER.plan(name, (before, *(spec for spec, _ in pairs)), given)
        (after,) = plan.outputs
        if after.shape != before.shape:
            raise InvalidArgumentError(f"{name} in place cannot change shape {before.shape} to {after.shape}")
        if after.dtype != before.dtype:
            raise InvalidTypeError(f"{name} in place cannot change {before.dtype} to {after.dtype}")
        parameters = {key: parameters[key] for key in given}
        if self._is_sync:  # the old value is kept until the new one is there: an operation that fails changes nothing
            (output,) = self._submit(name, [target.handle, *wire], parameters, plan)
            target.rebind(output.reference)
            return
        # Replaced under the lock, and before anything may wait: no other thread and no Ctrl-C finds the array between
        # its values. Whoever reads the new handle from here on submits behind this step.
        with self._lock:
            reference = target.reference
            handles = self._take_handles(1)
            successor = HandleReference(handles[0], self._releases)
            target.rebind(successor)
            # This variable and the argument; whoever else holds it, a numpy view or another thread that has just read
            # it, needs the old value: then the daemon must keep it, and copies.
            donated = (reference.handle,) if getrefcount(reference) <= 2 else ()
            try:
                self._append_run(name, handles, [reference.handle, *wire], parameters, plan, donated)
            except BaseException:
                target.rebind(reference)
                successor.disarm()
                raise
            if donated:
                reference.disarm()
        if any(map(is_foreign, wire)):
            self.flush()  # while `others` still holds the other session's arrays
        self._after_submission()

    def upload(self, value: object, dtype: DType | None = None) -> Array:
        """Copy an array-like into the daemon and return the array."""
        self._check_open()
        is_complex = isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "c"
        if is_complex and dtype is not None and dtype.kind not in "cb":
            raise InvalidTypeError(f"complex numbers to {dtype} would lose their imaginary part; take .real first")
        try:
            source = np.asarray(value, dtype)
        except EagerdError:  # of an array among nested sequences
            raise
        except (ValueError, OverflowError) as error:  # ragged sequences; a value that the dtype cannot hold
            raise InvalidArgumentError(str(error)) from None
        except TypeError as error:
            raise InvalidTypeError(str(error)) from None
        dtype_name(source.dtype)
        if source.nbytes <= INLINE_BYTES:
            return self.put(source)
        with self.writer(source.shape, source.dtype) as writer:
            np.copyto(writer.array, source)
            return writer.commit()

    def put(self, source: "np.ndarray[Any, Any]") -> Array:
        """Submit a small array's bytes; part of the batch."""
        spec = ArraySpec(source.shape, source.dtype)
        data = source.tobytes()
        with self._lock:
            (handle,) = self._take_handles(1)
            step = Put(handle, dtype_name(source.dtype), source.shape, len(self._frames))
            self._frames.append(data)
            self._append(step_to_wire(step))
            if len(self._frames) >= _BATCH_STEPS:
                self._send_batch()
        return self._finish_submission(Array(self, HandleReference(handle, self._releases), spec))

    def commit(self, reservation: int, spec: ArraySpec) -> Array:
        """Submit what a writer wrote."""
        with self._lock:
            (handle,) = self._take_handles(1)
            step = Commit(reservation, handle, dtype_name(spec.dtype), spec.shape)
            self._append(step_to_wire(step))
        return self._finish_submission(Array(self, HandleReference(handle, self._releases), spec))

    def abandon(self, reservation: int) -> None:
        """Give back what a writer did not commit."""
        if self._end is None:
            with self._lock:
                self._append(step_to_wire(Abandon(reservation)))

    def describe(self, handle: int, timeout: float | None = None) -> ArraySpec:
        """Ask for a shape that depends on data; raises the error of a failed operation."""
        reply = self._ask(Describe(self._number(), handle), timeout)
        assert isinstance(reply, Described)
        return ArraySpec(reply.shape, dtype_from_name(reply.dtype))

    def fetch(
        self, reference: HandleReference, timeout: float | None = None, *, is_private: bool = False
    ) -> "np.ndarray[Any, Any]":
        """Return a read-only view of a value: of shared memory, or of the reply's bytes where it is small.

        A private view is of a mapping of its own: whoever writes to it all the same, writes to a copy.
        """
        number = self._number()
        reply, frame = self._ask_with_frame(Fetch(number, reference.handle), timeout)
        assert isinstance(reply, Value)
        dtype = dtype_from_name(reply.dtype)
        if reply.segment is None:
            return np.ndarray(reply.shape, dtype, frame, reply.offset, reply.strides)
        mappings = self._connection.mappings
        mapping = mappings.get_private(reply.segment) if is_private else mappings.get(reply.segment)
        view = view_of(mapping, reply.shape, dtype, reply.offset, reply.strides, reference)
        view.flags.writeable = False
        return view

    # What the flusher calls

    def has_unsent(self) -> bool:
        """Whether something waits to be sent."""
        return self._end is None and bool(self._steps or self._releases)

    def flush_quietly(self) -> None:
        """Send what waits; whoever uses the session next sees why it could not be sent."""
        try:
            self.flush()
        except EagerdError:
            return

    def flush(self) -> None:
        """Send the batch as it stands, and the releases."""
        if self._end is None and (self._steps or self._releases):
            with self._lock:
                self._drain_releases()
                self._send_batch()

    # What the connection calls

    def on_acknowledged(self, sequence: int) -> None:
        self._acknowledged = max(self._acknowledged, sequence)

    def on_refused(self, sequence: int, error: EagerdError) -> None:
        if self._end is None and isinstance(error, DaemonError | InvalidHandleError | SessionClosedError):
            self._end = error
        self._connection.refuse(self._token, sequence, error)
        self.on_acknowledged(sequence)

    def on_lost(self, error: EagerdError) -> None:
        if self._end is None:
            self._end = error

    def on_forked(self) -> None:
        self._end = ForkedClientError(
            f"this session was opened by process {os.getppid()} before a fork; open one of your own in the child"
        )
        self._lock = threading.Lock()

    # Submitting

    def _submit(self, name: str, operands: list[Any], given: dict[str, Any], plan: Plan) -> tuple[Array, ...]:
        releases = self._releases
        with self._lock:
            handles = self._take_handles(len(plan.outputs))
            self._append_run(name, handles, operands, given, plan, ())
        if len(handles) == 1:
            outputs: tuple[Array, ...] = (Array(self, HandleReference(handles[0], releases), plan.outputs[0]),)
        else:
            pairs = zip(handles, plan.outputs, strict=True)
            outputs = tuple([Array(self, HandleReference(handle, releases), spec) for handle, spec in pairs])
        if self._is_sync:
            self.synchronize()
        self._after_submission()
        return outputs

    def _append_run(
        self,
        name: str,
        handles: tuple[int, ...],
        operands: list[Any],
        given: dict[str, Any],
        plan: Plan,
        donated: tuple[int, ...],
    ) -> None:
        """Add a run to the batch; the lock is held."""
        step = ("run", name, handles, operands, given, donated) if donated else ("run", name, handles, operands, given)
        self._append(step, len(handles) + len(operands))
        seconds = plan.in_place_seconds if donated else plan.cost_seconds
        if seconds > _DEAR_SECONDS and not plan.is_view and (seconds > _LONG_SECONDS or self._is_daemon_waiting()):
            self._send_batch()

    def _finish_submission(self, array: Array) -> Array:
        if self._is_sync:
            self.synchronize()
        self._after_submission()
        return array

    def _after_submission(self) -> None:
        self.submissions += 1
        if self._releases.flusher is not None:
            FLUSHER.nudge()
        if self._sequence - self._acknowledged > MAX_UNACKNOWLEDGED_BATCHES:
            self._connection.wait_until(self._has_window, self._timeout, "submitting")

    def _is_daemon_waiting(self) -> bool:
        """Whether the daemon may be done soon with all that it was sent."""
        if self._sequence - self._acknowledged >= _ENOUGH_AHEAD:
            self._connection.receive_waiting()
        return self._sequence - self._acknowledged < _ENOUGH_AHEAD

    def _has_window(self) -> bool:
        return self._sequence - self._acknowledged <= MAX_UNACKNOWLEDGED_BATCHES

    def _take_handles(self, count: int) -> tuple[int, ...]:
        first = self._next_handle
        self._next_handle = first + count
        return (first,) if count == 1 else tuple(range(first, self._next_handle))

    def _append(self, step: tuple[Any, ...], numbers: int = 1) -> None:
        """Add a step with so many handles to the batch, behind the releases of what died before; the lock is held."""
        if self._end is not None:
            raise self._end
        if self._releases:
            self._drain_releases(before_operation=True)
        self._steps.append(step)
        self._numbers += numbers
        if len(self._steps) >= _BATCH_STEPS or self._numbers >= _BATCH_NUMBERS:
            self._send_batch()

    def _drain_releases(self, *, before_operation: bool = False) -> None:
        """Have what died since the last step released: with that step, if it is a run, which may overwrite it then.

        That is so where an operation follows, before which all of it would be reclaimed in any case. Under
        ON_SESSION_CLOSE nothing may be overwritten, for all of it stays.
        """
        releases, steps = self._releases, self._steps
        may_donate = before_operation and self.cleanup is not ResourceCleanupStrategy.ON_SESSION_CLOSE
        while releases:
            count = len(releases)
            handles = (
                (releases.popleft(),) if count == 1 else tuple([releases.popleft() for _ in range(min(count, 1024))])
            )
            self._numbers += len(handles)
            if may_donate and steps and steps[-1][0] == "run" and len(steps[-1]) == 5:
                steps[-1] = (*steps[-1], handles)
            else:
                steps.append(("release", handles))
            if self._numbers >= _BATCH_NUMBERS:
                self._send_batch()
                steps = self._steps

    def _send_batch(self) -> None:
        if not self._steps:
            return
        self._sequence += 1
        steps, self._steps, self._numbers = self._steps, [], 0
        frames, self._frames = self._frames, []
        self._connection.send([encode(Batch(self._token, self._sequence, tuple(steps))), *frames])

    def _number(self) -> int:
        return next(self._connection.numbers)

    def _ask(self, step: Step, timeout: float | None = None) -> Reply:
        return self._ask_with_frame(step, timeout)[0]

    def _ask_with_frame(self, step: Any, timeout: float | None) -> tuple[Reply, bytes]:
        """Send a step that is answered, with all that waits before it, and return the answer."""
        with self._lock:
            if self._end is not None:
                raise self._end
            if self._releases:
                self._drain_releases()
            self._steps.append(step_to_wire(step))
            pending = self._connection.expect(step.request, self._token, self._sequence + 1)
            self._send_batch()
        return self._connection.wait(
            pending, self._timeout if timeout is None else timeout, type(step).__name__.lower()
        )

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end

    def _operand(
        self, operand: object, name: str, position: int, held: list[HandleReference]
    ) -> tuple[OperandSpec, Any]:
        """Return an operand as the rules see it, and as the wire carries it; `held` keeps it until it is sent."""
        if type(operand) is Array:
            reference = operand.reference
            held.append(reference)
            on_wire = reference.handle if operand.session is self else self._foreign(operand, reference.handle)
            return operand.known_spec(), on_wire
        if operand is None:
            return None, None
        if isinstance(operand, np.generic):
            operand = operand.item()
        if isinstance(operand, bool | int | float | complex):
            scalar = as_scalar(operand)  # of the four types themselves, whatever subclass it came as
            return scalar_from_wire(scalar), (scalar,)
        kind = type(operand).__name__
        hint = "; upload it first: xp.asarray(x)" if isinstance(operand, np.ndarray | list | tuple) else ""
        raise InvalidTypeError(f"{name}: operand {position + 1} is a {kind}, not an eagerd array{hint}")

    def _own_handle(self, array: object) -> int:
        if type(array) is not Array:
            raise InvalidTypeError(f"expected an eagerd array, not {type(array).__name__}")
        if array.session is not self:
            raise InvalidHandleError("the array belongs to another session")
        return array.handle

    def _foreign(self, array: Array, handle: int) -> tuple[bytes, int]:
        """Name an array of another session, computed by the time that this returns."""
        other = array.session
        if other._connection is not self._connection:
            raise InvalidHandleError("the array belongs to a session of another daemon; bring it over with asarray")
        other.describe(handle)
        return (other._token, handle)

    def _close(self) -> None:
        with self._lock:
            if isinstance(self._end, InvalidStateError):  # closed already, or a fork's
                return
            lost = self._end
            if lost is None:
                self._drain_releases()
                try:
                    self._send_batch()
                except (DaemonError, PeerError) as error:
                    lost = error
            self._end = SessionClosedError("the session is closed")
        reply: Reply | None = None
        try:
            if lost is None:
                request = CloseSession(self._number(), self._token, _CLOSE_GRACE_SECONDS)
                reply, _ = self._connection.request(request, self._timeout)
        except (DaemonError, InvalidHandleError, PeerError):
            pass  # the daemon is gone, and everything of the session's with it
        finally:
            if self._releases.flusher is not None:
                FLUSHER.discard(self)
            close_connection(self._connection)
        if isinstance(reply, SessionClosed):
            _raise_failures(reply.failures)


def _raise_failures(failures: Sequence[Any]) -> None:
    errors = [Failure(*failure).to_error() for failure in failures]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"another operation failed, too: {other}")
        raise errors[0]


def _c_strides(spec: ArraySpec) -> tuple[int, ...]:
    strides: list[int] = []
    step = spec.dtype.itemsize
    for n in reversed(spec.shape):
        strides.insert(0, step)
        step *= n or 1
    return tuple(strides)
