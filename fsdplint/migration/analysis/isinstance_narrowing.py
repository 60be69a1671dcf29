"""Names that a test such as `if isinstance(module, FSDP):` narrows to wrapped models.

In a function that the program does not call, nothing else is known about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from fsdplint.migration.analysis.unreached_code import bindings
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import walk

IsClass = Callable[[cst.CSTNode], bool]
Test = tuple[str, str]  # the text of the tested expression, and "always" or "sometimes"


def narrowed_nodes(sources: Sequence[Source], is_class: IsClass) -> dict[cst.CSTNode, str]:
    """The narrowed nodes, and whether they are a wrapped model "always" or "sometimes".

    Args:
        sources: the files to look at.
        is_class: whether a node refers to the class of the wrappers.
    """
    found: dict[cst.CSTNode, str] = {}
    for source in sources:
        for call in walk(source, skip_imports=True):
            test = tested(source, call, is_class)
            if test is None:
                continue
            text, how = test
            found.update(dict.fromkeys(guarded_reads(source, call, text), how))
    return found


def guarded_reads(source: Source, call: cst.CSTNode, text: str) -> Iterator[cst.CSTNode]:
    """The reads of an expression that run only if a test of it is true."""
    for node in _guarded_nodes(source, call):
        for part in descend(node):
            if refers_to(source, part, text) and not _is_rebound(source, call, part, text):
                yield part


def tested(source: Source, call: cst.CSTNode, is_class: IsClass) -> Test | None:
    """`isinstance(model, FSDP)`. With further classes, the model is wrapped "sometimes"."""
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name):
        return None
    if call.func.value != "isinstance" or len(call.args) != 2:
        return None
    model, kinds = call.args[0].value, call.args[1].value
    if not isinstance(model, cst.Name | cst.Attribute):
        return None
    if is_class(kinds):
        return source.code(model), "always"
    if isinstance(kinds, cst.Tuple) and any(is_class(part.value) for part in kinds.elements):
        return source.code(model), "always" if len(kinds.elements) == 1 else "sometimes"
    return None


def _guarded_nodes(source: Source, call: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes that run only if a test is true."""
    below: cst.CSTNode = call
    for node in ancestors(source, call):
        if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.And):
            if node.left is below:
                yield node.right
        elif isinstance(node, cst.If | cst.IfExp) and node.test is below:
            yield node.body
            return
        elif isinstance(node, cst.While) and node.test is below:
            yield node.body
            return
        elif isinstance(node, cst.CompFor) and any(test.test is below for test in node.ifs):
            comp = source.parent(node)
            elements = ("elt", "key", "value")
            yield from (getattr(comp, name) for name in elements if hasattr(comp, name))
            return
        elif not isinstance(node, cst.CompIf):
            return
        if not isinstance(node, cst.CompIf):
            below = node


def refers_to(source: Source, node: cst.CSTNode, text: str) -> bool:
    """Whether a node is a name with this text."""
    return isinstance(node, cst.Name | cst.Attribute) and source.code(node) == text


def _is_rebound(source: Source, call: cst.CSTNode, node: cst.CSTNode, text: str) -> bool:
    """Whether a name may have another value than where it was tested."""
    function = function_around(source, call)
    if function_around(source, node) is not function:
        return True
    start, end = source.span(call)[0], source.span(node)[0]
    found = (p for name, ps in bindings(source, function).items() for p in ps if name == text)
    return any(start < source.span(place)[0] < end for place in found)
