"""The settings of a run, every one with its origin.

All settings live in one flat space: those of the run, of the algorithm, of the conduct (who takes part, when to
evaluate), of the filters and of the protocol. A key belongs to exactly one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from coterie import algorithms
from coterie.algorithm import Algorithm, ClientConfig, Settings, validate
from coterie.data import catalogue
from coterie.data.filters import Filters
from coterie.engine.simulate import Conduct
from coterie.errors import CoterieError, unknown
from coterie.evaluation import protocols
from coterie.evaluation.problem import Protocol
from coterie.evaluation.protocols import ProtocolOptions


class What(Settings):
    """What is run on what."""

    algorithm: str = "pfedrec"
    data: str = "demo"
    protocol: str = "loo99"
    seed: int = Field(0, ge=0)
    checkpoint_every: int = Field(10, ge=0, description="rounds between checkpoints; 0: none")


@dataclass(frozen=True)
class Plan:
    """A run that is fully specified; `origins` says where each value came from."""

    what: What
    algorithm: Algorithm
    protocol: Protocol
    settings: dict[str, Any]
    conduct: Conduct
    filters: Filters
    options: ProtocolOptions
    origins: dict[str, str]

    def values(self, config: ClientConfig | None = None) -> dict[str, Any]:
        """Return every setting by name; `config` is the algorithm's after the data filled it in."""
        config = config or self.algorithm.configure(self.settings)
        parts: list[BaseModel] = [self.what, self.conduct, config, self.filters, self.options]
        return {name: value for part in parts for name, value in part.model_dump(mode="json").items()}


def plan(given: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> Plan:
    """Sort flat settings into their groups and check every one; `origins` names where each was given."""
    origins = dict(origins or dict.fromkeys(given, "given"))
    what = validate(What, _of(What, given), "setting")
    algorithm, protocol = algorithms.get(what.algorithm), protocols.get(what.protocol)
    groups: list[type[BaseModel]] = [What, Conduct, algorithm.Config, Filters, ProtocolOptions]
    known = [name for group in groups for name in group.model_fields]
    for key in given:
        if key not in known:
            raise unknown("setting", key, known)
    settings = _of(algorithm.Config, given)
    algorithm.configure(settings)
    rounds = {"rounds": algorithm.info.rounds} | _of(Conduct, given)
    filters = catalogue.own_filters(what.data).model_dump() | _of(Filters, given)
    return Plan(
        what,
        algorithm,
        protocol,
        settings,
        validate(Conduct, rounds, "setting"),
        validate(Filters, filters, "filter"),
        validate(ProtocolOptions, _of(ProtocolOptions, given), "setting of the protocol"),
        origins,
    )


def _of(group: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in group.model_fields if name in given}


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings from a YAML file of `key: value` lines."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CoterieError(f"There is no file {path}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CoterieError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise CoterieError(f"{path} holds no settings; write lines such as `algorithm: pfedrec`.")
    return {str(key): value for key, value in values.items()}


def parse(assignment: str) -> tuple[str, Any]:
    """Read `key=value`; the value as YAML reads it, so `1e-3`, `true` and `[64, 32]` are what they look like."""
    key, equals, value = assignment.partition("=")
    if not equals or not key.strip():
        raise CoterieError(f"--set takes key=value, not '{assignment}'.")
    try:
        return key.strip(), _number(yaml.safe_load(value))
    except yaml.YAMLError:
        raise CoterieError(f"The value of '{key}' cannot be read: '{value}'.") from None


def _number(value: Any) -> Any:
    """YAML takes `1e-3` for text; a person means a number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def to_yaml(plan: Plan, config: ClientConfig) -> str:
    """Return the resolved settings as YAML, each with its origin as a comment."""
    lines = ["# Every setting of this run and where it came from; `coterie run` takes this file as it is."]
    given = plan.algorithm.configure(plan.settings)
    filled = {name for name in type(config).model_fields if getattr(config, name) != getattr(given, name)}
    for name, value in plan.values(config).items():
        origin = "filled in from the data" if name in filled else plan.origins.get(name, "default")
        text = yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()
        lines.append(f"{name}: {text}  # {origin}")
    return "\n".join(lines) + "\n"
