"""Plain assignments in the place of `copy = state = f()`, `state, rest = f(), None` and `:=`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.direct_form.meaning import constant_key, display_items
from fsdplint.migration.text import dict_display
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.evaluation_order import is_evaluated_first
from fsdplint.syntax.layout import descend


def rewrite_assignment(inlining: Inlining, node: cst.Assign) -> bool:
    """Give each variable its own assignment; whether one statement gave several."""
    if inlining.has_comments(node) or not (
        _has_relevant_part(inlining, node.value) or _is_argument(inlining, node)
    ):
        return False
    if _fill(inlining, node):
        return True
    lines = _split_chain(inlining, node) if len(node.targets) > 1 else _split_tuple(inlining, node)
    if lines is None:
        return False
    inlining.put_lines(node, lines)
    return True


def _has_relevant_part(inlining: Inlining, node: cst.BaseExpression) -> bool:
    """Whether a value is relevant; not for the parts of a tuple that are empty, and get items later."""
    if not isinstance(node, cst.Tuple):
        return inlining.is_relevant(node)
    parts = [one.value for one in node.elements]
    return inlining.is_relevant(*(part for part in parts if not _is_empty(part)))


def _is_empty(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.List | cst.Dict) and not node.elements


def _fill(inlining: Inlining, node: cst.Assign) -> bool:
    """`options = {}` and `options["key"] = value` below it become one display."""
    if not inlining.depth.spreads_to_constructor or len(node.targets) != 1:
        return False
    target, items = node.targets[0].target, display_items(node.value)
    if not isinstance(target, cst.Name) or not isinstance(node.value, cst.Dict) or items is None:
        return False
    later = _items_below(inlining, node, target.value)
    if not later or inlining.has_comments(*(statement for statement, _, _ in later)):
        return False
    pairs = {str(key): inlining.text(value) for key, value in items}
    pairs |= {key: inlining.text(value) for _, key, value in later}
    lines = dict_display(inlining.source, f"{target.value} = ", list(pairs.items()))
    inlining.put_lines(node, lines)
    for statement, _, _ in later:
        inlining.delete(statement)
    return True


def _items_below(
    inlining: Inlining, node: cst.Assign, name: str
) -> list[tuple[cst.Assign, str, cst.BaseExpression]]:
    """The statements directly below an assignment that set keys of the dict."""
    line = inlining.source.parent(node)
    block = inlining.source.parent(line) if line is not None else None
    body = list(getattr(block, "body", ()))
    found = []
    for other in body[body.index(line) + 1 :] if line in body else ():
        small = other.body[0] if isinstance(other, cst.SimpleStatementLine) else None
        target = small.targets[0].target if isinstance(small, cst.Assign) else None
        if not isinstance(small, cst.Assign) or not isinstance(target, cst.Subscript):
            break
        key = constant_key(target)
        reads_dict = any(is_constant(part, name) for part in descend(small.value))
        if not is_constant(target.value, name) or not isinstance(key, str) or reads_dict:
            break
        found.append((small, key, small.value))
    return found


def _is_argument(inlining: Inlining, node: cst.Assign) -> bool:
    """Whether a call of FSDP1 gets one of the variables."""
    source = inlining.source
    for target in (one.target for one in node.targets):
        home = home_of(source, target) if isinstance(target, cst.Name) else None
        for use in reads(source, home, source.code(target)) if home is not None else ():
            arg = source.parent(use)
            call = source.parent(arg) if isinstance(arg, cst.Arg) else None
            if inlining.migration.called_name(call):
                return True
    return False


def _split_chain(inlining: Inlining, node: cst.Assign) -> list[str] | None:
    """`copy = state = f()` as `state = f()` and `copy = state`."""
    targets = [one.target for one in node.targets]
    if not all(isinstance(target, cst.Name) for target in targets):
        return None
    others = [inlining.text(target) for target in targets if _is_read(inlining, target)]
    main = inlining.text(targets[-1])
    others = [one for one in others if one != main]
    return [f"{main} = {inlining.text(node.value)}", *(f"{one} = {main}" for one in others)]


def _is_read(inlining: Inlining, target: cst.BaseExpression) -> bool:
    """Whether code may read a variable."""
    home = home_of(inlining.source, target) if isinstance(target, cst.Name) else None
    if home is None or not isinstance(home, cst.FunctionDef):
        return True  # of a module or a class: other files may
    return bool(reads(inlining.source, home, inlining.source.code(target)))


def _split_tuple(inlining: Inlining, node: cst.Assign) -> list[str] | None:
    """`state, rest = f(), None` as `state = f()` and `rest = None`."""
    target, value = node.targets[0].target, node.value
    if not isinstance(target, cst.Tuple | cst.List) or not isinstance(value, cst.Tuple | cst.List):
        return None
    if any(isinstance(one, cst.StarredElement) for one in value.elements):
        return None
    values = [one.value for one in value.elements]
    names = [one.value.value for one in target.elements if isinstance(one.value, cst.Name)]
    read = {part.value for one in values for part in descend(one) if isinstance(part, cst.Name)}
    if len(names) != len(target.elements) or read & set(names) or len(names) != len(set(names)):
        return None
    texts = [inlining.text(one) for one in values]
    last = target.elements[-1]
    if isinstance(last, cst.StarredElement) and len(values) >= len(names) - 1:
        rest = texts[len(names) - 1 :]
        texts = [*texts[: len(names) - 1], f"[{', '.join(rest)}]"]
    elif any(isinstance(one, cst.StarredElement) for one in target.elements):
        return None
    if len(texts) != len(names):
        return None
    return [f"{name} = {text}" for name, text in zip(names, texts, strict=True)]


def rewrite_test(inlining: Inlining, node: cst.If) -> bool:
    """`if (state := f()) is None:` becomes `state = f()` and `if state is None:`."""
    source = inlining.source
    if getattr(source.parent(node), "orelse", None) is node:
        return False  # an `elif`
    changed = False
    for part in descend(node.test):
        if not isinstance(part, cst.NamedExpr) or not is_evaluated_first(source, part, node.test):
            continue
        if not inlining.is_relevant(part.value) or inlining.has_comments(part):
            continue
        name = inlining.text(part.target)
        line = f"{name} = {inlining.text(part.value)}"
        inlining.put_before(node, line)
        inlining.put_whole(part, name)
        changed = True
    return changed
