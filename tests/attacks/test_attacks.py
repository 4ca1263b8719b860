"""What malicious clients send, worked out by hand on tiny models, and what it does to a federation."""

from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import algorithms, attack, attacks
from coterie.algorithm import Catalogue, Client
from coterie.attack import Scene
from coterie.attacks import a_hum, a_ra, gaussian_noise, psmu
from coterie.data import synthetic
from coterie.engine import intake
from coterie.engine.attackers import Threat
from coterie.engine.keys import stream
from coterie.engine.robustness import Robustness
from coterie.engine.simulate import Conduct, Simulation
from coterie.errors import CoterieError
from coterie.evaluation.protocols import prepare

KEY = jax.random.key(3)
TRAINING = ("eb", "random", "popular", "bandwagon")
UNTARGETED = ("label_flip", "sign_flip", "gaussian_noise")
SMALL = {
    "fedsgd": {"embedding_dim": 4, "layers": (6, 4), "init_scale": 0.5},
    "fedmf": {"embedding_dim": 4, "init_scale": 0.5, "item_lr": 3.0},
    "fedncf": {"embedding_dim": 4, "layers": (6, 4), "lr": 0.05, "item_lr": 0.02},
    "pfedrec": {"embedding_dim": 4, "item_lr": 3.0},
}


def scene_of(name="fedsgd", targets=(3, 8), n_items=14, **settings):
    """What a malicious client knows of a tiny federation; the popularity of item i is i."""
    algorithm = algorithms.get(name)
    config = algorithm.Config(**(SMALL[name] | {"loss": "bce"} | settings))
    return Scene(algorithm, config, Catalogue(n_items, 5, 5, jnp.arange(n_items)), jnp.array(targets))


SCENES = {
    "tower": scene_of(),
    "gradients": scene_of(backbone="mf"),
    "changes": scene_of("fedmf", targets=(3,)),
    "changes of a tower": scene_of("fedncf"),
}


def download_of(scene):
    server = scene.algorithm.init_server(KEY, scene.config, scene.catalogue)
    return scene.algorithm.download(scene.config, server, Client(5, 1))


class Crafted(NamedTuple):
    """One malicious client: what it began with, what it was sent, what it sent, and what it kept."""

    before: Any
    download: Any
    upload: Any
    after: Any


@cache
def crafting(name, scene, **settings):
    made, scene = attacks.get(name), SCENES[scene]
    config = made.Config(**settings)

    def once(key):
        down = download_of(scene)
        before = made.init(jax.random.fold_in(key, 1), config, scene)
        return Crafted(before, down, *made.craft(key, config, scene, down, before))

    return jax.jit(once)


USUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "a_ra": ("tower", {"drawn_users": 4, "user_scale": 1.0}),
    "a_hum": ("tower", {"drawn_users": 4, "user_scale": 1.0, "hard_lr": 0.1, "hard_steps": 3}),
    "psmu": ("tower", {"best_items": 3, "near_items": 2, "profile_size": 5}),
    **{name: ("gradients", {"boost": 7.0}) for name in TRAINING},
    "label_flip": ("gradients", {}),
    "sign_flip": ("gradients", {"boost": 2.0}),
    "gaussian_noise": ("tower", {"boost": 3.0}),
}


def craft(name, key=KEY, **other):
    """Craft in the scene and with the settings that are usual here, or in others."""
    scene, settings = USUAL[name]
    return crafting(name, other.pop("scene", scene), **(settings | other))(key)


def sigma(x):
    return 1 / (1 + np.exp(-x))


def moved_rows(upload):
    return set(np.flatnonzero(np.any(np.asarray(upload.items) != 0, axis=1)).tolist())


