"""What happens to a wrapped model after its construction, but for its states.

`training` is about clipping, `no_sync` (`syncing`) and the gradient scaler, `gradients` and
`parameters` about arithmetic on a rank's own part, `summon`, `summon_body` and `summon_calls` about
blocks of `summon_full_params`, `wrapper` about attributes of the wrapper, `classes` about the class itself.
"""
