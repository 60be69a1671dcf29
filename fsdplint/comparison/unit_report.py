"""The units of programs as text and as JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsdplint.comparison import schema
from fsdplint.comparison.options import RESHARD
from fsdplint.comparison.unit_collectives import collectives_text
from fsdplint.comparison.unit_tree import OFFLOAD, Layout, Unit
from fsdplint.report.notes import place_data
from fsdplint.report.remarks import Place
from fsdplint.report.result import MAX_CONDITIONS
from fsdplint.report.sizes import format_bytes
from fsdplint.version import __version__

MOST = 8  # modules that a line names
WIDTH = 96
PARAMETERS = "parameters"
_APIS = {"fsdp1": "FSDP1", "fsdp2": "fully_shard"}
NOTHING = "No program that shards a model was found."
NO_CALLER = "functions that no program calls"
_UNIT_LINE = re.compile(
    r"\A.+\n(?:  .+:\n)?  .+: (?:FSDP1|fully_shard|not sharded itself)(?:, |\n)"
)
# Values that say that an option is not used.
_UNUSED = {"None", "False"}


@dataclass
class Held:
    """What one rank holds, from a simulation.

    Attributes:
        world: the number of ranks.
        total: the bytes by what they are for.
        by_name: the bytes of each parameter, of its gradient and of its optimizer state, by its
            name in the model; empty if there are several models.
    """

    world: int
    total: Mapping[str, int]
    by_name: Mapping[str, Mapping[str, int]]

    def by_path(self, layout: Layout) -> dict[str, dict[str, int]]:
        """The bytes of each unit by what they are for, by its path; empty for several models."""
        if len(layout.models) != 1 or not self.by_name:
            return {}
        (model,) = layout.models
        found: dict[str, dict[str, int]] = {one.path: {} for one in model.all_units()}
        patterns = {one.path: _pattern(one) for one in reversed(model.all_units())}
        for name, sizes in self.by_name.items():
            path = f"{model.path}.{name}"
            owner = found[next(unit for unit, pattern in patterns.items() if pattern.match(path))]
            for kind, size in sizes.items():
                owner[kind] = owner.get(kind, 0) + size
        return found


def _pattern(unit: Unit) -> re.Pattern[str]:
    """What the names of a unit's parameters begin with."""
    parts = ["[^.]+" if part == "*" else re.escape(part) for part in unit.path.split(".")]
    return re.compile(r"\.".join(parts) + r"\.")


@dataclass
class ProgramLayouts:
    """What one program shards.

    Attributes:
        entry: the file that is run; None for functions that no program calls.
        layouts: what it shards, for each set of configurations.
        held: what one rank holds, if the program was simulated.
    """

    entry: str | None
    layouts: list[Layout]
    held: Held | None = None


@dataclass
class Layouts:
    """What the programs under some paths shard.

    Attributes:
        programs: the programs that shard a model.
        problems: what could not be read, a line each.
    """

    programs: list[ProgramLayouts] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


# Text ---------------------------------------------------------------------------------------------


def as_text(result: Layouts) -> Iterator[str]:
    """A tree for each model of each program."""
    for number, program in enumerate(result.programs):
        if number:
            yield ""
        yield program.entry or NO_CALLER
        for layout in program.layouts:
            yield from _Writer(program).layout(layout)
        if program.held is not None:
            yield f"  {held_text(program.held)}"
    if not result.programs and not result.problems:
        yield NOTHING


def is_text_of_plan(text: str) -> bool:
    """Whether a text was written by `as_text`."""
    return text == f"{NOTHING}\n" or _UNIT_LINE.search(text) is not None


