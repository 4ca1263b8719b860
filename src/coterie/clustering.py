"""K-means for servers that group items."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from coterie.errors import CoterieError


def kmeans(key: Array, points: Any, clusters: int) -> NDArray[np.int32]:
    """Return the cluster of each point: scikit-learn's k-means with its default start, drawn by `key`.

    One thread, because sums over several are not always the same to the last bit.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    points = np.asarray(points)
    if not np.all(np.isfinite(points)):
        raise CoterieError("Item vectors are no longer finite, so they cannot be clustered; lower lr or item_lr.")
    seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Equal points make fewer clusters than asked for, which is what we want.
        found = KMeans(min(clusters, len(points)), n_init="auto", random_state=seed).fit_predict(points)
    return found.astype(np.int32)
