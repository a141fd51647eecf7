"""What the demo prints, in 80 columns: a line of progress while it works, tables when a part is done."""

import sys
import textwrap
import time
from collections.abc import Sequence

_COLUMNS = 78
_MIB = 1024 * 1024
_SECONDS_BETWEEN_LINES = 5.0


def mib(count: float) -> str:
    """Return a number of bytes in MiB."""
    return f"{count / _MIB:.1f} MiB"


def range_of(values: Sequence[int]) -> str:
    """Return the least and the greatest, or the one that all are."""
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}-{high}"


class Progress:
    """One line that is written over on a terminal; elsewhere a line every few seconds and one at the end."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(1, total)
        self._done = 0
        self._last_line = time.monotonic()
        self._is_terminal = sys.stdout.isatty()
        if self._is_terminal:
            self._draw()
        else:
            print(f"  {self._what} …", flush=True)

    def add(self, count: int = 1) -> None:
        """`count` more are done."""
        self._done = min(self._total, self._done + count)
        if self._is_terminal:
            self._draw()
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            print(f"    {100 * self._done // self._total} %", flush=True)

    def finish(self) -> None:
        """Everything is done, or as much as there will be."""
        self._done = self._total
        if self._is_terminal:
            self._draw()
            print(flush=True)

    def _draw(self) -> None:
        twentieth = 20 * self._done // self._total
        bar = "█" * twentieth + "░" * (20 - twentieth)
        print(f"\r  {self._what:<46} {bar} {100 * self._done // self._total:3d} %", end="", flush=True)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    print(f"\n  {title}\n")
    for number, row in enumerate([header, *rows]):
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "   ".join(cells).rstrip())
        if number == 0:
            print("  " + "   ".join("─" * width for width in widths))
    print(flush=True)


def print_wrapped(text: str, indent: str = "  ") -> None:
    """Print a paragraph."""
    print(textwrap.fill(text, _COLUMNS, initial_indent=indent, subsequent_indent=indent), flush=True)
