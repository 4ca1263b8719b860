"""Every defence by hand, against a plain loop over whole uploads, against an outlier, and inside a federation."""

from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pytest

from coterie import algorithms, attacks, defences
from coterie.data import synthetic
from coterie.defence import RowUploads
from coterie.engine import checkpoint, singles
from coterie.engine.attackers import Threat
from coterie.engine.federation import Guard
from coterie.engine.robustness import Robustness
from coterie.engine.round import Singles
from coterie.engine.simulate import Conduct, Simulation
from coterie.errors import CoterieError
from coterie.evaluation.protocols import prepare


class Upload(NamedTuple):
    items: np.ndarray
    bias: np.ndarray
    tower: list


N_ITEMS = 7
LIKE = Upload(np.zeros((N_ITEMS, 3), np.float32), np.zeros(N_ITEMS, np.float32), [np.zeros((2, 2)), np.zeros(3)])
ROBUST = ("krum", "median", "trimmed_mean")


class Sent(NamedTuple):
    """One client's whole upload and the items of which it sent rows."""

    upload: Upload
    items: list


def rowwise(sent, weight=None):
    """The uploads as a defence gets them."""
    pairs = sorted((item, client) for client, each in enumerate(sent) for item in each.items)
    item, client = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    tables = {
        name: np.array([getattr(sent[c].upload, name)[i] for i, c in pairs], np.float32).reshape(len(pairs), *shape)
        for name, shape in (("items", sent[0].upload.items.shape[1:]), ("bias", ()))
    }
    tower = jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float32), *(each.upload.tower for each in sent))
    weight = np.ones(len(sent)) if weight is None else weight
    rest = Upload(None, None, tower)
    return RowUploads(item, client, tables, rest, np.asarray(weight, np.float32), len(sent[0].upload.items))


def drawn(seed, clients=6):
    """Uploads in which item 0 has no rows, items 1, 2 and 3 have one, two and three, and the others many."""
    rng = np.random.default_rng(seed)
    who = [[], *(rng.permutation(clients)[:count] for count in (1, 2, 3, clients - 1, clients, clients))]
    sent = []
    for client in range(clients):
        items = [item for item in range(N_ITEMS) if client in who[item]]
        mine = np.isin(np.arange(N_ITEMS), items)
        table = (rng.normal(0, 1, (N_ITEMS, 3)) * mine[:, None]).astype(np.float32)
        bias = (rng.normal(0, 1, N_ITEMS) * mine).astype(np.float32)
        tower = [rng.normal(0, 1, shape).astype(np.float32) for shape in ((2, 2), (3,))]
        sent.append(Sent(Upload(table, bias, tower), items))
    return sent


def combined(name, sent, weight=None, **settings):
    found = defences.get(name)
    config = found.Config(**settings)
    return found.combine(config, rowwise(sent, weight), found.init(config, sent[0].upload))[0]


def assert_close(found, expected, rtol=1e-5):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == np.float32 and a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)


def test_names_are_those_of_the_files():
    for name in defences.names():
        found = defences.get(name)
        assert found.info.name == name and found.info.summary
        assert all(field.description for field in found.Config.model_fields.values())
        assert found.info.reconstruction == (name == "hics")
    with pytest.raises(CoterieError, match="median"):
        defences.get("medain")


# -- by hand --------------------------------------------------------------------------------------------------

# Item 0 is sent by all four clients, item 1 by client 2, item 2 by clients 0 and 1, item 3 by nobody.
ROWS = {
    0: {0: [1, 0], 2: [2, 2]},
    1: {0: [2, 1], 2: [4, -2]},
    2: {0: [3, 2], 1: [3, 4]},
    3: {0: [10, 1]},
}
ARRAYS = [[1, 0, 0, 0], [2, 0, 0, 0], [2, 0, 0, 1], [0, 0, 8, 0]]


