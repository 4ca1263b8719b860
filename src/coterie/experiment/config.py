"""The settings of a run, every one with its origin.

All settings live in one flat space: those of the run, of the algorithm, of the conduct (who takes part, when to
evaluate), of the filters, of the protocol, of attack and defence, and of privacy. A key belongs to exactly one of them.

A path in a settings file is taken relative to that file. A run directory keeps a copy of an algorithm that was run
by path, so it can be moved, and goes on with the code it was started with.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from coterie import algorithms, attacks, defences
from coterie.algorithm import Algorithm, ClientConfig, Settings, validate
from coterie.data import catalogue
from coterie.data.filters import Filters
from coterie.engine.attackers import Threat
from coterie.engine.federation import Guard
from coterie.engine.robustness import Robustness, RobustnessOptions
from coterie.engine.simulate import Conduct
from coterie.errors import CoterieError, unknown
from coterie.evaluation import protocols
from coterie.evaluation.problem import Protocol
from coterie.evaluation.protocols import ProtocolOptions
from coterie.privacy.mechanisms import Privacy
from coterie.regulariser import Popularity

OWN_ALGORITHM = "algorithm.py"
"""The copy, in a run directory, of an algorithm that was run by path."""


class What(Settings):
    """What is run on what."""

    algorithm: str = "pfedrec"
    data: str = "demo"
    protocol: str = "loo99"
    seed: int = Field(0, ge=0)
    checkpoint_every: int = Field(10, ge=0, description="rounds between checkpoints; 0: none")


@dataclass(frozen=True)
class Plan:
    """A run that is fully specified; `origins` says where each value came from.

    `source` is the text of an algorithm that was given by path, and empty for one that comes with the package.
    """

    what: What
    algorithm: Algorithm
    protocol: Protocol
    settings: dict[str, Any]
    conduct: Conduct
    filters: Filters
    options: ProtocolOptions
    robustness: RobustnessOptions
    about_robustness: tuple[Settings, ...]
    privacy: Privacy
    origins: dict[str, str]
    source: str = ""

    def values(self, config: ClientConfig | None = None) -> dict[str, Any]:
        """Return every setting by name; `config` is the algorithm's after the data filled it in."""
        config = config or self.algorithm.configure(self.settings)
        parts: list[BaseModel] = [self.what, self.conduct, config, self.filters, self.options]
        parts += [self.robustness, *self.about_robustness, self.privacy]
        return {name: value for part in parts for name, value in part.model_dump(mode="json").items()}

    def exposed(self) -> dict[str, Any]:
        """Return the settings of attack, defence and regulariser by name, and those of privacy where there is noise."""
        parts = (self.robustness, *self.about_robustness, *([self.privacy] if self.privacy.noised else []))
        return {name: value for part in parts for name, value in part.model_dump(mode="json").items()}

    def protection(self) -> Robustness:
        """Return the attack, the defence and the regulariser, ready for use."""
        asked, configs = self.robustness, {type(each): each for each in self.about_robustness}
        threat = guard = None
        if asked.attack != "none":
            attack = attacks.get(asked.attack)
            threat = Threat(attack, configs[attack.Config], asked.malicious, asked.target)  # type: ignore[arg-type]
        if asked.defence != "none":
            defence = defences.get(asked.defence)
            guard = Guard(defence, configs[defence.Config])  # type: ignore[arg-type]
        popularity = configs.get(Popularity, Popularity())
        assert isinstance(popularity, Popularity)
        return Robustness(threat, guard, popularity, asked.upload_bound, asked.secure_sums)


def plan(given: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> Plan:
    """Sort flat settings into their groups and check every one; `origins` names where each was given."""
    origins = dict(origins or dict.fromkeys(given, "given"))
    what = validate(What, _of(What, given), "setting")
    what = what.model_copy(update={"data": _absolute(what.data)})
    algorithm, protocol = algorithms.get(what.algorithm), protocols.get(what.protocol)
    robustness = validate(RobustnessOptions, _of(RobustnessOptions, given), "setting")
    about = _about_robustness(robustness, given, algorithm)
    groups: list[type[BaseModel]] = [What, Conduct, algorithm.Config, Filters, ProtocolOptions, RobustnessOptions]
    groups += [*about, Privacy]
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
        robustness,
        tuple(validate(group, _of(group, given), "setting") for group in about),
        validate(Privacy, _of(Privacy, given), "setting"),
        origins,
        _source(what.algorithm),
    )


def _about_robustness(asked: RobustnessOptions, given: Mapping[str, Any], algorithm: Algorithm) -> list[type[Settings]]:
    """Return the settings that an attack, a defence and the regulariser have, where there are such."""
    found: list[type[Settings]] = []
    if asked.attack != "none":
        found.append(attacks.get(asked.attack).Config)
    if asked.defence != "none":
        found.append(defences.get(asked.defence).Config)
    if algorithm.configure(_of(algorithm.Config, given)).regulariser != "none":
        found.append(Popularity)
    return found


def _absolute(data: str) -> str:
    """Return the name of a set as it is, and the path of a file or folder in full."""
    return data if catalogue.is_name(data) or not Path(data).exists() else str(Path(data).resolve())


def _source(algorithm: str) -> str:
    return Path(algorithm).read_text(encoding="utf-8") if algorithm.endswith(".py") else ""


def _of(group: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in group.model_fields if name in given}


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings from a YAML file of `key: value` lines; paths in it are relative to the file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CoterieError(f"There is no file {path}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CoterieError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise CoterieError(f"{path} holds no settings; write lines such as `algorithm: pfedrec`.")
    paths = {key: _beside(path.parent, values[key]) for key in ("algorithm", "data") if key in values}
    return {str(key): value for key, value in (values | paths).items()}


def _beside(folder: Path, value: Any) -> Any:
    """Return the path of a file in `folder` if `value` names one there; a name stays a name."""
    a_path = isinstance(value, str) and (os.sep in value or Path(value).suffix)
    return str(folder / value) if a_path and (folder / value).exists() else value


def read_origins(path: Path) -> dict[str, str]:
    """Read where each setting came from out of the comments of a run's own settings file."""
    lines = (line.rpartition("  # ") for line in path.read_text(encoding="utf-8").splitlines())
    return {setting.partition(":")[0]: origin for setting, mark, origin in lines if mark}


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
    values = plan.values(config) | ({"algorithm": OWN_ALGORITHM} if plan.source else {})
    for name, value in values.items():
        origin = "filled in from the data" if name in filled else plan.origins.get(name, "default")
        text = yaml.safe_dump(value, default_flow_style=True, width=float("inf")).removesuffix("...\n").strip()
        lines.append(f"{name}: {text}  # {origin}")
    return "\n".join(lines) + "\n"
