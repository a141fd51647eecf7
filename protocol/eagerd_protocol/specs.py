"""What is known of a tensor without its values: `ArraySpec`; and of an operation: `Plan`."""

import math
from typing import NamedTuple, TypeAlias

from eagerd_protocol.dtypes import DType

Scalar: TypeAlias = bool | int | float | complex


class ArraySpec(NamedTuple):
    """Shape and dtype; a dimension that depends on data is None."""

    shape: tuple[int | None, ...]
    dtype: DType

    @property
    def is_known(self) -> bool:
        return None not in self.shape

    @property
    def size(self) -> int:
        """The number of elements, unknown dimensions counted as one."""
        return math.prod(n for n in self.shape if n is not None)

    @property
    def nbytes(self) -> int:
        """Size in bytes if it were stored contiguously."""
        return self.size * self.dtype.itemsize


OperandSpec: TypeAlias = ArraySpec | Scalar | None
"""An operand as the rules see it: an array's spec, a Python scalar, or absent."""


class Plan(NamedTuple):
    """What an operation will give and about what it takes."""

    outputs: tuple[ArraySpec, ...]
    cost_seconds: float
    in_place_seconds: float
    """The cost where the output may take the place of the first operand."""

    is_view: bool
    """The outputs share their operand's memory."""

    nbytes: int
    """Of all outputs, dimensions that depend on data counted as one."""
