"""Writes the tables of operations into docs/array-api.md, from the catalogue: `make docs`."""

import inspect
import sys
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

from eagerd_protocol.catalogue import ALIASES, CATALOGUE, INDEXING, LOCAL_FUNCTIONS
from eagerd_protocol.operation import Operation

PAGE = Path(__file__).with_name("array-api.md")
BEGIN, END = "<!-- begin: written by make docs -->\n", "<!-- end -->\n"

TITLES = {
    "elementwise": "Element by element",
    "reductions": "Reductions, and along an axis",
    "linear_algebra": "Linear algebra",
    "fourier": "Fourier transforms",
    "shapes": "Shapes and joining",
    "picking": "Picking, searching, sets",
    "indexing": "Indexing",
    "creation": "Creation",
}
SYNTAX = {
    "getitem": "`x[key]`",
    "setitem": "`x[key] = value`",
    "gather": "`x[key]`, with arrays in the key",
    "scatter": "`x[key] = value`, with arrays in the key",
}


def rule_of(operation: Operation) -> tuple[str, str]:
    """Return the module of an operation's rule, and the first line of its docstring."""
    rule = operation.rule.func if isinstance(operation.rule, partial) else operation.rule
    description = inspect.getdoc(rule)
    assert description, f"{rule} has no docstring"
    return rule.__module__.rpartition(".")[2], description.partition("\n")[0]


def shown(operation: Operation) -> str:
    """Return how an operation is written."""
    if operation.name in INDEXING:
        return SYNTAX[operation.name]
    return f"`{operation.name}{operation.public_signature}`"


def lines() -> Iterator[str]:
    """Yield the part of the page that is made from the catalogue."""
    rows = sorted(CATALOGUE.values(), key=lambda operation: list(TITLES).index(rule_of(operation)[0]))
    for module, operations in groupby(rows, key=lambda operation: rule_of(operation)[0]):
        yield f"\n### {TITLES[module]}\n"
        yield "| operation | result | |"
        yield "| --- | --- | --- |"
        for operation in operations:
            marks = ["view"] if operation.is_view else []
            marks += [", ".join(operation.outputs)] if operation.outputs else []
            description = rule_of(operation)[1].replace("|", "\\|")
            yield f"| {shown(operation).replace('|', chr(92) + '|')} | {description} | {'; '.join(marks)} |"
    yield "\n### Answered without the daemon\n"
    yield from (f"- `{name}{signature}`" for name, signature in LOCAL_FUNCTIONS.items())
    yield f"\nSecond names: {', '.join(f'`{alias}`' for alias in ALIASES)}.\n"


def page() -> str:
    """Return the whole page as it should be."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{chr(10).join(lines())}{END}{after}"


if __name__ == "__main__":
    if not page().count(BEGIN) == page().count(END) == 1:
        sys.exit(f"{PAGE} has lost its markers")
    PAGE.write_text(page())
