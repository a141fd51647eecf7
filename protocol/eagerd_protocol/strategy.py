"""`ResourceCleanupStrategy`: when a session's unused resources are reclaimed.

The members, their order and their meaning are those of TensorFlow Java's
`EagerSession.ResourceCleanupStrategy`.
"""

from enum import IntEnum
from typing import Self

from eagerd_protocol.errors import InvalidArgumentError


class ResourceCleanupStrategy(IntEnum):
    """When a session reclaims what its client needs no more; `value` is the ordinal of the Java enum."""

    IN_BACKGROUND = 0
    """A thread of the session's own reclaims at any time, until the session closes. The default."""

    ON_SAFE_POINTS = 1
    """No thread; reclaimed synchronously before and after another operation of the session."""

    ON_SESSION_CLOSE = 2
    """Nothing is reclaimed until the session closes."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def parse(cls, value: "ResourceCleanupStrategy | str | int") -> Self:
        """Return the member that `value` is or names; raise `InvalidArgumentError` for anything else."""
        try:
            return cls[value] if isinstance(value, str) else cls(value)
        except (KeyError, ValueError):
            names = ", ".join(member.name for member in cls)
            raise InvalidArgumentError(f"unknown cleanup strategy {value!r}; choose one of {names}") from None
