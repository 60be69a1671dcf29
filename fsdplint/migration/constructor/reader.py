"""The arguments of FSDP1's constructor, one by one, as keywords of `fully_shard`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, fresh, return_values
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    CONFIG_UNSEEN,
    CPU_OFFLOAD_SHARED,
    PARAM_INIT_FN_WITH_SYNC,
    STRATEGY_IN_DICT_WITH_MESH,
    UNKNOWN_ARGUMENT,
)
from fsdplint.migration.constructor import device, ignored, reading, strategy, unused_variables
from fsdplint.migration.constructor.buffers import Buffers
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.meshes import Meshes, optional
from fsdplint.migration.constructor.policy import Policies
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.facts import Precision
from fsdplint.migration.names import PARAMETERS
from fsdplint.migration.text import simple
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

ARGUMENTS = {*PARAMETERS[1:], "ignored_parameters"}  # torch 2.0 had the last one
SILENT = {"limit_all_gathers", "use_orig_params", "device_id"}


class Reader:
    """Translates one argument after the other into `keywords`."""

    def __init__(
        self,
        migration: Migration,
        source: Source,
        at: cst.Call,
        keywords: Keywords,
        precision: Precision,
        values: dict[str, cst.BaseExpression],
    ) -> None:
        self.migration = migration
        self.source = source
        self.at = at
        self.keywords = keywords
        self.precision = precision
        self.values = values

    def read(self, name: str, value: cst.BaseExpression) -> None:
        if name not in ARGUMENTS:
            raise Blocked(
                self.source,
                value,
                UNKNOWN_ARGUMENT(name=name),
            )
        if name in SILENT:
            self._drop(value)
        else:
            getattr(self, f"_{name}")(value)
        if name == "device_id":
            self.keywords.before += device.set_device(self.migration, self.source, self.at, value)

    def mesh(self) -> None:
        """FSDP2's own choice of the device is not FSDP1's where the program trains on the CPU."""
        if "mesh" in dict(self.keywords.items) or self.keywords.spreads_mesh:
            return
        made = self.default_mesh()
        if made:
            self.keywords.items.insert(0, ("mesh", made))

    def default_mesh(self) -> str:
        """The mesh of all ranks on the device that was given, "" where it is FSDP2's choice too."""
        node = self.values.get("device_id")
        if node is None or device.default_mesh_fits(self.migration, self.source, node):
            return ""
        init = self.migration.need(
            self.source, "torch.distributed.device_mesh", "init_device_mesh", self.at
        )
        world = self.migration.dist(self.source, self.at, "get_world_size") + "()"
        kind = device.type_text(self.migration, self.source, self.at, node)
        return f"{init}({kind}, ({world},))"

    # One argument each --------------------------------------------------------------------------

    def _auto_wrap_policy(self, value: cst.BaseExpression) -> None:
        reader = Policies(self.migration, self.source, self.at)
        self.keywords.policy = reader.read(value)

    def _sharding_strategy(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "None"):
            return
        found = self._literal(value)
        device_type = self._device_text()
        given = self._given()
        if given:
            self._meshes(given)
        chosen = strategy.keywords(
            self.migration, self.source, self.at, found, device_type, given, self.keywords.strategy
        )
        self.keywords.items.extend(chosen.items)
        self.keywords.spread = chosen.spread
        self.keywords.spreads_mesh = chosen.mesh
        self.keywords.kept = chosen.kept

    def _given(self) -> str:
        """The argument that says over which processes the model is sharded, or ""."""
        for name in ("device_mesh", "process_group"):
            node = self.values.get(name)
            if node is not None and not is_constant(node, "None"):
                return name
        return ""

    def _literal(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """The strategy that a variable of this function holds, if it is a literal one."""
        if isinstance(value, cst.Name):
            found = definitions(self.source, value)
            if found and len(found) == 1 and strategy.literal(self.migration, found[0].value):
                self._drop(value)
                return found[0].value
        return value

    def _device_text(self) -> str:
        node = self.values.get("device_id")
        return device.type_text(self.migration, self.source, self.at, node)

    def _device_mesh(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "None"):
            return
        meshes = self._meshes("device_mesh")
        text = expression(self.migration, self.source, value)
        made = meshes.of_mesh(text, optional=optional(self.migration, self.source, value))
        self.keywords.items.insert(0, ("mesh", made))

    def _process_group(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "None"):
            return
        meshes = self._meshes("process_group")
        text = expression(self.migration, self.source, value)
        made = meshes.of_group(text, optional=optional(self.migration, self.source, value))
        self.keywords.in_two = bool(meshes.choices - set(strategy.PLAIN))
        self.keywords.items.insert(0, ("mesh", made))

    def _meshes(self, given: str) -> Meshes:
        """What writes meshes; the strategy gets a variable where the mesh depends on it."""
        absent = optional(self.migration, self.source, self.values[given])
        chosen = self.values.get("sharding_strategy")
        choices = {"FULL_SHARD"}
        if chosen is not None and not is_constant(chosen, "None"):
            resolved = self._resolved(chosen)
            name = strategy.literal(self.migration, resolved)
            choices = {name} if name else strategy.choices(self.migration, resolved)
        device_type = self._device_text()
        synced = self.values.get("sync_module_states")
        asked = given == "process_group" and synced is not None
        meshes = Meshes(
            self.migration,
            self.source,
            self.at,
            device_type,
            choices,
            "",
            asked and not is_constant(synced, "False"),
        )
        if chosen is not None and meshes.needs_strategy(absent):
            meshes.strategy = self._strategy_text(chosen)
        return meshes

    def _strategy_text(self, chosen: cst.BaseExpression) -> str:
        """The strategy's text, for use in more than one place."""
        text = expression(self.migration, self.source, chosen)
        if simple(chosen) or strategy.literal(self.migration, chosen):
            return text
        if not self.keywords.strategy:
            if not any(chosen is arg.value for arg in self.at.args):
                raise Blocked(self.source, chosen, STRATEGY_IN_DICT_WITH_MESH())
            self.keywords.strategy = self.keywords.variable("sharding_strategy", text)
        return self.keywords.strategy

    def _resolved(self, value: cst.BaseExpression) -> cst.BaseExpression:
        found = definitions(self.source, value) if isinstance(value, cst.Name) else None
        return found[0].value if found and len(found) == 1 else value

    def _started(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """The function that starts empty parameters; the ranks that have weights may be given
        None.
        """
        found = definitions(self.source, value) if isinstance(value, cst.Name) else None
        made = [item.value for item in found or () if not is_constant(item.value, "None")]
        return made[0] if len(made) == 1 else value

    def _mixed_precision(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "None") or self._always_none(value):
            self._drop(value)
            return
        text = self._policy_or_default(value, "MixedPrecision", "MixedPrecisionPolicy")
        self.keywords.items.append(("mp_policy", text))
        buffers = Buffers(self.migration, self.source, self.at, self.precision, self._may_be_none)
        buffers.read(value, self.keywords)

    def _always_none(self, value: cst.BaseExpression) -> bool:
        found = definitions(self.source, value) if isinstance(value, cst.Name) else None
        return bool(found) and all(is_constant(item.value, "None") for item in found or ())

    def _policy_or_default(self, value: cst.BaseExpression, old: str, new: str) -> str:
        """The text of a config object; where it may be None, FSDP2's default is given instead."""
        migration = self.migration

        def default() -> str:
            return migration.need(self.source, "torch.distributed.fsdp", new, self.at) + "()"

        if isinstance(value, cst.IfExp):
            branches = (value.body, value.orelse)
            others = [branch for branch in branches if not is_constant(branch, "None")]
            if len(others) == 2 or not any(self._may_be_none(branch) for branch in others):
                for branch in branches:
                    if is_constant(branch, "None"):
                        migration.substitute(self.source, branch, default())
                text = expression(migration, self.source, value)
                maybe = len(others) == 2 and any(self._may_be_none(x) for x in others)
                return f"({text}) or {default()}" if maybe else text
            return f"({expression(migration, self.source, value)}) or {default()}"
        text = expression(migration, self.source, value)
        if migration.called(value) == old:
            return text
        if not any(name == old for name in migration.names.values()):
            raise Blocked(self.source, value, CONFIG_UNSEEN(old=old))
        if self._may_be_none(value):
            return f"{text} or {default()}"
        return text

    def _may_be_none(
        self, value: cst.BaseExpression, depth: int = 0, source: Source | None = None
    ) -> bool:
        """Whether a config object may be None, judged by all that the code may do."""
        source = source or self.source
        if self.migration.called(value):
            return False
        if depth > 4:
            return True
        if isinstance(value, cst.IfExp):
            return any(self._may_be_none(x, depth + 1, source) for x in (value.body, value.orelse))
        if isinstance(value, cst.Name):
            found = definitions(source, value)
            if not found:
                source, found = reading.imported(self.migration, source, value)
            return not found or any(
                self._may_be_none(item.value, depth + 1, source) for item in found
            )
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Name | cst.Attribute):
            function = self._function(value.func)
            if function is None:
                return True
            home = next(x for x in self.migration.sources if x.parent(function) is not None)
            return any(self._may_be_none(x, depth + 1, home) for x in return_values(function))
        return True

    def _function(self, func: cst.Name | cst.Attribute) -> cst.FunctionDef | None:
        """The function of these files that a call calls, if its name tells."""
        name = func.attr.value if isinstance(func, cst.Attribute) else func.value
        found = [
            node
            for source in self.migration.sources
            for node in source.descend(source.tree)
            if isinstance(node, cst.FunctionDef) and node.name.value == name
        ]
        return found[0] if len(found) == 1 else None

    def _cpu_offload(self, value: cst.BaseExpression) -> None:
        migration = self.migration
        if is_constant(value, "None") or self._off(value):
            migration.account_for(self.source, value)
            return
        if isinstance(value, cst.Name):
            found = definitions(self.source, value)
            if found and len(found) == 1 and self._off(found[0].value):
                self._drop(value)
                if not all(
                    part in migration.consumed for part in reading.named(migration, found[0].value)
                ):
                    raise Blocked(self.source, value, CPU_OFFLOAD_SHARED())
                return
        text = self._policy_or_default(value, "CPUOffload", "OffloadPolicy")
        self.keywords.items.append(("offload_policy", text))
        self.keywords.offload = reading.offloads(text)
        if any("clip_grad_norm_" in source.text for source in migration.sources):
            migration.note(
                "clipping the gradients of an offloaded model needs a CPU backend too",
                self.source,
                value,
                detail='`init_process_group("cpu:gloo,cuda:nccl")` has both.',
            )
        if any("summon_full_params" in source.text for source in migration.sources):
            migration.note(
                "`full_tensor()` of an offloaded parameter needs a CPU backend too",
                self.source,
                value,
                detail='`init_process_group("cpu:gloo,cuda:nccl")` has both.',
            )

    def _off(self, value: cst.BaseExpression) -> bool:
        if self.migration.called(value) != "CPUOffload" or not isinstance(value, cst.Call):
            return False
        return not value.args or (
            len(value.args) == 1 and is_constant(value.args[0].value, "False")
        )

    def _backward_prefetch(self, value: cst.BaseExpression) -> None:
        if not self.migration.fsdp1(value).endswith("BACKWARD_PRE"):
            self.migration.note(
                "FSDP2 always prefetches in the backward pass, as BACKWARD_PRE does",
                self.source,
                value,
                detail="The next unit is gathered while the gradients of one are worked out: it takes "
                "less time, and the parameters of one unit more are in memory.",
            )
        self._drop(value)

    def _forward_prefetch(self, value: cst.BaseExpression) -> None:
        if not is_constant(value, "False"):
            self.migration.note(
                "explicit forward prefetching is dropped (set_modules_to_forward_prefetch has it)",
                self.source,
                value,
                detail="It matters only where the CPU falls behind the GPU.",
            )
        self._drop(value)

    def _sync_module_states(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "False"):
            return
        mesh = self.values.get("device_mesh")
        group = self.values.get("process_group")
        grouped = group is not None and not is_constant(group, "None")
        self.keywords.in_group = grouped or isinstance(mesh, cst.Subscript)
        self.keywords.in_two |= isinstance(mesh, cst.Subscript)
        starts = self.values.get("param_init_fn")
        self.keywords.empty = starts is not None and not is_constant(starts, "None")
        self.keywords.sync = expression(self.migration, self.source, value)

    def _ignored_modules(self, value: cst.BaseExpression) -> None:
        self._ignored(value, modules=True)

    def _ignored_states(self, value: cst.BaseExpression) -> None:
        self._ignored(value, modules=False)

    def _ignored_parameters(self, value: cst.BaseExpression) -> None:  # the name that 2.0 had
        self._ignored(value, modules=False)

    def _ignored(self, value: cst.BaseExpression, *, modules: bool) -> None:
        text = ignored.parameters(self.migration, self.source, value, modules)
        if not text:
            self._drop(value)
            return
        self.keywords.ignored = True
        of_modules = text.startswith("{p for ")
        if of_modules:
            self.keywords.ignored_modules = expression(self.migration, self.source, value)
        self.keywords.items.append(("ignored_params", text))
        given = self.values.get("device_id")
        if given is not None and not is_constant(given, "None"):
            where = expression(self.migration, self.source, given)
            names = text.removeprefix("set(").removesuffix(")")
            moved = ["for parameter in {names}:", "\tparameter.data = parameter.data.to({where})"]
            if of_modules:
                names = self.keywords.ignored_modules
                one = fresh(self.source, self.at, "module", "part", "ignored_module")
                moved = [f"for {one} in {{names}}:", f"\t{one}.to({{where}})"]
            self.keywords.before += [line.format(names=names, where=where) for line in moved]

    def _param_init_fn(self, value: cst.BaseExpression) -> None:
        """`lambda m: m.to_empty(...)` on the ranks that wait for rank 0's weights."""
        if is_constant(value, "None"):
            return
        node = self._started(value)
        chosen = node
        if isinstance(node, cst.IfExp):
            chosen = node.body if is_constant(node.orelse, "None") else node.orelse
        found = reading.to_empty(chosen)
        if found is not None and node is not value:
            self._drop(value)
        if found is None:
            synced = self.values.get("sync_module_states")
            if synced is not None and not is_constant(synced, "False"):
                reason = PARAM_INIT_FN_WITH_SYNC()
                raise Blocked(self.source, value, reason)
            text = expression(self.migration, self.source, value)
            if not simple(value):
                text = self.keywords.variable("param_init_fn", text)
            self.keywords.initialize = text
            return
        self.keywords.materialize = expression(self.migration, self.source, found)

    def _drop(self, value: cst.BaseExpression) -> None:
        """An argument that has no counterpart and needs none; its variable goes too if it can."""
        self.migration.account_for(self.source, value)
        if isinstance(value, cst.Name):
            unused_variables.drop(self.migration, self.source, value)
