"""Rewrites of training code: uses of a wrapped model other than its construction and its states.

loop                     `no_sync`, `.module`, `.forward`, the sharded gradient scaler
syncing                  `no_sync` contexts that a variable holds
sync_values              `no_sync` contexts that are entered elsewhere
clipping                 gradient clipping
gradients, finite        arithmetic on a rank's part of the gradients
parameters               arithmetic on a rank's part of the parameters
replaced_data            `parameter.data = ...`
summon, summon_*         blocks of `summon_full_params`
part_forward             parts of a model that run outside of its forward
wrapper                  attributes of the wrapper
classes                  references to the class itself
"""
