"""``python -m eagerd_daemon serve``: settings, signals, logs; then the server."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

import click

from eagerd_daemon.config import Config, default_memory_limit_bytes, default_workers
from eagerd_protocol.address import IpcAddress, default_ipc_paths
from eagerd_protocol.errors import EagerdError, InvalidArgumentError
from eagerd_protocol.sizes import format_bytes, parse_bytes
from eagerd_protocol.version import __version__

_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class _Size(click.ParamType[int]):
    """A number of bytes, written with or without a unit."""

    name = "SIZE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(str(value))
        except InvalidArgumentError as error:
            self.fail(str(error), param, ctx)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="eagerd")
def main() -> None:
    """The eagerd daemon."""


@main.command()
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="Where clients connect: ipc://PATH. [default: $XDG_RUNTIME_DIR/eagerd/eagerd.sock, or for root "
    "/run/eagerd/eagerd.sock]",
)
@click.option(
    "--memory-limit",
    type=_Size(),
    help="Memory for all tensors together, such as 8GiB. [default: four fifths of the machine's or cgroup's]",
)
@click.option("--workers", type=click.IntRange(1, 256), help="Threads for dear operations. [default: one a core]")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What to log to stderr.",
)
@click.option("--embedded", is_flag=True, hidden=True, help="End with the parent: at the end of stdin.")
def serve(listen: str | None, memory_limit: int | None, workers: int | None, log_level: str, embedded: bool) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        config = Config(
            listen=IpcAddress.parse(listen) if listen else _default_address(),
            memory_limit_bytes=memory_limit or default_memory_limit_bytes(),
            workers=workers or default_workers(),
            is_embedded=embedded,
        )
        _serve(config)
    except EagerdError as error:
        click.echo(f"eagerd: {error}", err=True)
        _leave(1)
    _leave(0)


def _default_address() -> IpcAddress:
    paths = default_ipc_paths(dict(os.environ))
    return IpcAddress.parse(f"ipc://{paths[0] if len(paths) > 1 and os.geteuid() != 0 else paths[-1]}")


def _serve(config: Config) -> None:
    # Before any thread starts, since they inherit it. A handler would not do: Python runs it when the blocking
    # receive returns, so a signal that comes just before the receive blocks would be seen at the next message.
    signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
    from eagerd_daemon.server import Server  # starts the threads of BLAS; and --help needs no numpy

    server = Server(config)
    threading.Thread(target=_stop_on_signal, args=(server.stop,), name="signals", daemon=True).start()

    def on_ready() -> None:
        if config.is_embedded:
            _end_with_parent(server.stop)
            print("ready", flush=True)  # noqa: T201 - the parent reads this
        else:
            limit = format_bytes(config.memory_limit_bytes)
            click.echo(
                f"eagerd {__version__} listens at {config.listen} ({limit} for tensors, {config.workers} workers)",
                err=True,
            )

    server.run(on_ready)


def _stop_on_signal(stop: Callable[[str], None]) -> None:
    stop(signal.Signals(signal.sigwait(_END_SIGNALS)).name)


def _end_with_parent(stop: Callable[[str], None]) -> None:
    """Stop at the end of stdin, which the kernel closes however the parent ends."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        stop("the parent process ended")

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _leave(code: int) -> None:
    """End without finalising the interpreter: an array freed after that would call into a dead allocator."""
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    main(prog_name="eagerd")
