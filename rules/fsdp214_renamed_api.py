"""FSDP214: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.syntax.version_guards import is_under_version_test
from fsdplint.trace import Event, Fsdp2Used, Loaded, Saved, Site, Trace
from fsdplint.trace.torch_versions import METHODS

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.trace.torch_target import Target

FACTOR, NEW_FACTOR = "set_reduce_scatter_divide_factor", "set_gradient_divide_factor"
DCP = "torch.distributed.checkpoint"
NEW_CHECKPOINTS = "2.2"  # the first torch with `save` and `load`, by its documentation
# They have `no_dist` in 2.2 and in 2.13, and not in 2.3 and 2.4.
WITH_NO_DIST = "2.13"
CHECKPOINTS = {f"{DCP}.save_state_dict": "save", f"{DCP}.load_state_dict": "load"}


class RenamedApi(Rule):
    """A function or method is used under a deprecated name.

    ## What it does
    Finds `FSDPModule.set_reduce_scatter_divide_factor` (`set_gradient_divide_factor` since torch 2.8), and
    `save_state_dict` and `load_state_dict` of `torch.distributed.checkpoint` (`save` and `load`).

    The old name of the factor is fine if the program has to run on a torch before 2.8 (`target-torch`, or a lower
    bound or pin in the project's requirements), or tests the version of torch. Any old name is fine if it is
    imported only as a fallback for an older torch.

    ## Why is this bad?
    torch warns on every use and will remove these names.

        DeprecationWarning: Use `set_gradient_divide_factor` instead
        FutureWarning: `save_state_dict` is deprecated and will be removed in future versions.Please use `save` instead.

    ## Fix safety
    Safe: the new name. The writer or reader of a checkpoint becomes a keyword argument, as the new functions
    require. There is no fix for a call with `coordinator_rank`, which the new functions do not have.

    ## Since
    torch 2.8 for the factor; torch 2.2 for checkpoints.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`FSDPModule.set_gradient_divide_factor`)
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    """

    code = "FSDP214"
    name = "renamed-api"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        new = METHODS[NEW_FACTOR].version
        too_old = trace.target is not None and trace.target.predates(new)
        for event in trace.of(Fsdp2Used, Saved, Loaded):
            if is_under_version_test((guard.text, guard.site) for guard in event.guards):
                continue
            if isinstance(event, Fsdp2Used):
                if event.api == FACTOR and not (too_old or event.optional):
                    yield self._finding_of_old_name(
                        event, FACTOR, NEW_FACTOR, f" since torch {new}"
                    )
            elif isinstance(event, Saved | Loaded) and event.api in CHECKPOINTS:
                if _is_fallback(event.site) or _may_run_before(trace.target, NEW_CHECKPOINTS):
                    continue
                last = event.api.rpartition(".")[2]
                yield self._finding_of_old_name(event, last, f"{DCP}.{CHECKPOINTS[event.api]}", "")

    def _finding_of_old_name(self, event: Event, old: str, new: str, since: str) -> Finding:
        finding = self.finding(
            event,
            f"`{old}` is deprecated: its name is `{new}`{since}",
            help=f"Use `{new}`.",
        )
        finding.configuration = ()  # the name is old in every configuration
        return finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.renamed import rename_checkpoint, rename_method
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        if found is None:
            return None
        event, rewrite = finding.events[0], Rewrite()
        if isinstance(event, Fsdp2Used):
            done = rename_method(rewrite, *found, NEW_FACTOR)
        else:
            assert isinstance(event, Saved | Loaded)
            every = not _may_run_before(program.options.target, WITH_NO_DIST)
            done = rename_checkpoint(rewrite, *found, CHECKPOINTS[event.api], no_dist=every)
        return rewrite.fix("Use the new name", Safety.SAFE) if done else None


def _may_run_before(target: Target | None, version: str) -> bool:
    """Whether a program may have to run on a torch before a version."""
    return target is not None and target.may_be_older(version)


def _is_fallback(site: Site) -> bool:
    """Whether the called name is bound to another function under another torch."""
    from fsdplint.fixes.syntax import call_at
    from fsdplint.interpreter.imports import stands_for_either

    found = call_at(site)
    return found is not None and stands_for_either(found[0], found[1].func)
