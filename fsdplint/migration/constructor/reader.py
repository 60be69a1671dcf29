"""The arguments of FSDP1's constructor, one by one, as keywords of `fully_shard`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.reaching import reach
from fsdplint.migration.analysis.variables import definitions, fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    CPU_OFFLOAD_SHARED,
    PARAM_INIT_FN_WITH_SYNC,
    STRATEGY_IN_DICT_WITH_MESH,
    UNKNOWN_ARGUMENT,
)
from fsdplint.migration.blockers.policies import CUSTOM_POLICY_OTHER_MESH
from fsdplint.migration.constructor import (
    batch_norms,
    cpu_backend,
    device,
    ignored,
    meta,
    moved_models,
    reading,
    strategy,
    unused_variables,
)
from fsdplint.migration.constructor.buffers import Buffers, may_have_any_buffers
from fsdplint.migration.constructor.config_objects import ConfigObjects
from fsdplint.migration.constructor.empty_weights import delete_function, empty_weights
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.local_functions import rank0_helper
from fsdplint.migration.constructor.mesh_conditions import strategies_with_mesh
from fsdplint.migration.constructor.meshes import Meshes, optional
from fsdplint.migration.constructor.module_lists import single_module
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.constructor.policy_reader import PolicyReader
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.facts import Precision
from fsdplint.migration.names import IGNORED, PARAMETERS
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.item_reads import read_key
from fsdplint.trace import Wrapped

ARGUMENTS = {*PARAMETERS[1:], "ignored_parameters"}  # the last one is of torch 2.0
UNUSED_ARGUMENTS = {"limit_all_gathers", "use_orig_params", "device_id"}
BOTH_BACKENDS = '`init_process_group("cpu:gloo,cuda:nccl")` has both.'


class Reader:
    """Adds the translation of each argument to `keywords`.

    Attributes:
        values: the values of all arguments, by name.
    """

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
        self.configs = ConfigObjects(migration, source, at)

    def read(self, name: str, value: cst.BaseExpression) -> None:
        """Translate one argument.

        Raises:
            Blocked: it has no rewrite.
        """
        if name not in ARGUMENTS:
            raise Blocked(self.source, value, UNKNOWN_ARGUMENT(name=name))
        if name in UNUSED_ARGUMENTS:
            self._account_for_unused(value)
        else:
            getattr(self, f"_{name}")(value)
        if name == "device_id":
            self.keywords.setup += device.set_device(self.migration, self.source, self.at, value)

    def add_default_mesh(self) -> None:
        """Add a mesh if FSDP2 would choose another device than FSDP1, as in training on the CPU."""
        if "mesh" in dict(self.keywords.items) or self.keywords.spreads_mesh:
            return
        mesh = self.default_mesh()
        if mesh:
            self.keywords.items.insert(0, ("mesh", mesh))

    def set_device_of_model(self, call: cst.Call) -> None:
        """Set the device that the model was moved to, if there is no `device_id`."""
        given = self.values.get("device_id")
        if (given is not None and not is_constant(given, "None")) or device.is_set(self.migration):
            return
        moved = moved_models.device_of_model(self.migration, self.source, call)
        self.keywords.setup += device.set_device(self.migration, self.source, self.at, moved)

    def find_norms(self) -> None:
        """Find whether FSDP1 keeps batch norms of the model out of its mixed precision."""
        policy, given = (self.values.get(x) for x in ("auto_wrap_policy", "mixed_precision"))
        if any(value is None or is_constant(value, "None") for value in (policy, given)):
            return
        assert given is not None
        if not self._always_none(given):
            self.keywords.norms = batch_norms.are_excluded(self.migration)

    def default_mesh(self) -> str:
        """The mesh of all ranks on `device_id`, "" if FSDP2 chooses that device by itself."""
        node = self.values.get("device_id")
        if node is None or not (
            device.kind(self.migration, self.source, node) == "cpu"
            or device.is_setting(self.migration, self.source, node)
        ):
            return ""
        init = self.migration.need(
            self.source, "torch.distributed.device_mesh", "init_device_mesh", self.at
        )
        world = self.migration.dist(self.source, self.at, "get_world_size") + "()"
        kind = device.type_text(self.migration, self.source, self.at, node)
        return f"{init}({kind}, ({world},))"

    # One argument each --------------------------------------------------------------------------

    def _auto_wrap_policy(self, value: cst.BaseExpression) -> None:
        if read_key(value) and self._runs_without("auto_wrap_policy"):
            self._account_for_unused(value)
            self.migration.lost_reads.add(value)
            self.values["auto_wrap_policy"] = cst.Name("None")
            return
        function = self.values.get("param_init_fn")
        initializes = meta.may_be_meta(self.migration, self.at) or (
            function is not None
            and not is_constant(function, "None")
            and empty_weights(self.migration, self.source, self.at, function) is None
        )
        given = [self.values.get(name) for name in IGNORED]
        ignores = any(x is not None and not is_constant(x, "None") for x in given)
        reader = PolicyReader(
            *(self.migration, self.source, self.at),
            initializes=initializes,
            ignores=ignores,
            norms=batch_norms.are_excluded(self.migration),
        )
        policy = self.keywords.policy = reader.read(value)
        if policy is not None and strategy.KEY in dict(policy.unit):
            self._check_unit_strategy(value, policy)

    def _runs_without(self, argument: str) -> bool:
        """Whether an argument is None, or not given, in all runs of the call."""
        options = [
            event.options
            for trace in self.migration.program.traces
            for event in trace.of(Wrapped)
            if isinstance(event.site, NodeSite) and event.site.node is self.at
        ]
        return bool(options) and not any({argument, "**"}.intersection(one) for one in options)

    def _check_unit_strategy(self, value: cst.BaseExpression, policy: Policy) -> None:
        """Block if units with their own strategy need another mesh; drop what the model has, too."""
        chosen = self.values.get("sharding_strategy")
        found = {"FULL_SHARD"}
        if chosen is not None and not is_constant(chosen, "None"):
            certain = strategy.certain(self.migration, chosen)
            found = certain or strategy.choices(self.migration, self._value_of(chosen))
            if not found <= set(strategy.ONE_DIMENSIONAL):
                if not found & set(strategy.ONE_DIMENSIONAL):
                    raise Blocked(self.source, value, CUSTOM_POLICY_OTHER_MESH())
                self._note_unit_meshes(value)
        reshards = {str(name not in strategy.NO_RESHARD) for name in found}
        if not policy.gives_arguments and len(reshards) == 1:
            same = (strategy.KEY, reshards.pop())
            policy.unit = tuple(one for one in policy.unit if one != same)

    def _note_unit_meshes(self, value: cst.BaseExpression) -> None:
        self.migration.note(
            "units with a strategy of their own are sharded over the mesh of the model",
            self.source,
            value,
            detail="If the program chooses NO_SHARD for the model, they are replicated, too (FSDP1: "
            "sharded). The values are the same.",
        )

    def _sharding_strategy(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "None"):
            return
        literal = self._literal(value)
        device_type = self._device_text()
        processes = self._process_argument()
        if processes:
            self._meshes(processes)
        found = strategy.keywords(
            self.migration,
            self.source,
            self.at,
            literal,
            device_type,
            processes,
            self.keywords.strategy,
            bool(self.default_mesh()),
        )
        self.keywords.items.extend(found.items)
        self.keywords.spread = found.spread
        self.keywords.spreads_mesh = found.spreads_mesh
        self.keywords.no_reshard_if = found.no_reshard_if

    def _process_argument(self) -> str:
        """The name of the argument with the processes to shard over, or ""."""
        for name in ("device_mesh", "process_group"):
            node = self.values.get(name)
            if node is not None and not is_constant(node, "None"):
                return name
        return ""

    def _literal(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """The member of `ShardingStrategy` that a variable of this function holds, else the value."""
        if isinstance(value, cst.Name):
            found = definitions(self.source, value)
            if found and len(found) == 1 and strategy.literal(self.migration, found[0].value):
                self._account_for_unused(value)
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
        mesh = meshes.of_mesh(text, optional=optional(self.migration, self.source, value))
        self.keywords.items.insert(0, ("mesh", mesh))

    def _process_group(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "None"):
            return
        meshes = self._meshes("process_group")
        text = expression(self.migration, self.source, value)
        mesh = meshes.of_group(text, optional=optional(self.migration, self.source, value))
        self.keywords.two_dimensional = bool(meshes.choices - set(strategy.ONE_DIMENSIONAL))
        self.keywords.items.insert(0, ("mesh", mesh))

    def _meshes(self, argument: str) -> Meshes:
        """The writer of the mesh for an argument; a mesh that depends on the strategy gets it."""
        may_be_none = optional(self.migration, self.source, self.values[argument])
        chosen = self.values.get("sharding_strategy")
        choices = {"FULL_SHARD"}
        if chosen is not None and not is_constant(chosen, "None"):
            value = self._value_of(chosen)
            name = strategy.literal(self.migration, value)
            choices = {name} if name else strategy.choices(self.migration, value)
        sync = self.values.get("sync_module_states")
        needs_group = (
            argument == "process_group" and sync is not None and not is_constant(sync, "False")
        )
        meshes = Meshes(
            self.migration, self.source, self.at, self._device_text(), choices, "", needs_group
        )
        if chosen is not None and argument == "device_mesh":
            meshes.with_mesh = strategies_with_mesh(
                self.migration, self.source, self.values[argument], chosen
            )
        if chosen is not None and meshes.needs_strategy(may_be_none):
            meshes.strategy = self._strategy_text(chosen)
        return meshes

    def _strategy_text(self, chosen: cst.BaseExpression) -> str:
        """The text of the strategy; an expression gets a variable, since the text is used twice."""
        text = expression(self.migration, self.source, chosen)
        if is_repeatable(chosen) or strategy.literal(self.migration, chosen):
            return text
        if not self.keywords.strategy:
            if not any(chosen is arg.value for arg in self.at.args):
                raise Blocked(self.source, chosen, STRATEGY_IN_DICT_WITH_MESH())
            self.keywords.strategy = self.keywords.variable("sharding_strategy", text)
        return self.keywords.strategy

    def _value_of(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """The value of a variable that is assigned once; any other node itself."""
        found = definitions(self.source, value) if isinstance(value, cst.Name) else None
        return found[0].value if found and len(found) == 1 else value

    def _mixed_precision(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "None") or self._always_none(value):
            self._account_for_unused(value)
            return
        text = self.configs.text_or_default(value, "MixedPrecision", "MixedPrecisionPolicy")
        self.keywords.items.append(("mp_policy", text))
        self.keywords.policy_may_be_default = self.configs.may_be_none(value)
        buffers = Buffers(
            self.migration,
            self.source,
            self.at,
            self.precision,
            self.configs.may_be_none,
            self.values.get("auto_wrap_policy"),
        )
        buffers.add_casts(value, self.keywords)

    def _always_none(self, value: cst.BaseExpression) -> bool:
        if not isinstance(value, cst.Name):
            return False
        last = reach(self.source, value)
        if last is not None and is_constant(last.definition.value, "None"):
            return True
        found = definitions(self.source, value)
        return bool(found) and all(is_constant(item.value, "None") for item in found or ())

    def _cpu_offload(self, value: cst.BaseExpression) -> None:
        migration = self.migration
        if is_constant(value, "None") or self._is_disabled_offload(value):
            migration.account_for(self.source, value)
            return
        if self._always_none(value):
            self._account_for_unused(value)
            return
        if isinstance(value, cst.Name):
            found = definitions(self.source, value)
            if found and len(found) == 1 and self._is_disabled_offload(found[0].value):
                self._account_for_unused(value)
                if not all(
                    part in migration.consumed
                    for part in reading.references(migration, found[0].value)
                ):
                    raise Blocked(self.source, value, CPU_OFFLOAD_SHARED())
                return
        text = self.configs.text_or_default(value, "CPUOffload", "OffloadPolicy")
        self.keywords.items.append(("offload_policy", text))
        self.keywords.offload = reading.offloads(text)
        self.keywords.has_buffers = may_have_any_buffers(migration, self.at)
        self.keywords.offload_variable = reading.policy_variable(text)
        cpu_backend.add(migration)
        if any("clip_grad_norm_" in source.text for source in migration.sources):
            migration.note(
                "clipping the gradients of an offloaded model needs a CPU backend too",
                self.source,
                value,
                detail=BOTH_BACKENDS,
            )
        if any("summon_full_params" in source.text for source in migration.sources):
            migration.note(
                "`full_tensor()` of an offloaded parameter needs a CPU backend too",
                self.source,
                value,
                detail=BOTH_BACKENDS,
            )

    def _is_disabled_offload(self, value: cst.BaseExpression) -> bool:
        if self.migration.called_name(value) != "CPUOffload" or not isinstance(value, cst.Call):
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
                detail="FSDP2 gathers the next unit while it computes the gradients of one. That takes "
                "less time, and the parameters of one more unit are in memory.",
            )
        self._account_for_unused(value)

    def _forward_prefetch(self, value: cst.BaseExpression) -> None:
        if not is_constant(value, "False"):
            self.migration.note(
                "explicit forward prefetching is dropped (set_modules_to_forward_prefetch has it)",
                self.source,
                value,
                detail="It matters only where the CPU falls behind the GPU.",
            )
        self._account_for_unused(value)

    def _sync_module_states(self, value: cst.BaseExpression) -> None:
        if is_constant(value, "False") or self.keywords.syncs_each_module:
            return
        mesh = self.values.get("device_mesh")
        group = self.values.get("process_group")
        has_group = group is not None and not is_constant(group, "None")
        self.keywords.in_group = has_group or isinstance(mesh, cst.Subscript)
        self.keywords.two_dimensional |= isinstance(mesh, cst.Subscript)
        init_function = self.values.get("param_init_fn")
        self.keywords.empty_ranks = init_function is not None and not is_constant(
            init_function, "None"
        )
        self.keywords.sync = expression(self.migration, self.source, value)

    def _ignored_modules(self, value: cst.BaseExpression) -> None:
        self._add_ignored(value, "ignored_modules", modules=True)

    def _ignored_states(self, value: cst.BaseExpression) -> None:
        modules = ignored.holds_modules(self.migration, value)
        self._add_ignored(value, "ignored_states", modules=modules)

    def _ignored_parameters(self, value: cst.BaseExpression) -> None:  # the name in torch 2.0
        self._add_ignored(value, "ignored_parameters", modules=False)

    def _add_ignored(self, value: cst.BaseExpression, argument: str, *, modules: bool) -> None:
        text = ignored.ignored_params(self.migration, self.source, value, argument, modules)
        if not text:
            self._account_for_unused(value)
            return
        self.keywords.has_ignored = True
        self.keywords.ignored_values = list(self.migration.values(value))
        if modules:
            self.keywords.ignored_modules = ignored.ignored_text(self.migration, self.source, value)
        else:
            self.keywords.ignored_parameters = text
        self.keywords.items.append(("ignored_params", text))
        device_id = self.values.get("device_id")
        if device_id is not None and not is_constant(device_id, "None"):
            target = expression(self.migration, self.source, device_id)
            single = single_module(self.keywords.ignored_modules) if modules else None
            if single is not None:
                self.keywords.setup.append(f"{single}.to({target})")
            elif modules:
                module = fresh(self.source, self.at, "module", "part", "ignored_module")
                self.keywords.setup += [
                    f"for {module} in {self.keywords.ignored_modules}:",
                    f"\t{module}.to({target})",
                ]
            else:
                names = text.removeprefix("set(").removesuffix(")")
                one = fresh(self.source, self.at, "parameter", "ignored_parameter")
                self.keywords.setup += [
                    f"for {one} in {names}:",
                    f"\t{one}.data = {one}.data.to({target})",
                ]

    def _param_init_fn(self, value: cst.BaseExpression) -> None:
        """`lambda m: m.to_empty(...)`, on ranks that get rank 0's weights, or an initialisation."""
        if is_constant(value, "None"):
            return
        found = empty_weights(self.migration, self.source, self.at, value)
        if found is None:
            text = self._from_first_rank(value, expression(self.migration, self.source, value))
            if self.keywords.syncs_each_module or not is_repeatable(value):
                text = self.keywords.variable("param_init_fn", text)
            self.keywords.initialize = text
            return
        if found.definition is not None:
            delete_function(self.migration, self.source, value, found.definition)
        elif found.is_variable:
            self._account_for_unused(value)
        self.keywords.materialize, self.keywords.empty_dtype = found.device, found.dtype

    def _from_first_rank(self, value: cst.BaseExpression, text: str) -> str:
        """The text of a `param_init_fn` after which all ranks have rank 0's values, if they sync.

        Raises:
            Blocked: the values are not those of rank 0, or not all of the model is initialized.
        """
        sync = self.values.get("sync_module_states")
        if sync is None or is_constant(sync, "False"):
            return text
        given = [self.values.get(name) for name in ("process_group", "device_mesh", *IGNORED)]
        plain = all(one is None or is_constant(one, "None") for one in given)
        if not plain or not meta.is_on_meta(self.migration, self.at) or is_constant(value, "None"):
            raise Blocked(self.source, value, PARAM_INIT_FN_WITH_SYNC())
        helper = rank0_helper(self.migration, self.source, self.at)
        condition = self.keywords.sync or expression(self.migration, self.source, sync)
        self.keywords.sync, self.keywords.syncs_each_module = "", True
        if condition == "True":
            return f"{helper}({text})"
        if not is_repeatable(value):
            text = self.keywords.variable("param_init_fn", text)
        return f"{helper}({text}) if {condition} else {text}"

    def _account_for_unused(self, value: cst.BaseExpression) -> None:
        """Account for an argument that FSDP2 does not need, and delete its variable if possible."""
        unused_variables.delete_variable_of(self.migration, self.source, value)
