"""Random programs of operations, views, assignments and deletions give what numpy gives, with values that never change.

The daemon writes over what nobody can see any more; every alias, numpy view and other session must go on seeing
what it saw.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagerd import EagerSession, ResourceCleanupStrategy
from tests.daemon_process import DaemonProcess, run_daemon

KINDS = ("binary", "binary", "chain", "chain", "in place", "assign", "view", "look", "drop", "lend")
ROWS, COLUMNS = 3, 3000  # 72 kB of float64: values are seen in shared memory


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with run_daemon() as process:
        yield process


class Program:
    """Arrays of two sessions beside the numpy arrays that they should be equal to; those are never written to."""

    def __init__(self, session: EagerSession, other: EagerSession) -> None:
        self.sessions = [session, other]
        first = np.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS) % 7
        self.pairs: list[tuple[Any, Any]] = [(session.namespace.asarray(first) + 0.0, first)]
        self.seen: list[tuple[Any, Any]] = []  # numpy views, and what they showed

    def step(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, len(self.pairs) - 1))
        array, model = self.pairs[position]
        kind = data.draw(
            st.sampled_from(
                ["binary", "binary", "chain", "chain", "in place", "assign", "view", "look", "drop", "lend"]
            )
        )
        if kind == "binary":
            other, other_model = self.pairs[data.draw(st.integers(0, len(self.pairs) - 1))]
            if other.session is array.session and other_model.shape == model.shape:
                self.keep(array + other, model + other_model)
        elif kind == "chain":  # its temporaries die as they are used
            self.keep(0.5 * (2.0 - (array * 0.5 + 1.0) * 0.5), 0.5 * (2.0 - (model * 0.5 + 1.0) * 0.5))
        elif kind == "in place":
            array += 1.0
            array *= array
            array %= 11.0
            self.pairs[position] = (array, ((model + 1.0) * (model + 1.0)) % 11.0)
        elif kind == "assign":
            array[..., ::2] = array[..., :1]
            array[:, array[0] > 4] = -1.0
            changed = model.copy()
            changed[..., ::2] = model[..., :1]
            changed[:, changed[0] > 4] = -1.0
            self.pairs[position] = (array, changed)
        elif kind == "view":
            key = data.draw(st.sampled_from([(slice(None),), (slice(None, None, -1),), (..., slice(0, COLUMNS // 2))]))
            self.keep(array[key], model[key])
        elif kind == "look":
            self.seen.append((array.numpy(), model))
        elif kind == "drop" and len(self.pairs) > 1:
            del self.pairs[position]
        elif kind == "lend":
            other_session = self.sessions[1 - self.sessions.index(array.session)]
            self.keep(other_session.namespace.multiply(array, 2.0), model * 2.0)

    def keep(self, array: Any, model: Any) -> None:
        if len(self.pairs) > 6:
            del self.pairs[0]
        self.pairs.append((array, model))

    def check(self) -> None:
        for array, model in [*self.pairs, *self.seen]:
            np.testing.assert_array_equal(np.asarray(array), model)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("strategy", ResourceCleanupStrategy)
@settings(max_examples=40)
@given(data=st.data())
def test_a_random_program_gives_what_numpy_gives(
    daemon: DaemonProcess, strategy: ResourceCleanupStrategy, data: st.DataObject
) -> None:
    with EagerSession(daemon.address, cleanup=strategy) as session, EagerSession(daemon.address) as other:
        program = Program(session, other)
        for _ in range(data.draw(st.integers(5, 25))):
            program.step(data)
        program.check()
        session.synchronize()
        other.synchronize()
