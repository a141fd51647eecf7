"""The command line: ``eagerd``. Each command but `serve` is a client."""

import os
import sys

import click

from eagerd_protocol.errors import EagerdError
from eagerd_protocol.version import __version__

_EXIT_REFUSED = 1
_EXIT_UNREACHABLE = 3

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="eagerd")
def cli() -> None:
    """Eager array sessions in a daemon, with shared-memory tensors.

    Start a daemon with `eagerd serve`; see it at work with `eagerd demo`.
    """


@cli.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Run the daemon (eagerd serve --help lists its options)."""
    # The daemon is a program of its own, which takes this one's place: same process, same signals.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "eagerd_daemon", "serve", *arguments])


@cli.command()
@click.option("--address", metavar="ADDRESS", help="A daemon, as ipc://PATH. [default: an embedded one]")
@click.option("--iterations", type=click.IntRange(1, 1_000_000), default=200, show_default=True)
def demo(address: str | None, iterations: int) -> None:
    """Run a loop under each cleanup strategy and show what stays in memory."""
    from eagerd.demo import run_demo  # numpy and zmq: not for --help

    run_demo(address, iterations)


def main() -> None:
    """Run the command line; a user's mistake is a line on stderr, never a traceback."""
    try:
        cli(prog_name="eagerd", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except EagerdError as error:
        click.echo(f"eagerd: {error}", err=True)
        sys.exit(_EXIT_UNREACHABLE if isinstance(error, ConnectionError) else _EXIT_REFUSED)


if __name__ == "__main__":
    main()
