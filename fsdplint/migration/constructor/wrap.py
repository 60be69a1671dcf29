"""The constructor: `FSDP(model, ...)` becomes the `fully_shard` of its blocks and then of
itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import ancestors, fresh, function_of, home_of
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    CALL_IN_EXPRESSION,
    CALL_IN_HEAD,
    CALL_WITH_SEVERAL_TARGETS,
    CAST_INPUTS_DIFFER,
    IGNORED_WITH_PARAM_INIT_FN,
    MODULE_UNKNOWN,
    MODULE_WITHOUT_FORWARD,
)
from fsdplint.migration.blockers.policies import IGNORED_WITH_SIZE_POLICY, PARAM_INIT_FN_WITH_POLICY
from fsdplint.migration.constructor import casts, meta
from fsdplint.migration.constructor.constructor_arguments import read_keywords
from fsdplint.migration.constructor.keywords import Keywords, is_simple
from fsdplint.migration.constructor.local_functions import initialize_helper, initializing_helper
from fsdplint.migration.constructor.wrapping_policy import Policy
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.facts import Precision
from fsdplint.migration.names import PARAMETERS
from fsdplint.migration.text import call, simple, without_parentheses
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.layout import comments_at, statement_of

ARGUMENT = re.compile(rf"#+\s*({'|'.join(PARAMETERS)})\s*=[^=]")  # an argument commented out

TITLE = "Shard the model with fully_shard"
DROPPED = {
    "backward_prefetch",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "device_id",
}
# Arguments of which nothing is left where they say what FSDP2 does anyway.
DEFAULTS = {
    "sharding_strategy": ("mesh", "reshard_after_forward"),
    "cpu_offload": ("offload_policy",),
}


@dataclass
class Wrap:
    """One call of the constructor and the text that comes of it."""

    migration: Migration
    source: Source
    call: cst.Call
    precision: Precision
    module: cst.BaseExpression
    keywords: Keywords
    policy: Policy | None = None
    shard: str = "fully_shard"
    before: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=lambda: set(DROPPED))  # arguments that leave no text

    # The statement --------------------------------------------------------------------------------

    def rewrite(self) -> None:
        statement = statement_of(self.source, self.call)
        if self._plain():
            self._in_place()
            return
        if self._function(statement):
            return
        place = self._place(statement)
        inner = expression(self.migration, self.source, self.module)
        if place == "assign":
            assert isinstance(statement, cst.Assign | cst.AnnAssign)
            target = statement.target if isinstance(statement, cst.AnnAssign) else None
            target = target or statement.targets[0].target  # type: ignore[union-attr]
            self._assign(statement, expression(self.migration, self.source, target), inner)
            return
        if simple(self.module):
            model, lines = inner, []
        else:
            model = self._name()
            lines = [f"{model} = {inner}"]
        root = lines + self._lines(model)
        if place == "return":
            self._replace(statement, [*root, *self._last(model, "return ", statement)])
        elif place == "expression":
            self._replace(statement, [*root, *self._last(model, "", statement)])
        else:
            self._nested(statement, model, root)

    def _function(self, statement: cst.CSTNode) -> bool:
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
        if not simple(self.module):
            model = self._name()
            lines = [f"{model} = {inner}"]
        lines += [*self._lines(model), *self._last(model, "return ", statement)]
        head = f"def {target.value}({self.source.code(around.params)}):"
        self._replace(statement, [head, *(_deeper(line) for line in lines)])
        return True

    def _nested(self, statement: cst.CSTNode, model: str, root: list[str]) -> None:
        """The call is a part of its statement: what comes before and after stands before that."""
        text = self.migration.indented(self.source, self.call, self._root(model, ""))
        if after := self.keywords.after(model):
            root, text = [*root, self._root(model, ""), *after], model
        self.migration.rewrite.insert_before(self.source, statement, root)
        self.migration.substitute(self.source, self.call, text)

    def _name(self) -> str:
        """A variable for a module that is built, or only moved, in the call."""
        node = self.module
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            owner = node.func.value
            moves = node.func.attr.value in ("to", "cuda", "train", "eval")
            if moves and isinstance(owner, cst.Name):
                if home_of(self.source, owner) is function_of(self.source, self.call):
                    return owner.value
        return fresh(self.source, self.call, "model", "sharded_model", "module")

    def _plain(self) -> bool:
        """Whether `FSDP(x, ...)` can become `fully_shard(x, ...)` where it stands."""
        return (
            self.policy is None
            and not self.keywords.before
            and not self.keywords.initialize
            and not self.keywords.after("model")
            and not self.keywords.spread_definition
            and not self._same_name()
        )

    def _same_name(self) -> bool:
        """`model = FSDP(model)`: the assignment says nothing in FSDP2."""
        statement = statement_of(self.source, self.call)
        return (
            isinstance(statement, cst.Assign)
            and statement.value is self.call
            and len(statement.targets) == 1
            and simple(self.module)
            and self.source.code(statement.targets[0].target) == self.source.code(self.module)
        )

    def _in_place(self) -> None:
        inner = self.migration.text(self.source, self.module)
        arguments = [inner, *self.keywords.arguments(inner=False)]
        self.migration.put_call(self.source, self.call, self.shard, arguments)

    def _place(self, statement: cst.CSTNode) -> str:
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            if statement.value is self.call:
                return "assign"
        if isinstance(statement, cst.AnnAssign) and statement.value is self.call:
            return "assign"
        if isinstance(statement, cst.Return) and statement.value is self.call:
            return "return"
        if isinstance(statement, cst.Expr) and statement.value is self.call:
            return "expression"
        if not isinstance(statement, cst.BaseSmallStatement):
            raise Blocked(self.source, self.call, CALL_IN_HEAD())
        for node in ancestors(self.source, self.call):
            if node is statement:
                break
            if isinstance(
                node,
                cst.Lambda
                | cst.IfExp
                | cst.BooleanOperation
                | cst.ListComp
                | cst.GeneratorExp
                | cst.SetComp
                | cst.DictComp,
            ):
                raise Blocked(
                    self.source,
                    self.call,
                    CALL_IN_EXPRESSION(),
                )
        if isinstance(statement, cst.Assign) and not all(
            simple(target.target) for target in statement.targets
        ):
            raise Blocked(self.source, self.call, CALL_WITH_SEVERAL_TARGETS())
        return "nested"

    def _assign(self, statement: cst.Assign | cst.AnnAssign, target: str, inner: str) -> None:
        if target == inner:
            self._replace(statement, [*self._lines(inner), *self._last(inner, "", statement)])
            return
        if simple(self.module):
            lines = self._lines(inner)
            self._replace(
                statement,
                [*lines, self._root(inner, f"{target} = "), *self.keywords.after(target)],
            )
            return
        lines = [f"{target} = {inner}", *self._lines(target)]
        self._replace(statement, [*lines, *self._last(target, "", statement)])

    def _replace(self, statement: cst.CSTNode, lines: list[str]) -> None:
        self.migration.own(self.source, statement)
        kept = [text for text in self._comments(statement) if text not in lines]
        self.migration.rewrite.replace_statement(
            self.source, statement, [*kept, *lines], comments=False
        )

    def _comments(self, statement: cst.CSTNode) -> list[str]:
        """The comments in the statement, but for those beside or above arguments that are
        dropped.
        """
        dropped: set[int] = set()
        for arg in self.call.args:
            name = arg.keyword.value if arg.keyword is not None else ""
            if name in self.gone:
                first = self.source.position(self.source.span(arg)[0])[0]
                last = self.source.position(self.source.span(arg)[1])[0]
                dropped.update(range(first, last + 1))
                while self.source.line(first - 1).lstrip().startswith("#"):
                    first -= 1
                    dropped.add(first)
        end = self.source.span(statement)[1]
        return [
            text
            for offset, text in comments_at(self.source, statement)
            if offset < end
            and self.source.position(offset)[0] not in dropped
            and not ARGUMENT.match(text)
        ]

    def _comments_of_policy(self) -> list[str]:
        """The comments in the policy's own statements, which go."""
        assert self.policy is not None
        return [
            text
            for source, found in self.policy.variables
            if source is self.source
            for offset, text in comments_at(
                source, source.parent(found.statement) or found.statement
            )
            if offset > source.span(found.statement)[0]
        ]

    # The lines ------------------------------------------------------------------------------------

    def _lines(self, model: str) -> list[str]:
        """Everything that comes before the root is sharded."""
        lines = [*self.keywords.before_sharding(model)]
        lines += self.keywords.before
        if self.policy is not None:
            lines += self._loop(model)
        if self.keywords.initialize:
            initialize = initialize_helper(self.migration, self.source, self.call)
            lines.append(f"{initialize}({model}, {self.keywords.initialize})")
        return lines

    def _loop(self, model: str) -> list[str]:
        policy = self.policy
        assert policy is not None
        arguments = self.keywords.arguments(inner=True)
        lines = [*self._comments_of_policy(), *policy.before]
        if policy.helper:
            first, _, rest = policy.helper.partition("({model}")
            given = [model, *([rest.removeprefix(", ")] if rest else []), *arguments]
            if self.keywords.ignored:
                reason = IGNORED_WITH_SIZE_POLICY()
                raise Blocked(self.source, self.call, reason)
            if self.keywords.initialize:
                reason = PARAM_INIT_FN_WITH_POLICY()
                raise Blocked(self.source, self.call, reason)
            loop = [call(self.source, self.call, first, given)]
        elif self.keywords.initialize:
            helper = initializing_helper(self.migration, self.source, self.call)
            test = f"lambda {policy.variable}: {without_parentheses(policy.test)}"
            if policy.test.endswith(f"({policy.variable})"):
                name = policy.test.removesuffix(f"({policy.variable})")
                test = name if name.isidentifier() else test
            given = [model, test, self.keywords.initialize, *arguments]
            loop = [call(self.source, self.call, helper, given)]
        else:
            modules = f"list({model}.modules())" + ("[1:]" if policy.root else "")
            inside = "\t\t\t" if policy.guard else "\t\t"
            depth = len(inside)
            shard = call(
                self.source, self.call, self.shard, [policy.variable, *arguments], depth=depth
            )
            loop = [
                f"for {policy.variable} in reversed({modules}):",
                f"\tif {without_parentheses(policy.test)}:",
                f"\t\t{shard}",
            ]
        if policy.guard:
            loop = [f"if {policy.guard}:", *(_deeper(line) for line in loop)]
        return lines + loop

    def _root(self, model: str, head: str) -> str:
        arguments = [model, *self.keywords.arguments(inner=False)]
        return call(self.source, self.call, head + self.shard, arguments)

    def _last(self, model: str, head: str, statement: cst.CSTNode) -> list[str]:
        after = self.keywords.after(model)
        if head and after:
            return [self._root(model, ""), *after, f"{head}{model}"]
        return [self._root(model, head), *after]


