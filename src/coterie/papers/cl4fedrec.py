"""CL4FedRec and rCL4FedRec: robust federated contrastive recommendation (Yuan et al., 2024).

Settings are those of section 5.4, which are the algorithms' defaults: 32 dimensions, a tower of 64, 32 and 16, Adam at
0.001, 20 global epochs. The paper does not say how many clients make a step; here, as in the code of the attack it
uses, 256. Its figures have no printed values, so what they vary is ours where the text does not name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from coterie.papers import attacked, figures
from coterie.papers.declare import HONEST, Figure, Grid, Paper, Quick, Row

ML_1M, VIDEO = "ml-1m", "amazon-video"
BOTH = (ML_1M, VIDEO)
SYNTHETIC = {ML_1M: 60, VIDEO: 10}
METRICS = ("recall@20", "ndcg@20")

EPOCHS = 20

Settings = dict[str, Any]
Method = Callable[..., Settings]


def original(data: str, algorithm: str = "fedsgd", **changes: Any) -> Settings:
    """The recommender without contrastive learning, or one of the two baselines that have the same settings."""
    step = {"participation": "batches", "clients_per_step": 256}
    return {"algorithm": algorithm, "rounds": EPOCHS, **step, **changes}


def cl4fedrec(data: str, **changes: Any) -> Settings:
    """CL4FedRec by section 5.4."""
    return original(data, "cl4fedrec", synthetic_users=SYNTHETIC.get(data, 60), **changes)


def _with_synthetic(count: int, data: str) -> Settings:
    return rcl4fedrec(data) | {"synthetic_users": count}


rcl4fedrec: Method = partial(cl4fedrec, regulariser="popularity")

# Rates of the user vector and of the server's step when there is time to converge, and which of them validation chose
# for the recommender without contrastive learning (table `tuning`). They need not suit a contrastive term; what to try
# with one is table `tuning-contrast`.
RATES = ((0.001, 0.001), (0.01, 0.003), (0.03, 0.003), (0.1, 0.01), (0.3, 0.03), (1.0, 0.1))
CHOSEN = {ML_1M: 4, VIDEO: 0}
CONTRAST_TRIED = (1, 3, 4)


def converged(recipe: Method, data: str, rates: int | None = None) -> Settings:
    """A method trained until validation stops improving, which at the paper's rates takes more than 100 epochs."""
    settings = recipe(data)
    lr, server_lr = RATES[CHOSEN.get(data, CHOSEN[ML_1M]) if rates is None else rates]
    return settings | {"rounds": 200, "eval_every": 5, "patience": 6, "lr": lr, "server_lr": server_lr}


METHODS: dict[str, Method] = {
    "Original": original,
    "SimGCL": partial(original, algorithm="simgcl"),
    "UNION": partial(original, algorithm="union"),
    "CL4FedRec": cl4fedrec,
    "rCL4FedRec": rcl4fedrec,
}


def defended(name: str, method: Method) -> dict[str, Method]:
    """A method alone, with each defence, and with the regulariser."""
    return {
        name: method,
        "+Krum": partial(method, defence="krum"),
        "+Median": partial(method, defence="median"),
        "+Trimmed Mean": partial(method, defence="trimmed_mean"),
        "+HiCS": partial(method, defence="hics"),
        "+Regularizer": partial(method, regulariser="popularity"),
    }


DEFENCES = defended("CL4FedRec", cl4fedrec)
PRINTED = {"+Trimmed Mean": "CL4FedRec+TrimmedMean"}

STEP = "The server steps with Adam on the sum of the gradients of 256 clients; the paper names neither."
RECONSTRUCTED = "HiCS and PSMU: reconstructions from descriptions, there is no public code."


def _grid(number: str, title: str, rows: tuple[Row, ...], data: tuple[str, ...] = BOTH, **more: Any) -> Grid:
    shown: dict[str, Any] = {"protocol": "ratio-full", "metrics": METRICS, "scale": 1.0, "digits": 4}
    return Grid(number, title, rows, data, **(shown | more))


