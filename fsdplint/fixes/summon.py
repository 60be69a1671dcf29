"""Replace `with FSDP.summon_full_params(model):` by `unshard()` and `reshard()`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.no_sync import left_early, remove_item
from fsdplint.fixes.syntax import argument, free_name
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace.torch_versions import FSDP

# Calls that change parameters, or that must not run while parameters are gathered.
WRITING = {
    "load_state_dict", "set_model_state_dict", "set_state_dict", "step", "backward", "apply", "to",
    "init_weights", "reset_parameters", "tie_weights", "setattr", "half", "float", "bfloat16",
}  # fmt: skip
PARTS = {"data", "weight", "bias", "grad"}


def rewrite_summon(rewrite: Rewrite, source: Source, call: cst.Call, *, several: bool) -> bool:
    """Rewrite the `with` statement of a `summon_full_params` call whose body only reads.

    several: whether modules other than the given one are sharded separately.

    Returns:
        Whether the statement could be rewritten.
    """
    item = source.parent(call)
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(item, cst.WithItem) or not isinstance(block, cst.With):
        return False
    if block.asynchronous is not None or item.asname is not None:
        return False
    model, options = _arguments(source, call)
    if model is None or not set(options) <= {"writeback", "recurse"}:
        return False
    if any(text not in {"True", "False"} for text in options.values()):
        return False
    if options.get("writeback") != "False" and writes(block.body):
        return False
    early = left_early(block.body)
    if early and len(block.items) > 1:
        return False
    if several and options.get("recurse") != "False":
        name = rewrite.need_import(source, FSDP, "FSDPModule", at=block)
        one = free_name(source, block, "module")
        head = [f"for {one} in {model}.modules():", f"\tif isinstance({one}, {name}):"]
        before, after = [*head, f"\t\t{one}.unshard()"], [*head, f"\t\t{one}.reshard()"]
    else:
        before, after = [f"{model}.unshard()"], [f"{model}.reshard()"]
    surround(rewrite, source, block, item, before, after)
    root = call.func
    while isinstance(root, cst.Attribute):
        root = root.value
    if isinstance(root, cst.Name):
        rewrite.remove_import_if_unused(source, root.value)
    return True


def surround(
    rewrite: Rewrite,
    source: Source,
    block: cst.With,
    item: cst.WithItem,
    before: list[str],
    after: list[str],
) -> None:
    """Put lines before and after the body of a `with`, in place of one of its items.

    If the body may be left early and lines follow it, the `with` must have no other item.
    """
    if len(block.items) > 1:
        remove_item(rewrite, source, block, item)
        rewrite.insert_before(source, block, before)
        rewrite.insert_after(source, block, after)
    elif after and left_early(block.body):
        start, colon = source.span(block)[0], source.text.index(":", source.span(item)[1])
        rewrite.replace_span(source, start, colon, "try")
        rewrite.insert_before(source, block, before)
        rewrite.insert_after(source, block, ["finally:", *("\t" + line for line in after)])
    else:
        rewrite.unwrap(source, block, before)
        rewrite.insert_after(source, block, after)


def _arguments(source: Source, call: cst.Call) -> tuple[str | None, dict[str, str]]:
    """The text of the model, and the other arguments by name."""
    first = argument(call, 0, "module")
    if first is None or not isinstance(first.value, cst.Name | cst.Attribute):
        return None, {}
    if any(arg.star or (arg.keyword is None and arg is not first) for arg in call.args):
        return None, {}
    named = {arg.keyword.value: source.code(arg.value) for arg in call.args if arg.keyword}
    named.pop("module", None)
    return source.code(first.value), named


def writes(body: cst.CSTNode) -> bool:
    """Whether the code of a block may change parameters; called functions do not count."""
    return any(True for _ in writing(body))


def writing(body: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The calls and targets of a block that may change parameters; called functions do not
    count."""
    parameters: set[str] = set()  # loop variables that may be parameters
    stack: list[cst.CSTNode] = [body]
    nodes: list[cst.CSTNode] = []
    while stack:
        node = stack.pop()
        nodes.append(node)
        if isinstance(node, cst.For):
            parameters |= _names_of(node.target)
        stack.extend(node.children)
    return (node for node in nodes if _writing(node, parameters))


def _writing(node: cst.CSTNode, parameters: set[str]) -> bool:
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value in WRITING - {"float"}
    if isinstance(node, cst.Call):
        name = dotted_name(node.func).rpartition(".")
        if isinstance(node.func, cst.Attribute) and not name[2]:
            name = "", "", node.func.attr.value
        in_place = name[2].endswith("_") and not name[2].endswith("__")
        return in_place or name[2] in WRITING or name[0].rpartition(".")[2] == "init"
    if isinstance(node, cst.AugAssign):
        return not isinstance(node.target, cst.Name) or node.target.value in parameters
    if isinstance(node, cst.AssignTarget):
        target: cst.BaseExpression = node.target
        while isinstance(target, cst.Subscript):
            target = target.value
            if isinstance(target, cst.Attribute):
                return True
            if isinstance(target, cst.Name):
                return target.value in parameters
        return isinstance(target, cst.Attribute) and target.attr.value in PARTS
    return False


def _names_of(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    return {name for child in target.children for name in _names_of(child)}
