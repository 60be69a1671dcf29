"""FSDP323: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.unrestored_weights import unrestored_weights


class WeightsNotRestored(Rule):
    """A context manager sets other weights for an evaluation, and does not put the old ones back.

    ## What it does
    Finds a `with` block around forwards without gradients of a model that `fully_shard` shards, if its context manager
    sets all weights of the model at the begin, such as an average of the weights, has nothing after its `yield` (or
    in its `__exit__`) but a switch of the mode, and the model trains on with these weights.

    A context manager with any other code at its end, a function that sets weights, and a block that trains are not
    reported.

    ## Why is this bad?
    There is no error. Each evaluation replaces the weights of the training by the average, while the moments of the
    optimizer are still those of the old weights. Two ranks print how far an evaluation has moved the weights:

        without putting them back: 0.19
        with putting them back: 0.00

    Keep copies of the weights before the `yield`, and write them back in a `finally` after it.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.python.org/3/library/contextlib.html (`contextmanager`)
    """

    code = "FSDP323"
    name = "weights-not-restored"
    severity = Severity.ERROR
    static_only = True
    all_configurations = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for found in unrestored_weights(trace):
            if found.context.site in seen:
                continue
            seen.add(found.context.site)
            yield self.finding(
                found.context,
                f"this sets the weights of `{class_name(trace, found.model)}` for an evaluation, and nothing puts "
                "the old ones back",
                help="Keep copies of the weights, and write them back at the end of the context manager.",
                because=[
                    (found.written, "the weights are set here"),
                    (found.evaluated, "evaluated with them"),
                    (found.step, "trains on with them"),
                ],
            )
