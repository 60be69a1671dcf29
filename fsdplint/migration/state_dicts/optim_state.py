"""The optimizer's state: FSDP's static methods become torch's getter and setter."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import OptimizerValue
from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    CONFIG_FIELD_AT_RUN_TIME,
    NO_STATE_TO_BROADCAST,
    OPTIM_INPUT,
    OPTIMIZER_STATE_ARGUMENTS,
    OPTIMIZER_STATE_GROUP,
    STATE_ARGUMENTS,
)
from fsdplint.migration.context import expression
from fsdplint.migration.direct_form.building import only_builds
from fsdplint.migration.state_dicts import (
    branch_loads,
    compiled_states,
    kept_states,
    later_loads,
    resharding,
    returned_states,
    sharded_files,
    state_functions,
    straight_line,
)
from fsdplint.migration.state_dicts.kinds import MODULE, OLD_OPTIMIZER_LOAD, Kind
from fsdplint.migration.state_dicts.loaded_states import LoadReader
from fsdplint.migration.state_dicts.state import ModelStates
from fsdplint.migration.text import atom, call, is_repeatable, on_one_line, statement
from fsdplint.source.source import NodeSite
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.syntax.unused_results import is_result_unused
from fsdplint.trace import OptimizerBuilt


def _is_momentum(arg: cst.Arg) -> bool:
    return arg.keyword is not None and arg.keyword.value == "momentum"


class States(ModelStates):
    """Rewrites all state dicts of one file."""

    @property
    def _loads(self) -> LoadReader:
        return LoadReader(self.migration, self.source)

    def optimizer(self, name: str, node: cst.Call, kind: Kind) -> None:
        """Rewrite a call of a method of the FSDP class that is about an optimizer's state."""
        METHODS[name](self, node, kind)

    def _optim_state_dict(self, node: cst.Call, kind: Kind) -> None:
        named, rest = arguments(node, ("model", "optim", "optim_state_dict", "group"))
        own = named.get("optim_state_dict")
        if own is not None and "optim" in named:
            if (
                self.source.code(own.value)
                == f"{self.source.code(named['optim'].value)}.state_dict()"
            ):
                named.pop("optim_state_dict")
        if rest or not {"model", "optim"} <= set(named) or len(named) > 2:
            raise Blocked(self.source, node, OPTIMIZER_STATE_ARGUMENTS(method="optim_state_dict"))
        self._get_optimizer(node, named, self.get_options(kind, node, optimizer=True))

    def _get_optimizer(self, node: cst.Call, named: dict[str, cst.Arg], options: str) -> None:
        self.migration.account_for(self.source, node.func)
        resharding.reshard_before(self.migration, self.source, node, named["model"].value)
        function, given = self._getter(node, named, options)
        if kept_states.is_kept(self.migration, node):
            indent = self.migration.indent(self.source, node)
            given = [call(self.source, indent, function, given, depth=1)]
            function = self.migration.need(self.source, "copy", "deepcopy", node)
        self.migration.put_call(self.source, node, function, given)
        self.migration.step(
            self.source, node, "Take the optimizer's state with get_optimizer_state_dict"
        )

    def _getter(
        self, node: cst.Call, named: dict[str, cst.Arg], options: str
    ) -> tuple[str, list[str]]:
        """The function that takes the state with FSDP1's names, and its arguments."""
        model = expression(self.migration, self.source, named["model"].value)
        optimizer = expression(self.migration, self.source, named["optim"].value)
        getter = self.migration.need(self.source, MODULE, "get_optimizer_state_dict", node)
        given = [model, optimizer, *([f"options={options}"] if options else [])]
        if not compiled_states.compiled_names(self.migration, named["model"].value):
            return getter, given
        indent = self.migration.indent(self.source, node)
        state = call(self.source, indent, getter, given, depth=1)
        return compiled_states.with_names(self.migration, self.source, node), [model, state]

    def _full_optim_state_dict(self, node: cst.Call, kind: Kind) -> None:
        named, rest = arguments(node, ("model", "optim", "optim_input", "rank0_only", "group"))
        optim_input = named.pop("optim_input", None)
        if rest or not {"model", "optim"} <= set(named) or "group" in named:
            raise Blocked(
                self.source, node, OPTIMIZER_STATE_ARGUMENTS(method="full_optim_state_dict")
            )
        if optim_input is not None and not is_constant(optim_input.value, "None"):
            raise Blocked(self.source, node, OPTIM_INPUT(method="full_optim_state_dict"))
        rank0 = named.get("rank0_only")
        if rank0 is not None and not is_constant(rank0.value, "True", "False"):
            raise Blocked(self.source, node, CONFIG_FIELD_AT_RUN_TIME(field="rank0_only"))
        parts = ["full_state_dict=True"]
        if (
            rank0 is None
            or is_constant(rank0.value, "True")
            or state_functions.is_saved_by_one_rank(self.migration, node)
        ):
            parts.append("cpu_offload=True")
        self._get_optimizer(node, named, self.make_options(parts, node))

    def _sharded_optim_state_dict(self, node: cst.Call, kind: Kind) -> None:
        named, rest = arguments(node, ("model", "optim", "group"))
        if rest or set(named) != {"model", "optim"}:
            raise Blocked(self.source, node, OPTIMIZER_STATE_GROUP())
        self._get_optimizer(node, named, "")

    def _to_load(self, node: cst.Call, kind: Kind) -> None:
        parameters: tuple[str, ...] = ("model", "optim", "optim_state_dict")
        if self._old_order(node):
            parameters = ("optim_state_dict", "model", "optim")
        named, rest = arguments(node, parameters)
        if rest or set(named) != set(parameters):
            raise Blocked(
                self.source, node, OPTIMIZER_STATE_ARGUMENTS(method="optim_state_dict_to_load")
            )
        # `load_sharded_optimizer_state_dict` reads a sharded state, whatever type is set.
        full = not self._read_before(named) and kind.full
        if not full:
            given = named["optim_state_dict"].value
            sharded_files.check_load(self.migration, self.source, node, given)
        parts = ["full_state_dict=True"] if full else []
        state = expression(self.migration, self.source, named["optim_state_dict"].value)
        if full:
            if kind.optimizer.rank0 and isinstance(named["optim_state_dict"].value, cst.Name):
                state = f"{state} or {{}}"  # it may be None on the other ranks
            state = self._with_separate_steps(node, state, named["optim"].value)
        if full and kind.optimizer.rank0:
            parts.append("broadcast_from_rank0=True")
        options = kind.options if kind.options and len(parts) == 1 else ""
        if not options and parts:
            options = self.make_options(parts, node)
        self._set_optimizer(node, named, state, options)

    def _read_before(self, named: dict[str, cst.Arg]) -> bool:
        """Rewrite `x = load_sharded_optimizer_state_dict(...)` to a load into an existing state.

        Returns whether the state that is loaded comes from such a call.
        """
        found = straight_line.origin(self._loads, named["optim_state_dict"].value)
        if found is None or self.migration.symbol(found.call.func) != OLD_OPTIMIZER_LOAD:
            return False
        read, name = found.call, found.name
        given, rest = arguments(
            read, ("model_state_dict", "optimizer_key", "storage_reader", "planner")
        )
        if rest or not {"optimizer_key", "storage_reader"} <= set(given):
            raise Blocked(self.source, read, STATE_ARGUMENTS())
        load = self.migration.need(self.source, "torch.distributed.checkpoint", "load", read)
        key = expression(self.migration, self.source, given["optimizer_key"].value)
        loaded = [name] + [
            f"{keyword}={expression(self.migration, self.source, given[keyword].value)}"
            for keyword in ("storage_reader", "planner")
            if keyword in given and not is_constant(given[keyword].value, "None")
        ]
        self.migration.consumed.add(read.func)
        self.migration.forget(self.source, read)
        function, taken = self._getter(read, named, "")
        line = f"{name} = {{{key}: {function}({', '.join(map(on_one_line, taken))})}}"
        self.migration.replace_statement(
            self.source,
            read,
            [
                statement(self.source, read, line),
                f"{load}({', '.join(map(on_one_line, loaded))})",
            ],
        )
        return True

    def _old_order(self, node: cst.Call) -> bool:
        """Whether the arguments have the order before torch 2.1: state, model, optimizer."""
        positional = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
        if len(positional) < 2:
            return False
        if any(isinstance(v, OptimizerValue) for v in self.migration.values(positional[1])):
            return False
        if self.migration.wrapping_of(positional[0]):
            return False
        if self.migration.wrapping_of(positional[1]):
            return True
        if len(positional) == 3:
            values = self.migration.values(positional[2])
            if any(isinstance(v, OptimizerValue) for v in values):
                return True
        text = self.source.code(positional[0])
        return "model" not in text or "state" in text

    def _scatter(self, node: cst.Call, kind: Kind) -> None:
        named, rest = arguments(
            node, ("full_optim_state_dict", "model", "optim_input", "optim", "group")
        )
        optim_input = named.pop("optim_input", None)
        if optim_input is not None and not is_constant(optim_input.value, "None"):
            raise Blocked(self.source, node, OPTIM_INPUT(method="scatter_full_optim_state_dict"))
        if not rest and set(named) == {"full_optim_state_dict", "model"}:
            if self._drop_unloaded(node, named["full_optim_state_dict"].value):
                return
        self._optimizer_of_load(node, named)
        if rest or set(named) != {"full_optim_state_dict", "model", "optim"}:
            raise Blocked(
                self.source, node, OPTIMIZER_STATE_ARGUMENTS(method="scatter_full_optim_state_dict")
            )
        given = named["full_optim_state_dict"].value
        state = atom(expression(self.migration, self.source, given))
        options = self.make_options(["full_state_dict=True", "broadcast_from_rank0=True"], node)
        state = self._with_separate_steps(node, f"{state} or {{}}", named["optim"].value)
        in_place = not is_repeatable(given) and not self._may_move(given)
        self._set_optimizer(node, named, state, options, in_place=in_place)

    def _may_move(self, node: cst.BaseExpression) -> bool:
        """Whether an expression has the same value in a later statement of its function."""
        names = [part for part in (node, *descend(node)) if isinstance(part, cst.Name)]
        return all(map(self._is_set_once, names)) and only_builds(self.migration, self.source, node)

    def _is_set_once(self, name: cst.Name) -> bool:
        """Whether a name has one value in its function: of one assignment, parameter or import."""
        bindings = bindings_of(self.source)
        scope = bindings.owner(bindings.scope_at(name), name.value)
        targets = scope.others.get(name.value, ()) if scope is not None else ()
        found = definitions(self.source, name)
        return len(targets) <= 1 and (found is not None or not targets)

    def _drop_unloaded(self, node: cst.Call, state: cst.BaseExpression) -> bool:
        """Remove a call whose result no code loads into an optimizer. Returns whether it is one."""
        if not is_result_unused(self.source, node):
            return False
        self.migration.account_for(self.source, node)
        if isinstance(state, cst.Name) and len(self._reads_outside(state, node)) == 0:
            self.migration.replace_statement(
                self.source,
                node,
                [f"del {state.value}  # FSDP1 did not load it into an optimizer either"],
            )
        else:
            self.migration.delete_statement(self.source, node)
        self.migration.note("no optimizer loads a state that is read for one, as before")
        self.migration.step(self.source, node, "Remove a call without effect")
        return True

    def _reads_outside(self, name: cst.Name, node: cst.Call) -> list[cst.Name]:
        """The places outside of a call that read a variable."""
        home = home_of(self.source, name) or self.source.tree
        start, end = self.source.span(node)
        return [
            use
            for use in reads(self.source, home, name.value)
            if not start <= self.source.span(use)[0] < end
        ]

    def _shard(self, node: cst.Call, kind: Kind) -> None:
        named, rest = arguments(node, ("full_optim_state_dict", "model", "optim_input", "optim"))
        self._optimizer_of_load(node, named)
        if rest or set(named) != {"full_optim_state_dict", "model", "optim"}:
            raise Blocked(
                self.source, node, OPTIMIZER_STATE_ARGUMENTS(method="shard_full_optim_state_dict")
            )
        state = expression(self.migration, self.source, named["full_optim_state_dict"].value)
        state = self._with_separate_steps(node, state, named["optim"].value)
        self._set_optimizer(node, named, state, self.make_options(["full_state_dict=True"], node))

    def _optimizer_of_load(self, node: cst.Call, named: dict[str, cst.Arg]) -> None:
        """Add the optimizer argument, which FSDP1 does not need: the optimizer that loads the state."""
        if "optim" not in named:
            func = self._loads.any_load(node).func
            assert isinstance(func, cst.Attribute)
            named["optim"] = cst.Arg(func.value)

    def _flatten(self, node: cst.Call, kind: Kind) -> None:
        named, rest = arguments(node, ("sharded_optim_state_dict", "model", "optim"))
        if rest or len(named) != 3:
            raise Blocked(
                self.source,
                node,
                OPTIMIZER_STATE_ARGUMENTS(method="flatten_sharded_optim_state_dict"),
            )
        given = named["sharded_optim_state_dict"].value
        sharded_files.check_load(self.migration, self.source, node, given)
        state = expression(self.migration, self.source, given)
        self._set_optimizer(node, named, state, "")

    def _with_separate_steps(
        self, node: cst.Call, state: str, optimizer: cst.BaseExpression
    ) -> str:
        """The text of a full state that can be loaded even if FSDP1 has saved it."""
        if not state_functions.may_have_flat_parameters(self.migration) or self._counts_no_steps(
            optimizer
        ):
            return state
        return f"{state_functions.steps_helper(self.migration, self.source, node)}({state})"

    def _counts_no_steps(self, node: cst.BaseExpression) -> bool:
        """Whether an optimizer certainly counts no steps."""
        values = self.migration.values(node)
        return bool(values) and all(
            isinstance(value, OptimizerValue) and value.class_name in ("SGD", "torch.optim.SGD")
            for value in values
        )

    def _keeps_no_state(self, node: cst.BaseExpression) -> bool:
        """Whether an optimizer is certainly SGD without momentum, which keeps nothing of a parameter."""
        if not self._counts_no_steps(node):
            return False
        ids = {getattr(value, "id", "") for value in self.migration.values(node)}
        sites = [
            event.site
            for trace in self.migration.program.traces
            for event in trace.of(OptimizerBuilt)
            if event.optimizer in ids
        ]
        calls = [site.node for site in sites if isinstance(site, NodeSite)]
        return bool(calls) and all(
            isinstance(call, cst.Call)
            and len([arg for arg in call.args if arg.keyword is None]) <= 2
            and not any(arg.star or _is_momentum(arg) for arg in call.args)
            for call in calls
        )

    def _set_optimizer(
        self,
        node: cst.Call,
        named: dict[str, cst.Arg],
        state: str,
        options: str,
        *,
        in_place: bool = False,
    ) -> None:
        """Merge two calls, which convert the state and load it, into one.

        in_place: whether the state has to be computed where it was converted.
        """
        if compiled_states.compiled_names(self.migration, named["model"].value):
            state = f"{compiled_states.without_names(self.migration, self.source, node)}({state})"
        if self._set_by_value(node, named, state, options):
            return
        if options and self._keeps_no_state(named["optim"].value):
            if "broadcast" in options:
                raise Blocked(self.source, node, NO_STATE_TO_BROADCAST())
            options = ""  # torch refuses a full state without tensors (seen with 2.13)
        try:
            load = self._loads.load_call(node)
        except Blocked:
            later = None
            if not in_place:
                later = later_loads.find(self.source, self._loads, node, named["optim"].value)
            if later is None:
                given = named["optim"].value
                found = returned_states.find(self.migration, self.source, node, given)
                if in_place or not found:
                    raise
                returned_states.set_here(self, node, named, state, options, found)
                return
            later_loads.set_here(self, node, named, state, options, later)
            return
        model = expression(self.migration, self.source, named["model"].value)
        optimizer = expression(self.migration, self.source, named["optim"].value)
        self.migration.account_for(self.source, node.func)
        self.rewritten.add(load)
        branch = self._loads.branch_load(node)
        at = load if branch is None else node
        resharding.reshard_before(self.migration, self.source, at, named["model"].value, node)
        if branch is not None:
            self.put_state_call(
                node, "set_optimizer_state_dict", [model, optimizer, state], options
            )
            branch_loads.move(self.migration, self.source, node, branch, self._moved)
        elif in_place and not self._contains(node, load):
            self.migration.substitute(self.source, node, state)
            loaded = expression(self.migration, self.source, load.args[0].value)
            self.put_state_call(
                load, "set_optimizer_state_dict", [model, optimizer, loaded], options
            )
        else:
            self.put_state_call(
                load, "set_optimizer_state_dict", [model, optimizer, state], options
            )
            if load is not node and not self._contains(node, load):
                block = self._only_statement_of(node)
                if block is not None:
                    self.emptied.add(block)
                else:
                    self.migration.delete_statement(self.source, node)
        self.migration.step(
            self.source, node, "Load the optimizer's state with set_optimizer_state_dict"
        )

    def _only_statement_of(self, node: cst.CSTNode) -> cst.With | None:
        """The unwrapped block that contains only the statement of a node, or None."""
        line = self.source.parent(statement_of(self.source, node))
        body = self.source.parent(line) if line is not None else None
        block = self.source.parent(body) if isinstance(body, cst.IndentedBlock) else None
        if isinstance(block, cst.With) and block in self.migration.blocks.unwrapped:
            return block if len(block.body.body) == 1 else None
        return None

    def _contains(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        start, end = self.source.span(node)
        left, right = self.source.span(outer)
        return left <= start and end <= right

    def _set_by_value(
        self, node: cst.Call, named: dict[str, cst.Arg], state: str, options: str
    ) -> bool:
        """Load the state at the only call that loads it. Returns whether there is one.

        The converting call becomes the state that it converts.
        """
        load = self._loads.load_by_value(node)
        if load is None:
            return False
        model = expression(self.migration, self.source, named["model"].value)
        optimizer = expression(self.migration, self.source, named["optim"].value)
        self.migration.account_for(self.source, node.func)
        self.rewritten.add(load)
        self.migration.substitute(self.source, node, state)
        loaded = expression(self.migration, self.source, load.args[0].value)
        resharding.reshard_before(self.migration, self.source, load, named["model"].value, node)
        self.put_state_call(load, "set_optimizer_state_dict", [model, optimizer, loaded], options)
        self.migration.step(
            self.source, node, "Load the optimizer's state with set_optimizer_state_dict"
        )
        return True


METHODS = {
    "optim_state_dict": States._optim_state_dict,
    "full_optim_state_dict": States._full_optim_state_dict,
    "sharded_optim_state_dict": States._sharded_optim_state_dict,
    "optim_state_dict_to_load": States._to_load,
    "scatter_full_optim_state_dict": States._scatter,
    "shard_full_optim_state_dict": States._shard,
    "flatten_sharded_optim_state_dict": States._flatten,
}
