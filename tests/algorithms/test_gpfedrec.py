"""GPFedRec against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.algorithm import Received, Samples
from coterie.algorithms import gpfedrec
from coterie.uploads import Uploads

ALIKE = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])


def test_similarity_is_the_cosine_of_flattened_tables():
    tables = np.array([[1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 2.0], [0.0, 3.0, 0.0, 3.0]])
    expected = [[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]]
    np.testing.assert_allclose(gpfedrec.similarities(tables @ tables.T), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # The mean of all is 0.6.
        ({}, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]]),
        ({"threshold": 0.3}, [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]]),
        ({"threshold": 5.0}, np.eye(3)),
        ({"neighbours": 2}, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]),
        # Distances 0, 0.1, 0.9, 0.8 with mean 0.4: the least alike are averaged.
        ({"compat_distance": True}, [[0, 0, 1], [0, 0, 1], [0.5, 0.5, 0]]),
    ],
)
def test_graph_by_hand(settings, expected):
    np.testing.assert_allclose(gpfedrec.graph(gpfedrec.Config(**settings), ALIKE), expected, atol=1e-6)


def test_every_row_is_pulled_towards_the_target_once_a_batch():
    config = gpfedrec.Config(embedding_dim=2, layers=(3,), item_lr=4.0, user_lr=1.0, reg=0.5, batch_size=2)
    private = gpfedrec.init_client(jax.random.key(0), config, None, gpfedrec.Client(0, 1))
    items, target = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), jnp.zeros((3, 2))
    data = Samples(jnp.zeros(4, jnp.int32), jnp.zeros(4, jnp.int32), jnp.ones(4), 4, 4)
    upload, _, _ = gpfedrec.local_update(jax.random.key(1), config, gpfedrec.Download(items, target), private, data)
    # Two batches; each takes 2 * 4 * 0.5 / 6 of the distance away. Item 0 is trained as well.
    np.testing.assert_allclose(upload.items[1:], items[1:] * (1 - 4 / 6) ** 2, rtol=1e-5)
    assert not np.allclose(upload.items[0], items[0] * (1 - 4 / 6) ** 2)


def test_server_smooths_who_took_part_and_leaves_the_rest():
    tables = np.zeros((4, 2, 1), np.float32)
    tables[0], tables[1], tables[3] = [[1], [0]], [[3], [0]], [[0], [2]]
    present = np.array([True, True, False, True])
    server = gpfedrec.Server(jnp.zeros((2, 1)), jnp.full((4, 2, 1), 9.0))
    total = gpfedrec.Upload(jnp.asarray(tables.sum(0)))
    uploads = Uploads([gpfedrec.Upload(tables[:3]), gpfedrec.Upload(tables[3:])], np.arange(4))
    received = Received(total, 3.0, 3, uploads=uploads, present=jnp.asarray(present))
    after = gpfedrec.server_update(None, gpfedrec.Config(), server, received)
    # 0 and 1 point the same way, 3 is alone: mean similarity 5/9.
    np.testing.assert_allclose(after.targets[:, :, 0], [[2, 0], [2, 0], [9, 9], [0, 2]])
    np.testing.assert_allclose(after.items[:, 0], [4 / 3, 2 / 3], rtol=1e-6)
