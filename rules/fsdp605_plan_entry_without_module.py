"""FSDP605: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Site, TensorParallel, Trace
from fsdplint.trace.queries.common import class_name

# Layers that plans distribute.
_LAYERS = frozenset({"Linear", "Embedding"})


class PlanEntryWithoutModule(Rule):
    """An entry of a plan for tensor parallelism matches no module of the model.

    ## What it does
    Finds entries of the plan of `parallelize_module` whose path matches no module, if the model has a linear
    layer or an embedding that no plan distributes.

    A plan for several kinds of blocks is fine: the entry has to match a module in none of the calls. Nothing is
    reported where the submodules of the model are not known.

    ## Why is this bad?
    torch 2.13 warns among the other output and goes on (`Parallelize plan key 'feed_forward.up' could not be
    resolved`). Each rank then holds the whole layer and computes all of it. The results are right, so that only
    the memory and the time show it. Two ranks print how many numbers of the layer `up` they hold:

        32 of 32

    Write the path as `model.named_modules()` has it, relative to the module that the call gets. A `*` matches any
    characters of one name.

    ## Since
    All versions with `parallelize_module`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html (`parallelize_module`)
    """

    code = "FSDP605"
    name = "plan-entry-without-module"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        calls: dict[Site, list[TensorParallel]] = {}
        for event in trace.of(TensorParallel):
            calls.setdefault(event.site, []).append(event)
        distributed = {part for event in trace.of(TensorParallel) for part in event.parts}
        for events in calls.values():
            paths = [
                path
                for path in events[0].without_module
                if all(path in other.without_module for other in events)
            ]
            if paths and any(_has_whole_layer(trace, one.module, distributed) for one in events):
                yield self._finding(trace, events[0], paths)

    def _finding(self, trace: Trace, event: TensorParallel, paths: list[str]) -> Finding:
        names = ", ".join(f"`{path}`" for path in paths)
        match, distribute = (
            ("matches", "distributes") if len(paths) == 1 else ("match", "distribute")
        )
        return self.finding(
            event,
            f"{names} of the plan {match} no module of `{class_name(trace, event.module)}` and {distribute} nothing",
            help="Write the path as `named_modules()` has it.",
        )


def _has_whole_layer(trace: Trace, module: str, distributed: set[str]) -> bool:
    """Whether a module has a layer that no plan distributes."""
    return any(
        trace.modules[part].class_name in _LAYERS
        and (trace.modules[part].qualified_class or "").startswith("torch.nn.")
        and part not in distributed
        for part in trace.submodules(module)
    )
