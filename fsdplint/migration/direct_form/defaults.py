"""The defaults of the parameters of FSDP1's constructor."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.direct_form.inlining import Inlining

NOT_NONE = {
    "sync_module_states": "False",
    "forward_prefetch": "False",
    "limit_all_gathers": "True",
    "use_orig_params": "False",
}


def default(inlining: Inlining, key: str, at: cst.CSTNode) -> str:
    """The text of a default at a node."""
    if key == "backward_prefetch":
        package = "torch.distributed.fsdp"
        enum = inlining.migration.need(inlining.source, package, "BackwardPrefetch", at)
        return f"{enum}.BACKWARD_PRE"
    return NOT_NONE.get(key, "None")
