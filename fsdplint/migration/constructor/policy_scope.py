"""The place where a policy is read, and the variables there."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.reaching import reach
from fsdplint.migration.analysis.variables import Definition, fresh, home_of, reads
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import POLICY_SHARED
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.context import Migration, expression
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend


class PolicyScope:
    """Reads the variables around one policy.

    Attributes:
        at: the constructor call, or the policy itself where it is rewritten in its place.
        function: the function that holds it, else the file's tree.
        policy: the result.
    """

    def __init__(self, migration: Migration, source: Source, at: cst.CSTNode) -> None:
        self.migration = migration
        self.source = source
        self.at = at
        self.function = function_around(source, at)
        self.policy = Policy(variable=fresh(source, at, "module", "submodule", "part"))

    def text(self, node: cst.CSTNode) -> str:
        """The new text of a node."""
        return expression(self.migration, self.source, node)

    def value_of(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The value of a variable that is assigned once; any other node itself."""
        definition = self.definition(node)
        return definition.value if definition is not None else node

    def definition(self, node: cst.CSTNode) -> Definition | None:
        """The definition that a variable of this function or of the file gets its value from."""
        if not isinstance(node, cst.Name) or self.migration.symbol(node):
            return None
        home = home_of(self.source, node)
        if home is not self.function and home is not self.source.tree:
            return None
        found = reach(self.source, node)
        return found.definition if found is not None else None

    def drop_variable(self, node: cst.BaseExpression) -> None:
        """Delete the definition of the variable `node` with the rewrite.

        Raises:
            Blocked: other code reads the variable.
        """
        definition = self.definition(node)
        if definition is None or not isinstance(node, cst.Name):
            return
        if not self.is_only_read(node):
            raise Blocked(self.source, definition.statement, POLICY_SHARED())
        self.policy.variables.append((self.source, definition))

    def is_only_read(self, node: cst.Name) -> bool:
        """Whether a variable is read here and nowhere else."""
        found = reach(self.source, node)
        if found is not None:
            return len(found.reads) == 1
        home = home_of(self.source, node)
        return home is not None and len(reads(self.source, home, node.value)) == 1

    def functions(self, name: str) -> list[cst.FunctionDef]:
        """The functions of the file that have a name."""
        return [
            part
            for part in descend(self.source.tree)
            if isinstance(part, cst.FunctionDef) and part.name.value == name
        ]

    def hoist(self, text: str, wanted: str = "layer_class") -> str:
        """Assign an expression to a variable before the loop; returns the variable's name."""
        base = fresh(self.source, self.at, wanted, f"{wanted}_2", f"{wanted}_3")
        used_names = [line.partition(" = ")[0] for line in self.policy.setup]
        name, number = base, 2
        while name in used_names:
            name = f"{base}_{number}"
            number += 1
        self.policy.setup.append(f"{name} = {text}")
        return name
