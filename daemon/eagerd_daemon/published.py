"""`Publications`: tensors that the daemon itself owns, by name, for any session to attach.

Published memory lies in a pool of the daemon's own; attached sessions hold references to it. It goes when the
name is taken back and the last of them lets go.
"""

import threading

from eagerd_daemon.allocator import allocate_bytes
from eagerd_daemon.handles import AnyArray, Storage, Tensor, root_of
from eagerd_daemon.pool import SegmentPool
from eagerd_protocol.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from eagerd_protocol.limits import INLINE_BYTES, MAX_NAME_BYTES


def copy_into(pool: SegmentPool, array: AnyArray) -> AnyArray:
    """Return a C-contiguous copy of `array`, in `pool` unless it is small."""
    if array.nbytes <= INLINE_BYTES:
        return array.copy()
    copy = allocate_bytes(pool, array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Publications:
    """All published tensors; owned by the server, used by whatever thread runs a session's step."""

    def __init__(self, pool: SegmentPool) -> None:
        self.pool = pool
        self._lock = threading.Lock()
        self._by_name: dict[str, AnyArray | None] = {}  # None while it is being copied

    def publish(self, name: str, tensor: Tensor) -> bool:
        """Share `tensor` as `name`; True where its own memory was handed over, False where it was copied.

        Alone in a segment that no client could ever write, it is handed over with no copy. A small one, a view
        of something larger, and an upload are copied, so that nobody gets more than was published, and nobody
        can change it afterwards.
        """
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise InvalidArgumentError(f"a published name has 1 to {MAX_NAME_BYTES} bytes, not {len(name.encode())}")
        with self._lock:
            if name in self._by_name:
                raise AlreadyExistsError(f"{name!r} is published already; unpublish it first, or choose another name")
            self._by_name[name] = None
        try:
            array, is_handed_over = self._own(tensor)
        except BaseException:
            with self._lock:
                del self._by_name[name]
            raise
        with self._lock:
            self._by_name[name] = array
        return is_handed_over

    def _own(self, tensor: Tensor) -> tuple[AnyArray, bool]:
        storage = tensor.storage
        if storage.is_shared and tensor.array.nbytes == storage.root.nbytes:
            return tensor.array, False
        block = storage.block
        is_whole = tensor.array.nbytes == storage.root.nbytes and tensor.array.flags.c_contiguous
        if block is not None and block.is_alone and is_whole and not block.segment.is_upload:
            block.pool.hand_over(block, self.pool)
            tensor.array.flags.writeable = False
            return tensor.array, True
        array = copy_into(self.pool, tensor.array)
        array.flags.writeable = False
        return array, False

    def attach(self, name: str) -> tuple[AnyArray, Storage]:
        """Return what is published as `name`, with storage that counts for no session."""
        with self._lock:
            array = self._by_name.get(name)
        if array is None:
            raise NotFoundError(f"nothing is published as {name!r}")
        return array, Storage(root_of(array), is_shared=True)

    def unpublish(self, name: str) -> None:
        """Take a name back; those attached keep the tensor."""
        with self._lock:
            if self._by_name.get(name) is None:
                raise NotFoundError(f"nothing is published as {name!r}")
            del self._by_name[name]

    def trim(self) -> None:
        """Give back what nobody holds any more; unlike a session's memory it is hardly ever used again."""
        self.pool.trim_if_free(older_than_seconds=0.0)

    def names(self) -> list[str]:
        with self._lock:
            return sorted(name for name, array in self._by_name.items() if array is not None)

    def close(self) -> None:
        with self._lock:
            self._by_name.clear()
        self.pool.close()
