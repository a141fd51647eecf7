"""The version of the distribution, and the versions of the wire protocol that this code speaks.

The two move apart: `PROTOCOL_VERSION` changes when frames change, `__version__` with every release.
"""

__version__ = "0.1.0"

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1
