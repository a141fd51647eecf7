"""Several worker processes, one copy of a real model's weights, and memory that stays flat.

python examples/minilm/main.py [--workers 4] [--sentences 200] [--memory-limit 256MiB]
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from data import ModelMissingError, load_weights
from report import Progress, mib, print_table, print_wrapped
from worker import PREFIX

import eagerd
from eagerd import EagerSession, ResourceCleanupStrategy
from eagerd_protocol.sizes import format_bytes, parse_bytes

TOLERANCE = 1e-5


class WorkerFailedError(Exception):
    """A worker ended before its work was done."""


class Workers:
    """Running worker processes; their events arrive in one queue, as (worker, event)."""

    def __init__(self, role: str, count: int, *arguments: str) -> None:
        script = str(Path(__file__).with_name("worker.py"))
        self.processes = [
            subprocess.Popen(
                [sys.executable, script, role, "--number", str(number), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C comes to the main process, which ends them
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # they compute nothing themselves
            )
            for number in range(count)
        ]
        self._events: SimpleQueue[tuple[int, dict[str, Any] | None]] = SimpleQueue()
        self._readers = [threading.Thread(target=self._read, args=(number,)) for number in range(count)]
        for reader in self._readers:
            reader.start()

    def _read(self, number: int) -> None:
        output = self.processes[number].stdout
        assert output is not None
        for line in output:
            self._events.put((number, json.loads(line)))
        self._events.put((number, None))

    def collect(self, event: str, each: int = 1, on_other: Callable[[dict[str, Any]], None] | None = None) -> list[Any]:
        """Return the next `each` events of that name from every worker, in the workers' order."""
        found: list[list[dict[str, Any]]] = [[] for _ in self.processes]
        while any(len(events) < each for events in found):
            number, message = self._events.get()
            if message is None:
                code = self.processes[number].wait()
                if len(found[number]) < each:
                    raise WorkerFailedError(f"worker {number} ended with exit code {code}")
            elif message["event"] == "failed":
                raise WorkerFailedError(f"worker {number}: {message['error']}")
            elif message["event"] == event:
                found[number].append(message)
            elif on_other is not None:
                on_other(message)
        return [message for events in found for message in events]

    def go(self) -> None:
        """Let all of them go on."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def close(self) -> None:
        """End them, wherever they are."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
            if process.poll() is None:
                try:
                    process.wait(2)
                except subprocess.TimeoutExpired:
                    process.kill()
        for reader in self._readers:
            reader.join()
        for process in self.processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def running(role: str, count: int, *arguments: str) -> Iterator[Workers]:
    """Start workers; end them however the block ends."""
    workers = Workers(role, count, *arguments)
    try:
        yield workers
    except BaseException:
        for process in workers.processes:
            process.kill()
        raise
    finally:
        workers.close()


def publish_weights(session: EagerSession) -> int:
    """Publish every tensor of the model under its name; return their bytes."""
    weights = load_weights()
    progress = Progress(f"publishing {len(weights)} weight tensors", len(weights))
    published = set(session.published())
    for name, weight in weights.items():
        if PREFIX + name not in published:
            array = session.namespace.asarray(weight)
            session.publish(PREFIX + name, array)
        progress.add(1)
    progress.finish()
    return sum(weight.nbytes for weight in weights.values())


def measure_memory(address: str, count: int) -> tuple[list[int], list[int], list[float]]:
    """Return bytes of PSS of each worker, private and shared, and each worker's largest error."""
    progress = Progress("memory of workers, each with its own weights", 2)
    with running("private", count) as workers:
        workers.collect("ready")
        progress.add(1)
        workers.go()
        private = [message["bytes"] for message in workers.collect("memory")]
        workers.go()
    progress.finish()
    progress = Progress("memory of workers that attach, and their results", 3)
    with running("shared", count, "--address", address) as workers:
        workers.collect("ready")
        progress.add(1)
        workers.go()
        shared = [message["bytes"] for message in workers.collect("memory")]
        progress.add(1)
        workers.go()
        errors = [message["max_error"] for message in workers.collect("checked")]
    progress.finish()
    return private, shared, errors


