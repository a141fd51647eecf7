"""The demos, run as a user runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str, timeout: float = 150.0) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        check=False,
    )


@pytest.mark.timeout(160)
def test_the_model_runs_in_two_workers_and_memory_is_flat() -> None:
    arguments = ["--workers", "2", "--sentences", "12", "--memory-limit", "64MiB"]
    done = run("examples/minilm/main.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert re.search(r"\b12\b", rows["IN_BACKGROUND"])
    assert re.search(r"\b12\b", rows["ON_SAFE_POINTS"])
    assert "of this session's 64.0 MiB is free" in re.sub(r"\s+", " ", done.stdout)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_a_mistake_in_the_model_demos_options_is_one_line() -> None:
    done = run("examples/minilm/main.py", "--memory-limit", "many")
    assert done.returncode in (1, 2)
    assert "many" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_small_demo_shows_the_three_strategies() -> None:
    done = run("-m", "eagerd.cli", "demo", "--iterations", "60")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")][:4] == [
        "strategy",
        "IN_BACKGROUND",
        "ON_SAFE_POINTS",
        "ON_SESSION_CLOSE",
    ]
    assert "needs 256.0 KiB" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["demo", "--address", "ipc:///nowhere.sock"], 3, "eagerd serve --listen"),
        (["demo", "--iterations", "0"], 2, "iterations"),
        (["dmo"], 2, "No such command"),
        (["serve", "--listen", "nonsense"], 1, "ipc:///path"),
        (["serve", "--memory-limit", "lots"], 2, "is no size"),
    ],
)
def test_a_mistake_on_the_command_line_is_told_in_words(arguments: list[str], code: int, words: str) -> None:
    done = run("-m", "eagerd.cli", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
