"""`NamespaceInfo`: what the standard's ``__array_namespace_info__`` returns."""

from typing import Any

import numpy as np

from eagerd.dtype_functions import isdtype
from eagerd_protocol.dtypes import BOOL, DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INT, DTYPE_NAMES, DType
from eagerd_protocol.limits import MAX_DIMENSIONS
from eagerd_protocol.parameters import as_device


class NamespaceInfo:
    """Capabilities, devices and dtypes of the array namespace."""

    def __init__(self, api_version: str) -> None:
        self._api_version = api_version

    def capabilities(self) -> dict[str, Any]:
        """Return what the namespace can do that the standard leaves open."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_DIMENSIONS}

    def default_device(self) -> str:
        """Return the only device: the daemon's memory."""
        return "cpu"

    def default_dtypes(self, *, device: object = None) -> dict[str, DType]:
        """Return the dtypes that creation functions use where none is given."""
        as_device(device)
        return {
            "real floating": DEFAULT_FLOAT,
            "complex floating": DEFAULT_COMPLEX,
            "integral": DEFAULT_INT,
            "indexing": DEFAULT_INT,
        }

    def dtypes(self, *, device: object = None, kind: object = None) -> dict[str, DType]:
        """Return the standard's dtypes by name, or those of one kind (of several, in a tuple)."""
        as_device(device)
        # float16 is ours, not the standard's.
        standard = {name: np.dtype(name) for name in DTYPE_NAMES if name != "float16"}
        if kind is None:
            return standard
        kinds = kind if isinstance(kind, tuple) else (kind,)
        kinds = tuple(BOOL if one == "bool" else one for one in kinds)
        return {name: dtype for name, dtype in standard.items() if isdtype(dtype, kinds)}

    def devices(self) -> tuple[str, ...] | list[str]:
        """Return all devices: a tuple, and before version 2025.12 of the standard a list."""
        return ("cpu",) if self._api_version >= "2025.12" else ["cpu"]
