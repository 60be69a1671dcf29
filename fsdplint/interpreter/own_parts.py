"""Objects of the program that give each rank its own part of the data: samplers and datasets.

Such an object holds the rank, and computes with it where it gives its data. It does not count that
it tests for one rank, reports the rank, passes it to a function of a library without a use of the
result, or moves data to the rank's device: the ranks may still get the same data. A subclass of
torch's `DistributedSampler` that keeps its `__iter__` does what the class does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.library_classes import is_report
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.ranks import is_distinct, names_device
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import MeshPosition
from fsdplint.interpreter.values import Class, Function, Instance, Scope, Symbol, Value
from fsdplint.source.positions import code_children, descend
from fsdplint.syntax.arguments import chooses_none
from fsdplint.syntax.dotted import dotted_name

_DISTRIBUTED = "torch.utils.data.DistributedSampler"
# The methods with which such an object gives its data.
_GIVING = ("__iter__", "__next__", "__getitem__", "__getitems__")
_TAKES_PART = frozenset({"range", "islice"})
# Functions that begin other random numbers with each seed.
SEEDS = frozenset({"default_rng", "manual_seed", "Random", "RandomState", "seed"})
_DIVIDES = (cst.FloorDivide, cst.Modulo, cst.RightShift)
MAX_STEPS = 4  # from a variable to the next
_NUMBERS = (cst.Attribute, cst.BinaryOperation, cst.Name)
_CONSTANTS = (cst.Integer, cst.Float, cst.BaseString)


def gives_own_part(value: Value | None, *, groups: bool = True) -> bool:
    """Whether an object of the program certainly gives each rank other data.

    groups: whether it also counts if several ranks may get the same (`rank // size`).
    """
    if not isinstance(value, Instance):
        return False
    if _DISTRIBUTED in value.cls.library_bases() and value.cls.lookup("__iter__") is None:
        return groups  # the program may give it the numbers of a group
    return _splits(value, {n for n, one in value.attributes.items() if is_distinct(one)}, groups)


def position_of_part(run: Run, value: Value | None) -> MeshPosition | None:
    """The position in a mesh by which an object of the program gives each rank its data."""
    if not isinstance(value, Instance):
        return None
    for name, one in value.attributes.items():
        position = position_of(run, one)
        if position is not None and _splits(value, {name}, groups=False):
            return position
    return None


def gives_held_part(value: Value | None) -> bool:
    """Whether an object of the program gives elements of the rank's part of a list that it holds.

    `Rows(files[rank::world_size])`
    """
    if not isinstance(value, Instance):
        return False
    held = {name for name, one in value.attributes.items() if _is_part(one)}
    return any(_visits(one, held) for one in giving_methods(value.cls)) if held else False


def may_give_none(value: Value | None) -> bool:
    """Whether the code of an object of the program has None where it gives its data."""
    if not isinstance(value, Instance):
        return False
    return any(
        isinstance(node, cst.Return | cst.Assign)
        and (node.value is None or chooses_none(node.value))
        for method in giving_methods(value.cls)
        for node in descend(method.body)
    )


def _is_part(value: Value) -> bool:
    local = local_of(value)
    return local is not None and local.part


def _visits(method: cst.FunctionDef, names: set[str]) -> bool:
    """Whether a method takes elements of an attribute with one of these names."""
    receiver = receiver_of(method)
    for node in descend(method.body):
        place = node.iter if isinstance(node, cst.For | cst.CompFor) else None
        place = node.value if isinstance(node, cst.Subscript) else place
        if place is not None and not names.isdisjoint(_read_attributes(place, receiver)):
            return True
    return False


def _splits(value: Instance, held: set[str], groups: bool) -> bool:
    giving = giving_methods(value.cls) if held else []
    bodies: list[tuple[cst.CSTNode, _Held]] = [
        (one.body, _Held.in_method(one, value.cls.scope, held)) for one in giving
    ]
    bodies += [one for body, within in bodies for one in _called_bodies(body, within)]
    if not groups and any(_divides(body, within) for body, within in bodies):
        return False
    return any(_computes(body, within) for body, within in bodies)


def _called_bodies(
    node: cst.CSTNode, held: _Held, depth: int = 0
) -> Iterator[tuple[cst.CSTNode, _Held]]:
    """The bodies of functions of the program that get the rank, with what holds it there."""
    for call in descend(node):
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
            continue
        function = held.scope.lookup(call.func.value)
        code = function.node if isinstance(function, Function) else None
        if not isinstance(code, cst.FunctionDef) or not isinstance(function, Function):
            continue
        given = _parameters_with(call, code, held)
        if given and depth < MAX_STEPS:
            within = _Held.in_function(code, function.scope, given)
            yield code.body, within
            yield from _called_bodies(code.body, within, depth + 1)


def _parameters_with(call: cst.Call, code: cst.FunctionDef, held: _Held) -> set[str]:
    """The parameters of a function that get what holds the rank."""
    names = [one.name.value for one in (*code.params.posonly_params, *code.params.params)]
    found: set[str] = set()
    for place, argument in enumerate(call.args):
        if argument.star:
            return set()
        if held.is_read_in(argument.value):
            found.update([argument.keyword.value] if argument.keyword else names[place : place + 1])
    return found


def _assigned_names(method: cst.FunctionDef) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The variables that a method assigns numbers to, with the code of the numbers."""
    for node in descend(method.body):
        targets: list[cst.BaseExpression] = []
        if isinstance(node, cst.Assign):
            targets = [one.target for one in node.targets]
        elif isinstance(node, cst.AnnAssign | cst.AugAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, cst.Name) and isinstance(node.value, _NUMBERS):
                yield target.value, node.value


