"""Flat parameters that code takes element by element, which the model's parameters stand for.

    handles = _traversal_utils._get_fsdp_handles(model)
    for handle in handles:
        handle.flat_param.data.mul_(decay)

becomes a loop over `list(model.parameters())`. FSDP1's `parameters()` has the same elements: the flat
parameters, or with `use_orig_params=True` their parts. What needs the shape of a flat parameter stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.variables import bound_names, home_of, reads
from fsdplint.migration.constructor.ignored_values import may_ignore
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.text import atom
from fsdplint.syntax.arguments import is_constant

HANDLES = "_traversal_utils._get_fsdp_handles"
FLAT = "flat_param"
PROPERTIES = {"requires_grad", "dtype", "device"}
# Methods that work element by element, with a number or another tensor of this shape.
COPIES = {"to", "float", "detach", "clone"}
IN_PLACE = {"mul_", "add_", "sub_", "lerp_", "copy_", "div_"}
FOREACH = "torch._foreach_"


@dataclass
class _Uses:
    """The places that a change has to rewrite.

    Attributes:
        names: the names of handles, and of lists of them.
        flat: the attributes `handle.flat_param`.
        tests: whether a loop asks which parameters are trained.
    """

    names: list[cst.Name] = field(default_factory=list)
    flat: list[cst.Attribute] = field(default_factory=list)
    tests: bool = False


def rewrite_call(inlining: Inlining, node: cst.Call) -> bool:
    """Take the parameters of a model instead of its handles; whether a call asks for handles."""
    if inlining.migration.fsdp1(node.func) != HANDLES or len(node.args) != 1:
        return False
    if node.args[0].star or node.args[0].keyword is not None:
        return False
    uses = _Uses()
    if not _add_list(inlining, node, uses):
        return False
    if not uses.tests and may_ignore(inlining.migration):
        return False
    model = inlining.text(node.args[0].value)
    inlining.put(node, f"list({atom(model)}.parameters())")
    for attribute in uses.flat:
        inlining.put(attribute, _renamed(inlining, attribute.value))
        _drop_test(inlining, attribute)
    inside = {attribute.value for attribute in uses.flat}
    for name in uses.names:
        if name not in inside:
            inlining.put(name, _renamed(inlining, name))
    return True


def _drop_test(inlining: Inlining, flat: cst.Attribute) -> None:
    """Drop `handle.flat_param is not None and`: a parameter is never None."""
    source = inlining.source
    test = source.parent(flat)
    both = source.parent(test) if isinstance(test, cst.Comparison) else None
    if not isinstance(test, cst.Comparison) or not isinstance(both, cst.BooleanOperation):
        return
    is_not = isinstance(test.comparisons[0].operator, cst.IsNot)
    if isinstance(both.operator, cst.And) and both.left is test and is_not:
        start, end = source.span(test)[0], source.span(both.right)[0]
        inlining.migration.substitute_span(source, start, end, "")


def _renamed(inlining: Inlining, name: cst.BaseExpression) -> str:
    """The name of a variable, in which parameters stand for handles."""
    assert isinstance(name, cst.Name)
    wanted = name.value.replace("handle", "parameter")
    taken = bound_names(inlining.source, name) if wanted != name.value else set()
    return name.value if wanted in taken else wanted


# Where the handles go -----------------------------------------------------------------------------


def _add_list(inlining: Inlining, node: cst.BaseExpression, uses: _Uses) -> bool:
    """Add the uses of a list of handles; whether all of them are known."""
    source = inlining.source
    parent = source.parent(node)
    if isinstance(parent, cst.Assign):
        target = parent.targets[0].target
        if len(parent.targets) != 1 or not isinstance(target, cst.Name):
            return False
        found = _reads_of(inlining, target)
        uses.names.append(target)
        return bool(found) and all(_add_use(inlining, one, uses) for one in found or ())
    return _add_use(inlining, node, uses)


def _reads_of(inlining: Inlining, target: cst.Name) -> list[cst.Name] | None:
    """The reads of a variable that has one definition in its function, else None."""
    source = inlining.source
    home = home_of(source, target)
    if not isinstance(home, cst.FunctionDef | cst.Module):
        return None
    bound = [
        part
        for part in source.descend(home)
        if isinstance(part, cst.Name)
        and part.value == target.value
        and isinstance(source.parent(part), cst.AssignTarget | cst.For | cst.Element | cst.CompFor)
        and not _is_iterated(inlining, part)
    ]
    return reads(source, home, target.value) if bound == [target] else None


def _is_iterated(inlining: Inlining, node: cst.Name) -> bool:
    parent = inlining.source.parent(node)
    return isinstance(parent, cst.For | cst.CompFor) and parent.iter is node


def _add_use(inlining: Inlining, node: cst.BaseExpression, uses: _Uses) -> bool:
    """Add a use of a list of handles: a loop over it, or its length."""
    source = inlining.source
    if isinstance(node, cst.Name):
        uses.names.append(node)
    parent = source.parent(node)
    if isinstance(parent, cst.For | cst.CompFor) and parent.iter is node:
        return _add_loop(inlining, parent, parent.target, uses)
    call = source.parent(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
        return False
    if call.func.value == "len":
        return True
    loop = source.parent(call)
    if call.func.value != "zip" or not isinstance(loop, cst.For | cst.CompFor):
        return False
    if loop.iter is not call or not isinstance(loop.target, cst.Tuple):
        return False
    place = [arg.value for arg in call.args].index(node)
    if len(loop.target.elements) != len(call.args):
        return False
    return _add_loop(inlining, loop, loop.target.elements[place].value, uses)


def _add_loop(
    inlining: Inlining, loop: cst.For | cst.CompFor, target: cst.BaseExpression, uses: _Uses
) -> bool:
    """Add the uses of one handle in a loop; whether all of them take its flat parameter."""
    source = inlining.source
    if not isinstance(target, cst.Name):
        return False
    uses.names.append(target)
    scope = loop if isinstance(loop, cst.For) else source.parent(loop)
    uses.tests = uses.tests or any(
        isinstance(part, cst.Attribute) and part.attr.value == "requires_grad"
        for part in (source.descend(scope) if scope is not None else ())
    )
    home = home_of(source, target)
    if scope is None or home is None:
        return False
    found = reads(source, scope, target.value)
    if isinstance(loop, cst.For) and found != reads(source, home, target.value):
        return False
    return all(_add_flat(inlining, one, uses) for one in found if one is not target)


def _add_flat(inlining: Inlining, name: cst.Name, uses: _Uses) -> bool:
    """Add `handle.flat_param`; whether code takes it element by element."""
    source = inlining.source
    flat = source.parent(name)
    if not isinstance(flat, cst.Attribute) or flat.attr.value != FLAT:
        return False
    uses.flat.append(flat)
    parent = source.parent(flat)
    if isinstance(parent, cst.Comparison):
        targets = [one.comparator for one in parent.comparisons]
        return parent.left is flat and all(is_constant(one, "None") for one in targets)
    if not isinstance(parent, cst.Attribute):
        return _takes_elements(inlining, flat)
    if parent.attr.value in PROPERTIES:
        return not isinstance(source.parent(parent), cst.AssignTarget)
    return _takes_elements(inlining, parent if parent.attr.value == "data" else flat)


def _takes_elements(inlining: Inlining, node: cst.BaseExpression) -> bool:
    """Whether code uses a tensor only element by element."""
    source = inlining.source
    parent = source.parent(node)
    call = source.parent(parent) if parent is not None else None
    if isinstance(parent, cst.Attribute) and isinstance(call, cst.Call) and call.func is parent:
        name = parent.attr.value
        return name in IN_PLACE or (name in COPIES and _takes_elements(inlining, call))
    if isinstance(parent, cst.Arg) and isinstance(call, cst.Call):
        func = call.func
        if not isinstance(func, cst.Attribute) or call.args[0] is not parent:
            return False
        if func.attr.value == "append" and isinstance(func.value, cst.Name):
            return _is_list_of_tensors(inlining, func.value)
        return func.attr.value in IN_PLACE
    return False


def _is_list_of_tensors(inlining: Inlining, name: cst.Name) -> bool:
    """Whether a list is only filled, and given to functions that work element by element."""
    source, migration = inlining.source, inlining.migration
    home = home_of(source, name)
    if home is None or not _is_made_empty(inlining, home, name.value):
        return False
    for one in reads(source, home, name.value):
        parent = source.parent(one)
        call = source.parent(parent) if parent is not None else None
        if call is not None and isinstance(source.parent(call), cst.AssignTarget):
            continue  # in a tuple that gets several values
        if not isinstance(call, cst.Call):
            return False
        appends = isinstance(parent, cst.Attribute) and parent.attr.value == "append"
        if not appends and not migration.symbol(call.func).startswith(FOREACH):
            return False
    return True


def _is_made_empty(inlining: Inlining, home: cst.CSTNode, name: str) -> bool:
    """Whether all assignments of a variable make an empty list: `a = []` or `a, b = [], []`."""
    made = []
    for statement in inlining.source.descend(home):
        if not isinstance(statement, cst.Assign):
            continue
        for target in statement.targets:
            made += list(_pairs(target.target, statement.value, name))
    return bool(made) and all(isinstance(one, cst.List) and not one.elements for one in made)


def _pairs(
    target: cst.BaseExpression, value: cst.BaseExpression, name: str
) -> Iterator[cst.BaseExpression | None]:
    """What an assignment gives to a variable; None if that is not known."""
    if is_constant(target, name):
        yield value
    if isinstance(target, cst.Tuple | cst.List):
        values = value.elements if isinstance(value, cst.Tuple) else ()
        same = len(values) == len(target.elements)
        for number, element in enumerate(target.elements):
            if is_constant(element.value, name):
                yield values[number].value if same else None
