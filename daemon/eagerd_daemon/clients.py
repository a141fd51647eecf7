"""`Client`: one connected process, as the memory socket and the ROUTER know it."""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

from eagerd_daemon.segment import Segment


@dataclass(eq=False, slots=True)
class Client:
    """A client process; made when it connects to the memory socket, gone when that connection ends."""

    memory_token: bytes
    uid: int
    pid: int

    # The ROUTER's name for it, once it has said Hello. A return address, never a credential.
    routing_id: bytes | None = None

    # Its open sessions, by token. Touched by the loop only.
    sessions: dict[bytes, Any] = field(default_factory=dict)

    # Tokens of sessions that it closed, so that closing twice does no harm. Touched by the loop only.
    closed_tokens: set[bytes] = field(default_factory=set)

    # Segments that it may ask for, by number: those of its own sessions, and those it attached.
    # Added where a reply names one, dropped when it is retired; single dict operations, from any thread.
    visible: dict[int, Segment] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"pid {self.pid} of uid {self.uid}"


class ClientRegistry:
    """Clients by memory token; the memory socket's thread adds and removes, the loop looks up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_token: dict[bytes, Client] = {}

    def add(self, token_bytes: int, uid: int, pid: int) -> Client:
        """Make a client with a fresh random token."""
        client = Client(os.urandom(token_bytes), uid, pid)
        with self._lock:
            self._by_token[client.memory_token] = client
        return client

    def find(self, token: bytes) -> Client | None:
        return self._by_token.get(token)

    def remove(self, client: Client) -> None:
        with self._lock:
            self._by_token.pop(client.memory_token, None)

    def all(self) -> list[Client]:
        with self._lock:
            return list(self._by_token.values())
