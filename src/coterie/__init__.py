"""Coterie: train recommenders without collecting anybody's history.

>>> import coterie as ct
>>> data = ct.load("demo:users=60,items=360,interactions_per_user=14")
>>> run = ct.fit("popularity", data, rounds=1)
>>> sorted(run.metrics)[:2], len(run.recommend(user=data.user_ids[0], k=3))
(['coverage@10', 'gini@10'], 3)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coterie.errors import CoterieError
from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.data.catalogue import load
    from coterie.data.interactions import Interactions
    from coterie.data.readers import from_frame, read
    from coterie.experiment.run import Recommendation, Run, fit, load_run

__all__ = [
    "CoterieError",
    "Interactions",
    "Recommendation",
    "Run",
    "__version__",
    "fit",
    "from_frame",
    "load",
    "load_run",
    "read",
]

# Loaded when first used: JAX takes a second to import, which `coterie --help` need not wait for.
_HOMES = {
    "Interactions": "coterie.data.interactions",
    "Recommendation": "coterie.experiment.run",
    "Run": "coterie.experiment.run",
    "fit": "coterie.experiment.run",
    "from_frame": "coterie.data.readers",
    "load": "coterie.data.catalogue",
    "load_run": "coterie.experiment.run",
    "read": "coterie.data.readers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
