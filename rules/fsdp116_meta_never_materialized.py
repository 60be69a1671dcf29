"""FSDP116: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, ModuleMoved, Trace
from fsdplint.trace.queries.common import class_name, sharded_here


class MetaNeverMaterialized(Rule):
    """A model is called, or moved to a device, while its parameters are on the meta device.

    ## What it does
    Finds models that are built on the meta device, sharded by `fully_shard` and then called before
    their parameters have memory. Also finds `.to(device)`, `.cuda()` and `.cpu()` of a model on the meta
    device.

    `to_empty`, `load_state_dict(..., assign=True)` and `set_model_state_dict` with a full state dict
    allocate memory. `reset_parameters`, the functions of `torch.nn.init` and `load_state_dict` without
    `assign` do not: on the meta device they do nothing.

    ## Why is this bad?
    `.to(device)` copies, and there is nothing to copy: `NotImplementedError: Cannot copy out of meta tensor;
    no data! Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to()`.

    The first call ends with `RuntimeError: FSDP parameters should be materialized from meta device
    before training, but the following were still on meta device: ['2.weight', '2.bias']`.

    ## Since
    torch 2.4.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, and "Meta device" (`to_empty`).
    """

    code = "FSDP116"
    name = "meta-never-materialized"
    severity = Severity.ERROR
    all_configurations = True  # users may always choose the configuration that materializes

    def check(self, trace: Trace) -> Iterator[Finding]:
        yield from self._calls(trace)
        moves = [event for event in trace.of(ModuleMoved) if event.from_meta]
        for event in {event.site: event for event in reversed(moves)}.values():
            yield self.finding(
                event,
                f"parameters of `{class_name(trace, event.module)}` are on the meta device and have no "
                f"data: `{event.method}` cannot move them",
                help="Call `to_empty(device=...)`, and then initialise the parameters and buffers or "
                "load a checkpoint.",
            )

    def _calls(self, trace: Trace) -> Iterator[Finding]:
        seen: set[str] = set()
        for call in trace.of(Called):
            if not call.on_meta or call.module in seen:
                continue
            seen.update({call.module, *trace.ancestors(call.module)})
            seen.update(trace.submodules(call.module))
            yield self.finding(
                call,
                f"parameters of `{class_name(trace, call.module)}` are still on the meta device: "
                f"its first call fails",
                why="FSDP2 refuses to gather parameters that have no data.",
                help="After `fully_shard`, call `to_empty(device=...)` on the model and then "
                "initialise its parameters and buffers, or load a whole checkpoint with "
                "`set_model_state_dict` and `full_state_dict=True`.",
                because=sharded_here(trace, call.module, call),
            )