@dataclass(frozen=True)
class _Held:
    """What holds the rank, or is computed of it, in the code of a method.

    receiver: the name of the object. attributes, variables: those that hold it.
    scope: that of the class.
    """

    scope: Scope
    receiver: str
    attributes: set[str]
    variables: set[str]

    @classmethod
    def in_method(cls, method: cst.FunctionDef, scope: Scope, attributes: set[str]) -> _Held:
        return cls(scope, receiver_of(method), attributes, set())._with_assigned(method)

    @classmethod
    def in_function(cls, function: cst.FunctionDef, scope: Scope, given: set[str]) -> _Held:
        return cls(scope, "", set(), set(given))._with_assigned(function)

    def _with_assigned(self, function: cst.FunctionDef) -> _Held:
        """Add the variables that a method or function computes of it."""
        assigned = list(_assigned_names(function))
        for _ in range(MAX_STEPS):
            read = {name for name, value in assigned if self.is_read_in(value)}
            if read <= self.variables:
                break
            self.variables.update(read)
        return self

    def is_read_in(self, node: cst.CSTNode) -> bool:
        """Whether code reads one of them."""
        if isinstance(node, cst.Name):
            return node.value in self.variables
        if isinstance(node, cst.Attribute):
            own = isinstance(node.value, cst.Name) and node.value.value == self.receiver
            return node.attr.value in self.attributes if own else self.is_read_in(node.value)
        if isinstance(node, cst.Call) and self.reports(node):
            return False
        return any(map(self.is_read_in, code_children(node)))

    def function_of(self, call: cst.Call) -> str:
        """The name of the function that is called: of a library if the scope says so, or in the
        code."""
        name = dotted_name(call.func)
        root, _, rest = name.partition(".")
        value = self.scope.lookup(root) if root else None
        if isinstance(value, Symbol):
            return f"{value.name}.{rest}".removesuffix(".")
        return name or called_name(call)

    def reports(self, call: cst.Call) -> bool:
        return is_report(self.function_of(call).rpartition(".")[2])

    def takes_part(self, call: cst.Call) -> bool:
        """Whether a function that is called takes a part of its elements, or begins other random
        numbers."""
        return self.function_of(call).rpartition(".")[2] in _TAKES_PART | SEEDS

    def has_no_result(self, node: cst.CSTNode) -> bool:
        """Whether a statement calls a function of a library for something else than data."""
        if isinstance(node, cst.Assert):
            return True
        if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
            return False
        of_library = isinstance(self.scope.lookup(_root_of(node.value)), Symbol)
        return of_library and not self.takes_part(node.value)


def _root_of(call: cst.Call) -> str:
    return dotted_name(call.func).partition(".")[0]


def giving_methods(klass: Class) -> list[cst.FunctionDef]:
    """The methods that give the data, and those that they call."""
    return methods_from(klass, _GIVING)


def methods_from(klass: Class, first: Iterable[str]) -> list[cst.FunctionDef]:
    """The methods of a class with some names, and those that they call."""
    found: list[cst.FunctionDef] = []
    names = [*first]
    for name in names:
        method = klass.lookup(name)
        node = method.node if isinstance(method, Function) else None
        if isinstance(node, cst.FunctionDef):
            found.append(node)
            read = _read_attributes(node.body, receiver_of(node))
            names += [other for other in dict.fromkeys(read) if other not in names]
    return found


def receiver_of(function: cst.FunctionDef) -> str:
    params = (*function.params.posonly_params, *function.params.params)
    return params[0].name.value if params else ""


def _computes(node: cst.CSTNode, held: _Held) -> bool:
    """Whether code computes with the rank."""
    reads = held.is_read_in
    if held.has_no_result(node) or (isinstance(node, cst.Call) and held.reports(node)):
        return False
    if isinstance(node, cst.Comparison):
        sides = (node.left, *(one.comparator for one in node.comparisons))
        return reads(node) and not any(isinstance(side, _CONSTANTS) for side in sides)
    if isinstance(node, cst.Call) and held.takes_part(node) and any(map(reads, node.args)):
        return True
    if isinstance(node, cst.BinaryOperation | cst.AugAssign | cst.SubscriptElement):
        return reads(node)
    if isinstance(node, cst.FormattedString):
        return reads(node) and not names_device(node)
    return any(_computes(child, held) for child in code_children(node))


def _divides(node: cst.CSTNode, held: _Held) -> bool:
    """Whether code computes the group of the rank, or another number that ranks share."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _DIVIDES):
        if held.is_read_in(node.left):
            return True
    return any(_divides(child, held) for child in code_children(node))


def called_name(node: cst.Call) -> str:
    """The last name of what is called: `torch.Generator().manual_seed(...)`."""
    function = node.func
    return function.attr.value if isinstance(function, cst.Attribute) else dotted_name(function)


def _read_attributes(node: cst.CSTNode, receiver: str) -> Iterator[str]:
    """The attributes of a method's first argument in its code."""
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
        if node.value.value == receiver:
            yield node.attr.value
    for child in code_children(node):
        yield from _read_attributes(child, receiver)
