"""A model on the meta device without `param_init_fn`.

FSDP1 gives it memory and calls each module's `reset_parameters` before it shards a unit. FSDP2 does
neither.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    META_WITH_DICT,
    META_WITH_IGNORED,
    META_WITH_POLICY,
    META_WITH_SYNC,
    SYNC_OF_EMPTY,
)
from fsdplint.migration.constructor import device
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.local_functions import reset_helper
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in
from fsdplint.trace import Event, ModuleBuilt, ModuleMoved, StateLoaded, Trace, Wrapped
from fsdplint.trace.queries.meta_modules import wrapped_on_meta


def initialize_if_meta(
    migration: Migration,
    source: Source,
    call: cst.Call,
    named: dict[str, cst.Arg],
    rest: list[cst.Arg],
    keywords: Keywords,
) -> None:
    """Initialize a model that may be on the meta device, as FSDP1 does by itself.

    Raises:
        Blocked: other arguments of the call decide on these values, too.
    """
    if keywords.initialize or keywords.materialize or not may_be_meta(migration, call):
        return
    if rest:
        raise Blocked(source, call, META_WITH_DICT())
    if keywords.sync:
        raise Blocked(source, call, META_WITH_SYNC())
    if keywords.has_ignored:
        raise Blocked(source, call, META_WITH_IGNORED())
    policy = keywords.policy
    if policy is not None and policy.helper and not policy.initializes:
        raise Blocked(source, call, META_WITH_POLICY())
    device_id = named.get("device_id")
    target = _device(migration, source, call, device_id.value if device_id is not None else None)
    keywords.initialize = reset_helper(migration, source, call, target)
    migration.note(
        "each module on the meta device that holds parameters or buffers needs `reset_parameters`",
        source,
        call,
        detail="The new code calls it for each of them, as FSDP1 does. Older versions of FSDP1 called it "
        "for the wrapped ones only. A module without it raises AttributeError.",
    )


def note_empty(migration: Migration, source: Source, call: cst.Call, keywords: Keywords) -> None:
    """Note whether all ranks only allocate: then rank 0 has no weights to send.

    Raises:
        Blocked: rank 0 has weights in some configurations only.
    """
    if not keywords.materialize:
        return
    wraps = _wraps(migration, call)
    empty = [wrapped_on_meta(trace, event, on_all_ranks=True) for trace, event in wraps]
    keywords.is_empty = bool(empty) and all(empty)
    sent = [
        is_empty
        for is_empty, (_, event) in zip(empty, wraps, strict=True)
        if event.options.get("sync_module_states") is not False
    ]
    if keywords.sync and any(sent):
        if not all(sent):
            raise Blocked(source, call, SYNC_OF_EMPTY())
        keywords.sync = ""


def _device(
    migration: Migration, source: Source, at: cst.CSTNode, device_id: cst.BaseExpression | None
) -> str:
    """The text of the device on which FSDP1 allocates: `device_id`, else the current one."""
    kind = device.kind(migration, source, device_id)
    cpu = string_literal(source, "cpu")
    if kind == "cpu":
        return cpu
    cuda = migration.torch(source, at) + ".cuda"
    if kind == "cuda" or not (device.asks_for_cuda(migration) or device.on_cpu(migration)):
        return f"{cuda}.current_device()"
    return f"{cuda}.current_device() if {cuda}.is_available() else {cpu}"


def may_be_meta(migration: Migration, call: cst.Call) -> bool:
    """Whether the model that a call wraps, or a part of it, is on the meta device."""
    return any(
        _is_meta_when_wrapped(migration, trace, event) for trace, event in _wraps(migration, call)
    )


def is_on_meta(migration: Migration, call: cst.Call) -> bool:
    """Whether the model that a call wraps is certainly on the meta device in each run."""
    wraps = _wraps(migration, call)
    return bool(wraps) and all(wrapped_on_meta(trace, event) for trace, event in wraps)


def _wraps(migration: Migration, call: cst.Call) -> list[tuple[Trace, Wrapped]]:
    """What a call wraps, in each run."""
    return [
        (trace, event)
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        if isinstance(event.site, NodeSite) and event.site.node is call
    ]


def _is_meta_when_wrapped(migration: Migration, trace: Trace, event: Wrapped) -> bool:
    """Whether parts of a model are on the meta device at the time of the call."""
    assert isinstance(event.site, NodeSite)
    call = event.site.node
    is_meta = isinstance(call, cst.Call) and any(
        _built_on_meta(migration, value.inner or value)
        for arg in call.args[:1]
        for value in migration.values(arg.value)
        if isinstance(value, ModuleValue)
    )
    for before in trace.before(event, Event):
        if isinstance(before, ModuleBuilt) and trace.related(before.module, event.inner):
            is_meta = is_meta or before.on_meta
        elif isinstance(before, ModuleMoved) and trace.related(before.module, event.inner):
            is_meta = is_meta and before.method != "to_empty"
        elif isinstance(before, StateLoaded) and trace.related(before.into, event.inner):
            is_meta = False
    return is_meta


def _built_on_meta(migration: Migration, module: ModuleValue) -> bool:
    """Whether a module is built in a `with` block for the meta device."""
    site = module.created_at
    if site is None:
        return False
    blocks = [n for n in ancestors(site.source, site.node) if isinstance(n, cst.With)]
    symbols = symbols_in(site.source)
    return any(
        symbols.get(part, "").rpartition(".")[2] == "init_empty_weights"
        or (isinstance(part, cst.Call) and _is_meta_device(symbols.get(part.func, ""), part))
        for block in blocks
        for item in block.items
        for part in descend(item)
    )


def _is_meta_device(name: str, call: cst.Call) -> bool:
    """Whether a call is `torch.device("meta")`."""
    name_of_device = call.args[0].value if len(call.args) == 1 else None
    return (
        name == "torch.device"
        and isinstance(name_of_device, cst.SimpleString)
        and name_of_device.evaluated_value == "meta"
    )
