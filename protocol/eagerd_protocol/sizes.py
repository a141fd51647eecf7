"""Sizes in bytes as people write them; the one place that turns numbers into `1.5 MiB` and back."""

import re

from eagerd_protocol.errors import InvalidArgumentError

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FACTORS = {unit.lower(): 1024**power for power, unit in enumerate(_UNITS)}
_FACTORS |= {f"{letter}": 1024 ** (power + 1) for power, letter in enumerate("kmgtpe")}
_FACTORS |= {f"{letter}b": 1000 ** (power + 1) for power, letter in enumerate("kmgtpe")}


def format_bytes(count: int) -> str:
    """Return `count` bytes with a binary unit, such as ``1.5 MiB``."""
    size = float(count)
    for unit in _UNITS[:-1]:
        if abs(size) < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def parse_bytes(text: str) -> int:
    """Return the number of bytes that a text such as ``8GiB``, ``512 MB`` or ``4096`` means."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    factor = _FACTORS.get((match[2] or "b").lower()) if match else None
    if match is None or factor is None:
        raise InvalidArgumentError(f"{text!r} is no size; write a number of bytes or, for example, 512MiB, 8GiB")
    return int(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor
