"""FSDP404: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Clipped,
    Event,
    OptimizerStepped,
    Prepared,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.common import class_name, perhaps_one_rank
from fsdplint.trace.queries.wrappers import (
    outermost,
    prepared_by_framework,
    shards,
    uses_original_parameters,
    wrapper_around,
    wrappers_of,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


CLIPPING_OF = {  # by framework
    "Accelerate": "Call `accelerator.clip_grad_norm_(model.parameters(), max_norm)`",
    "Lightning": "Call `self.trainer.strategy.model.clip_grad_norm_(max_norm)`",
    "Fabric": "Call `fabric.clip_gradients(model, optimizer, max_norm=max_norm)`",
}


class Fsdp1LocalClipping(Rule):
    """Gradients of a model that FSDP1 shards are clipped by `torch.nn.utils.clip_grad_norm_`.

    ## What it does
    Finds `torch.nn.utils.clip_grad_norm_` over the parameters of a model that
    `FullyShardedDataParallel`, or Fabric with its `FSDPStrategy`, wraps with a strategy that shards (all but
    `NO_SHARD`).

    Also finds `clip_grads_with_norm_` with a norm of the gradients that no collective has added up.

    `clip_grad_value_` is fine, because it clips each element. So is an infinite bound, which only
    measures the norm.

    ## Why is this bad?
    FSDP1's gradients are plain tensors that hold this rank's part. The function computes the norm of that
    part, so each rank clips by its own norm, which is too small: of a gradient of norm 4.01 on two ranks,
    one rank clipped by 1.54 and the other by 3.70. There is no error. The parts of one parameter are
    scaled differently, and the result of the training depends on the number of ranks.

    ## Fix safety
    Safe: `model.clip_grad_norm_(max_norm, norm_type)` of the outermost wrapper computes the norm over
    all ranks. Every rank has to call it. There is no fix if the parameters are filtered or come from
    elsewhere, if the model is wrapped in some configurations only, or for arguments that the method does
    not have.

    ## Since
    Always for FSDP1. The function is correct for FSDP2.

    ## References
    - torch docs, `FullyShardedDataParallel.clip_grad_norm_`.
    - pytorch/pytorch#72548.
    """

    code = "FSDP404"
    name = "fsdp1-local-clipping"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Clipped):
            of_wrapper = event.api in ("method", "framework")
            if of_wrapper or not event.by_norm or _infinite(event.max_norm):
                continue
            if _for_other_models(trace, event):
                continue
            for module in event.modules:
                wrapper = _sharding_wrapper(trace, module, event)
                if wrapper is not None:
                    yield self._finding(trace, event, module, wrapper)
                    break

    def _finding(
        self, trace: Trace, event: Clipped, module: str, wrapper: Wrapped | Prepared
    ) -> Finding:
        method = (
            "Call `model.clip_grad_norm_(max_norm)` of the outermost FSDP wrapper"
            if isinstance(wrapper, Wrapped)
            else CLIPPING_OF[wrapper.framework]
        )
        return self.finding(
            event,
            f"each rank clips the gradients of `{class_name(trace, module)}`, which FSDP1 shards, by "
            f"the norm of its own part",
            help=f"{method}, on all ranks.",
            because=[(wrapper, "sharded here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.clipping import clip_with_method
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import rely_on_wrapping, wraps_whenever

        found, event = call_at(finding.site), finding.events[0]
        if not isinstance(event, Clipped) or event.api != "utils":
            return None
        if found is None or not _always_clips_root(finding, program):
            return None
        if not wraps_whenever(event, finding.events):
            return None
        rewrite = Rewrite()
        if not clip_with_method(rewrite, program, *found):
            return None
        rely_on_wrapping(rewrite, finding.events)
        return rewrite.fix("Clip with the wrapper's clip_grad_norm_", Safety.SAFE)


def _sharding_wrapper(trace: Trace, module: str, event: Clipped) -> Wrapped | Prepared | None:
    """The wrapper, or the framework, that leaves this rank with a part of the module's gradients."""
    wrappers = wrappers_of(trace, module, event)
    if wrappers:
        return outermost(trace, wrappers)[0] if all(map(shards, wrappers)) else None
    around = wrapper_around(trace, module, event)
    if around is None:
        return prepared_by_framework(trace, module, event)
    if not shards(around) or not uses_original_parameters(around):
        return None
    return around


def _for_other_models(trace: Trace, event: Clipped) -> bool:
    """Whether the program also clips the same model by its wrapper, for the same step.

    A program does not clip twice: a test that is not followed tells models that FSDP1 shards from
    others. With an infinite bound, the wrapper only measures the norm.
    """
    before = reversed(trace.events[: event.index])
    return any(
        other.api in ("method", "framework") and set(other.modules) & set(event.modules)
        for side in (before, trace.events[event.index + 1 :])
        for other in takewhile(_is_of_one_step, side)
        if isinstance(other, Clipped) and not _infinite(other.max_norm)
    )


def _is_of_one_step(event: Event) -> bool:
    return not isinstance(event, BackwardRun | OptimizerStepped)


def _infinite(bound: object) -> bool:
    if isinstance(bound, int | float):
        return bound == float("inf")
    return str(bound).rpartition(".")[2].lower() in ("inf", "infinity")


def _always_clips_root(finding: Finding, program: Program) -> bool:
    """Whether all ranks clip, in every configuration, one whole model in a wrapper."""
    for trace in program.traces:
        for event in trace.of(Clipped):
            if event.site != finding.site:
                continue
            if len(event.modules) != 1 or perhaps_one_rank(event):
                return False
            module = event.modules[0]
            if trace.modules[module].wrapper != "fsdp1" or trace.ancestors(module):
                return False
    return True
