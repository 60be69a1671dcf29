"""FSDP706: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Site, Trace
from fsdplint.trace.queries.common import class_name, sharded_here


class InPlaceOnViewOutput(Rule):
    """A view that a sharded module returns is changed in place, and the backward fails.

    ## What it does
    Finds calls of a module sharded with `fully_shard` that return a view (`.view`, `.transpose`, a slice)
    that the program then changes in place (`hidden += x`, `relu_`), if the backward did not find the
    module's parameters gathered.

    The change is not reported if the backward succeeded: with `reshard_after_forward=False`, the
    parameters are still gathered.

    ## Why is this bad?
    The hook that gathers the module's parameters for the backward belongs to the tensor that the module
    returns. An in-place operation on a view removes the hook, the parameters stay freed, and the backward
    raises "RuntimeError: setStorage: sizes [8, 8], strides [8, 1], storage offset 0, and itemsize 4
    requiring a storage size of 256 are out of bounds for storage of size 0", which names neither the
    module nor the line.

    ## Since
    torch 2.4; torch 2.13 and later warn that a module returns a view.

    ## References
    - pytorch/pytorch#181832 and #181850.
    """

    code = "FSDP706"
    name = "in-place-on-view-output"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[Site] = set()
        for event in trace.of(Called):
            if not event.view_changed or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{class_name(trace, event.module)}` returns a view, which is changed in place after "
                "this; the backward then finds its parameters freed",
                help="Do not change the output of the module in place (`out = out + y`, not `out += y`), "
                "or return `.clone()` of the view.",
                because=sharded_here(trace, event.module, event),
            )
