"""The loops over a model's parameters in the body of a `summon_full_params` block."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.fixes.no_sync import left_early
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.context import Migration
from fsdplint.migration.training.summon_writes import only_of
from fsdplint.source.positions import children
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

# Elementwise methods whose arguments are numbers.
ELEMENTWISE = {
    "mul_", "div_", "add_", "sub_", "zero_", "fill_", "neg_", "abs_", "clamp_", "clamp_min_",
    "clamp_max_", "sqrt_", "exp_", "sign_", "nan_to_num_",
}  # fmt: skip
# Attributes that are the same for a DTensor.
METADATA = {"dtype", "device", "shape", "requires_grad", "is_cuda", "ndim"}


@dataclass
class Loop:
    """`for name, p in model.named_parameters():`, and the arguments of `p.copy_(...)` in its body.

    node: the statement, a comprehension, or a single parameter that code reads.
    """

    node: cst.For | cst.BaseComp | cst.Attribute
    parameter: cst.Name | cst.Attribute
    copy_arguments: list[cst.Arg] = field(default_factory=list)


@dataclass
class ParameterLoops:
    """The loops over the parameters of `model` in the body of a block."""

    migration: Migration
    source: Source
    body: cst.BaseSuite
    model: cst.BaseExpression

    def find(self, *, writing: bool) -> list[Loop] | None:
        """The loops that only write, or only read, parameters; None if other statements use the model.

        After a statement that may leave the block, perhaps on some ranks, a loop reads nothing.
        """
        found: list[Loop] = []
        left = False
        if not isinstance(self.body, cst.IndentedBlock):
            return None
        for statement in self.body.body:
            loop = self._loop(statement)
            if loop is None:
                reads = None if writing else self._reads(statement)
                if reads is None:
                    return None
                found += reads
                if left and reads:
                    return None
                left = left or left_early(statement)
                continue
            if left and not writing:
                return None
            fits = self._only_written(loop) if writing else self._only_read(loop)
            if not fits:
                return None
            found.append(loop)
        return found or None

    def _reads(self, statement: cst.CSTNode) -> list[Loop] | None:
        """Where a statement reads parameters, each rank the same ones; None if it also uses the
        model otherwise."""
        found: list[Loop] = []
        stack = [statement]
        while stack:
            node = stack.pop()
            loop = self._comprehension(node) if isinstance(node, cst.BaseComp) else None
            if loop is None and isinstance(node, cst.Attribute) and self._is_parameter(node):
                loop = Loop(node, node)
            if loop is not None:
                found.append(loop)
            elif self._touches(node) and not isinstance(node, cst.Attribute):
                return None
            elif not isinstance(node, cst.AssignTarget) or not isinstance(node.target, cst.Name):
                stack += children(node)
        if found and not isinstance(statement, cst.SimpleStatementLine):
            return None
        return found if all(map(self._always_read, found)) else None

    def _always_read(self, loop: Loop) -> bool:
        """Whether a statement reads all parameters of a loop, however its tests end on a rank."""
        for use in filter(self.reads_values, self.uses(loop)):
            node: cst.CSTNode | None = use
            while node is not None and not isinstance(node, cst.SimpleStatementLine):
                if isinstance(node, cst.IfExp | cst.BooleanOperation | cst.Lambda):
                    return False
                node = self.source.parent(node)
        return self._only_read(loop)

    def _is_parameter(self, node: cst.Attribute) -> bool:
        """Whether an expression certainly is one parameter of the model."""
        values = self.migration.values(node)
        return (
            self.source.code(node).startswith(f"{self.source.code(self.model)}.")
            and self.migration.wrapping_of(self.model) == "always"
            and bool(values)
            and all(
                isinstance(v, ParametersOf) and v.element and v.name and not v.unsharded_copy
                for v in values
            )
        )

    def _comprehension(self, node: cst.BaseComp) -> Loop | None:
        if node.for_in.inner_for_in is not None:
            return None
        loop = node.for_in
        parameter = self._parameter(loop.iter, loop.target)
        names = {part.value for part in descend(loop.target) if isinstance(part, cst.Name)}
        tested = {
            part.value
            for test in loop.ifs
            for part in descend(test)
            if isinstance(part, cst.Name) and not self._is_attribute_name(part)
        }
        # Another name may differ between ranks.
        return None if parameter is None or tested - names else Loop(node, parameter)

    def _is_attribute_name(self, node: cst.Name) -> bool:
        parent = self.source.parent(node)
        return isinstance(parent, cst.Attribute) and parent.attr is node

    def _touches(self, node: cst.CSTNode) -> bool:
        """Whether a node is a module or parameters."""
        if not isinstance(node, cst.Name | cst.Attribute):
            return False
        return any(isinstance(v, ModuleValue | ParametersOf) for v in self.migration.values(node))

    def _loop(self, statement: cst.CSTNode) -> Loop | None:
        if not isinstance(statement, cst.For) or statement.orelse is not None:
            return None
        parameter = self._parameter(statement.iter, statement.target)
        if parameter is None or not isinstance(statement.body, cst.IndentedBlock):
            return None
        return Loop(statement, parameter)

    def _parameter(self, over: cst.BaseExpression, target: cst.BaseExpression) -> cst.Name | None:
        """The variable that gets each parameter of the model, in a loop over them."""
        if isinstance(over, cst.Call) and isinstance(over.func, cst.Name):
            if over.func.value != "zip" or not isinstance(target, cst.Tuple):
                return None
            given = [arg.value for arg in over.args if not arg.star and arg.keyword is None]
            pairs = zip(given, (one.value for one in target.elements), strict=False)
            found = [one for value, to in pairs if (one := self._parameter(value, to))]
            same = len(given) == len(over.args) == len(target.elements)
            return found[0] if len(found) == 1 and same else None
        if not isinstance(over, cst.Call) or not isinstance(over.func, cst.Attribute) or over.args:
            return None
        method = over.func.attr.value
        if method not in ("parameters", "named_parameters") or not self._is_model(over.func.value):
            return None
        if method == "named_parameters":
            if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
                return None
            target = target.elements[1].value
        return target if isinstance(target, cst.Name) else None

    def _is_model(self, node: cst.BaseExpression) -> bool:
        text, model = self.source.code(node), self.source.code(self.model)
        return text in (model, f"{model}.module") and bool(self.migration.wrapping_of(self.model))

    def uses(self, loop: Loop) -> list[cst.Name | cst.Attribute]:
        """Where a loop uses its parameter."""
        if not isinstance(loop.parameter, cst.Name):
            return [loop.parameter]
        assert not isinstance(loop.node, cst.Attribute)
        if isinstance(loop.node, cst.For):
            inside = list(descend(loop.node.body))
        else:
            taken = set(descend(loop.node.for_in.iter)) | set(descend(loop.node.for_in.target))
            inside = [node for node in descend(loop.node) if node not in taken]
        return [
            node
            for node in inside
            if isinstance(node, cst.Name) and node.value == loop.parameter.value
        ]

    def reads_values(self, use: cst.Name | cst.Attribute) -> bool:
        """Whether code reads more of a parameter than its type or shape."""
        return not self._reads_metadata(use)

    def _only_read(self, loop: Loop) -> bool:
        if isinstance(loop.node, cst.For):
            assert isinstance(loop.parameter, cst.Name)
            if not only_of(self.migration, loop.node.body, loop.parameter.value):
                return False
        for use in self.uses(loop):
            parent = self.source.parent(use)
            if isinstance(parent, cst.AssignTarget):
                return False
            if isinstance(parent, cst.Attribute) and parent.value is use:
                rebound = isinstance(loop.node, cst.For)  # it is no parameter any more
                if parent.attr.value == "grad" or (
                    rebound and parent.attr.value in ("requires_grad", "is_leaf")
                ):
                    return False
        return True

    def _only_written(self, loop: Loop) -> bool:
        """Whether the loop only sets its parameter elementwise or copies to it."""
        uses = self.uses(loop)
        return all(isinstance(use, cst.Name) and self._use_fits(loop, use) for use in uses)

    def _use_fits(self, loop: Loop, use: cst.Name) -> bool:
        node: cst.CSTNode = use
        parent = self.source.parent(node)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            if parent.attr.value in METADATA:
                return True
            if parent.attr.value == "data":
                node, parent = parent, self.source.parent(parent)
        if not isinstance(parent, cst.Attribute) or parent.value is not node:
            return False
        call = self.source.parent(parent)
        if not isinstance(call, cst.Call) or call.func is not parent:
            return False
        if not isinstance(self.source.parent(call), cst.Expr):
            return False
        if parent.attr.value == "copy_" and len(call.args) == 1 and not call.args[0].star:
            loop.copy_arguments.append(call.args[0])
            return not any(
                self._touches(node) and not self._reads_metadata(node)
                for node in descend(call.args[0].value)
                if isinstance(node, cst.Name | cst.Attribute)
            )
        return parent.attr.value in ELEMENTWISE and all(
            not arg.star and _is_number(arg.value) for arg in call.args
        )

    def _reads_metadata(self, node: cst.Name | cst.Attribute) -> bool:
        """Whether code only reads the dtype, the device or the shape of a parameter."""
        parent = self.source.parent(node)
        return isinstance(parent, cst.Attribute) and parent.attr.value in METADATA


def _is_number(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.UnaryOperation):
        return _is_number(node.expression)
    if isinstance(node, cst.BinaryOperation):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, cst.Integer | cst.Float)
