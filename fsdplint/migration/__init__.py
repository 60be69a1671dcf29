"""The planner of the FSDP1 to FSDP2 migration, which the rules FSDP2xx share.

A plan covers the files of a program that belong together (`components`), and rewrites every use of
FSDP1 in them or none. `plan` goes through them in this order, because the text of a statement is
put together from the new texts of its parts (`context`):

    ambiguous                   names that mean FSDP1's things only in some configurations
    sides                       on whose side of such a choice a use certainly stands
    constructor.{configs, strategy, precision}
                                enums and config objects, wherever they stand
    constructor.{policy_readers, mesh_names, enum_reads}
                                policies that stay, names of meshes and of strategies, by
                                `value_uses`
    constructor.enabled, loop.summon
                                the blocks of `enable_wrap` and `summon_full_params`
    loop.{training, wrapper, part_forward, gradients}
                                clipping, no_sync, the gradient scaler; attributes of a wrapper
    states.{state, optim_state, optimizers}
                                state dicts of models and optimizers
    constructor.wrap            the constructor itself
    loop.classes                the class itself: isinstance, annotations, partials
    constructor.dead, checks    what nothing uses; what would break all the same
    leftovers                   what is left of FSDP1 where no run comes, in strings and other files

Whatever has no faithful rewrite raises `Blocked` with its reason; every reference to FSDP1 that
nothing has accounted for in the end is a blocker too. `unreached` knows wrapped models in code that
the program as given does not reach, `out_of_sight` what holds where nothing here wraps a model.
`symbols` is the table of all names and what they become.
"""
