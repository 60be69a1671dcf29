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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.unreached_code import bindings
from fsdplint.migration.analysis.variables import Definition, definitions, home_of, reads
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts.kinds import CONFIGS, TYPE_PARAMETERS
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, string_lines

MAX_LINES = 20  # that each arm gets
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)
Values = Mapping[cst.BaseExpression, cst.BaseExpression]
_CONFIGS = {name for pair in CONFIGS.values() for name in pair}


@dataclass(frozen=True)
class _Variable:
    """A name in the head of the block, and what each arm assigns to it."""

    name: cst.Name
    definitions: Sequence[Definition]

    def of(self, inlining: Inlining, arm: cst.BaseSuite) -> Definition | None:
        """The definition in an arm, as a statement of its block."""
        source = inlining.source
        found = [
            one
            for one in self.definitions
            if (line := source.parent(one.statement)) is not None and source.parent(line) is arm
        ]
        return found[0] if len(found) == 1 else None


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
    choice = _choice(inlining, block.body[:place], chosen)
    if choice is None:
        return False
    moved = [*block.body[list(block.body).index(choice) + 1 : place], node]
    texts: dict[cst.IndentedBlock, str | None] = {}
    for arm in _going_on(choice):
        found = {one.name: one.of(inlining, arm) for one in variables}
        values: Values = {name: one.value for name, one in found.items() if one is not None}
        if len(values) < len(variables):
            return False
        texts[arm] = _text(inlining, values, moved)
    if None in texts.values():
        return False
    for arm, text in texts.items():
        inlining.put_after(arm.body[-1], (text or "").split("\n"))
    inlining.cut_lines(_first_line(source, moved[0]), source.span(node)[1])
    for variable in variables:
        _delete_unread(inlining, variable)
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
            variables.append(_Variable(arg.value, known))
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
    if any(_changes_after(inlining, one, chosen.test, node) for one in variables):
        return False
    texts = [
        _text(inlining, {name: getattr(one, side) for name, one in choices.items()}, [node], "")
        for side in ("body", "orelse")
    ]
    if None in texts:
        return False
    unit = source.tree.default_indent
    first, second = (textwrap.indent(text or "", unit) for text in texts)
    inlining.put_lines(node, [f"if {test}:", *first.split("\n"), "else:", *second.split("\n")])
    for variable in variables:
        _delete_unread(inlining, variable)
    return True


# Reading ------------------------------------------------------------------------------------------


def _variables(inlining: Inlining, call: cst.Call) -> list[_Variable]:
    """The variables in the arguments of the block, with all their definitions."""
    found = []
    for arg in call.args:
        if isinstance(arg.value, cst.Name):
            known = definitions(inlining.source, arg.value)
            if known and all(_is_setting(inlining, one.value) for one in known):
                found.append(_Variable(arg.value, known))
    return found


def _is_setting(inlining: Inlining, value: cst.BaseExpression) -> bool:
    """Whether a value is a type of states, or a config that reads only constants and names."""
    if is_constant(value, "None"):
        return True
    if isinstance(value, cst.Call):
        called = inlining.migration.called_name(value) in _CONFIGS
        return called and all(not arg.star and is_repeatable(arg.value) for arg in value.args)
    return inlining.migration.fsdp1(value).startswith("StateDictType.")


def _choice(
    inlining: Inlining, before: Sequence[cst.CSTNode], chosen: Sequence[_Variable]
) -> cst.If | None:
    """The `if` before the block each of whose arms chooses the type or leaves."""
    for one in reversed(before):
        if not isinstance(one, cst.If) or len(chosen) != 1 or None in _arms(one):
            continue
        going_on = list(_going_on(one))
        assigned = [chosen[0].of(inlining, arm) for arm in going_on]
        known = all(isinstance(arm.body[-1], cst.SimpleStatementLine) for arm in going_on)
        if None not in assigned and len(assigned) == len(chosen[0].definitions) > 1 and known:
            return one
    return None


def _changes_after(
    inlining: Inlining, variable: _Variable, test: cst.BaseExpression, node: cst.With
) -> bool:
    """Whether a name of a test is bound between the assignment of a variable and the block."""
    source = inlining.source
    start, end = source.span(variable.definitions[0].statement)[1], source.span(node)[0]
    names = {part.value for part in (test, *descend(test)) if isinstance(part, cst.Name)}
    found = bindings(source, function_around(source, node))
    places = [source.span(x)[0] for name, x_s in found.items() if name in names for x in x_s]
    return any(start <= place < end for place in places) or start > end


def _arms(node: cst.If) -> Iterator[cst.IndentedBlock | None]:
    """The blocks of the arms; None for one without a block, or if there is no `else`."""
    arm: cst.If | cst.Else | None = node
    while arm is not None:
        yield arm.body if isinstance(arm.body, cst.IndentedBlock) else None
        if isinstance(arm, cst.Else):
            return
        arm = arm.orelse
    yield None


def _going_on(node: cst.If) -> Iterator[cst.IndentedBlock]:
    """The arms that reach what is behind the `if`."""
    for arm in _arms(node):
        last = arm.body[-1] if arm is not None and arm.body else None
        if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _LEAVES):
            continue
        if arm is not None:
            yield arm


# Writing ------------------------------------------------------------------------------------------


def _text(
    inlining: Inlining,
    values: Values,
    moved: Sequence[cst.CSTNode],
    comments: str = "above",
) -> str | None:
    """The lines of statements, with values in the place of some arguments.

    comments: which comments are taken along.
    """
    source, text = inlining.source, inlining.source.text
    if any(string_lines(source, one) for one in moved):
        return None
    begin, end = source.span(moved[0])[0], source.span(moved[-1])[1]
    parts, at = [], begin
    for node in sorted(values, key=source.span):
        start, stop = source.span(node)
        parts += [text[at:start], source.code(values[node])]
        at = stop
    lines = "".join([*parts, text[at:end]])
    start = _first_line(source, moved[0]) if comments else text.rfind("\n", 0, begin) + 1
    found = textwrap.dedent(text[start:begin] + lines)
    return found if found.count("\n") < MAX_LINES else None


def _first_line(source: Source, node: cst.CSTNode) -> int:
    """Where the line of a statement begins, or the first one of the comments above it."""
    text = source.text
    start = text.rfind("\n", 0, source.span(node)[0]) + 1
    while start:
        above = text.rfind("\n", 0, start - 1) + 1
        if not text[above:start].lstrip().startswith("#"):
            break
        start = above
    return start


def _delete_unread(inlining: Inlining, variable: _Variable) -> None:
    """Delete the assignments of a variable that only the head of the block reads."""
    source = inlining.source
    home = home_of(source, variable.name) or source.tree
    if reads(source, home, variable.name.value) == [variable.name]:
        for one in variable.definitions:
            inlining.delete(one.statement)
