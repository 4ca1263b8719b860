"""Speed and memory, measured on this machine: `make bench [ONLY=pfedrec]`.

Each measurement runs in a process of its own, so that peak memory and compile time are its own. "Cold" is with an empty
compilation cache, "warm" with the one the cold run left behind. A round is the median after the first two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from coterie import algorithms, attacks, defences
from coterie.algorithms import gpfedrec
from coterie.algorithms import rqfedrec as quantised
from coterie.data import catalogue, synthetic
from coterie.data.interactions import Interactions
from coterie.engine.attackers import Threat
from coterie.engine.federation import Guard
from coterie.engine.reference import Reference
from coterie.engine.robustness import Robustness
from coterie.engine.simulate import Conduct, Simulation
from coterie.evaluation import protocols
from coterie.experiment.run import fit, peak_rss_mb
from coterie.files import use_compilation_cache
from coterie.uploads import Uploads


def rounds(simulation: Simulation, count: int) -> dict[str, float]:
    """Run rounds; seconds of the first one, and wall and CPU seconds of a steady one."""
    start = time.perf_counter()
    simulation.advance()
    first = time.perf_counter() - start
    simulation.advance()
    walls, cpus = [], []
    for _ in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        simulation.advance()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"first": first, "round": float(np.median(walls)), "cpu": float(np.median(cpus)), "rss_mb": peak_rss_mb()}


def simulation(name: str, data: str | Interactions, protocol: str, rounds: int, **settings: Any) -> Simulation:
    loaded = catalogue.load(data) if isinstance(data, str) else data
    conduct = Conduct(rounds=rounds, **{k: settings.pop(k) for k in list(settings) if k in Conduct.model_fields})
    return Simulation(algorithms.get(name), settings, protocols.prepare(loaded, protocol), conduct)


def whole_run() -> dict[str, float]:
    """The 100-round run of PFedRec on MovieLens-100K, with references, lists and intervals."""
    start = time.perf_counter()
    run = fit("pfedrec", "ml-100k", rounds=100)
    return {"run": time.perf_counter() - start, "first": run.history[0].seconds["total"], "rss_mb": peak_rss_mb()}


def pfedrec_100k() -> dict[str, float]:
    return rounds(simulation("pfedrec", "ml-100k", "loo99", 20), 16)


def pfedrec_1m() -> dict[str, float]:
    return rounds(simulation("pfedrec", "ml-1m", "loo99", 8), 5)


def fedncf_1m() -> dict[str, float]:
    """A global epoch of 24 steps of 256 clients, and full-ranking evaluation of all users."""
    sim = simulation("fedncf", "ml-1m", "ratio-full", 6, participation="batches", eval_every=3)
    found = rounds(sim, 2)
    sim.ask()
    start = time.perf_counter()
    sim.ask()
    return {**found, "evaluate": time.perf_counter() - start}


def reference_loop() -> dict[str, float]:
    """Seconds a client takes in the plain loop, times all clients, against the compiled round."""
    sim = simulation("pfedrec", "ml-100k", "loo99", 10)
    compiled = rounds(sim, 6)["round"]
    loop = Reference(sim.algorithm, sim.config, sim.catalogue, sim.problem)
    server, privates = loop.start()
    clients = np.linspace(0, sim.problem.n_clients - 1, 12).astype(int)
    loop.round(0, server, privates, clients[:2])
    start = time.perf_counter()
    jax.block_until_ready(loop.round(0, server, privates, clients)[0])
    whole = (time.perf_counter() - start) / len(clients) * sim.problem.n_clients
    return {"round": compiled, "loop": whole, "ratio": whole / compiled}


def clients(count: int) -> dict[str, float]:
    data = synthetic.make(users=count, items=2000, interactions_per_user=40)
    return rounds(simulation("pfedrec", data, "loo99", 8), 5)


def items(count: int) -> dict[str, float]:
    """The same interactions over a larger catalogue: items nobody touched are added."""
    data = synthetic.make(users=1000, items=2000, interactions_per_user=40)
    ids = data.item_ids + tuple(f"extra-{i}" for i in range(count - data.n_items))
    wider = replace(data, item_ids=ids, titles=None, categories=None)
    return rounds(simulation("pfedrec", wider, "loo99", 8), 5)


def cofedrec_100k(**settings: Any) -> dict[str, float]:
    """The exact term takes long: two rounds are enough, and the first has none."""
    exact = settings["supcon"] == "exact"
    return rounds(simulation("cofedrec", "ml-100k", "loo99", 20, **settings), 2 if exact else 6)


def gpfedrec_100k() -> dict[str, float]:
    return rounds(simulation("gpfedrec", "ml-100k", "loo99", 20), 5)


def fedrap_100k() -> dict[str, float]:
    return rounds(simulation("fedrap", "ml-100k", "loo99", 20, local_epochs=10), 4)


def similarity_1m() -> dict[str, float]:
    """All pairs of 6,040 tables of 3,706 x 32, as GPFedRec compares them on MovieLens-1M."""
    draw = np.random.default_rng(0)
    parts = [draw.standard_normal((1510, 3706 * 32), np.float32) for _ in range(4)]
    uploads = Uploads(parts, np.arange(6040))
    start = time.perf_counter()
    gpfedrec.similarities(uploads.products(np.zeros(3706 * 32, np.float32)))
    return {"similarity": time.perf_counter() - start, "rss_mb": peak_rss_mb()}


BATCHES = {"participation": "batches", "clients_per_step": 256}
AS_PUBLISHED = {
    "embedding_dim": 8, "layers": (8, 8), "init_scale": 0.01, "user_optimiser": "sgd", "server_optimiser": "sgd",
    "redraw": False,
}  # fmt: skip


def attacked(algorithm: str, attack: str | None, defence: str | None = None, **settings: Any) -> Simulation:
    """A federation on MovieLens-1M, all items ranked, with malicious clients and a defence, if there are such."""
    problem = protocols.prepare(catalogue.load("ml-1m"), "ratio-full")
    conduct = Conduct(rounds=20, **{k: settings.pop(k) for k in list(settings) if k in Conduct.model_fields})
    found = attacks.get(attack) if attack else None
    guard = defences.get(defence) if defence else None
    robustness = Robustness(
        Threat(found, found.Config(), 0.001, "least-popular") if found else None,
        Guard(guard, guard.Config()) if guard else None,
    )
    return Simulation(algorithms.get(algorithm), settings, problem, conduct, robustness=robustness)


def global_epoch(algorithm: str, **settings: Any) -> dict[str, float]:
    """An epoch of 24 steps of 256 clients without evaluation."""
    return rounds(attacked(algorithm, None, **BATCHES, eval_every=20, **settings), 2)


def published_attack() -> dict[str, float]:
    """An epoch of the recommender in which A-hum was published, with evaluation of all users: without it, and with it.

    The two take turns, so that both have the same machine.
    """
    sims = [attacked("fedsgd", attack, **BATCHES, **AS_PUBLISHED) for attack in (None, "a_hum")]
    seconds: list[list[float]] = [[], []]
    for turn in range(9):
        for sim, spent in zip(sims, seconds, strict=True):
            record = sim.advance()
            if turn > 1:
                spent.append(record.seconds["round"])
    plain, under_attack = (float(np.median(spent)) for spent in seconds)
    return {"round": plain, "attacked": under_attack, "ratio": under_attack / plain, "rss_mb": peak_rss_mb()}


def item_wise_median() -> dict[str, float]:
    """The server's part of a step of all 6,040 clients: rows put in order, and the median of each."""
    sim = attacked("fedsgd", None, "median", eval_every=20)
    drawn, _ = sim._round_keys(0)
    outcomes = sim.federation.train(drawn, sim.keep(sim.state), np.arange(sim.plan.n_clients))
    start = time.perf_counter()
    sim.federation._received(sim.state.beside, outcomes, [])
    return {"median": time.perf_counter() - start, "rss_mb": peak_rss_mb()}


