"""Fabrics, Trainers and their strategies, known by what makes them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.interpreter.lightning_names import FABRICS, TRAINERS
from fsdplint.interpreter.values import Unknown
from fsdplint.migration.analysis.class_hierarchy import own_class, positional_parameters
from fsdplint.migration.analysis.object_classes import (
    classes_of,
    functions,
    library_bases,
    values_assigned,
    with_bases,
)
from fsdplint.migration.analysis.object_search import ObjectSearch
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import symbols_in

# Library classes whose objects have a Trainer or Fabric in an attribute.
_HOLDERS = (".LightningModule", ".LightningDataModule", ".LightningCLI")


def is_fabric(program: Program, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression may be a Fabric."""
    return _Frameworks(program, FABRICS, attribute="fabric").is_one(source, node)


def is_trainer(program: Program, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression may be a Trainer."""
    return _Frameworks(program, TRAINERS, attribute="trainer").is_one(source, node)


def is_strategy(
    program: Program, source: Source, node: cst.BaseExpression, classes: Set[str]
) -> bool:
    """Whether an expression may be the strategy of a Fabric or Trainer, of one of some classes."""
    return _Strategies(program, classes).is_one(source, node)


@dataclass
class _Frameworks(ObjectSearch):
    """attribute: the one that objects of some classes of Lightning have it in."""

    attribute: str = ""

    def _is_given(self, source: Source, owner: cst.BaseExpression, name: str) -> bool:
        if name != self.attribute:
            return False
        bases = {
            full
            for one in classes_of(self.program, source, owner)
            for place in with_bases(self.program, one)
            for full in library_bases(*place)
        }
        for value in self.program.values(owner):
            bases |= {value.library} if isinstance(value, Unknown) else set()
        found = values_assigned(source, owner)
        bases |= {_called(source, one) for one in found}
        return any(full.endswith(_HOLDERS) and "lightning" in full for full in bases)

    def _is_passed(self, source: Source, function: cst.FunctionDef, param: cst.Param) -> bool:
        """Whether Lightning gives the Trainer to a hook of a Callback."""
        klass = own_class(source, function)
        params = positional_parameters(source, function)
        if klass is None or self.classes is not TRAINERS or params[:1] != [param]:
            return False
        bases = {
            full
            for place in with_bases(self.program, (source, klass))
            for full in library_bases(*place)
        }
        return any(full.endswith(".Callback") and "lightning" in full for full in bases)

    def _passes_itself(self, source: Source, call: cst.Call, function: cst.FunctionDef) -> bool:
        """Whether `fabric.launch(function)` gives the Fabric to a function."""
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "launch" or not call.args:
            return False
        if self.classes is not FABRICS or not self.is_one(source, func.value):
            return False
        return any(
            one is function for _, one in functions(self.program, source, call.args[0].value)
        )


@dataclass
class _Strategies(ObjectSearch):
    def _is_given(self, source: Source, owner: cst.BaseExpression, name: str) -> bool:
        if name not in ("strategy", "_strategy"):
            return False
        of_fabric = is_fabric(self.program, source, owner)
        return of_fabric or is_trainer(self.program, source, owner)


def _called(source: Source, node: cst.CSTNode) -> str:
    return symbols_in(source).get(node.func, "") if isinstance(node, cst.Call) else ""
