"""The plots of a proof as SVG for a page."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.launch.records import by_step
from fsdplint.runtime.proof.compare import norm
from fsdplint.runtime.proof.compare_costs import steady_steps

# Distinguishable with colour blindness, and by line style in print.
_STYLES: Mapping[str, dict[str, Any]] = {
    "before": {"color": "#0072b2", "linestyle": "-", "marker": "o"},
    "after": {"color": "#d55e00", "linestyle": "--", "marker": "x"},
    "without sharding": {"color": "#767676", "linestyle": ":", "marker": ""},
}

# Stands for the colour of the page's text, which is another one in the dark.
_INK = "#123457"


def losses(run: Run) -> list[float | None]:
    """The loss of every step: the mean over its backward passes and all ranks."""
    found: list[float | None] = []
    for lines in by_step(run.records):
        values = [value for line in lines for value in line["losses"] if value is not None]
        found.append(statistics.fmean(values) if values else None)
    return found


def gradient_norms(run: Run) -> list[float | None]:
    """The norm of the full gradient of every step before clipping."""
    return [norm(lines, "gradients") for lines in by_step(run.records)]


def memory(run: Run) -> list[float]:
    """The peak memory of each rank in MiB."""
    peaks = [
        max((line["peak"] for line in record.measures if line.get("peak")), default=0)
        for record in run.records
    ]
    return [peak / 2**20 for peak in peaks]


def collectives(run: Run) -> dict[str, int]:
    """The number of collectives of each kind in the last step of the first rank."""
    lines = steady_steps(run.records[0]) if run.records else []
    return dict(sorted(lines[-1]["collectives"].items())) if lines else {}


def curves(runs: Mapping[str, Run], of: Callable[[Run], Sequence[float | None]], title: str) -> str:
    """A plot with one line for each run; empty if there are no values."""
    lines = {name: of(run) for name, run in runs.items()}
    if not any(value is not None for line in lines.values() for value in line):
        return ""
    figure, axes = _axes(title)
    for name, line in lines.items():
        points = [(step, value) for step, value in enumerate(line, 1) if value is not None]
        axes.plot(*zip(*points, strict=True), label=name, markersize=4, **_STYLES[name])
    axes.set_xlabel("optimizer step")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    return _svg(figure)


def bars(groups: Mapping[str, Mapping[str, float]], title: str, unit: str) -> str:
    """A plot with one bar for each name and run; empty if there are no values."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    if not names or not any(value for values in groups.values() for value in values.values()):
        return ""
    figure, axes = _axes(title)
    width = 0.8 / len(groups)
    for index, (run, values) in enumerate(groups.items()):
        places = [place + (index - (len(groups) - 1) / 2) * width for place in range(len(names))]
        heights = [values.get(name, 0) for name in names]
        drawn = axes.bar(places, heights, width, label=run, color=_STYLES[run]["color"])
        axes.bar_label(drawn, fmt="%.4g", fontsize=7)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(unit)
    axes.margins(y=0.15)
    axes.legend(frameon=False, ncols=len(groups), loc="upper center", bbox_to_anchor=(0.5, -0.1))
    return _svg(figure)


def _axes(title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(_INK)
    axes.tick_params(color=_INK)
    axes.grid(axis="y", alpha=0.25, color=_INK)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Any) -> str:
    import matplotlib
    from matplotlib.text import Text

    for drawn in figure.findobj(Text):
        drawn.set_color(_INK)
    text = io.StringIO()
    # Keep text as text, and make the output reproducible.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fsdplint"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :].replace(_INK, "currentColor")
