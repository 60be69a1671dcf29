"""State dicts of models and optimizers: `state_dict_type` blocks become torch's getters and
setters.

    kinds, kind_reader       FSDP1's types and configs
    asserted_types           types in variables, parameters and attributes
    set_types                `set_state_dict_type`
    state                    blocks and the models' states in them
    helpers                  functions that return a `state_dict_type` context
    called_states            states in functions that a block calls
    harmless, library_states calls in a block that take no state, or take it themselves
    optim_state              FSDP's static methods for optimizer states
    loaded_states            the calls that load an optimizer's state
    branch_loads             loads after the branches that make the state
    optimizers               plain optimizer states
    models_of_objects        the model of an optimizer, by an attribute of the object
    part_states, pretrained  states of parts, `save_pretrained`
    compiled_states, in_ddp  names in states of compiled models and of DDP's
    inference                states under inference mode
    state_functions          helper functions for migrated files
    unread_configs           configs that nothing reads
"""
