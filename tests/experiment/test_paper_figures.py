"""Figures: what is computed, what is drawn, and that nothing is drawn that does not come from a run."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from coterie.errors import CoterieError
from coterie.papers import capacity, drawing, figures, item_bias, traffic
from coterie.papers.chart import Chart, HeatMap, Panel, Series
from coterie.papers.declare import HONEST, PAPER, Grid, Row, Sample

GRID = Grid("2", "A figure", (Row("CoFedRec", lambda _: {}),), ("ml-100k", "ml-1m"))


def sample(measured=None, data="ml-100k", form=PAPER, seed=0, **result):
    return Sample("CoFedRec", data, form, seed, {"best_round": 3, **result}, measured or {})


def simulation(**server):
    return SimpleNamespace(
        best=SimpleNamespace(state=SimpleNamespace(server=SimpleNamespace(**server))),
        state=SimpleNamespace(server=SimpleNamespace(**server)),
        problem=SimpleNamespace(n_clients=4),
    )


def test_participation_counts_the_rounds_of_each_client():
    now = simulation(member=np.array([True, False, True, False]))
    assert figures.PARTICIPATION.of_round(now) == [0, 2]
    measured = figures.PARTICIPATION.of_run(now, [[0, 2], [0], [], [0, 3]])
    assert measured == {"rounds": 4, "times": [3, 0, 1, 1]}


def test_the_histogram_holds_every_client_once():
    measured = {"rounds": 100, "times": [100, 71, 70, 0, 4, 5]}
    (panel,) = figures.participation(GRID, [sample(measured)]).panels
    bars = panel.series[0]
    assert sum(bars.y) == 6 and bars.y[0] == 2 and bars.y[1] == 1 and bars.y[14] == 2 and bars.y[20] == 1
    assert panel.title == "ml-100k: 33.3 % in more than 70 rounds (paper: 69.64 %)"


def test_elbow_sorts_the_similarities_of_who_was_there():
    present, member = np.array([True, False, True, True]), np.array([False, False, True, True])
    now = simulation(scores=np.array([0.5, 9.0, 2.0, 1.0]), present=present, member=member)
    measured = figures.ELBOW.of_run(now, [])
    assert measured == {"scores": [2.0, 1.0, 0.5], "members": 2}
    (panel,) = figures.elbow(GRID, [sample(measured)]).panels
    assert panel.series[0].x == [1, 2, 3] and panel.marks == ((2, "group of 2"),) and "round 3" in panel.title


def test_items_are_mapped_with_their_clusters():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    table = rng.normal(size=(60, 4)) + 20 * labels[:, None]
    measured = figures.ITEM_MAP.of_run(simulation(mean=table, labels=labels), [])
    places = np.column_stack([measured["x"], measured["y"]])
    centres = np.array([places[labels == k].mean(0) for k in range(3)])
    assert (np.linalg.norm(places[:, None] - centres, axis=-1).argmin(1) == labels).all()
    (panel,) = figures.item_map(GRID, [sample(measured)]).panels
    assert [len(series.x) for series in panel.series] == [20, 20, 20] and not panel.ticks


def test_principal_components_are_those_of_the_centred_rows():
    rows = np.random.default_rng(0).normal(size=(12, 40)).astype(np.float32)
    places = figures._principal(rows)
    u, s, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    assert np.abs(places) == pytest.approx(np.abs(u[:, :2] * s[:2]), rel=1e-3, abs=1e-4)


def test_clusters_of_clients_are_named_by_their_size():
    measured = {"labels": {"2": [0, 0, 1], "10": [0, 1, 2]}, "x": [0.0, 1.0, 2.0], "y": [0.0, 0.0, 1.0]}
    two, ten = figures.client_clusters(GRID, [sample(measured)]).panels
    assert [series.label for series in two.series] == ["2 clients", "1 client"] and len(ten.series) == 3
    assert ten.title == "ml-100k, k = 10: 3 of 10 clusters have one client"


def test_score_against_a_setting_has_an_interval_over_seeds():
    values = {(10, 0): 0.5, (10, 1): 0.6, (30, 0): 0.7}
    samples = [
        sample(seed=seed, settings={"clusters": clusters}, metrics={"hr@10": value})
        for (clusters, seed), value in values.items()
    ]
    (panel,) = figures.by_setting("clusters")(GRID, samples).panels
    paper, honest = panel.series
    assert paper.label == "loo99-paper" and paper.x == [10, 30] and paper.y == pytest.approx([55, 70])
    assert paper.reach == pytest.approx([12.7062 * 5, 0], rel=1e-4) and honest.x == []


def test_score_against_group_size_leaves_the_first_rounds_out():
    curve = {"round": list(range(1, 21)), "group_size": list(range(20)), "test hr@10": [0.01 * i for i in range(20)]}
    samples = [sample(form=form, curve=curve) for form in (PAPER, HONEST)]
    (panel,) = figures.group_size(GRID, samples).panels
    names = [f"{protocol}, {what}" for protocol in ("loo99-paper", "loo99") for what in ("r = 1.00", "chosen")]
    assert [series.label for series in panel.series] == names
    rounds, chosen = panel.series[:2]
    assert rounds.x == list(range(8, 20)) and rounds.y[0] == pytest.approx(8)
    assert (chosen.x, chosen.y) == ([2], [pytest.approx(2)])


def test_learning_curves_stand_beside_the_published_value():
    curve = {"round": [1, 2], "test hr@10": [0.1, 0.2], "test ndcg@10": [0.05, 0.1]}
    samples = [sample(form=form, seed=seed, curve=curve) for seed in (0, 1) for form in (PAPER, HONEST)]
    hits, gains = figures.learning(GRID, samples).panels
    assert [series.label for series in hits.series] == [
        "published", "loo99-paper, seed 0", "loo99-paper, seed 1", "loo99, seed 0", "loo99, seed 1"
    ]  # fmt: skip
    assert hits.series[1].y == pytest.approx([10, 20]) and gains.series[4].y == pytest.approx([5, 10])
    assert (hits.series[0].x, hits.series[0].y) == ([2], [77.52])


def test_mean_curves_end_with_the_shortest():
    long, short = ({"round": list(range(1, n + 1)), "er@5": [v] * n} for n, v in ((3, 0.2), (2, 0.6)))
    series = figures.mean_curve("A row", "er@5", [sample(curve=long), sample(curve=short)])
    assert (series.label, series.x) == ("A row", [1, 2]) and series.y == pytest.approx([0.4, 0.4])


CHART = Chart(
    "All kinds",
    (
        Panel("bars", "x", "y", (Series("b", [1.0, 2.0], [3.0, 4.0], "bars"),)),
        Panel("points", "x", "y", tuple(Series(str(i), [i], [i], "points") for i in range(12)), ticks=False),
        Panel("lines", "x", "y", (Series("l", [1.0, 2.0], [3.0, 4.0], reach=[0.1, 0.2]),), ((1.5, "here"),)),
    ),
    "A note.",
)


def test_charts_become_a_picture_and_a_page_that_needs_no_network(tmp_path):
    image, page = drawing.draw(CHART, tmp_path / "figures", "figure-1")
    assert image.read_bytes().startswith(b"\x89PNG") and 5_000 < image.stat().st_size < 200_000
    text = page.read_text()
    assert "All kinds" in text and 'src="plotly.min.js"' in text and "https://cdn" not in text
    assert (page.parent / "plotly.min.js").stat().st_size > 1_000_000 and page.stat().st_size < 100_000
    before = image.read_bytes()
    drawing.draw(CHART, tmp_path / "figures", "figure-1")
    assert image.read_bytes() == before


HEAT = HeatMap("toy", "defence", "attack", ["a", "b"], ["none", "mean", "krum"], [[0.1, 0.9, np.nan], [0.0, 1.0, 0.5]])


def test_a_heat_map_prints_its_numbers_in_a_picture():
    axes = Figure().subplots()
    drawing._draw_heat_map(axes, HEAT)
    assert [text.get_text() for text in axes.texts] == ["0.100", "0.900", "", "0.000", "1.000", "0.500"]
    assert [text.get_color() for text in axes.texts] == ["black", "white", "black", "black", "white", "black"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["none", "mean", "krum"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"] and axes.yaxis_inverted()
    (image,) = axes.images
    assert image.get_clim() == (0, 1) and image.get_array().mask.sum() == 1


def test_a_heat_map_beside_lines_is_drawn_twice(tmp_path):
    chart = Chart("Both", (HEAT, Panel("lines", "x", "y", (Series("l", [1.0, 2.0], [3.0, 4.0]),))))
    image, page = drawing.draw(chart, tmp_path, "both")
    assert image.read_bytes().startswith(b"\x89PNG") and image.stat().st_size > 5_000
    text = page.read_text()
    (heat,) = re.findall(r'"text":(\[\[.*?\]\])', text)
    assert json.loads(heat) == [["0.100", "0.900", ""], ["0.000", "1.000", "0.500"]]
    assert '"type":"heatmap"' in text and '"type":"scatter"' in text and "NaN" not in text.split("Plotly.newPlot")[1]


def test_what_is_missing_to_draw_is_named(monkeypatch):
    monkeypatch.setattr(drawing, "find_spec", lambda name: None if name == "plotly" else object())
    with pytest.raises(CoterieError, match=r"Figures need plotly; run: pip install 'coterie\[plots\]'"):
        drawing.require()


def test_the_group_is_compared_with_the_communities():
    truth = SimpleNamespace(user_community=np.array([0, 1, 0, 1]))
    now = simulation(core=2, scores=np.array([3.0, 1.0, 5.0, 4.0]), member=np.array([True, False, True, True]))
    now.problem.data = SimpleNamespace(truth=truth)
    found = figures.PLANTED.of_round(now)
    assert found["share"] == pytest.approx(2 / 3, abs=1e-4) and found["chance"] == 0.5 and found["members"] == 3
    assert found["scores"] == [5, 4, 3, 1] and found["same"] == [True, False, True, False]
    measured = figures.PLANTED.of_run(now, [found, {**found, "members": 2, "share": 1.0}])
    every, first = figures.planted(GRID, [sample(measured)]).panels
    assert every.series[0].y == [found["share"], 1.0] and every.series[1].y == [0.5, 0.5]
    assert [list(each.x) for each in first.series] == [[1, 3], [2, 4]] and first.marks == ((3, "group of 3"),)


def test_a_table_made_of_codes_is_expressed_whole():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 4, (30, capacity.LEVELS))
    made = rng.normal(size=(capacity.LEVELS, 4, 5)).astype(np.float32)
    table = sum(made[level][ids[:, level]] for level in range(capacity.LEVELS))
    np.testing.assert_allclose(capacity._nearest(table, ids, 4), table, atol=1e-5)
    other = rng.normal(size=(30, 5)).astype(np.float32)
    assert 0.2 < np.sum((capacity._nearest(other, ids, 4) - other) ** 2) / np.sum(other**2) < 1
    assert capacity.ids_of(other, 4).shape == ids.shape


def test_what_is_not_set_is_none_of_it():
    runs = [sample(settings={"noise_scale": scale}, metrics={"hr@10": 0.5}) for scale in (0.2, None)]
    line = figures.by_setting("noise_scale")(GRID, runs).panels[0].series[0]
    assert list(line.x) == [0, 0.2]


def test_item_biases_that_were_planted():
    """The first user's bias parts are the planted biases turned round; the mean predictions are the biases."""
    planted_biases = np.array([1.0, -1.0, 0.5, 9.0])
    lists = SimpleNamespace(
        items=np.array([[3, 0, 2, 1], [1, 2, 0, 3]]), scores=np.array([[7.0, 4.0, 3.5, 2.0], [2.0, 3.5, 4.0, -7.0]])
    )
    now = SimpleNamespace(
        problem=SimpleNamespace(
            data=SimpleNamespace(
                n_items=4,
                n_users=2,
                items=np.repeat([0, 1, 2], 5),
                ratings=np.repeat([5.0, 1.0, 5.0], 5),
                truth=SimpleNamespace(item_bias=planted_biases),
            ),
            train=np.arange(15),
            popularity=np.array([5, 5, 5, 0]),  # the last item is not known well enough
        ),
        state=None,
        keep=lambda state: state,
        top=lambda state, k, hidden: lists,
        parts=lambda state, user, items: {"item bias": -planted_biases},
    )
    found = item_bias.FOUND.of_round(now)
    assert found == {"mean prediction": 1.0, "explicit bias": -1.0}
    measured = item_bias.FOUND.of_run(now, [found, found])
    assert measured == {"mean rating": 0.9707, "mean prediction": [1.0, 1.0], "explicit bias": [-1.0, -1.0]}
    data, shorter = "demo:interactions_per_user=40", measured | {"mean prediction": [0.5]}
    settings = {"algorithm": "cofedrec"}
    runs = [sample(measured, data, settings=settings), sample(shorter, data, seed=1, settings=settings)]
    (panel,) = item_bias.correlations(GRID, runs).panels
    assert panel.title == "40 ratings a user"
    assert [(line.label, line.x, line.y) for line in panel.series] == [
        ("CoFedRec: explicit bias", [1, 2], [-1.0, -1.0]),
        ("CoFedRec: mean prediction", [1], [0.75]),
        ("mean rating", [1, 2], [0.9707, 0.9707]),
    ]


def test_bars_compare_the_seeds_that_all_rows_have():
    grid = Grid("3", "Parts", (), ("ml-100k",), metrics=("recall@10",), digits=3)
    values = (("whole", 0, 0.2), ("whole", 1, 0.9), ("part", 0, 0.1))
    runs = [Sample(row, "ml-100k", HONEST, seed, {"metrics": {"recall@10": value}}, {}) for row, seed, value in values]
    runs.append(Sample("whole", "ml-1m", HONEST, 1, {"metrics": {"recall@10": 0.5}}, {}))
    first, second = traffic.bars(grid, runs).panels
    assert [line.label for line in first.series] == ["whole: 0.200", "part: 0.100"] and first.title.endswith("seeds: 0")
    assert [line.y for line in second.series] == [[0.5]] and second.title == "ml-1m, seeds: 1"
