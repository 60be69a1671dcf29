"""FSDP304: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Saved, Trace
from fsdplint.trace.queries.common import class_name, only_fsdp2, sharded_here, whole_file


class PickledShardedModule(Rule):
    """A model that `fully_shard` shards is pickled itself.

    ## What it does
    Finds `torch.save(model, path)` of a sharded model, also of a dict or list that holds one.

    ## Why is this bad?
    `fully_shard` creates the class of the model at run time, and pickle cannot find it by its name. The
    save ends with

        PicklingError: Can't pickle <class 'torch.distributed.fsdp....FSDPSequential'>: attribute lookup
        FSDPSequential on torch.distributed.fsdp... failed

    and leaves a broken file. If only rank 0 saves, the other ranks wait for it.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (the class of the module
      is made in place); https://docs.pytorch.org/docs/stable/notes/serialization.html (save the state
      dict, not the module)
    """

    code = "FSDP304"
    name = "pickled-sharded-module"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Saved):
            if not whole_file(event.api) or event.api.startswith("safetensors."):
                continue
            for module in event.modules:
                if only_fsdp2(trace, module, event):
                    yield self._finding(trace, event, module)
                    break

    def _finding(self, trace: Trace, event: Saved, module: str) -> Finding:
        return self.finding(
            event,
            f"`{class_name(trace, module)}` itself is saved: a module that `fully_shard` shards cannot "
            f"be pickled",
            help="Save its state: `get_model_state_dict(model, options=StateDictOptions("
            "full_state_dict=True, cpu_offload=True))`, taken on all ranks and written by rank 0. What "
            "reads the file has to build the model and load the state into it.",
            because=sharded_here(trace, module, event),
        )
