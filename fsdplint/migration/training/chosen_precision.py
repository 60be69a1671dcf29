"""Whether the parameters of a migration's models may be gathered in a lower precision."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis import external_wrapping
from fsdplint.migration.constructor.precision import PARAMETERS as PRECISION
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.facts import Precision
from fsdplint.source.source import NodeSite
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.trace import Wrapped

WHOLE = ("torch.float32", "torch.float")


def is_always_off(migration: Migration) -> bool:
    """Whether no call of the program wraps a model in mixed precision, though its code may do so.

    That is known if the whole program was followed. Functions that nothing calls do not count.
    """
    calls = {call for _, call in external_wrapping.constructors(migration)}
    traces = migration.program.traces
    wrapped = [event for trace in traces for event in trace.of(Wrapped)]
    if not calls or not all(trace.complete for trace in traces if trace.entry is not None):
        return False
    if any({"mixed_precision", "**"} & set(event.options) for event in wrapped):
        return False
    return calls <= {event.site.node for event in wrapped if isinstance(event.site, NodeSite)}


def lowers(migration: Migration, precision: Precision) -> bool:
    """Whether the parameters may be gathered in a dtype other than their own."""
    for call in precision.calls:
        param = arguments(call, PRECISION)[0].get("param_dtype")
        if param is None or is_constant(param.value, "None"):
            continue
        if migration.symbol(param.value) not in WHOLE:
            return True
    if precision.calls:
        return False
    # The policy may come from other code, or from a `**` argument.
    calls = [call for _, call in external_wrapping.constructors(migration)]
    calls += [
        node
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.Call) and migration.called_name(node) == "enable_wrap"
    ]
    given = [arg for call in calls for arg in call.args]
    if calls and not any(arg.star for arg in given):
        return any(_is_precision(arg) for arg in given)
    return any(
        isinstance(node, cst.Arg) and _is_precision(node)
        for source in migration.sources
        for node in source.descend(source.tree)
    )


def _is_precision(arg: cst.Arg) -> bool:
    """Whether an argument may be a policy of mixed precision."""
    name = arg.keyword.value if arg.keyword is not None else ""
    return name == "mixed_precision" and not is_constant(arg.value, "None")
