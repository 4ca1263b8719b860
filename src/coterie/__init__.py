"""Coterie: train recommenders without collecting anybody's history.

>>> import coterie as ct
>>> data = ct.load("demo:users=60,items=240,interactions_per_user=20")
>>> run = ct.fit("popularity", data, rounds=1)
>>> sorted(run.metrics)[:2], len(run.recommend(user=data.user_ids[0], k=3))
(['coverage@10', 'gini@10'], 3)
"""

from coterie.data.catalogue import load
from coterie.data.interactions import Interactions
from coterie.data.readers import from_frame, read
from coterie.errors import CoterieError
from coterie.experiment.run import Recommendation, Run, fit
from coterie.experiment.run import load as load_run
from coterie.version import __version__

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