class _Writer:
    """Writes the trees of one program."""

    def __init__(self, program: ProgramLayouts) -> None:
        self.entry = program.entry
        self.held = program.held
        self.several = len(program.layouts) > 1
        self.bytes: dict[str, dict[str, int]] = {}

    def layout(self, layout: Layout) -> Iterator[str]:
        self.bytes = self.held.by_path(layout) if self.held is not None else {}
        if layout.conditions:
            yield f"  when {' and '.join(first_conditions(layout.conditions))}:"
        elif self.several:
            yield "  in other configurations:"
        for model in layout.models:
            yield from self._unit(model, None, "  ", "  ")
        for gap in layout.gaps:
            yield f"  not known: {gap}"

    def _unit(self, unit: Unit, above: Unit | None, first: str, rest: str) -> Iterator[str]:
        """The lines of a unit. first, rest: what its first line and those below it begin with."""
        yield first + self._title(unit, above)
        bar = f"{rest}{'|' if unit.units else ' '}   "
        for detail in details(unit, above):
            yield from textwrap.wrap(
                detail,
                width=max(WIDTH, len(bar) + 40),
                initial_indent=bar,
                subsequent_indent=f"{bar}  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        for number, inner in enumerate(unit.units):
            last = number == len(unit.units) - 1
            below = rest + ("    " if last else "|   ")
            yield from self._unit(inner, unit, f"{rest}+-- ", below)

    def _title(self, unit: Unit, above: Unit | None) -> str:
        kind = class_text(unit, above)
        size = self.bytes.get(unit.path, {}).get(PARAMETERS)
        in_all = " in all" if "*" in unit.path else ""
        held = f", {format_bytes(size)} on this rank{in_all}" if size is not None else ""
        at = api_text(unit, self.entry)
        return f"{inner_path(unit, above)}{f' ({kind})' if kind else ''}: {at}{held}"


def inner_path(unit: Unit, above: Unit | None) -> str:
    """The path of a unit in the one around it."""
    return unit.path if above is None else unit.path.removeprefix(f"{above.path}.")


def class_text(unit: Unit, above: Unit | None) -> str:
    """The class of a unit, and whether it stands for several modules; may be empty."""
    of_several = "each " if "*" in inner_path(unit, above) else ""
    return f"{of_several}{unit.class_name}" if unit.class_name else ""


def api_text(unit: Unit, entry: str | None) -> str:
    """The API that shards a unit, and the line of the call. entry: the file that is run."""
    how = _APIS.get(unit.api, "not sharded itself")
    if unit.at is None:
        return how
    same = unit.at.path == entry
    return f"{how}, line {unit.at.line}" if same else f"{how}, {unit.at.path}:{unit.at.line}"


def details(unit: Unit, above: Unit | None) -> Iterator[str]:
    """What is said about a unit: which modules it is, its options, parameters and collectives."""
    if unit.selection:
        yield f"only {unit.selection}"
    if unit.api and above is not None and _shared_options(unit) == _shared_options(above):
        yield f"{RESHARD} {unit.options.get(RESHARD, '?')}; otherwise as above"
    elif unit.api:
        yield "; ".join(_options(unit.options))
    what = "parameters of" if unit.api else "whole on each rank: parameters of"
    names = [
        ("its own" if one == "." else one) + (" (if any)" if one in unit.uncertain else "")
        for one in unit.parameters
    ]
    if names:
        yield f"{what} {_listing(names)}"
    if unit.collectives and (above is None or unit.collectives != above.collectives):
        yield f"a forward and a backward: {collectives_text(unit.collectives)}"
    if unit.ignored and (above is None or unit.ignored != above.ignored):
        yield f"ignored: {_listing(unit.ignored)}"
    if unit.marks:
        yield ", ".join(unit.marks)
    if unit.has_unknown_parts:
        yield "it may have further parts, whose code cannot be seen"


def _shared_options(unit: Unit) -> dict[str, str]:
    """The options that units of one model usually share."""
    left_out = (RESHARD, "cast_forward_inputs")  # the latter matters at the root only
    return {name: text for name, text in unit.options.items() if name not in left_out}


def _options(options: Mapping[str, str]) -> Iterator[str]:
    yield f"mesh {options.get('mesh', '?')}: {options.get('placements', '?')}"
    for name, text in options.items():
        if name in ("mesh", "placements") or (text in _UNUSED and name != RESHARD):
            continue
        yield name if (name, text) == (OFFLOAD, "True") else f"{name} {text}"


def first_conditions(conditions: Sequence[str]) -> list[str]:
    """The first conditions, and how many more there are."""
    hidden = len(conditions) - MAX_CONDITIONS
    return [*conditions[:MAX_CONDITIONS], *([f"{hidden} more"] if hidden > 0 else [])]


def _listing(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST} more"] if len(names) > MOST else []
    return ", ".join([*names[:MOST], *more])


def held_text(held: Held) -> str:
    """What a rank holds in all."""
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in held.total.items())
    return f"rank 0 of {held.world}: {parts}"


# JSON ---------------------------------------------------------------------------------------------


def as_json(result: Layouts) -> Iterator[str]:
    """The lines of a report for programs."""
    data: schema.ShardingPlan = {
        "schema_version": 1,
        "version": __version__,
        "programs": [_program_data(one) for one in result.programs],
        "problems": result.problems,
    }
    yield json.dumps(data, indent=2)


def _program_data(program: ProgramLayouts) -> schema.PlannedProgram:
    held = program.held
    return {
        "entry": program.entry,
        "layouts": [
            {
                "conditions": layout.conditions,
                "gaps": layout.gaps,
                "models": [
                    _unit_data(one, {} if held is None else held.by_path(layout))
                    for one in layout.models
                ],
            }
            for layout in program.layouts
        ],
        "held": None if held is None else {"world_size": held.world, "bytes": dict(held.total)},
    }


def _unit_data(unit: Unit, sizes: Mapping[str, dict[str, int]]) -> schema.PlannedUnit:
    at = unit.at
    return {
        "path": unit.path,
        "class_name": unit.class_name,
        "api": unit.api or None,
        "at": None if at is None else place_data(Place(at.path, at.line)),
        "options": {name.replace(" ", "_"): text for name, text in unit.options.items()},
        "parameters": unit.parameters,
        "uncertain": unit.uncertain,
        "has_unknown_parts": unit.has_unknown_parts,
        "ignored": unit.ignored,
        "marks": unit.marks,
        "collectives": unit.collectives,
        "selection": unit.selection or None,
        "bytes": sizes.get(unit.path, {}).get(PARAMETERS),
        "held": sizes.get(unit.path),
        "units": [_unit_data(one, sizes) for one in unit.units],
    }
