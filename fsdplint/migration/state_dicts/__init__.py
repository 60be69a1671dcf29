"""State dicts of models and optimizers: `state_dict_type` blocks become torch's getters and
setters.

`kinds` has FSDP1's types and configs, `kind_reader` reads them, `set_types` knows those that hold
from a statement on, `helpers` functions that return such a context, `called_states` states that a
block's calls take. `optim_state` rewrites FSDP's static methods, `optimizers` plain optimizer
states, `compiled_states` knows the names of compiled models, `in_ddp` those of DDP's,
`state_functions` writes small functions, `inference` takes states out of inference mode. `harmless`
and `trainers` are about calls in a block that have nothing to do with the state, or take it by
themselves.
"""
