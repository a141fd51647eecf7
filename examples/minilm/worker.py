"""One worker process: attaches the shared weights, or loads its own, and embeds sentences.

It is started by the main process only; `processes.py` says how the two speak.
"""

import argparse
import gc
import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil
from data import Tokenizer, load_reference, load_weights, pad
from model import embed
from sentences import make_sentences

from eagerd import EagerdError, EagerSession, ResourceCleanupStrategy, ResourceExhaustedError

_UNIT_LENGTH_TOLERANCE = 1e-5
_told_to_go_on = threading.Semaphore(0)


def tell(event: str, **fields: Any) -> None:
    """Send one event to the main process."""
    print(json.dumps({"event": event, **fields}), flush=True)


def _hear_main_process() -> None:
    while os.read(0, 1):
        _told_to_go_on.release()
    os._exit(1)  # the main process is gone; nobody wants what this one does


def measure(prefix: str, address: str | None) -> None:
    """Hold the weights, attached or as a private copy, and report the memory that this costs; then check results.

    PSS counts a page that several processes map as a fraction for each. So it is read while every worker is at
    the same point: the main process lets them go on when all have told the same event.
    """
    tell("started")
    _told_to_go_on.acquire()
    if address is None:
        tell_memory("empty")
        private = load_weights()
        touch(private)
        tell_memory("full")
        return
    with EagerSession(address, label="minilm worker") as session:
        tell_memory("empty")
        weights = attach_weights(session, prefix)
        views = {name: weight.numpy() for name, weight in weights.items()}
        touch(views)
        tell_memory("full")
        del views
        tell("checked", max_error=check_reference(session, weights), tensors=len(weights))


def touch(weights: Mapping[str, "np.ndarray[Any, Any]"]) -> None:
    """Read every page."""
    for weight in weights.values():
        np.sum(weight)


def tell_memory(event: str) -> None:
    """Report this process's PSS when every worker has come here; return when all have reported."""
    gc.collect()
    tell(f"{event}, waiting")
    _told_to_go_on.acquire()
    tell(event, bytes=psutil.Process().memory_full_info().pss)
    _told_to_go_on.acquire()


def attach_weights(session: EagerSession, prefix: str) -> dict[str, Any]:
    """Return all published weights, attached: no copy, no matter how many workers."""
    names = [name for name in session.published() if name.startswith(prefix)]
    return {name.removeprefix(prefix): session.attach(name) for name in names}


def embed_ids(session: EagerSession, weights: Mapping[str, Any], *token_ids: "np.ndarray[Any, Any]") -> Any:
    """Return the embeddings of sentences given by their token ids: a numpy view, computed by the daemon."""
    xp = session.namespace
    padded, mask = pad(token_ids)
    return embed(xp, weights, xp.asarray(padded), xp.asarray(mask)).numpy()


def check_reference(session: EagerSession, weights: Mapping[str, Any]) -> float:
    """Return the largest difference from the reference: of its sentences one by one, and all in one batch."""
    tokenizer, reference = Tokenizer(), load_reference()
    for sentence, ids in zip(reference.sentences, reference.token_ids, strict=True):
        own_ids = tokenizer.encode(sentence)
        if own_ids.tolist() != ids.tolist():
            raise RuntimeError(f"the tokenizer gives {own_ids.tolist()} for {sentence!r}, not {ids.tolist()}")
    single = [embed_ids(session, weights, ids)[0] for ids in reference.token_ids]
    batch = embed_ids(session, weights, *reference.token_ids)
    return float(max(np.max(np.abs(np.stack(single) - reference.embeddings)), np.max(np.abs(batch - single))))


def run_loop(
    prefix: str, address: str, strategy: ResourceCleanupStrategy, sentences: list[str], memory_limit: int
) -> None:
    """Embed every sentence in one session of that strategy, and report what the session holds meanwhile."""
    tokenizer = Tokenizer()
    handles: list[int] = []
    held_bytes: list[int] = []
    refusal: str | None = None
    operations = 0
    session = EagerSession(address, cleanup=strategy, memory_limit=memory_limit, label=f"minilm {strategy.name}")
    try:
        weights = attach_weights(session, prefix)
        for sentence in sentences:
            embedding = embed_ids(session, weights, tokenizer.encode(sentence))
            if abs(float(np.linalg.norm(embedding)) - 1) > _UNIT_LENGTH_TOLERANCE:
                raise RuntimeError(f"the embedding of {sentence!r} has not the length 1")
            stats = session.stats()
            handles.append(stats.live_handles)
            held_bytes.append(stats.live_bytes)
            operations = stats.operations
            tell("embedded")
    except ResourceExhaustedError as error:
        refusal = str(error)
    finally:
        try:
            session.close()
        except ResourceExhaustedError:
            pass  # operations behind the refused one, refused as well; the first is what is told
    quarter = max(1, len(handles) // 4)  # of what was done, so that a refused session shows its growth, too
    tell(
        "strategy",
        name=strategy.name,
        sentences=len(handles),
        refusal=refusal,
        operations=operations,
        handles=[max(handles[:quarter], default=0), handles[-1] if handles else 0, max(handles, default=0)],
        bytes=[max(held_bytes[:quarter], default=0), held_bytes[-1] if held_bytes else 0, max(held_bytes, default=0)],
    )


def main() -> int:
    """Do what the main process asks for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["private", "shared", "loop"])
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--address")
    parser.add_argument("--sentences", type=int, default=0)
    parser.add_argument("--memory-limit", type=int)
    options = parser.parse_args()
    threading.Thread(target=_hear_main_process, name="hear-main-process", daemon=True).start()
    try:
        if options.role == "private":
            measure(options.prefix, None)
        elif options.role == "shared":
            measure(options.prefix, options.address)
        else:
            sentences = make_sentences(options.sentences, seed=options.number)
            for strategy in ResourceCleanupStrategy:
                run_loop(options.prefix, options.address, strategy, sentences, options.memory_limit)
    except EagerdError as error:
        tell("failed", error=str(error))
        return 1
    except Exception as error:
        tell("failed", error=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
