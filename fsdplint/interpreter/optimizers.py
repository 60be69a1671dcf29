"""Optimizers, and whose parameters they are given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.values import (
    Const,
    Dict,
    ModuleValue,
    OptimizerValue,
    ParametersOf,
    Sequence,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import OptimizerBuilt
from fsdplint.trace.groups import Groups, Shard

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter

# What optimizers of libraries that are not known are told by: their names, or what they are given.
OPTIMIZERS = re.compile(
    r"Ada|Dion|Lamb|LAMB|Lion|Muon|NAG|Optim|Prodigy|RMS|SGD|SOAP|Shampoo|Sophia"
)
SETTINGS_OF_OPTIMIZERS = {"lr", "betas", "momentum", "weight_decay"}


def optimizers_in(
    value: Value, settle: Callable[[Value], Value], depth: int = 0
) -> list[OptimizerValue]:
    """The optimizers that a value is, is a part of, or holds as an element."""
    value = settle(value)
    if isinstance(value, OptimizerValue):
        return [value]
    if isinstance(value, Dict | Sequence | ParametersOf) and value.optimizer is not None:
        return [value.optimizer]
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict):
        parts = list(value.items.values())
    if depth > 1:
        return []
    return [found for part in parts for found in optimizers_in(part, settle, depth + 1)]


class Optimizers:
    """The part of the interpreter that knows optimizers and parameters."""

    def build_optimizer(self: Interpreter, class_name: str, call: Call) -> OptimizerValue:
        """An optimizer over its first argument."""
        optimizer = OptimizerValue(self.new_id("optimizer"), class_name)
        optimizer.made_at = self.site(call.node)
        self.objects[optimizer.id] = optimizer
        self.fill_optimizer(optimizer, call)
        return optimizer

    def fill_optimizer(self: Interpreter, optimizer: OptimizerValue, call: Call) -> None:
        """`__init__` of an optimizer, which may have been called before."""
        parameters = call.arg(0, "params")
        modules, complete = self.owners_of(parameters)
        optimizer.modules = tuple(modules)
        self.emit(
            OptimizerBuilt,
            call.node,
            optimizer=optimizer.id,
            class_name=optimizer.class_name,
            modules=tuple(m.id for m in modules),
            complete=complete,
            chosen_by=tuple(sorted(self.choices_of(parameters))),
            stale=self.stale_of(parameters),
        )
        for way in ("foreach", "fused"):
            if constant(call.kwargs.get(way)) is True:
                tensors.note_mixed(self, parameters, way, call.node)

    def lose_optimizer(self: Interpreter, value: Value) -> None:
        """Say of the optimizers that a value is, holds or is a part of that their parameters may
        be others than those they were built over."""
        for optimizer in optimizers_in(value, self.settle):
            for event in self.trace.of(OptimizerBuilt):
                if event.optimizer == optimizer.id:
                    event.complete = False

    def regroup(self: Interpreter, holder: Value, key: Value | None = None) -> None:
        """Something is put into a value, or taken out of it, which may be an optimizer's groups.

        key: under which it is put there, where that is all that changes.
        """
        holder = self.settle(holder)
        if not isinstance(holder, Dict | Sequence | ParametersOf) or holder.optimizer is None:
            return
        if isinstance(holder, ParametersOf) and holder.element:
            return
        of_setting = isinstance(key, Const) and key.value not in ("params", "param_groups")
        if not (isinstance(holder, Dict) and of_setting):
            self.lose_optimizer(holder.optimizer)

    def optimizer_by_parameters(self: Interpreter, name: str, call: Call) -> OptimizerValue | None:
        """An optimizer of a class that is not known, told by what it is called with."""
        if not name[:1].isupper() or not call.args or "chedul" in name:
            return None
        if not OPTIMIZERS.search(name) and not SETTINGS_OF_OPTIMIZERS & set(call.kwargs):
            return None  # an average of the weights, a context over parameters, ...
        modules, _ = self.owners_of(call.args[0])
        return self.build_optimizer(name, call) if modules else None

    def owners_of(self: Interpreter, value: Value | None) -> tuple[list[ModuleValue], bool]:
        """The modules whose parameters a value holds, and whether all of it comes from them."""
        value = self.settle(value) if value is not None else Unknown()
        if isinstance(value, ParametersOf):
            return list(value.modules), value.complete
        parts: list[Value] = []
        if isinstance(value, Sequence):
            parts = value.items
        elif isinstance(value, Dict):
            parts = [value.items["params"]] if "params" in value.items else []
        modules: list[ModuleValue] = []
        complete = bool(parts)
        for part in parts:
            found, whole = self.owners_of(part)
            complete = complete and whole
            modules.extend(m for m in found if m not in modules)
        return modules, complete

    # Parameters --------------------------------------------------------------------------------

    def take(self: Interpreter, value: ParametersOf, *, element: bool = False) -> ParametersOf:
        """Parameters that are held from now on, as `list(...)` or a loop does."""
        taken = len(self.trace.events) if value.taken is None else value.taken
        named = value.named and not element
        element = element or value.element
        optimizer = value.optimizer if element else None  # a list of them is another one
        return replace(value, named=named, element=element, taken=taken, optimizer=optimizer)

    def stale_of(self: Interpreter, value: Value | None) -> tuple[str, ...]:
        """The modules whose parameters in a value have been replaced since they were taken."""
        value = self.settle(value) if value is not None else Unknown()
        if isinstance(value, ParametersOf):
            if value.taken is None:
                return ()
            groups = Groups(self.trace)
            since = [e for e in self.trace.events[value.taken :] if isinstance(e, Shard)]
            return tuple(
                module.id
                for module in value.modules
                if any(groups.replaces(event, (module.id,)) for event in since)
            )
        parts: list[Value] = []
        if isinstance(value, Sequence):
            parts = value.items
        elif isinstance(value, Dict) and "params" in value.items:
            parts = [value.items["params"]]
        return tuple(dict.fromkeys(stale for part in parts for stale in self.stale_of(part)))
