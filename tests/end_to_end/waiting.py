"""Waits for what another process does in its own time, with a deadline."""

import time
from collections.abc import Callable


def wait_until(is_so: Callable[[], bool], seconds: float = 5.0, what: str = "") -> None:
    """Return once `is_so()`; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {seconds:g} s: {what}"
        time.sleep(0.002)