def four():
    sent = []
    for client, rows in ROWS.items():
        items, bias = np.zeros((4, 2), np.float32), np.zeros(4, np.float32)
        for item, row in rows.items():
            items[item], bias[item] = row, row[0]
        sent.append(Sent(Upload(items, bias, [np.array(ARRAYS[client], np.float32).reshape(2, 2)]), list(rows)))
    return sent


def expected(items, bias, array):
    return Upload(np.array(items, float), np.array(bias, float), [np.array(array, float).reshape(2, 2)])


def test_krum_by_hand():
    # Item 0 has the mean (4, 1): squared distances 10, 4, 2, 36. Of its bias, mean 4: 3, 2, 1, 6.
    # The arrays have the mean (5, 0, 8, 1) / 4.
    chosen = expected([[12, 8], [3, 4], [6, 0], [0, 0]], [12, 3, 6, 0], [4, 0, 0, 0])
    away = [np.sum((np.array(array) - np.array([5, 0, 8, 1]) / 4) ** 2) for array in ARRAYS]
    assert np.argmin(away) == 0
    assert_close(combined("krum", four()), chosen)


def test_median_by_hand():
    assert_close(combined("median", four()), expected([[10, 4], [3, 4], [6, 0], [0, 0]], [10, 3, 6, 0], [6, 0, 0, 0]))


def test_trimmed_mean_by_hand():
    chosen = expected([[10, 4], [3, 4], [6, 0], [0, 0]], [10, 3, 6, 0], [6, 0, 0, 0])
    assert_close(combined("trimmed_mean", four(), trim=1), chosen)
    plain = expected([[16, 4], [3, 4], [6, 0], [0, 0]], [16, 3, 6, 0], [5, 0, 8, 1])
    assert_close(combined("trimmed_mean", four(), trim=0), plain)
    assert_close(combined("trimmed_mean", four(), trim=2), plain)  # four are not more than twice two


def test_krum_classic_by_hand():
    # One array of two numbers for each client; rows of items 0 and 1, of one number, are two more.
    uploads = RowUploads(
        item=np.array([0, 0, 0, 1]),
        sender=np.array([0, 1, 2, 4]),
        rows={"bias": np.array([1, 2, 3, 50], np.float32)},
        rest=Upload(None, None, [np.array([[0, 0], [0, 1], [0, 3], [4, 4], [0, 0]], np.float32)]),
        weight=np.array([1, 1, 2, 1, 1], np.float32),
        n_items=3,
    )
    rule = defences.get("krum_classic")

    def choose(f):
        return rule.combine(rule.Config(krum_f=f), uploads, ())[0]

    # Squared distances, by pair of clients: 01: 2, 02: 13, 03: 33, 12: 5, 13: 29, 23: 26, and beyond 2500 to client 4.
    # Two neighbours, of clients 0 to 3: 15, 7, 18, 55. One, of clients 0 and 1: 2 both, and the first wins.
    assert_close(choose(1), Upload(None, np.array([12.0, 0, 0]), [np.array([0, 6.0])]))
    assert_close(choose(2), Upload(None, np.array([6.0, 0, 0]), [np.array([0, 0])]))
    assert_close(choose(9), choose(2))
    # Three neighbours: 48, 36, 44, 88; client 1 still, which sent nothing of item 1.
    assert_close(choose(0), choose(1))


def test_clip_rows_by_hand():
    # Item 0 with bound 2: (1, 0), (2, 1) of length 5^.5, (3, 2) of 13^.5, (10, 1) of 101^.5. Arrays are left alone.
    rows = [np.array(ROWS[client][0]) for client in range(4)]
    first = rows[0] + sum(2 * row / np.sqrt(row @ row) for row in rows[1:])
    second, third = 2 * np.array([0.6, 0.8]), np.array([2, 2]) / 2**0.5 + 2 * np.array([4, -2]) / 20**0.5
    items = [first, second, third, [0, 0]]
    assert_close(combined("clip_rows", four(), row_bound=2), expected(items, [7, 2, 4, 0], [5, 0, 8, 1]))


