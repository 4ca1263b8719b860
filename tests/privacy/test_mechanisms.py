"""Clipping and noise on one upload."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from coterie.privacy.mechanisms import Privacy, clipped, length, noised, protected


class Upload(NamedTuple):
    items: jnp.ndarray
    tower: list[jnp.ndarray]


SOME = Upload(jnp.array([[3.0, -4.0], [0.0, 12.0]]), [jnp.array([0.0, -1.0])])
NOTHING = Upload(jnp.zeros((300, 200)), [jnp.zeros(5000)])


def flat(upload):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(upload)]).astype(np.float64)


def test_lengths_by_hand():
    assert float(length("laplace", SOME)) == 20.0
    assert float(length("gaussian", SOME)) == pytest.approx(170**0.5)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_long_upload_is_shortened_as_one_vector(noise):
    after = flat(clipped(noise, 2.0, SOME))
    assert np.linalg.norm(after, 1 if noise == "laplace" else 2) == pytest.approx(2.0, rel=1e-6)
    np.testing.assert_allclose(after / after[0], flat(SOME) / 3.0, rtol=1e-6)


@pytest.mark.parametrize("upload", [SOME, NOTHING])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_short_upload_is_left_alone(noise, upload):
    np.testing.assert_array_equal(flat(clipped(noise, 20.0, upload)), flat(upload))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_an_upload_that_has_no_length_is_sent_as_zeros(bad):
    upload = SOME._replace(tower=[jnp.array([0.0, bad])])
    after = flat(clipped("gaussian", 2.0, upload))
    np.testing.assert_array_equal(after, 0)


@pytest.mark.parametrize(("noise", "law"), [("laplace", stats.laplace(scale=0.3)), ("gaussian", stats.norm(scale=0.3))])
def test_noise_has_its_distribution(noise, law):
    drawn = flat(noised(jax.random.key(5), noise, 0.3, NOTHING))
    assert len(np.unique(drawn[:5000])) > 4990
    assert drawn.mean() == pytest.approx(0, abs=4 * law.std() / len(drawn) ** 0.5)
    assert drawn.var() == pytest.approx(law.var(), rel=0.03)
    assert stats.kstest(drawn, law.cdf).pvalue > 0.001
    assert stats.kstest(drawn, stats.norm(scale=law.std() * 1.05).cdf).pvalue < 1e-6


def test_fields_draw_different_noise():
    two = Upload(jnp.zeros((4, 2)), [jnp.zeros((4, 2))])
    drawn = noised(jax.random.key(0), "laplace", 1.0, two)
    assert not np.isin(drawn.items, drawn.tower[0]).any()


def test_an_upload_is_clipped_before_noise_is_added():
    privacy = Privacy(noise="laplace", noise_scale=0.5, clip=2.0)
    key = jax.random.key(1)
    alone = noised(key, "laplace", 0.5, jax.tree.map(jnp.zeros_like, SOME))
    expected = flat(clipped("laplace", 2.0, SOME)) + flat(alone)
    np.testing.assert_allclose(flat(protected(key, privacy, SOME)), expected, rtol=1e-5, atol=1e-6)


def test_without_noise_an_upload_stays_as_it_is():
    assert protected(jax.random.key(0), Privacy(), SOME) is SOME
