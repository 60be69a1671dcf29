"""Attributes that a program sets on parameters and asks them for, and hooks on parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.program.values import Made, ModuleValue, ParametersOf, Value
from fsdplint.trace import ParameterMarked, ParameterMarkRead

if TYPE_CHECKING:
    from fsdplint.program.interpreter import Interpreter

# What every tensor has.
_OWN = {"requires_grad", "data", "grad", "names", "grad_dtype"}


class Marks:
    """The part of the interpreter that knows of marks on parameters."""

    def mark(self: Interpreter, target: Value, name: str, *, hook: bool = False) -> None:
        """An attribute is set on a parameter, or a hook registered on it."""
        modules: tuple[str, ...] = ()
        if isinstance(target, ParametersOf) and target.element:
            modules = tuple(module.id for module in target.modules)
        elif isinstance(target, Made) and target.name == "torch.nn.Parameter":
            modules = self._holders(target)
        if modules and name not in _OWN:
            self.marks.add(name)
            self.emit(ParameterMarked, self.executing, modules=modules, name=name, hook=hook)

    def ask(self: Interpreter, target: Value, name: str, node: cst.CSTNode) -> None:
        """An attribute is asked of a parameter; counts if parameters were given it before."""
        if name in self.marks and isinstance(target, ParametersOf) and target.element:
            if not self.stale_of(target):
                modules = tuple(module.id for module in target.modules)
                self.emit(ParameterMarkRead, node, modules=modules, name=name)

    def _holders(self: Interpreter, parameter: Made) -> tuple[str, ...]:
        return tuple(
            value.id
            for value in self.objects.values()
            if isinstance(value, ModuleValue)
            and any(held is parameter for held in value.attributes.values())
        )
