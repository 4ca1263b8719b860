"""CoFedRec: co-clustering for federated recommendation (He et al., WWW 2024).

Settings are those of the paper's tables 6 and 7; where it is silent, those of the authors' code, which are the
algorithms' defaults here: 32 dimensions, batches of 256, four negatives, two local epochs of CoFedRec and one of the
others. Figure 4 has no printed values, so its numbers of clusters are ours.

The contrastive term over all pairs of items takes 25 minutes a run on ml-100k, where tables 1 and 2 have it. Elsewhere,
and where a setting is varied, it is computed on 512 sampled items a step (256 on ml-1m), and the table says so.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from coterie.papers import figures
from coterie.papers.declare import HONEST, PAPER, Figure, Grid, Paper, Quick, Recipe, Row

ML_100K, ML_1M, FILMTRUST, LASTFM = "ml-100k", "ml-1m", "filmtrust", "lastfm-2k"
ALL = (ML_100K, ML_1M, FILMTRUST, LASTFM)

ROUNDS = 100
LR = dict.fromkeys(ALL, 0.1) | {LASTFM: 0.05}
WEIGHT = {ML_100K: 0.005, ML_1M: 0.005, FILMTRUST: 0.05, LASTFM: 0.001}
TEMPERATURE = dict.fromkeys(ALL, 0.5) | {ML_100K: 0.1}
CLUSTERS = {ML_100K: 30, ML_1M: 45, FILMTRUST: 30, LASTFM: 500}

Settings = dict[str, Any]


def all_pairs(data: str, **changes: Any) -> Settings:
    """CoFedRec by tables 6 and 7; sets that are not there have the settings of ml-100k."""
    of = data if data in ALL else ML_100K
    tuned = {"weight": WEIGHT[of], "temperature": TEMPERATURE[of], "clusters": CLUSTERS[of]}
    return {"algorithm": "cofedrec", "rounds": ROUNDS, "lr": LR[of], **tuned, **changes}


def sampled(data: str, **changes: Any) -> Settings:
    """The same with the contrastive term on 512 sampled items a step; on ml-1m, which has ten times the steps, 256."""
    fewer = {"supcon_sample": 256} if data == ML_1M else {}
    return all_pairs(data, supcon="sampled", **(fewer | changes))


def cofedrec(data: str, **changes: Any) -> Settings:
    """CoFedRec with all pairs of items where that can be run, on ml-100k."""
    return all_pairs(data, **changes) if data == ML_100K else sampled(data, **changes)


def pfedrec(data: str, **changes: Any) -> Settings:
    """PFedRec by table 6."""
    return {"algorithm": "pfedrec", "rounds": ROUNDS, "lr": LR.get(data, LR[ML_100K]), **changes}


def _as_tried(settings: Settings, data: str) -> Settings:
    return settings


def _tries(algorithm: str, rates: tuple[float, ...], *names: str, rounds: int = ROUNDS) -> tuple[Recipe, ...]:
    """Recipes of an algorithm at several rates, each under the names given."""
    made = ({"algorithm": algorithm, "rounds": rounds, **dict.fromkeys(names, rate)} for rate in rates)
    return tuple(partial(_as_tried, settings) for settings in made)


# What is tried for each method, and which of them validation chose (table `tuning`).
RATES: dict[str, tuple[float, ...]] = {
    "MF": (0.0005, 0.001, 0.002),
    "NCF": (0.0005, 0.001, 0.002),
    "FedMF": (0.25, 0.5, 1.0),
    "FedNCF": (0.01, 0.02, 0.05, 0.1, 0.2),
    "PFedRec": (0.05, 0.1, 0.2),
    "GPFedRec": (0.05, 0.1, 0.2),
    "FedRAP": (0.1, 0.3, 1.0, 3.0),
    "CoFedRec": (0.05, 0.1, 0.2),
}
TRIED: dict[str, tuple[Recipe, ...]] = {
    "MF": _tries("mf", RATES["MF"], "lr"),
    "NCF": _tries("ncf", RATES["NCF"], "lr"),
    "FedMF": _tries("fedmf", RATES["FedMF"], "lr", rounds=300),
    "FedNCF": _tries("fedncf", RATES["FedNCF"], "lr", "item_lr"),
    "PFedRec": _tries("pfedrec", RATES["PFedRec"], "lr"),
    "GPFedRec": _tries("gpfedrec", RATES["GPFedRec"], "lr"),
    "FedRAP": _tries("fedrap", RATES["FedRAP"], "item_lr"),
    "CoFedRec": tuple(partial(sampled, lr=rate) for rate in RATES["CoFedRec"]),
}
CHOSEN = {
    ML_100K: {"MF": 2, "NCF": 2, "FedMF": 2, "FedNCF": 2, "PFedRec": 2, "GPFedRec": 1, "FedRAP": 1, "CoFedRec": 1},
    FILMTRUST: {"MF": 0, "NCF": 2, "FedMF": 0, "FedNCF": 0, "PFedRec": 0, "GPFedRec": 0, "FedRAP": 0, "CoFedRec": 1},
}


def tuned(method: str) -> Row:
    """A method as validation chose it on a data set; where nothing was tried, as it did on ml-100k."""
    return Row(method, lambda data: TRIED[method][CHOSEN.get(data, CHOSEN[ML_100K])[method]](data))


MF, NCF, FEDMF, FEDNCF = map(tuned, ("MF", "NCF", "FedMF", "FedNCF"))
PFEDREC, COFEDREC = Row("PFedRec", pfedrec), Row("CoFedRec", cofedrec)

LOWEST = "CoFedRec: the paper prints the lowest of five runs."
SAMPLED_NOTE = (
    "512 items, and CoFedRec on other sets than ml-100k: the contrastive term is on 512 sampled items a step (256 on "
    "ml-1m), not on all pairs."
)
ALL_SAMPLED_NOTE = "CoFedRec: the contrastive term is on 512 sampled items a step (256 on ml-1m), not on all pairs."
RATES_NOTE = (
    "The rate is the one that validation chose, see the table of what was tried; on ml-1m and lastfm-2k that of "
    "ml-100k, but for CoFedRec, which has the printed one."
)

TABLE_1 = Grid(
    "1",
    "Methods on four data sets",
    (
        MF,
        NCF,
        FEDMF,
        Row("FedeRank"),
        FEDNCF,
        Row("FedPerGNN"),
        Row("FedRecon"),
        Row("MetaMF"),
        Row("FedFast"),
        Row("PerFedRec"),
        tuned("PFedRec"),
        tuned("GPFedRec"),
        tuned("FedRAP"),
        COFEDREC,
    ),
    ALL,
    quick=("PFedRec", "CoFedRec"),
    notes=(
        LOWEST,
        SAMPLED_NOTE,
        RATES_NOTE,
        "FedRAP: not in the paper. lastfm-2k: repeated (user, artist) rows are dropped here, so its printed values are "
        "not comparable.",
    ),
)

TUNING = Grid(
    "tuning",
    "What was tried",
    tuple(
        Row(f"{method}, rate {rate:g}", recipe)
        for method, tries in TRIED.items()
        for rate, recipe in zip(RATES[method], tries, strict=True)
    ),
    (ML_100K, FILMTRUST),
    forms=(HONEST,),
    seeds=1,
    part="validation",
)

PAIRS = Grid(
    "pairs",
    "The contrastive term on all pairs of items or on 512 sampled ones",
    (Row("all pairs", all_pairs, "CoFedRec", table="1"), Row("512 items", sampled, "CoFedRec", table="1")),
    (ML_100K, FILMTRUST),
)

USER_P = Row("User_P", partial(cofedrec, item_term="none"))

TABLE_2 = Grid(
    "2",
    "Parts of CoFedRec",
    (
        Row("Origin", pfedrec),
        USER_P,
        Row("Item_S", partial(cofedrec, partition=False, item_term="similarity")),
        Row("Item_SC, 512 items", partial(sampled, partition=False), "Item_SC"),
        COFEDREC,
    ),
    (ML_100K, ML_1M),
    notes=("Origin is PFedRec, with one local epoch; the other rows have two.", SAMPLED_NOTE),
)

TABLE_3 = Grid(
    "3",
    "Backbones",
    (
        FEDMF,
        Row("CoFedRec on FedMF", partial(sampled, backbone="fedmf")),
        FEDNCF,
        Row("CoFedRec on FedNCF", partial(sampled, backbone="fedncf", lr=0.05)),
        PFEDREC,
        Row("CoFedRec on PFedRec", sampled),
    ),
    (ML_100K, ML_1M),
    notes=("On a backbone CoFedRec has the printed rate of that backbone.", ALL_SAMPLED_NOTE),
)


def _virtual(method: str, recipe: Any, ratio: float) -> Row:
    changed = partial(recipe, virtual_ratings=ratio) if ratio else recipe
    return Row(f"{method}, ratio {ratio:g}", changed, method, f"virtual_ratings={ratio:g}")


TABLE_4 = Grid(
    "4",
    "Virtual ratings",
    tuple(
        _virtual(method, recipe, ratio)
        for method, recipe in (("PFedRec", pfedrec), ("CoFedRec", sampled))
        for ratio in (0.0, 0.1, 0.2, 0.3, 0.4)
    ),
    (ML_100K,),
    notes=(
        ALL_SAMPLED_NOTE,
        "CoFedRec at ratio 0: the paper prints an NDCG of 50.56 here and in table 8, and 50.65 in table 1.",
    ),
)

TABLE_8 = Grid(
    "8",
    "Weight of the contrastive term",
    tuple(
        Row(f"weight {weight:g}", partial(sampled, weight=weight), "CoFedRec", f"weight={weight:g}")
        for weight in (0.001, 0.005, 0.01, 0.05, 0.1, 0.3)
    ),
    (ML_100K, ML_1M),
    notes=("ml-1m: of the printed values one is legible in the text at hand.", ALL_SAMPLED_NOTE),
)

TABLE_9 = Grid(
    "9",
    "Against all items",
    (MF, NCF, FEDMF, FEDNCF, Row("FedPerGNN"), Row("FedRecon"), Row("MetaMF"), PFEDREC, Row("CoFedRec", sampled)),
    (ML_100K, ML_1M, FILMTRUST),
    protocol="loo-full",
    notes=(ALL_SAMPLED_NOTE,),
)

LEAK = Grid(
    "leak",
    "What the published protocol gives away",
    (
        Row("local, nothing shared", lambda _: {"algorithm": "local", "rounds": 20}),
        Row("PFedRec, personal table", pfedrec, "PFedRec", table="1"),
        Row("PFedRec, global table", partial(pfedrec, eval_table="global")),
        Row("MF, all data in one place", TRIED["MF"][1], "MF", table="1"),
    ),
    (ML_100K,),
)

SEARCH_ROWS: dict[str, Settings] = {
    "all pairs": {},
    "all pairs, before the server's step": {"eval_table": "local"},
    "512 items": {"supcon": "sampled"},
    "512 items, before the server's step": {"supcon": "sampled", "eval_table": "local"},
    "512 items, 60 clusters": {"supcon": "sampled", "clusters": 60},
    "512 items, one local epoch": {"supcon": "sampled", "local_epochs": 1},
    "512 items, four local epochs": {"supcon": "sampled", "local_epochs": 4},
    "512 items, equation 8 as printed": {"supcon": "sampled", "supcon_form": "paper"},
    **{f"512 items, groups of {size}": {"supcon": "sampled", "group_size": size} for size in (10, 30, 100, 300)},
}
SEARCH = Grid(
    "search",
    "What was tried to come near the published value",
    tuple(Row(label, partial(all_pairs, **changes), "CoFedRec", table="1") for label, changes in SEARCH_ROWS.items()),
    (ML_100K,),
    notes=(
        "All pairs or 512 items: those that the contrastive term compares in a step.",
        "Before the server's step: a client is asked with the table it has just trained, not with its group's.",
        "Groups: of the size that the elbow gives, or of as many clients, those most alike.",
    ),
)


def _run_of(number: str, title: str, data: tuple[str, ...]) -> Grid:
    """CoFedRec under the paper's protocol, one run on each data set."""
    return Grid(number, title, (COFEDREC,), data, forms=(PAPER,), seeds=1, quick=("CoFedRec",))


