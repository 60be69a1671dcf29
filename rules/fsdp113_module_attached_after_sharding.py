"""FSDP113: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Called,
    ModuleAttached,
    OptimizerBuilt,
    ParameterAttached,
    Sharded,
    Site,
    Trace,
    Wrapped,
)
from fsdplint.trace.groups import Groups, Shard
from fsdplint.trace.queries.attached import (
    enclosing_shard,
    training_optimizer,
    unsharded_new_modules,
)
from fsdplint.trace.queries.common import reduced_by_hand

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ModuleAttachedAfterSharding(Rule):
    """A new trainable module or parameter is put into a model that is sharded already.

    ## What it does
    Finds submodules with parameters that are put into a sharded module (a new head, LoRA layers in
    place of linear layers), are not sharded themselves, and are trained by an optimizer that is built
    later. This holds for FSDP1 and FSDP2.

    Also finds a new `nn.Parameter` of a plain tensor in a sharded module, if an optimizer gets all
    parameters of this module later.

    A new module is fine if it is frozen or gets its own `fully_shard`, or if the program reduces its
    gradients itself. A new parameter is fine if it is frozen, removed or replaced before the optimizer
    is built.

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
        if not trace.complete:
            return
        groups = Groups(trace)
        yield from self._parameters(trace, groups)
        seen: set[Site] = set()
        for event in attached:
            shard = enclosing_shard(groups, event)
            if event.site in seen or event.ranks.partial or shard is None:
                continue
            new = unsharded_new_modules(trace, event)
            built = training_optimizer(trace, event, new)
            if built is not None and not reduced_by_hand(trace, new):
                seen.add(event.site)
                yield self._finding(groups, event, shard, built)

    def _parameters(self, trace: Trace, groups: Groups) -> Iterator[Finding]:
        seen: set[Site] = set()
        for event in trace.of(ParameterAttached):
            shard = enclosing_shard(groups, event)
            if event.site in seen or event.ranks.partial or shard is None:
                continue
            built = training_optimizer(trace, event, {event.module})
            if built is not None and trace.producer != "runtime":
                built = built if built.optimizer in event.optimizers else None
            if built is not None and not reduced_by_hand(trace, {event.module}):
                seen.add(event.site)
                api = "fully_shard" if isinstance(shard, Sharded) else "FSDP"
                yield self.finding(
                    event,
                    f"the parameter `{event.name}` is put into a module that `{api}` has sharded already: "
                    "its gradient is not reduced over the ranks",
                    help=f"Make it in the constructor of the module, before `{api}` is applied.",
                    because=[(shard, "sharded here"), (built, "trained by this optimizer")],
                )

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


def _other_shard_includes(trace: Trace, site: Site, shard: Site) -> bool:
    """Whether a `fully_shard` at another place, made after what a site attaches, would take it: the
    module that it goes into is in the group of that one, and nothing used the model in between.
    """
    groups = Groups(trace)
    for event in trace.of(ModuleAttached):
        if event.site != site:
            continue
        around = enclosing_shard(groups, event)
        if around is None or around.site != shard or isinstance(around, Wrapped):
            return False
        between = trace.events[around.index : event.index]
        if any(isinstance(other, Called | OptimizerBuilt) for other in between):
            return False
    return True
