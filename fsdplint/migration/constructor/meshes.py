"""`process_group` and `device_mesh`: the mesh of FSDP2 for the processes that FSDP1 gets.

FSDP1 builds groups from the strategy at run time. A small local function in the file does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.quotes import quote_of, string_literal
from fsdplint.interpreter.values import is_none
from fsdplint.migration.analysis.variables import definitions, home_of
from fsdplint.migration.constructor.helper_place import helper_place
from fsdplint.migration.constructor.strategy import HYBRID, is_read, single_rank_dimension
from fsdplint.migration.context import Migration
from fsdplint.migration.text import call
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant


@dataclass
class Meshes:
    """Writes the mesh for one constructor call.

    Attributes:
        device: the text of the device's type.
        choices: the strategies that the call may get.
        strategy: the text of a strategy that is chosen at run time.
        with_mesh: the strategies with which the program gives a mesh, and None with all others;
            None if that is not known.
        never_none: whether the new code reads the group of the mesh, which so must not be None.
    """

    migration: Migration
    source: Source
    at: cst.Call
    device: str
    choices: set[str]
    strategy: str
    never_none: bool = False
    with_mesh: frozenset[str] | None = None
    _type: str = ""

    def needs_strategy(self, optional: bool) -> bool:
        """Whether the mesh depends on the strategy."""
        without = self.choices - (self.with_mesh or frozenset())
        hybrid = optional and bool(without & set(HYBRID))
        return "NO_SHARD" in self.choices or hybrid

    def of_group(self, text: str, *, optional: bool) -> str:
        """The mesh of a process group, or of the pair of groups that hybrid sharding takes."""
        if not self.choices & {"NO_SHARD", *HYBRID}:
            mesh = f"{self._mesh_class(self.at)}.from_group({text}, {self.device})"
            if not optional:
                return mesh
            if text.isidentifier():
                return f"{mesh} if {text} is not None else {self._mesh_without_group(self.at)}"
        name, arguments = self._function(optional), [text]
        if self.needs_strategy(optional):
            arguments.append(self.strategy)
        if is_read(self.device):
            arguments.append(self.device)
        return f"{name}({', '.join(arguments)})"

    def of_mesh(self, text: str, *, optional: bool) -> str:
        """The mesh for a `device_mesh`, which may be None if it is optional."""
        if not self.needs_strategy(optional):
            return text
        given = [text, self.strategy, *([self.device] if is_read(self.device) else ())]
        return f"{self._chooser(optional)}({', '.join(given)})"

    def _mesh_without_group(self, at: cst.CSTNode) -> str:
        """The mesh if there is no group: None also means all processes."""
        if not self.never_none:
            return "None"
        init = self.migration.need(
            self.source, "torch.distributed.device_mesh", "init_device_mesh", at
        )
        return f"{init}({self._type or self.device}, ({self._world(at)},))"

    @property
    def _kind_of_device(self) -> str:
        """What a function has of the type of the device: a parameter, or the text itself."""
        return "" if is_read(self.device) else self.device

    @property
    def _device_parameter(self) -> str:
        """The parameter of a function that is given the type of the device."""
        return ", device_type" if is_read(self.device) else ""

    def _mesh_class(self, at: cst.CSTNode) -> str:
        module = "torch.distributed.device_mesh"
        return self.migration.need(self.source, module, "DeviceMesh", at)

    def _q(self, word: str) -> str:
        return string_literal(self.source, word)

    def _function(self, optional: bool) -> str:
        """Write the function that makes a mesh of FSDP1's process groups; returns its name."""
        replicates = "NO_SHARD" in self.choices
        hybrid = bool(self.choices & set(HYBRID))
        variant = f"{sorted(self.choices)} {optional} {self.never_none} {self._kind_of_device}"
        wanted = "mesh_of_groups"
        name, is_new = self.migration.helper_name(self.source, "groups", wanted, variant)
        if not is_new:
            return name
        top = helper_place(self.migration, self.source, self.at)
        lines = [
            f"def {name}(group{', strategy' if self.needs_strategy(optional) else ''}"
            f"{self._device_parameter}):",
            '\t"""The mesh for a process group to shard over, or for a pair of them: one to shard over and',
            "\tone to replicate over.",
            '\t"""',
        ]
        device = "device_type" if is_read(self.device) else self.device
        if " " in device:
            lines.append(f"\tdevice_type = {device}")
            device = "device_type"
        self._type = device
        if optional:
            lines += self._own_meshes(top, "group")
            lines += ["\tif group is None:", f"\t\treturn {self._mesh_without_group(top)}"]
        if replicates:
            lines += [
                f"\tif strategy == {self._q('NO_SHARD')}:",
                f"\t\talone = {self._single_rank_group(top)}",
                "\t\tgroup = (alone, group)",
            ]
        from_group = f"{self._mesh_class(top)}.from_group"
        if not hybrid and not replicates:
            lines.append(f"\treturn {from_group}(group, {device})")
        else:
            lines += [
                "\tif not isinstance(group, tuple):",
                f"\t\treturn {from_group}(group, {device})",
                "\tshard, replicate = group",
                *self._two_dimensional(top, device),
            ]
        self.migration.rewrite.insert_function(self.source, top, lines)
        return name

    def _single_rank_group(self, at: cst.CSTNode) -> str:
        """The text of a group of this rank only, over which a replicated model is sharded."""
        new_group = self.migration.dist(self.source, at, "new_group")
        rank = self.migration.dist(self.source, at, "get_rank")
        arguments = [f"[{rank}()]", "use_local_synchronization=True"]
        return call(self.source, " " * 20, new_group, arguments, depth=2)

    def _two_dimensional(
        self, at: cst.CSTNode, device: str, depth: int = 1, last: str = "shard"
    ) -> list[str]:
        """Lines that return the mesh over `shard` and `replicate`."""
        gather = self.migration.dist(self.source, at, "all_gather_object")
        ranks = self.migration.dist(self.source, at, "get_process_group_ranks")
        tabs = "\t" * depth
        arguments = ["rows", f"{ranks}(shard)", "group=replicate"]
        names = f"mesh_dim_names=({self._q('replicate')}, {self._q(last)})"
        statement = call(
            self.source,
            "",
            f"return {self._mesh_class(at)}.from_group",
            ["[replicate, shard]", device, "rows", names],
            depth=depth,
        )
        return [
            f"{tabs}rows = [None] * replicate.size()",
            tabs + call(self.source, "", gather, arguments, depth=depth),
            tabs + statement,
        ]

    def _chooser(self, optional: bool) -> str:
        """Write the function that gives the mesh for a strategy; returns its name."""
        given = None if self.with_mesh is None else sorted(self.with_mesh)
        variant = f"{sorted(self.choices)} {optional} {self._kind_of_device} {given}"
        wanted = "mesh_for_strategy"
        name, is_new = self.migration.helper_name(self.source, "chooser", wanted, variant)
        if not is_new:
            return name
        top = helper_place(self.migration, self.source, self.at)
        lines = [
            f"def {name}(mesh, strategy{self._device_parameter}):",
            '\t"""The mesh to shard over: some strategies have one of their own."""',
        ]
        self._type = self.device
        if is_read(self.device):
            self._type = "device_type"
        elif optional and " " in self.device:
            lines.append(f"\tdevice_type = {self.device}")
            self._type = "device_type"
        if optional:
            lines += self._own_meshes(top, "mesh")
        if "NO_SHARD" in self.choices and "NO_SHARD" in (self.with_mesh or {"NO_SHARD"}):
            test = f"strategy == {self._q('NO_SHARD')}"
            last = single_rank_dimension(self.migration)
            lines += [
                f"\tif {test}:",
                f"\t\tshard = {self._single_rank_group(top)}",
                "\t\treplicate = mesh.get_group(0)",
                *self._two_dimensional(top, "mesh.device_type", depth=2, last=last),
            ]
        lines.append("\treturn mesh")
        self.migration.rewrite.insert_function(self.source, top, lines)
        return name

    def _own_meshes(self, at: cst.CSTNode, argument: str) -> list[str]:
        """Lines that return the meshes that some strategies build by themselves."""
        lines = []
        given = self.with_mesh
        hybrid = [name for name in HYBRID if name in self.choices and name not in (given or ())]
        is_none = f"{argument} is None and " if given is None else ""
        if hybrid:
            names = ", ".join(map(self._q, hybrid))
            test = f"in ({names})" if len(hybrid) > 1 else f"== {names}"
            lines += [
                f"\tif {is_none}strategy {test}:",
                f"\t\tper_node = {self.migration.torch(self.source, at)}.cuda.device_count()",
                *self._return_mesh(at, f"({self._world(at)} // per_node, per_node)"),
            ]
        if "NO_SHARD" in self.choices and "NO_SHARD" not in (given or ()):
            lines += [
                f"\tif {is_none}strategy == {self._q('NO_SHARD')}:",
                *self._return_mesh(
                    at, f"({self._world(at)}, 1)", single_rank_dimension(self.migration)
                ),
            ]
        return lines

    def _world(self, at: cst.CSTNode) -> str:
        return self.migration.dist(self.source, at, "get_world_size") + "()"

    def _return_mesh(self, at: cst.CSTNode, shape: str, last: str = "shard") -> list[str]:
        need = self.migration.need
        init = need(self.source, "torch.distributed.device_mesh", "init_device_mesh", at)
        quote = quote_of(self.source)
        names = f"mesh_dim_names=({quote}replicate{quote}, {quote}{last}{quote})"
        statement = call(self.source, "", f"return {init}", [self._type, shape, names], depth=2)
        return ["\t\t" + statement]


def optional(migration: Migration, source: Source, value: cst.BaseExpression) -> bool:
    """Whether a mesh or group may be None, judged by its values and its code."""
    if any(is_none(found) for found in migration.values(value)):
        return True
    if isinstance(value, cst.IfExp):
        arms = (value.body, value.orelse)
        return any(is_constant(x, "None") or optional(migration, source, x) for x in arms)
    if not isinstance(value, cst.Name):
        return False
    found = definitions(source, value)
    if not found:
        return _optional_parameter(migration, source, value)
    values = [item.value for item in found]
    return any(
        is_constant(x, "None") or (isinstance(x, cst.IfExp) and optional(migration, source, x))
        for x in values
    )


def _optional_parameter(migration: Migration, source: Source, name: cst.Name) -> bool:
    """Whether a parameter may be None; other variables without definitions always may."""
    home = home_of(source, name)
    if not isinstance(home, cst.FunctionDef):
        return True
    parameters = home.params
    for parameter in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params):
        if parameter.name.value == name.value:
            default = is_constant(parameter.default, "None")
            return default or not migration.values(name)
    return True