FIGURE_4 = Grid(
    "4",
    "Number of item clusters",
    tuple(Row(f"{clusters} clusters", partial(sampled, clusters=clusters)) for clusters in (10, 20, 30, 45, 60, 100)),
    (ML_100K, ML_1M),
    notes=(ALL_SAMPLED_NOTE,),
)
# Members of a group start from the same table, and k-means would find the groups: here all start from one.
FIGURE_5 = Grid(
    "5",
    "K-means on whole tables",
    (Row("no groups, no item term", partial(cofedrec, partition=False, item_term="none")),),
    (ML_100K,),
    forms=(PAPER,),
    seeds=1,
)
CURVE = Grid("curve", "Round by round", (COFEDREC,), (ML_100K,), quick=("CoFedRec",))
GROUP_SIZE = Grid(
    "group-size", "The score of a round and the size of its group", (USER_P, COFEDREC), (ML_100K,), quick=("CoFedRec",)
)

PLANTED = Grid(
    "planted",
    "The similar group and the core client's community",
    (Row("CoFedRec", lambda _: {"algorithm": "cofedrec", "rounds": 20, "clusters": 4, "embedding_dim": 16}),),
    ("demo:users=120,items=240,interactions_per_user=50,communities=4,noise=0",),
    protocol="loo-full",
    forms=(HONEST,),
    seeds=1,
)