def _deeper(line: str) -> str:
    return "\n".join("\t" + part for part in line.split("\n"))


def rewrite_wrap(
    migration: Migration, source: Source, node: cst.Call, precision: Precision
) -> None:
    """Rewrite one call of the constructor.

    Raises:
        Blocked: an argument, or the place where it stands, has no faithful rewrite yet.
    """
    named, rest = arguments(node, PARAMETERS)
    rewrite_call(migration, source, node, named, rest, precision)


def rewrite_call(
    migration: Migration,
    source: Source,
    node: cst.Call,
    named: dict[str, cst.Arg],
    rest: list[cst.Arg],
    precision: Precision,
    shared: list[str] | None = None,
) -> None:
    """Rewrite a call that wraps a module, whose arguments need not all stand in it.

    shared: lines that come once before several such calls; what does not depend on the module is
    added to them.

    Raises:
        Blocked: as `rewrite_wrap` does.
    """
    module = named.get("module")
    if module is None:
        raise Blocked(source, node, MODULE_UNKNOWN())
    if migration.called(node) == "wrap" and _container(migration, module.value):
        raise Blocked(
            source,
            node,
            MODULE_WITHOUT_FORWARD(),
        )
    keywords = read_keywords(migration, source, node, named, rest, precision)
    policy = keywords.policy
    if keywords.ignored and (keywords.materialize or keywords.initialize):
        reason = IGNORED_WITH_PARAM_INIT_FN()
        raise Blocked(source, node, reason)
    meta.read(migration, source, node, named, rest, keywords)
    if shared is not None:
        _share(source, node, keywords, shared)
    shard = migration.need(source, "torch.distributed.fsdp", "fully_shard", node)
    wrap = Wrap(migration, source, node, precision, module.value, keywords, policy, shard)
    keywords.own_casts = precision.own_casts
    inner = casts.places(migration, node) if policy is None else set()
    keywords.inner = True in inner
    if keywords.inner:
        same = casts.same_for_inner(migration, precision, module.value)
        if False in inner and not same and "mp_policy" in dict(keywords.items):
            raise Blocked(source, node, CAST_INPUTS_DIFFER())
    else:
        same = casts.same_for_policy(migration, precision, policy)
    if not keywords.spread and not keywords.before:
        given = {name for name, _ in keywords.items}
        wrap.gone |= {name for name, kept in DEFAULTS.items() if not given.intersection(kept)}
    keywords.prepare(policy is not None, same)
    migration.account_for(source, node.func)
    for arg in node.args:
        migration.account_for(source, arg.value) if arg is not module else None
    wrap.rewrite()
    if policy is not None:
        for other, found in policy.variables:
            migration.delete_statement(other, found.statement, comments=False)
            migration.step(
                other, found.statement, "Say where the model is sharded what the policy says"
            )
    migration.step(source, node, TITLE)


def _share(source: Source, node: cst.Call, keywords: Keywords, shared: list[str]) -> None:
    """Put the lines before a call, and the mesh that it makes, among those of all calls."""
    shared += [line for line in keywords.before if line not in shared]
    keywords.before = []
    items = dict(keywords.items)
    mesh = items.get("mesh", "")
    if not mesh or is_simple(mesh):
        return
    names = (line.partition(" = ") for line in shared)
    items["mesh"] = next((name for name, _, value in names if value == mesh), "")
    if not items["mesh"]:
        items["mesh"] = fresh(source, node, "mesh", "device_mesh")
        shared.append(f"{items['mesh']} = {mesh}")
    keywords.items = list(items.items())


def _container(migration: Migration, module: cst.BaseExpression) -> bool:
    """Whether a module may be a container without a forward."""
    held = {value.id for value in migration.values(module) if isinstance(value, ModuleValue)}
    return any(
        trace.modules[one].container
        for trace in migration.program.traces
        for one in held & set(trace.modules)
    )