TABLE_2 = _grid(
    "2",
    "Methods",
    tuple(Row(name, recipe) for name, recipe in METHODS.items()),
    quick=("Original", "rCL4FedRec"),
    notes=(STEP,),
)
LONG = _grid(
    "converged",
    "Methods, trained until validation stops improving",
    tuple(Row(name, partial(converged, recipe), table="2") for name, recipe in METHODS.items()),
    forms=(HONEST,),
    notes=(
        STEP,
        "At most 200 epochs, ended after thirty without a better one; the paper has 20.",
        "Rates are those that validation chose for the recommender without contrastive learning.",
    ),
)


def _tried(name: str, recipe: Method, numbers: Iterable[int]) -> tuple[Row, ...]:
    return tuple(
        Row(f"{name}, rates {RATES[i][0]:g} and {RATES[i][1]:g}", partial(converged, recipe, rates=i)) for i in numbers
    )


TUNING = _grid(
    "tuning",
    "What was tried",
    _tried("Original", original, range(len(RATES))),
    forms=(HONEST,),
    seeds=1,
    part="validation",
    notes=("Rate of the user vector, and of the server's step.",),
)
TUNING_CONTRAST = replace(
    TUNING,
    number="tuning-contrast",
    title="What was tried with a contrastive term",
    rows=_tried("CL4FedRec", cl4fedrec, CONTRAST_TRIED),
    data=(ML_1M,),
)
TABLE_3 = _grid(
    "3",
    "Defences, without an attack",
    tuple(
        Row(name, recipe, PRINTED.get(name, name if name == "CL4FedRec" else f"CL4FedRec{name}"))
        for name, recipe in DEFENCES.items()
    ),
    notes=(STEP, RECONSTRUCTED),
)
TABLE_4 = _grid(
    "4",
    "Parts of rCL4FedRec",
    (
        Row("rCL4FedRec", rcl4fedrec),
        Row("-regularizer", cl4fedrec, "rCL4FedRec w/o regularizer"),
        Row("-user contrastive", partial(rcl4fedrec, user_weight=0.0), "rCL4FedRec w/o user contrastive"),
        Row("-item contrastive", partial(rcl4fedrec, item_weight=0.0), "rCL4FedRec w/o item contrastive"),
    ),
    (ML_1M,),
)
TABLE_5 = _grid(
    "5",
    "Views",
    (
        Row("rCL4FedRec", rcl4fedrec),
        Row(
            "random synthetic users",
            partial(rcl4fedrec, synthetic="uniform"),
            "rCL4FedRec with random synthetic users",
        ),
        Row(
            "SimGCL-based item views",
            partial(rcl4fedrec, item_views="noise"),
            "rCL4FedRec with SimGCL-based item views",
        ),
    ),
    (ML_1M,),
)

ATTACKED: Settings = {"attack": "a_hum", "malicious": 0.001}
ATTACKS = {"A-hum": ATTACKED, "PSMU": {"attack": "psmu", "malicious": 0.001}}

FIGURE_1 = _grid(
    "1",
    "Exposure under A-hum",
    tuple(Row(name, partial(METHODS[name], **ATTACKED)) for name in ("Original", "SimGCL", "UNION", "CL4FedRec")),
    forms=(HONEST,),
    quick=("Original", "CL4FedRec"),
)
FIGURE_2 = _grid(
    "2",
    "Items, hot and normal",
    tuple(Row(name, METHODS[name]) for name in ("Original", "SimGCL", "UNION", "CL4FedRec")),
    (ML_1M,),
    forms=(HONEST,),
    seeds=1,
)
FIGURE_3 = _grid(
    "3",
    "A penalty that makes items uniform, under A-hum",
    tuple(
        Row(f"weight {weight:g}", partial(original, uniformity=weight, **ATTACKED))
        for weight in (0.0, 0.5, 1.0, 2.0, 4.0)
    ),
    (ML_1M,),
    forms=(HONEST,),
)


