"""Optimizers, and whose parameters they are given."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from fsdplint.program.frames import Call
from fsdplint.program.models import tensors
from fsdplint.program.values import (
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
    from fsdplint.program.interpreter import Interpreter

# What optimizers of libraries that are not known are told by: their names, or what they are given.
OPTIMIZERS = re.compile(
    r"Ada|Dion|Lamb|LAMB|Lion|Muon|NAG|Optim|Prodigy|RMS|SGD|SOAP|Shampoo|Sophia"
)
SETTINGS_OF_OPTIMIZERS = {"lr", "betas", "momentum", "weight_decay"}


class Optimizers:
    """The part of the interpreter that knows optimizers and parameters."""

    def build_optimizer(self: Interpreter, class_name: str, call: Call) -> OptimizerValue:
        """An optimizer over its first argument."""
        parameters = call.arg(0, "params")
        modules, complete = self.owners_of(parameters)
        optimizer = OptimizerValue(self.new_id("optimizer"), class_name, tuple(modules))
        optimizer.made_at = self.site(call.node)
        self.objects[optimizer.id] = optimizer
        self.emit(
            OptimizerBuilt,
            call.node,
            optimizer=optimizer.id,
            class_name=class_name,
            modules=tuple(m.id for m in modules),
            complete=complete,
            chosen_by=tuple(sorted(self.choices_of(parameters))),
            stale=self.stale_of(parameters),
        )
        for way in ("foreach", "fused"):
            if constant(call.kwargs.get(way)) is True:
                tensors.note_mixed(self, parameters, way, call.node)
        return optimizer

    def lose_optimizer(self: Interpreter, value: Value) -> None:
        """Say of an optimizer that its parameters may be others than those it was built over."""
        if isinstance(value, OptimizerValue):
            for event in self.trace.of(OptimizerBuilt):
                if event.optimizer == value.id:
                    event.complete = False

    def replace_parameters(self: Interpreter, optimizer: OptimizerValue) -> None:
        """The program changes what the optimizer updates: what that is can't be told any more."""
        for event in self.trace.of(OptimizerBuilt):
            if event.optimizer == optimizer.id:
                event.complete = False

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
        return replace(value, named=named, element=element or value.element, taken=taken)

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
