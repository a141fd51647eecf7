"""The numbers that both sides of the wire must agree on."""

INLINE_BYTES = 64 * 1024
"""A tensor up to this size travels in a frame of the message; a larger one lives in a segment."""

MAX_CONTROL_FRAME_BYTES = 1024 * 1024
"""A control frame over this size is refused before it is decoded."""

MAX_BATCH_STEPS = 4096
MAX_OPERANDS = 4096
MAX_DIMENSIONS = 64
"""numpy's own limit."""

MAX_TEXT_BYTES = 4096
MAX_NAME_BYTES = 255
"""Of a published name or a label."""

MAX_HANDLE = 2**63 - 1

TOKEN_BYTES = 16

MAX_UNACKNOWLEDGED_BATCHES = 64
"""A client waits for acknowledgements beyond this window."""
