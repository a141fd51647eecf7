"""Fixtures for every test: nothing is left behind, memory stays flat, a real daemon."""

import os
from collections.abc import Generator, Iterator

import numpy as np
import pytest
import scipy.special
from hypothesis import settings

from tests import leaks
from tests.daemon_process import DaemonProcess, run_daemon

# On a busy machine one example may take long; the timeout per test is the limit. The same examples each time, so
# that a change is judged by what it changes; HYPOTHESIS_PROFILE=explore draws new ones.
settings.register_profile("eagerd", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "eagerd"))

# Shell patterns over the names in a leak report, for what a process makes once and keeps; say why at each.
ALLOWED: tuple[str, ...] = ()
LEAK_WAIT_SECONDS = 2.0

_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture(scope="session", autouse=True)
def process_wide() -> None:
    """Make here what a process makes once and keeps, before the first test is looked at.

    Fixtures of a wider scope than a test are also made before it is looked at, so a daemon that a module or
    session fixture owns is no leak.
    """
    np.ones((64, 64)) @ np.ones((64, 64))  # the BLAS threads
    scipy.special.erf(0.5)  # scipy brings a BLAS of its own
    # The settings of whoever runs the tests must reach neither clients nor daemons.
    for name in [name for name in os.environ if name.startswith("EAGERD_")]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest, process_wide: None) -> Iterator[None]:
    """Fail a test that passed but left a thread, descriptor, child process or /dev/shm file behind."""
    before = leaks.take_snapshot()
    yield
    if request.node.stash.get(_failed, False):  # its traceback keeps its variables alive
        return
    left = leaks.find_leaks(before, wait_seconds=LEAK_WAIT_SECONDS, allowed=ALLOWED)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture
def flat_memory() -> Iterator[leaks.MemoryGauge]:
    """Fail a test in which memory grew by more than `flat_memory.limit_mib`, which the test may set."""
    gauge = leaks.MemoryGauge()
    gauge.restart()
    yield gauge
    grown = gauge.find_growth()
    if grown:
        pytest.fail("\n".join(grown), pytrace=False)


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    """A daemon of the test's own, which must end with exit code 0 unless the test ended it."""
    with run_daemon() as running:
        yield running
