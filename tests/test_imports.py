"""The import rule of the house: who may know whom."""

import ast
from pathlib import Path

import pytest

import coterie

ROOT = Path(coterie.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

ALGORITHMS = [path for path in FILES if path.parent.name == "algorithms" and path.stem != "__init__"]
PARTS = tuple(
    f"coterie.{part}"
    for part in ("algorithm", "nn", "clustering", "contrast", "factors", "fedsgd", "platforms", "quantisation")
)
ALLOWED = ("__future__", "functools", "itertools", "typing", *PARTS, "jax", "numpy", "optax", "pydantic")

BELOW = {
    "data": ("data", "algorithm", "shuffling", "errors", "files"),
    "evaluation": ("evaluation", "data", "errors"),
    "wire": ("wire", "algorithm", "errors"),
    "attacks": ("attacks", "attack", "algorithm", "nn", "errors"),
    "defences": ("defences", "defence", "algorithm", "errors"),
    "privacy": ("privacy", "algorithm", "errors"),
    "engine": (
        "engine",
        "data",
        "evaluation",
        "wire",
        "algorithm",
        "attack",
        "defence",
        "regulariser",
        "privacy",
        "nn",
        "uploads",
        "errors",
        "files",
    ),
}
"""What a station may import of the package; those not listed are free."""


def imported(path):
    """Full names of the modules that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {_module(node.module, alias.name) for alias in node.names}
    return names


def _module(package, name):
    """`from package import name` imports a module if there is one of that name, else the package."""
    inside = ROOT.joinpath(*package.split(".")[1:], name)
    is_module = package.split(".")[0] == "coterie" and (inside.with_suffix(".py").exists() or inside.is_dir())
    return f"{package}.{name}" if is_module else package


def within(module, allowed):
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def station(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_there_is_something_to_check():
    assert len(ALGORITHMS) >= 7
    assert len(FILES) > 40


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_algorithm_imports_the_contract_and_jax_only(path):
    strangers = {module for module in imported(path) if not within(module, ALLOWED)}
    assert not strangers, f"{path.name} imports {sorted(strangers)}"


@pytest.mark.parametrize("name", BELOW)
def test_station_knows_only_what_comes_before_it(name):
    allowed = [f"coterie.{part}" for part in BELOW[name]]
    for path in (path for path in FILES if station(path) == name):
        ours = {module for module in imported(path) if within(module, ["coterie"])}
        strangers = {module for module in ours if not within(module, allowed)}
        assert not strangers, f"{path.relative_to(ROOT)} imports {sorted(strangers)}"


def test_only_cli_and_experiment_know_everything():
    everything = ["coterie.algorithms", "coterie.experiment", "coterie.cli"]
    knowing = {station(path) for path in FILES if any(within(module, everything) for module in imported(path))}
    assert knowing <= {"cli", "experiment", "__init__", "__main__"}


def test_algorithm_names_stand_nowhere_in_the_engine():
    ordinary = {"local", "popularity"}
    names = {path.stem for path in ALGORITHMS} - ordinary
    for path in (path for path in FILES if station(path) in ("engine", "wire", "data")):
        words = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not names & {word for word in words if isinstance(word, str)}, path


def test_the_rule_would_notice(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import torch\n\n\ndef f():\n    from coterie.algorithms import fedmf\n")
    assert imported(file) == {"torch", "coterie.algorithms.fedmf"}
    assert not within("coterie.algorithms", ["coterie.algorithm"])
