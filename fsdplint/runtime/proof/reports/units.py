"""The units of the runs of a proof as a tree, with what a rank holds before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fsdplint.comparison.unit_collectives import collectives_text
from fsdplint.report.result import plural
from fsdplint.report.unit_picture import KINDS, Node
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.compare_layout import describe_placement
from fsdplint.runtime.proof.reports import schema
from fsdplint.runtime.proof.unit_memory import HeldUnit, held_units

ROOT, WITHOUT_UNIT = "(root)", "parameters without FSDP"
_RUNS = ("before", "after")
_Found = dict[str | None, dict[str, HeldUnit]]


def memory_table(runs: Mapping[str, Run]) -> list[tuple[str, dict[str, dict[str, int]]]]:
    """For each unit its name, and the bytes of each run by what they are for; then the sums."""
    found = _find_units(runs)
    rows = [
        (_name(path), {run: unit.sizes for run, unit in of_runs.items()})
        for path, of_runs in found.items()
    ]
    if not rows:
        return []
    total = {
        run: {kind: sum(held[run][kind] for _, held in rows if run in held) for kind in KINDS}
        for run in _RUNS
        if any(run in held for _, held in rows)
    }
    return [*rows, ("all units", total)]


def unit_tree(runs: Mapping[str, Run]) -> list[Node]:
    """The units, each inside of the one around it; empty without a recorded step."""
    found = _find_units(runs)
    nodes = {path: _node(path, of_runs) for path, of_runs in found.items()}
    top: list[Node] = []
    for path, node in nodes.items():
        above = _above(path, nodes)
        (nodes[above].nodes if above is not None else top).append(node)
        if above:
            node.name = node.name.removeprefix(f"{above}.")
    return top


def unit_data(runs: Mapping[str, Run]) -> list[schema.HeldUnit]:
    """The units for other programs."""
    return [
        {
            "path": path,
            "before": _run_data(of_runs.get("before")),
            "after": _run_data(of_runs.get("after")),
        }
        for path, of_runs in _find_units(runs).items()
    ]


def _run_data(unit: HeldUnit | None) -> schema.HeldByRun | None:
    if unit is None:
        return None
    return {
        "units": unit.count,
        "placement": describe_placement(unit.lines[0]),
        "collectives": unit.collectives(),
        "bytes": unit.sizes,
    }


def _find_units(runs: Mapping[str, Run]) -> _Found:
    """The units of both runs by their paths, outer ones first."""
    found: _Found = {}
    for run in _RUNS:
        for unit in held_units(runs[run]) if run in runs else ():
            known = found.setdefault(unit.path, {}).get(run)
            if known is None:
                found[unit.path][run] = unit
            else:  # alike paths with other placements
                known.lines += unit.lines
                known.sizes = {kind: known.sizes[kind] + unit.sizes[kind] for kind in KINDS}
    return dict(sorted(found.items(), key=lambda item: (item[0] is None, *_order(item[0]))))


def _order(path: str | None) -> tuple[int, int]:
    """Outer units first; a stable sort keeps the order of the model among the others."""
    return (0, 0) if not path else (1, path.count("."))


def _name(path: str | None) -> str:
    return WITHOUT_UNIT if path is None else path or ROOT


def _above(path: str | None, known: Mapping[str | None, object]) -> str | None:
    """The path of the unit around a unit; None for the outermost ones."""
    if not path or path.endswith(":"):
        return None
    above = path.rpartition(".")[0]
    while above:
        if above in known:
            return above
        above = above.rpartition(".")[0]
    model = f"{path.partition(':')[0]}:" if ":" in path else ""
    return model if model in known else None


def _node(path: str | None, of_runs: Mapping[str, HeldUnit]) -> Node:
    texts = {run: [*_details(unit)] for run, unit in of_runs.items()}
    shared = [line for line in next(iter(texts.values())) if all(line in x for x in texts.values())]
    details = [
        *shared,
        *(f"{run}: {line}" for run, lines in texts.items() for line in lines if line not in shared),
    ]
    if len(of_runs) == 1:
        details.insert(0, f"only {next(iter(of_runs))} the change")
    count = max(unit.count for unit in of_runs.values())
    label = f"{count} units" if count > 1 else ""
    return Node(_name(path), label, details, {run: one.sizes for run, one in of_runs.items()})


def _details(unit: HeldUnit) -> Iterator[str]:
    yield f"{plural(unit.parameters, 'parameter')}, {describe_placement(unit.lines[0])}"
    calls = unit.collectives()
    if calls:
        each = " of each" if unit.count > 1 else ""
        yield f"a forward and a backward{each}: {collectives_text(calls)}"
