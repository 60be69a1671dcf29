"""FSDP137: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Escaped,
    ModuleBuilt,
    ModuleMoved,
    OptimizerStepped,
    ParametersTied,
    Sharded,
    Trace,
    first,
)
from fsdplint.trace.groups import Groups, sharded_by


class TiesLostByToEmpty(Rule):
    """`to_empty` separates weights that two modules share, before the model is sharded.

    ## What it does
    Finds `model.to_empty(...)` of a model that was built on the meta device, if two of its modules share
    a weight (`self.head.weight = self.embedding.weight`), nothing shares it again afterwards, and
    `fully_shard` shards the model later.

    ## Why is this bad?
    `to_empty` gives each module a weight of its own. There is no error: both weights are trained, and the
    model has more parameters than it was built with. On two ranks,
    `model.head.weight is model.embedding.weight` was true before the call and false after it.

    After `fully_shard`, `to_empty` keeps the ties: shard first, and materialise afterwards, which also
    needs less memory. Or tie the weights again before sharding.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (`to_empty`)
    - verl-project/verl#7834
    """

    code = "FSDP137"
    name = "ties-lost-by-to-empty"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        groups = Groups(trace)
        on_meta = {event.module for event in trace.of(ModuleBuilt) if event.on_meta}
        for tie in trace.of(ParametersTied):
            if tie.other is None or not {tie.module, tie.other} <= on_meta:
                continue
            moved = _separating_move(trace, tie)
            if moved is None or _tied_again(trace, tie, moved):
                continue
            sharded = _sharded_later(trace, tie, moved)
            if sharded is None:
                continue
            yield self.finding(
                moved,
                f"`to_empty` gives {groups.name(tie.module)} and {groups.name(tie.other)} a "
                f"{tie.name} each, which they have shared so far",
                help="Call `to_empty` after `fully_shard`, or tie the weights again before it.",
                because=[(tie, "tied here"), (sharded, "sharded here")],
            )
            return


def _separating_move(trace: Trace, tie: ParametersTied) -> ModuleMoved | None:
    """The `to_empty` that moves both modules before any sharding of them."""
    both = {tie.module, tie.other}
    for event in trace.after(tie, ModuleMoved):
        if event.method == "to_empty" and both <= set(trace.submodules(event.module)):
            earlier = (one for one in trace.before(event, Sharded))
            shared = any(both & _held_paths(trace, one) for one in earlier)
            return None if shared else event
    return None


def _held_paths(trace: Trace, event: Sharded) -> set[str]:
    return {part for module in sharded_by(event) for part in trace.submodules(module)}


def _tied_again(trace: Trace, tie: ParametersTied, moved: ModuleMoved) -> bool:
    """Whether the program, or code that is not followed, may share the weight again in time.

    The first step of an optimizer shows whether it did.
    """
    for event in trace.after(moved, ParametersTied, Escaped, OptimizerStepped):
        if isinstance(event, OptimizerStepped):
            return False
        if isinstance(event, ParametersTied):
            if {event.module, event.other} & {tie.module, tie.other}:
                return True
        elif isinstance(event, Escaped) and trace.related(event.module, tie.module):
            return True
    return False


def _sharded_later(trace: Trace, tie: ParametersTied, moved: ModuleMoved) -> Sharded | None:
    """The later sharding of both modules, if the model is trained after it."""
    both = {tie.module, tie.other}
    found = first(e for e in trace.after(moved, Sharded) if both <= _held_paths(trace, e))
    trained = found is not None and any(True for _ in trace.after(found, OptimizerStepped))
    return found if trained else None
