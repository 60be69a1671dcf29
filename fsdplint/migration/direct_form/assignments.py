"""Plain assignments in the place of `copy = state = f()`, `state, rest = f(), None` and `:=`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.syntax.evaluation_order import is_evaluated_first
from fsdplint.syntax.layout import descend


def rewrite_assignment(inlining: Inlining, node: cst.Assign) -> bool:
    """Give each variable its own assignment; whether one statement gave several."""
    if inlining.has_comments(node) or not (
        inlining.is_relevant(node.value) or _is_argument(inlining, node)
    ):
        return False
    lines = _chained(inlining, node) if len(node.targets) > 1 else _unpacked(inlining, node)
    if lines is None:
        return False
    inlining.put_lines(node, lines)
    return True


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


def _chained(inlining: Inlining, node: cst.Assign) -> list[str] | None:
    """`copy = state = f()` as `state = f()` and `copy = state`."""
    targets = [one.target for one in node.targets]
    if not all(isinstance(target, cst.Name) for target in targets):
        return None
    *others, main = [inlining.text(target) for target in targets]
    return [f"{main} = {inlining.text(node.value)}", *(f"{one} = {main}" for one in others)]


def _unpacked(inlining: Inlining, node: cst.Assign) -> list[str] | None:
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
