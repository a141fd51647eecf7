"""SPEC.md says what the code does: its frames decode, its tables are complete."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerd_protocol import limits
from eagerd_protocol.codec import decode_reply, decode_request, encode
from eagerd_protocol.errors import WIRE_CODES
from eagerd_protocol.memory_wire import REPLY_BYTES, REQUEST_BYTES
from eagerd_protocol.messages import REPLY_TAGS, REQUEST_TAGS, STEP_TAGS, Described, Value
from tests.daemon_process import DaemonProcess
from tests.end_to_end.raw_client import RawClient

SPEC = (Path(__file__).parents[2] / "protocol" / "SPEC.md").read_text()


def as_wire(value: Any) -> Any:
    """JSON as the codec gives it: lists are tuples, and bytes are bytes."""
    if isinstance(value, dict):
        if "$bytes" in value:
            return bytes.fromhex(value["$bytes"])
        return {key: as_wire(item) for key, item in value.items()}
    return tuple(map(as_wire, value)) if isinstance(value, list) else value


EXAMPLES = [
    pytest.param(direction, json.loads(shown), bytes.fromhex(hexadecimal), id=f"{n}-{json.loads(shown)[0]}")
    for n, block in enumerate(re.findall(r"```wire\n(.*?)```", SPEC, re.DOTALL))
    for direction, shown, hexadecimal in re.findall(r"([<>]) (.*)\n([0-9a-f ]+)\n", block)
]


@pytest.mark.parametrize(("direction", "shown", "frame"), EXAMPLES)
def test_an_example_of_the_spec_decodes_and_encodes(direction: str, shown: Any, frame: bytes) -> None:
    tag, *fields = as_wire(shown)
    message = decode_request(frame) if direction == ">" else decode_reply(frame)
    tags: dict[str, Any] = {**REQUEST_TAGS} if direction == ">" else {**REPLY_TAGS}
    assert message == tags[tag](*fields)
    assert encode(message) == frame


def test_there_are_examples_in_both_directions() -> None:
    assert {example.values[0] for example in EXAMPLES} == {"<", ">"}
    assert len(EXAMPLES) >= 5


def first_column(heading: str) -> set[str]:
    (table,) = re.findall(rf"\| {heading} \|.*\n\| ---.*\n((?:\|.*\n)+)", SPEC)
    return {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_message_has_its_row() -> None:
    assert first_column("request \\| fields") == set(REQUEST_TAGS)
    assert first_column("reply \\| fields") == set(REPLY_TAGS)
    assert first_column("step") == set(STEP_TAGS)
    assert first_column("code") == set(WIRE_CODES)


def test_every_row_has_as_many_fields_as_the_message() -> None:
    for heading, tags in (("request \\| fields", REQUEST_TAGS), ("reply \\| fields", REPLY_TAGS), ("step", STEP_TAGS)):
        (table,) = re.findall(rf"\| {heading} \|.*\n\| ---.*\n((?:\|.*\n)+)", SPEC)
        for row in table.splitlines():
            tag, fields = (cell.strip() for cell in row.split("|")[1:3])
            listed = re.sub(r"\([^)]*\)", "", fields).split(";")[0]
            count = len([name for name in listed.split(",") if name.strip()])
            message: Any = tags[tag.strip("`")]
            assert count == len(message._fields), row


def test_the_limits_are_those_of_the_code() -> None:
    listed = dict(re.findall(r"\| `([A-Z_]+)` \| (\d+) \|", SPEC))
    actual = {name: str(value) for name, value in vars(limits).items() if name.isupper()}
    assert listed == actual


def test_the_memory_sockets_structures_have_their_sizes() -> None:
    assert f"a request of {REQUEST_BYTES} bytes and reads a reply of {REPLY_BYTES}" in SPEC


def test_the_batches_of_the_spec_work(daemon: DaemonProcess) -> None:
    shown: list[Any] = [example.values[1] for example in EXAMPLES]
    gather, add = (as_wire(message)[3] for message in shown if message[0] == "batch")
    (answer,) = (message for message in shown if message[0] == "value")
    with RawClient(daemon.address) as raw:
        raw.batch(("put", 1, "float64", (2,), 0), frames=(np.asarray([1.0, 2.0]).tobytes(),))
        assert raw.batch(*add) == Value(*as_wire(answer)[1:])
    with RawClient(daemon.address) as raw:
        raw.batch(("put", 4, "float64", (2, 3), 0), frames=(np.arange(6.0).tobytes(),))
        raw.batch(("put", 7, "int64", (4,), 0), frames=(np.array([2, 0, 0, -1]).tobytes(),))
        told = raw.batch(*gather, ("describe", 5, gather[0][2][0]))
        assert told == Described(5, "float64", (2, 4))
