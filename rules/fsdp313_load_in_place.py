"""FSDP313: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Loaded, Trace


class LoadInPlace(Rule):
    """`torch.distributed.checkpoint.load` is used as if it returned the checkpoint.

    ## What it does
    Finds `torch.distributed.checkpoint.load` with an empty dict, and programs that use its result.

    ## Why is this bad?
    `load` reads the keys of the dict that it gets into the tensors of this dict, and returns None. Into an
    empty dict it reads nothing, and the next line ends with `KeyError: 'model'`. The result is
    `TypeError: 'NoneType' object is not subscriptable`.

    Build the dict as for the save, load into it, and set it:

        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(model, state["model"])

    ## Since
    torch 2.2, the first with this function.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`load` operates in place)
    - https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html
    """

    code = "FSDP313"
    name = "load-in-place"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Loaded):
            if not (event.empty or event.result_used) or event.site in seen:
                continue
            seen.add(event.site)
            name = event.api.rpartition(".")[2]
            what = (
                f"`{name}` gets an empty dict and reads nothing into it"
                if event.empty
                else f"`{name}` reads into the dict that it gets, and returns None"
            )
            yield self.finding(
                event,
                what,
                help="Pass a dict with the state dicts of the model and the optimizer, and set them "
                "after the load.",
            )
