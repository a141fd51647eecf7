"""The Python in README.md works as pasted, in order, against the daemon that it says to start."""

import re
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.programs import run_program
from tests.end_to_end.waiting import wait_until

README = Path(__file__).parent.parent / "README.md"


def test_the_examples_of_the_readme_work(tmp_path: Path) -> None:
    text = README.read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"^eagerd (serve --listen (ipc://\S+))$", text, re.MULTILINE)
    assert len(programs) == 3
    address = f"ipc://{tmp_path}/e.sock"
    first = run_program(programs[0], environment={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert re.search(r"\(1000, 1000\) .*\n[1-9] arrays are alive", first)
    arguments = command[0].replace(command[1], address).split()
    with subprocess.Popen([sys.executable, "-m", "eagerd.cli", *arguments], stderr=subprocess.DEVNULL) as daemon:
        wait_until(lambda: Path(tmp_path, "e.sock").exists(), 20)
        assert run_program(programs[1].replace(command[1], address)) == ""
        assert run_program(programs[2].replace(command[1], address)) == "2.0\n"
        daemon.terminate()
        assert daemon.wait(10) == 0


def test_the_commands_of_the_readme_exist() -> None:
    makefile = README.with_name("Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE):
        assert f"\n{target}:" in makefile
