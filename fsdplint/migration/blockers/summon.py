"""Blockers about `summon_full_params`."""

from fsdplint.migration.blockers import Blocker, advice

SUMMON_AS_VALUE = Blocker(
    "FSDP299-summon-as-value",
    "the code does not show which `with` block enters this `summon_full_params`, or the block does "
    "more than to compute: gather the parameters with `unshard()` and `reshard()` where they are "
    "needed",
    advice.WHOLE_PARAMETERS,
)
SUMMON_ARGUMENTS = Blocker(
    "FSDP299-summon-arguments",
    "the arguments of `summon_full_params` cannot be read here",
    advice.WHOLE_PARAMETERS,
)
SUMMON_OF_EXPRESSION = Blocker(
    "FSDP299-summon-of-expression",
    "`summon_full_params` gets an expression, not the name of a module",
    advice.WHOLE_PARAMETERS,
)
SUMMON_NOT_RECURSIVE = Blocker(
    "FSDP299-summon-not-recursive",
    "`summon_full_params(recurse=False)` gets a module that FSDP1 may not wrap itself",
    advice.WHOLE_PARAMETERS,
)
SUMMON_PERHAPS_UNSHARDED = Blocker(
    "FSDP299-summon-perhaps-unsharded",
    "`summon_full_params` gets a model with parameters that may not be sharded, and so have no "
    "`full_tensor`",
    advice.WHOLE_PARAMETERS,
)
SUMMON_GRADIENTS = Blocker(
    "FSDP299-summon-gradients",
    "`summon_full_params` also gathers gradients: in FSDP2 `p.grad.full_tensor()` is the whole "
    "gradient of one parameter",
    advice.WHOLE_PARAMETERS,
)
SUMMON_WRITES_UNSEEN = Blocker(
    "FSDP299-summon-writes-unseen",
    "the code does not show whether `{code}` writes parameters inside of `summon_full_params`",
    advice.WHOLE_PARAMETERS,
)
SUMMON_CALLS_PARTS_FIRST = Blocker(
    "FSDP299-summon-calls-parts-first",
    "parts of the model are called inside of `summon_full_params`, and FSDP2 requires that the "
    "program calls the whole model first",
    advice.WHOLE_PARAMETERS,
)
SUMMON_ARGUMENT_AT_RUN_TIME = Blocker(
    "FSDP299-summon-argument-at-run-time",
    "`{argument}` of `summon_full_params` is only known at run time",
    advice.WHOLE_PARAMETERS,
)
SUMMON_CALLS_IN_FULL_PRECISION = Blocker(
    "FSDP299-summon-calls-in-full-precision",
    "parts of the model are called inside of `summon_full_params`. FSDP1 gives the parts that "
    "are not wrapped themselves in full precision, and `unshard()` of FSDP2 in the type that "
    "they compute with",
    "Decide whether the lower precision will do here. If so, call `unshard()` of each sharded "
    "module before, and `reshard()` after. Otherwise load `get_model_state_dict` with "
    "`full_state_dict=True` into an unsharded copy of the model, and call that.",
)
SUMMON_STATE = Blocker(
    "FSDP299-summon-state",
    "a state is taken or loaded inside of `summon_full_params`: `get_model_state_dict` and "
    "`set_model_state_dict` with `full_state_dict=True` take and load whole parameters",
    advice.WHOLE_PARAMETERS,
)
SUMMON_WRITES = Blocker(
    "FSDP299-summon-writes",
    "parameters are written inside of `summon_full_params`, and FSDP2 loses what is written to "
    "gathered parameters: `get_model_state_dict` and `set_model_state_dict` with "
    "`full_state_dict=True` take and load whole parameters",
    advice.WHOLE_PARAMETERS,
)
SUMMON_IN_FULL_PRECISION = Blocker(
    "FSDP299-summon-in-full-precision",
    "`summon_full_params` gives parameters in full precision, but `unshard()` of FSDP2 gives "
    "them in the type that they compute with, on their device: `full_tensor()` of a parameter "
    "gives the whole parameter",
    advice.WHOLE_PARAMETERS,
)
SUMMON_IN_FULL_PRECISION_ON_CPU = Blocker(
    "FSDP299-summon-in-full-precision-on-cpu",
    "`summon_full_params` gives parameters in full precision on the CPU, but `unshard()` of "
    "FSDP2 gives them in the type that they compute with, on their device: `full_tensor()` of a "
    "parameter gives the whole parameter",
    advice.WHOLE_PARAMETERS,
)
