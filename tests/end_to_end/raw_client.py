"""A client of the wire itself: frames written by hand, for what `eagerd` would never send."""

import socket
from types import TracebackType
from typing import Any, Self

import zmq

from eagerd_protocol.codec import decode_reply, encode
from eagerd_protocol.messages import Batch, CloseSession, Hello, OpenSession, Reply, SessionOpened, Welcome


class RawClient:
    """One connection that has said Hello, with one session open."""

    def __init__(self, address: str, cleanup: str = "ON_SAFE_POINTS", memory_limit: int | None = None) -> None:
        self.memory = socket.socket(socket.AF_UNIX)
        self.memory.settimeout(10)
        self.memory.connect(address.removeprefix("ipc://") + ".memory")
        self.memory_token = self.memory.recv(16)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.RCVTIMEO, 10_000)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(address)
        assert isinstance(self.ask(Hello(1, 1, 1, "raw", self.memory_token)), Welcome)
        opened = self.ask(OpenSession(2, cleanup, memory_limit, None))
        assert isinstance(opened, SessionOpened)
        self.token = opened.token
        self.sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.memory.close()
        self.socket.close()
        self.context.term()

    def send_frames(self, *frames: bytes) -> None:
        self.socket.send_multipart(list(frames))

    def receive(self) -> Reply:
        return decode_reply(self.socket.recv_multipart()[0])

    def ask(self, message: Any) -> Reply:
        self.send_frames(encode(message))
        return self.receive()

    def batch(self, *steps: tuple[Any, ...], frames: tuple[bytes, ...] = ()) -> Reply:
        """Send one batch and return the first reply, which is its acknowledgement if no step asks for one."""
        self.sequence += 1
        self.send_frames(encode(Batch(self.token, self.sequence, steps)), *frames)
        return self.receive()

    def close_session(self, request: int = 99) -> Reply:
        return self.ask(CloseSession(request, self.token, 1.0))
