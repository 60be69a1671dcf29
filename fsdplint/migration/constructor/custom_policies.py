"""CustomPolicy: a function that says which modules are units, or gives a unit arguments of its own.

If all units get the same arguments, the function says yes or no, and the arguments go to the call of
`fully_shard` in the loop. Otherwise the function gives the arguments of `fully_shard`, and None for a
module that is no unit.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.interpreter.values import Bound, Dict, Function, Partial, Value
from fsdplint.migration.analysis.variables import is_mentioned, return_values
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import (
    CUSTOM_POLICY_ARGUMENT,
    CUSTOM_POLICY_OTHER_MESH,
    CUSTOM_POLICY_STRATEGY,
    CUSTOM_POLICY_UNSEEN,
)
from fsdplint.migration.constructor import strategy
from fsdplint.migration.constructor.custom_policy_answers import (
    Answers,
    answers_of,
    arms,
    is_dict_call,
)
from fsdplint.migration.constructor.policy_scope import PolicyScope
from fsdplint.migration.names import NO_COUNTERPART
from fsdplint.migration.text import atom
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.layout import descend

Keywords = tuple[tuple[str, str], ...]


class CustomPolicies:
    """Reads the function of one CustomPolicy into the policy of a scope."""

    def __init__(self, scope: PolicyScope) -> None:
        self.scope = scope
        self.migration = scope.migration
        self.source = scope.source

    def read(self, node: cst.Call) -> cst.BaseExpression | None:
        """Make the function say yes or no, or give arguments of `fully_shard`.

        Returns the function; None if the call has other arguments.

        Raises:
            Blocked: what the function gives has no rewrite.
        """
        named, rest = arguments(node, ("lambda_fn",))
        if rest or set(named) != {"lambda_fn"}:
            return None
        given = named["lambda_fn"].value
        function = self.scope.value_of(given)
        if isinstance(function, cst.Name):
            self._read_functions(node, function)
        elif isinstance(function, cst.Lambda):
            self._read_lambda(node, function)
        elif any(map(_makes_dict, self._bodies(function))):
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        return given

    def _read_functions(self, node: cst.Call, name: cst.Name) -> None:
        found = self.scope.functions(name.value)
        if not found:
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        answers = answers_of(self.scope, found[0])
        if not any(map(_makes_dict, [*found, *answers.helpers])):
            if any(self._may_be_dict(value) for one in found for value in _answers(one)):
                raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
            return
        if len(found) != 1 or not self._is_used_here_only(found[0]):
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        self._rewrite(node, found[0], answers)

    def _read_lambda(self, node: cst.Call, function: cst.Lambda) -> None:
        """A lambda stays a test: `{...} if isinstance(module, Block) else False`."""
        if not _makes_dict(function):
            if any(map(self._may_be_dict, arms(function.body))):
                raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
            return
        body = function.body
        if not isinstance(body, cst.IfExp) or not is_constant(body.orelse, "False"):
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        if any(map(_makes_dict, [body.test])):
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        keywords = self._keywords(node, body.body)
        if not _are_constants(keywords):
            raise Blocked(self.source, body.body, CUSTOM_POLICY_STRATEGY())
        self.scope.policy.unit = keywords

    def _rewrite(self, node: cst.Call, function: cst.FunctionDef, found: Answers) -> None:
        """Rewrite what a function returns."""
        answers, functions = found.leaves, [function, *found.helpers]
        nothing = [one for one in answers if _is_empty(one)]  # as False
        dicts = [one for one in answers if _is_dict(one) and one not in nothing]
        inside = {part for one in (*dicts, *nothing) for part in descend(one)}
        for part in (part for one in functions for part in descend(one.body)):
            if _makes_dict_here(part) and part not in inside:
                raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        refused = [*dicts, *nothing]
        rest = [one for one in answers if one not in refused and not is_constant(one, "False")]
        if any(is_constant(one, "None") or self._may_be_dict(one) for one in rest):
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        keywords = {one: self._keywords(node, one) for one in dicts}
        policy = self.scope.policy
        if any(one in found.tested and not keywords[one] for one in dicts):
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())  # it would be empty
        plain = not rest and not nothing and not found.helpers and not found.tested
        same = plain and len(set(keywords.values())) == 1
        if same and _are_constants(keywords[dicts[0]]):
            policy.unit = keywords[dicts[0]]
            for one in dicts:
                self.migration.substitute(self.source, one, "True")
        else:
            policy.unit = tuple(dict.fromkeys(x for every in keywords.values() for x in every))
            policy.gives_arguments = True
            for one in answers:
                text = self._display(keywords[one]) if one in keywords else self._answer(one)
                self.migration.substitute(self.source, one, text)
            for part in functions:
                if part.returns is not None:
                    self.migration.substitute(
                        self.source, part.returns.annotation, self._annotation("dict | None")
                    )
        for one in dicts:
            self.migration.account_for(self.source, one)
        self.migration.step(
            self.source, function, "Give the arguments of single units to fully_shard"
        )

    def _keywords(self, node: cst.Call, given: cst.BaseExpression) -> Keywords:
        """The keywords of `fully_shard` for the arguments that a unit gets; empty for True."""
        if is_constant(given, "True"):
            return ()
        found = []
        for key, value in self._items(node, given):
            name = strategy.literal(self.migration, value)
            if key in NO_COUNTERPART:
                continue
            if key != "sharding_strategy":
                raise Blocked(self.source, node, CUSTOM_POLICY_ARGUMENT(argument=key))
            if name is None:
                found.append((strategy.KEY, self._reshards(value)))
                continue
            if name not in strategy.ONE_DIMENSIONAL:
                raise Blocked(self.source, node, CUSTOM_POLICY_OTHER_MESH())
            found.append((strategy.KEY, str(name not in strategy.NO_RESHARD)))
        self.migration.account_for(self.source, given)
        return tuple(found)

    def _reshards(self, value: cst.BaseExpression) -> str:
        """The argument for a strategy that the program chooses; other ones raise KeyError.

        Raises:
            Blocked: it is neither in a variable nor looked up by its name.
        """
        looked_up = self._looked_up(value)
        if looked_up is None and not isinstance(value, cst.Name | cst.Attribute):
            raise Blocked(self.source, value, CUSTOM_POLICY_STRATEGY())
        self.migration.note(
            "units whose strategy the program chooses have to get FULL_SHARD or SHARD_GRAD_OP",
            self.source,
            value,
            detail="Other strategies need a mesh of their own, and raise KeyError in the new code.",
        )
        names = (
            f"{string_literal(self.source, name)}: {name not in strategy.NO_RESHARD}"
            for name in ("FULL_SHARD", "SHARD_GRAD_OP")
        )
        chosen = value if looked_up is None else looked_up
        return f"{{{', '.join(names)}}}[{self.scope.text(chosen)}]"

    def _looked_up(self, value: cst.BaseExpression) -> cst.BaseExpression | None:
        """The name in `ShardingStrategy[name]`."""
        if not isinstance(value, cst.Subscript) or len(value.slice) != 1:
            return None
        index = value.slice[0].slice
        if self.migration.fsdp1(value.value) != strategy.ENUM or not isinstance(index, cst.Index):
            return None
        return index.value

    def _items(
        self, node: cst.Call, given: cst.BaseExpression
    ) -> Iterator[tuple[str, cst.BaseExpression]]:
        """The items of `{...}` or `dict(...)`."""
        if isinstance(given, cst.Dict) and given.elements:
            for element in given.elements:
                key = element.key if isinstance(element, cst.DictElement) else None
                text = key.evaluated_value if isinstance(key, cst.SimpleString) else None
                if not isinstance(text, str):
                    raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
                yield text, element.value
            return
        named, rest = arguments(given, ()) if isinstance(given, cst.Call) else ({}, [])
        if rest or not named or not _is_dict(given):
            raise Blocked(self.source, node, CUSTOM_POLICY_UNSEEN())
        for name, arg in named.items():
            yield name, arg.value

    def _display(self, keywords: Keywords) -> str:
        items = (f"{string_literal(self.source, key)}: {value}" for key, value in keywords)
        return f"{{{', '.join(items)}}}"

    def _answer(self, answer: cst.BaseExpression) -> str:
        """The arguments of `fully_shard` for an answer without a dict."""
        if is_constant(answer, "False") or _is_empty(answer):
            return "None"
        if is_constant(answer, "True"):
            return "{}"
        text = f"{{}} if {atom(self.scope.text(answer))} else None"
        return f"({text})" if isinstance(self.source.parent(answer), cst.IfExp) else text

    def _annotation(self, text: str) -> str:
        """A type, as a string where annotations are evaluated."""
        if "from __future__ import annotations" in self.source.text:
            return text
        return string_literal(self.source, text)

    def _is_used_here_only(self, function: cst.FunctionDef) -> bool:
        """Whether nothing but CustomPolicy uses a function."""
        others = (one for one in self.migration.program.sources.values() if one is not self.source)
        if function.decorators or is_mentioned(others, function):
            return False
        for part in self.source.descend(self.source.tree):
            if isinstance(part, cst.Name) and part.value == function.name.value:
                arg = self.source.parent(part)
                call = self.source.parent(arg) if isinstance(arg, cst.Arg) else None
                if part is not function.name and self.migration.called_name(call) != "CustomPolicy":
                    return False
        return True

    def _may_be_dict(self, node: cst.BaseExpression) -> bool:
        return any(isinstance(value, Dict) for value in self.migration.values(node))

    def _bodies(self, function: cst.BaseExpression) -> Iterator[cst.CSTNode]:
        """The code of a function that is no name of this file."""
        yield function
        for value in self.migration.values(function):
            found: Value = value
            while isinstance(found, Bound | Partial):
                found = found.function
            if isinstance(found, Function):
                yield found.node


def test_of(body: cst.BaseExpression) -> cst.BaseExpression:
    """The part of a lambda's body that says whether a module is a unit."""
    return body.test if isinstance(body, cst.IfExp) and _makes_dict(body.body) else body


def _answers(function: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
    for value in return_values(function):
        yield from arms(value)


def _are_constants(keywords: Keywords) -> bool:
    """Whether keywords mean the same in another function."""
    return all(value in ("True", "False") for _, value in keywords)


def _makes_dict(node: cst.CSTNode) -> bool:
    """Whether code makes a dict, which CustomPolicy accepts besides True and False."""
    return any(map(_makes_dict_here, descend(node)))


def _makes_dict_here(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Dict | cst.DictComp) or _is_dict(node)


def _is_dict(node: cst.CSTNode) -> bool:
    return is_dict_call(node) or isinstance(node, cst.Dict)


def _is_empty(node: cst.CSTNode) -> bool:
    """Whether an expression is an empty dict, for which FSDP1 wraps nothing."""
    if isinstance(node, cst.Call):
        return is_dict_call(node) and not node.args
    return isinstance(node, cst.Dict) and not node.elements
