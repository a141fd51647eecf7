"""What daemon and client both know: messages, codec, errors, and the catalogue of operations. Sans-IO."""

from eagerd_protocol.version import PROTOCOL_VERSION, __version__

__all__ = ["PROTOCOL_VERSION", "__version__"]
