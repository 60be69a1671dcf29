"""FSDP132: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Fsdp1Used, ModuleAttached, ShardComputed, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name, fsdp1_on_fsdp2, sharded_here
from fsdplint.trace.queries.data_parallelism import other_parallelism
from fsdplint.trace.queries.gathered import MaybeGathered

OF_FSDP1 = (
    "Outside of that forward, FSDP1's parameter is empty, or this rank's part without its shape."
)


class ShardedWeightOutsideForward(Rule):
    """The weight of a sharded module is used in a computation outside of the module's forward.

    ## What it does
    Finds calls of a part of a sharded model from outside: `model.head(features)`, or `model[0](x)` of an
    `nn.Sequential`, if the parameters of the part are sharded together with those of the model. Only a
    call of the model gathers them.

    Finds matrix products and functions of `torch.nn.functional` that get the output of a module and a
    parameter that `fully_shard` or FSDP1 shards, while the parameter is not gathered: `F.linear(h,
    self.embedding.weight)` of an embedding with a group of its own, or `h @ model.lm_head.weight.t()` in
    the loss. Forwards of `torch.autograd.Function` in the program are followed. The fused losses of
    Liger Kernel and of Cut Cross-Entropy are known; functions of other packages are not.

    A parameter is fine in the forward of the module that is sharded with it, after `unshard()`, and after
    a forward that leaves it gathered (the root, or `reshard_after_forward=False`).

    ## Why is this bad?
    Outside of the forward of its group, the parameter is a DTensor of which each rank holds a part:

        RuntimeError: aten.mm.default got mixed torch.Tensor and DTensor, need to convert all
        torch.Tensor to DTensor before calling distributed operators!

    With FSDP1, it is this rank's part without its shape, or empty:

        RuntimeError: size mismatch, got input (32), mat (32x16), vec (0)

    Leave the module in the group of the module that computes with its weight: do not shard it by itself.
    Or make the computation a method or forward of the module that owns the weight.

    ## Since
    Always for FSDP1; torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - linkedin/Liger-Kernel#332 and #674; apple/ml-cross-entropy#31
    """

    code = "FSDP132"
    name = "sharded-weight-outside-forward"
    severity = Severity.ERROR

    def _calls(self, groups: Groups) -> Iterator[Finding]:
        """The calls of parts whose parameters nothing has gathered."""
        trace, gathered, seen = groups.trace, MaybeGathered(groups), set()
        for event in trace.of(Called):
            owner = groups.owner(event.module, event)
            if owner is None or owner == event.module or event.site in seen:
                continue
            if not _has_sharded_parameters(groups, event, owner) or gathered.at(owner, event):
                continue
            if groups.is_gathered(owner, event) or _is_inside(groups, event, owner):
                continue
            seen.add(event.site)
            part, model = groups.name(event.module), groups.name(owner)
            yield self.finding(
                event,
                f"{part} is called outside of {model}, with which it is sharded: nothing gathers its "
                "parameters",
                help=f"Make the call in the forward of {model}, shard {part} by itself before {model}, "
                f"or call `unshard()` of {model} before and `reshard()` after it.",
                because=sharded_here(trace, owner, event),
            )

    def check(self, trace: Trace) -> Iterator[Finding]:
        if other_parallelism(trace):
            return  # outputs may be DTensors
        groups, seen = Groups(trace), set()
        yield from self._calls(groups)
        for event in trace.of(ShardComputed):
            if event.site in seen or _summoned_before(trace, event):
                continue
            seen.add(event.site)
            module = event.modules[0] if event.modules else None
            owner = groups.owner(module, event) if module is not None else None
            if module is None:
                what = "a sharded parameter"
            else:
                what = f"a parameter of `{class_name(trace, module)}`"
                if owner is None:
                    what += ", which FSDP1 shards,"
                elif owner != module:
                    what += f", which is sharded with `{class_name(trace, owner)}`,"
            yield self.finding(
                event,
                f"`{event.api.rpartition('.')[2]}` uses {what} outside of the forward that gathers it",
                why=OF_FSDP1 if module is not None and owner is None else "",
                help="Do not shard that module by itself, or compute with the weight in its own forward.",
                because=sharded_here(trace, owner, event) if owner is not None else (),
            )


def _has_sharded_parameters(groups: Groups, event: Called, owner: str) -> bool:
    """Whether a call certainly computes with parameters that are sharded with a module."""
    trace = groups.trace
    if event.via != "call" or trace.modules[owner].container:
        return False  # FSDP101, FSDP102, FSDP108
    if trace.any_escaped([owner, *groups.ancestors(owner)], event):
        return False  # code out of sight may gather them
    options = (name for shard in groups.shards(owner) for name in shard.options)
    if any(name.startswith(("ignored_", "**")) for name in options):
        return False  # the parameters of the part may not be sharded
    part = (event.module, *groups.ancestors(event.module))
    if any(new in part for one in trace.before(event, ModuleAttached) for new in one.new):
        return False  # after the sharding: FSDP113
    return groups.holds_parameters(event.module, event)


def _is_inside(groups: Groups, event: Called, owner: str) -> bool:
    """Whether a call stands in a call or a method of a module or of its parts: FSDP102."""
    outer = (one.module for one in groups.enclosing_calls(event))
    return any(owner in (module, *groups.ancestors(module)) for module in outer)


def _summoned_before(trace: Trace, event: ShardComputed) -> bool:
    """Whether FSDP1's `summon_full_params` ran before, which gathers nothing here: FSDP206."""
    used = trace.before(event, Fsdp1Used)
    return any(
        one.api.endswith("summon_full_params") and fsdp1_on_fsdp2(trace, one) for one in used
    )
