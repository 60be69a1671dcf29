"""FSDP126: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import OptimizerBuilt, Trace, Wrapped
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.wrappers import shards, uses_original_parameters

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class Fsdp1GroupsByName(Rule):
    """Parameter groups are chosen by names or shapes that FSDP1 has changed.

    ## What it does
    Finds optimizers over a wrapped model whose parameter groups are chosen

    - by the parameter's own name (`"bias" in name`), if FSDP1 runs without `use_orig_params=True`,
      which is its default;
    - by the number of dimensions (`p.dim() >= 2`, `p.ndim`), if FSDP1 shards, also with
      `use_orig_params=True`.

    Choices by the name of a module with its own wrapper are fine, and so are groups that are built
    before wrapping.

    ## Why is this bad?
    Without `use_orig_params=True` the wrapper has one flat parameter per unit, called
    `_fsdp_wrapped_module._flat_param`, which holds weights and biases. With it, the names stay, but a
    sharded parameter is a one-dimensional part of the original. So one of the groups is empty, and all
    parameters are in the other one: biases and norms get weight decay that they should not get, or no
    parameter gets any. There is no error.

    ## Fix safety
    Unsafe, and only for choices by name: `use_orig_params=True` keeps the names. Optimizer states that
    were saved without it have another layout. There is no fix for choices by dimensions: collect the
    names of the parameters before wrapping, and choose by these (with `use_orig_params=True`).

    ## Since
    torch 2.0, which has `use_orig_params`. FSDP2 keeps names and dimensions.

    ## References
    - torch docs, `FullyShardedDataParallel`, `use_orig_params`.
    """

    code = "FSDP126"
    name = "fsdp1-groups-by-name"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for built in trace.of(OptimizerBuilt):
            for event in trace.before(built, Wrapped):
                if event.module in built.modules:
                    reason = _reason(event, built)
                    if reason:
                        yield self._finding(trace, built, event, reason)
                        break

    def _finding(self, trace: Trace, built: OptimizerBuilt, event: Wrapped, reason: str) -> Finding:
        return self.finding(
            built,
            f"the parameter groups of `{class_name(trace, event.module)}` are wrong: {reason}",
            why="One of the groups is empty: biases and norms get the weight decay of the weights, or no "
            "parameter gets any.",
            help="Wrap with `use_orig_params=True` and choose by name. Choose by shape only before "
            "wrapping.",
            because=[(event, "wrapped here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.fixes.wrapper_options import rely_on_wrapping, set_option

        built, wrapped = finding.events[0], finding.events[1]
        found = call_at(wrapped.site)
        if not isinstance(built, OptimizerBuilt) or built.filtered_by != (LEAF_NAME,):
            return None
        rewrite = Rewrite()
        if found is None or not set_option(rewrite, *found, "use_orig_params", "True"):
            return None
        rely_on_wrapping(rewrite, [wrapped])
        return rewrite.fix("Wrap with use_orig_params=True", Safety.UNSAFE)


DIMENSIONS, LEAF_NAME = "dimensions", "leaf name"


def _reason(event: Wrapped, built: OptimizerBuilt) -> str:
    """Why the choice of the groups is wrong; "" where it is not known to be."""
    original = uses_original_parameters(event)
    if original is False and LEAF_NAME in built.filtered_by:
        return "FSDP1 without `use_orig_params=True` has only flat parameters, which lose the names"
    if original is False and (DIMENSIONS in built.filtered_by or built.empty_groups):
        return "FSDP1 without `use_orig_params=True` has only flat parameters, which have one dimension"
    if original and shards(event) and (DIMENSIONS in built.filtered_by or built.empty_groups):
        return "FSDP1 leaves one-dimensional parts of the parameters on each rank"
    return ""
