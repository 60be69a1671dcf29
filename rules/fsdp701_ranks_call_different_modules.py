"""FSDP701: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import ranks
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Trace
from fsdplint.trace.queries.common import module_path
from fsdplint.trace.queries.one_sided_sharding import one_sided_shards
from fsdplint.trace.queries.rank_divergence import Divergence, divergences


class RanksCallDifferentModules(Rule):
    """The ranks call different sharded modules in one forward, or a different number of them.

    ## What it does
    Finds forwards of a sharded model in which the ranks do not gather the same modules in the same
    order: a router that sends each rank's batch to another expert, an encoder that only runs if the
    batch has an image, a layer that is skipped at random.

    Calls that gather nothing (the module is unsharded already, or belongs to the group of its parent) and
    modules that are sharded over some of the ranks are not reported.

    ## Why is this bad?
    Each rank waits in the all-gather of its own module while the other ranks are in that of another
    module. If the sizes differ, the program hangs or the transport breaks. If they are equal, as with
    experts, there is no error: all ranks compute with a mixture of weights, for example one half from one
    expert and one half from the other. The gradients are mixed in the same way.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/pytorch#158719: FSDP2 assumes that all ranks run the same program.
    """

    code = "FSDP701"
    name = "ranks-call-different-modules"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[object] = set()
        if next(one_sided_shards(trace), None) is not None:
            return  # FSDP152 is about the cause
        for outer, calls in divergences(trace):
            entered = [call for call in calls.values() if call is not None]
            if any(call.site in seen for call in entered):
                continue
            seen.update(call.site for call in entered)
            event = _call_to_report(trace, outer, calls)
            yield self.finding(
                event,
                f"the ranks diverge here: {_describe_calls(trace, outer, calls)}; each waits for the "
                "others to gather the same parameters",
                help="Run the same sharded modules in the same order on all ranks: run unused modules too "
                "and multiply their output by 0, or make one decision for all ranks. Modules that only "
                "some ranks use can stay in the group of their parent instead of being sharded "
                "themselves.",
                because=[
                    (outer, "in this forward"),
                    *(
                        (call, "other ranks call this")
                        for call in entered
                        if call.site != event.site
                    ),
                ],
            )


def _call_to_report(trace: Trace, outer: Called, calls: Divergence) -> Called:
    """The call to point at: of a module that another rank leaves out, if there is one."""
    entered = [call for call in calls.values() if call is not None]
    for call in entered:
        ranks_of_module: set[int] = set()
        for other in trace.after(outer, Called):
            if other.module == call.module:
                ranks_of_module.update(other.took_part)
        if ranks_of_module != set(trace.ends):
            return call
    return entered[0]


def _describe_calls(trace: Trace, outer: Called, calls: Divergence) -> str:
    """Such as "rank 0 calls `experts.0` (`Expert`), rank 1 calls no further module"."""
    by_module: dict[str | None, list[int]] = {}
    for rank, call in calls.items():
        by_module.setdefault(call.module if call is not None else None, []).append(rank)
    parts = []
    for module, numbers in by_module.items():
        verb = "calls" if len(numbers) == 1 else "call"
        if module is None:
            what = "no further sharded module"
        else:
            path = module_path(trace, outer.module, module)
            kind = trace.module(trace.unwrap(module)).class_name
            what = f"`{path}` (`{kind}`)" if path else f"`{kind}`"
        parts.append(f"{ranks(numbers)} {verb} {what}")
    return ", ".join(parts)
