"""`FSDP.state_dict_type` blocks and models' states, which become torch's getters and setters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.values import Function, ModuleValue
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    PART_STATE,
    RANK0_OF_GROUP,
    STATE_ARGUMENTS,
    STATE_DICT_ARGUMENTS,
    STATE_IN_CALLED_CODE,
    TAKES_STATE_ITSELF,
    TYPE_NOT_HEAD,
)
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts import (
    called_states,
    compiled_states,
    given_states,
    in_ddp,
    inference,
    library_states,
    part_states,
    pretrained,
    rank0_states,
    resharding,
    sharded_files,
    state_functions,
)
from fsdplint.migration.state_dicts.calls_without_state import is_no_model, takes_no_state
from fsdplint.migration.state_dicts.inner_states import INNER_DETAIL, INNER_NOTE
from fsdplint.migration.state_dicts.kinds import MODULE, OPTIMIZER_METHODS, Kind
from fsdplint.migration.state_dicts.set_types import SetTypes
from fsdplint.migration.state_dicts.state_functions import is_saved_by_one_rank
from fsdplint.migration.state_dicts.state_options import StateOptions
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.layout import descend

TITLE = "Take and load the state with torch.distributed.checkpoint"


class ModelStates(StateOptions):
    """Rewrites the state dicts of the models of one file, and the blocks around them."""

    def __init__(self, migration: Migration, source: Source) -> None:
        super().__init__(migration, source)
        self.rewritten: set[cst.CSTNode] = set()
        self.files: Mapping[Source, ModelStates] = {source: self}  # the rewriters of all files
        self.types = SetTypes(migration)
        self._modules: set[str] = set()
        self.emptied: set[cst.With] = set()  # blocks that lose their only statement
        self._moved: set[cst.Call] = set()  # loads that moved into the branches before them

    # Blocks ---------------------------------------------------------------------------------------

    def mark_unwrapped(self, node: cst.CSTNode) -> None:
        """Record that the head of a `state_dict_type` block goes, before the text of its body is read."""
        call = self.source.parent(node)
        item = self.source.parent(call) if isinstance(call, cst.Call) else None
        block = self.source.parent(item) if isinstance(item, cst.WithItem) else None
        if isinstance(block, cst.With) and len(block.items) == 1:
            self.migration.blocks.unwrapped.add(block)

    def block(self, node: cst.Call) -> None:
        """Rewrite the `with` block of a call of `state_dict_type`.

        Raises:
            Blocked: FSDP2 does not have such a state, or unseen code takes it.
        """
        item = self.source.parent(node)
        block = self.source.parent(item) if isinstance(item, cst.WithItem) else None
        if not isinstance(block, cst.With):
            raise Blocked(self.source, node, TYPE_NOT_HEAD())
        if self._takes_no_state(node, block):
            self.migration.account_for(self.source, node)
            self._remove_head(node, block, [])
            self.migration.step(self.source, node, library_states.TITLE)
            return
        kind, model = self.kind(node)
        self.unwrap(node, block, kind, model)

    def unwrap(self, node: cst.Call, block: cst.With, kind: Kind, model: str) -> None:
        """Rewrite the states in a block, and remove its head."""
        kind = replace(kind)  # the variable for options belongs to this block
        if len(block.items) == 1:
            self.migration.blocks.unwrapped.add(block)
        self._modules = self._ids(node)
        called: list[Function] = []
        known = library_states.self_taking_calls(self.migration, self.source, block, model, kind)
        uses = self._uses(block, model, called, known)
        lines: list[str] = []
        keys = [key for use in uses if (key := self._options_key(kind, use))]
        if len(keys) > 1 and len(set(keys)) == 1 and not isinstance(keys[0], str):
            kind.options = fresh(self.source, block, "options", "state_options")
            lines.append(f"{kind.options} = {self.make_options(list(keys[0]), block)}")
        for use in uses:
            self._mark_typed(use, kind, model)
            self.rewrite(use, kind)
        for function in called:
            self.files[function.site.source].rewrite_function(
                function, replace(kind, options=""), self._modules
            )
        self.migration.account_for(self.source, node)
        if block in self.emptied:
            self.migration.delete_statement(self.source, block)
        else:
            self._remove_head(node, block, lines)
        title = library_states.TITLE if known and not uses else TITLE
        self.migration.step(self.source, node, title)

    def _mark_typed(self, use: cst.Call, kind: Kind, model: str) -> None:
        """Record a call for a state whose type the block around it sets.

        The module inside of the block's model stands for the model: FSDP1 gives this rank's flat
        part of it, or raises, and the block says which state is meant.
        """
        text = self.source.code(use.func.value) if isinstance(use.func, cst.Attribute) else ""
        if text == model:
            self.migration.states.typed_calls.add(use)
        elif text == f"{model}.module" and kind.full:
            self.migration.states.typed_calls.add(use)
            self.migration.note(INNER_NOTE, self.source, use, detail=INNER_DETAIL)

    def _remove_head(self, node: cst.Call, block: cst.With, lines: list[str]) -> None:
        """Remove the call of `state_dict_type` from the head of a block, and insert lines before it."""
        if len(block.items) == 1:
            self.migration.unwrap(self.source, block, lines)
            return
        number = next(n for n, item in enumerate(block.items) if item.item is node)
        start, end = self.source.span(block.items[number])
        if number + 1 < len(block.items):
            end = self.source.span(block.items[number + 1])[0]
        else:
            before = block.items[number - 1]
            start = self.source.span(before.asname or before.item)[1]
        self.migration.substitute_span(self.source, start, end, "")
        if lines:
            self.migration.rewrite.insert_before(self.source, block, lines)

    def _takes_no_state(self, node: cst.Call, block: cst.With) -> bool:
        """Whether no code in a block uses the model or its state."""
        if not node.args or any(arg.star for arg in node.args):
            return False
        model = self.source.code(node.args[0].value)
        for part in self.source.descend(block.body):
            if isinstance(part, cst.Call):
                if self._is_use(part, model) or not takes_no_state(self.migration, part):
                    return False
            if isinstance(part, cst.Name | cst.Attribute) and self.source.code(part) == model:
                return False
        return True

    # Uses in a block ------------------------------------------------------------------------------

    def rewrite_function(self, function: Function, kind: Kind, modules: set[str]) -> None:
        """Rewrite the states in a function that a block calls, for the block's kind and modules."""
        self._modules = modules
        for node in reversed(list(descend(function.node.body))):
            if isinstance(node, cst.Call) and node not in self.rewritten and self._is_use(node, ""):
                there = called_states.kind_in_function(self.migration, kind, self.source, node)
                self.rewrite(node, there)

    def _ids(self, node: cst.Call) -> set[str]:
        """The modules whose type a call of `state_dict_type` sets."""
        given = arguments(node, ("module",))[0].get("module")
        values = self.migration.values(given.value) if given is not None else []
        return {value.id for value in values if isinstance(value, ModuleValue)}

    def _is_other_model(self, node: cst.BaseExpression) -> bool:
        """Whether a model is certainly not one of the block's modules, nor a part of one."""
        ids = {value.id for value in self.migration.values(node) if isinstance(value, ModuleValue)}
        return bool(ids and self._modules) and not any(
            trace.related(one, other)
            for trace in self.migration.program.traces
            for one in ids
            for other in self._modules
        )

    def _uses(
        self, block: cst.With, model: str, called: list[Function], known: list[cst.Call]
    ) -> list[cst.Call]:
        """The calls in a block that take or load a state of the model, innermost first.

        Raises:
            Blocked: unseen code may take the state, or no code takes it.
        """
        found: list[cst.Call] = []
        for node in self.source.descend(block.body):
            if isinstance(node, cst.Call) and self._is_use(node, model):
                if node not in self.rewritten:
                    found.append(node)
        for node in self.source.descend(block.body):
            if isinstance(node, cst.Call) and node not in [*found, *known]:
                called += self._check_other(node, model)
        if known:
            library_states.check(self.migration, self.source, block, [*found, *known])
        elif not found and not called and not self._has_rewritten_call(block):
            raise Blocked(self.source, block.items[0], STATE_IN_CALLED_CODE())
        return sorted(found, key=lambda node: -self.source.span(node)[0])

    def _has_rewritten_call(self, block: cst.With) -> bool:
        return any(node in self.rewritten for node in self.source.descend(block.body))

    def _is_use(self, node: cst.Call, model: str) -> bool:
        name = self.migration.fsdp1(node.func)
        if name.startswith(FSDP + "."):
            return name.removeprefix(FSDP + ".") in OPTIMIZER_METHODS
        if not isinstance(node.func, cst.Attribute):
            return False
        receiver = node.func.value
        text = self.source.code(receiver)
        if pretrained.accepts_state(self.migration, node) and text == model:
            return True
        if node.func.attr.value not in ("state_dict", "load_state_dict"):
            return False
        if text == model:
            return True
        if self.migration.wrapping_of(receiver) or node in part_states.calls(self.migration):
            return not self._is_other_model(receiver)
        # A part of the model: `model.head.state_dict()`.
        return text.startswith(f"{model}.") and not is_no_model(self.migration, receiver)

    def _check_other(self, node: cst.Call, model: str) -> list[Function]:
        """The functions that a call runs and that take the state.

        Raises:
            Blocked: they are not known.
        """
        for arg in node.args:
            if self.source.code(arg.value) == model and not self._is_fsdp(node):
                found = called_states.functions(self.migration, node)
                if found is not None:
                    return found
                raise Blocked(self.source, node, STATE_IN_CALLED_CODE())
        func = node.func
        if isinstance(func, cst.Attribute) and self.source.code(func.value) == model:
            given = any(
                a.keyword is not None and a.keyword.value == "state_dict" for a in node.args
            )
            if func.attr.value in ("save_pretrained", "save_checkpoint") and not given:
                raise Blocked(self.source, node, TAKES_STATE_ITSELF(method=func.attr.value))
        return []

    def _is_fsdp(self, node: cst.Call) -> bool:
        name = self.migration.fsdp1(node.func)
        builtin = isinstance(node.func, cst.Name) and node.func.value in (
            "isinstance",
            "print",
            "type",
        )
        return bool(name) or builtin

    # One use --------------------------------------------------------------------------------------

    def rewrite(self, node: cst.Call, kind: Kind) -> None:
        """Rewrite one call that takes or loads state."""
        if node in self.rewritten:
            return
        self.rewritten.add(node)
        name = self.migration.fsdp1(node.func)
        if name:
            self.optimizer(name.removeprefix(FSDP + "."), node, kind)
            return
        assert isinstance(node.func, cst.Attribute)
        compiled = compiled_states.compiled_names(self.migration, node.func.value)
        if kind.local:
            self.migration.states.local_uses.setdefault(node.func.attr.value, (self.source, node))
        if node.func.attr.value == "state_dict":
            inference.leave_inference_mode(self.migration, self.source, node)
        if node.func.attr.value == "save_pretrained":
            self._hand_over(node, kind, compiled=bool(compiled))
            return
        if compiled and not kind.full and not kind.model.offload:
            return  # FSDP2's own state is sharded, and has the names of the compiled model
        model = expression(self.migration, self.source, node.func.value)
        if node.func.attr.value == "state_dict":
            if node.args:
                raise Blocked(self.source, node, STATE_DICT_ARGUMENTS())
            if self._goes_to_first_rank(kind, node):
                function = state_functions.gather_helper(self.migration, self.source, node)
                self.migration.put_call(self.source, node, function, [model])
                return
            options = self.get_options(kind, node)
            if compiled:
                getter = self.migration.need(self.source, MODULE, "get_model_state_dict", node)
                compiled_states.take(
                    self.migration, self.source, node, compiled, getter, model, options
                )
            else:
                self.put_state_call(node, "get_model_state_dict", [model], options)
            return
        named, rest = arguments(node, ("state_dict", "strict", "assign"))
        if rest or "state_dict" not in named or "assign" in named:
            raise Blocked(self.source, node, STATE_ARGUMENTS())
        given = named["state_dict"].value
        if not kind.full and not kind.local:
            sharded_files.check_load(self.migration, self.source, node, given)
        state = expression(self.migration, self.source, given)
        more = []
        if "strict" in named:
            more.append(f"strict={expression(self.migration, self.source, named['strict'].value)}")
        if kind.full and rank0_states.is_loaded(self.migration, node):
            more.insert(0, "broadcast_from_rank0=True")
        if compiled:
            state = compiled_states.without_prefix(self.source, compiled, state)
        if kind.full:
            resharding.reshard_before(self.migration, self.source, node, node.func.value)
            state = given_states.unchanged(self.migration, self.source, node, given, state)
            given_states.note_missing(self.migration, self.source, node, strict="strict" in named)
        options = self.set_options(kind, more, node)
        self.put_state_call(node, "set_model_state_dict", [model, state], options)

    def _hand_over(self, node: cst.Call, kind: Kind, *, compiled: bool) -> None:
        """Pass the state to `save_pretrained`, which takes it itself in FSDP1's block."""
        if compiled or not kind.full or self._goes_to_first_rank(kind, node):
            raise Blocked(self.source, node, TAKES_STATE_ITSELF(method="save_pretrained"))
        options = self.get_options(kind, node)
        pretrained.hand_over(self.migration, self.source, node, options)

    def _goes_to_first_rank(self, kind: Kind, node: cst.Call) -> bool:
        """Whether the first rank of a group that does not contain all ranks gets the full state."""
        if not kind.full or not state_functions.may_shard_in_groups(self.migration):
            return False
        if kind.model.rank0_test:
            raise Blocked(self.source, node, RANK0_OF_GROUP())
        return kind.model.rank0 or (
            kind.model.offload and is_saved_by_one_rank(self.migration, node)
        )

    def _options_key(self, kind: Kind, node: cst.Call) -> tuple[str, ...] | str:
        """The arguments of a use's options, or the name of the variable that holds the options."""
        name = self.migration.fsdp1(node.func).removeprefix(FSDP + ".")
        attribute = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        if name == "optim_state_dict":
            return self.config_key(kind, kind.optimizer, node)
        if not name and attribute in ("state_dict", "save_pretrained"):
            if self._goes_to_first_rank(kind, node):
                return ()
            return self.config_key(kind, kind.model, node)
        if name in ("", "optim_state_dict_to_load") and kind.full:
            more = len(node.args) > 1 if not name else kind.optimizer.rank0
            more = more or rank0_states.is_loaded(self.migration, node)
            return () if more else ("full_state_dict=True",)
        return ()

    def put_state_call(
        self,
        node: cst.CSTNode,
        function: str,
        given: list[str],
        options: str,
    ) -> None:
        name = self.migration.need(self.source, MODULE, function, node)
        if options:
            given = [*given, f"options={options}"]
        self.migration.put_call(self.source, node, name, given)

    def optimizer(self, name: str, node: cst.Call, kind: Kind) -> None:
        """Rewrite a call of a static method of FSDP for an optimizer's state."""
        raise NotImplementedError

    def rewrite_outside_block(self, node: cst.Call, kind: Kind) -> None:
        """Rewrite a `state_dict()` or `load_state_dict()` outside of a block, which is full in FSDP1."""
        assert isinstance(node.func, cst.Attribute)
        if in_ddp.may_be_ddp(self.migration, self.source, node.func.value):
            self.rewritten.add(node)
            in_ddp.rewrite(self, node, self.types.kind(self.source, node) or kind)
            self.migration.step(self.source, node, "Take and load full states")
            return
        if part_states.calls(self.migration).get(node) is False:
            raise Blocked(self.source, node, PART_STATE())
        self.rewrite(node, self.types.kind(self.source, node) or kind)
        self.migration.step(self.source, node, "Take and load full states")
