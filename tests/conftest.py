"""Strictness for all tests, a compilation cache, and one worker for each algorithm.

Dtype promotion stays as it is: counts and masks are multiplied into sums all over the engine, on purpose.
"""

import os

import pytest
from hypothesis import settings

# Tests compile much and compute little: code in one piece, by the older and quicker emitter of loops, takes two thirds
# of the time. The engine's own programs keep their level. The backend reads this when it starts, so before JAX.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false",
)

import jax

from coterie.files import forget_programs, use_compilation_cache

jax.config.update("jax_numpy_rank_promotion", "raise")
use_compilation_cache()

# The first example compiles, so time says nothing.
settings.register_profile("coterie", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("coterie")


@pytest.fixture(autouse=True)
def few_programs():
    """One process runs hundreds of tests, each with programs of its own."""
    yield
    forget_programs()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    # What is compiled for an algorithm in one test is used in the next, if the same worker runs both.
    if getattr(config.option, "dist", None) == "load":
        config.option.dist = "loadgroup"


# Doctests are collected from modules by name, and several folders have a conftest of their own.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]
