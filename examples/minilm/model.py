"""The encoder of all-MiniLM-L6-v2, written against the array API standard.

It runs unchanged on a session's namespace, where every line below is an operation of the daemon's, and on any
other namespace that has `special.erf`. Everything is float32; a weight is looked up by its name in the file.
"""

from collections.abc import Mapping
from typing import Any

LAYERS = 6
HEADS = 12
WIDTH = 384
_EPSILON = 1e-12
_MASKED = 1e9
"""What an attention score to padding is lowered by: its exponential is 0 in float32."""


def embed(xp: Any, weights: Mapping[str, Any], token_ids: Any, attention_mask: Any) -> Any:
    """Return unit-length embeddings, shape (sentences, 384), float32.

    `token_ids` (int64) and `attention_mask` (float32, 1 for a token and 0 for padding) have the shape
    (sentences, tokens).
    """
    sentences, tokens = attention_mask.shape
    lowered = (xp.reshape(attention_mask, (sentences, 1, 1, tokens)) - 1) * _MASKED
    x = _embed_tokens(xp, weights, token_ids)
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        attended = _attend(xp, weights, prefix + "attention.", x, lowered)
        x = _normalize(xp, weights, prefix + "attention.output.LayerNorm.", x + attended)
        hidden = _gelu(xp, _linear(xp, weights, prefix + "intermediate.dense.", x))
        forwarded = _linear(xp, weights, prefix + "output.dense.", hidden)
        x = _normalize(xp, weights, prefix + "output.LayerNorm.", x + forwarded)
    # The mean over tokens that are no padding; its length does not matter, since it is made 1.
    pooled = xp.sum(x * xp.reshape(attention_mask, (sentences, tokens, 1)), axis=1)
    return pooled / xp.sqrt(xp.sum(pooled * pooled, axis=-1, keepdims=True))


def _embed_tokens(xp: Any, weights: Mapping[str, Any], token_ids: Any) -> Any:
    sentences, tokens = token_ids.shape
    rows = xp.take(weights["embeddings.word_embeddings.weight"], xp.reshape(token_ids, (-1,)), axis=0)
    words = xp.reshape(rows, (sentences, tokens, WIDTH))
    positions = weights["embeddings.position_embeddings.weight"][:tokens, :]
    first_type = weights["embeddings.token_type_embeddings.weight"][0, :]
    return _normalize(xp, weights, "embeddings.LayerNorm.", words + positions + first_type)


def _linear(xp: Any, weights: Mapping[str, Any], prefix: str, x: Any) -> Any:
    # PyTorch stores a weight as (outputs, inputs); its transpose is a view.
    return xp.matmul(x, xp.matrix_transpose(weights[prefix + "weight"])) + weights[prefix + "bias"]


def _normalize(xp: Any, weights: Mapping[str, Any], prefix: str, x: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + _EPSILON) * weights[prefix + "weight"] + weights[prefix + "bias"]


def _attend(xp: Any, weights: Mapping[str, Any], prefix: str, x: Any, lowered: Any) -> Any:
    query, key, value = (
        _split_heads(xp, _linear(xp, weights, f"{prefix}self.{part}.", x)) for part in ("query", "key", "value")
    )
    scores = xp.matmul(query, xp.matrix_transpose(key)) / (WIDTH / HEADS) ** 0.5 + lowered
    exponentials = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    attention = exponentials / xp.sum(exponentials, axis=-1, keepdims=True)
    context = xp.permute_dims(xp.matmul(attention, value), (0, 2, 1, 3))
    return _linear(xp, weights, prefix + "output.dense.", xp.reshape(context, x.shape))


def _split_heads(xp: Any, x: Any) -> Any:
    sentences, tokens, _ = x.shape
    return xp.permute_dims(xp.reshape(x, (sentences, tokens, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))


def _gelu(xp: Any, x: Any) -> Any:
    return x * 0.5 * (xp.special.erf(x / 2**0.5) + 1)
