"""Charts as files: PNG by Matplotlib, an interactive page by Plotly."""

from __future__ import annotations

import math
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import CoterieError
from coterie.files import write_atomically
from coterie.papers.chart import Chart, HeatMap, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stay apart for every kind of sight (Okabe and Ito), and three more for figures with many groups.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000", "#7f7f7f", "#8c564b",
)  # fmt: skip
PANEL_INCHES = (5.0, 3.8)
PANEL_PIXELS = 520
HEAT = "YlOrRd"
DARK = 0.6
"""From here on the numbers in a heat map are white."""


def require() -> None:
    """Refuse to begin where nothing could be drawn in the end."""
    missing = [name for name in ("matplotlib", "plotly") if find_spec(name) is None]
    if missing:
        raise CoterieError(f"Figures need {' and '.join(missing)}; run: pip install 'coterie[plots]'")


def draw(chart: Chart, folder: Path, name: str) -> tuple[Path, Path]:
    """Write a chart as `name`.png and `name`.html; the script that the page needs lies beside it."""
    require()
    folder.mkdir(parents=True, exist_ok=True)
    image, page = folder / f"{name}.png", folder / f"{name}.html"
    write_atomically(image, lambda draft: _to_png(chart, draft))
    write_atomically(page, lambda draft: _to_html(chart, draft))
    return image, page


def _to_png(chart: Chart, path: Path) -> None:
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(chart.panels), height), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(chart.panels), squeeze=False)[0], chart.panels, strict=True):
        if isinstance(panel, HeatMap):
            _draw_heat_map(axes, panel)
        else:
            _draw_panel(axes, panel)
    figure.suptitle(chart.title, wrap=True)
    if chart.note:
        figure.supxlabel(chart.note, fontsize="small", wrap=True)
    # Without the name of the software the same numbers give the same file.
    figure.savefig(path, format="png", dpi=110, metadata={"Software": None})


def _draw_panel(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    for series, colour in zip(panel.series, cycle(COLOURS)):
        _draw_series(axes, series, colour)
    for place, name in panel.marks:
        axes.axvline(place, color="#7f7f7f", linestyle="--", linewidth=1, label=name)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_title(panel.title, fontsize="small")
    if all(float(x).is_integer() for series in panel.series for x in series.x):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if not panel.ticks:
        axes.set(xticks=[], yticks=[])
    if all(series.kind == "bars" for series in panel.series):
        axes.margins(y=0.6)  # room for the names
    if len(panel.series) > 1 or panel.marks:
        axes.legend(fontsize="small")


def _draw_heat_map(axes: Axes, panel: HeatMap) -> None:
    axes.imshow(panel.values, cmap=HEAT, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=30, ha="right")
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    for y, row in enumerate(_printed(panel)):
        for x, text in enumerate(row):
            colour = "white" if panel.values[y][x] > DARK else "black"
            axes.text(x, y, text, ha="center", va="center", color=colour, fontsize="small")
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_title(panel.title, fontsize="small")


def _printed(panel: HeatMap) -> list[list[str]]:
    return [["" if math.isnan(value) else f"{value:.3f}" for value in row] for row in panel.values]


def _draw_series(axes: Axes, series: Series, colour: str) -> None:
    reach = list(series.reach) or None
    if series.kind == "bars":
        axes.bar(series.x, series.y, width=_bar_width(series), color=colour, label=series.label, yerr=reach)
    elif series.kind == "points":
        axes.scatter(series.x, series.y, s=9, color=colour, label=series.label, alpha=0.8)
    else:
        marker = "o" if len(series.x) <= 20 else ""
        axes.errorbar(series.x, series.y, yerr=reach, color=colour, label=series.label, marker=marker, capsize=3)


def _bar_width(series: Series) -> float:
    return 0.9 * (series.x[1] - series.x[0]) if len(series.x) > 1 else 0.9


def _to_html(chart: Chart, path: Path) -> None:
    from plotly.subplots import make_subplots

    titles = [panel.title for panel in chart.panels]
    figure = make_subplots(rows=1, cols=len(chart.panels), subplot_titles=titles)
    for column, panel in enumerate(chart.panels, start=1):
        if isinstance(panel, HeatMap):
            _add_heat_map(figure, panel, column)
        else:
            _add_panel(figure, panel, column)
    title = f"{chart.title}<br><sub>{chart.note}</sub>" if chart.note else chart.title
    figure.update_layout(title=title, template="plotly_white", width=PANEL_PIXELS * len(chart.panels) + 120)
    figure.write_html(path, include_plotlyjs="directory")


def _add_panel(figure: Any, panel: Panel, column: int) -> None:
    for series, colour in zip(panel.series, cycle(COLOURS)):
        figure.add_trace(_trace(series, colour), row=1, col=column)
    for place, name in panel.marks:
        figure.add_vline(place, line_dash="dash", line_width=1, annotation_text=name, row=1, col=column)
    figure.update_xaxes(title_text=panel.x, showticklabels=panel.ticks, row=1, col=column)
    figure.update_yaxes(title_text=panel.y, showticklabels=panel.ticks, row=1, col=column)


def _add_heat_map(figure: Any, panel: HeatMap, column: int) -> None:
    from plotly import graph_objects

    values = [[None if math.isnan(value) else value for value in row] for row in panel.values]
    names = {"x": list(panel.columns), "y": list(panel.rows)}
    shown = {"text": _printed(panel), "texttemplate": "%{text}", "colorscale": HEAT, "showscale": False}
    figure.add_trace(graph_objects.Heatmap(z=values, zmin=0, zmax=1, **names, **shown), row=1, col=column)
    figure.update_xaxes(title_text=panel.x, type="category", row=1, col=column)
    figure.update_yaxes(title_text=panel.y, type="category", autorange="reversed", row=1, col=column)


def _trace(series: Series, colour: str) -> Any:
    from plotly import graph_objects

    common: dict[str, Any] = {"x": list(series.x), "y": list(series.y), "name": series.label}
    if series.reach:
        common["error_y"] = {"array": list(series.reach)}
    if series.kind == "bars":
        return graph_objects.Bar(**common, marker_color=colour)
    mode = "markers" if series.kind == "points" else "lines+markers" if len(series.x) <= 20 else "lines"
    return graph_objects.Scatter(**common, mode=mode, marker={"color": colour, "size": 5}, line_color=colour)