def assert_close(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


# -- the registry ---------------------------------------------------------------------------------------------


def test_every_name_is_an_attack_that_says_what_it_is():
    for name in attacks.names():
        info = attacks.get(name).info
        assert info.name == name
        assert info.targeted == (name not in UNTARGETED)
        assert info.reconstruction == (name == "psmu")


def test_an_unknown_name_is_one_sentence():
    with pytest.raises(CoterieError, match="a_hum"):
        attacks.get("a_hun")


# -- A-ra and A-hum -------------------------------------------------------------------------------------------


def drawn_users(name, scene, count):
    keys = jax.random.split(KEY, count)
    if name == "a_ra":
        return jax.vmap(lambda key: attack.a_client(key, scene, 1.0))(keys)
    down = download_of(scene)
    return jax.jit(jax.vmap(lambda key: a_hum.hard_user(key, a_hum.Config(**USUAL[name][1]), scene, down)))(keys)


@pytest.mark.parametrize("name", ["a_ra", "a_hum"])
def test_the_gradient_makes_targets_likes_of_the_drawn_users(name):
    scene = SCENES["tower"]
    users = drawn_users(name, scene, 4)
    made = craft(name)

    def loss(public):
        scores = jax.vmap(lambda user: attack.scores(scene, public, user, scene.targets))(users)
        return jnp.mean(jax.nn.softplus(-scores))

    assert_close(made.upload, jax.jit(jax.grad(loss))(made.download))
    assert moved_rows(made.upload) == {3, 8}
    assert all(np.any(np.asarray(layer.weight) != 0) for layer in made.upload.tower)


def test_a_ra_by_hand_without_a_tower():
    """A change is a step along the gradient at the rate of honest clients, which is 3."""
    scene, made = SCENES["changes"], craft("a_ra", scene="changes", drawn_users=1)
    user = jax.tree.map(lambda leaf: leaf[0], drawn_users("a_ra", scene, 1))
    vector, row = np.asarray(user.users[0]), np.asarray(made.download.items[3])
    np.testing.assert_allclose(made.upload.items[3], 3.0 * (1 - sigma(vector @ row)) * vector, rtol=1e-4)
    assert moved_rows(made.upload) == {3}
    a_little = jax.tree.map(lambda old, change: old + 0.1 * change, made.download, made.upload)
    before, after = (float(attack.scores(scene, view, user, scene.targets)[0]) for view in (made.download, a_little))
    assert after > before + 0.01


def test_a_change_has_the_rates_of_honest_clients():
    scene = SCENES["changes of a tower"]
    made = craft("a_ra", scene="changes of a tower")
    users = drawn_users("a_ra", scene, 4)
    slope = jax.jit(jax.grad(lambda public: a_ra.liking(scene, public, users)))(made.download)
    tower = jax.tree.map(lambda leaf: -0.05 * leaf, slope.tower)
    assert_close(made.upload, slope._replace(items=-0.02 * slope.items, tower=tower))


def test_drawn_users_have_the_scale_that_is_asked_for():
    draw = jax.vmap(lambda key: attack.a_client(key, SCENES["tower"], 0.01).users)
    users = np.asarray(draw(jax.random.split(KEY, 500)))
    assert users.std() == pytest.approx(0.01, rel=0.1)
    assert abs(users.mean()) < 0.001


def test_hard_users_like_the_targets_less_than_before():
    scene = SCENES["tower"]
    down = download_of(scene)

    def liking(key, steps):
        user = a_hum.hard_user(key, a_hum.Config(hard_steps=steps, hard_lr=0.1), scene, down)
        return attack.scores(scene, down, user, scene.targets).mean()

    keys = jax.random.split(KEY, 20)
    before, after = (np.asarray(jax.jit(jax.vmap(partial(liking, steps=steps)))(keys)) for steps in (0, 30))
    assert np.all(after < before - 0.01)


def test_one_hard_step_by_hand():
    scene = SCENES["changes"]
    down, easy = download_of(scene), attack.a_client(KEY, SCENES["changes"], 1.0)
    hard = a_hum.hard_user(KEY, a_hum.Config(user_scale=1.0, hard_lr=0.1, hard_steps=1), scene, down)
    user, row = np.asarray(easy.users[0]), np.asarray(down.items[3])
    np.testing.assert_allclose(hard.users[0], user - 0.1 * sigma(user @ row) * row, rtol=1e-5)


# -- PSMU -----------------------------------------------------------------------------------------------------

PSMU = psmu.Config(**USUAL["psmu"][1])


def test_psmu_competitors_are_the_best_items_and_those_closest_to_a_target():
    made, scene = craft("psmu"), SCENES["tower"]
    found = psmu.alternatives(PSMU, scene, made.download, made.after.private).tolist()
    liking = np.array(attack.scores(scene, made.download, made.after.private, jnp.arange(14)))
    others = [item for item in np.argsort(-liking).tolist() if item not in (3, 8)]
    unit = np.asarray(made.download.items) / np.linalg.norm(made.download.items, axis=1, keepdims=True)
    closest = np.argsort(-(unit @ unit[[3, 8]].T).max(1)).tolist()
    assert found[:3] == others[:3]
    assert found[3:] == [item for item in closest if item in others[3:]][:2]
    assert moved_rows(made.upload) == {3, 8, *found}


def test_psmu_uploads_the_gradient_that_lets_targets_win():
    made, scene = craft("psmu"), SCENES["tower"]
    user = made.after.private
    competitors = psmu.alternatives(PSMU, scene, made.download, user)
    both = lambda public: (attack.scores(scene, public, user, items) for items in (scene.targets, competitors))  # noqa: E731

    def loss(public):
        mine, theirs = both(public)
        return jax.nn.softplus(-mine).mean() + jax.nn.softplus(theirs[None, :] - mine[:, None]).mean()

    assert_close(made.upload, jax.jit(jax.grad(loss))(made.download))
    stepped = jax.tree.map(lambda old, slope: old - 0.1 * slope, made.download, made.upload)
    before, after = ([float(scores.mean()) for scores in both(view)] for view in (made.download, stepped))
    assert after[0] - after[1] > before[0] - before[1] + 0.01


def test_psmu_fits_its_user_from_where_it_was():
    """The first step of Adam moves each number by the rate, against its slope."""
    scene, config = SCENES["changes"], PSMU.model_copy(update={"fit_steps": 1})
    down, first = download_of(scene), jax.jit(partial(psmu.init, config=config, scene=scene))(KEY)
    data = attack.profile_samples(KEY, scene, first.items)
    user, rows = np.asarray(first.private.users[0]), np.asarray(down.items)[data.items]
    slope = (sigma(rows @ user) - np.asarray(data.labels)) @ rows
    again = jax.jit(lambda memory: psmu.craft(KEY, config, scene, down, memory)[1])
    second = again(first)
    np.testing.assert_allclose(second.private.users[0] - user, -0.001 * np.sign(slope), atol=1e-5)
    np.testing.assert_allclose(again(second).private.users[0] - user, -0.002 * np.sign(slope), atol=1e-5)
    np.testing.assert_array_equal(second.items, first.items)


def test_psmu_has_no_more_competitors_than_there_are_items():
    scene = scene_of("fedmf", targets=(0, 2), n_items=6)
    found = psmu.alternatives(psmu.Config(), scene, download_of(scene), attack.a_client(KEY, scene))
    assert sorted(found.tolist()) == [1, 3, 4, 5]


# -- made-up histories ----------------------------------------------------------------------------------------


def histories(name, scene, clients=100, **settings):
    made = attacks.get(name)
    init = lambda key: made.init(key, made.Config(**settings), scene).items  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(init))(jax.random.split(KEY, clients)))


