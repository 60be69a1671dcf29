"""`with FSDP.state_dict_type(...):` in the place of a type that is set and then set back.

`old = FSDP.set_state_dict_type(model, ...)`, or `FSDP.get_state_dict_type(model)` before it, keeps the
type; `FSDP.set_state_dict_type(model, old.state_dict_type, ...)` sets it again, perhaps in a `finally`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts.kinds import TYPE_PARAMETERS
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.layout import descend, string_lines

_GET, _SET = f"{FSDP}.get_state_dict_type", f"{FSDP}.set_state_dict_type"
_LEAVING = (cst.Return, cst.Break, cst.Continue)


@dataclass(frozen=True)
class _Switch:
    """Statements of one block that set a type and set the earlier one back.

    Attributes:
        getter: the statement that asks for the earlier type; None if the setter returns it.
        setter: the statement that sets the type.
        call: the call in it.
        name: the variable that has the earlier type.
        body: the statements for which the type is set.
        block: the `try` around them, if there is one.
        back: the statement that sets the earlier type.
    """

    getter: cst.CSTNode | None
    setter: cst.CSTNode
    call: cst.Call
    name: cst.Name
    body: Sequence[cst.CSTNode]
    block: cst.Try | None
    back: cst.CSTNode


def rewrite_block(inlining: Inlining, node: cst.IndentedBlock | cst.Module) -> bool:
    """Write a `with` block for the first type that the statements of a block set back."""
    if inlining.changed or "set_state_dict_type" not in inlining.source.text:
        return False
    for number in range(len(node.body)):
        switch = _switch(inlining, node.body, number)
        if switch is not None and _may_change(inlining, switch):
            _write(inlining, switch)
            return True
    return False


# Reading ------------------------------------------------------------------------------------------


def _switch(inlining: Inlining, body: Sequence[cst.CSTNode], number: int) -> _Switch | None:
    name, call = _assigned_call(inlining, body[number])
    getter = None
    if name is None or call is None:
        return None
    if inlining.migration.fsdp1(call.func) == _GET:
        getter, number = body[number], number + 1
        if number == len(body):
            return None
        block = body[number]
        if isinstance(block, cst.Try):
            return _in_try(inlining, getter, name, block)
        call = _bare_call(block)
    if call is None or inlining.migration.fsdp1(call.func) != _SET or number + 1 == len(body):
        return None
    setter, following = body[number], body[number + 1]
    if isinstance(following, cst.Try):
        back = _back(inlining, following, name, call)
        if back is None:
            return None
        return _Switch(getter, setter, call, name, following.body.body, following, back)
    for end in range(number + 1, len(body)):
        if _sets_back(inlining, body[end], name, call):
            inner = body[number + 1 : end]
            return _Switch(getter, setter, call, name, inner, None, body[end])
    return None


def _in_try(
    inlining: Inlining, getter: cst.CSTNode, name: cst.Name, block: cst.Try
) -> _Switch | None:
    """The same where the `try` begins with the setter."""
    setter, *rest = block.body.body
    call = _bare_call(setter)
    if call is None or inlining.migration.fsdp1(call.func) != _SET:
        return None
    back = _back(inlining, block, name, call)
    return _Switch(getter, setter, call, name, rest, block, back) if back is not None else None


def _back(inlining: Inlining, block: cst.Try, name: cst.Name, call: cst.Call) -> cst.CSTNode | None:
    """The only statement in the `finally` of a `try`, if it sets the earlier type."""
    if block.handlers or block.orelse is not None or block.finalbody is None:
        return None
    last = block.finalbody.body.body
    return last[0] if len(last) == 1 and _sets_back(inlining, last[0], name, call) else None


def _assigned_call(
    inlining: Inlining, line: cst.CSTNode
) -> tuple[cst.Name | None, cst.Call | None]:
    small = _only_part(line)
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None, None
    target, value = small.targets[0].target, small.value
    if not isinstance(target, cst.Name) or not isinstance(value, cst.Call):
        return None, None
    known = inlining.migration.fsdp1(value.func) in (_GET, _SET)
    return (target, value) if known else (None, None)


def _bare_call(line: cst.CSTNode) -> cst.Call | None:
    small = _only_part(line)
    call = small.value if isinstance(small, cst.Expr) else None
    return call if isinstance(call, cst.Call) else None


def _only_part(line: cst.CSTNode) -> cst.CSTNode | None:
    one = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    return line.body[0] if isinstance(line, cst.SimpleStatementLine) and one else None


def _sets_back(inlining: Inlining, line: cst.CSTNode, name: cst.Name, call: cst.Call) -> bool:
    """Whether a statement gives a model the type and the configs that a variable has."""
    back = _bare_call(line)
    if back is None or inlining.migration.fsdp1(back.func) != _SET:
        return False
    given, rest = arguments(back, TYPE_PARAMETERS)
    model = arguments(call, TYPE_PARAMETERS)[0].get("module")
    if rest or set(given) != set(TYPE_PARAMETERS) or model is None:
        return False
    return inlining.source.code(given["module"].value) == inlining.source.code(model.value) and all(
        _is_field(given[field].value, name, field) for field in TYPE_PARAMETERS[1:]
    )


def _is_field(node: cst.BaseExpression, name: cst.Name, field: str) -> bool:
    return (
        isinstance(node, cst.Attribute)
        and node.attr.value == field
        and is_constant(node.value, name.value)
    )


# Writing ------------------------------------------------------------------------------------------


def _may_change(inlining: Inlining, switch: _Switch) -> bool:
    """Whether a `with` block does the same, and its text can be written."""
    source = inlining.source
    nodes = [part for one in switch.body for part in (one, *descend(one))]
    lines = [switch.setter, switch.back, *([switch.getter] if switch.getter else [])]
    if not switch.body or inlining.has_comments(*lines):
        return False
    if not isinstance(switch.call.func, cst.Attribute):
        return False
    if switch.block is None and any(isinstance(one, _LEAVING) for one in nodes):
        return False
    if switch.block is None and any(string_lines(source, one) for one in switch.body):
        return False
    others = _other_reads(inlining, switch)
    return not others or switch.getter is not None


def _other_reads(inlining: Inlining, switch: _Switch) -> list[cst.Name]:
    """The reads of the earlier type that do not set it again."""
    home = home_of(inlining.source, switch.name) or inlining.source.tree
    own = {switch.name, *descend(switch.back)}
    return [one for one in reads(inlining.source, home, switch.name.value) if one not in own]


def _write(inlining: Inlining, switch: _Switch) -> None:
    source, migration = inlining.source, inlining.migration
    function = switch.call.func
    assert isinstance(function, cst.Attribute)
    given = source.text[source.span(function)[1] : source.span(switch.call)[1]]
    owner = inlining.text(function.value)
    head = f"with {owner}.state_dict_type{given}:"
    if switch.getter is not None and not _other_reads(inlining, switch):
        inlining.delete(switch.getter)
    if switch.block is not None:
        start, end = source.span(switch.block)
        inside = source.span(switch.block.body)[0]
        colon = source.text.index(":", start)
        migration.substitute_span(source, start, colon + 1, head)
        final = switch.block.finalbody
        assert final is not None and inside >= colon
        begin = source.span(switch.body[-1])[1]
        migration.substitute_span(source, begin, end, "")
        inlining.delete(switch.setter)
        return
    migration.substitute(source, switch.setter, head)
    unit = source.tree.default_indent
    first, last = source.span(switch.setter)[1], source.span(switch.back)[0]
    for at in _line_starts(source.text, first, last):
        migration.substitute_span(source, at, at, unit)
    inlining.delete(switch.back)


def _line_starts(text: str, begin: int, end: int) -> list[int]:
    """Where the text of each line begins that is not blank, after the first of them."""
    found = []
    at = text.find("\n", begin, end)
    while at != -1:
        following = text.find("\n", at + 1, end)
        line = text[at + 1 : following if following != -1 else end]
        if line.strip():
            found.append(at + 1 + len(line) - len(line.lstrip()))
        at = following
    return found
