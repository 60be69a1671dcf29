"""What is assigned to names, attributes and items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.attributes import OPTIMIZER_PARTS
from fsdplint.interpreter.expressions import either
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LazyImport,
    Made,
    ModuleValue,
    OptimizerValue,
    ParametersOf,
    SamplerValue,
    StateValue,
    Symbol,
    TensorValue,
    Unknown,
    Value,
)
from fsdplint.interpreter.values import Sequence as SequenceValue
from fsdplint.trace import EpochSet, Layout, RequiresGradSet, WeightsSet

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter


class Assignment:
    """The part of the interpreter that assigns values."""

    def assign(self: Interpreter, target: cst.CSTNode, value: Value) -> None:
        """Bind a target (name, attribute, subscript, tuple) to a value."""
        if self.decisive(value):
            self.mark_relevant()
        if isinstance(target, cst.Name):
            if isinstance(value, Unknown) and not value.label:
                value.label = target.value
            self.scope.assign(target.value, value)
            self.evaluations[target] = value
        elif isinstance(target, cst.Attribute):
            owner = self.eval(target.value)
            if isinstance(owner, SamplerValue):
                self.emit(EpochSet, target, sampler=owner.id)  # `sampler.epoch = epoch`, `.seed`
            if isinstance(owner, ParametersOf) and target.attr.value == "data":
                self.emit(WeightsSet, target, modules=tuple(m.id for m in owner.modules))
                meta_device.left(self, owner.modules)
            self.note_tied(owner, target.attr.value, value, target)
            self.set_attribute(owner, target.attr.value, value)
            self.evaluations[target] = value
        elif isinstance(target, cst.Subscript):
            self._assign_subscript(target, value)
        elif isinstance(target, cst.Tuple | cst.List):
            self._unpack(target, value)
        elif isinstance(target, cst.StarredElement):
            self.assign(target.value, value)

    def _unpack(self: Interpreter, target: cst.Tuple | cst.List, value: Value) -> None:
        count = len(target.elements)
        items = self.unpack(value, count)
        for element, item in zip(target.elements, items, strict=True):
            if isinstance(element, cst.StarredElement):
                self.assign(element.value, SequenceValue([item], open=True))
            else:
                self.assign(element.value, item)

    def _assign_subscript(self: Interpreter, target: cst.Subscript, value: Value) -> None:
        container = self.eval(target.value)
        keys = [
            self.eval(item.slice.value)
            for item in target.slice
            if isinstance(item.slice, cst.Index)
        ]
        key = keys[0] if len(keys) == 1 else Unknown()
        self.regroup(container, key)
        if isinstance(container, ModuleValue):
            self.set_element(container, key, value)
        elif isinstance(container, Dict):
            if isinstance(key, Const) and _hashable(key.value):
                container.items[key.value] = value
            else:
                container.open = True
                if isinstance(value, StateValue | ParametersOf | TensorValue | Unknown):
                    text = self.text(target.slice[0])
                    known = container.tensors.get(text, value)
                    container.tensors[text] = either(known, value, self)
        elif isinstance(container, SequenceValue):
            index = key.value if isinstance(key, Const) else None
            if isinstance(index, int) and -len(container.items) <= index < len(container.items):
                container.items[index] = value
            elif self.matters(value):
                container.items.append(value)
        elif isinstance(container, StateValue):
            # Tensors put into a state dict may be of another layout: it is another one now.
            same = isinstance(value, StateValue) and value.id == container.id
            if not same and not isinstance(value, Const):
                container.id, container.layout = self.new_id("state"), Layout.UNKNOWN
        elif isinstance(container, Unknown):
            module = self.as_module(container) if isinstance(value, ModuleValue) else None
            if module is not None:
                self.set_element(module, key, value)
            elif isinstance(key, Const):
                container.parts[f"[{key.value!r}]"] = value
            else:
                container.parts["[]"] = value

    def set_attribute(self: Interpreter, target: Value, name: str, value: Value) -> None:
        if isinstance(target, Unknown) and target.promoted is not None:
            target = target.promoted
        if isinstance(target, ModuleValue):
            self.set_module_attribute(target, name, value)
        elif isinstance(target, OptimizerValue) and name in OPTIMIZER_PARTS:
            self.lose_optimizer(target)
        elif isinstance(target, Instance):
            target.attributes[name] = value
        elif isinstance(target, Class):
            target.attributes[name] = value
        elif isinstance(target, Unknown):
            target.parts[name] = value
        elif isinstance(target, Made):
            self.mark(target, name)
        elif isinstance(target, ParametersOf):
            self.mark(target, name)
            if name == "requires_grad":
                self.freeze_parameters(target, value)
                modules = tuple(module.id for module in target.modules)
                self.emit(RequiresGradSet, self.executing, modules=modules)
        elif isinstance(target, Function | Symbol | LazyImport):
            return


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
