"""The encoder of all-MiniLM-L6-v2, written against the array API standard.

It runs unchanged on a session's namespace, where every line below is an operation of the daemon's, and on any
other namespace that has `special.erf`. One sentence at a time, so nothing is padded and nothing masked.
"""

from collections.abc import Mapping
from typing import Any

LAYERS = 6
HEADS = 12
WIDTH = 384
_EPSILON = 1e-12


def embed(xp: Any, weights: Mapping[str, Any], token_ids: Any) -> Any:
    """Return the unit-length embedding, shape (384,), float32, of one sentence's token ids, shape (tokens,)."""
    x = _embed_tokens(xp, weights, token_ids)
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        attended = _attend(xp, weights, prefix + "attention.", x)
        x = _normalize(xp, weights, prefix + "attention.output.LayerNorm.", x + attended)
        hidden = _gelu(xp, _linear(xp, weights, prefix + "intermediate.dense.", x))
        forwarded = _linear(xp, weights, prefix + "output.dense.", hidden)
        x = _normalize(xp, weights, prefix + "output.LayerNorm.", x + forwarded)
    pooled = xp.mean(x, axis=0)
    return pooled / xp.sqrt(xp.sum(pooled * pooled))


def _embed_tokens(xp: Any, weights: Mapping[str, Any], token_ids: Any) -> Any:
    tokens = token_ids.shape[0]
    words = xp.take(weights["embeddings.word_embeddings.weight"], token_ids, axis=0)
    positions = weights["embeddings.position_embeddings.weight"][:tokens, :]
    first_type = weights["embeddings.token_type_embeddings.weight"][0, :]
    return _normalize(xp, weights, "embeddings.LayerNorm.", words + positions + first_type)


def _linear(xp: Any, weights: Mapping[str, Any], prefix: str, x: Any) -> Any:
    # A weight is stored (outputs, inputs); its transpose is a view.
    return xp.matmul(x, xp.matrix_transpose(weights[prefix + "weight"])) + weights[prefix + "bias"]


def _normalize(xp: Any, weights: Mapping[str, Any], prefix: str, x: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + _EPSILON) * weights[prefix + "weight"] + weights[prefix + "bias"]


def _attend(xp: Any, weights: Mapping[str, Any], prefix: str, x: Any) -> Any:
    query, key, value = (
        _split_heads(xp, _linear(xp, weights, f"{prefix}self.{part}.", x)) for part in ("query", "key", "value")
    )
    scores = xp.matmul(query, xp.matrix_transpose(key)) / (WIDTH / HEADS) ** 0.5
    exponentials = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    attention = exponentials / xp.sum(exponentials, axis=-1, keepdims=True)
    context = xp.permute_dims(xp.matmul(attention, value), (1, 0, 2))
    return _linear(xp, weights, prefix + "output.dense.", xp.reshape(context, x.shape))


def _split_heads(xp: Any, x: Any) -> Any:
    return xp.permute_dims(xp.reshape(x, (x.shape[0], HEADS, WIDTH // HEADS)), (1, 0, 2))


def _gelu(xp: Any, x: Any) -> Any:
    return x * 0.5 * (xp.special.erf(x / 2**0.5) + 1)
