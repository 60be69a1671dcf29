"""FSDP503: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class IndexedMeshDevice(Rule):
    """`init_device_mesh` gets a device with an index.

    ## What it does
    Finds `init_device_mesh("cuda:0", ...)` and `init_device_mesh(f"cuda:{local_rank}", ...)`.

    ## Why is this bad?
    A mesh spans the devices of all ranks. `torch.cuda.set_device` selects the device of this rank. An
    index raises an error:

        RuntimeError: Device type with index is not supported but got cpu:0.

    ## Fix safety
    Safe: the index is removed.

    ## Since
    torch 2.2, the first with `init_device_mesh`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`init_device_mesh`)
    """

    code = "FSDP503"
    name = "indexed-mesh-device"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(MeshBuilt):
            kind, colon, _ = (event.device_type or "").partition(":")
            if colon:
                yield self.finding(
                    event,
                    f"`init_device_mesh` takes a device type, but gets a `{kind}` device with an index",
                    help=f'Pass "{kind}"; `torch.cuda.set_device` selects the device of this rank.',
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at

        found, event = call_at(finding.site), finding.events[0]
        if found is None or not isinstance(event, MeshBuilt):
            return None
        source, call = found
        device = argument(call, 0, "device_type")
        if device is None:
            return None
        kind = (event.device_type or "").partition(":")[0]
        rewrite = Rewrite()
        rewrite.replace(source, device.value, f'"{kind}"')
        return rewrite.fix("Drop the index", Safety.SAFE)
