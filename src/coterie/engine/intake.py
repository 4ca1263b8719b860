"""What the server checks of an upload before it uses it: shape, type, finite numbers, norm.

A bad upload is dropped and named; the round goes on. Inside compiled programs shapes and types cannot be wrong, so
numbers alone are looked at (`fit`). What comes from outside is looked at whole (`checked`): it may be a message with
whole item tables, or with some of their rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from coterie.algorithm import Message
from coterie.errors import CoterieError


class Rows(NamedTuple):
    """Some rows of an item table, in place of the whole: those of the items `ids`, each once; the others are zero."""

    ids: Any
    values: Any


def length(upload: Message) -> Array:
    """Return the Euclidean length of an upload as one long vector; not finite where a number is not."""
    squares = [jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(upload)]
    return jnp.sqrt(sum(squares, jnp.zeros(())))


def fit(upload: Message, bound: float | None) -> Array:
    """Whether the numbers of an upload are finite and, with a bound, its length is within it."""
    size = length(upload)
    return jnp.isfinite(size) if bound is None else jnp.isfinite(size) & (size <= bound)


def checked(upload: Any, like: Message, bound: float | None) -> Message:
    """Return an upload with whole tables, or raise a `CoterieError` that says what is wrong with it."""
    fields = getattr(upload, "_fields", None)
    if fields != like._fields:
        raise CoterieError(f"it has the fields {fields}, not {like._fields}")
    whole = {name: _whole(name, getattr(upload, name), getattr(like, name)) for name in fields}
    found, tree = jax.tree.flatten(type(like)(**whole))
    expected = jax.tree.leaves(like)
    if jax.tree.structure(type(like)(**whole)) != jax.tree.structure(like):  # type: ignore[operator]
        raise CoterieError("its fields are nested in another way")
    for leaf, shape in zip(found, expected, strict=True):
        _same_shape(np.asarray(leaf), shape)
    message = jax.tree.unflatten(tree, [np.asarray(leaf) for leaf in found])
    size = float(length(message))
    if not np.isfinite(size):
        raise CoterieError("it holds numbers that are not finite, or too large to be squared")
    if bound is not None and size > bound:
        raise CoterieError(f"its length is {size:.3g}, and {bound:g} is the most that is taken")
    return message


def _same_shape(leaf: np.ndarray, like: Any) -> None:
    if leaf.shape != like.shape:
        raise CoterieError(f"it has an array of shape {leaf.shape} where {like.shape} is expected")
    if leaf.dtype != like.dtype:
        raise CoterieError(f"it has an array of type {leaf.dtype} where {like.dtype} is expected")


def _whole(name: str, field: Any, like: Any) -> Any:
    """Return a table of which some rows were sent; anything else as it is."""
    if not isinstance(field, Rows):
        return field
    ids, values = np.asarray(field.ids), np.asarray(field.values)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise CoterieError(f"the row numbers of {name} are not a list of integers")
    if len(ids) and not (ids.min() >= 0 and ids.max() < len(like)):
        raise CoterieError(f"{name} has row numbers outside 0 to {len(like) - 1}")
    if len(np.unique(ids)) != len(ids):
        raise CoterieError(f"{name} has the same row more than once")
    if values.shape != (len(ids), *like.shape[1:]) or values.dtype != like.dtype:
        raise CoterieError(f"the rows of {name} have shape {values.shape} and type {values.dtype}")
    table = np.zeros(like.shape, like.dtype)
    table[ids] = values
    return table
