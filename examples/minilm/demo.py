"""The demo, part by part: publish the weights, share them, check the results, run the loop; a table after each."""

import os
import time
from typing import Any

import psutil
from data import load_weights
from processes import Event, WorkerFailedError, Workers, worker_processes
from report import Progress, mib, print_table, print_wrapped, range_of

from eagerd import EagerSession, ResourceCleanupStrategy
from eagerd_protocol.sizes import format_bytes

TOLERANCE = 1e-5
PREFIX = f"minilm-{os.getpid()}/"
"""Of the names under which the weights are published; a daemon that others use may hold other runs' weights."""


def run_demo(workers: int, sentences: int, memory_limit: int) -> None:
    """Run all of it.

    Raises
    ------
    WorkerFailedError
        A worker ended early, or what it found is not what it should be.
    """
    started = time.monotonic()
    print_wrapped("all-MiniLM-L6-v2 (6 layers, 22.7 million parameters) on eagerd")
    print()
    with EagerSession(label="minilm weights") as session:
        print_wrapped(f"daemon at {session.address}")
        try:
            count, weight_bytes = publish_weights(session)
            share_weights(session.address, workers, count, weight_bytes)
            run_loops(session.address, workers, sentences, memory_limit)
        finally:
            if not session.closed:
                unpublish_weights(session)
    print_wrapped(f"Done in {time.monotonic() - started:.0f} s.")


def publish_weights(session: EagerSession) -> tuple[int, int]:
    """Publish every tensor of the model under its name; return their number and bytes."""
    weights = load_weights()
    progress = Progress(f"publishing {len(weights)} weight tensors", len(weights))
    for name, weight in weights.items():
        session.publish(PREFIX + name, session.namespace.asarray(weight))
        progress.add()
    progress.finish()
    return len(weights), sum(weight.nbytes for weight in weights.values())


def unpublish_weights(session: EagerSession) -> None:
    """Take the names back, for a daemon that lives on; sessions that attached the tensors keep them."""
    for name in session.published():
        if name.startswith(PREFIX):
            session.unpublish(name)


def share_weights(address: str, workers: int, tensors: int, weight_bytes: int) -> None:
    """Have workers hold the weights, each its own copy and then attached; check what they embed; print both."""
    progress = Progress("memory with a copy in each worker", 3)
    with worker_processes(workers, "private", "--prefix", PREFIX) as crew:
        own_empty, own_full, _ = measure_memory(crew, progress)
    progress.finish()
    progress = Progress("memory with the weights attached", 3)
    with worker_processes(workers, "shared", "--prefix", PREFIX, "--address", address) as crew:
        empty, full, daemon = measure_memory(crew, progress)
        progress.finish()
        progress = Progress("embedding the reference's 8 sentences", 1)
        checked = crew.collect("checked")
    progress.finish()
    rows = [
        ["a copy in each", *_memory_cells(own_empty, own_full), "-", mib(sum(own_full))],
        [
            "attached, no copy",
            *_memory_cells(empty, full),
            "?" if daemon is None else mib(daemon),
            f"> {mib(sum(full))}" if daemon is None else mib(sum(full) + daemon),
        ],
    ]
    header = ["weights", "each worker", "of it weights", "the daemon", "together"]
    print_table(f"Memory (PSS) of {workers} workers with weights of {mib(weight_bytes)}", header, rows)
    if any(event["tensors"] != tensors for event in checked):
        raise WorkerFailedError(f"not every worker attached all {tensors} tensors")
    worst = max(event["max_error"] for event in checked)
    if not worst <= TOLERANCE:
        raise WorkerFailedError(f"an embedding is {worst:.1e} off the reference, where {TOLERANCE:.0e} is allowed")
    print_wrapped(
        f"8 sentences from each of the {workers} workers: at most {worst:.1e} from the reference (PyTorch), "
        f"where {TOLERANCE:.0e} is allowed."
    )
    print()


