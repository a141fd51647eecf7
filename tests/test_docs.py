"""docs/array-api.md is what the catalogue says, and its example works as pasted."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from eagerd_protocol.catalogue import ALIASES, CATALOGUE, INDEXING, LOCAL_FUNCTIONS
from tests.daemon_process import DaemonProcess
from tests.end_to_end.programs import run_program

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "array-api.md").read_text()


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_operations_is_up_to_date() -> None:
    assert generator().page() == PAGE, "run: make docs"


def test_every_operation_is_on_the_page() -> None:
    for name in (CATALOGUE.keys() - INDEXING) | LOCAL_FUNCTIONS.keys():
        assert f"`{name}(" in PAGE
    for alias in ALIASES:
        assert f"`{alias}`" in PAGE


def test_the_example_of_the_page_works(daemon: DaemonProcess) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert run_program(program, environment={"EAGERD_ADDRESS": daemon.address}) == "(3, 2) 2025.12\n"
