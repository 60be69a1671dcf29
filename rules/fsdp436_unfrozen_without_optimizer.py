"""FSDP436: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.unfrozen_parameters import unfrozen_parameters


class UnfrozenWithoutOptimizer(Rule):
    """Frozen parameters of a sharded model get gradients later, and the optimizer does not have them.

    ## What it does
    Finds parameters that were frozen when the optimizer was built, and that the optimizer did not get:
    it got the parameters with `requires_grad` or those of other parts of the model. Later the program
    unfreezes them and trains on, and no optimizer gets them.

    Parameters that `add_param_group` or a new optimizer gets are not reported. An optimizer that got all
    parameters of the model has the frozen ones, too, and begins to update them when they get gradients.

    ## Why is this bad?
    There is no error: the forward and the backward compute the gradients of the unfrozen parameters, the
    ranks reduce them, and no step uses them. The parameters keep their values to the last digit, and a
    second stage of training costs as much as it would with them.

    ## Since
    Always.

    ## References
    - https://docs.pytorch.org/docs/stable/optim.html (`add_param_group`)
    """

    code = "FSDP436"
    name = "unfrozen-without-optimizer"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[object] = set()
        for found in unfrozen_parameters(trace):
            if found.change.site in seen:
                continue
            seen.add(found.change.site)
            paths = tuple(one.path for one in found.parameters)
            root = found.change.modules[0]
            be = "is" if len(paths) == 1 else "are"
            yield self.finding(
                found.change,
                f"{names(paths, 'parameter')} of `{class_name(trace, root)}` {be} trained from here "
                f"on, but {be} in no optimizer: `{found.built.class_name}` was built without "
                f"{'it' if len(paths) == 1 else 'them'}",
                help="Pass them to `add_param_group`, or build a new optimizer.",
                because=[(found.built, "built here"), (found.step, "stepped here")],
            )
