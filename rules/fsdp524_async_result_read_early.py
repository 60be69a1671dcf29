"""FSDP524: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import AsyncResultRead, Trace
from fsdplint.trace.queries.clipping import turns_of


class AsyncResultReadEarly(Rule):
    """The result of an asynchronous collective is read before the program has waited for it.

    ## What it does
    Finds an operation on a tensor that a collective with `async_op=True` writes, if nothing that may wait comes
    between the two: no `wait()` of the handle, no synchronization, and no code that is out of sight.

    ## Why is this bad?
    The call returns at once, and the collective goes on beside the program. There is no error: what is read is the
    value of this rank, or a mixture. Two ranks that add up ones print:

        sum: 4000000.0 of 8000000.0

    Keep the handle, and call its `wait()` before the first use of the tensor.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (synchronous and asynchronous collective operations)
    """

    code = "FSDP524"
    name = "async-result-read-early"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for event in trace.of(AsyncResultRead):
            begun = trace.events[event.begun] if event.begun is not None else None
            if begun is None or event.site in seen or not turns_of(begun) <= turns_of(event):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"this reads the tensor of an asynchronous `{event.api}` that nothing has waited for",
                help="Call `wait()` of the handle that the collective returns first.",
                because=[(begun, "begun here")],
            )