def freib(data: str, measured: int) -> dict[str, float]:
    """The paper's setting: five platforms, ten passes a round in batches of 64; 50 such rounds, and a single step."""
    sim = simulation("freib", data, "rating-dirichlet", 50)
    found = rounds(sim, measured)
    steps = 10 * np.sum(-(-np.bincount(sim.problem.client) // 64))
    return {**found, "50 rounds": found["first"] + 49 * found["round"], "step_us": 1e6 * found["round"] / steps}


def rqfedrec(data: str, count: int) -> dict[str, float]:
    """Rounds at 512 dimensions with 100 clients; a refresh from nothing is measured apart."""
    sim = simulation("rqfedrec", data, "groups", 20, eval_every=20)
    found = rounds(sim, count)
    refresh = jax.jit(quantised.refreshed, static_argnums=1)
    server = sim.state.server
    jax.block_until_ready(refresh(jax.random.key(0), sim.config, server, True))
    start = time.perf_counter()
    jax.block_until_ready(refresh(jax.random.key(1), sim.config, server, True))
    return {**found, "refresh": time.perf_counter() - start, "rss_mb": peak_rss_mb()}


def fedcia_100k() -> dict[str, float]:
    return rounds(simulation("fedcia", "ml-100k", "groups", 20, eval_every=20), 1)


CASES: dict[str, Callable[[], dict[str, float]]] = {
    "pfedrec ml-100k": pfedrec_100k,
    "pfedrec ml-100k, 100 rounds": whole_run,
    "pfedrec ml-1m": pfedrec_1m,
    "fedncf ml-1m, global epoch": fedncf_1m,
    "reference loop ml-100k": reference_loop,
    **{
        f"cofedrec ml-100k, {kind}": (lambda kind=kind: cofedrec_100k(supcon=kind))
        for kind in ("off", "sampled", "exact")
    },
    "gpfedrec ml-100k": gpfedrec_100k,
    "gpfedrec similarity ml-1m": similarity_1m,
    "fedrap ml-100k, 10 local epochs": fedrap_100k,
    "rqfedrec ml-100k": lambda: rqfedrec("ml-100k", 5),
    "rqfedrec ml-1m": lambda: rqfedrec("ml-1m", 2),
    "fedcia ml-100k": fedcia_100k,
    "fedsgd ml-1m, global epoch": lambda: global_epoch("fedsgd"),
    "cl4fedrec ml-1m, global epoch": lambda: global_epoch("cl4fedrec"),
    "fedsgd ml-1m under A-hum as published": published_attack,
    "item-wise median, 6,040 clients": item_wise_median,
    "freib ml-100k": lambda: freib("ml-100k", 6),
    "freib ml-1m": lambda: freib("ml-1m", 3),
    **{f"clients {n:,}": (lambda n=n: clients(n)) for n in (1000, 4000, 16000)},
    **{f"items {n:,}": (lambda n=n: items(n)) for n in (2000, 16000, 128000)},
}
TWICE = {"pfedrec ml-100k", "pfedrec ml-100k, 100 rounds"}


def measure(name: str, cache: str) -> dict[str, float]:
    """Run one case in a process of its own with the given cache folder."""
    command = [sys.executable, __file__, "--case", name]
    done = subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": cache}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def show(name: str, found: dict[str, float]) -> None:
    cells = "  ".join(
        f"{key} {value:,.3g}" + ("" if key in {"rss_mb", "ratio", "step_us"} else " s") for key, value in found.items()
    )
    print(f"{name:36s} {cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", help="measure one case in this process and print JSON")
    parser.add_argument("--only", default="", help="measure the cases whose name contains this")
    args = parser.parse_args()
    if args.case:
        use_compilation_cache()
        print(json.dumps(CASES[args.case]()))
        return
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.2f} at the start, JAX {jax.__version__}")
    for name in CASES:
        if args.only in name:
            with tempfile.TemporaryDirectory() as cache:
                show(f"{name} (cold)", measure(name, cache))
                if name in TWICE:
                    show(f"{name} (warm)", measure(name, cache))
    print(f"load {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