def measure_memory(crew: Workers, progress: Progress) -> tuple[list[int], list[int], int | None]:
    """Return the bytes of each worker before and after it holds the weights, and of the embedded daemon after."""
    crew.collect("started")
    progress.add()
    crew.go_on()
    found: list[list[int]] = []
    daemon: int | None = None
    for event in ("empty", "full"):
        crew.collect(f"{event}, waiting")
        crew.go_on()
        found.append([message["bytes"] for message in crew.collect(event)])
        daemon = _find_daemon_bytes()
        crew.go_on()
        progress.add()
    return found[0], found[1], daemon


def _find_daemon_bytes() -> int | None:
    """Return the PSS of the embedded daemon; None where the daemon is somebody else's."""
    for child in psutil.Process().children():
        try:
            if "eagerd_daemon" in child.cmdline():
                return int(child.memory_full_info().pss)
        except psutil.Error:
            continue
    return None


def _memory_cells(empty: list[int], full: list[int]) -> tuple[str, str]:
    return mib(sum(full) / len(full)), mib((sum(full) - sum(empty)) / len(full))


def run_loops(address: str, workers: int, sentences: int, memory_limit: int) -> None:
    """Have every worker embed its sentences under each strategy; print what the sessions held."""
    strategies = list(ResourceCleanupStrategy)
    progress = Progress(
        f"{workers} × {sentences} sentences, {len(strategies)} strategies", workers * sentences * len(strategies)
    )
    arguments = ["loop", "--prefix", PREFIX, "--address", address]
    arguments += ["--sentences", str(sentences), "--memory-limit", str(memory_limit)]
    started = time.monotonic()
    with worker_processes(workers, *arguments) as crew:
        found = crew.collect("strategy", len(strategies), on_other=lambda _: progress.add())
    seconds = time.monotonic() - started
    progress.finish()
    print_loops(found, sentences, memory_limit)
    done = sum(event["sentences"] for event in found)
    operations = sum(event["operations"] for event in found)
    print_wrapped(f"{done:,} sentences, {operations:,} operations, {done / seconds:.0f} sentences a second.")
    print()
    for event in found:
        if event["refusal"] and event["name"] != ResourceCleanupStrategy.ON_SESSION_CLOSE.name:
            raise WorkerFailedError(
                f"{event['name']} should stay under its limit, but at sentence {event['sentences'] + 1}: "
                f"{event['refusal']} (or give this demo a larger --memory-limit)"
            )


def print_loops(found: list[Event], sentences: int, memory_limit: int) -> None:
    """Print a row for each strategy: of its sessions, the one with the highest peak."""
    rows: list[list[str]] = []
    notes: list[tuple[str, str | None]] = []
    for strategy in ResourceCleanupStrategy:
        events = [event for event in found if event["name"] == strategy.name]
        highest: dict[str, Any] = max(events, key=lambda event: int(event["bytes"][2]))
        rows.append(
            [
                strategy.name,
                range_of([event["sentences"] for event in events]),
                f"{highest['handles'][0]} → {highest['handles'][1]}",
                f"{highest['bytes'][0] / 2**20:.1f} → {highest['bytes'][1] / 2**20:.1f}",
                mib(highest["bytes"][2]),
            ]
        )
        refused = [event for event in events if event["refusal"]]
        if refused:
            where = range_of([event["sentences"] + 1 for event in refused])
            notes.append((f"{strategy.name} met the limit at sentence {where}:", refused[0]["refusal"]))
        elif strategy is ResourceCleanupStrategy.ON_SESSION_CLOSE:
            notes.append((f"{strategy.name} grew, but {sentences} sentences fit into the limit.", None))
    print_table(
        f"Live in a session, limit {format_bytes(memory_limit)}: first quarter (highest) → last sentence",
        ["strategy", f"of {sentences}", "handles", "MiB", "peak"],
        rows,
    )
    for note, refusal in notes:
        print_wrapped(note)
        if refusal:
            print_wrapped(refusal, "    ")
        print()
