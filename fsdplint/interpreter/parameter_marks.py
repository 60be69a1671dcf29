"""Attributes that a program sets on parameters and asks them for, and hooks on parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter.values import HookHandle, Made, ModuleValue, ParametersOf, Value
from fsdplint.trace import MethodRegistered, ParameterMarked, ParameterMarkRead, RowEdited
from fsdplint.trace.groups import Shard

if TYPE_CHECKING:
    from fsdplint.interpreter.frames import Call
    from fsdplint.interpreter.run import Interpreter

# What every tensor has.
_OWN = {"requires_grad", "data", "grad", "names", "grad_dtype"}
EDITS = {"zero_", "fill_", "mul_", "normal_", "uniform_"}


class Marks:
    """The part of the interpreter that knows of marks on parameters."""

    def mark(
        self: Interpreter, target: Value, name: str, *, hook: bool = False
    ) -> ParameterMarked | None:
        """An attribute is set on a parameter, or a hook registered on it."""
        modules: tuple[str, ...] = ()
        if isinstance(target, ParametersOf) and target.element:
            modules = tuple(module.id for module in target.modules)
        elif isinstance(target, Made) and target.name == "torch.nn.Parameter":
            modules = self._holders(target)
        if modules and name not in _OWN:
            self.marks.add(name)
            return self.emit(ParameterMarked, self.executing, modules=modules, name=name, hook=hook)
        return None

    def unmark(self: Interpreter, target: Value, name: str) -> None:
        """`del parameter.name`"""
        if name in self.marks and isinstance(target, ParametersOf):
            self._removed(mark for mark in self.trace.of(ParameterMarked) if mark.name == name)

    def unhook(self: Interpreter, handle: Value | None, call: Call) -> None:
        """`handle.remove()`; a handle that is not known may be that of any hook."""
        node = call.node.func if isinstance(call.node, cst.Call) else None
        if not isinstance(node, cst.Attribute) or node.attr.value != "remove" or call.values:
            return
        hooks = [mark for mark in self.trace.of(ParameterMarked) if mark.hook]
        if isinstance(handle, HookHandle) and handle.mark is not None:
            same = [mark for mark in hooks if mark.site == handle.mark.site]
            hooks = [*same, handle.mark]  # in a loop there is one handle for those of all turns
        self._removed(hooks)

    def _removed(self: Interpreter, marks: Iterable[ParameterMarked]) -> None:
        for mark in marks:
            if not any(isinstance(event, Shard) for event in self.trace.events[mark.index :]):
                mark.removed = True

    def ask(self: Interpreter, target: Value, name: str, node: cst.CSTNode) -> None:
        """An attribute is asked of a parameter; counts if parameters were given it before."""
        if name in self.marks and isinstance(target, ParametersOf) and target.element:
            if not self.stale_of(target):
                modules = tuple(module.id for module in target.modules)
                self.emit(ParameterMarkRead, node, modules=modules, name=name)

    def edit_row(self: Interpreter, node: cst.Call) -> None:
        """`parameter[0].zero_()`, seen before it is called."""
        method = node.func
        if not isinstance(method, cst.Attribute) or method.attr.value not in EDITS:
            return
        part = method.value
        if not isinstance(part, cst.Subscript) or self._in_forward():
            return
        row = part.slice[0].slice
        if isinstance(row, cst.Slice):
            known = row.lower is not None or row.upper is not None
        else:
            value = row.value if isinstance(row, cst.Index) else None
            known = not isinstance(value, cst.Ellipsis | cst.Tuple | cst.Comparison)
        whole = self.evaluations.get(part.value)
        if known and isinstance(whole, ParametersOf) and whole.element and len(whole.modules) == 1:
            self.emit(RowEdited, node, module=whole.modules[0].id, api=method.attr.value)

    def _in_forward(self: Interpreter) -> bool:
        """Whether a module is running in which parameters may be gathered."""
        gathering = {event.method for event in self.trace.of(MethodRegistered)}
        running = {getattr(self.trace.events[number], "via", "") for number in self.calling}
        return bool(running & {"call", "forward", *gathering}) or bool(running and "*" in gathering)

    def _holders(self: Interpreter, parameter: Made) -> tuple[str, ...]:
        return tuple(
            value.id
            for value in self.objects.values()
            if isinstance(value, ModuleValue)
            and any(held is parameter for held in value.attributes.values())
        )
