"""One worker process: attaches the shared weights, or loads its own, and embeds sentences.

It speaks with the main process in lines of JSON: events on its output; a line on its input lets it go on.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from data import Tokenizer, load_reference, load_weights, make_sentences
from model import embed

import eagerd
from eagerd import EagerSession, ResourceCleanupStrategy

PREFIX = "minilm/"


def tell(event: str, **fields: Any) -> None:
    """Send one event to the main process."""
    print(json.dumps({"event": event, **fields}), flush=True)


def wait_for_go() -> None:
    """Block until the main process says so; end if it is gone."""
    if not sys.stdin.readline():
        sys.exit(1)


def proportional_set_size_bytes() -> int:
    """Return this process's PSS: its own pages, and its share of those that it shares."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel reports no Pss")


def measure_private() -> None:
    """Hold a private copy of the weights, every page touched, and report what that costs."""
    weights = load_weights()
    checksum = sum(float(np.sum(weight)) for weight in weights.values())
    tell("ready", checksum=checksum)
    wait_for_go()
    tell("memory", bytes=proportional_set_size_bytes())
    wait_for_go()


def attach_weights(session: EagerSession) -> dict[str, Any]:
    """Return all published weights, attached: no copy, no matter how many workers."""
    names = [name for name in session.published() if name.startswith(PREFIX)]
    return {name.removeprefix(PREFIX): session.attach(name) for name in names}


def measure_shared(address: str) -> None:
    """Attach the weights, touch every page, report what that costs; then check the embeddings."""
    with EagerSession(address) as session:
        weights = attach_weights(session)
        views = {name: weight.numpy() for name, weight in weights.items()}
        checksum = sum(float(np.sum(view)) for view in views.values())
        tell("ready", checksum=checksum, tensors=len(weights))
        wait_for_go()
        tell("memory", bytes=proportional_set_size_bytes())
        wait_for_go()
        tell("checked", max_error=check_reference(session, weights))


def check_reference(session: EagerSession, weights: dict[str, Any]) -> float:
    """Return the largest difference from the reference over all its sentences."""
    xp, tokenizer, reference = session.namespace, Tokenizer(), load_reference()
    worst = 0.0
    for sentence, ids, right in zip(reference.sentences, reference.token_ids, reference.embeddings, strict=True):
        own_ids = tokenizer.encode(sentence)
        if own_ids.tolist() != ids.tolist():
            raise RuntimeError(f"the tokenizer gives {own_ids.tolist()} for {sentence!r}, not {ids.tolist()}")
        result = embed(xp, weights, xp.asarray(own_ids)).numpy()
        worst = max(worst, float(np.max(np.abs(result - right))))
    return worst


def run_strategy(address: str, strategy: ResourceCleanupStrategy, sentences: list[str], memory_limit: int) -> None:
    """Embed every sentence in a session of that strategy, and report what it holds while it does."""
    tokenizer = Tokenizer()
    done, refused = 0, ""
    handles: list[int] = []
    held: list[int] = []
    session = EagerSession(address, cleanup=strategy, memory_limit=memory_limit, label=strategy.name.lower())
    xp, weights = session.namespace, attach_weights(session)
    try:
        for sentence in sentences:
            embedding = embed(xp, weights, xp.asarray(tokenizer.encode(sentence))).numpy()
            if abs(float(np.linalg.norm(embedding)) - 1) > 1e-5:
                raise RuntimeError(f"the embedding of {sentence!r} has no unit length")
            stats = session.stats()
            handles.append(stats.live_handles)
            held.append(stats.live_bytes)
            done += 1
            if done % 10 == 0:
                tell("progress", sentences=10)
    except eagerd.ResourceExhaustedError as error:
        refused = str(error)
    finally:
        del weights
        try:
            session.close()
        except eagerd.ResourceExhaustedError as error:  # operations behind the refused one, told at the close
            refused = refused or str(error)
    quarter = max(1, len(handles) // 4)
    tell(
        "strategy",
        name=strategy.name,
        done=done,
        refused=refused,
        handles=[max(handles[:quarter]), handles[-1], max(handles)],
        bytes=[max(held[:quarter]), held[-1], max(held)],
    )


def main() -> None:
    """Do what the main process asks for on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["private", "shared", "loop"])
    parser.add_argument("--address", default="")
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=0)
    parser.add_argument("--memory-limit", type=int, default=0)
    options = parser.parse_args()
    try:
        if options.role == "private":
            measure_private()
        elif options.role == "shared":
            measure_shared(options.address)
        else:
            sentences = make_sentences(options.sentences, seed=options.number)
            for strategy in ResourceCleanupStrategy:
                run_strategy(options.address, strategy, sentences, options.memory_limit)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        tell("failed", error=f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
