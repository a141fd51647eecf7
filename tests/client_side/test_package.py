"""What ``import eagerd`` gives, and what it does not load."""

import subprocess
import sys

import pytest

import eagerd
from eagerd_protocol import errors


def test_every_public_name_exists_and_every_error_is_public() -> None:
    assert sorted(eagerd.__all__) == eagerd.__all__
    assert set(eagerd.__all__) <= set(dir(eagerd))
    for name in eagerd.__all__:
        assert getattr(eagerd, name) is not None
    assert {error.__name__ for error in errors.WIRE_CODES.values()} <= set(eagerd.__all__)
    with pytest.raises(AttributeError, match="EagerSesion"):
        _ = eagerd.EagerSesion  # type: ignore[attr-defined]


@pytest.mark.parametrize("program", ["import eagerd", "import eagerd.cli", "from eagerd import EagerdError"])
def test_numpy_and_zmq_are_loaded_when_they_are_needed(program: str) -> None:
    check = f"{program}\nimport sys\nprint(sorted({{'numpy', 'zmq', 'msgpack', 'psutil'}} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
