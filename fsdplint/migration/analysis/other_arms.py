"""Code that runs only if a test for FSDP1's class is false.

    if isinstance(model, FSDP):
        return FSDP.optim_state_dict(model, optimizer)
    return optimizer.state_dict()

If the tested model always is a wrapped one where the test is reached, no run of a wrapped model gets
there: the code is for other models and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from fsdplint.migration.analysis.isinstance_narrowing import IsClass, tested
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import walk

IsWrapped = Callable[[cst.CSTNode], bool]
_LEAVES = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def excluded_nodes(
    sources: Sequence[Source], is_class: IsClass, is_always_wrapped: IsWrapped
) -> set[cst.CSTNode]:
    """The nodes that run only if such a test of a model that is always wrapped is false."""
    found: set[cst.CSTNode] = set()
    for source in sources:
        for node in walk(source, skip_imports=True):
            if isinstance(node, cst.If) and (model := tested(source, node.test, is_class)):
                if model[1] == "always" and is_always_wrapped(_model_of(node.test)):
                    for part in _otherwise(source, node):
                        found.update((part, *descend(part)))
    return found


def _model_of(test: cst.BaseExpression) -> cst.BaseExpression:
    assert isinstance(test, cst.Call)
    return test.args[0].value


def _otherwise(source: Source, node: cst.If) -> Iterator[cst.CSTNode]:
    """What runs only if a test is false: its other arm, and what follows if its own arm leaves."""
    if node.orelse is not None:
        yield node.orelse
    block = source.parent(node)
    if not isinstance(block, cst.IndentedBlock | cst.Module) or not _ends(node.body):
        return
    statements = list(block.body)
    yield from statements[statements.index(node) + 1 :]


def _ends(body: cst.BaseSuite) -> bool:
    """Whether a block always leaves with its last statement."""
    last = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    if isinstance(last, cst.With):
        return _ends(last.body)
    return isinstance(last, _LEAVES)
