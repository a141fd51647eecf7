"""What the demo prints: a line of progress while it runs, tables when it is done."""

import sys
import textwrap
from collections.abc import Sequence

_MIB = 1024 * 1024


def mib(count: float) -> str:
    """Return a number of bytes in MiB."""
    return f"{count / _MIB:.1f} MiB"


class Progress:
    """One line that is written over on a terminal; elsewhere a line at each tenth."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(1, total)
        self._done = 0
        self._told = 0
        self._is_terminal = sys.stdout.isatty()
        self._write()

    def add(self, count: int) -> None:
        """`count` more are done."""
        self._done = min(self._total, self._done + count)
        self._write()

    def finish(self) -> None:
        """Everything is done, or as much as there will be."""
        self._done = self._total
        self._write()
        if self._is_terminal:
            print(flush=True)

    def _write(self) -> None:
        tenth = 10 * self._done // self._total
        if self._is_terminal:
            bar = "█" * (2 * tenth) + "░" * (20 - 2 * tenth)
            print(f"\r  {self._what:<44} {bar} {100 * self._done // self._total:3d} %", end="", flush=True)
        elif tenth > self._told or self._done == 0:
            self._told = tenth
            print(f"  {self._what}: {10 * tenth} %", flush=True)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    print(f"\n{title}\n")
    for number, row in enumerate([header, *rows]):
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "   ".join(cells))
        if number == 0:
            print("  " + "   ".join("─" * width for width in widths))


def print_wrapped(text: str, indent: str = "  ") -> None:
    """Print a paragraph in 80 columns."""
    print(textwrap.fill(text, 80, initial_indent=indent, subsequent_indent=indent))
