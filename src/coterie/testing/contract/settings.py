"""Settings: what is written can be read again, and a misspelled key is refused."""

from __future__ import annotations

from coterie.algorithm import Algorithm, ClientConfig
from coterie.errors import CoterieError


def settings_round_trip(algorithm: Algorithm) -> None:
    """Settings survive a trip through plain values; an unknown key is refused with the nearest known one."""
    name, config = algorithm.info.name, algorithm.configure({})
    assert isinstance(config, ClientConfig), f"{name}: Config is not a ClientConfig."
    for values in (config.model_dump(), config.model_dump(mode="json")):
        unwritten = type(config).model_fields.keys() - values.keys()
        assert not unwritten, f"{name}: {', '.join(sorted(unwritten))} is not among the plain values."
        assert algorithm.configure(values) == config, f"{name}: settings change on a trip through plain values."
    for key in type(config).model_fields:
        typo = key + "z"
        try:
            algorithm.configure({typo: 1})
        except CoterieError as error:
            assert f"'{key}'" in str(error), f"{name}: the error for '{typo}' does not name '{key}': {error}"
        else:
            raise AssertionError(f"{name}: the unknown setting '{typo}' was accepted.")
