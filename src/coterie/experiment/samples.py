"""The runs behind a figure, as it is drawn from them."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.experiment.trials import Results, Trial
from coterie.papers.declare import Figure, Sample


def samples_of(figure: Figure, trials: Sequence[Trial], results: Results) -> list[Sample]:
    """Return the runs of a figure that are there, with what its probe measured."""
    samples = []
    for trial in trials:
        result = results.read(trial)
        measured = results.measured(trial, figure.probe) if figure.probe else {}
        if result is not None and measured is not None:
            samples.append(Sample(trial.row, trial.data, trial.form, trial.seed, result, measured))
    return samples
