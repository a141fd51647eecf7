"""`Writer`: shared memory that a program fills itself, so that nothing is copied."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from eagerd_protocol.errors import InvalidStateError
from eagerd_protocol.specs import ArraySpec

if TYPE_CHECKING:
    from eagerd.array import Array
    from eagerd.session import EagerSession


class Writer:
    """Made by `EagerSession.writer`; fill `array`, then `commit`. Left without a commit, it gives its memory back.

    What `array` holds before it is filled is undefined. After the commit it must not be written any more.
    """

    def __init__(
        self, session: "EagerSession", spec: ArraySpec, array: "np.ndarray[Any, Any]", reservation: int | None
    ) -> None:
        self._session = session
        self._spec = spec
        self._array = array
        self._reservation = reservation  # None: a small one, which travels in the message
        self._is_done = False

    @property
    def array(self) -> "np.ndarray[Any, Any]":
        """The memory to fill: a C-contiguous numpy array of the shape and dtype asked for."""
        return self._array

    def commit(self) -> "Array":
        """Return what was written as an array of the session.

        Raises
        ------
        InvalidStateError
            It was committed before (or abandoned), or the session is closed.
        """
        if self._is_done:
            raise InvalidStateError("this writer was committed or abandoned before")
        if self._reservation is None:
            result = self._session.put(self._array)
        else:
            result = self._session.commit(self._reservation, self._spec)
        self._is_done = True
        self._array.flags.writeable = False
        return result

    def abandon(self) -> None:
        """Give the memory back; does nothing after a commit."""
        if not self._is_done:
            self._is_done = True
            if self._reservation is not None:
                self._session.abandon(self._reservation)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()
