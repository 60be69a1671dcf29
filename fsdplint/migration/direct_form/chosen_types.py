"""Types of states that the arms of an `if` choose, for one `state_dict_type` block behind it.

    if whole:
        kind = StateDictType.FULL_STATE_DICT
    else:
        kind = StateDictType.SHARDED_STATE_DICT
    with FSDP.state_dict_type(model, kind):
        state = model.state_dict()

Each arm gets the block, with its own type and configs. A block whose type is chosen by an expression,
`kind = full if whole else sharded`, is written for each of its values.
"""

from __future__ import annotations

import textwrap

import libcst as cst

from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.direct_form.arms import (
    Values,
    Variable,
    changes_after,
    choice_before,
    delete_unread,
    first_line,
    going_on,
    text_with,
)
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts.kinds import CONFIGS, TYPE_PARAMETERS
from fsdplint.migration.text import is_repeatable
from fsdplint.syntax.arguments import arguments, is_constant

_CONFIGS = {name for pair in CONFIGS.values() for name in pair}


def rewrite_with(inlining: Inlining, node: cst.With) -> bool:
    """Put a block into the arms of the `if` before it that choose its type; whether it is one."""
    source = inlining.source
    call = node.items[0].item if len(node.items) == 1 else None
    if inlining.changed or not isinstance(call, cst.Call):
        return False
    if inlining.migration.fsdp1(call.func) != f"{FSDP}.state_dict_type":
        return False
    kind = arguments(call, TYPE_PARAMETERS)[0].get("state_dict_type")
    block = source.parent(node)
    if kind is None or not isinstance(block, cst.IndentedBlock | cst.Module):
        return False
    return _rewrite_expressions(inlining, node, call, kind.value) or _rewrite_arms(
        inlining, node, call, kind.value
    )


def _rewrite_arms(
    inlining: Inlining, node: cst.With, call: cst.Call, kind: cst.BaseExpression
) -> bool:
    """Put the block into the arms of an `if`."""
    source, block = inlining.source, inlining.source.parent(node)
    assert isinstance(block, cst.IndentedBlock | cst.Module)
    variables = _variables(inlining, call)
    chosen = [one for one in variables if one.name is kind]
    place = list(block.body).index(node)
    choice = choice_before(inlining, block.body[:place], chosen)
    if choice is None:
        return False
    moved = [*block.body[list(block.body).index(choice) + 1 : place], node]
    texts: dict[cst.IndentedBlock, str | None] = {}
    for arm in going_on(choice):
        found = {one.name: one.of(inlining, arm) for one in variables}
        values: Values = {name: one.value for name, one in found.items() if one is not None}
        if len(values) < len(variables):
            return False
        texts[arm] = text_with(inlining, values, moved)
    if None in texts.values():
        return False
    for arm, text in texts.items():
        inlining.put_after(arm.body[-1], (text or "").split("\n"))
    inlining.cut_lines(first_line(source, moved[0]), source.span(node)[1])
    for variable in variables:
        delete_unread(inlining, variable)
    return True


def _rewrite_expressions(
    inlining: Inlining, node: cst.With, call: cst.Call, kind: cst.BaseExpression
) -> bool:
    """Write the block for each value of the conditional expression that chooses its type."""
    source = inlining.source
    choices: dict[cst.BaseExpression, cst.IfExp] = {}
    variables = []
    for arg in call.args:
        known = definitions(source, arg.value) if isinstance(arg.value, cst.Name) else None
        if known is not None and len(known) == 1 and isinstance(known[0].value, cst.IfExp):
            assert isinstance(arg.value, cst.Name)
            variables.append(Variable(arg.value, known))
        value = known[0].value if known is not None and len(known) == 1 else arg.value
        if isinstance(value, cst.IfExp):
            choices[arg.value] = value
    chosen = choices.get(kind)
    if chosen is None or not is_repeatable(chosen.test):
        return False
    test = source.code(chosen.test)
    if any(source.code(one.test) != test for one in choices.values()):
        return False
    if not all(
        _is_setting(inlining, x) for one in choices.values() for x in (one.body, one.orelse)
    ):
        return False
    if any(
        changes_after(inlining, one.definitions[0].statement, chosen.test, node)
        for one in variables
    ):
        return False
    texts = [
        text_with(inlining, {name: getattr(one, side) for name, one in choices.items()}, [node], "")
        for side in ("body", "orelse")
    ]
    if None in texts:
        return False
    unit = source.tree.default_indent
    first, second = (textwrap.indent(text or "", unit) for text in texts)
    inlining.put_lines(node, [f"if {test}:", *first.split("\n"), "else:", *second.split("\n")])
    for variable in variables:
        delete_unread(inlining, variable)
    return True


# Reading ------------------------------------------------------------------------------------------


def _variables(inlining: Inlining, call: cst.Call) -> list[Variable]:
    """The variables in the arguments of the block, with all their definitions."""
    found = []
    for arg in call.args:
        if isinstance(arg.value, cst.Name):
            known = definitions(inlining.source, arg.value)
            if known and all(_is_setting(inlining, one.value) for one in known):
                found.append(Variable(arg.value, known))
    return found


def _is_setting(inlining: Inlining, value: cst.BaseExpression) -> bool:
    """Whether a value is a type of states, or a config that reads only constants and names."""
    if is_constant(value, "None"):
        return True
    if isinstance(value, cst.Call):
        called = inlining.migration.called_name(value) in _CONFIGS
        return called and all(not arg.star and is_repeatable(arg.value) for arg in value.args)
    return inlining.migration.fsdp1(value).startswith("StateDictType.")