def test_clip_updates_by_hand():
    # Squared length of client 0: rows 1 + 8, bias 1 + 4, array 1. Of client 3: 101 + 100 + 64.
    squares = [15, 5 + 20 + 4 + 16 + 4, 13 + 25 + 9 + 9 + 5, 265]
    share = [1, *(4 / np.sqrt(square) for square in squares[1:])]
    table, bias = np.zeros((4, 2)), np.zeros(4)
    for client, rows in ROWS.items():
        for item, row in rows.items():
            table[item] += share[client] * np.array(row)
            bias[item] += share[client] * row[0]
    whole = expected(table, bias, np.array(share) @ np.array(ARRAYS))
    assert_close(combined("clip_updates", four(), update_bound=4), whole)


def test_hics_by_hand():
    # Lengths of rows: 1, 5^.5, 13^.5, 101^.5, 5, 8^.5, 20^.5; their median is 13^.5 = 3.61.
    found = combined("hics", four(), hics_share=0.5)
    rows = {item: np.zeros(2) for item in range(4)}
    for client in ROWS:
        for item, row in ROWS[client].items():
            rows[item] += np.array(row) * min(1, 13**0.5 / np.hypot(*row))
    # Items 0 and 2 have gathered most: they are shortened to the median of two lengths, their mean.
    sizes = {item: np.hypot(*row) for item, row in rows.items()}
    assert sorted(sizes, key=sizes.get)[2:] == [2, 0]
    bound = (sizes[0] + sizes[2]) / 2
    items = [rows[0] * bound / sizes[0], [0, 0], rows[2], [0, 0]]
    # Bias lengths 1, 2, 3, 10, 3, 2, 4: bound 3. Item 0 gathers 1 + 2 + 3 + 3, item 2 gathers 2 + 3: bound 7.
    # Lengths of the arrays: 1, 2, 5^.5, 8; bound (2 + 5^.5) / 2.
    rho = (2 + 5**0.5) / 2
    last, third = rho / 8, rho / 5**0.5
    array = [1 + 2 + 2 * third, 0, 8 * last, third]
    assert_close(found, expected(items, [7, 0, 5, 0], array))


# -- against a plain loop -------------------------------------------------------------------------------------


def plain_median(rows):
    return np.median(rows, axis=0)


def plain_krum(rows):
    if len(rows) < 3:
        return np.mean(rows, axis=0)
    away = []
    for i, row in enumerate(rows):
        others = [other for j, other in enumerate(rows) if j != i]
        away.append(np.sum((row - np.mean(others, axis=0)) ** 2))
    return rows[int(np.argmin(away))]


def plain_trimmed(trim):
    def mean(rows):
        numbers = np.stack(rows).reshape(len(rows), -1)
        kept = [sorted(column)[trim : len(rows) - trim] or column for column in numbers.T.tolist()]
        return np.array([np.mean(column) for column in kept]).reshape(rows[0].shape)

    return mean


def by_item(sent, weight, rule):
    """The rule on each item's rows and on each array, times the weight of those who sent it."""

    def table(name):
        whole = np.zeros(getattr(LIKE, name).shape)
        for item in range(N_ITEMS):
            who = [client for client, each in enumerate(sent) if item in each.items]
            if who:
                rows = [getattr(sent[client].upload, name)[item].astype(float) for client in who]
                whole[item] = rule(rows) * sum(weight[client] for client in who)
        return whole

    arrays = zip(*(each.upload.tower for each in sent), strict=True)
    tower = [rule([leaf.astype(float) for leaf in leaves]) * sum(weight) for leaves in arrays]
    return Upload(table("items"), table("bias"), tower)


def vector(upload):
    return np.concatenate([np.ravel(leaf).astype(float) for leaf in jax.tree.leaves(upload)])