@pytest.mark.parametrize("name", ["random", "popular", "bandwagon"])
@pytest.mark.parametrize(
    ("n_items", "targets", "size"),
    [(100, (99, 3), 30), (10, (9,), 5), (3, (1,), 1), (6, (0, 1, 2, 3), 4)],
)
def test_a_history_has_the_targets_and_no_item_twice(name, n_items, targets, size):
    for items in histories(name, scene_of("fedmf", targets=targets, n_items=n_items), clients=20).tolist():
        assert tuple(items[: len(targets)]) == targets
        assert len(items) == len(set(items)) == size


def test_eb_likes_the_targets_and_nothing_else():
    np.testing.assert_array_equal(histories("eb", scene_of("fedmf", targets=(8, 3)), clients=2), [[8, 3], [8, 3]])


def test_random_draws_all_others_alike():
    drawn = histories("random", scene_of("fedmf", targets=(3,), n_items=50), clients=1000, profile_size=11)
    counts = np.bincount(drawn.ravel(), minlength=50)
    assert counts[3] == 1000
    others = np.delete(counts, 3)
    assert np.abs(others - 10 * 1000 / 49).max() < 5 * np.sqrt(10 * 1000 / 49)


def test_popular_takes_the_most_popular_that_are_no_targets():
    drawn = histories("popular", scene_of("fedmf", n_items=50, targets=(48, 3)), clients=2, profile_size=6)
    assert drawn.tolist() == 2 * [[48, 3, 49, 47, 46, 45]]


