"""Single uploads in parts: in the order of client numbers, whatever order the parts have."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from coterie.uploads import Uploads


class Message(NamedTuple):
    items: np.ndarray
    bias: np.ndarray


def scaled(upload, factor):
    return factor * upload.items.sum(), upload.bias


@pytest.fixture
def uploads():
    """Client c sends c everywhere; the parts hold clients 3, 0 and 2, 4, 1."""
    part = lambda numbers: Message(np.ones((len(numbers), 2, 2), np.float32) * np.array(numbers)[:, None, None],  # noqa: E731
                                   np.array(numbers, np.float32))  # fmt: skip
    parts = [part([3, 0]), part([2, 4, 1])]
    return Uploads(parts, np.argsort([3, 0, 2, 4, 1]))


def test_map_and_stack_are_in_the_order_of_client_numbers(uploads):
    total, bias = uploads.map(scaled, jnp.float32(10))
    np.testing.assert_array_equal(total, [0, 40, 80, 120, 160])
    np.testing.assert_array_equal(bias, range(5))
    np.testing.assert_array_equal(uploads.stack().items[:, 0, 0], range(5))
    assert [float(uploads.one(client).bias) for client in range(5)] == [0, 1, 2, 3, 4]


def test_sum_weighs_by_client_number_and_never_reads_who_does_not_count(uploads):
    np.testing.assert_allclose(uploads.sum([0, 1, 0, 0.5, 2]).items, np.full((2, 2), 1 + 1.5 + 8))
    uploads.parts[0].items[1] = np.nan
    np.testing.assert_allclose(uploads.sum([0, 1, 0, 0.5, 2]).bias, 10.5)
    assert np.isnan(uploads.sum([1, 0, 0, 0, 0]).items).all()


def test_products_and_mixtures_of_all_pairs(uploads):
    numbers = np.arange(5)
    for centre in (0, 2):
        products = uploads.products(Message(np.full((2, 2), centre, np.float32), np.float32(centre)))
        np.testing.assert_allclose(products, 5 * np.outer(numbers, numbers))  # four entries and a bias
    weights = np.random.default_rng(0).random((5, 5)).astype(np.float32)
    mixed = uploads.mix(weights)
    np.testing.assert_allclose(mixed.bias, weights @ numbers, rtol=1e-6)
    np.testing.assert_allclose(mixed.items, np.ones((5, 2, 2)) * (weights @ numbers)[:, None, None], rtol=1e-6)


def test_products_about_the_mean_are_as_good_as_in_full_precision():
    draw = np.random.default_rng(0)
    tables = draw.normal(size=(1, 400, 8)) + 0.1 * draw.normal(size=(30, 400, 8))
    uploads = Uploads([Message(tables.astype(np.float32), np.zeros((30, 1), np.float32))], np.arange(30))
    found = uploads.products(Message(tables.mean(0).astype(np.float32), np.zeros(1, np.float32)))
    flat = tables.reshape(30, -1)
    np.testing.assert_allclose(found, flat @ flat.T, rtol=1e-5)
