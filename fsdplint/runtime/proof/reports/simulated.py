"""The report of a simulation as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fsdplint.runtime.launch.failures import relative_path
from fsdplint.runtime.launch.records import Line
from fsdplint.runtime.proof.reports import plots
from fsdplint.runtime.proof.reports.changes import rows
from fsdplint.runtime.proof.reports.markdown import collapsed_diff
from fsdplint.runtime.proof.reports.page import facts_of, render
from fsdplint.runtime.proof.simulated_runs import SimulationResult
from fsdplint.runtime.proof.simulation_report import (
    HELD,
    last_steps,
    problems,
    remaining_text,
    steps_text,
    table,
    title,
)
from fsdplint.version import __version__


def as_page(simulated: SimulationResult) -> str:
    """One self-contained HTML file; call `page.check_libraries` first."""
    last = last_steps(simulated)
    return render(
        "simulated.html.jinja",
        name=relative_path(str(simulated.script)),
        world=simulated.world,
        facts=facts_of(simulated.script, simulated.runs),
        names=list(last),
        table=table(simulated),
        steps=steps_text(simulated),
        pictures=[picture for picture in _pictures(last) if picture],
        rows=rows(simulated.diff, [], ""),
        problems=problems(simulated),
        unfixed=remaining_text(simulated) if simulated.remaining else "",
        version=__version__,
    )


def _pictures(last: Mapping[str, Line]) -> list[str]:
    if not last:
        return []
    held = {name: {key: line[key] for key in HELD} for name, line in last.items()}
    sent = {name: dict(line["sent"]) for name, line in last.items()}
    return [
        plots.bars(*_in_units(held, "Held by the rank")),
        plots.bars(*_in_units(sent, "Sent in a step")),
    ]


def _in_units(
    groups: Mapping[str, Mapping[str, int]], name: str
) -> tuple[dict[str, dict[str, float]], str, str]:
    """Bytes scaled to a unit that suits the largest number: the arguments of `bars`."""
    largest = max((value for values in groups.values() for value in values.values()), default=0)
    unit, size = next(
        (pair for pair in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if largest >= pair[1]),
        ("bytes", 1),
    )
    scaled = {
        run: {key: value / size for key, value in values.items()} for run, values in groups.items()
    }
    return scaled, name, unit


def as_markdown(simulated: SimulationResult) -> str:
    """The table, and the diff in a collapsed section."""
    return "\n".join(_lines(simulated)) + "\n"


def _lines(simulated: SimulationResult) -> Iterator[str]:
    yield f"## Simulation of `{relative_path(str(simulated.script))}`"
    yield ""
    yield title(simulated).partition(": ")[2] + "."
    lines = table(simulated)
    if lines:
        names = list(last_steps(simulated))
        yield ""
        yield "| | " + " | ".join(names) + " |"
        yield "| --- |" + " ---: |" * len(names)
        for name, cells in lines:
            yield f"| {name} | " + " | ".join(cells) + " |"
        yield ""
        yield steps_text(simulated)
    for problem in problems(simulated):
        yield from ("", "```", problem, "```")
    if simulated.remaining:
        yield from ("", remaining_text(simulated))
    yield from collapsed_diff(simulated.diff)
