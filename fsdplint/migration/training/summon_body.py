"""Uses of a model's parameters in the body of a `summon_full_params` block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.fixes.summon import writes
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import Bound, Function, ModuleValue
from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts.calls_without_state import saves_no_model
from fsdplint.migration.training.summon_loops import ParameterLoops
from fsdplint.migration.training.summon_writes import is_of_other_module, writes_no_parameters
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

SUMMON = f"{FSDP}.summon_full_params"
STATES = {
    "state_dict", "load_state_dict", "save_pretrained", "push_to_hub", "deepcopy", "save_model",
}  # fmt: skip
# Methods of a model that do not write its parameters.
READING = {
    "parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules",
    "children", "named_children", "get_parameter", "get_submodule", "eval", "train", "generate",
    "sample", "forward", "__call__",
}  # fmt: skip
RUNNING = {"generate", "sample", "forward"}  # those of them that run the model
# Methods of PEFT's models that write parameters and run no part of the model.
MERGING = {"merge_and_unload", "merge_adapter", "unmerge_adapter", "unload"}
BUILTINS = {
    "print", "len", "sum", "isinstance", "list", "dict", "tuple", "set", "sorted", "zip", "type",
    "enumerate", "getattr", "hasattr", "str", "repr", "any", "all", "max", "min", "float", "int",
    "id", "next", "iter", "range", "map", "filter", "reversed", "abs",
}  # fmt: skip


@dataclass
class Body:
    """The body of a block that unshards `model`."""

    migration: Migration
    source: Source
    body: cst.BaseSuite
    model: cst.BaseExpression

    def mentions(self, attribute: str) -> bool:
        return any(
            isinstance(node, cst.Attribute) and node.attr.value == attribute
            for node in descend(self.body)
        )

    def state(self) -> cst.Call | None:
        """The first call that takes, loads or copies a state of the model, or None."""
        return min(self.states(), key=self.source.span, default=None)

    def states(self) -> list[cst.Call]:
        """The calls that take, load or copy a state of the model."""
        return [
            call
            for call in self._calls(self.body)
            if _name(call) in STATES
            and not saves_no_model(self.migration, call)
            and not is_of_other_module(self.migration, call)
        ]

    def first_write(self) -> cst.CSTNode | None:
        """The first place that may write parameters, in the body or in a function that it calls."""
        if writes(self.body):
            return self.body
        return next(
            (call for call, function in self._called_functions() if writes(function.body)), None
        )

    def writes_other_objects(self) -> bool:
        """Whether the body writes only objects other than parameters, such as an average."""
        if any(writes(function.body) for _, function in self._called_functions()):
            return False
        loops = [node for node in descend(self.body) if isinstance(node, cst.For)]
        names = {
            part.value
            for loop in loops
            for part in descend(loop.target)
            if isinstance(part, cst.Name)
        }
        return writes_no_parameters(self.migration, self.body, names)

    def _called_functions(self) -> Iterator[tuple[cst.Call, cst.FunctionDef]]:
        """The functions that the body calls directly or indirectly, each with the call in the body."""
        seen: set[cst.CSTNode] = set()
        todo: list[tuple[cst.Call, cst.CSTNode]] = [(call, call) for call in self._calls(self.body)]
        while todo:
            first, call = todo.pop()
            assert isinstance(call, cst.Call)
            for value in self.migration.values(call.func):
                function = value.function if isinstance(value, Bound) else value
                if not isinstance(function, Function):
                    continue
                node = function.node
                if not isinstance(node, cst.FunctionDef) or node in seen:
                    continue
                seen.add(node)
                yield first, node
                todo += [(first, inner) for inner in self._calls(node.body)]

    def unseen_call(self) -> cst.Call | None:
        """A call of an unseen function that gets the model or its parameters, or None."""
        return next((call for call in self._unseen_calls() if self._gets_model(call)), None)

    def call_with_module(self) -> cst.Call | None:
        """A call of an unseen function that gets a module, so that it may run it, or None."""
        for call in self._unseen_calls():
            if any(self._is_module(arg.value) for arg in call.args):
                return call
        return None

    def _unseen_calls(self) -> Iterator[cst.Call]:
        """The calls of functions that are not followed and are not known to be harmless."""
        for call in self._calls(self.body):
            values = self.migration.values(call.func)
            if any(isinstance(v, Function | Bound | ModuleValue) for v in values):
                continue
            if not self._harmless(call):
                yield call

    def _is_module(self, node: cst.BaseExpression) -> bool:
        if self.source.code(node) == self.source.code(self.model):
            return True
        return any(isinstance(value, ModuleValue) for value in self.migration.values(node))

    def only_generates(self) -> bool:
        """Whether the body uses the model by `generate` alone."""
        calls = [call for call in self._calls(self.body) if self._gets_model(call)]
        return bool(calls) and all(_name(call) == "generate" for call in calls)

    def _gets_model(self, call: cst.Call) -> bool:
        if isinstance(call.func, cst.Attribute) and self._is_of_model(call.func.value):
            return True
        return any(self._is_of_model(arg.value) for arg in call.args)

    def _is_of_model(self, node: cst.BaseExpression) -> bool:
        text = self.source.code(node)
        model = self.source.code(self.model)
        if text in (model, f"{model}.module"):
            return True
        return any(
            isinstance(v, ModuleValue) or (isinstance(v, ParametersOf) and not v.element)
            for v in self.migration.values(node)
        )

    def _harmless(self, call: cst.Call) -> bool:
        if isinstance(call.func, cst.Name):
            return call.func.value in BUILTINS
        if self.migration.fsdp1(call.func) == SUMMON:
            return True  # an `ExitStack` enters the context in its block
        name = self.migration.symbol(call.func)
        if name.startswith(("torch.linalg.", "torch.nn.functional.", "numpy.")):
            return True
        if name.startswith("torch."):
            return name.count(".") == 1
        return _name(call) in READING

    def computes(self) -> bool:
        """Whether the body calls parts of the model."""
        for call in self._calls(self.body):
            if any(isinstance(v, ModuleValue) for v in self.migration.values(call.func)):
                return True
            if is_of_other_module(self.migration, call):
                continue
            if isinstance(call.func, cst.Attribute) and self._is_of_model(call.func.value):
                if call.func.attr.value not in (READING - RUNNING) | STATES | MERGING:
                    return True
        return False

    def reads_parameters(self) -> bool:
        """Whether the body itself reads values of parameters, without counting the code it calls."""
        return any(
            any(isinstance(v, ParametersOf) for v in self.migration.values(node))
            for node in descend(self.body)
            if isinstance(node, cst.Name | cst.Attribute | cst.Call)
        )

    @property
    def loops(self) -> ParameterLoops:
        """What finds the loops over parameters in the body."""
        return ParameterLoops(self.migration, self.source, self.body, self.model)

    def _calls(self, node: cst.CSTNode) -> list[cst.Call]:
        return [part for part in descend(node) if isinstance(part, cst.Call)]


def _name(call: cst.Call) -> str:
    func = call.func
    if isinstance(func, cst.Attribute):
        return func.attr.value
    return func.value if isinstance(func, cst.Name) else ""