def _attacked(methods: dict[str, Method]) -> tuple[Row, ...]:
    return tuple(
        Row(f"{name}, {attack}", partial(recipe, **settings))
        for attack, settings in ATTACKS.items()
        for name, recipe in methods.items()
    )


FIGURE_4 = _grid(
    "4",
    "Exposure under two attacks, by defence",
    _attacked(DEFENCES),
    forms=(HONEST,),
    notes=(RECONSTRUCTED,),
)
FIGURE_NCF = replace(
    FIGURE_4,
    number="ncf",
    title="Exposure of the recommender without contrastive learning",
    rows=_attacked(defended("Original", original)),
    data=(ML_1M,),
)
FIGURE_5 = _grid(
    "5",
    "Number of synthetic users",
    tuple(Row(f"{count} users", partial(_with_synthetic, count)) for count in (5, 10, 20, 40, 60, 100)),
)

EXPOSED: dict[str, Any] = {"part": "exposure", "metrics": ("er@5", "er@20", "control er@20"), "quick": ()}
EXPOSURE = replace(FIGURE_1, number="exposure", notes=("The paper prints these as curves, figure 1.",), **EXPOSED)
DEFENDED = replace(
    FIGURE_4, number="defended", notes=("The paper prints these as curves, figure 4.", RECONSTRUCTED), **EXPOSED
)
UTILITY = replace(FIGURE_4, number="utility", title="Utility under two attacks, by defence")
NCF_DEFENDED = replace(FIGURE_NCF, **EXPOSED)
NCF_UTILITY = replace(FIGURE_NCF, number="ncf-utility", title="Utility of the recommender without contrastive learning")

PUBLISHED_MODEL: Settings = {
    "embedding_dim": 8,
    "layers": [8, 8],
    "init_scale": 0.01,
    "user_optimiser": "sgd",
    "server_optimiser": "sgd",
    "redraw": False,
}
FIDELITY = _grid(
    "fidelity",
    "A-hum in the recommender it was published with",
    (Row("FedSGD, d = 8", partial(original, rounds=12, **ATTACKED, **PUBLISHED_MODEL)),),
    (ML_1M,),
    forms=(HONEST,),
)

FIGURES = (
    Figure(FIDELITY, attacked.as_published),
    Figure(FIGURE_1, attacked.exposure),
    Figure(FIGURE_2, attacked.item_map, attacked.ITEM_MAP),
    Figure(FIGURE_3, attacked.uniformity, attacked.SPECTRUM),
    Figure(FIGURE_4, attacked.exposure),
    Figure(FIGURE_NCF, attacked.exposure),
    Figure(FIGURE_5, figures.by_setting("synthetic_users")),
)


def _small(settings: Settings) -> Settings:
    """Few epochs of small steps, a small model; the built-in set has few clients, of which one is malicious."""
    model = {"embedding_dim": 8, "layers": [8], "lr": 0.02, "server_lr": 0.02}
    contrast = {"synthetic_users": 4, "item_block": 64} if settings["algorithm"] == "cl4fedrec" else {}
    attack = {"malicious": 0.02} if "attack" in settings else {}
    return settings | {"rounds": 4, "clients_per_step": 20} | model | contrast | attack


paper = Paper(
    name="cl4fedrec",
    title="Robust Federated Contrastive Recommender System against Model Poisoning Attack",
    venue="2024",
    tables=(
        TABLE_2,
        LONG,
        TUNING,
        TUNING_CONTRAST,
        TABLE_3,
        TABLE_4,
        TABLE_5,
        EXPOSURE,
        DEFENDED,
        UTILITY,
        NCF_DEFENDED,
        NCF_UTILITY,
    ),
    figures=FIGURES,
    quick=Quick("demo:users=60,items=200,interactions_per_user=14", _small),
)
