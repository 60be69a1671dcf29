"""FSDP113: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Escaped,
    ModuleAttached,
    OptimizerBuilt,
    OptimizerStepped,
    Sharded,
    Site,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by
from fsdplint.trace.queries.common import reduced_by_hand

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ModuleAttachedAfterSharding(Rule):
    """A new trainable module is put into a model that is sharded already.

    ## What it does
    Finds submodules with parameters that are put into a sharded module (a new head, LoRA layers in
    place of linear layers), are not sharded themselves, and are trained by an optimizer that is built
    later. This holds for FSDP1 and FSDP2.

    A new module is fine if it is frozen or gets its own `fully_shard`, or if the program reduces
    gradients itself.

    ## Why is this bad?
    Sharding takes the parameters that the module has at that time. Later parameters are plain tensors,
    whole on every rank, and nothing reduces their gradients: each rank trains its own version of them.
    There is no error: after three steps, the sum of the weights of a new head was -0.96925 on one rank
    and -0.97604 on the other. `clip_grad_norm_` over all parameters ends with `RuntimeError:
    aten._foreach_norm.Scalar got mixed torch.Tensor and DTensor`.

    ## Fix safety
    Unsafe: the root's `fully_shard` moves behind the statement that attaches the module, and so takes
    the new parameters too. There is no fix if that statement is not a simple one in the same block, if
    the new module goes into a part that is sharded itself, or for FSDP1.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: it converts the parameters that
      the module has when it is called.
    - huggingface/peft#3578, axolotl-ai-cloud/axolotl#3403.
    """

    code = "FSDP113"
    name = "module-attached-after-sharding"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        attached = list(trace.of(ModuleAttached))
        if not attached or not trace.complete or reduced_by_hand(trace):
            return
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in attached:
            shard = _enclosing_shard(groups, event)
            if event.site in seen or event.ranks.partial or shard is None:
                continue
            built = _training_optimizer(trace, event, _unsharded_new_modules(trace, event))
            if built is not None:
                seen.add(event.site)
                yield self._finding(groups, event, shard, built)

    def _finding(
        self, groups: Groups, event: ModuleAttached, shard: Shard, built: OptimizerBuilt
    ) -> Finding:
        api = "fully_shard" if isinstance(shard, Sharded) else "FSDP"
        new = groups.name(event.new[0])
        return self.finding(
            event,
            f"{new} is put into a module that `{api}` has sharded already: its parameters are not "
            f"sharded, and their gradients are not reduced over the ranks",
            help=f"Put it in before `{api}` is applied, or apply `{api}` to it before the optimizer "
            f"is built.",
            because=[(shard, "sharded here"), (built, "trained by this optimizer")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.moves import move_shard_after
        from fsdplint.edits.places import last_meeting
        from fsdplint.edits.rewrite import Rewrite

        event, shard = finding.events[0], finding.events[1]
        if not isinstance(event, ModuleAttached) or not isinstance(shard, Sharded):
            return None
        if not all(
            _other_shard_includes(trace, event.site, shard.site) for trace in program.traces
        ):
            return None
        late = [
            other
            for trace in program.traces
            for other in trace.of(ModuleAttached)
            if shard in trace.events and other.index > shard.index
        ]
        place = last_meeting(shard, late)
        rewrite = Rewrite()
        if place is None or not move_shard_after(rewrite, shard.site, place, late, in_calls=True):
            return None
        return rewrite.fix("Shard the root after the new module is in it", Safety.UNSAFE)


def _sharded_modules(trace: Trace, shard: Shard) -> set[str]:
    return {part for module in sharded_by(shard) for part in trace.submodules(module)}


def _enclosing_shard(groups: Groups, event: ModuleAttached) -> Shard | None:
    """What sharded the module, or the nearest one around it, before something was put into it."""
    shards = shard_events(groups.trace, before=event)
    for module in (event.module, *groups.ancestors(event.module)):
        found = first(shard for shard in shards if module in sharded_by(shard))
        if found is not None:
            return found
    return None


def _unsharded_new_modules(trace: Trace, event: ModuleAttached) -> set[str]:
    """The new modules that are trained and that nothing shards, or may shard, afterwards.

    Code out of sight may shard what it gets before the training.
    """
    later = [_sharded_modules(trace, shard) for shard in shard_events(trace, after=event)]
    training = next(trace.after(event, BackwardRun), None)
    escaped = [] if training is None else trace.before(training, Escaped)
    lost = [set(trace.submodules(e.module)) for e in escaped if e.index > event.index]
    removed = set().union(*later, *lost)
    return {
        part
        for part in event.new
        if part not in removed and part in trace.modules and not trace.modules[part].frozen
    }


def _training_optimizer(
    trace: Trace, event: ModuleAttached, parts: set[str]
) -> OptimizerBuilt | None:
    """An optimizer that holds and steps one of the modules."""
    for built in trace.after(event, OptimizerBuilt):
        held = {part for module in built.modules for part in trace.submodules(module)}
        stepped = any(
            step.optimizer == built.optimizer for step in trace.after(built, OptimizerStepped)
        )
        if stepped and held & parts and any(True for _ in trace.after(event, BackwardRun)):
            return built
    return None


def _other_shard_includes(trace: Trace, site: Site, shard: Site) -> bool:
    """Whether a `fully_shard` at another place, made after what a site attaches, would take it: the
    module that it goes into is in the group of that one, and nothing used the model in between.
    """
    groups = Groups(trace)
    for event in trace.of(ModuleAttached):
        if event.site != site:
            continue
        around = _enclosing_shard(groups, event)
        if around is None or around.site != shard or isinstance(around, Wrapped):
            return False
        between = trace.events[around.index : event.index]
        if any(isinstance(other, Called | OptimizerBuilt) for other in between):
            return False
    return True
