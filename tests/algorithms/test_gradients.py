"""Gradients equal finite differences."""

import jax
import jax.numpy as jnp
from jax.test_util import check_grads

from coterie import nn

KEY = jax.random.key(1)


def test_cross_entropy_and_squared_error():
    logits, labels = 3 * jax.random.normal(KEY, (7,)), jnp.array([0, 1, 0, 1, 1, 0, 1.0])
    for loss in nn.LOSSES.values():
        check_grads(lambda x, loss=loss: loss(x, labels).sum(), (logits,), order=1, modes=["rev"], rtol=2e-2)


def test_cross_entropy_stays_finite_far_out():
    value, gradient = jax.value_and_grad(lambda x: nn.bce(x, jnp.array(0.0)))(jnp.array(1e4))
    assert value == 1e4 and gradient == 1


def test_neumf():
    tower = nn.init_neumf(KEY, 3, (8, 4), gmf=True)
    users, items = jax.random.normal(KEY, (6,)), jax.random.normal(jax.random.fold_in(KEY, 1), (5, 6))
    check_grads(
        lambda *arguments: nn.neumf(*arguments, gmf=True).sum(),
        (tower, users, items),
        order=1,
        modes=["rev"],
        rtol=2e-2,
    )


def test_weighted_mean_has_no_gradient_where_all_is_padding():
    gradient = jax.grad(lambda x: nn.weighted_mean(x**2, jnp.zeros(3)))(jnp.ones(3))
    assert not gradient.any()
