"""What the passes of a migration find out, grouped by the pass that owns it."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst


@dataclass
class Precision:
    """What is known of the mixed precision of a migration's models.

    Attributes:
        buffers: the `buffer_dtype` arguments that are not None, by call.
        lowering: the calls whose `param_dtype` is a dtype outright.
        same: the fields of the new policy that are written like this one (or neither is given), by
            call.
        casts_inner: whether inner modules cast their inputs too, as FSDP2 does.
        own_casts: whether the policies differ in that, so that each says it of itself.
        lowers: whether some policy has a `param_dtype`.
    """

    buffers: dict[cst.Call, cst.BaseExpression] = field(default_factory=dict)
    lowering: set[cst.Call] = field(default_factory=set)
    same: dict[cst.Call, tuple[str, ...]] = field(default_factory=dict)
    casts_inner: bool = True
    own_casts: bool = False
    lowers: bool = False
    calls: list[cst.Call] = field(default_factory=list)
