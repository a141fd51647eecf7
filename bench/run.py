"""Measures eagerd against floors in the same run: a minimal ZeroMQ server, plain numpy, np.copyto.

    make bench                     three rounds
    make bench ARGS="--quick"      one short round
    make bench ARGS="--json FILE"  the medians as JSON, for comparing two runs

Machines are noisy, so rounds are interleaved and what counts is the ratio to the floor beside it.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import psutil
import zmq

from eagerd import EagerSession, ResourceCleanupStrategy

MEGABYTE = 1_000_000


def serve_minimal(address: str) -> None:
    """Arrays in a dict, operations in msgpack, no sessions and no errors: the floor for our transport."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(address)
    arrays: dict[int, Any] = {0: np.ones(16, np.float32)}
    while True:
        peer, message = socket.recv_multipart()
        for kind, *fields in msgpack.unpackb(message):
            if kind == "add":
                out, a, b = fields
                arrays[out] = arrays[a] + b
                if a:
                    del arrays[a]
            elif kind == "get":
                socket.send_multipart([peer, arrays[fields[0]].tobytes()])
            elif kind == "wait":
                socket.send_multipart([peer, b""])
            else:
                return


class Minimal:
    """The client of `serve_minimal`."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(address)
        self.number = 0

    def ask(self, *steps: tuple[Any, ...]) -> bytes:
        self.socket.send(msgpack.packb(steps))
        return self.socket.recv()

    def add_and_wait(self) -> None:
        self.ask(("add", 1, 0, 1.0), ("wait",))

    def add_and_read(self) -> None:
        np.frombuffer(self.ask(("add", 1, 0, 1.0), ("get", 1)), np.float32)

    def chain(self, count: int) -> None:
        self.socket.send(msgpack.packb([("add", 1, 0, 1.0)]))
        for start in range(1, count, 64):
            self.socket.send(msgpack.packb([("add", n + 1, n, 1.0) for n in range(start, min(start + 64, count))]))
        self.ask(("get", count))

    def close(self) -> None:
        self.socket.send(msgpack.packb([("end",)]))
        self.socket.close()
        self.context.term()


def microseconds(function: Callable[[], object], seconds: float) -> float:
    """Median of one call's time."""
    function()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def measure_round(session: EagerSession, minimal: Minimal, seconds: float, daemon: psutil.Process) -> dict[str, Any]:
    """Return {workload: (eagerd, floor, unit)} of one round."""
    xp = session.namespace
    found: dict[str, Any] = {}

    small = xp.ones((16,), dtype=xp.float32)

    def add_and_wait() -> None:
        result = small + 1.0
        session.synchronize()
        del result

    found["W1  small operation, waited for"] = (
        microseconds(add_and_wait, seconds),
        microseconds(minimal.add_and_wait, seconds),
        "µs",
    )
    found["W1r small operation, read back"] = (
        microseconds(lambda: (small + 1.0).numpy(), seconds),
        microseconds(minimal.add_and_read, seconds),
        "µs",
    )

    count = 10_000

    def chain() -> None:
        x = small
        for _ in range(count):
            x = x + 1.0
        x.numpy()

    found["W2  dependent small operation, pipelined"] = (
        microseconds(chain, seconds) / count,
        microseconds(lambda: minimal.chain(count), seconds) / count,
        "µs",
    )

    source = np.random.default_rng(0).random(8_000_000)
    target = np.empty_like(source)

    def put() -> None:
        array = xp.asarray(source)
        session.synchronize()
        del array

    found["W3  put 64 MB (floor: np.copyto, warm)"] = (
        microseconds(put, seconds),
        microseconds(lambda: np.copyto(target, source), seconds),
        "µs",
    )

    big = xp.asarray(source) + 1.0
    session.synchronize()
    found["W4  get 64 MB, to a usable view"] = (
        microseconds(big.numpy, seconds),
        microseconds(minimal.add_and_wait, seconds),
        "µs",
    )
    del big

    iterations = 200
    local = np.ones(MEGABYTE // 4, np.float32)

    def loop_locally() -> None:
        y = local
        for _ in range(iterations):
            y = np.sqrt(y * y + 1.0) - 0.5

    peak = daemon.memory_info().rss
    start = xp.asarray(local)

    def loop() -> None:
        nonlocal peak
        y = start
        for i in range(iterations):
            y = xp.sqrt(y * y + 1.0) - 0.5
            if i % 50 == 0:
                peak = max(peak, daemon.memory_info().rss)
        session.synchronize()

    before = daemon.memory_info().rss
    found["W6  one operation of the leak loop, 1 MB"] = (
        microseconds(loop, seconds) / iterations / 4,
        microseconds(loop_locally, seconds) / iterations / 4,
        "µs",
    )
    found["W6  peak over the start"] = ((peak - before) / 2**20, None, "MiB")

    a = np.full((1024, 1024), 1e-3, np.float32)
    remote = xp.asarray(a)

    def chain_locally() -> None:
        y = a
        for _ in range(10):
            y = y @ a + a

    def chain_remotely() -> None:
        y = remote
        for _ in range(10):
            y = y @ remote + remote
        y.numpy()

    found["W7  20 chained 1024 × 1024 operations"] = (
        microseconds(chain_remotely, seconds),
        microseconds(chain_locally, seconds),
        "µs",
    )
    return found


def measure_fill(session: EagerSession, seconds: float, daemon: psutil.Process) -> dict[str, Any]:
    """Fill a table of 64 MB row by row, here and there; a copy of it for each row would show in time and memory."""
    xp = session.namespace
    rows, columns = 8192, 1024
    row = np.random.default_rng(1).random(columns)
    here, there = np.zeros((rows, columns)), xp.zeros((rows, columns))
    remote_row = xp.asarray(row)
    session.synchronize()
    start_bytes = peak_bytes = daemon.memory_info().rss

    def fill_here() -> None:
        for i in range(rows):
            here[i] = row

    def fill_there() -> None:
        nonlocal peak_bytes
        for i in range(rows):
            there[i] = remote_row
            if i % 512 == 0:
                peak_bytes = max(peak_bytes, daemon.memory_info().rss)
        session.synchronize()

    ours, floor = microseconds(fill_there, seconds) / rows, microseconds(fill_here, seconds) / rows
    return {
        "Fill 64 MB row by row: one row": (ours, floor, "µs"),
        "Fill 64 MB row by row: memory beside it": ((peak_bytes - start_bytes) / 2**20, None, "MiB"),
    }


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cleanup", default="IN_BACKGROUND", choices=[s.name for s in ResourceCleanupStrategy])
    parser.add_argument("--json", metavar="FILE", help="write the medians there")
    options = parser.parse_args()
    rounds, seconds = (1, 0.3) if options.quick else (options.rounds, 1.0)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if os.environ.pop(name, None):  # they slow numpy down, and are read when it is imported: start anew
            os.execv(sys.executable, [sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/minimal"
        server = multiprocessing.get_context("spawn").Process(target=serve_minimal, args=(address,))
        server.start()
        minimal = Minimal(address)
        results: dict[str, list[Any]] = {}
        with EagerSession(cleanup=options.cleanup, label="bench") as session:
            daemon = next(p for p in psutil.Process().children() if "eagerd_daemon" in " ".join(p.cmdline()))
            for number in range(rounds):
                print(f"round {number + 1} of {rounds} …", file=sys.stderr, flush=True)
                found = measure_round(session, minimal, seconds, daemon) | measure_fill(session, seconds, daemon)
                for name, values in found.items():
                    results.setdefault(name, []).append(values)
        minimal.close()
        server.join()
    summary = {}
    print(f"{'workload':<44}{'eagerd':>12}{'floor':>12}{'ratio':>8}")
    for name, rows in results.items():
        ours, unit = statistics.median(row[0] for row in rows), rows[0][2]
        floors = [row[1] for row in rows if row[1] is not None]
        floor = statistics.median(floors) if floors else None
        ratio = statistics.median(row[0] / row[1] for row in rows) if floors else None
        summary[name] = {"eagerd": ours, "floor": floor, "ratio": ratio, "unit": unit}
        shown = f"{floor:9.1f} {unit}" if floor is not None else ""
        print(f"{name:<44}{ours:9.1f} {unit:<3}{shown:>12}{f'{ratio:.2f}' if ratio else '':>8}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(summary, file, indent=1, ensure_ascii=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
