"""One contract for all three strategies, against a fake that counts; rows A9 and B7 of the semantics."""

import logging
import threading
from collections import Counter

import pytest

from eagerd_daemon.cleanup import CleanupStrategy, make_strategy
from eagerd_daemon.handles import Entry
from eagerd_protocol.errors import OperationFailedError
from eagerd_protocol.strategy import ResourceCleanupStrategy

STRATEGIES = list(ResourceCleanupStrategy)


class Reclaimer:
    """Counts what it is given, raises for the handles it is told to, and can be held up."""

    def __init__(self, failing: frozenset[int] = frozenset()) -> None:
        self.seen: Counter[int] = Counter()
        self.threads: set[str] = set()
        self.reached = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._failing = failing

    def __call__(self, entry: Entry) -> None:
        self.seen[entry.handle] += 1
        self.threads.add(threading.current_thread().name)
        self.reached.set()
        assert self.may_go_on.wait(10)
        if entry.handle in self._failing:
            raise RuntimeError("this one cannot be freed")


def entry(handle: int) -> Entry:
    return Entry(handle, OperationFailedError("stands for a tensor"))


def let_it_work(strategy: CleanupStrategy) -> None:
    """Give a strategy each of its chances, but for the close."""
    strategy.settle()
    strategy.safe_point()
    strategy.relieve()


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a09_each_entry_is_reclaimed_exactly_once(kind: ResourceCleanupStrategy) -> None:
    reclaim = Reclaimer()
    strategy = make_strategy(kind, reclaim, "test")
    for handle in range(1, 501):
        strategy.released(entry(handle))
        if handle % 100 == 0:
            let_it_work(strategy)
    before_close = len(reclaim.seen)
    strategy.stop()
    assert reclaim.seen == Counter(range(1, 501))
    assert before_close == (0 if kind is ResourceCleanupStrategy.ON_SESSION_CLOSE else 500)
    assert strategy.errors == 0


@pytest.mark.parametrize("kind", STRATEGIES)
def test_b07_one_failing_reclaim_is_counted_once_and_keeps_no_neighbour(
    kind: ResourceCleanupStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    reclaim = Reclaimer(failing=frozenset({1}))
    strategy = make_strategy(kind, reclaim, "test")
    with caplog.at_level(logging.ERROR):
        for handle in (1, 2, 3):
            strategy.released(entry(handle))
        let_it_work(strategy)
        strategy.released(entry(4))  # the thread lives, the next safe point works
        let_it_work(strategy)
        strategy.stop()
    assert reclaim.seen == Counter([1, 2, 3, 4])
    assert strategy.errors == 1
    assert [record.message for record in caplog.records] == ["reclaiming handle 1 failed"]


def test_background_reclaims_on_its_own_thread_with_no_safe_point() -> None:
    reclaim = Reclaimer()
    strategy = make_strategy(ResourceCleanupStrategy.IN_BACKGROUND, reclaim, "mine")
    strategy.released(entry(1))
    strategy.settle()
    assert reclaim.reached.wait(5)
    strategy.stop()
    assert reclaim.threads == {"cleanup-mine"}


def test_background_helps_out_when_its_thread_gets_no_turn() -> None:
    reclaim = Reclaimer()
    strategy = make_strategy(ResourceCleanupStrategy.IN_BACKGROUND, reclaim, "mine")
    for handle in range(1, 101):
        strategy.released(entry(handle))  # never settled: the thread is not woken
    assert len(reclaim.seen) >= 60
    strategy.stop()
    assert reclaim.seen == Counter(range(1, 101))


def test_background_relief_waits_for_what_the_thread_is_at() -> None:
    reclaim = Reclaimer()
    reclaim.may_go_on.clear()
    strategy = make_strategy(ResourceCleanupStrategy.IN_BACKGROUND, reclaim, "mine")
    strategy.released(entry(1))
    strategy.settle()
    assert reclaim.reached.wait(5)
    relieved = threading.Event()

    def relieve() -> None:
        strategy.relieve()
        relieved.set()

    helper = threading.Thread(target=relieve)
    helper.start()
    assert not relieved.wait(0.05)
    reclaim.may_go_on.set()
    assert relieved.wait(5)
    helper.join()
    strategy.stop()


def test_safe_points_reclaim_nothing_between_them() -> None:
    reclaim = Reclaimer()
    strategy = make_strategy(ResourceCleanupStrategy.ON_SAFE_POINTS, reclaim, "test")
    strategy.released(entry(1))
    strategy.settle()
    strategy.relieve()
    assert not reclaim.seen
    strategy.safe_point()
    assert reclaim.seen == Counter([1])
    assert reclaim.threads == {"MainThread"}
    strategy.stop()


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a26_only_background_has_a_thread_and_joins_it(kind: ResourceCleanupStrategy) -> None:
    strategy = make_strategy(kind, Reclaimer(), "counted")
    names = [thread.name for thread in threading.enumerate()]
    assert ("cleanup-counted" in names) == (kind is ResourceCleanupStrategy.IN_BACKGROUND)
    strategy.stop()
    assert "cleanup-counted" not in [thread.name for thread in threading.enumerate()]
