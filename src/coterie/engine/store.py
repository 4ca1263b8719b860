"""Where private states, and uploads that are kept, live between rounds: in memory, or in files when that is too small.

A file is never written twice: a round leaves new ones, and those that nobody refers to any more are gone. So a state
on disk can be kept by keeping a reference to it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from platformdirs import user_cache_path

from coterie.errors import CoterieError

PART = 1 << 28
"""Most bytes of private state that are read from disk at a time."""

ROOM = 1 / 4
"""Share of the machine's memory that private states may take: uploads, the best round and work need the rest."""


@dataclass(frozen=True)
class Store:
    """Keeps trees of arrays, as they are or memory-mapped."""

    on_disk: bool

    def keep(self, tree: Any) -> Any:
        """Put a tree away."""
        return jax.tree.map(_mapped, tree) if self.on_disk else tree

    def fetch(self, tree: Any) -> Any:
        """Return a tree for a program that may use it up."""
        return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree) if self.on_disk else tree

    def copy(self, tree: Any, over: Any = None) -> Any:
        """Return a tree that later rounds cannot use up; it takes the place of `over`, if that is given.

        New memory costs ten times as much as the copy, where there is much of it.
        """
        if self.on_disk:
            return tree
        return _copied(tree) if over is None else _copied_over(over, tree)


def too_large(n_bytes: int) -> bool:
    """Whether so many bytes of private state do not fit into this machine's memory."""
    return n_bytes > ROOM * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@jax.jit
def _copied(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)


@partial(jax.jit, donate_argnums=0, keep_unused=True)
def _copied_over(over: Any, tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)


def _mapped(leaf: Any) -> np.ndarray:
    """Write an array to a file without a name, which goes when the array does."""
    leaf = np.asarray(leaf)
    if leaf.size == 0:
        return leaf
    folder = user_cache_path("coterie") / "stores"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, leaf.nbytes)
            kept = np.memmap(file, leaf.dtype, "r+", shape=leaf.shape)
    except OSError as error:
        raise CoterieError(f"Private states cannot be kept in {folder}: {error.strerror or error}.") from None
    kept[...] = leaf
    return kept
