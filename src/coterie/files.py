"""Files that are whole or not there, and JAX's compilation cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
from platformdirs import user_cache_path

from coterie.errors import CoterieError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, then put it in place in one step.

    A full disk, or anything else that goes wrong, leaves what was there before.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    draft = Path(name)
    try:
        write(draft)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise CoterieError(
            f"{path} cannot be written: {error.strerror or error}; what was there is unchanged."
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""

    def write(draft: Path) -> None:
        draft.write_text(text, encoding="utf-8")

    write_atomically(path, write)


MOST_MAPPINGS = 20_000


def forget_programs() -> None:
    """Drop the compiled programs of a process that has very many; those still needed come from the compilation cache.

    Each of them maps pieces of memory. Linux allows a process 65,530 by default, and the compiler crashes beyond that:
    who runs one thing after the other calls this in between.
    """
    try:
        mappings = Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return
    if mappings > MOST_MAPPINGS:
        jax.clear_caches()


def use_compilation_cache() -> Path:
    """Keep compiled programs in the user's cache folder, so that only a first run compiles."""
    folder = user_cache_path("coterie") / "jax"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    return folder
