"""FSDP602: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Event, Gathered, RequiresGradSet, Sharded, SyncSwitched, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name, is_under_varying_test
from fsdplint.trace.torch_versions import ROOT_RESHARDED_SINCE

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class FrozenRootGathered(Rule):
    """The root of a frozen model stays gathered after its first forward.

    ## What it does
    Finds `fully_shard(model)` of a root without `reshard_after_forward=True`, if all parameters of the
    model are frozen and the root has parameters of its own, such as the embeddings of a frozen encoder.

    ## Why is this bad?
    FSDP leaves the root's parameters gathered after the forward, because the backward begins with them, and
    frees them in the backward. A frozen model has no backward: from its first forward on, each rank holds
    the root's parameters whole. After the forward, `model.embedding.weight` was a whole `Parameter` and
    no DTensor; with `reshard_after_forward=True`, it was a DTensor.

    ## Fix safety
    Safe: `reshard_after_forward=True` is added to the call. The values are the same. The root is gathered
    again in each forward.

    ## Since
    torch 2.8. Before, `reshard_after_forward` has no effect at the root: call `model.reshard()` after the
    forward.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`reshard_after_forward`)
    - pytorch/pytorch#149029
    """

    code = "FSDP602"
    name = "frozen-root-gathered"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    fix_since = ROOT_RESHARDED_SINCE
    all_configurations = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups, seen = Groups(trace), set()
        for event in trace.of(Sharded):
            if event.site in seen or not _leaves_frozen_root(trace, groups, event):
                continue
            call = _own_call(trace, event)
            if call is None:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"all parameters of `{class_name(trace, event.module)}` are frozen, so that its root stays "
                f"gathered after the first forward",
                help="Pass `reshard_after_forward=True`: no backward frees the parameters of a frozen root.",
                because=[(call, "called here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        found, event = call_at(finding.site), finding.events[0]
        if found is None or not isinstance(event, Sharded) or event.options:
            return None
        source, call = found
        shards = [e for t in program.traces for e in t.of(Sharded) if e.site == finding.site]
        if len(call.args) != 1 or not all(one.frozen for one in shards):
            return None
        for trace in program.traces:
            here = {one.module for one in trace.of(Sharded) if one.site == finding.site}
            if len(here) > 1 or any(groups_above(trace, module) for module in here):
                return None  # other modules are sharded by the same call
        rewrite = Rewrite()
        end = source.span(call.args[0].value)[1]
        rewrite.insert(source, end, ", reshard_after_forward=True")
        return rewrite.fix("Free the root's parameters after the forward", Safety.SAFE)


def groups_above(trace: Trace, module: str) -> bool:
    """Whether a module that contains this one is sharded."""
    return any(trace.sharding(above) is not None for above in trace.ancestors(module))


def _leaves_frozen_root(trace: Trace, groups: Groups, event: Sharded) -> bool:
    """Whether a call shards a frozen root whose parameters its forward leaves gathered."""
    root = event.module
    keeps = event.options.get("reshard_after_forward") in (None, False)
    if not event.frozen or event.group or not keeps or "**" in event.options:
        return False
    if (
        not trace.complete
        or is_under_varying_test(event)
        or event.ranks.partial
        or trace.escaped(root, trace.first_backward)
    ):
        return False
    if trace.ancestors(root) or not trace.certainty.of_module(event):
        return False
    if not groups.holds_parameters(root):
        return False
    after = trace.after(event, RequiresGradSet, Gathered, SyncSwitched)
    return not any(_concerns(trace, root, one) for one in after)


def _concerns(trace: Trace, root: str, event: Event) -> bool:
    """Whether the event may change what is frozen or gathered."""
    if isinstance(event, RequiresGradSet):
        return any(trace.related(root, module) for module in event.modules)
    return isinstance(event, Gathered | SyncSwitched) and trace.related(root, event.module)


def _own_call(trace: Trace, event: Sharded) -> Called | None:
    """The first call of the root itself."""
    for call in trace.after(event, Called):
        if call.via == "call" and trace.unwrap(call.module) == event.module:
            return call if call.inside is None else None
    return None
