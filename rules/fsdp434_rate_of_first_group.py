"""FSDP434: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import GroupOptionSet, SchedulerStepped, Trace
from fsdplint.trace.queries.common import class_name, optimizer_of, sharded_module_of


class RateOfFirstGroup(Rule):
    """A program sets the learning rate of the first parameter group, and the others keep theirs.

    ## What it does
    Finds `optimizer.param_groups[0]["lr"] = rate` in a loop that trains a sharded model, if the optimizer has
    several groups, none of which has a learning rate of its own, and nothing else sets their rates.

    ## Why is this bad?
    There is no error. The groups were made with one rate, for example to leave out the weight decay of biases, and
    the schedule reaches the first one alone. Logs mostly show the rate of the first group. Two ranks print
    the rates after three steps:

        lr: 0.025, 0.1

    Set the rate in each group: `for group in optimizer.param_groups: group["lr"] = rate`.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/optim.html (per-parameter options)
    """

    code = "FSDP434"
    name = "rate-of-first-group"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        scheduled = {one.optimizer for one in trace.of(SchedulerStepped)}
        rates = [one for one in trace.of(GroupOptionSet) if one.option == "lr"]
        others = {one.optimizer for one in rates if not one.of_first}
        seen = set()
        for event in rates:
            if event.optimizer in others | scheduled or not event.in_loop or event.site in seen:
                continue
            built = optimizer_of(trace, event.optimizer)
            if built is None or built.equal_rates < 2 or built.escaped:
                continue
            module = sharded_module_of(trace, built.modules, event)
            if module is None:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"this sets the learning rate of the first of {built.equal_rates} parameter groups of "
                f"`{class_name(trace, module)}`, and the others keep theirs",
                help="Set `lr` in each group of `optimizer.param_groups`.",
                because=[(built, "groups made here")],
            )
