"""docs/interoperability.md: its examples work as pasted; and what other libraries are told that cannot work."""

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from eagerd import Array, EagerSession
from eagerd.namespace import Namespace
from tests.daemon_process import DaemonProcess
from tests.end_to_end.programs import run_program

GUIDE = Path(__file__).parents[2] / "docs" / "interoperability.md"

NumpyArray: TypeAlias = "np.ndarray[Any, Any]"
Mistake: TypeAlias = Callable[[Namespace, Array, NumpyArray], object]


def read_examples() -> Iterator[tuple[str, str]]:
    """Yield the heading and the program of each section that has one."""
    for section in GUIDE.read_text().split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        for program in re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
            yield heading, program


EXAMPLES = dict(read_examples())


def find_missing(program: str) -> list[str]:
    """Return the packages that a program imports and that are not installed."""
    packages = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            packages.add(node.module.partition(".")[0])
    return sorted(name for name in packages if importlib.util.find_spec(name) is None)


def test_every_example_of_the_guide_is_run() -> None:
    text = GUIDE.read_text()
    assert len(EXAMPLES) == text.count("```python") == text.count("```") // 2
    assert len(EXAMPLES) >= 8


@pytest.mark.timeout(120)
@pytest.mark.parametrize("heading", [pytest.param(heading, id=heading.replace(" ", "-")) for heading in EXAMPLES])
def test_the_example_works(heading: str, daemon: DaemonProcess) -> None:
    program = EXAMPLES[heading]
    missing = find_missing(program)
    if missing:
        pytest.skip(f"not installed in {sys.prefix}: {', '.join(missing)}")
    assert run_program(program, environment={"EAGERD_ADDRESS": daemon.address}, timeout=100.0) == ""


MISTAKES: dict[str, tuple[Mistake, type[Exception], str]] = {
    "export to a GPU": (lambda xp, a, x: a.__dlpack__(dl_device=(2, 0)), BufferError, r"on the CPU.*not on \(2, 0\)"),
    "export to DLPack 0 without a copy": (lambda xp, a, x: a.__dlpack__(copy=False), BufferError, "read-only"),
    "import of what is no array": (
        lambda xp, a, x: xp.from_dlpack(object()),
        TypeError,
        "object does not speak DLPack",
    ),
    "import without a copy": (lambda xp, a, x: xp.from_dlpack(x, copy=False), BufferError, "an upload always copies"),
    "a ufunc of numpy": (lambda xp, a, x: np.add(x, a), TypeError, "does not support ufuncs"),
    "a numpy array on the left": (lambda xp, a, x: x + a, TypeError, r"upload it first: xp\.asarray"),
    "a numpy array on the right": (lambda xp, a, x: a + x, TypeError, r"upload it first: xp\.asarray"),
    "a numpy array among operands": (lambda xp, a, x: xp.add(a, x), TypeError, r"upload it first: xp\.asarray"),
    "a numpy array on the left, in place": (lambda xp, a, x: x.__iadd__(a), TypeError, "does not support ufuncs"),
}


@pytest.mark.parametrize("mistake", [pytest.param(name, id=name.replace(" ", "-")) for name in MISTAKES])
def test_what_cannot_work_is_refused(mistake: str, daemon: DaemonProcess) -> None:
    attempt, error, message = MISTAKES[mistake]
    with EagerSession(daemon.address) as session:
        a = session.namespace.ones((100, 100))  # 80 kB: over what travels in a message
        with pytest.raises(error, match=message):
            attempt(session.namespace, a, np.ones((100, 100)))
        assert float(a[0, 0]) == 1.0
