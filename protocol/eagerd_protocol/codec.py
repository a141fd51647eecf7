"""Messages to frames and back. The only module that knows msgpack.

A message is one control frame, a msgpack array whose first item is the tag; bytes of tensors travel in frames
of their own after it. Whatever arrives is checked here against the message's fields; what a frame may hold is
bounded before anything is built of it.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgpack

from eagerd_protocol.errors import InvalidArgumentError, MalformedMessageError
from eagerd_protocol.limits import (
    MAX_BATCH_STEPS,
    MAX_CONTROL_FRAME_BYTES,
    MAX_TEXT_BYTES,
    TOKEN_BYTES,
)
from eagerd_protocol.messages import (
    REPLY_TAGS,
    REQUEST_TAGS,
    STEP_TAGS,
    TAG_OF,
    Batch,
    Reply,
    Request,
    Step,
)

MAX_DEPTH: Final = 16
_MAX_ITEMS: Final = 16 * 1024


def _refuse_extension(code: int, _: bytes) -> object:
    raise MalformedMessageError(f"msgpack extension type {code}; the protocol has none")


def _check_depth(value: object, room: int) -> None:
    if type(value) is tuple or type(value) is dict:
        if room == 0:
            raise MalformedMessageError(f"nested deeper than {MAX_DEPTH}")
        for item in value.values() if type(value) is dict else value:
            _check_depth(item, room - 1)


def _unpack(frame: bytes | memoryview) -> tuple[Any, ...]:
    size = len(frame)
    if size > MAX_CONTROL_FRAME_BYTES:
        raise MalformedMessageError(
            f"a control frame of {size} bytes; at most {MAX_CONTROL_FRAME_BYTES} are allowed",
            size=size,
            limit=MAX_CONTROL_FRAME_BYTES,
        )
    try:
        message = msgpack.unpackb(
            frame,
            use_list=False,
            ext_hook=_refuse_extension,
            max_array_len=_MAX_ITEMS,
            max_map_len=64,
            max_str_len=MAX_TEXT_BYTES,
            max_bin_len=TOKEN_BYTES,
            max_ext_len=0,
        )
    except MalformedMessageError:
        raise
    except Exception as error:  # msgpack raises ValueError, its own and UnicodeDecodeError alike
        raise MalformedMessageError(f"not a msgpack message within the limits: {error}") from None
    if type(message) is not tuple or not message or type(message[0]) is not str:
        raise MalformedMessageError("a message is an array that begins with its tag")
    return message


# One checker for each type that a field may have


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


_CHECKS: Final[dict[object, Callable[[object], bool]]] = {
    int: _is_count,
    bool: lambda value: type(value) is bool,
    str: lambda value: type(value) is str,
    bytes: lambda value: type(value) is bytes,
    float: lambda value: type(value) is float or type(value) is int,
    tuple: lambda value: type(value) is tuple,
    dict: lambda value: type(value) is dict and all(type(key) is str for key in value),
    types.NoneType: lambda value: value is None,
}


def _checker(annotation: object) -> Callable[[object], bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        either = [_checker(part) for part in get_args(annotation)]
        return lambda value: any(check(value) for check in either)
    return _CHECKS[get_origin(annotation) or annotation]


_Schema = tuple[int, int, tuple[tuple[str, Callable[[object], bool]], ...]]


def _schema(message: Any) -> _Schema:
    hints = get_type_hints(message)
    fields = tuple((name, _checker(hints[name])) for name in message._fields)
    return len(fields) - len(message._field_defaults), len(fields), fields


_SCHEMAS: Final[dict[type, _Schema]] = {message: _schema(message) for message in TAG_OF}


def _build(message: Any, tag: str, values: tuple[Any, ...]) -> Any:
    least, most, fields = _SCHEMAS[message]
    if not least <= len(values) <= most:
        raise MalformedMessageError(f"{tag!r} has {most} fields, not {len(values)}")
    for (name, check), value in zip(fields, values, strict=False):
        if not check(value):
            raise MalformedMessageError(f"{tag!r} has a wrong value in its field {name!r}")
    return message(*values)


def _decode(frame: bytes | memoryview, tags: Mapping[str, type]) -> Any:
    tag, *values = _unpack(frame)
    message = tags.get(tag)
    if message is None:
        raise MalformedMessageError(f"unknown message {tag!r}")
    if message is not Batch:  # the parts of a batch are checked one by one, each against what it may be
        for value in values:
            _check_depth(value, MAX_DEPTH)
    return _build(message, tag, tuple(values))


def decode_request(frame: bytes | memoryview) -> Request:
    """Return the request that a control frame holds.

    The steps of a batch stay undecoded tuples: `decode_step` turns each into a `Step` when its turn comes, so
    that one bad step costs its own answer and not its neighbours.

    Raises
    ------
    MalformedMessageError
        The frame is not what SPEC.md says; nothing was done.
    """
    request: Request = _decode(frame, REQUEST_TAGS)
    if type(request) is Batch and len(request.steps) > MAX_BATCH_STEPS:
        raise MalformedMessageError(f"a batch of {len(request.steps)} steps; at most {MAX_BATCH_STEPS} are allowed")
    if type(request) is Batch and not all(type(s) is tuple and s and type(s[0]) is str for s in request.steps):
        raise MalformedMessageError("a step is an array that begins with its tag")
    return request


def find_run(step: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the fields of a step that is a run and well formed; None for any other.

    Most steps are runs: this takes 0.3 µs, where the table of fields and a `Run` take 2.
    """
    if step[0] == "run" and len(step) in (5, 6):
        _, operation, outputs, operands, parameters, *donated = step
        if (
            type(operation) is str
            and type(outputs) is tuple
            and type(operands) is tuple
            and type(parameters) is dict
            and (not donated or type(donated[0]) is tuple)
        ):
            return step[1:]
    return None


def is_foreign(operand: object) -> bool:
    """Tell whether an operand of a run names another session's tensor: (session token, handle)."""
    return type(operand) is tuple and len(operand) == 2


def decode_step(step: tuple[Any, ...]) -> Step:
    """Return the step that an item of `Batch.steps` stands for."""
    message = STEP_TAGS.get(step[0])
    if message is None:
        raise MalformedMessageError(f"unknown step {step[0]!r}")
    built: Step = _build(message, step[0], step[1:])
    return built


def decode_reply(frame: bytes | memoryview) -> Reply:
    """Return the reply that a control frame holds; raise `MalformedMessageError` as `decode_request` does."""
    reply: Reply = _decode(frame, REPLY_TAGS)
    return reply


def encode(message: Request | Reply) -> bytes:
    """Return the control frame of a message; the steps of a batch are wire tuples, as `step_to_wire` makes."""
    try:
        return msgpack.packb((TAG_OF[type(message)], *message))
    except OverflowError:
        raise InvalidArgumentError("an integer does not fit in 64 bits") from None


def step_to_wire(step: Step) -> tuple[Any, ...]:
    """Return the array that stands for a step inside a batch."""
    return (TAG_OF[type(step)], *step)
