"""The memory socket's wire: fixed structures, since each answer may carry one file descriptor.

On connecting, the daemon sends a greeting: the 16-byte memory token that the client repeats in its Hello.
Then the client sends segment requests, one at a time, and each is answered by one segment reply; status 0
comes with exactly one descriptor (SCM_RIGHTS).
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from eagerd_protocol.limits import TOKEN_BYTES

GREETING_BYTES: Final = TOKEN_BYTES

_REQUEST: Final = struct.Struct("<QB7x")
_REPLY: Final = struct.Struct("<QQB7x")
REQUEST_BYTES: Final = _REQUEST.size
REPLY_BYTES: Final = _REPLY.size


class SegmentStatus(IntEnum):
    """How a segment request ended."""

    GIVEN = 0
    UNKNOWN = 1
    """There is no such segment, or it is none of this client's."""
    FAILED = 2
    """The daemon could not open it, for want of descriptors."""


class SegmentRequest(NamedTuple):
    """Ask for a segment; `writable` only for one that holds a reservation of this client."""

    segment: int
    writable: bool

    def to_bytes(self) -> bytes:
        return _REQUEST.pack(self.segment, self.writable)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SegmentRequest":
        segment, writable = _REQUEST.unpack(data)
        return cls(segment, bool(writable))


class SegmentReply(NamedTuple):
    """The segment's size, with its descriptor."""

    segment: int
    nbytes: int
    status: SegmentStatus

    def to_bytes(self) -> bytes:
        return _REPLY.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SegmentReply":
        segment, nbytes, status = _REPLY.unpack(data)
        return cls(segment, nbytes, SegmentStatus(status))
