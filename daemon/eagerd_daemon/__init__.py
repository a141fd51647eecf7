"""The server process: owns sessions and their tensors. Start it with ``eagerd serve``."""
