"""How arrays look: one line for `repr`, a table for notebooks; values only where they are few and there.

Looking never downloads much, never waits long and never raises: what cannot be shown now is named instead.
"""

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from eagerd_protocol.errors import DaemonError, DeadlineExceededError, EagerdError, InvalidStateError
from eagerd_protocol.limits import INLINE_BYTES
from eagerd_protocol.sizes import format_bytes

if TYPE_CHECKING:
    from eagerd.array import Array

_MOST_ELEMENTS = 1000  # above it numpy's own repr is a summary, too
_PATIENCE_SECONDS = 0.25


def as_text(array: "Array") -> str:
    """Return ``eagerd.Array([1., 2.], shape=(2,), dtype=float64, session='reader')``."""
    values = _values_or_reason(array)
    described = f"shape={_shape_text(array)}, dtype={array.dtype}, session={array.session.label!r}"
    if isinstance(values, str):
        return f"eagerd.Array({described}; {values})"
    start = "eagerd.Array("
    return f"{start}{np.array2string(values, separator=', ', prefix=start)}, {described})"


def as_html(array: "Array") -> str:
    """Return the same as a table, and the values below it."""
    values = _values_or_reason(array)
    rows = {"shape": _shape_text(array), "dtype": str(array.dtype), "session": array.session.label}
    if isinstance(values, str):
        rows["values"] = values
        below = ""
    else:
        below = f"<pre>{escape(np.array2string(values, separator=', '))}</pre>"
    cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    return f"<div><table><caption>eagerd.Array</caption>{cells}</table>{below}</div>"


def _shape_text(array: "Array") -> str:
    return str(array.likely_shape).replace("None", "?")


def _values_or_reason(array: "Array") -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]] | str":
    """The values where looking is cheap, else why they are not shown."""
    if array.is_released:
        return "released"
    try:
        spec = array.known_spec(_PATIENCE_SECONDS)
        if spec.size > _MOST_ELEMENTS or spec.nbytes > INLINE_BYTES:
            return format_bytes(spec.nbytes)
        return array.fetch(_PATIENCE_SECONDS)
    except DeadlineExceededError:
        return "not computed yet"
    except (InvalidStateError, DaemonError) as error:  # of the session, not of this array
        return str(error)
    except EagerdError as error:
        return f"failed: {error}"
