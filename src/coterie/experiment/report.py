"""Tables of results: built once as text, shown in a terminal or written as CSV, Markdown or LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from coterie.evaluation import protocols

REFERENCE_NAMES = {
    "popularity": "popularity",
    "constant": "mean rating",
    "item_bias": "item bias",
    "user_item_bias": "user + item bias",
    "ease": "EASE",
}
SHOWN = {
    "leave-one-out": ("hr", "ndcg", "mrr"),
    "user-ratio": ("recall", "ndcg", "precision", "map"),
    "given": ("recall", "ndcg", "precision", "map"),
}
"""The metrics that tell something of their own, by the split: with one held-out item, recall is the hit rate."""

ABOUT_LISTS = ("coverage", "gini")
"""Metrics of the lists that users are shown; the references have none."""


@dataclass(frozen=True)
class Table:
    """A title, columns and rows of text; `notes` belong below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def to_rich(self, *, emphasise: int = 0) -> Group:
        """Return the table for a terminal, its first `emphasise` rows in bold."""
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left", overflow="fold")
        for number, row in enumerate(self.rows):
            table.add_row(*row, style="bold" if number < emphasise else None)
        return Group(Text(self.title, style="bold"), table)

    def to_csv(self) -> str:
        """Return the table as CSV."""
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def to_markdown(self) -> str:
        """Return the table as Markdown, with title and notes."""
        aligned = ["---", *["--:"] * (len(self.columns) - 1)]
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.columns, aligned, *self.rows)]
        notes = [f"\n{note}" for note in self.notes]
        return "\n".join([f"**{self.title}**\n", *lines, *notes]) + "\n"

    def to_latex(self) -> str:
        """Return the table as a LaTeX `table` with booktabs rules; the notes stand in its caption."""
        lines = [" & ".join(map(_latex, cells)) + r" \\" for cells in (self.columns, *self.rows)]
        caption = _latex(". ".join([self.title, *(note.rstrip(".") for note in self.notes)]) + ".")
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{caption}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
} | {sign: rf"\{sign}" for sign in "&%$#_{}"}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def main_metric(protocol: str) -> str:
    """Return the metric of a protocol that chooses the round and stands first, such as `hr@10`."""
    return shown_metrics(protocol)[0]


def shown_metrics(protocol: str) -> tuple[str, ...]:
    """Return the metrics that a table shows, the one that chooses the round first."""
    found = protocols.get(protocol)
    if found.task == "rating":
        return ("mae", "rmse")
    return tuple(f"{name}@{found.k}" for name in SHOWN[found.split])


def result(summary: Mapping[str, Any]) -> Table:
    """Return the result of a run with the references below it."""
    names = shown_metrics(summary["protocol"])
    rows = [_row(summary["algorithm"], summary["metrics"], names, interval_text(summary["intervals"].get(names[0])))]
    rows += [_row(REFERENCE_NAMES[name], values, names) for name, values in summary["references"].items()]
    notes = ["The references see all training data in one place."]
    notes += [f"{REFERENCE_NAMES[name]} left out: {why}." for name, why in summary["references_skipped"].items()]
    return Table(
        f"{summary['algorithm']} on {summary['data']}, protocol {summary['protocol']}, seed {summary['seed']}",
        ("method", names[0], "95 % interval", *names[1:]),
        tuple(rows),
        tuple(notes),
    )


def _row(name: str, values: Mapping[str, float], metrics: tuple[str, ...], interval: str = "") -> tuple[str, ...]:
    main, *others = (f"{values[metric]:.4f}" for metric in metrics)
    return (name, main, interval, *others)


def interval_text(interval: Mapping[str, float] | None) -> str:
    """Spell an interval; nothing where there is none."""
    if interval is None or math.isnan(interval["low"]):
        return ""
    return f"{interval['low']:.3f} to {interval['high']:.3f}"


def facts(summary: Mapping[str, Any]) -> list[str]:
    """Return what else is to be said of a run, a line each: the round chosen, seconds, bytes, memory."""
    seconds, sent = summary["seconds"], summary["bytes"]
    parts = ", ".join(f"{name} {seconds[name]:.1f}" for name in ("compile", "train", "evaluate"))
    lists = {name: value for name, value in summary["metrics"].items() if name.partition("@")[0] in ABOUT_LISTS}
    lines = [
        f"round     {summary['best_round']} of {summary['rounds']}, chosen on validation",
        f"lists     {', '.join(f'{name} {value:.3f}' for name, value in lists.items())}" if lists else "",
        *_robustness(summary["robustness"]),
        *_privacy(summary.get("privacy", {"mechanism": "none"})),
        f"seconds   {seconds['total']:.1f} ({parts})",
        f"bytes     {human_bytes(sent['up'])} up, {human_bytes(sent['down'])} down{_needed(sent)}",
        f"memory    {human_bytes(summary['peak_rss_mb'] * 2**20)} at the peak",
    ]
    return [line for line in lines if line]


def _needed(sent: Mapping[str, int]) -> str:
    """Say how much of what was counted needs to travel, where that is less."""
    up, down = sent.get("needed_up", sent["up"]), sent.get("needed_down", sent["down"])
    less = (up, down) != (sent["up"], sent["down"])
    return f"; {human_bytes(up)} up and {human_bytes(down)} down need to travel" if less else ""


def _robustness(said: Mapping[str, Any]) -> list[str]:
    """Return how uploads were combined and, where the run was attacked, what came of it."""
    optimiser, refused = said["server_optimiser"], said["refused"]
    step = "" if optimiser == "none" else f", server steps by {optimiser} at {said['server_lr']:g}"
    parts = [f"combined  {said['aggregation']}{step}"]
    if said["defence"] != "none" or said["regulariser"] != "none":
        parts.append(f"defence   {said['defence']}, regulariser {said['regulariser']}")
    if said["attack"] != "none":
        last = said["last_exposure"]
        shown = ", ".join(f"er@{k} {last[f'er@{k}']:.3f} (control {last[f'control er@{k}']:.3f})" for k in (5, 20))
        clients = f"{said['malicious']} malicious client{'s' if said['malicious'] > 1 else ''}"
        parts.append(
            f"attack    {said['attack']}, {clients}, for item {', '.join(said['targets'])}; at the end {shown}"
        )
    if refused:
        parts.append(f"refused   {refused} uploads; metrics.jsonl names them")
    return parts


def _privacy(said: Mapping[str, Any]) -> list[str]:
    """Return what noise there was on uploads, and what it promises."""
    if said["mechanism"] == "none":
        return []
    clip = "" if said["clip"] is None else f", uploads clipped to {said['clip']:g} before it"
    lines = [f"noise     {said['mechanism']}, scale {said['scale']:g}{clip}"]
    if "epsilon" not in said:
        return [*lines, f"privacy   {said['guarantee']}"]
    spent = f"epsilon {said['epsilon_per_round']:.4g} per round, {said['epsilon']:.4g} in {said['rounds']} rounds"
    return [*lines, f"privacy   {spent}, delta {said['delta']:g}, unit {said['unit']}: {said['guarantee']}"]


def human_bytes(count: float) -> str:
    """Spell a number of bytes.

    >>> human_bytes(999), human_bytes(1_228_800)
    ('999 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
