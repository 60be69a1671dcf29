"""The units of a run as a tree: what each shards, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from fsdplint.comparison.layout_conditions import UNKNOWN, Run, conditions_of, run_of
from fsdplint.comparison.model_names import ModelNames
from fsdplint.comparison.module_selection import selection_text
from fsdplint.comparison.options import RESHARD
from fsdplint.comparison.plan import plan_of
from fsdplint.comparison.sharding import UNIT, sharded_units, unit_options
from fsdplint.comparison.unit_collectives import unit_collectives
from fsdplint.trace import (
    Checkpointed,
    Compiled,
    Location,
    ModuleAttached,
    ModuleBuilt,
    ModuleCopied,
    Sharded,
    Trace,
    Wrapped,
)
from fsdplint.trace.arguments import (
    Argument,
    Arguments,
    Built,
    Constant,
    OneOf,
    Opaque,
    PartOfModel,
    SomeOf,
)

PLACEMENT = "shard_placement_fn"
OFFLOAD = "offload to the CPU"
_IGNORED = "ignored parameters"
_PARSED = "argparse.ArgumentParser.parse_args()"
_IGNORED_BY = ("ignored_params", "ignored_modules", "ignored_states", "ignored_parameters")

# The events that a layout is made of.
_OF_LAYOUTS = (ModuleBuilt, ModuleAttached, ModuleCopied, Wrapped, Sharded, Checkpointed, Compiled)


@dataclass
class Unit:
    """A module that is sharded by itself, or a model with such modules.

    Attributes:
        path: the path of the module: "model.layers.*.mlp"; "*" stands for all elements of a list.
        class_name: its class; may be empty.
        api: "fsdp1" or "fsdp2"; empty for a model that is not sharded itself.
        at: the call that shards it.
        options: the values of its options as text, by their names; "?" for an unknown value.
        parameters: the modules whose own parameters it shards, by their paths in the unit ("." for
            the unit itself). For a model that is not sharded itself, those that stay whole on each
            rank.
        uncertain: those of them whose own parameters are not known to exist.
        has_unknown_parts: whether it may have further parts.
        ignored: the modules whose parameters are ignored, by their paths, or the expression for
            what is ignored where the modules are not known.
        marks: what else is done with it, such as "torch.compile".
        collectives: the calls of each collective in a forward and a backward of the module while
            its parameters are trained; none if it has no parameters; None if they are not known.
        selection: in words, which of the modules at this path are sharded; empty for all of them.
        units: the units inside of it.
    """

    path: str
    class_name: str
    api: Literal["", "fsdp1", "fsdp2"] = ""
    at: Location | None = None
    options: dict[str, str] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    uncertain: list[str] = field(default_factory=list)
    has_unknown_parts: bool = False
    ignored: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    collectives: dict[str, int] | None = None
    selection: str = ""
    units: list[Unit] = field(default_factory=list)

    def all_units(self) -> list[Unit]:
        """The unit and those inside of it, from the top."""
        return [self, *(one for unit in self.units for one in unit.all_units())]


@dataclass
class Layout:
    """What a program shards in some configurations.

    Attributes:
        models: the models.
        conditions: what holds in these configurations and not in the others.
        gaps: what is not known.
    """

    models: list[Unit]
    conditions: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)


# Configurations -----------------------------------------------------------------------------------


def layouts(traces: Iterable[Trace]) -> list[Layout]:
    """The different layouts in the runs of a program that shard; those of whole runs, if any."""
    sharding = [one for one in traces if one.shardings()]
    whole = [one for one in sharding if one.entry is not None and one.complete]
    groups: list[tuple[Layout, list[Run]]] = []
    for trace in whole or sharding:
        layout = _layout(trace)
        known = next((one for one in groups if one[0] == layout), None)
        if known is None:
            known = layout, []
            groups.append(known)
        known[1].append(run_of(trace, _OF_LAYOUTS))
    found = conditions_of([runs for _, runs in groups])
    for (layout, _), (conditions, clear) in zip(groups, found, strict=True):
        layout.conditions = conditions
        if not clear:
            layout.gaps.append(UNKNOWN)
    return [layout for layout, _ in groups]


# One run ------------------------------------------------------------------------------------------


def _layout(trace: Trace) -> Layout:
    gaps = [reason for topic, reason in plan_of(trace).gaps.items() if topic in ("", UNIT)]
    names, units = ModelNames(trace), sharded_units(trace)
    roots = [one for one in trace.modules if one in names.sharded_models]
    models = [_Model(trace, names, units, root).tree() for root in roots]
    _add_keys(models, [trace.modules[root].key for root in roots])
    return Layout(models, gaps=list(dict.fromkeys(gaps)))


def _add_keys(models: list[Unit], keys: list[str]) -> None:
    """Name models that have the same name by their keys in the program's dict, if they have any."""
    several = Counter(model.path for model in models)
    for model, key in zip(models, keys, strict=True):
        if key and several[model.path] > 1:
            old = model.path
            for unit in model.all_units():
                unit.path = f"{old}[{key}]{unit.path.removeprefix(old)}"