def test_bandwagon_takes_a_share_from_the_most_popular_tenth():
    """Of 100 items the ten most popular without the target are 89 to 99; 6 of 20 are to be from there."""
    drawn = histories("bandwagon", scene_of("fedmf", n_items=100, targets=(95,)), profile_size=20, popular_share=0.3)
    popular, rest = drawn[:, 1:7], drawn[:, 7:]
    assert set(popular.ravel().tolist()) == set(range(89, 100)) - {95}
    assert set(rest.ravel().tolist()) == set(range(100)) - {95}


def test_psmu_leaves_the_targets_out_of_its_history():
    drawn = histories("psmu", scene_of("fedmf"), profile_size=6)
    assert set(drawn.ravel().tolist()) == set(range(14)) - {3, 8}
    assert all(len(set(row)) == 6 for row in drawn.tolist())


def test_an_ordinary_history_is_drawn_by_popularity():
    """The first of two items has chances 1, 2, 3, 4, 5 of 15; an item that nobody has is not drawn."""
    drawn = histories("label_flip", scene_of("fedmf", targets=(3,), n_items=6), clients=3000, profile_size=2)
    shares = np.bincount(drawn[:, 0], minlength=6) / 3000
    np.testing.assert_allclose(shares, np.arange(6) / 15, atol=0.03)
    assert not np.any(drawn == 0)
    assert np.all(drawn[:, 0] != drawn[:, 1])


def test_samples_are_the_history_and_negatives_from_all_others():
    scene, liked = scene_of(n_items=9), jnp.array([7, 0, 4])
    drawn = jax.vmap(lambda key: attack.profile_samples(key, scene, liked))(jax.random.split(KEY, 100))
    assert drawn.items.shape == (100, 15)
    np.testing.assert_array_equal(drawn.items[:, :3], np.tile(liked, (100, 1)))
    assert set(np.asarray(drawn.items[:, 3:]).ravel().tolist()) == {1, 2, 3, 5, 6, 8}
    np.testing.assert_array_equal(drawn.labels[0], [1] * 3 + [0] * 12)


# -- what training on them gives ------------------------------------------------------------------------------


def by_hand(made, labels_of):
    """The gradient of the item table: each sample's error times the user, averaged over the samples."""
    data = attack.profile_samples(jax.random.split(KEY)[0], SCENES["gradients"], made.before.items)
    user, table = np.asarray(made.before.private.users[0]), np.asarray(made.download.items)
    items, labels = np.asarray(data.items), labels_of(np.asarray(data.labels))
    gradient = np.zeros_like(table)
    np.add.at(gradient, items, np.outer(sigma(table[items] @ user) - labels, user) / len(items))
    return gradient


@pytest.mark.parametrize("name", TRAINING)
def test_training_is_that_of_an_honest_client_with_this_history(name):
    made = craft(name)
    np.testing.assert_allclose(made.upload.items, 7 * by_hand(made, lambda labels: labels), rtol=1e-4, atol=1e-6)
    moved = np.asarray(made.after.private.users) - made.before.private.users
    np.testing.assert_allclose(np.abs(moved), 0.001, rtol=1e-3)  # Adam's first step, whatever the boost
    np.testing.assert_array_equal(made.after.items, made.before.items)


def test_label_flip_trains_on_flipped_labels():
    made = craft("label_flip")
    np.testing.assert_allclose(made.upload.items, by_hand(made, lambda labels: 1 - labels), rtol=1e-4, atol=1e-6)


def test_sign_flip_is_minus_the_honest_upload():
    made = craft("sign_flip")
    np.testing.assert_allclose(made.upload.items, -2 * by_hand(made, lambda labels: labels), rtol=1e-4, atol=1e-6)


def test_noise_has_the_honest_length_and_no_direction():
    made, scene = craft("gaussian_noise"), SCENES["tower"]
    train = jax.jit(lambda memory: attack.train_on(jax.random.split(KEY)[0], scene, made.download, memory))
    honest = jax.tree.leaves(train(made.before)[0])
    for mine, theirs in zip(jax.tree.leaves(made.upload), honest, strict=True):
        assert np.linalg.norm(mine) == pytest.approx(3 * np.linalg.norm(theirs), rel=1e-4)
    assert moved_rows(made.upload) == set(range(14))
    many = jax.vmap(lambda key: gaussian_noise.as_long(key, honest[0]))(jax.random.split(KEY, 400))
    assert np.linalg.norm(many.mean(0)) < 0.15 * np.linalg.norm(honest[0])  # 1 / sqrt(400) is 0.05


