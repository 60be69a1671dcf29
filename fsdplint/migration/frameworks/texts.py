"""Doubts, notes and blockers that the settings of several frameworks share."""

WEIGHTS_NOT_SENT = (
    "rank 0 no longer sends its weights to the other ranks: build the same weights on each rank, or "
    "send them with `{}`"
)
RECOMPUTED = (
    "checkpointed layers draw other random numbers when they are recomputed, so dropout in them "
    "gives wrong gradients"
)
NO_LOCAL_STATE = "FSDP2 has no `LOCAL_STATE_DICT`: choose SHARDED_STATE_DICT or FULL_STATE_DICT"
PREFETCHES_BACKWARD = "the backward always prefetches the next layer's weights"
NO_FORWARD_PREFETCH = "the forward does not prefetch"
SEPARATE_PARAMETERS = "the optimizer gets separate parameters instead of flat ones"
TWICE = "a setting is given twice, with and without `fsdp_`"
SIZE_POLICY = (
    "wrapping by size also shards ModuleLists in Accelerate's FSDP2, which fails; name the layers "
    "{}"
)