FIGURES = (
    Figure(
        _run_of("2", "Rounds in which clients were in the similar group", (ML_100K, ML_1M)),
        figures.participation,
        figures.PARTICIPATION,
    ),
    Figure(_run_of("3", "Items by cluster", (ML_100K, FILMTRUST)), figures.item_map, figures.ITEM_MAP),
    Figure(FIGURE_4, figures.by_setting("clusters")),
    Figure(FIGURE_5, figures.client_clusters, figures.CLIENT_CLUSTERS),
    Figure(_run_of("6", "Where the similar group ends", (ML_100K, ML_1M)), figures.elbow, figures.ELBOW),
    Figure(CURVE, figures.learning),
    Figure(GROUP_SIZE, figures.group_size),
    Figure(PLANTED, figures.planted, figures.PLANTED),
)


def _small(settings: Settings) -> Settings:
    """A few rounds; a tenth of the clusters, because the built-in set has few items."""
    rounds = {"rounds": 1 if settings["algorithm"] in ("mf", "ncf") else 4}
    clusters = {"clusters": max(2, settings["clusters"] // 10)} if "clusters" in settings else {}
    return settings | rounds | clusters


paper = Paper(
    name="cofedrec",
    title="Co-clustering for Federated Recommender System",
    venue="WWW 2024",
    tables=(TABLE_1, TUNING, PAIRS, TABLE_2, TABLE_3, TABLE_4, TABLE_8, TABLE_9, LEAK, SEARCH),
    figures=FIGURES,
    quick=Quick("demo:users=60,items=360,interactions_per_user=14", _small),
)
