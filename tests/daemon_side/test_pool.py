"""Segments and pools: limits before memory, recycling, aging, and what numpy allocates."""

import gc
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from eagerd_daemon.pool import Account, Budget, SegmentPool, size_class
from eagerd_daemon.segment import Segment
from eagerd_protocol.errors import ResourceExhaustedError

MIB = 1024 * 1024


def test_a_size_class_wastes_at_most_a_quarter() -> None:
    for nbytes in (65_537, 100_000, MIB, MIB + 1, 5 * MIB + 7, 2**30 + 1):
        assert nbytes <= size_class(nbytes) <= nbytes * 1.25
        assert size_class(nbytes) % 4096 == 0
        assert size_class(size_class(nbytes)) == size_class(nbytes)


def test_what_is_freed_is_used_again_and_ages_out() -> None:
    now = [0.0]
    retired: list[int] = []
    budget = Budget(100 * MIB)
    pool = SegmentPool(Account(50 * MIB), budget, clock=lambda: now[0], on_retired=retired.extend)
    first = pool.allocate(2 * MIB)
    pool.freed.append(first)
    assert pool.allocate(2 * MIB) is first
    assert not first.is_zeroed
    pool.freed.append(first)
    assert pool.idle_bytes == 2 * MIB
    now[0] = 9.0
    assert budget.trim(older_than_seconds=10.0)
    now[0] = 11.0
    assert not budget.trim(older_than_seconds=10.0)
    assert retired == [first.segment.number]
    assert (budget.segment_bytes, budget.segments, pool.account.used_bytes) == (0, 0, 0)
    pool.close()


def test_trimming_looks_at_no_pool_that_has_nothing() -> None:
    class Watched(SegmentPool):
        looks = 0

        def trim_if_free(self, older_than_seconds: float) -> None:
            Watched.looks += 1
            super().trim_if_free(older_than_seconds)

    budget = Budget(100 * MIB)
    pools = [Watched(Account(50 * MIB), budget) for _ in range(100)]
    block = pools[7].allocate(2 * MIB)
    assert not budget.trim(older_than_seconds=0.0)
    assert Watched.looks == 1
    pools[7].freed.append(block)
    assert not budget.trim(older_than_seconds=0.0)
    assert budget.segments == 0
    assert not budget.trim(older_than_seconds=0.0)
    assert Watched.looks == 2
    block = pools[7].allocate(2 * MIB)
    pools[7].hand_over(block, pools[8])
    assert not budget.trim(older_than_seconds=0.0)  # at 8 alone
    assert Watched.looks == 3
    pools[8].freed.append(block)
    for pool in pools:
        pool.close()


def test_ten_thousand_tensors_do_not_need_ten_thousand_descriptors() -> None:
    budget = Budget(4096 * MIB)
    pool = SegmentPool(Account(4096 * MIB), budget)
    before = len(os.listdir("/proc/self/fd"))
    blocks = [pool.allocate(100_000) for _ in range(10_000)]
    assert len(os.listdir("/proc/self/fd")) - before < 700
    addresses = {block.address for block in blocks}
    assert len(addresses) == 10_000
    pool.freed.extend(blocks)
    pool.close()
    assert budget.segments == 0


def test_a_session_and_the_daemon_refuse_before_anything_exists() -> None:
    budget = Budget(10 * MIB)
    pool, other = SegmentPool(Account(4 * MIB), budget), SegmentPool(Account(100 * MIB), budget)
    with pytest.raises(ResourceExhaustedError, match=r"needs 5\.0 MiB, 4\.0 MiB of this session's 4\.0 MiB is free"):
        pool.allocate(5 * MIB)
    held = other.allocate(8 * MIB)
    with pytest.raises(ResourceExhaustedError, match=r"of the daemon's 10\.0 MiB is free"):
        pool.allocate(4 * MIB)
    assert pool.account.used_bytes == 0
    other.freed.append(held)
    pool.freed.append(pool.allocate(4 * MIB))  # what the other holds idle makes room
    pool.close()
    other.close()
    assert budget.segment_bytes == 0


def test_relief_is_asked_for_before_a_refusal() -> None:
    account = Account(2 * MIB)
    pool = SegmentPool(account, Budget(100 * MIB))
    held = [pool.allocate(2 * MIB)]

    def relieve() -> None:
        if held:
            pool.freed.append(held.pop())
        pool.take_in_freed()

    account.relieve = relieve
    pool.freed.append(pool.allocate(2 * MIB))
    pool.close()


def test_a_closed_pool_ends_with_its_last_block() -> None:
    budget = Budget(100 * MIB)
    pool = SegmentPool(Account(50 * MIB), budget)
    block = pool.allocate(2 * MIB)
    pool.close()
    assert budget.segments == 1
    pool.freed.append(block)
    budget.trim(older_than_seconds=10.0)
    assert (budget.segments, budget.segment_bytes) == (0, 0)


def test_a_result_segment_can_be_neither_written_nor_resized_by_who_is_given_it() -> None:
    import mmap

    segment = Segment(MIB, is_upload=False)
    fd = segment.open_descriptor(writable=True)  # asked for in vain
    with pytest.raises(PermissionError):
        mmap.mmap(fd, MIB, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError, match=r"not permitted|Bad file|Invalid"):
        os.ftruncate(fd, 10)
    again = None
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)  # root may; the seal holds all the same
        with pytest.raises(PermissionError):
            mmap.mmap(again, MIB, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except PermissionError:
        pass
    finally:
        os.close(fd)
        if again is not None:
            os.close(again)
    segment.close()
    with pytest.raises(OSError, match="No such file"):
        segment.open_descriptor(writable=False)


def test_numpy_allocates_in_the_pool_and_its_errors_survive() -> None:
    # In a process of its own: the handler stays with the arrays that it made, to the end.
    program = """
        import os
        import numpy as np
        from eagerd_daemon import allocator
        from eagerd_daemon.pool import Account, Budget, SegmentPool

        pool = SegmentPool(Account(400 << 10), Budget(1 << 30))
        allocator.install_on_thread()
        functions = [
            lambda x: x + x, np.exp, lambda x: np.concat([x, x]), np.sort, lambda x: x @ x.T, np.zeros_like,
            lambda x: np.where(x > 0, x, 1), lambda x: x[::2].copy(), lambda x: np.cumulative_sum(x, axis=0),
        ]
        for function in functions:
            with allocator.using(pool):
                x = np.ones((160, 160), np.float32)
                result = function(x)
            for array in (x, result):
                assert array.nbytes <= 65536 or allocator.find_block(array) is not None
            del x, result, array
        pool.take_in_freed()
        assert pool.account.used_bytes == 0
        for _ in range(200):                        # a scalar temporary is freed while the error is set
            with allocator.using(pool):
                x = np.ones((150, 300), np.float32)
                y = x * 0.5
                try:
                    z = y * 0.25
                except Exception as error:
                    assert isinstance(allocator.restore_exception(error), MemoryError), error
                else:
                    raise AssertionError("540 KB fitted into 400")
            del x, y
        pool.take_in_freed()
        assert pool.account.used_bytes == 0
        print("fine", flush=True)
        os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")
    gc.collect()
    assert np.ones(3).sum() == 3