def added(uploads, weight):
    return jax.tree.map(lambda *leaves: sum(w * leaf.astype(float) for w, leaf in zip(weight, leaves)), *uploads)  # noqa: B905


def clipped(array, bound):
    size = np.sqrt(np.sum(np.square(array, dtype=float)))
    return array * (bound / size) if size > bound else array


def clipped_rows(upload, bounds):
    """An upload with clipped rows; `bounds` are those of the fields."""
    items = np.stack([clipped(row, bounds.items) for row in upload.items])
    bias = np.stack([clipped(row, bounds.bias) for row in upload.bias])
    return Upload(items, bias, [clipped(leaf, bound) for leaf, bound in zip(upload.tower, bounds.tower, strict=True)])


def plain_krum_classic(sent, weight, f):
    vectors = [vector(each.upload) for each in sent]
    scores = []
    for i, mine in enumerate(vectors):
        others = sorted(np.sum((mine - other) ** 2) for j, other in enumerate(vectors) if j != i)
        scores.append(sum(others[: len(sent) - f - 2]))
    return jax.tree.map(lambda leaf: leaf * sum(weight), sent[int(np.argmin(scores))].upload)


def plain_clip_rows(sent, weight, bound):
    return added([clipped_rows(each.upload, Upload(bound, bound, [np.inf, np.inf])) for each in sent], weight)


def plain_clip_updates(sent, weight, bound):
    share = [min(1, bound / np.linalg.norm(vector(each.upload))) for each in sent]
    assert min(share) < 1 == max(share)
    return added([each.upload for each in sent], np.multiply(share, weight))