# -- all of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", attacks.names())
def test_the_key_decides_what_is_sent(name):
    first, again, other = (np.asarray(craft(name, jax.random.key(n)).upload.items) for n in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-4


@cache
def shapes_of_honest(algorithm):
    scene = scene_of(algorithm)
    memory = jax.eval_shape(lambda: attack.ordinary(KEY, scene, 5))
    train = lambda memory: attack.train_on(KEY, scene, download_of(scene), memory)[0]  # noqa: E731
    return shapes(jax.eval_shape(train, memory))


def shapes(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [*((name, "fedncf") for name in attacks.names()), ("a_hum", "pfedrec"), ("psmu", "pfedrec")],
)
def test_an_upload_looks_like_an_honest_one(name, algorithm):
    scene, made = scene_of(algorithm), attacks.get(name)
    memory = jax.eval_shape(lambda: made.init(KEY, made.Config(), scene))
    craft = lambda memory: made.craft(KEY, made.Config(), scene, download_of(scene), memory)  # noqa: E731
    upload, after = jax.eval_shape(craft, memory)
    assert shapes(upload) == shapes_of_honest(algorithm)
    assert shapes(after) == shapes(memory)


# -- in a federation ------------------------------------------------------------------------------------------

SET = prepare(synthetic.make(users=60, items=80, communities=3, interactions_per_user=10, seed=0), "ratio-full")
RUN = {
    "fedsgd": {"embedding_dim": 8, "layers": (8,), "lr": 0.01, "server_lr": 0.01},
    "fedmf": {"embedding_dim": 4},
    "fedncf": {"embedding_dim": 4, "layers": (4,)},
    "pfedrec": {"embedding_dim": 4},
}


ROUNDS = 12


@cache
def simulate(made, algorithm="fedsgd"):
    """Run a few rounds with three malicious clients beside sixty honest ones."""
    robustness = Robustness(threat=Threat(made, made.Config(), 0.05, "least-popular"))
    conduct = Conduct(rounds=ROUNDS, eval_every=ROUNDS)
    run = Simulation(algorithms.get(algorithm), RUN[algorithm], SET, conduct, robustness=robustness)
    for _ in range(ROUNDS):
        run.advance()
    assert run.ledger.up == ROUNDS * 63 * run.ledger.bytes_per_upload
    assert not any(record.refused for record in run.history)
    assert np.isfinite(intake.length(run.state.server))
    return run


def nothing(key, config, scene, download, memory):
    return jax.tree.map(jnp.zeros_like, download), memory


HARMLESS = replace(attacks.get("a_ra"), craft=nothing)
"""Sends zeros: where uploads are added up, the run is the one without attack."""


def test_a_hum_brings_its_target_into_the_lists():
    attacked, quiet = simulate(attacks.get("a_hum")), simulate(HARMLESS)
    counts = np.bincount(SET.data.items, minlength=80)
    assert counts[attacked.targets].tolist() == [counts.min()]
    found, usual = attacked.history[-1].exposure, quiet.history[-1].exposure
    assert found["er@20"] > 0.8
    assert found["control er@20"] < 0.3
    assert usual["er@20"] < 0.3


@pytest.mark.parametrize("name", attacks.names())
def test_every_attack_takes_part_in_rounds(name):
    attacked, quiet = simulate(attacks.get(name)), simulate(HARMLESS)
    assert np.abs(np.asarray(attacked.state.server.items) - quiet.state.server.items).max() > 1e-4


@pytest.mark.parametrize(("name", "algorithm"), [("a_hum", "fedmf"), ("psmu", "fedncf"), ("bandwagon", "pfedrec")])
def test_attacks_work_with_other_algorithms(name, algorithm):
    run = simulate(attacks.get(name), algorithm)
    start = run.algorithm.init_server(stream(SET.seed, "server"), run.config, run.catalogue)
    moved = np.asarray(run.state.server.items) - start.items
    assert np.any(moved[run.targets] != 0)
