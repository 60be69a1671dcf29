"""One name for the classes of two libraries, and which of them a use means.

`try: from torch_xla... import X as FSDP` with `xm = None` in the `except`, or `if USE_XLA:`. A use
means torch's class if it runs under a test that certainly has the same result as this choice: the
test of the choice itself, or a name that one arm of the choice makes true and the other false.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.variables import Definition, definition_at
from fsdplint.source.source import Source, once
from fsdplint.syntax.bindings import Imported, bindings_of
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import canonical, imported_names

TORCH_ARM, OTHER_ARM = 0, 1
TestArms = tuple[int | None, int | None]  # the arms in which a test is true, and false
CONSTANTS = ("True", "False", "None")
UNKNOWN: TestArms = (None, None)
ENVIRONMENT = re.compile(
    r"""os\.(?:environ\.get|getenv)\((["'])(\w+)\1(?:, (["'])\w*\3)?\)(?: [!=]= (["'])\w*\4)?"""
)
WORD = re.compile(r"\w+")
MUTABLE = (cst.List, cst.Dict, cst.Set, cst.BaseComp, cst.Name, cst.Lambda)


@dataclass(eq=False)
class Choice:
    """A statement of the top level that imports a name from one library or from another.

    Attributes:
        torch_import: the import from torch.
        other_import: the import from the other library.
        arms: the statements of torch's arm, and those of the other library's arm.
    """

    source: Source
    statement: cst.If | cst.Try
    torch_import: Imported
    other_import: Imported
    arms: tuple[list[cst.CSTNode], list[cst.CSTNode]]
    program: list[Source]
    _pending: set[cst.CSTNode] = field(default_factory=set)
    _function_arms: dict[cst.CSTNode, int | None] = field(default_factory=dict)

    def arm_of(self, node: cst.CSTNode) -> int | None:
        """The only arm with which a node runs; None if it is not known."""
        child = node
        function: cst.FunctionDef | None = None
        for parent in ancestors(self.source, node):
            if parent is self.statement:
                return None
            found = self._arm_under_test(parent, child)
            if found is not None:
                return found
            if isinstance(parent, cst.FunctionDef) and child is parent.body:
                function = parent
            child = parent
        return self._arm_of_callers(function) if function is not None else None

    def in_other_arm(self, node: cst.CSTNode) -> bool:
        """Whether a node of any file runs only with the other library's arm."""
        return self.source.parent(node) is not None and self.arm_of(node) == OTHER_ARM

    def is_bound_in_torch_arm_only(self, node: cst.CSTNode) -> bool:
        """Whether a node is a name that only torch's arm binds."""
        if not isinstance(node, cst.Name) or not self._is_module_name(node):
            return False
        bindings = bindings_of(self.source)
        bound = [x.statement for x in bindings.imports() if x.local == node.value]
        return (
            bool(bound)
            and all(x in self.arms[TORCH_ARM] for x in bound)
            and not bindings.module.others.get(node.value)
        )

    def _arm_under_test(self, parent: cst.CSTNode, child: cst.CSTNode) -> int | None:
        if isinstance(parent, cst.If | cst.IfExp):
            true, false = self._test(parent.test)
            return true if child is parent.body else false if child is parent.orelse else None
        if isinstance(parent, cst.BooleanOperation) and child is parent.right:
            true, false = self._test(parent.left)
            return true if isinstance(parent.operator, cst.And) else false
        if isinstance(parent, cst.IndentedBlock):
            return self._arm_after_exits(parent, child)
        return None

    def _arm_after_exits(self, block: cst.IndentedBlock, child: cst.CSTNode) -> int | None:
        """The arm that remains after `if xm: return ...` earlier in the same block."""
        for statement in block.body:
            if statement is child:
                break
            if isinstance(statement, cst.If) and statement.orelse is None:
                found = self._test(statement.test)[1] if _leaves(statement.body) else None
                if found is not None:
                    return found
        return None

    def _test(self, node: cst.BaseExpression) -> TestArms:
        """The arms in which a test is true, and false."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            true, false = self._test(node.expression)
            return false, true
        if isinstance(node, cst.BooleanOperation):
            left, right = self._test(node.left), self._test(node.right)
            if isinstance(node.operator, cst.And):
                return (left[0] if left[0] is not None else right[0]), None
            return None, (left[1] if left[1] is not None else right[1])
        if isinstance(node, cst.Name):
            found = self._arms_of_binding(node, none=False)
            if found != UNKNOWN:
                return found
        if isinstance(node, cst.Comparison) and isinstance(node.left, cst.Name):
            return self._is_none(node, node.left)
        return self._arms_of_own_test(node)

    def _is_none(self, node: cst.Comparison, name: cst.Name) -> TestArms:
        """The arms in which `xm is None` or `xm is not None` is true, and false."""
        right = node.comparisons[0]
        none = isinstance(right.comparator, cst.Name) and right.comparator.value == "None"
        if len(node.comparisons) == 1 and none and isinstance(right.operator, cst.Is | cst.IsNot):
            true, false = self._arms_of_binding(name, none=True)
            return (true, false) if isinstance(right.operator, cst.Is) else (false, true)
        return self._arms_of_own_test(node)

    def _arms_of_binding(self, name: cst.Name, *, none: bool) -> TestArms:
        """The arms in which a name is true (or None), and false, if only both arms bind it."""
        if not self._is_module_name(name):
            return UNKNOWN
        bindings = bindings_of(self.source)
        nodes = [
            *bindings.module.others.get(name.value, ()),
            *(x.statement for x in bindings.imports() if x.local == name.value),
        ]
        found: dict[int, bool] = {}
        for node in nodes:
            known = self._arm_of_value(node, none)
            if known is None or known[0] in found:
                return UNKNOWN
            found[known[0]] = known[1]
        if len(found) != 2 or found[TORCH_ARM] == found[OTHER_ARM]:
            return UNKNOWN
        return (TORCH_ARM, OTHER_ARM) if found[TORCH_ARM] else (OTHER_ARM, TORCH_ARM)

    def _arm_of_value(self, node: cst.CSTNode, none: bool) -> tuple[int, bool] | None:
        """The arm that binds a name unconditionally, and whether the name is true (or None) there."""
        statement = node
        while not isinstance(statement, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            above = self.source.parent(statement)
            if above is None:
                return None
            statement = above
        arm = next((n for n, part in enumerate(self.arms) if statement in part), None)
        if arm is None:
            return None
        if isinstance(statement, cst.Import):
            return arm, not none  # a module
        if isinstance(statement, cst.Assign) and isinstance(statement.value, cst.Name):
            value = statement.value.value
            if value in CONSTANTS and any(x.target is node for x in statement.targets):
                return arm, value == ("None" if none else "True")
        return None

    def _is_module_name(self, name: cst.Name) -> bool:
        bindings = bindings_of(self.source)
        return bindings.owner(bindings.scope_at(name), name.value) is bindings.module

    def _arms_of_own_test(self, node: cst.BaseExpression) -> TestArms:
        """The arms in which the test of the choice is true, and false, if its result cannot change."""
        statement = self.statement
        if not isinstance(statement, cst.If):
            return UNKNOWN
        true = TORCH_ARM if _contains(statement.body, self.torch_import.statement) else OTHER_ARM
        sides = (true, OTHER_ARM if true == TORCH_ARM else TORCH_ARM)
        test: cst.BaseExpression = statement.test
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            test, sides = test.expression, (sides[1], sides[0])
        if self.source.code(node) != self.source.code(test) or not self._is_constant(test):
            return UNKNOWN
        if isinstance(node, cst.Name) and not self._is_module_name(node):
            return UNKNOWN
        return sides

    def _is_constant(self, test: cst.BaseExpression) -> bool:
        """Whether a test always has the same result.

        That holds for a name that is bound once, and for an environment variable that no other code
        mentions.
        """
        text = self.source.code(test)
        if isinstance(test, cst.Name):
            bindings = bindings_of(self.source)
            bound = bindings.module.others.get(test.value, ())
            if len(bound) != 1 or any(x.local == test.value for x in bindings.imports()):
                return False
            found = definition_at(self.source, bound[0])
            return found is not None and self._is_immutable(found)
        match = ENVIRONMENT.fullmatch(text)
        if match is None or imported_names(self.source).get("os") != "os":
            return False
        return all(x.text.count(match[2]) == x.text.count(text) for x in self.program)

    def _is_immutable(self, definition: Definition) -> bool:
        """Whether a variable is assigned at the top level and its truth value cannot change."""
        value = definition.value
        line = self.source.parent(definition.statement)
        if line is None or self.source.parent(line) is not self.source.tree:
            return False
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Name):
            return value.func.value not in ("list", "dict", "set", "deque", "defaultdict")
        return not isinstance(value, MUTABLE) or self.source.code(value) in CONSTANTS

    def _arm_of_callers(self, function: cst.FunctionDef) -> int | None:
        """The arm of all code that mentions a function."""
        name = function.name.value
        if (
            function in self._pending
            or function.decorators
            or not self._is_called_by_name_only(function)
        ):
            return None
        if function in self._function_arms:
            return self._function_arms[function]
        self._pending.add(function)
        try:
            found = self._common_arm(
                (source, node)
                for source in self.program
                for node in _mentions(source).get(name, ())
                if node is not function.name
            )
        finally:
            self._pending.remove(function)
        if not self._pending:  # otherwise the result may depend on a pending function
            self._function_arms[function] = found
        return found

    def _common_arm(self, nodes: Iterable[tuple[Source, cst.CSTNode]]) -> int | None:
        """The arm of all these nodes, or None."""
        sides: set[int | None] = set()
        for source, node in nodes:
            sides.add(self.arm_of(node) if source is self.source else None)
            if None in sides or len(sides) > 1:
                return None
        return sides.pop() if sides else None

    def _is_called_by_name_only(self, function: cst.FunctionDef) -> bool:
        """Whether every call of a function mentions its name.

        It is at the top level or in a class without bases, and Python does not call it implicitly.
        """
        name = function.name.value
        if name.startswith("__") and name.endswith("__"):
            return False
        for parent in ancestors(self.source, function):
            if isinstance(parent, cst.ClassDef) and (parent.bases or parent.keywords):
                return False
            if isinstance(parent, cst.FunctionDef | cst.Lambda):
                return False
        return True


@once
def _mentions(source: Source) -> dict[str, list[cst.CSTNode]]:
    """For each name, the nodes that are this name and the strings that contain it."""
    result: dict[str, list[cst.CSTNode]] = {}
    for node in source.descend(source.tree):
        if isinstance(node, cst.Name):
            result.setdefault(node.value, []).append(node)
        elif isinstance(node, cst.SimpleString | cst.FormattedStringText):
            for name in set(WORD.findall(node.value)):
                result.setdefault(name, []).append(node)
    return result


def _contains(body: cst.CSTNode, node: cst.CSTNode) -> bool:
    return any(part is node for part in descend(body))


def choice_of(source: Source, items: list[Imported], program: list[Source]) -> Choice | None:
    """The choice between two imports of one name, if nothing else binds the name.

    Torch's import has to be the last, because other analyses resolve the name to the last import.
    """
    bindings = bindings_of(source)
    if len(items) != 2 or any(x.name is None for x in items):
        return None
    if any(x.scope is not bindings.module for x in items):
        return None
    other_import, torch_import = items
    name = torch_import.local
    if any(x.binds(name) for x in bindings.scopes.values() if x is not bindings.module):
        return None
    if bindings.module.others.get(name) or name in bindings.exported:
        return None
    if canonical(imported_names(source).get(name, "")) != canonical(torch_import.full):
        return None
    for statement in source.tree.body:
        if not isinstance(statement, cst.If | cst.Try):
            continue
        arms = _arms(statement)
        if arms is None:
            continue
        for mine, other in (arms, arms[::-1]):
            if torch_import.statement in mine and other_import.statement in other:
                return Choice(source, statement, torch_import, other_import, (mine, other), program)
    return None


def _arms(statement: cst.If | cst.Try) -> tuple[list[cst.CSTNode], list[cst.CSTNode]] | None:
    """The statements of both arms, exactly one of which runs to its end."""
    if isinstance(statement, cst.If):
        if not isinstance(statement.orelse, cst.Else):
            return None
        return _small_statements(statement.body), _small_statements(statement.orelse.body)
    if len(statement.handlers) != 1 or statement.finalbody is not None:
        return None
    after = _small_statements(statement.orelse.body) if statement.orelse is not None else []
    return [*_small_statements(statement.body), *after], _small_statements(
        statement.handlers[0].body
    )


def _leaves(body: cst.BaseSuite) -> bool:
    """Whether a block ends with `return` or `raise`."""
    last: cst.CSTNode | None = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Return | cst.Raise)


def _small_statements(body: cst.BaseSuite) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    for line in body.body:
        if isinstance(line, cst.SimpleStatementLine):
            found.extend(line.body)
        elif isinstance(line, cst.BaseSmallStatement):
            found.append(line)
    return found
