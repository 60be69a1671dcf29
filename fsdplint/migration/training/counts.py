"""Sizes of parameters, of which FSDP1 gives the program this rank's part.

FSDP2's parameters have the whole size. A program that adds the parts of all ranks up counts
`to_local()` after the rewrite, since it would count each parameter once for each rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.constructor.ignored_values import may_ignore
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.training.gradients import is_of_fsdp1
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.syntax.qualified_names import symbols_in

SIZES = ("numel", "nelement")
WORLD_SIZE = "torch.distributed.get_world_size"
COLLECTIVES = {
    f"torch.distributed.{name}"
    for name in ("all_reduce", "reduce", "all_gather", "all_gather_object", "gather")
}
PARAMETERS = ("parameters", "named_parameters")
INNER = ("module", "_fsdp_wrapped_module")
TITLE = "Count this rank's part: `to_local()`"
Assignment = cst.Assign | cst.AnnAssign | cst.AugAssign


def rewrite(migration: Migration, source: Source) -> None:
    """Count this rank's part where the program adds the parts of all ranks up."""
    if not any(size in source.text for size in SIZES) or may_ignore(migration):
        return
    symbols = symbols_in(source)
    for node in nodes(source):
        parameter = measured_value(node)
        if parameter is None:
            continue
        of_fsdp1 = is_of_fsdp1(migration.program, parameter)
        if not of_fsdp1 and not is_of_inner_module(migration, source, parameter):
            continue
        if _Flow(source, node, symbols).is_added_up():
            text = migration.text(source, parameter)
            migration.substitute(source, parameter, f"{text}.to_local()")
            migration.blocks.local_shard_functions.add(node)
            migration.step(source, node, TITLE)


def measured_value(node: cst.CSTNode) -> cst.BaseExpression | None:
    """What a call asks for the number of its elements; None for any other node."""
    if not isinstance(node, cst.Call) or node.args or not isinstance(node.func, cst.Attribute):
        return None
    return node.func.value if node.func.attr.value in SIZES else None


def is_of_inner_module(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Whether a node is a parameter in a loop over `model.module.parameters()` of a wrapper.

    The wrapper has made them the parts of this rank, too.
    """
    if not isinstance(node, cst.Name):
        return False
    for around in ancestors(source, node):
        loop = around if isinstance(around, cst.For) else getattr(around, "for_in", None)
        if isinstance(loop, cst.For | cst.CompFor) and any(
            isinstance(part, cst.Name) and part.value == node.value for part in descend(loop.target)
        ):
            return _is_over_inner(migration, loop.iter)
    return False


def _is_over_inner(migration: Migration, iterable: cst.BaseExpression) -> bool:
    function = iterable.func if isinstance(iterable, cst.Call) else None
    if not isinstance(function, cst.Attribute) or function.attr.value not in PARAMETERS:
        return False
    inner = function.value
    if not isinstance(inner, cst.Attribute) or inner.attr.value not in INNER:
        return False
    return migration.wrapping_of(inner.value) == "always"


@dataclass
class _Flow:
    """Where a number goes in its function.

    Attributes:
        source: the file.
        node: the expression of the number.
        symbols: what names refer to.
    """

    source: Source
    node: cst.CSTNode
    symbols: dict[cst.CSTNode, str]

    def is_added_up(self) -> bool:
        """Whether a collective, or a product with the number of ranks, gets what is made of it."""
        scope = function_around(self.source, self.node)
        parts = list(descend(scope))
        assignments = [part for part in parts if isinstance(part, Assignment)]
        held = self._bound_by_statement()
        known = -1
        while known != len(held):
            known = len(held)
            for one in assignments:
                if one.value is not None and self._is_made_of(one.value, held):
                    held |= _targets(one)
        sizes = {
            name for one in assignments if self._is_world_size(one.value) for name in _targets(one)
        }
        return any(self._adds_up(part, held, sizes) for part in parts)

    def _bound_by_statement(self) -> set[str]:
        statement = statement_of(self.source, self.node)
        small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        return {name for one in small if isinstance(one, Assignment) for name in _targets(one)}

    def _adds_up(self, part: cst.CSTNode, held: set[str], sizes: set[str]) -> bool:
        if isinstance(part, cst.Call):
            is_collective = self.symbols.get(part.func) in COLLECTIVES
            return is_collective and any(self._is_made_of(arg.value, held) for arg in part.args)
        if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Multiply):
            return any(
                self._is_made_of(one, held) and self._is_world_size(other, sizes)
                for one, other in ((part.left, part.right), (part.right, part.left))
            )
        return False

    def _is_world_size(self, node: cst.CSTNode | None, names: set[str] | None = None) -> bool:
        if isinstance(node, cst.Call):
            return self.symbols.get(node.func) == WORLD_SIZE
        return isinstance(node, cst.Name) and node.value in (names or ())

    def _is_made_of(self, node: cst.CSTNode, names: set[str]) -> bool:
        return any(
            part is self.node or (isinstance(part, cst.Name) and part.value in names)
            for part in (node, *descend(node))
        )


def _targets(one: Assignment) -> set[str]:
    targets = [t.target for t in one.targets] if isinstance(one, cst.Assign) else [one.target]
    return {target.value for target in targets if isinstance(target, cst.Name)}
