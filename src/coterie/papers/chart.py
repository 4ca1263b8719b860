"""A figure as data: panels of lines, points and bars, heat maps. It is drawn as a PNG and as an interactive page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Series:
    """Values under one name; `reach` is how far an error bar goes to either side."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: Literal["line", "points", "bars"] = "line"
    reach: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `marks` are upright lines with a name. Without `ticks`, the places mean nothing."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    marks: tuple[tuple[float, str], ...] = ()
    ticks: bool = True


@dataclass(frozen=True)
class HeatMap:
    """A table of shares, each printed in its cell; the colours go from 0 to 1. A cell that is NaN is empty."""

    title: str
    x: str
    y: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Chart:
    """A title, panels side by side, and a sentence below."""

    title: str
    panels: tuple[Panel | HeatMap, ...]
    note: str = ""
