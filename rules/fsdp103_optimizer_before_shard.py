"""FSDP103: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Event,
    OptimizerBuilt,
    Prepared,
    Site,
    StateLoaded,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by
from fsdplint.trace.queries.common import first_step, optimizer_named

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class OptimizerBeforeShard(Rule):
    """An optimizer is built over parameters that sharding replaces afterwards.

    ## What it does
    Finds optimizers that are built from a module's parameters before `fully_shard` (or FSDP1 without
    `use_orig_params=True`) is applied to the module, to a part of it or to its parent, and that are
    stepped after that.

    An optimizer that is built later from a list taken before the sharding is also found.

    These are fine: an optimizer that is replaced, or gets new parameters, before its first step; an
    optimizer over the inner module of an FSDP1 wrapper that is built after wrapping; and FSDP1 with
    `use_orig_params=True`, which keeps the parameter objects.

    An optimizer that is built before Accelerate's `prepare` is found if the program passes
    `FullyShardedDataParallelPlugin(use_orig_params=False)` to the `Accelerator`, or if a script or document of the
    project starts it by `accelerate launch` with this setting.

    An optimizer that is built before `load_state_dict(state, assign=True)` of a sharded module is found, too: the
    tensors of the state take the place of the parameters.

    ## Why is this bad?
    Sharding puts new parameters into the module. The optimizer holds the old ones, which never get a
    gradient. There is no error: `optimizer.step()` does nothing, the loss of a fixed batch stays the
    same to the last digit, and the unsharded parameters stay in memory. If only some modules are
    sharded later, only these stop learning.

    ## Fix safety
    Safe: the statement of the optimizer moves right behind the last sharding, together with objects
    that are built from it in between (a scheduler). There is no fix if other code in between uses the
    optimizer, or if the two statements are not in one block.

    If the parameter groups were chosen by name or dimension, which FSDP1 changes, the fix is another
    one and unsafe: `use_orig_params=True` keeps the parameters that the optimizer holds.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: the optimizer has to be
      initialised with the DTensor parameters.
    - huggingface/accelerate#3209 and #3256.
    """

    code = "FSDP103"
    name = "optimizer-before-shard"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for built in trace.of(OptimizerBuilt):
            if built.site in seen:
                continue
            yield from self._prepared_finding(groups, built, seen)
            yield from self._assigned_finding(groups, built, seen)
            if not built.complete or built.site in seen:
                continue
            if built.stale:
                yield from self._stale_finding(groups, built, seen)
                continue
            later = shard_events(trace, after=built)
            replacing = first(event for event in later if groups.replaces(event, built.modules))
            if replacing is None:
                continue
            stepped = first_step(trace, built, after=replacing)
            if stepped is None or _built_again(trace, built, before=replacing):
                continue
            around = [
                e for e in later if e.index < stepped.index and _shards_modules_of(trace, e, built)
            ]
            seen.add(built.site)
            yield self._finding(groups, built, [replacing, *around][-1], stepped)

    def _stale_finding(
        self, groups: Groups, built: OptimizerBuilt, seen: set[Site]
    ) -> Iterator[Finding]:
        """Built after sharding, but over parameters that were taken from the model before."""
        trace = groups.trace
        shards = shard_events(trace, before=built)
        around = [shard for shard in shards if _shards_modules_of(trace, shard, built)]
        stepped = first_step(trace, built, after=built)
        if around and stepped is not None:
            seen.add(built.site)
            how = "FSDP" if isinstance(around[-1], Wrapped) else "fully_shard"
            yield self.finding(
                built,
                f"{optimizer_named(built)} gets parameters of "
                f"{groups.name(built.stale[0])} that were taken before `{how}` replaced them, so "
                f"it never updates the model",
                help="Take the parameters from the model after the last sharding.",
                because=[(around[-1], "parameters replaced here"), (stepped, "stepped here")],
            )

    def _prepared_finding(
        self, groups: Groups, built: OptimizerBuilt, seen: set[Site]
    ) -> Iterator[Finding]:
        """Built over a model that Accelerate wraps afterwards."""
        trace = groups.trace
        for event in trace.after(built, Prepared):
            if not event.flat:
                continue
            for module in built.modules:
                if not any(trace.related(module, prepared) for prepared in event.modules):
                    continue
                seen.add(built.site)
                yield self.finding(
                    built,
                    f"{optimizer_named(built)} is built before Accelerate wraps {groups.name(module)} "
                    f"with `use_orig_params=False`, so it never updates the parameters",
                    help="Use `use_orig_params=True`, or build the optimizer after `prepare(model)`.",
                    because=[(event, "parameters replaced here")],
                )
                return

    def _assigned_finding(
        self, groups: Groups, built: OptimizerBuilt, seen: set[Site]
    ) -> Iterator[Finding]:
        """Built before a state is loaded whose tensors take the place of the parameters."""
        trace = groups.trace
        for event in trace.after(built, StateLoaded):
            module = next((m for m in built.modules if trace.contains(event.into, m)), None)
            if event.assign is not True or module is None or built.site in seen:
                continue
            sharded = trace.sharded_within(module, event) is not None
            stepped = first_step(trace, built, after=event)
            if not built.complete or not sharded or stepped is None:
                continue
            seen.add(built.site)
            yield self.finding(
                built,
                f"{optimizer_named(built)} is built before `load_state_dict(assign=True)` replaces the parameters "
                f"of {groups.name(module)}, so it never updates them",
                help="Build the optimizer after the state is loaded.",
                because=[(event, "parameters replaced here"), (stepped, "stepped here")],
            )

    def _finding(
        self, groups: Groups, built: OptimizerBuilt, event: Shard, stepped: Event
    ) -> Finding:
        module = event.inner if isinstance(event, Wrapped) else event.module
        how = "FSDP" if isinstance(event, Wrapped) else "fully_shard"
        return self.finding(
            built,
            f"{optimizer_named(built)} is built before `{how}` replaces the parameters "
            f"of {groups.name(module)}, so it never updates them",
            help="Build the optimizer after the last sharding of the model.",
            because=[(event, "parameters replaced here"), (stepped, "stepped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.moves import move_after
        from fsdplint.edits.places import common_block
        from fsdplint.edits.rewrite import Rewrite

        built, last = finding.events[0], finding.events[1]
        if last.index < built.index or isinstance(last, Prepared):
            return None
        if isinstance(built, OptimizerBuilt) and isinstance(last, Wrapped) and built.filtered_by:
            return _use_original_parameters(last, program)
        place = common_block(built, last)
        if place is None:
            return None
        rewrite = Rewrite()
        if not move_after(rewrite, program, place):
            return None
        return rewrite.fix("Build the optimizer after sharding", Safety.SAFE)


def _use_original_parameters(event: Wrapped, program: Program) -> Fix | None:
    """Have FSDP1 keep the parameters that the optimizer holds, if there is one wrapping only."""
    from fsdplint.edits.rewrite import Rewrite
    from fsdplint.fixes.syntax import call_at
    from fsdplint.fixes.wrapper_options import set_option

    found = call_at(event.site)
    sites = {other.site for trace in program.traces for other in trace.of(Wrapped)}
    rewrite = Rewrite()
    if len(sites) > 1 or found is None:
        return None
    if not set_option(rewrite, *found, "use_orig_params", "True"):
        return None
    rewrite.depends_on(*found)
    return rewrite.fix("Wrap with use_orig_params=True", Safety.UNSAFE)


def _built_again(trace: Trace, built: OptimizerBuilt, before: Event) -> bool:
    """Whether `__init__` of the optimizer is called again before an event."""
    return any(
        other.optimizer == built.optimizer and other.index > built.index
        for other in trace.before(before, OptimizerBuilt)
    )


def _shards_modules_of(trace: Trace, event: Shard, built: OptimizerBuilt) -> bool:
    """Whether the sharding is of something that the optimizer holds, a part or a parent of it."""
    return any(
        trace.related(target, module) for target in sharded_by(event) for module in built.modules
    )