class _Model:
    """Makes the tree of one model."""

    def __init__(
        self, trace: Trace, names: ModelNames, sharded: dict[str, Wrapped | Sharded], root: str
    ) -> None:
        self.trace = trace
        self.names = names
        self.sharded = {trace.unwrap(unit): event for unit, event in sharded.items()}
        self.root = root
        self.top = names.path(root)
        self.roots: set[str] = set()

    def tree(self) -> Unit:
        """The model, with the units inside of it."""
        modules = self._modules()
        sharded = [path for path, module in modules.items() if module in self.sharded]
        self.roots = {
            path
            for path in sharded
            if not any(path != other and path.startswith(f"{other}.") for other in sharded)
        }
        units = {
            path: self._unit(path, module)
            for path, module in modules.items()
            if path == self.top or module in self.sharded
        }
        for path, module in modules.items():
            self._add_to_owners(units, path, module)
        for unit in units.values():
            if not unit.parameters and not unit.has_unknown_parts:
                unit.collectives = {}  # nothing is gathered
        for path, unit in units.items():
            if path != self.top:
                units[_owner(path.rpartition(".")[0], units)].units.append(unit)
        return units[self.top]

    def _modules(self) -> dict[str, str]:
        """The modules of the model by their paths, without wrappers, the model first."""
        found = {self.top: self.root}
        for module in self.trace.submodules(self.root):
            if self.trace.modules[module].inner is None:
                found.setdefault(self._path(module), module)
        return found

    def _path(self, module: str) -> str:
        """The path of a module, with "*" for the index of an element that stands for several."""
        parts = self.names.path(module).split(".")
        for one in (module, *self.trace.ancestors(module)):
            info = self.trace.modules[one]
            place = len(self.names.path(one).split(".")) - 1
            if info.repeated and 0 < place < len(parts) and parts[place].isdecimal():
                parts[place] = "*"
        return ".".join(parts)

    def _add_to_owners(self, units: dict[str, Unit], path: str, module: str) -> None:
        """Add a module to its unit, and to those above it that have the modules it leaves out."""
        unit = units[_owner(path, units)]
        if any(f"{path}.".startswith(f"{one}.") for one in unit.ignored):
            return
        self._add_parameters(unit, path, module)
        while unit.selection and unit.path != self.top:
            unit = units[_owner(unit.path.rpartition(".")[0], units)]
            self._add_parameters(unit, path, module, certain=False)

    def _add_parameters(self, unit: Unit, path: str, module: str, *, certain: bool = True) -> None:
        info = self.trace.modules[module]
        inside = path.removeprefix(unit.path).removeprefix(".") or "."
        if not info.children_known and not info.qualified_class:
            unit.has_unknown_parts = True
        if info.own_parameters is not False and not info.container:
            unit.parameters.append(inside)
            if info.own_parameters is None or not certain:
                unit.uncertain.append(inside)

    def _unit(self, path: str, module: str) -> Unit:
        info = self.trace.modules[module]
        unit = Unit(path, info.class_name, marks=list(self._marks(module)))
        event = self.sharded.get(module)
        if event is None:
            return unit
        unit.api = "fsdp2" if isinstance(event, Sharded) else "fsdp1"
        unit.at = event.site.location()
        unit.selection = selection_text(self.trace, event) or ""
        options = unit_options(self.trace, event, module, root=path in self.roots)
        given = self.trace.arguments.get(event.index, Arguments(complete=False))
        if options.pop(_IGNORED, Constant("none")) != Constant("none"):
            passed = [given.given[name] for name in _IGNORED_BY if name in given.given]
            unit.ignored = [text for one in passed for text in self._ignored_paths(one)] or ["?"]
        unit.options = {name: _text(value) for name, value in options.items()}
        if isinstance(options[RESHARD], OneOf):  # FSDP1 keeps the parameters of a root
            unit.options[RESHARD] = "False"
        unit.options["placements"] = _placements(options["mesh"], given)
        unit.collectives = _collectives(options["mesh"], unit.options[RESHARD])
        return unit

    def _marks(self, module: str) -> Iterator[str]:
        if any(self.trace.unwrap(one.module) == module for one in self.trace.of(Checkpointed)):
            yield "activation checkpointing"
        if any(self.trace.unwrap(one.module) == module for one in self.trace.of(Compiled)):
            yield "torch.compile"

    def _ignored_paths(self, given: Argument) -> Iterator[str]:
        """What is ignored: the paths of modules, or an expression."""
        if isinstance(given, Built) and given.complete:
            for _, part in given.items:
                yield from self._ignored_paths(part)
        elif isinstance(given, PartOfModel) and given.complete:
            yield from (self._path(one) for one in given.modules if one in self.trace.modules)
        elif isinstance(given, PartOfModel):
            parts = ", ".join(self._path(one) for one in given.modules if one in self.trace.modules)
            yield f"some parameters of {parts}" if parts else "?"
        else:
            yield _text(given)


def _placements(mesh: Argument, given: Arguments) -> str:
    if given.get(PLACEMENT) not in (None, Constant(None)):
        return f"as {PLACEMENT} says"
    if not isinstance(mesh, Built):
        return "?"
    return "Shard(0)" if len(mesh.items) == 1 else "Replicate(), Shard(0)"


def _collectives(mesh: Argument, reshard: str) -> dict[str, int] | None:
    known = reshard in ("True", "False") or reshard.isdecimal()
    if not isinstance(mesh, Built) or not mesh.items or not known:
        return None
    sizes = [size for _, size in mesh.items]
    # The last dimension has the ranks that share the parameters.
    of_size_one = [size == Constant(1) for size in sizes]
    return unit_collectives(
        sharded=not of_size_one[-1],
        replicated=len(sizes) > 1 and not of_size_one[0],
        whole_between=reshard == "False",
    )


def _text(value: Argument) -> str:
    if isinstance(value, Opaque):
        return value.code or value.origin.replace(_PARSED, "parse_args()") or "?"
    if isinstance(value, SomeOf):
        return " or ".join(map(_text, value.values))
    if isinstance(value, Built) and value.name == "mesh":
        return "(" + ", ".join(_text(part) for _, part in value.items) + ")"
    return str(value)


def _owner(path: str, units: dict[str, Unit]) -> str:
    """The unit that a module is in: the nearest one at or above its path."""
    while path not in units:
        above = path.rpartition(".")[0]
        if not above:
            return next(iter(units))
        path = above
    return path