WEIGHTS = {"equal": [1.0] * 6, "weighted": [1.0, 4.0, 2.0, 0.5, 3.0, 7.0]}
LOOPS = {
    "median": ({}, lambda sent, weight: by_item(sent, weight, plain_median)),
    "krum": ({}, lambda sent, weight: by_item(sent, weight, plain_krum)),
    "trimmed_mean 0": ({"trim": 0}, lambda sent, weight: by_item(sent, weight, plain_trimmed(0))),
    "trimmed_mean 1": ({"trim": 1}, lambda sent, weight: by_item(sent, weight, plain_trimmed(1))),
    "trimmed_mean 2": ({"trim": 2}, lambda sent, weight: by_item(sent, weight, plain_trimmed(2))),
    "trimmed_mean 3": ({"trim": 3}, lambda sent, weight: by_item(sent, weight, plain_trimmed(3))),
    "krum_classic 0": ({"krum_f": 0}, lambda sent, weight: plain_krum_classic(sent, weight, 0)),
    "krum_classic 2": ({"krum_f": 2}, lambda sent, weight: plain_krum_classic(sent, weight, 2)),
    "clip_rows": ({"row_bound": 0.8}, lambda sent, weight: plain_clip_rows(sent, weight, 0.8)),
    "clip_updates": ({"update_bound": 5.0}, lambda sent, weight: plain_clip_updates(sent, weight, 5.0)),
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("rule", LOOPS)
def test_rules_equal_a_plain_loop(rule, weights):
    settings, loop = LOOPS[rule]
    for seed in range(5):
        sent = drawn(seed)
        found = combined(rule.split()[0], sent, WEIGHTS[weights], **settings)
        assert_close(found, loop(sent, WEIGHTS[weights]))


def plain_hics(steps, weight, share, rate):
    """What is applied in each step, by loops over whole uploads in double precision."""
    waiting = jax.tree.map(lambda leaf: np.zeros(leaf.shape), LIKE)
    bounds = None
    for sent in steps:
        sizes = Upload(
            [np.linalg.norm(each.upload.items[item]) for each in sent for item in each.items],
            [abs(each.upload.bias[item]) for each in sent for item in each.items],
            [[np.linalg.norm(each.upload.tower[i]) for each in sent] for i in range(2)],
        )
        medians = Upload(np.median(sizes.items), np.median(sizes.bias), [np.median(size) for size in sizes.tower])
        bounds = medians if bounds is None else jax.tree.map(lambda b, m: (1 - rate) * b + rate * m, bounds, medians)
        total = added([clipped_rows(each.upload, bounds) for each in sent], weight)
        applied = {}
        for name in ("items", "bias"):
            rows = getattr(waiting, name) + getattr(total, name)
            lengths = [np.linalg.norm(row) for row in rows]
            chosen = sorted(range(N_ITEMS), key=lambda item: -lengths[item])[: int(np.ceil(share * N_ITEMS))]
            bound = np.median([lengths[item] for item in chosen])
            out = np.zeros(rows.shape)
            for item in chosen:
                out[item] = clipped(rows[item], bound)
                rows[item] = 0
            waiting, applied[name] = waiting._replace(**{name: rows}), out
        yield total._replace(**applied), waiting


@pytest.mark.parametrize("weights", WEIGHTS)
def test_hics_equals_a_plain_loop(weights):
    hics = defences.get("hics")
    config = hics.Config(hics_share=0.2, hics_rate=0.3)
    steps = [drawn(seed) for seed in range(4)]
    memory = hics.init(config, LIKE)
    for sent, (total, waiting) in zip(steps, plain_hics(steps, WEIGHTS[weights], 0.2, 0.3), strict=True):
        # A memory that was checkpointed comes back as JAX arrays.
        memory = jax.tree.map(jax.numpy.asarray, memory)
        found, memory = hics.combine(config, rowwise(sent, WEIGHTS[weights]), memory)
        assert_close(found, total, rtol=1e-4)
        assert_close(memory.waiting.items, waiting.items, rtol=1e-4)
        assert_close(memory.waiting.bias, waiting.bias, rtol=1e-4)


@pytest.mark.parametrize("most", [1, 20, 1000])
def test_items_of_equal_count_come_together_but_not_too_many(most):
    uploads = rowwise(drawn(0))
    seen = []
    for items, rows in uploads.by_count("items", most):
        assert rows.size <= most or len(items) == 1
        seen += items.tolist()
        for item, mine in zip(items, rows, strict=True):
            np.testing.assert_array_equal(mine, uploads.rows["items"][uploads.item == item])
    assert sorted(seen) == list(range(1, N_ITEMS))


# -- outliers -------------------------------------------------------------------------------------------------


def poisoned(sent, place):
    """One more client, at some place among the others, sends a million in every number of every item."""
    upload = jax.tree.map(lambda leaf: np.full(leaf.shape, 1e6, np.float32), sent[0].upload)
    return [*sent[:place], Sent(upload, list(range(N_ITEMS))), *sent[place:]]


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("place", [0, 6])
def test_an_outlier_is_ignored_among_three_and_kept_alone(name, place):
    for seed in range(5):
        honest = drawn(seed)
        found = combined(name, poisoned(honest, place))
        counts = np.array([1, 2, 3, 4, 6, 7, 7])
        # Alone it is all there is, and of two nobody can say who is wrong: cold items stay vulnerable.
        np.testing.assert_array_equal(found.items[0], [1e6] * 3)
        np.testing.assert_allclose(found.items[1], [1e6] * 3, rtol=1e-4)
        most = np.abs([each.upload.items for each in honest]).max(0) * counts[:, None]
        assert np.all(np.abs(found.items[2:]) <= most[2:] * (1 + 1e-6))
        for i, leaf in enumerate(found.tower):
            assert np.all(np.abs(leaf) <= 7 * np.abs([each.upload.tower[i] for each in honest]).max(0) * (1 + 1e-6))


@pytest.mark.parametrize("place", [0, 6])
def test_classic_krum_never_chooses_the_outlier(place):
    for seed in range(5):
        honest = drawn(seed)
        found = vector(combined("krum_classic", poisoned(honest, place))) / 7
        assert min(np.abs(found - vector(each.upload)).max() for each in honest) < 1e-5


def test_an_outlier_moves_clipped_sums_by_the_bound():
    sent = drawn(0)
    rows = difference(*(combined("clip_rows", each, row_bound=0.5) for each in (poisoned(sent, 0), sent)))
    np.testing.assert_allclose(np.linalg.norm(rows.items, axis=1), 0.5, rtol=1e-4)
    np.testing.assert_allclose(rows.bias, 0.5, rtol=1e-4)
    whole = difference(*(combined("clip_updates", each) for each in (poisoned(sent, 0), sent)))
    np.testing.assert_allclose(np.linalg.norm(vector(whole)), 0.1, rtol=1e-4)


def difference(left, right):
    return jax.tree.map(np.subtract, left, right)


def test_clients_that_agree_are_summed_as_without_a_defence():
    rng = np.random.default_rng(0)
    whole = jax.tree.map(lambda leaf: rng.normal(0, 1, leaf.shape), LIKE)
    near = lambda leaf: (leaf + rng.normal(0, 1e-4, leaf.shape)).astype(np.float32)  # noqa: E731
    sent = [Sent(jax.tree.map(near, whole), list(range(N_ITEMS))) for _ in range(6)]
    plain = added([each.upload for each in sent], [1.0] * 6)
    for name in ("median", "krum", "trimmed_mean", "krum_classic"):
        off = np.abs(vector(difference(combined(name, sent), plain)))
        assert 0 < off.max() < 6 * 5e-4
    assert_close(combined("clip_rows", sent, row_bound=100), plain)
    assert_close(combined("clip_updates", sent, update_bound=100), plain)


@pytest.mark.parametrize("name", defences.names())
def test_a_step_without_rows(name):
    """Clients may send arrays and no rows at all."""
    nothing = Upload(LIKE.items, LIKE.bias, [np.full((2, 2), 0.01, np.float32), np.zeros(3, np.float32)])
    found = combined(name, [Sent(nothing, [])] * 4)
    assert_close(found, Upload(LIKE.items, LIKE.bias, [np.full((2, 2), 0.04), np.zeros(3)]))


@pytest.mark.parametrize("name", defences.names())
def test_the_uploads_are_left_as_they_are(name):
    found = defences.get(name)
    uploads, before = rowwise(drawn(0)), rowwise(drawn(0))
    memory = found.init(found.Config(), LIKE)
    frozen = jax.tree.map(np.copy, memory)
    _, after = found.combine(found.Config(), uploads, memory)
    found.combine(found.Config(), uploads, after)
    for mine, other in ((uploads.rows, before.rows), (uploads.rest, before.rest), (memory, frozen)):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
    # What is remembered keeps shapes and types, so that it fits a checkpoint and compiles nothing anew.
    shapes = lambda tree: [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]  # noqa: E731
    assert shapes(after) == shapes(memory)
    assert all(isinstance(leaf, np.ndarray) and leaf.dtype in (np.float32, np.int32) for leaf in jax.tree.leaves(after))


# -- what HiCS remembers --------------------------------------------------------------------------------------


def one_item_each(rows):
    """Client i sends one row, of item i."""
    sent = []
    for client, row in enumerate(rows):
        upload = jax.tree.map(np.zeros_like, LIKE)
        upload.items[client] = row
        sent.append(Sent(upload, [client]))
    return sent


def test_hics_rows_gather_until_they_are_chosen():
    hics = defences.get("hics")
    config = hics.Config(hics_share=1 / N_ITEMS)
    memory, applied = hics.init(config, LIKE), []
    sent = one_item_each([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    for _ in range(4):
        total, memory = hics.combine(config, rowwise(sent), memory)
        applied.append(total.items)
    # All rows are as long as the bound. One leaves in each step: the longest, the first of equals.
    gone = [(int(np.flatnonzero(table.any(1))[0]), float(table.sum())) for table in applied]
    assert gone == [(0, 1.0), (1, 2.0), (2, 3.0), (0, 3.0)]
    np.testing.assert_array_equal(memory.waiting.items[:3], [[0, 0, 0], [0, 2, 0], [0, 0, 1]])
    assert int(memory.steps) == 4


def test_hics_bounds_follow_the_median():
    hics = defences.get("hics")
    config = hics.Config(hics_share=1.0, hics_rate=0.25)
    memory = hics.init(config, LIKE)
    total, memory = hics.combine(config, rowwise(one_item_each([[1, 0, 0], [2, 0, 0], [1e6, 0, 0]])), memory)
    assert memory.bounds.items == 2.0
    # Rows are 1, 2 and 2 after the first clipping; the median of what leaves is 2.
    np.testing.assert_allclose(total.items[:3, 0], [1, 2, 2])
    _, memory = hics.combine(config, rowwise(one_item_each([[6, 0, 0], [6, 0, 0], [9, 0, 0]])), memory)
    assert memory.bounds.items == 3.0
    # Rows of zeros do not count, and a step without any other leaves the bound as it is.
    _, memory = hics.combine(config, rowwise(one_item_each([[0, 0, 0]])), memory)
    assert memory.bounds.items == 3.0
    assert memory.bounds.bias == 0.0


def test_hics_may_choose_at_random():
    hics = defences.get("hics")
    config = hics.Config(hics_share=1 / N_ITEMS, hics_choice="random")
    sent = one_item_each([[3, 0, 0], [2, 0, 0], [1, 0, 0]])

    def run():
        memory, gone = hics.init(config, LIKE), []
        for _ in range(12):
            total, memory = hics.combine(config, rowwise(sent), memory)
            gone.append(np.flatnonzero(total.items.any(1)).tolist())
        return gone

    gone = run()
    assert gone == run()
    assert all(len(items) == 1 for items in gone)
    assert {items[0] for items in gone} == {0, 1, 2}


# -- how uploads reach a defence ------------------------------------------------------------------------------


def test_uploads_are_gathered_by_item():
    """Two buckets and a malicious client; the second client of the first bucket sent nothing."""
    programs = SimpleNamespace(n_items=5, names=("items", "bias"))
    numbers = np.arange(6, dtype=np.float32)
    first = Singles(
        sent=np.array([True, False, True]),
        weight=np.array([2, 0, 3], np.float32),
        ids=np.array([[4, 1], [4, 4], [1, 0]], np.int32),
        own=np.array([[True, True], [False, False], [True, False]]),
        upload=Upload(np.stack([numbers, -numbers], 1).reshape(3, 2, 2), numbers.reshape(3, 2), [numbers[:3]]),
    )
    second = Singles(
        sent=np.array([True]),
        weight=np.array([5], np.float32),
        ids=np.array([[4]], np.int32),
        own=np.array([[True]]),
        upload=Upload(np.full((1, 1, 2), 7, np.float32), np.full((1, 1), 7, np.float32), [np.full(1, 7, np.float32)]),
    )
    evil = Upload(np.zeros((5, 2), np.float32), np.array([0, 0, 9, 0, 0], np.float32), [np.float32(9)])
    found = singles.gathered([first, None, second], [evil], programs, 1.5)
    assert found.item.tolist() == [1, 1, 2, 4, 4]
    assert found.sender.tolist() == [0, 1, 3, 0, 2]
    assert found.rows["items"].tolist() == [[1, -1], [4, -4], [0, 0], [0, 0], [7, 7]]
    assert found.rows["bias"].tolist() == [1, 4, 9, 0, 7]
    assert found.rest.items is None and found.rest.bias is None
    assert found.rest.tower[0].tolist() == [0, 2, 7, 9]
    assert found.weight.tolist() == [2, 3, 5, 1.5]


# -- in a federation ------------------------------------------------------------------------------------------

SMALL = {"embedding_dim": 4, "layers": [6], "negatives": 2, "server_optimiser": "sgd", "server_lr": 1.0}


@pytest.fixture(scope="module")
def problem():
    data = synthetic.make(users=18, items=40, communities=2, interactions_per_user=8, seed=1)
    return prepare(data, "ratio-full", seed=3)


def simulation(problem, guard=None, threat=None, buckets=1, participation="batches", **settings):
    conduct = Conduct(rounds=3, eval_every=3, participation=participation, clients_per_step=7)
    robustness = Robustness(guard=guard, threat=threat)
    chosen = {**SMALL, **settings}
    return Simulation(algorithms.get("fedsgd"), chosen, problem, conduct, robustness=robustness, buckets=buckets)


def guarded_by(name, **settings):
    found = defences.get(name)
    return Guard(found, found.Config(**settings))


UNREACHED = guarded_by("clip_rows", row_bound=1e6)


def changes(run):
    """What a round does to the arrays of the server."""
    before = run.state.server
    run.advance()
    return jax.tree.leaves(jax.tree.map(lambda old, new: np.asarray(new) - np.asarray(old), before, run.state.server))


def alike(left, right):
    """Whether a round does the same to both servers, up to the rounding of sums in another order."""
    pairs = list(zip(changes(left), changes(right), strict=True))
    assert all(np.any(b) for _, b in pairs)
    return all(np.abs(a - b).max() < 1e-3 * np.abs(b).max() for a, b in pairs)


def without(run, *parts):
    """The same run without a defence, or without malicious clients; nothing is compiled anew."""
    run.federation = replace(run.federation, **dict.fromkeys(parts))
    return run


@pytest.mark.parametrize("name", defences.names())
def test_a_defended_federation_runs(problem, name):
    run = simulation(problem, guarded_by(name), buckets=2)
    assert len(run.plan.layouts) == 2
    start = run.state.server
    for _ in range(2):
        assert run.advance().clients == 18
    for before, after in zip(jax.tree.leaves(start), jax.tree.leaves(run.state.server), strict=True):
        assert np.all(np.isfinite(after))
        assert not np.array_equal(before, after)


def test_a_bound_that_nobody_reaches_changes_nothing(problem):
    """Rows apart carry the numbers of the sums; a bound that is reached changes something."""
    plain = lambda: simulation(problem, buckets=2)  # noqa: E731
    assert alike(plain(), simulation(problem, UNREACHED, buckets=2))
    assert not alike(plain(), simulation(problem, guarded_by("clip_rows", row_bound=0.01), buckets=2))


@pytest.mark.parametrize("participation", ["all", "batches"])
@pytest.mark.parametrize("rule", ["sum", "mean", "weighted", "per_item_mean"])
def test_nor_under_any_aggregation_rule(problem, rule, participation):
    run = lambda: simulation(problem, UNREACHED, aggregation=rule, participation=participation)  # noqa: E731
    assert alike(run(), without(run(), "guard"))


def test_nor_with_malicious_clients(problem):
    attack = attacks.get("a_ra")
    threat = Threat(attack, attack.Config(), 0.2, "least-popular")
    run = lambda: simulation(problem, UNREACHED, threat, aggregation="weighted", participation="all")  # noqa: E731
    assert alike(run(), without(run(), "guard"))
    assert not alike(run(), without(run(), "attackers"))


def test_a_memory_survives_a_checkpoint(problem, tmp_path):
    whole, first, second = (simulation(problem, guarded_by("hics"), buckets=2) for _ in range(3))
    whole.advance()
    whole.advance()
    first.advance()
    checkpoint.save(tmp_path / "run", first, {})
    checkpoint.load(tmp_path / "run", second, {})
    second.advance()
    assert np.any(np.asarray(whole.state.beside.defence.waiting.items))
    for kept in ("server", "beside"):
        for a, b in zip(*(jax.tree.leaves(getattr(run.state, kept)) for run in (whole, second)), strict=True):
            np.testing.assert_array_equal(a, b)
