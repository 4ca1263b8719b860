"""What the figures about co-clustering measure in a run, and how the measurements are shown.

The probes read the server's state of `cofedrec` at the round that validation chose: `mean` (the mean item table),
`labels` (the cluster of each item), `member` (who is in the similar group), `scores` (similarity to the core client);
and the clients' own tables, `items` of their private state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.clustering import kmeans
from coterie.evaluation.significance import interval_over_seeds
from coterie.papers.chart import Chart, Panel, Series
from coterie.papers.declare import PAPER, Grid, Probe, Sample
from coterie.papers.published import lookup

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation
    from coterie.engine.state import State

SEED = 0
"""Of the embeddings and clusterings below; a run's own seed does not touch them."""

BIN = 5
"""Rounds to a bar of the histogram of participation."""

OFTEN = 70
"""The paper says which share of the clients took part in more rounds than this."""

SHOWN_CLUSTERS = 8

SETTLED = 40
"""Percent of the rounds after which the score no longer rises for all that training adds."""


def _chosen(simulation: Simulation) -> State:
    assert simulation.best is not None
    return simulation.best.state


def rounded(values: Any, digits: int = 4) -> list[Any]:
    """Return an array as plain JSON."""
    return np.round(np.asarray(values, np.float64), digits).tolist()


def _members(simulation: Simulation) -> list[int]:
    return np.flatnonzero(np.asarray(simulation.state.server.member)).tolist()


def _participation(simulation: Simulation, of_rounds: list[Any]) -> dict[str, Any]:
    counts = np.bincount(np.concatenate(of_rounds).astype(np.int64), minlength=simulation.problem.n_clients)
    return {"rounds": len(of_rounds), "times": counts.tolist()}


def _map_of_items(simulation: Simulation, _: list[Any]) -> dict[str, Any]:
    from sklearn.manifold import TSNE

    server = _chosen(simulation).server
    table = np.asarray(server.mean)
    embedding = TSNE(perplexity=min(30.0, (len(table) - 1) / 3), init="pca", random_state=SEED)
    x, y = embedding.fit_transform(table).T
    return {"labels": np.asarray(server.labels).tolist(), "x": rounded(x, 2), "y": rounded(y, 2)}


def _client_clusters(simulation: Simulation, _: list[Any]) -> dict[str, Any]:
    tables = _client_tables(simulation)
    labels = {str(k): kmeans(jax.random.key(SEED), tables, k).tolist() for k in (2, 10)}
    places = _principal(tables)
    return {"labels": labels, "x": rounded(places[:, 0]), "y": rounded(places[:, 1])}


def _client_tables(simulation: Simulation) -> NDArray[np.float32]:
    """Return each client's item table as one long row: what it would upload next.

    After a round all members of a group hold the same table, so the clients train once more from the chosen round.
    """
    tables = [np.asarray(outcome.store.items) for outcome in simulation.trained_from(_chosen(simulation))]
    return np.concatenate([table.reshape(len(table), -1) for table in tables])


