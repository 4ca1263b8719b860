"""`coterie doctor`: whether this machine can run everything."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.table import Table

PACKAGES = (
    "coterie",
    "jax",
    "jaxlib",
    "optax",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "pydantic",
    "safetensors",
    "typer",
    "rich",
)
EXTRAS = ("pyarrow", "matplotlib", "plotly", "dp-accounting")


def doctor() -> None:
    """Check packages, JAX, folders and data sets of this machine.

    The exit code is 1 if something is wrong.
    """
    table = Table("check", "", "finding", box=box.SIMPLE_HEAD, pad_edge=False)
    healthy = True
    for name, check in CHECKS.items():
        try:
            finding, good = check(), True
        except Exception as error:  # whatever is wrong is a finding
            finding, good = f"{type(error).__name__}: {error}", False
        table.add_row(name, "ok" if good else "[red]failed[/red]", finding)
        healthy &= good
    Console().print(table)
    if not healthy:
        raise typer.Exit(1)


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _packages() -> str:
    return ", ".join(f"{name} {version(name)}" for name in PACKAGES)


def _extras() -> str:
    return ", ".join(f"{name} {_version_or_none(name)}" for name in EXTRAS)


def _version_or_none(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cores() -> str:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} of {os.cpu_count()} can be used"


def _memory() -> str:
    from coterie.experiment.report import human_bytes

    page = os.sysconf("SC_PAGE_SIZE")
    return human_bytes(os.sysconf("SC_PHYS_PAGES") * page)


def _backend() -> str:
    import jax

    return ", ".join(f"{device.platform}: {device.device_kind}" for device in jax.devices())


def _program() -> str:
    import jax
    import jax.numpy as jnp

    value = jax.jit(lambda x: jnp.sum(jax.grad(lambda y: jnp.sum(y**2))(x)))(jnp.arange(4.0))
    if float(value) != 12.0:
        raise ArithmeticError(f"a sum that is 12 came out as {float(value)}")
    return "a small program compiles and gives the right number"


def _cache() -> str:
    from platformdirs import user_cache_path

    folder = user_cache_path("coterie")
    for name in ("data", "jax"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder / name) as file:
            file.write(b"x")
    return f"{folder} can be written"


def _here() -> str:
    with tempfile.TemporaryFile(dir=Path()) as file:
        file.write(b"x")
    return "runs can be written below the present folder"


def _variable() -> str:
    own = os.environ.get("COTERIE_DATA")
    if own and not Path(own).is_dir():
        raise FileNotFoundError(f"{own} is no folder")
    return own or "not set; data sets are looked for in the cache folder only"


def _data_sets() -> str:
    from coterie.data import cache
    from coterie.data.entries import ENTRIES

    here = [name for name in cache.names() if name in ENTRIES]
    own = [name for name in cache.names() if name not in ENTRIES]
    found = ", ".join(["demo", *here]) + (f"; your own: {', '.join(own)}" if own else "")
    return found if here or own else f"{found}; `coterie data list` shows the others"


CHECKS: dict[str, Callable[[], str]] = {
    "Python": _python,
    "packages": _packages,
    "extras": _extras,
    "cores": _cores,
    "memory": _memory,
    "JAX devices": _backend,
    "JAX program": _program,
    "cache folder": _cache,
    "this folder": _here,
    "$COTERIE_DATA": _variable,
    "data sets": _data_sets,
}
