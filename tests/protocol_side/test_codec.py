"""One table of messages drives encoder and decoder; one table of breaches, the errors."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagerd_protocol import messages as m
from eagerd_protocol.codec import decode_reply, decode_request, decode_step, encode, step_to_wire
from eagerd_protocol.errors import MalformedMessageError
from eagerd_protocol.limits import MAX_BATCH_STEPS, MAX_CONTROL_FRAME_BYTES

TOKEN = bytes(16)

REQUESTS: list[m.Request] = [
    m.Hello(1, 1, 1, "0.1.0", TOKEN),
    m.OpenSession(2, "IN_BACKGROUND", None, "a label"),
    m.OpenSession(2, "ON_SAFE_POINTS", 2**40, None),
    m.Batch(TOKEN, 3, (("release", (1, 2)),)),
    m.CloseSession(4, TOKEN, 0.5),
    m.Ping(5),
]
STEPS: list[m.Step] = [
    m.Run("sum", (3,), (1, None, (2.5,), (TOKEN, 4)), {"axis": (0, 1)}, (1,)),
    m.Put(1, "float32", (2, 3), 0),
    m.Commit(1, 2, "float32", (2, 3)),
    m.Abandon(1),
    m.Release((1, 2)),
    m.SafePoint(),
    m.Fetch(1, 2),
    m.Describe(1, 2),
    m.Synchronize(1),
    m.GetStatistics(1),
    m.Reserve(1, 2**40),
    m.Publish(1, "name", 2),
    m.Attach(1, "name", 2),
    m.Unpublish(1, "name"),
    m.ListPublished(1),
]
REPLIES: list[m.Reply] = [
    m.Welcome(1, 1, "0.1.0", TOKEN),
    m.SessionOpened(1, TOKEN, 2**30),
    m.SessionClosed(1, False, 2, (("invalid_index", "take: …", {"operation": "take"}),)),
    m.Pong(1, "0.1.0"),
    m.Acknowledged(TOKEN, 7),
    m.Refused(TOKEN, 7, "session_closed", "closed", {}),
    m.Value(1, "float32", (2, 3), (12, 4), 0, None),
    m.Value(1, "float32", (2, 3), (12, -4), 4096, 17),
    m.Described(1, "bool", ()),
    m.Synchronized(1, ()),
    m.Statistics(1, {"live_handles": 3}),
    m.Reserved(1, 2, 3, 4),
    m.Published(1, ("a", "b")),
    m.Done(1),
    m.Failed(0, "malformed_message", "no", {"size": 3}),
    m.Retired((1, 2)),
    m.ShuttingDown("SIGTERM"),
]


@pytest.mark.parametrize("message", REQUESTS, ids=lambda x: type(x).__name__ + str(len(repr(x))))
def test_requests_survive_the_wire(message: m.Request) -> None:
    assert decode_request(encode(message)) == message


@pytest.mark.parametrize("message", REPLIES, ids=lambda x: type(x).__name__ + str(len(repr(x))))
def test_replies_survive_the_wire(message: m.Reply) -> None:
    assert decode_reply(encode(message)) == message


@pytest.mark.parametrize("step", STEPS, ids=lambda x: type(x).__name__)
def test_steps_survive_the_wire(step: m.Step) -> None:
    batch = decode_request(encode(m.Batch(TOKEN, 1, (step_to_wire(step),))))
    assert isinstance(batch, m.Batch)
    assert decode_step(batch.steps[0]) == step


def test_every_message_has_a_case() -> None:
    assert {type(case) for case in (*REQUESTS, *STEPS, *REPLIES)} == set(m.TAG_OF)


@pytest.mark.parametrize("message", REQUESTS, ids=lambda x: type(x).__name__ + str(len(repr(x))))
def test_truncated_and_trailing_bytes_are_breaches(message: m.Request) -> None:
    frame = encode(message)
    for length in range(len(frame)):
        with pytest.raises(MalformedMessageError):
            decode_request(frame[:length])
    with pytest.raises(MalformedMessageError):
        decode_request(frame + b"\x00")


def pack(*items: Any) -> bytes:
    frame: bytes = msgpack.packb(items)
    return frame


def nested(depth: int) -> bytes:
    return b"\x92\xa4ping" + b"\x91" * depth + b"\x01"


BREACHES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not a msgpack"),
    "garbage": (b"abc", "not a msgpack"),
    "a number": (b"\x07", "begins with its tag"),
    "an empty list": (b"\x90", "begins with its tag"),
    "a tag that is no text": (pack(1, 2), "begins with its tag"),
    "an unknown tag": (pack("walk", 1), "unknown message 'walk'"),
    "too few fields": (pack("ping"), "'ping' has 1 fields, not 0"),
    "too many fields": (pack("ping", 1, 2), "'ping' has 1 fields, not 2"),
    "a negative number": (pack("ping", -1), "field 'request'"),
    "true for a number": (pack("ping", True), "field 'request'"),
    "a number over 63 bits": (pack("ping", 2**63), "field 'request'"),
    "text for bytes": (pack("close", 1, "token", 1.0), "field 'token'"),
    "a long token": (pack("close", 1, bytes(17), 1.0), "exceeds max_bin_len"),
    "a map with numbers for keys": (pack("failed", 1, "code", "text", {1: 2}), "not a msgpack|unknown message"),
    "a step that is no list": (pack("batch", TOKEN, 1, [5]), "a step is an array"),
    "an empty step": (pack("batch", TOKEN, 1, [[]]), "a step is an array"),
    "too many steps": (pack("batch", TOKEN, 1, [["safe_point"]] * (MAX_BATCH_STEPS + 1)), "4097 steps; at most 4096"),
    "a five-byte bomb of a list": (b"\xdd\xff\xff\xff\xff", "exceeds max_array_len"),
    "a five-byte bomb of text": (b"\xdb\xff\xff\xff\xff", "incomplete input"),
    "a five-byte bomb of bytes": (b"\xc6\xff\xff\xff\xff", "incomplete input"),
    "a five-byte bomb of a map": (b"\xdf\xff\xff\xff\xff", "exceeds max_map_len"),
    "an extension type": (b"\x92\xa4ping\xd4\x01\x00", "extension|max_ext_len"),
    "deep nesting": (nested(20), "nested deeper than 16"),
    "very deep nesting": (nested(5000), "not a msgpack"),
    "text that is not UTF-8": (b"\x91\xa2\xff\xfe", "not a msgpack"),
    "an oversized frame": (b"\x91" + bytes(MAX_CONTROL_FRAME_BYTES), "1048577 bytes; at most 1048576"),
}


@pytest.mark.parametrize(("frame", "words"), BREACHES.values(), ids=BREACHES.keys())
def test_a_breach_is_named(frame: bytes, words: str) -> None:
    with pytest.raises(MalformedMessageError, match=words):
        decode_request(frame)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for decode in (decode_request, decode_reply):
        try:
            decode(data)
        except MalformedMessageError:
            pass


WIRE_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=16),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.sampled_from(sorted(m.STEP_TAGS)), st.lists(WIRE_VALUES, max_size=6))
def test_no_step_raises_anything_else(tag: str, fields: list[Any]) -> None:
    try:
        batch = decode_request(pack("batch", TOKEN, 1, [[tag, *fields]]))
        assert isinstance(batch, m.Batch)
        decode_step(batch.steps[0])
    except MalformedMessageError:
        pass
