"""Runs Python programs as a user would: in a process of their own."""

import os
import subprocess
import sys
import textwrap


def run_program(source: str, *, environment: dict[str, str] | None = None, timeout: float = 50.0) -> str:
    """Run a program and return what it printed; fail with what it said if it fails."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert finished.returncode == 0, f"exit code {finished.returncode}\n{finished.stdout}{finished.stderr}"
    assert not finished.stderr, finished.stderr
    return finished.stdout


def start_program(source: str, *, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start a program whose output is read by the test."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def end_program(process: "subprocess.Popen[str]") -> None:
    """Kill it if it still runs, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
