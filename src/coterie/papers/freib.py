"""FREIB: federated recommendation with explicitly encoded item bias (Wang et al., AAAI 2025).

Settings are those of the paper, which are the algorithms' defaults here: five platforms, ten passes a round, batches of
64, SGD at 0.001 with momentum 0.9 and weight decay 1e-5, 32 dimensions, all weights 10. It has 50 rounds; here a run
ends after ten rounds without a better one on validation. The paper names no validation part: its form of the protocol
trains on all that is not tested, and the test chooses the round. The draw of the platforms changes with the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from coterie.papers import figures, item_bias, skew
from coterie.papers.declare import HONEST, Figure, Grid, Paper, Quick, Row

ML_100K, ML_1M = "ml-100k", "ml-1m"
BOTH = (ML_100K, ML_1M)
BETAS = (1.0, 0.5)
LR = 0.001

Settings = dict[str, Any]
Method = Callable[..., Settings]


def method(data: str, algorithm: str = "freib", lr: float = LR, **changes: Any) -> Settings:
    """A method with the settings of the paper; its rate is not said, because tables share runs that are said alike."""
    rate = {} if lr == LR else {"lr": lr}
    return {"algorithm": algorithm, "rounds": 50, "patience": 10, **rate, **changes}


def passes(data: str, algorithm: str, lr: float, **changes: Any) -> Settings:
    """A method that was not made for platforms, with their number of passes and size of batches."""
    return method(data, algorithm, local_epochs=10, batch_size=64, **changes) | {"lr": lr}


# What is tried for each method on ml-100k with beta 1, and which of them validation chose (table `tuning`).
TRIED: dict[str, tuple[Method, ...]] = {
    "FedProx": tuple(partial(method, algorithm="fedprox", lr=lr) for lr in (0.0003, 0.001, 0.003)),
    "FedMF": tuple(partial(passes, algorithm="fedmf", item_lr=lr, lr=lr) for lr in (0.01, 0.03, 0.1)),
    "FedProto": tuple(partial(method, algorithm="fedproto", lr=lr) for lr in (0.0003, 0.001, 0.003)),
    "FedNCF": tuple(partial(passes, algorithm="fedncf", item_lr=lr, lr=lr) for lr in (3e-6, 1e-5, 3e-5, 1e-4, 3e-4)),
    "PFedRec": tuple(partial(passes, algorithm="pfedrec", lr=0.03, item_lr=lr) for lr in (3.0, 10.0, 30.0)),
    "FREIB": tuple(partial(method, lr=lr) for lr in (0.0003, 0.001, 0.003)),
}
PRINTED: dict[str, Method] = {
    "FedProx": partial(method, algorithm="fedprox"),
    "FedMF": partial(passes, algorithm="fedmf", item_lr=0.01, lr=0.01),
    "FedProto": partial(method, algorithm="fedproto"),
    "FedNCF": partial(passes, algorithm="fedncf", item_lr=0.001, lr=0.001),
    "FREIB": method,
}
"""The single setting of the paper; FedMF steps without momentum, which ten times the rate stands for."""

CHOSEN = {"FedProx": 0, "FedMF": 1, "FedProto": 0, "FedNCF": 1, "PFedRec": 1, "FREIB": 1}

TUNED: dict[str, Method] = {name: tries[CHOSEN[name]] for name, tries in TRIED.items()}
AVERAGING = partial(method, algorithm="fedprox", proximal=0.0)

NO_VALIDATION = "rating-dirichlet-paper: all that is not tested is trained on, and the test ratings choose the round."
STOPPED = "A run ends after ten rounds without a better one on validation, which chooses the round; the paper has 50."


def _grid(number: str, title: str, rows: tuple[Row, ...], data: tuple[str, ...] = BOTH, **more: Any) -> Grid:
    shown: dict[str, Any] = {"protocol": "rating-dirichlet", "metrics": ("mae", "rmse"), "scale": 1.0, "digits": 4}
    return Grid(number, title, rows, data, **(shown | more))


def _skewed(name: str, recipe: Method | None, beta: float, published: str = "") -> Row:
    recipe = partial(recipe, beta=beta) if recipe and beta != 1 else recipe
    return Row(f"{name}, beta {beta:g}", recipe, published or name, f"beta={beta:g}")


def _table_3(beta: float) -> tuple[Row, ...]:
    return (
        *(_skewed(name, TUNED[name], beta) for name in ("FedProx", "FedMF", "FedProto", "FedNCF")),
        _skewed("FedPerGNN", None, beta),
        _skewed("PFedRec", TUNED["PFedRec"], beta),
        _skewed("averaged NeuMF", AVERAGING, beta),
        _skewed("FREIB", TUNED["FREIB"], beta),
    )


TABLE_3 = _grid(
    "3",
    "Methods on skewed platforms",
    tuple(row for beta in BETAS for row in _table_3(beta)),
    quick=("FREIB, beta 1", "averaged NeuMF, beta 1"),
    notes=(
        NO_VALIDATION,
        STOPPED,
        "Rates are those that validation chose on ml-100k with beta 1, see the table of what was tried.",
        "averaged NeuMF: FedProx without its pull, not in the paper.",
    ),
)
PRINTED_RATES = _grid(
    "printed",
    "Methods at the rates of the paper",
    tuple(_skewed(name, recipe, 1.0) for name, recipe in PRINTED.items()),
    (ML_100K,),
    forms=(HONEST,),
    notes=(
        STOPPED,
        "FedMF steps without momentum at ten times the rate; FedNCF's clients have an Adam of their own.",
    ),
)
TUNING = _grid(
    "tuning",
    "What was tried",
    tuple(
        Row(f"{name}, {key} {recipe.keywords[key]:g}", recipe)  # type: ignore[attr-defined]
        for name, tries in TRIED.items()
        for recipe in tries
        for key in [list(recipe.keywords)[-1]]  # type: ignore[attr-defined]
    ),
    (ML_100K,),
    forms=(HONEST,),
    seeds=1,
    part="validation",
)

ABLATIONS: dict[str, tuple[str, Settings]] = {
    "guidance alone": ("FREIB w/o bias w/o proto (distill only)", {"item_bias": False}),
    "no guidance": ("FREIB w/o distill", {"guidance": False}),
    "no alignment": ("FREIB w/o proto", {"alignment": False}),
    "FREIB": ("FREIB", {}),
}
TABLE_4 = _grid(
    "4",
    "Parts of FREIB, beta 1",
    tuple(Row(name, partial(method, **changes), of, "beta=1") for name, (of, changes) in ABLATIONS.items()),
    quick=("guidance alone", "FREIB"),
    notes=(NO_VALIDATION, STOPPED),
)

NOISE = _grid(
    "noise",
    "Noise on clipped uploads, and its budget",
    (
        Row("no noise", method),
        *(
            Row(
                f"{noise.capitalize()} {scale:g}, clipped to {clip:g}",
                partial(method, noise=noise, noise_scale=scale, clip=clip),
            )
            for noise, clip, scales in (("gaussian", 10.0, (0.001, 0.01, 0.1)), ("laplace", 1000.0, (0.001, 0.01)))
            for scale in scales
        ),
    ),
    (ML_100K,),
    forms=(HONEST,),
    metrics=("mae", "rmse", "epsilon_per_round", "epsilon"),
    seeds=1,
    notes=(
        "The unit is a platform with all its records; delta is 1e-5 for Gaussian noise, 0 for Laplace noise. All 50 "
        "rounds are counted. Lengths are L2 for Gaussian noise, L1 for Laplace noise.",
    ),
)

FIGURE_3 = _grid(
    "3",
    "Error by round",
    tuple(_skewed(name, TUNED[name], beta) for beta in BETAS for name in ("FedProx", "FedProto", "FREIB")),
    quick=("FREIB, beta 1",),
    forms=(HONEST,),
)
FIGURE_4 = _grid(
    "4",
    "Weight of the alignment, beta 0.5",
    tuple(Row(f"weight {weight:g}", partial(method, weight=weight, beta=0.5)) for weight in (1.0, 5.0, 10.0, 15.0)),
    forms=(HONEST,),
)
FIGURE_5 = _grid(
    "5",
    "Noise on what is uploaded",
    (
        Row("no noise", method),
        *(
            Row(f"Laplace {scale:g}", partial(method, noise="laplace", noise_scale=scale))
            for scale in (0.01, 0.02, 0.05, 0.1, 0.2)
        ),
    ),
    forms=(HONEST,),
    notes=("Nothing is clipped, so there is no guarantee.",),
)
SKEW = _grid(
    "skew",
    "Ratings by platform",
    tuple(_skewed("FREIB", method, beta) for beta in BETAS),
    quick=("FREIB, beta 1",),
    forms=(HONEST,),
    seeds=1,
)

LEARNERS: tuple[tuple[str, Settings], ...] = (("FREIB", {}), ("FREIB without eq. 2", {"own_weight": 0.0}))
PLANTED = _grid(
    "planted",
    "Learned item biases and planted ones",
    (
        *(
            Row(f"{name}, lr {lr:g}", partial(method, lr=lr, **changes))
            for name, changes in LEARNERS
            for lr in (0.001, 0.003)
        ),
        Row("FedNCF", partial(passes, algorithm="fedncf", item_lr=1e-4, lr=1e-4)),
    ),
    tuple(f"demo:users=300,items=200,platforms=5,interactions_per_user={many}" for many in (40, 10)),
    protocol="rating-platforms",
    forms=(HONEST,),
)

FIGURES = (
    Figure(FIGURE_3, skew.curves),
    Figure(FIGURE_4, figures.by_setting("weight")),
    Figure(FIGURE_5, figures.by_setting("noise_scale")),
    Figure(SKEW, skew.histograms, skew.RATINGS),
    Figure(PLANTED, item_bias.correlations, item_bias.FOUND),
)


def _small(settings: Settings) -> Settings:
    """Few rounds of few passes with a small model."""
    tower = {} if settings["algorithm"] in ("fedmf", "pfedrec") else {"layers": [8]}
    return settings | {"rounds": 3, "local_epochs": 2, "embedding_dim": 4, **tower}


paper = Paper(
    name="freib",
    title="Federated Recommendation with Explicitly Encoding Item Bias",
    venue="AAAI 2025",
    tables=(TABLE_3, PRINTED_RATES, TUNING, TABLE_4, NOISE),
    figures=FIGURES,
    quick=Quick("demo:users=60,items=120,interactions_per_user=20,platforms=5", _small),
)
