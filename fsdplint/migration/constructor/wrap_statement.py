"""The text of one rewritten constructor call, and its statement."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.variables import fresh, home_of
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    CALL_IN_EXPRESSION,
    CALL_IN_HEAD,
    CALL_WITH_SEVERAL_TARGETS,
)
from fsdplint.migration.constructor.argument_comments import lines_of_items
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.local_functions import initialize_helper
from fsdplint.migration.constructor.unit_lines import UnitLines
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.names import PARAMETERS
from fsdplint.migration.text import call, indented, is_repeatable
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.evaluation_order import is_evaluated_first
from fsdplint.syntax.layout import comments_at, descend, statement_of

COMMENTED_ARGUMENT = re.compile(rf"#+\s*({'|'.join(PARAMETERS)})\s*=[^=]")
# Arguments that leave no text, or lines with a comment of their own.
REMOVED_ARGUMENTS = {
    "sync_module_states",
    "backward_prefetch",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "device_id",
}
# Nodes that hold a call, and before which no lines can stand.
EXPRESSIONS = (
    cst.Lambda,
    cst.IfExp,
    cst.BooleanOperation,
    cst.ListComp,
    cst.GeneratorExp,
    cst.SetComp,
    cst.DictComp,
)


@dataclass
class WrapStatement:
    """Writes the new text of the statement that holds a constructor call.

    Attributes:
        module: the module that the call wraps.
        shard: the name of `fully_shard` in the file.
        removed_arguments: the arguments that leave no text; comments beside them are removed, too.
    """

    migration: Migration
    source: Source
    call: cst.Call
    module: cst.BaseExpression
    keywords: Keywords
    shard: str = "fully_shard"
    removed_arguments: set[str] = field(default_factory=lambda: set(REMOVED_ARGUMENTS))

    # The statement --------------------------------------------------------------------------------

    def rewrite(self) -> None:
        """Rewrite the statement.

        Raises:
            Blocked: the call stands where no lines can be added.
        """
        statement = statement_of(self.source, self.call)
        if self._fits_in_place():
            self._replace_call()
            return
        if self._rewrite_lambda(statement):
            return
        inner = expression(self.migration, self.source, self.module)
        if self._rewrite_choice(statement, inner):
            return
        place = self._place(statement)
        if place == "assign":
            assert isinstance(statement, cst.Assign | cst.AnnAssign)
            target = statement.target if isinstance(statement, cst.AnnAssign) else None
            target = target or statement.targets[0].target  # type: ignore[union-attr]
            text = expression(self.migration, self.source, target)
            self._replace(statement, self._assignment(text, inner, statement))
            return
        if is_repeatable(self.module):
            model, lines = inner, []
        else:
            model = self._name()
            lines = [f"{model} = {inner}"]
        root = lines + self._lines_before(model)
        if place == "return":
            self._replace(statement, [*root, *self._last_lines(model, "return ", statement)])
        elif place == "expression":
            self._replace(statement, [*root, *self._last_lines(model, "", statement)])
        else:
            self._insert_around(statement, model, root)

    def _rewrite_lambda(self, statement: cst.CSTNode) -> bool:
        """`shard = lambda model: FSDP(model, ...)` becomes a function of several lines."""
        around = self.source.parent(self.call)
        if not isinstance(around, cst.Lambda) or not isinstance(statement, cst.Assign):
            return False
        target = statement.targets[0].target
        if statement.value is not around or len(statement.targets) != 1:
            return False
        if not isinstance(target, cst.Name):
            return False
        lines = []
        model = inner = expression(self.migration, self.source, self.module)
        if not is_repeatable(self.module):
            model = self._name()
            lines = [f"{model} = {inner}"]
        lines += [*self._lines_before(model), *self._last_lines(model, "return ", statement)]
        head = f"def {target.value}({self.source.code(around.params)}):"
        self._replace(statement, [head, *(indented(line) for line in lines)])
        return True

    def _rewrite_choice(self, statement: cst.CSTNode, inner: str) -> bool:
        """`model = FSDP(model, ...) if test else model` becomes an `if` statement."""
        around = self.source.parent(self.call)
        if not isinstance(around, cst.IfExp) or around.test is self.call:
            return False
        if not isinstance(statement, cst.Assign) or statement.value is not around:
            return False
        if len(statement.targets) != 1 or not is_repeatable(statement.targets[0].target):
            return False
        other = around.orelse if around.body is self.call else around.body
        if any(self.migration.fsdp1(part) for part in descend(other)):
            return False
        target = expression(self.migration, self.source, statement.targets[0].target)
        test = expression(self.migration, self.source, around.test)
        rest = expression(self.migration, self.source, other)
        lines = [indented(line) for line in self._assignment(target, inner, statement)]
        otherwise = [f"\t{target} = {rest}"] if rest != target else []
        if around.body is self.call:
            lines = [f"if {test}:", *lines, *(["else:", *otherwise] if otherwise else [])]
        elif otherwise:
            lines = [f"if {test}:", *otherwise, "else:", *lines]
        else:
            lines = [f"if not ({test}):", *lines]
        self._replace(statement, lines)
        return True

    def _insert_around(self, statement: cst.CSTNode, model: str, root: list[str]) -> None:
        """Put the lines for a call that is a part of its statement before that statement."""
        text = self.migration.indent_at(self.source, self.call, self._root_call(model, ""))
        if after := self.keywords.after(model):
            root, text = [*root, self._root_call(model, ""), *after], model
        self.migration.rewrite.insert_before(self.source, statement, root)
        self.migration.substitute(self.source, self.call, text)

    def _name(self) -> str:
        """The variable for a module that the call builds or moves."""
        node = self.module
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            owner = node.func.value
            moves = node.func.attr.value in ("to", "cuda", "train", "eval")
            if moves and isinstance(owner, cst.Name):
                if home_of(self.source, owner) is function_around(self.source, self.call):
                    return owner.value
        return fresh(self.source, self.call, "model", "sharded_model", "module")

    def _fits_in_place(self) -> bool:
        """Whether `FSDP(x, ...)` can become `fully_shard(x, ...)` in its place."""
        return (
            self.keywords.policy is None
            and not self.keywords.setup
            and not self.keywords.initialize
            and not self.keywords.after("model")
            and not self._assigns_itself()
        )

    def _assigns_itself(self) -> bool:
        """Whether the statement is `model = FSDP(model)`: FSDP2 needs no assignment."""
        statement = statement_of(self.source, self.call)
        return (
            isinstance(statement, cst.Assign)
            and statement.value is self.call
            and len(statement.targets) == 1
            and is_repeatable(self.module)
            and self.source.code(statement.targets[0].target) == self.source.code(self.module)
        )

    def _replace_call(self) -> None:
        inner = self.migration.text(self.source, self.module)
        arguments = [inner, *self.keywords.arguments(inner=False)]
        self.migration.put_call(self.source, self.call, self.shard, arguments)
        self.migration.forget_comments(self.source, self._removed_lines())

    def _place(self, statement: cst.CSTNode) -> str:
        """How the statement holds the call: "assign", "return", "expression" or "nested"."""
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            if statement.value is self.call:
                return "assign"
        if isinstance(statement, cst.AnnAssign) and statement.value is self.call:
            return "assign"
        if isinstance(statement, cst.Return) and statement.value is self.call:
            return "return"
        if isinstance(statement, cst.Expr) and statement.value is self.call:
            return "expression"
        if isinstance(statement, cst.If) and self._comes_first(statement.test):
            return "nested"
        if not isinstance(statement, cst.BaseSmallStatement):
            raise Blocked(self.source, self.call, CALL_IN_HEAD())
        for node in ancestors(self.source, self.call):
            if node is statement:
                break
            if isinstance(node, EXPRESSIONS):
                raise Blocked(self.source, self.call, CALL_IN_EXPRESSION())
        if isinstance(statement, cst.Assign) and not all(
            is_repeatable(target.target) for target in statement.targets
        ):
            if not self._comes_first(statement.value):
                raise Blocked(self.source, self.call, CALL_WITH_SEVERAL_TARGETS())
        return "nested"

    def _comes_first(self, root: cst.BaseExpression) -> bool:
        """Whether lines before the statement are executed directly before the call in it."""
        return is_evaluated_first(self.source, self.call, root)

    def _assignment(self, target: str, inner: str, statement: cst.CSTNode) -> list[str]:
        """The lines that shard a module and assign it."""
        if target == inner:
            return [*self._lines_before(inner), *self._last_lines(inner, "", statement)]
        if is_repeatable(self.module):
            root = self._root_call(inner, f"{target} = ")
            return [*self._lines_before(inner), root, *self.keywords.after(target)]
        lines = [f"{target} = {inner}", *self._lines_before(target)]
        return [*lines, *self._last_lines(target, "", statement)]

    def _replace(self, statement: cst.CSTNode, lines: list[str]) -> None:
        self.migration.own(self.source, statement)
        new = "\n".join(lines)
        kept = [text for text in self._comments(statement) if text not in new]
        self.migration.rewrite.replace_statement(
            self.source, statement, [*kept, *lines], comments=False
        )

    def _comments(self, statement: cst.CSTNode) -> list[str]:
        """The comments in the statement, except those beside or above removed arguments."""
        lines = self._removed_lines()
        end = self.source.span(statement)[1]
        return [
            text
            for offset, text in comments_at(self.source, statement)
            if offset < end
            and self.source.position(offset)[0] not in lines
            and not COMMENTED_ARGUMENT.match(text)
        ]

    def _removed_lines(self) -> set[int]:
        """The lines of removed arguments and of the comments above them."""
        named = ((arg.keyword, arg) for arg in self.call.args)
        removed = self.removed_arguments
        return lines_of_items(
            self.source, (arg for name, arg in named if name and name.value in removed)
        )

    # The lines ------------------------------------------------------------------------------------

    def _lines_before(self, model: str) -> list[str]:
        """The lines before the call that shards the root."""
        lines = self.keywords.before_sharding(model)
        lines += self.keywords.setup
        if self.keywords.policy is not None:
            units = UnitLines(self.migration, self.source, self.call, self.keywords, self.shard)
            lines += units.lines(model)
        if self.keywords.initialize:
            initialize = initialize_helper(self.migration, self.source, self.call)
            lines.append(f"{initialize}({model}, {self.keywords.initialize})")
        return lines

    def _root_call(self, model: str, head: str) -> str:
        arguments = [model, *self.keywords.arguments(inner=False)]
        return call(self.source, self.call, head + self.shard, arguments)

    def _last_lines(self, model: str, head: str, statement: cst.CSTNode) -> list[str]:
        """The call that shards the root, and the lines after it; `head` is such as "return "."""
        after = self.keywords.after(model)
        if head and after:
            return [self._root_call(model, ""), *after, f"{head}{model}"]
        return [self._root_call(model, head), *after]
