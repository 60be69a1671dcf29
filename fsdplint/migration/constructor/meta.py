"""A model on the meta device without `param_init_fn`: FSDP1 gives it memory and calls each module's
`reset_parameters`, just before it shards a unit; FSDP2 does neither.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import ancestors
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    META_WITH_DICT,
    META_WITH_IGNORED,
    META_WITH_POLICY,
    META_WITH_SYNC,
)
from fsdplint.migration.constructor import device
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.local_functions import reset_helper
from fsdplint.migration.context import Migration
from fsdplint.migration.text import string_literal
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in
from fsdplint.trace import Event, ModuleBuilt, ModuleMoved, StateLoaded, Trace, Wrapped


def read(
    migration: Migration,
    source: Source,
    call: cst.Call,
    named: dict[str, cst.Arg],
    rest: list[cst.Arg],
    keywords: Keywords,
) -> None:
    """Have a model that may be on the meta device initialized as FSDP1 does it by itself.

    Raises:
        Blocked: other arguments of the call decide over these values, too.
    """
    if keywords.initialize or keywords.materialize or not _empty(migration, call):
        return
    if rest:
        reason = META_WITH_DICT()
        raise Blocked(source, call, reason)
    if keywords.sync:
        reason = META_WITH_SYNC()
        raise Blocked(source, call, reason)
    if keywords.ignored:
        reason = META_WITH_IGNORED()
        raise Blocked(source, call, reason)
    if keywords.policy is not None and keywords.policy.helper:
        reason = META_WITH_POLICY()
        raise Blocked(source, call, reason)
    given = named.get("device_id")
    where = _device(migration, source, call, given.value if given is not None else None)
    keywords.initialize = reset_helper(migration, source, call, where)
    migration.note(
        "each module on the meta device that holds parameters or buffers needs `reset_parameters`",
        source,
        call,
        detail="It is called for each of them, as FSDP1 does it; older versions of FSDP1 called it only "
        "for those that are wrapped. Where it is missing, this ends with an AttributeError.",
    )


def _device(
    migration: Migration, source: Source, at: cst.CSTNode, given: cst.BaseExpression | None
) -> str:
    """The text of the device that FSDP1 gives the memory on: `device_id`, else the current one."""
    kind = device.kind(migration, source, given)
    cpu = string_literal(source, "cpu")
    if kind == "cpu":
        return cpu
    cuda = migration.torch(source, at) + ".cuda"
    if kind == "cuda" or not (device.asks_for_cuda(migration) or device.on_cpu(migration)):
        return f"{cuda}.current_device()"
    return f"{cuda}.current_device() if {cuda}.is_available() else {cpu}"


def _empty(migration: Migration, call: cst.Call) -> bool:
    """Whether the model that a call wraps is on the meta device, wholly or in part."""
    return any(
        event.site.node is call and _still_empty(migration, trace, event)
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        if isinstance(event.site, NodeSite)
    )


def _still_empty(migration: Migration, trace: Trace, event: Wrapped) -> bool:
    """Whether parts of a model are on the meta device when it is wrapped."""
    assert isinstance(event.site, NodeSite)
    inner = event.site.node
    empty = isinstance(inner, cst.Call) and any(
        _built_empty(migration, value.inner or value)
        for arg in inner.args[:1]
        for value in migration.values(arg.value)
        if isinstance(value, ModuleValue)
    )
    for before in trace.before(event, Event):
        if isinstance(before, ModuleBuilt) and trace.related(before.module, event.inner):
            empty = empty or before.on_meta
        elif isinstance(before, ModuleMoved) and trace.related(before.module, event.inner):
            empty = empty and before.method != "to_empty"
        elif isinstance(before, StateLoaded) and trace.related(before.into, event.inner):
            empty = False
    return empty


def _built_empty(migration: Migration, module: ModuleValue) -> bool:
    """Whether a module whose code is out of sight is made in a block for the meta device."""
    site = module.created_at
    if site is None:
        return False
    blocks = [n for n in ancestors(site.source, site.node) if isinstance(n, cst.With)]
    symbols = symbols_in(site.source)
    return any(
        symbols.get(part, "").rpartition(".")[2] == "init_empty_weights"
        or (isinstance(part, cst.Call) and _is_meta(symbols.get(part.func, ""), part))
        for block in blocks
        for item in block.items
        for part in descend(item)
    )


def _is_meta(name: str, call: cst.Call) -> bool:
    """Whether a call is `torch.device("meta")`."""
    given = call.args[0].value if len(call.args) == 1 else None
    return (
        name == "torch.device"
        and isinstance(given, cst.SimpleString)
        and given.evaluated_value == "meta"
    )
