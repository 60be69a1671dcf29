"""The values of config objects that a constructor call gets: precision and offloading."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, return_values
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import CONFIG_UNSEEN
from fsdplint.migration.constructor import reading
from fsdplint.migration.context import Migration, expression
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

MAX_DEPTH = 4  # assignments and calls that lead to the object


@dataclass
class ConfigObjects:
    """Reads config objects of one constructor call."""

    migration: Migration
    source: Source
    at: cst.Call

    def text_or_default(self, value: cst.BaseExpression, old: str, new: str) -> str:
        """The text of a config object, with FSDP2's default in place of None.

        old: FSDP1's class. new: FSDP2's class.

        Raises:
            Blocked: these files do not make the object.
        """
        if isinstance(value, cst.IfExp):
            return self._conditional_text(value, new)
        text = expression(self.migration, self.source, value)
        if self.migration.called_name(value) == old:
            return text
        if not any(name == old for name in self.migration.names.values()):
            raise Blocked(self.source, value, CONFIG_UNSEEN(old=old))
        return f"{text} or {self._default(new)}" if self.may_be_none(value) else text

    def _conditional_text(self, value: cst.IfExp, new: str) -> str:
        arms = (value.body, value.orelse)
        objects = [arm for arm in arms if not is_constant(arm, "None")]
        maybe = any(self.may_be_none(arm) for arm in objects)
        if maybe and len(objects) < 2:
            text = expression(self.migration, self.source, value)
            return f"({text}) or {self._default(new)}"
        for arm in arms:
            if is_constant(arm, "None"):
                self.migration.substitute(self.source, arm, self._default(new))
        text = expression(self.migration, self.source, value)
        return f"({text}) or {self._default(new)}" if maybe else text

    def _default(self, new: str) -> str:
        return self.migration.need(self.source, "torch.distributed.fsdp", new, self.at) + "()"

    def may_be_none(
        self, value: cst.BaseExpression, depth: int = 0, source: Source | None = None
    ) -> bool:
        """Whether the code may give None in place of a config object."""
        source = source or self.source
        if self.migration.called_name(value):
            return False
        if depth > MAX_DEPTH:
            return True
        if isinstance(value, cst.IfExp):
            return any(self.may_be_none(x, depth + 1, source) for x in (value.body, value.orelse))
        if isinstance(value, cst.Name):
            found = definitions(source, value)
            if not found:
                source, found = reading.imported_definitions(self.migration, source, value)
            return not found or any(
                self.may_be_none(item.value, depth + 1, source) for item in found
            )
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Name | cst.Attribute):
            function = self._function(value.func)
            if function is None:
                return True
            home = next(x for x in self.migration.sources if x.parent(function) is not None)
            return any(self.may_be_none(x, depth + 1, home) for x in return_values(function))
        return True

    def _function(self, func: cst.Name | cst.Attribute) -> cst.FunctionDef | None:
        """The only function of these files that has the name of a called one."""
        name = func.attr.value if isinstance(func, cst.Attribute) else func.value
        found = [
            node
            for source in self.migration.sources
            for node in source.descend(source.tree)
            if isinstance(node, cst.FunctionDef) and node.name.value == name
        ]
        return found[0] if len(found) == 1 else None
