"""``eagerd demo``: a loop of m iterations of n operations under each strategy, and what it keeps."""

import time

import click

from eagerd.session import EagerSession
from eagerd_protocol.errors import ResourceExhaustedError
from eagerd_protocol.sizes import format_bytes
from eagerd_protocol.strategy import ResourceCleanupStrategy

_SIDE = 256
_OPERATIONS = 4
_MEMORY_LIMIT_BYTES = 32 * 1024 * 1024


def run_demo(address: str | None, iterations: int) -> None:
    """Run the loop under each strategy and print a table."""
    # One session more, so that the embedded daemon's connection stays open between the three.
    with EagerSession(address, label="demo") as outer:
        click.echo(
            f"{iterations} iterations of {_OPERATIONS} operations on arrays of {format_bytes(_SIDE * _SIDE * 4)}; "
            f"each session may hold {format_bytes(_MEMORY_LIMIT_BYTES)}.\n"
        )
        click.echo(f"  {'strategy':<18}{'done':>10}{'most arrays':>13}{'most memory':>14}{'time':>10}")
        for strategy in ResourceCleanupStrategy:
            _run_strategy(outer.address, strategy, iterations)


def _run_strategy(address: str, strategy: ResourceCleanupStrategy, iterations: int) -> None:
    started = time.monotonic()
    most_handles = most_bytes = done = 0
    refusal = ""
    session = EagerSession(address, cleanup=strategy, memory_limit=_MEMORY_LIMIT_BYTES, label=f"demo-{strategy}")
    xp = session.namespace
    try:
        weights = xp.full((_SIDE, _SIDE), 1 / _SIDE, dtype=xp.float32)
        x = xp.ones((_SIDE, _SIDE), dtype=xp.float32)
        for done in range(1, iterations + 1):
            x = xp.tanh(xp.matmul(x, weights)) * 0.5 + 0.5
            stats = session.stats()
            most_handles = max(most_handles, stats.live_handles)
            most_bytes = max(most_bytes, stats.live_bytes)
            if done % 50 == 0 and time.monotonic() - started > 2:
                click.echo(f"  {strategy.name}: {done} of {iterations}", err=True)
        session.synchronize()
    except ResourceExhaustedError as error:
        refusal = str(error)
    try:
        session.close()
    except ResourceExhaustedError as error:  # what the refused operation left to its followers
        refusal = refusal or str(error)
    seconds = time.monotonic() - started
    click.echo(
        f"  {strategy.name:<18}{f'{done}/{iterations}':>10}{most_handles:>13}{format_bytes(most_bytes):>14}"
        f"{seconds:>8.2f} s"
    )
    if refusal:
        click.echo(f"    {refusal}")
