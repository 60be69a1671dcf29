"""What happens to a wrapped model after its construction, but for its states.

`training` is about `no_sync` (`syncing`) and the gradient scaler, `clipping` about clipping,
`gradients` and `parameters` about arithmetic on a rank's own part, `summon`, `summon_body`,
`summon_writes` and `summon_calls` about blocks of `summon_full_params`, `part_forward` about parts
that are run by their `forward`, `wrapper` about attributes of the wrapper, `classes` about the
class itself.
"""
