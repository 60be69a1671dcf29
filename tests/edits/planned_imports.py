"""What a file becomes when names are imported."""

from __future__ import annotations

from rewriting import edited, name, source_of

from fsdplint.diagnostics.finding import Import
from fsdplint.edits.imports.plan import plan
from fsdplint.edits.imports.spelling import name_for
from fsdplint.edits.rewrite import in_order
from fsdplint.syntax.bindings import bindings_of

FSDP = "torch.distributed.fsdp"

SHARD = (FSDP, "fully_shard")

STATE = ("torch.distributed.checkpoint.state_dict", "get_model_state_dict")


def planned(text: str, *wants: tuple[str, str | None], without: str = "") -> str:
    """The file after it has got the imports, at each HERE, and lost others."""
    source = source_of(text)
    needed: list[Import] = []
    for module, wanted in wants:
        at = name(source, "HERE") if "HERE" in text else None
        _, one = name_for(source, module, wanted, at, needed)
        needed += [one] if one is not None else []
    gone = [x for x in bindings_of(source).imports() if x.spelling in without.split()]
    return edited(text, in_order(plan(source, needed, gone)))
