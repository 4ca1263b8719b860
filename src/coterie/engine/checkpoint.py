"""A run on disk: arrays in one safetensors file, everything else as JSON in its header.

One file, written in one step, so a checkpoint is whole or not there. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from coterie.engine.evaluate import Answers
from coterie.engine.simulate import Simulation
from coterie.engine.state import Best, Record, State
from coterie.errors import CoterieError
from coterie.files import write_atomically

FORMAT = 1


KINDS = {"f4": "F32", "f8": "F64", "i4": "I32", "i8": "I64", "u4": "U32", "u1": "U8", "b1": "BOOL"}
"""What safetensors calls NumPy's types."""


def pack(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """Return the leaves of a tree by their paths."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unpack(arrays: Mapping[str, np.ndarray], like: Any, prefix: str, source: Path, keep: Callable[[Any], Any]) -> Any:
    """Rebuild a tree of the structure of `like`; a missing or misshapen leaf is an error that names it."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = prefix + jax.tree_util.keystr(path)
        array = arrays.get(name)
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise CoterieError(f"{source} does not fit this run: '{name}' is missing or has another shape.")
        found.append(keep(jnp.asarray(array)))
    return jax.tree_util.tree_unflatten(tree, found)


def write(path: Path, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Write arrays and what is to be known about them into one file, atomically.

    One array after the other: the library's own writer first copies all of them, which may be more than memory holds.
    """
    header: dict[str, Any] = {"__metadata__": {"coterie": json.dumps({"format": FORMAT, **about})}}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        kind = KINDS[array.dtype.str[1:]]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    def stream(draft: Path) -> None:
        with draft.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                file.write(np.ascontiguousarray(array).data)

    write_atomically(path, stream)


class Tensors(Mapping[str, np.ndarray]):
    """The arrays of a file, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._file = safe_open(path, framework="numpy")
        self.names = list(self._file.keys())
        self.metadata: dict[str, str] = self._file.metadata() or {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def read(path: Path, identity: dict[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """Read such a file; one of another format, algorithm, data set or setting is refused by name."""
    try:
        arrays = Tensors(path)
        about = json.loads(arrays.metadata.get("coterie", "{}"))
    except FileNotFoundError:
        raise CoterieError(f"There is no file {path}.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CoterieError(f"{path} cannot be read, it may be damaged: {error}") from None
    if about.get("format") != FORMAT:
        raise CoterieError(f"{path} was written by another version (format {about.get('format')}, not {FORMAT}).")
    there, here = (_named(each) for each in (about["identity"], json.loads(json.dumps(identity))))
    for key in here | there:
        if there.get(key) != here.get(key):
            was, wanted = (repr(each[key]) if key in each else "the default" for each in (there, here))
            raise CoterieError(f"{path} belongs to another run: its {key} is {was}, not {wanted}.")
    return arrays, about


def _named(identity: dict[str, Any]) -> dict[str, Any]:
    """Return what must agree, settings by their own names."""
    return {key: value for key, value in identity.items() if key != "settings"} | identity.get("settings", {})


COUNTED = ("up", "down", "needed_up", "needed_down")
"""What a ledger has counted."""


def save(path: Path, simulation: Simulation, identity: dict[str, Any]) -> None:
    """Write all that a run needs to go on exactly as if it had not stopped."""
    best = simulation.best
    arrays = _packed_state(simulation.state, "state")
    if best is not None:
        arrays |= _packed_state(best.state, "best") | pack(best.answers._asdict(), "answers")
    about = {
        "identity": identity,
        "round": simulation.state.round,
        "history": [asdict(record) for record in simulation.history],
        "best": None if best is None else {"value": best.value, "round": best.record.round, "state": best.state.round},
        "bytes": {name: getattr(simulation.ledger, name) for name in COUNTED},
        "seconds": simulation.clock.spent,
    }
    write(path, arrays, about)


def load(path: Path, simulation: Simulation, identity: dict[str, Any]) -> None:
    """Put a fresh simulation where the checkpoint left off."""
    arrays, about = read(path, identity)
    simulation.state = _unpacked_state(arrays, simulation, "state", about["round"], path)
    simulation.history = [Record(**record) for record in about["history"]]
    for name in COUNTED:
        setattr(simulation.ledger, name, about["bytes"][name])
    simulation.clock.spent = about["seconds"]
    if about["best"] is not None:
        state = _unpacked_state(arrays, simulation, "best", about["best"]["state"], path)
        record = next(r for r in simulation.history if r.round == about["best"]["round"])
        parts = {part: f"answers['{part}']" for part in Answers._fields}
        answers = Answers(**{part: arrays[name] for part, name in parts.items() if name in arrays})
        simulation.best = Best(about["best"]["value"], record, state, answers)


def save_model(path: Path, state: State, identity: dict[str, Any]) -> None:
    """Write the state that answers for a run."""
    write(path, _packed_state(state, "model"), {"identity": identity, "round": state.round})


def load_model(path: Path, simulation: Simulation, identity: dict[str, Any]) -> None:
    """Put a fresh simulation into the state of a saved model."""
    arrays, about = read(path, identity)
    simulation.state = _unpacked_state(arrays, simulation, "model", about["round"], path)


def _packed_state(state: State, prefix: str) -> dict[str, np.ndarray]:
    kept = pack(state.server, f"{prefix}.server") | pack(state.beside, f"{prefix}.beside")
    return kept | pack(state.stores, f"{prefix}.private")


def _unpacked_state(
    arrays: Mapping[str, np.ndarray], simulation: Simulation, prefix: str, number: int, source: Path
) -> State:
    like = simulation.state
    server = unpack(arrays, like.server, f"{prefix}.server", source, lambda leaf: leaf)
    beside = unpack(arrays, like.beside, f"{prefix}.beside", source, lambda leaf: leaf)
    stores = unpack(arrays, like.stores, f"{prefix}.private", source, simulation.store.keep)
    return State(server, stores, number, beside)