def run_loops(address: str, count: int, sentences: int, memory_limit: int) -> list[Any]:
    """Return each worker's findings for each strategy."""
    strategies = len(ResourceCleanupStrategy)
    progress = Progress(f"{count} workers × {sentences} sentences × {strategies} strategies", count * sentences * 3)
    arguments = ["--address", address, "--sentences", str(sentences), "--memory-limit", str(memory_limit)]

    def on_other(message: dict[str, Any]) -> None:
        progress.add(message.get("sentences", 0))

    with running("loop", count, *arguments) as workers:
        found = workers.collect("strategy", strategies, on_other)
    progress.finish()
    return found


def print_report(
    weight_bytes: int,
    memory: tuple[list[int], list[int], list[float]],
    loops: list[Any],
    sentences: int,
    memory_limit: int,
) -> None:
    """Print what was found, in 80 columns."""
    private, shared, errors = memory
    count = len(private)
    print_table(
        f"Weights of {mib(weight_bytes)} in {count} workers: memory (PSS)",
        ["", "each worker", f"{count} workers"],
        [
            ["each loads its own", mib(sum(private) / count), mib(sum(private))],
            ["attached, shared", mib(sum(shared) / count), mib(sum(shared))],
        ],
    )
    print()
    print_wrapped(
        f"Embeddings of 8 sentences from {count} workers: at most {max(errors):.1e} from the reference "
        f"(PyTorch), where {TOLERANCE:.0e} is allowed."
    )
    rows = []
    refusals: dict[str, str] = {}
    for strategy in ResourceCleanupStrategy:
        own = [message for message in loops if message["name"] == strategy.name]
        worst = max(own, key=lambda message: int(message["bytes"][2]))
        done = min(message["done"] for message in own)
        rows.append(
            [
                strategy.name,
                f"{done}/{sentences}",
                f"{worst['handles'][0]} → {worst['handles'][1]}",
                f"{worst['bytes'][0] / 2**20:.1f} → {worst['bytes'][1] / 2**20:.1f}",
                f"{worst['bytes'][2] / 2**20:.1f} MiB",
            ]
        )
        if worst["refused"]:
            refusals[strategy.name] = worst["refused"]
    print_table(
        f"One session a worker, limit {format_bytes(memory_limit)}: first quarter → last sentence",
        ["strategy", "sentences", "live handles", "live MiB", "peak"],
        rows,
    )
    for name, refusal in refusals.items():
        print(f"\n  {name} kept every intermediate result, until the session's limit said:")
        print_wrapped(refusal, "    ")


def main() -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=4, help="worker processes (default 4)")
    parser.add_argument("--sentences", type=int, default=200, help="sentences for each worker (default 200)")
    parser.add_argument("--memory-limit", default="256MiB", help="of each session in the loop (default 256MiB)")
    options = parser.parse_args()
    try:
        if options.workers < 1 or options.sentences < 1:
            raise eagerd.InvalidArgumentError("--workers and --sentences are at least 1")
        memory_limit = parse_bytes(options.memory_limit)
        started = time.monotonic()
        print("all-MiniLM-L6-v2: 22.7 million parameters, 6 layers, served by eagerd\n")
        with EagerSession(label="minilm-weights") as session:
            print(f"  daemon at {session.address}")
            weight_bytes = publish_weights(session)
            memory = measure_memory(session.address, options.workers)
            if max(memory[2]) > TOLERANCE:
                raise WorkerFailedError(f"an embedding is {max(memory[2]):.1e} off the reference")
            loops = run_loops(session.address, options.workers, options.sentences, memory_limit)
            for name in session.published():
                if name.startswith(PREFIX):
                    session.unpublish(name)
        print_report(weight_bytes, memory, loops, options.sentences, memory_limit)
        print(f"\n  done in {time.monotonic() - started:.0f} s")
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except (eagerd.EagerdError, ModelMissingError, WorkerFailedError) as error:
        print(f"\nminilm: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
