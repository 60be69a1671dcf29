"""`auto_wrap_policy`: which submodules FSDP1 wrapped, as a loop over the modules.

A policy becomes a test of a module (`isinstance(module, Block)`). It is written into the loop where
the policy stands in the same function; a policy that is made elsewhere becomes a function of the
module in its place. Policies by size, and functions with FSDP1's own three parameters, keep FSDP1's
order and count by a small local function.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.interpreter.values import Class, Function, ModuleValue, Symbol
from fsdplint.migration.analysis.variables import (
    Definition,
    definitions,
    fresh,
    function_of,
    home_of,
    reads,
    return_values,
)
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import (
    CUSTOM_POLICY_SHARED,
    CUSTOM_POLICY_UNSEEN,
    POLICIES_WITH_FUNCTION,
    POLICY_ARGUMENT_UNSUPPORTED,
    POLICY_ARGUMENTS,
    POLICY_MAY_BE_OTHER,
    POLICY_SHARED,
    POLICY_UNSEEN,
    POLICY_UNSUPPORTED,
)
from fsdplint.migration.constructor import written_policy
from fsdplint.migration.constructor.called_policies import called_policy
from fsdplint.migration.constructor.local_functions import containers, policy_helper, size_helper
from fsdplint.migration.constructor.policy_flow import Flow
from fsdplint.migration.constructor.policy_methods import PolicyMethods
from fsdplint.migration.constructor.policy_sources import PolicySources
from fsdplint.migration.constructor.receivers import methods
from fsdplint.migration.constructor.wrapping_policy import Policy
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.names import fsdp1_name
from fsdplint.migration.text import on_one_line, simple
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.syntax.layout import descend, statement_of

CLASSES = ("ModuleWrapPolicy", "transformer_auto_wrap_policy", "_module_wrap_policy")
SIZE = ("min_num_params", "force_leaf_modules", "exclude_wrap_modules")


class Policies(PolicySources):
    """Reads the policy of one constructor call."""

    def __init__(self, migration: Migration, source: Source, at: cst.CSTNode) -> None:
        self.migration = migration
        self.source = source
        self.at = at
        self.function = function_of(source, at)
        self.policy = Policy(variable=fresh(source, at, "module", "submodule", "part"))

    def read(self, node: cst.BaseExpression) -> Policy | None:
        """The policy that an argument gives, None if it is None.

        Raises:
            Blocked: it cannot be expressed.
        """
        if is_constant(node, "None"):
            return None
        if isinstance(node, cst.IfExp) and is_constant(node.orelse, "None"):
            self.policy.guard = expression(self.migration, self.source, node.test)
            node = node.body
        elif isinstance(node, cst.IfExp) and is_constant(node.body, "None"):
            self.policy.guard = f"not ({expression(self.migration, self.source, node.test)})"
            node = node.orelse
        if self._kept(node):
            return self.policy
        if self._shared(node):
            self._elsewhere(node)
            return self.policy
        if self._size(node):
            return self.policy
        tests = self._test(node, self.policy.variable)
        if tests is not None:
            self.policy.test = tests
            return self.policy
        self._elsewhere(node)
        return self.policy

    def _shared(self, node: cst.BaseExpression) -> bool:
        """Whether a policy is a variable of these files that is read in several places."""
        found = self._definition(node)
        if found is None or not isinstance(node, cst.Name):
            return False
        home = home_of(self.source, node)
        several = home is not None and len(reads(self.source, home, node.value)) > 1
        return several and self._is_written_policy(found.value)

    def _kept(self, node: cst.BaseExpression) -> bool:
        """Say once more what a policy says that stays as it is for other readers, if its classes
        are written out.
        """
        made = self._local(node)
        if made not in self.migration.policies.read_elsewhere or not isinstance(made, cst.Call):
            return False
        named = {arg.keyword.value: arg.value for arg in made.args if arg.keyword is not None}
        name = fsdp1_name(self.migration.symbol(made.func)) or fsdp1_name(
            self.migration.symbol(made.args[0].value)
        )
        classes = named.get("transformer_layer_cls") or named.get("module_classes")
        if name == "ModuleWrapPolicy" and classes is None and len(made.args) == 1:
            classes = made.args[0].value
        if name not in CLASSES or classes is None or isinstance(classes, cst.Name):
            return False
        parts = elements(classes)
        if not parts or not all(simple(x) and not self._is_property(x) for x in parts):
            return False
        self.policy.test = self._isinstance(classes, self.policy.variable)
        return True

    # Policies written in this function -----------------------------------------------------------

    def _local(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What a variable of this function holds, if it is assigned once; else the node itself."""
        found = self._definition(node)
        return found.value if found is not None else node

    def _definition(self, node: cst.CSTNode) -> Definition | None:
        if not isinstance(node, cst.Name) or self.migration.symbol(node):
            return None
        home = home_of(self.source, node)
        if home is not self.function and home is not self.source.tree:
            return None
        found = definitions(self.source, node)
        if found is None or len(found) != 1:
            return None
        return found[0]

    def _used_up(self, node: cst.BaseExpression) -> None:
        """The variable `node` is read here; remember its definition if nobody else reads it."""
        found = self._definition(node)
        if found is None or not isinstance(node, cst.Name):
            return
        home = home_of(self.source, node)
        if home is not None and len(reads(self.source, home, node.value)) == 1:
            self.policy.variables.append((self.source, found))
        elif found is not None:
            raise Blocked(self.source, found.statement, POLICY_SHARED())

    def _test(self, node: cst.BaseExpression, variable: str) -> str | None:
        """A test on a variable that says what the policy says, None if it is not written here."""
        inner = self._local(node)
        made = self._inline(inner, variable)
        if made is not None:
            if inner is not node:
                self._used_up(node)
            self.migration.account_for(self.source, inner)
        return made

    def _inline(self, node: cst.BaseExpression, variable: str) -> str | None:
        name = self.migration.fsdp1(node)
        if name == "always_wrap_policy":
            self.policy.root, self.policy.classes = True, None
            containers = self._containers()
            return f"not isinstance({variable}, {containers})"
        if not isinstance(node, cst.Call):
            return None
        name = self.migration.fsdp1(node.func)
        if name == "ModuleWrapPolicy":
            named, rest = arguments(node, ("module_classes",))
            if rest or "module_classes" not in named:
                return None
            return self._isinstance(named["module_classes"].value, variable)
        if name == "CustomPolicy":
            return self._custom(node, variable)
        if self.migration.symbol(node.func) != "functools.partial" or not node.args:
            return None
        name = self.migration.fsdp1(node.args[0].value)
        named = {arg.keyword.value: arg for arg in node.args[1:] if arg.keyword is not None}
        if len(named) != len(node.args) - 1:
            return None
        if name in ("transformer_auto_wrap_policy", "_module_wrap_policy"):
            key = "transformer_layer_cls" if name.startswith("t") else "module_classes"
            if set(named) == {key}:
                return self._isinstance(named[key].value, variable)
        if name == "lambda_auto_wrap_policy" and set(named) == {"lambda_fn"}:
            self.policy.root, self.policy.classes = True, None
            return self._predicate(named["lambda_fn"].value, variable)
        if name == "_or_policy" and set(named) == {"policies"}:
            return self._either(named["policies"].value, variable)
        return None

    def _custom(self, node: cst.Call, variable: str) -> str | None:
        """A function that says yes or no; one that also gives arguments is another matter."""
        named, rest = arguments(node, ("lambda_fn",))
        if rest or set(named) != {"lambda_fn"}:
            return None
        function = self._local(named["lambda_fn"].value)
        bodies: list[cst.CSTNode] = [function]
        if isinstance(function, cst.Name):
            bodies = list(self._functions(function.value))
        if not bodies or any(_makes_dict(part) for body in bodies for part in descend(body)):
            reason = CUSTOM_POLICY_UNSEEN()
            raise Blocked(self.source, node, reason)
        self.policy.root, self.policy.classes = True, None
        return self._predicate(named["lambda_fn"].value, variable)

    def _functions(self, name: str) -> list[cst.FunctionDef]:
        return [
            part
            for part in descend(self.source.tree)
            if isinstance(part, cst.FunctionDef) and part.name.value == name
        ]

    def _listed(self, node: cst.BaseExpression, variable: str) -> str | None:
        """A list of policies that is put together bit by bit: each becomes a test where it is
        made.
        """
        if not isinstance(node, cst.Name) or home_of(self.source, node) is not self.function:
            return None
        found = definitions(self.source, node)
        if not found:
            return None
        parts: list[cst.BaseExpression] = []
        for item in found:
            parts += elements(item.value) or [item.value]
        for use in reads(self.source, self.function, node.value):
            if use is not node:
                added = _added(self.source, use)
                if added is None:
                    return None
                parts += added
        made = [self._local(part) for part in parts]
        if not all(self._is_written_policy(part) for part in made):
            return None
        for part in made:
            convert(self.migration, self.source, part, sharder=False)
        self.policy.root, self.policy.classes = True, None
        one = fresh(self.source, self.at, "policy", "matches")
        return f"any({one}({variable}) for {one} in {node.value})"

    def _either(self, node: cst.BaseExpression, variable: str) -> str | None:
        local = self._local(node)
        parts = elements(local)
        if isinstance(node, cst.Name) and len(reads(self.source, self.function, node.value)) > 1:
            return self._listed(node, variable)
        if parts is None:
            return None
        tests = []
        for part in parts:
            test = self._test(part, variable) or self._of_part(part, variable)
            if test is None:
                return None
            tests.append(test)
        if self._local(node) is not node:
            self._used_up(node)
        return " or ".join(tests)

    def _of_part(self, node: cst.BaseExpression, variable: str) -> str | None:
        """A test of a part of a policy that is what a called method returns."""
        call = self._local(node)
        if not isinstance(call, cst.Call):
            return None
        found = PolicyMethods(self.migration).read(self.source, call)
        if found is None or found.none or {self._kind(site) for site in found.sites} != {"test"}:
            return None
        self._rewrite_sites(found.sites, sharder=False)
        name = expression(self.migration, self.source, node)
        if call is node:
            name = self._hoisted(name, "should_shard")
        return f"{name}({variable})"

    def _predicate(self, node: cst.BaseExpression, variable: str) -> str:
        found = self._local(node)
        if isinstance(found, cst.Lambda) and len(found.params.params) == 1:
            if found is not node:
                self._used_up(node)
            name = found.params.params[0].name.value
            text = _renamed(self.source, found.body, name, variable)
            return f"({text})" if isinstance(found.body, cst.BooleanOperation | cst.IfExp) else text
        return f"{expression(self.migration, self.source, node)}({variable})"

    def _isinstance(self, node: cst.BaseExpression, variable: str) -> str:
        local = self._local(node)
        parts = elements(local) if isinstance(node, cst.Name) else elements(node)
        if parts is not None and isinstance(node, cst.Name):
            home = home_of(self.source, node)
            alone = home is self.function and len(reads(self.source, home, node.value)) == 1
            if not alone:
                parts = None
            else:
                self._used_up(node)
        if not parts:
            self.policy.classes = None
            text = expression(self.migration, self.source, node)
            return f"isinstance({variable}, tuple({text}))"
        if self.policy.classes is not None:
            self.policy.classes.extend(parts)
        texts = []
        for part in parts:
            text = expression(self.migration, self.source, part)
            if not simple(part) or self._is_property(part):
                text = self._hoisted(text)
            texts.append(text)
        if self._is_root(parts):
            self.policy.root = True
        return f"isinstance({variable}, {texts[0] if len(texts) == 1 else '(' + ', '.join(texts) + ')'})"

    def _is_property(self, node: cst.BaseExpression) -> bool:
        """Whether a class is worked out by a property: that of a module, say, which sharding
        changes.
        """
        if not isinstance(node, cst.Attribute) or self.migration.symbol(node):
            return False
        found = methods(self.migration, node.attr.value)
        given = [value for _, function in found for value in return_values(function)]
        return any(not simple(value) for value in given)

    def _hoisted(self, text: str, wanted: str = "layer_class") -> str:
        name = fresh(self.source, self.at, wanted, f"{wanted}_2", f"{wanted}_3")
        used = [line.partition(" = ")[0] for line in self.policy.before]
        number = 2
        base = name
        while name in used:
            name = f"{base}_{number}"
            number += 1
        self.policy.before.append(f"{name} = {text}")
        return name

    def _is_root(self, parts: list[cst.BaseExpression]) -> bool:
        """Whether the root may be of one of these classes."""
        classes = [v for part in parts for v in self.migration.values(part)]
        roots = [v for v in self.migration.values(self.at) if isinstance(v, ModuleValue)]
        for root in roots:
            inner = root.inner or root
            for klass in classes:
                if isinstance(klass, Class) and inner.cls is not None and klass in inner.cls.mro():
                    return True
                if isinstance(klass, Symbol) and klass.name == inner.library_class:
                    return True
        return False

    def _containers(self) -> str:
        return containers(self.migration, self.source, self.at)

    # Policies by size, and functions of three parameters -----------------------------------------

    def _size(self, node: cst.BaseExpression) -> bool:
        """A policy by size, written here: calls a helper instead of a loop."""
        inner = self._local(node)
        named: dict[str, cst.Arg] = {}
        if self.migration.fsdp1(inner) != "size_based_auto_wrap_policy":
            if not (
                isinstance(inner, cst.Call)
                and self.migration.symbol(inner.func) == "functools.partial"
                and inner.args
                and self.migration.fsdp1(inner.args[0].value) == "size_based_auto_wrap_policy"
            ):
                return False
            named, rest = arguments(inner, ("function", "", "", *SIZE))
            named.pop("function", None)
            if rest or not set(named) <= set(SIZE):
                raise Blocked(self.source, inner, POLICY_ARGUMENTS())
        if inner is not node:
            self._used_up(node)
        self.migration.account_for(self.source, inner)
        number = "int(1e8)"
        if "min_num_params" in named:
            number = expression(self.migration, self.source, named["min_num_params"].value)
        leaves = self._set(named.get("force_leaf_modules"))
        excluded = self._set(named.get("exclude_wrap_modules"))
        helper = size_helper(self.migration, self.source, self.at, leaves, excluded)
        self.policy.helper = f"{helper}({{model}}, {number}"
        return True

    def _set(self, arg: cst.Arg | None) -> str | None:
        if arg is None:
            return None
        if self.migration.fsdp1(arg.value) or any(
            part in self.migration.names for part in descend(arg.value)
        ):
            raise Blocked(self.source, arg, POLICY_ARGUMENT_UNSUPPORTED())
        parts = elements(arg.value)
        if parts is None:
            return f"tuple({expression(self.migration, self.source, arg.value)})"
        if len(parts) == 1:
            return self.source.code(parts[0])
        return "(" + ", ".join(self.source.code(part) for part in parts) + ")"

    # Policies made elsewhere ---------------------------------------------------------------------

    def _elsewhere(self, node: cst.BaseExpression) -> None:
        """Rewrite the policy where it is made into a function of a module, and call that."""
        sites = self._made(node)
        called = called_policy(self.migration) if not sites else None
        if called is not None:
            raise called
        if sites is None:
            unseen = self._unseen(node)
            reason = POLICY_UNSEEN(policy=self.source.code(unseen))
            raise Blocked(self.source, unseen, reason)
        inside = {part for site in sites for part in descend(site.node)}
        for part in descend(node):
            if part in self.migration.names and part not in inside:
                raise Blocked(self.source, part, POLICY_UNSUPPORTED())
        kinds = {site.node: self._kind(site) for site in sites}
        found = set(kinds.values()) or {"function"}
        if "function" in found and len(found) > 1:
            raise Blocked(self.source, node, POLICIES_WITH_FUNCTION())
        if found != {"function"}:
            self._rewrite_sites(sites, sharder="size" in found)
            place = Flow(self.migration).unseen(self.source, node)
            if place is not None:
                code = on_one_line(place[0].code(place[1]))
                reason = POLICY_MAY_BE_OTHER(code=code)
                raise Blocked(self.source, node, reason)
        text = expression(self.migration, self.source, node)
        name = text
        if not simple(node):
            name = fresh(self.source, self.at, "should_shard", "shard_policy")
            if found != {"test"}:
                name = fresh(self.source, self.at, "wrap_policy", "shard_policy")
            self.policy.before.append(f"{name} = {text}")
        made = [part for part in self._arms_made(node) if part in self.migration.policies.calls]
        if made and not all(self.migration.values(part) for part in made):
            self.policy.root = True  # of whichever class the methods' object is
        if not sites or self._may_be_none(node):
            self.policy.guard = f"{name} is not None"
        if found == {"function"}:
            helper = policy_helper(self.migration, self.source, self.at)
            self.policy.helper = f"{helper}({{model}}, {name}"
            self.policy.classes = None
            return
        if "size" in found:
            self.policy.helper = f"{name}({{model}}"
        else:
            self.policy.test = f"{name}({self.policy.variable})"

    def _arms_made(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        found = definitions(self.source, node) if isinstance(node, cst.Name) else None
        return [item.value for item in found] if found else [node]

    def _rewrite_sites(self, sites: list[NodeSite], *, sharder: bool) -> None:
        for site in sites:
            assert isinstance(site.node, cst.BaseExpression)
            other = convert(self.migration, site.source, site.node, sharder=sharder)
            self.policy.root = self.policy.root or other.root
            if other.classes is None:
                self.policy.classes = None
            elif self.policy.classes is not None:
                self.policy.classes.extend(other.classes)

    def _kind(self, site: NodeSite) -> str:
        """Whether a policy is a test of a module, one by size, or a function of three
        parameters.
        """
        node = site.node
        if node in self.migration.policies.read_elsewhere:
            return self._kept_kind(site)
        if isinstance(node, cst.FunctionDef | cst.Lambda):
            if len(node.params.params) >= 3 or isinstance(node.params.star_arg, cst.Param):
                return "function"
            raise Blocked(site.source, node, POLICY_UNSUPPORTED())
        if isinstance(node, cst.Call) and node.args:
            first = node.args[0].value
            if first in self.migration.policies.shared:
                return "function"
            if self.migration.fsdp1(first) == "size_based_auto_wrap_policy":
                return "size"
            partial = self.migration.symbol(node.func) == "functools.partial"
            values = self.migration.values(first)
            if partial and values and all(isinstance(v, Function) for v in values):
                return "function"
        if self.migration.fsdp1(node) == "size_based_auto_wrap_policy":
            return "size"
        return "test"

    def _kept_kind(self, site: NodeSite) -> str:
        """A policy that stays as it is, is a function of three parameters; a CustomPolicy is
        not.
        """
        node = site.node
        if isinstance(node, cst.Call):
            if fsdp1_name(self.migration.symbol(node.func)) == "CustomPolicy":
                source, use = self.migration.policies.read_elsewhere[node]
                line = source.location(use).line
                reason = CUSTOM_POLICY_SHARED(line=line)
                raise Blocked(site.source, node, reason)
        return "function"


def convert(
    migration: Migration, source: Source, node: cst.BaseExpression, *, sharder: bool
) -> Policy:
    """Rewrite a policy where it is made: into a test of a module or, as a sharder, into a function
    that shards the submodules of a model.

    Raises:
        Blocked: it cannot be expressed.
    """
    if node in migration.policies.rewritten:
        return migration.policies.rewritten[node]
    reader = Policies(migration, source, node)
    policy = migration.policies.rewritten[node] = reader.policy
    policy.variable = "module"
    if sharder and reader._size(node):
        head = policy.helper.removesuffix(")")
        name, _, number = head.partition("({model}, ")
        partial = library_name(migration.rewrite, source, "functools.partial", node)
        migration.substitute(source, node, f"{partial}({name}, min_num_params={number})")
        return policy
    test = reader._test(node, "module")
    if test is None:
        raise Blocked(source, node, POLICY_UNSUPPORTED())
    if policy.before:
        migration.rewrite.insert_before(source, statement_of(source, node), policy.before)
    for other, found in policy.variables:
        migration.delete_statement(other, found.statement, comments=False)
    written_policy.write(migration, source, node, test, sharder=sharder)
    return policy


def _added(source: Source, use: cst.Name) -> list[cst.BaseExpression] | None:
    """What a statement `policies.append(...)` or the like adds to a list; None if it is none."""
    attribute = source.parent(use)
    if not isinstance(attribute, cst.Attribute) or attribute.value is not use:
        return None
    called = source.parent(attribute)
    if not isinstance(called, cst.Call) or called.func is not attribute or len(called.args) != 1:
        return None
    if attribute.attr.value == "append":
        return [called.args[0].value]
    return elements(called.args[0].value) if attribute.attr.value == "extend" else None


def _makes_dict(node: cst.CSTNode) -> bool:
    """Whether a node makes a dict: what FSDP1's CustomPolicy takes besides True and False."""
    if isinstance(node, cst.Call):
        return isinstance(node.func, cst.Name) and node.func.value == "dict"
    return isinstance(node, cst.Dict | cst.DictComp)


def _renamed(source: Source, node: cst.BaseExpression, old: str, new: str) -> str:
    """An expression's text with a variable under another name."""
    start, end = source.span(node)
    pieces = []
    position = start
    if old != new:
        for name in reads(source, node, old):
            left, right = source.span(name)
            pieces.append(source.text[position:left] + new)
            position = right
    pieces.append(source.text[position:end])
    return "".join(pieces)