def _principal(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the first two principal components, through the small matrix of inner products between the rows."""
    centred = rows - rows.mean(0)
    values, vectors = np.linalg.eigh((centred @ centred.T).astype(np.float64))
    return vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0.0))


def _elbow(simulation: Simulation, _: list[Any]) -> dict[str, Any]:
    server = _chosen(simulation).server
    scores = np.sort(np.asarray(server.scores)[np.asarray(server.present)])[::-1]
    return {"scores": rounded(scores, 3), "members": int(np.asarray(server.member).sum())}


def _of_the_community(simulation: Simulation) -> dict[str, Any]:
    """Return, for a round, how much of the group is of the core client's community, and everybody's similarity."""
    server, truth = simulation.state.server, simulation.problem.data.truth
    assert truth is not None
    member = np.asarray(server.member)
    same = truth.user_community == truth.user_community[int(server.core)]
    order = np.argsort(-np.asarray(server.scores))
    return {
        "members": int(member.sum()),
        "share": round(float(same[member].mean()), 4),
        "chance": round(float(same.mean()), 4),
        "same": same[order].tolist(),
        "scores": rounded(np.asarray(server.scores)[order], 3),
    }


def _planted(_: Simulation, of_rounds: list[Any]) -> dict[str, Any]:
    kept = {name: [each[name] for each in of_rounds] for name in ("members", "share", "chance")}
    return {**kept, "same": of_rounds[0]["same"], "scores": of_rounds[0]["scores"]}


PARTICIPATION = Probe("participation", _participation, of_round=_members)
ITEM_MAP = Probe("item-map", _map_of_items)
CLIENT_CLUSTERS = Probe("client-clusters", _client_clusters)
ELBOW = Probe("elbow", _elbow)
PLANTED = Probe("planted", _planted, of_round=_of_the_community)


def participation(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """How many clients were how often in the similar group."""
    return _panels(grid, samples, _participation_panel)


def _participation_panel(sample: Sample) -> Panel:
    times, rounds = np.asarray(sample.measured["times"]), sample.measured["rounds"]
    edges = np.arange(0, rounds + BIN + 1, BIN)
    counts, _ = np.histogram(times, edges)
    bars = Series("clients", (edges[:-1] + BIN / 2).tolist(), counts.tolist(), "bars")
    often = f"{100 * np.mean(times > OFTEN):.1f} % in more than {OFTEN} rounds"
    printed = lookup("cofedrec", "figure 2", sample.data, "CoFedRec", "clients_pct", f"rounds>{OFTEN}")
    said = f" (paper: {printed} %)" if printed else ""
    return Panel(f"{short(sample.data)}: {often}{said}", "rounds in the group", "clients", (bars,))


def item_map(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """The mean item table in two dimensions, a few clusters of it."""
    return _panels(grid, samples, _item_panel, note="t-SNE of the mean item table; some clusters, drawn at random.")


def _item_panel(sample: Sample) -> Panel:
    labels, x, y = (np.asarray(sample.measured[name]) for name in ("labels", "x", "y"))
    known = np.unique(labels)
    chosen = np.sort(np.random.default_rng(SEED).permutation(known)[:SHOWN_CLUSTERS])
    series = (Series(str(k), x[labels == k].tolist(), y[labels == k].tolist(), "points") for k in chosen)
    return Panel(f"{short(sample.data)}: {len(chosen)} of {len(known)} clusters", "", "", tuple(series), ticks=False)


def client_clusters(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """K-means on the clients' whole tables: the sizes of the clusters."""
    panels = [_client_panel(sample, k) for sample in samples for k in ("2", "10")]
    return Chart(grid.title, tuple(panels), "Places: first two principal components. The paper: 1 of 2 and 8 of 10.")


def _client_panel(sample: Sample, k: str) -> Panel:
    labels, x, y = np.asarray(sample.measured["labels"][k]), *(np.asarray(sample.measured[name]) for name in "xy")
    sizes = np.bincount(labels)
    by_size = sorted(range(len(sizes)), key=lambda label: -sizes[label])
    clusters = ((sizes[label], labels == label) for label in by_size)
    series = (Series(_clients(size), x[here].tolist(), y[here].tolist(), "points") for size, here in clusters)
    alone = f"{np.count_nonzero(sizes == 1)} of {k} clusters have one client"
    return Panel(f"{short(sample.data)}, k = {k}: {alone}", "", "", tuple(series), ticks=False)


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{number} clients"


def elbow(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """Similarity to the core client, in falling order, and where it is cut."""
    return _panels(grid, samples, _elbow_panel)


def _elbow_panel(sample: Sample) -> Panel:
    scores, members = sample.measured["scores"], sample.measured["members"]
    line = Series("similarity to the core", list(range(1, len(scores) + 1)), scores)
    title = f"{short(sample.data)}, round {sample.result['best_round']}"
    return Panel(title, "client, by similarity", "similarity", (line,), ((members, f"group of {members}"),))


def planted(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """Whether the similar group is the core client's community, where communities are known."""
    found = samples[0].measured
    rounds = list(range(1, len(found["share"]) + 1))
    shares = (
        Series("the group", rounds, found["share"], "points"),
        Series("everybody", rounds, found["chance"]),
    )
    scores, same = np.asarray(found["scores"]), np.asarray(found["same"])
    rank = np.arange(1, len(scores) + 1)
    kinds = (("the core's community", same), ("other communities", ~same))
    points = (Series(name, rank[here].tolist(), scores[here].tolist(), "points") for name, here in kinds)
    mark = ((found["members"][0], f"group of {found['members'][0]}"),)
    panels = (
        Panel("every round", "round", "share of the core's community", shares),
        Panel("round 1", "client, by similarity", "similarity to the core", tuple(points), mark),
    )
    return Chart(grid.title, panels, "Built-in data of four communities that share no items.")


def learning(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """Test metrics of every round, a line for each form and seed, and the published values."""
    panels = [
        _learning_panel(grid, metric, [sample for sample in samples if sample.data == data])
        for data in distinct(sample.data for sample in samples)
        for metric in grid.metrics
    ]
    return Chart(grid.title, tuple(panels))


def _learning_panel(grid: Grid, metric: str, samples: Sequence[Sample]) -> Panel:
    lines = []
    for sample in sorted(samples, key=lambda sample: grid.forms.index(sample.form)):
        curve = sample.result["curve"]
        values = grid.scale * np.asarray(curve[f"test {metric}"])
        lines.append(Series(f"{grid.protocol_of(sample.form)}, seed {sample.seed}", curve["round"], values.tolist()))
    data, last = samples[0].data, max(line.x[-1] for line in lines)
    printed = lookup("cofedrec", "1", data, samples[0].row, metric)
    published = [Series("published", [last], [printed], "points")] if printed else []
    return Panel(short(data), "round", f"{metric} in %", (*published, *lines))


def group_size(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """The score of every round against the size of its similar group, and the round that validation chose."""
    panels = []
    for data, row in dict.fromkeys((sample.data, sample.row) for sample in samples):
        here = [sample for sample in samples if (sample.data, sample.row) == (data, row)]
        series = [
            each
            for form in grid.forms
            for each in _scores_by_group(grid, form, [sample for sample in here if sample.form == form])
        ]
        panels.append(
            Panel(f"{short(data)}, {row}", "clients in the similar group", f"{grid.metrics[0]} in %", tuple(series))
        )
    note = f"A point is a round of the last {100 - SETTLED} %; r: its correlation with the size of the group."
    return Chart(grid.title, tuple(panels), note)


def _scores_by_group(grid: Grid, form: str, samples: Sequence[Sample]) -> list[Series]:
    """Return the rounds of all seeds, and the chosen ones of them."""
    if not samples:
        return []
    name, rounds, chosen = grid.protocol_of(form), [], []
    for result in (sample.result for sample in samples):
        curve = result["curve"]
        points = np.stack([curve["group_size"], grid.scale * np.asarray(curve[f"test {grid.metrics[0]}"])])
        rounds.append(points[:, points.shape[1] * SETTLED // 100 :])
        chosen.append(points[:, curve["round"].index(result["best_round"])])
    (x, y), best = np.concatenate(rounds, 1), np.stack(chosen, 1)
    return [
        Series(f"{name}, r = {np.corrcoef(x, y)[0, 1]:.2f}", x.tolist(), y.tolist(), "points"),
        Series(f"{name}, chosen", best[0].tolist(), best[1].tolist(), "points"),
    ]


def by_setting(name: str) -> Callable[[Grid, Sequence[Sample]], Chart]:
    """Return a chart of the first metric against a setting, in both forms, with intervals over the seeds."""

    def chart(grid: Grid, samples: Sequence[Sample]) -> Chart:
        panels = []
        for data in distinct(sample.data for sample in samples):
            here = [sample for sample in samples if sample.data == data]
            series = (_against(grid, name, form, [each for each in here if each.form == form]) for form in grid.forms)
            panels.append(Panel(short(data), name, _named(grid), tuple(series)))
        return Chart(grid.title, tuple(panels))

    return chart


def _named(grid: Grid) -> str:
    return f"{grid.metrics[0]} in %" if grid.scale == 100 else grid.metrics[0]


def _against(grid: Grid, name: str, form: str, samples: Sequence[Sample]) -> Series:
    values: dict[float, list[float]] = {}
    for sample in samples:
        place = sample.result["settings"][name] or 0  # what is not set is none of it
        values.setdefault(place, []).append(sample.result["metrics"][grid.metrics[0]])
    points = [(place, interval_over_seeds(grid.scale * np.asarray(runs))) for place, runs in sorted(values.items())]
    reach = [float(np.nan_to_num(interval.high - interval.mean)) for _, interval in points]
    return Series(
        grid.protocol_of(form), [place for place, _ in points], [each.mean for _, each in points], reach=reach
    )


def mean_curve(label: str, metric: str, samples: Sequence[Sample]) -> Series:
    """Return a metric round by round, averaged over seeds, as far as all of them went."""
    curves = [sample.result["curve"] for sample in samples]
    rounds = min((curve["round"] for curve in curves), key=len)
    return Series(label, rounds, np.mean([curve[metric][: len(rounds)] for curve in curves], axis=0).tolist())


def _panels(grid: Grid, samples: Sequence[Sample], panel: Callable[[Sample], Panel], note: str = "") -> Chart:
    """Return a chart with a panel for the first run on each data set in the published form."""
    first = {sample.data: sample for sample in reversed(samples) if sample.form == PAPER}
    return Chart(grid.title, tuple(panel(first[data]) for data in distinct(each.data for each in samples)), note)


def short(data: str) -> str:
    """Return the name of a data set without its options."""
    return data.partition(":")[0]


def distinct(values: Iterable[str]) -> list[str]:
    """Return values in their order, each once."""
    return list(dict.fromkeys(values))
