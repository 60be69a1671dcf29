"""Blockers about state dicts of models and optimizers."""

from fsdplint.migration.blockers import Blocker, advice

LOCAL_STATE_ONE_WAY = Blocker(
    "FSDP202-local-state-one-way",
    "a state of flat parameters (LOCAL_STATE_DICT) that is not {missing} here",
    advice.LOCAL_STATE,
)
INNER_STATE = Blocker(
    "FSDP207-inner-state",
    "the state of the module inside of FSDP1's, which is this rank's flat part",
    advice.STATE_OF_WRAPPED,
)
TYPE_OUTSIDE_BLOCK = Blocker(
    "FSDP202-type-outside-block",
    "`state_dict_type` that is not the head of a `with` block",
    advice.WITH_BLOCK,
)
OLD_CHECKPOINT = Blocker(
    "FSDP203-old-checkpoint",
    "this reads a checkpoint as FSDP1 writes it",
    advice.READ_OLD_CHECKPOINT,
)
CONFIG_AT_RUN_TIME = Blocker(
    "FSDP202-config-at-run-time",
    "what the config of this state says at run time",
    "Make the config in the function that takes the state, or write its values out.",
)
MODEL_UNKNOWN = Blocker(
    "FSDP202-model-unknown",
    "which model this is about cannot be read here",
    advice.WRITE_VALUE,
)
TYPE_IN_LONG_FUNCTION = Blocker(
    "FSDP202-type-in-long-function",
    "`state_dict_type` is returned by a function that does more",
    advice.WITH_BLOCK,
)
TYPE_IN_METHOD = Blocker(
    "FSDP202-type-in-method",
    "`state_dict_type` is returned by a method",
    advice.WITH_BLOCK,
)
HELPER_USED_OTHERWISE = Blocker(
    "FSDP202-helper-used-otherwise",
    "this context manager is used in another way here",
    advice.OWN_OBJECTS,
)
INFERENCE_MODE = Blocker(
    "FSDP202-inference-mode",
    "whether a state is taken under `torch.inference_mode` is only known at run time",
    "FSDP2's states cannot be taken under it: use `torch.no_grad` here.",
)
CONFIG_UNSEEN = Blocker(
    "FSDP202-config-unseen",
    "where this config is made cannot be seen",
    advice.WRITE_VALUE,
)
STATE_ARGUMENTS = Blocker(
    "FSDP202-state-arguments",
    "the arguments cannot be read here",
    advice.WRITE_VALUE,
)
TYPE_AT_RUN_TIME = Blocker(
    "FSDP202-type-at-run-time",
    "the type of the state dict is only known at run time",
    advice.WRITE_VALUE,
)
CONFIG_ARGUMENTS = Blocker(
    "FSDP202-config-arguments",
    "the arguments of this `{name}` cannot be read here",
    advice.WRITE_VALUE,
)
CONFIG_FIELD_AT_RUN_TIME = Blocker(
    "FSDP202-config-field-at-run-time",
    "`{field}` is only known at run time",
    advice.WRITE_VALUE,
)
LOCAL_CONFIG = Blocker(
    "FSDP202-local-config",
    "a config of local state dicts",
    advice.LEAVE_OBJECT_OUT,
)
OPTIMIZER_STATE_UNSEEN = Blocker(
    "FSDP203-optimizer-state-unseen",
    "what becomes of this optimizer state cannot be seen",
    advice.NAME_CODE,
)
OPTIMIZER_STATE_ARGUMENTS = Blocker(
    "FSDP203-optimizer-state-arguments",
    "`{method}` with further arguments",
    advice.DROP_ARGUMENTS,
)
OPTIM_INPUT = Blocker(
    "FSDP203-optim-input",
    "`{method}` with `optim_input`",
    advice.DROP_ARGUMENTS,
)
OPTIMIZER_STATE_GROUP = Blocker(
    "FSDP203-optimizer-state-group",
    "`sharded_optim_state_dict` with a group",
    advice.DROP_ARGUMENTS,
)
STATE_COMPUTED_IN_CALL = Blocker(
    "FSDP203-state-computed-in-call",
    "the state is computed in the call",
    advice.STATE_VARIABLE,
)
ONE_RANKS_STATE = Blocker(
    "FSDP203-one-ranks-state",
    "one rank's part of the optimizer's state is saved as if it were the whole, and only "
    "that rank takes it",
    advice.ONE_RANKS_PART,
)
OPTIMIZER_MODEL_UNSEEN = Blocker(
    "FSDP203-optimizer-model-unseen",
    "the model of this optimizer is not in sight here",
    advice.HAND_MODEL_OVER,
)
LOADED_BY_ONE_RANK = Blocker(
    "FSDP203-loaded-by-one-rank",
    "the optimizer's state is loaded by one rank only",
    advice.LOAD_EVERYWHERE,
)
TAKES_STATE_ITSELF = Blocker(
    "FSDP202-takes-state-itself",
    "`{method}` takes the state by itself",
    advice.HAND_OVER_STATE,
)
SET_TYPE_RESULT = Blocker(
    "FSDP202-set-type-result",
    "the result of `set_state_dict_type` is used",
    advice.WITH_BLOCK,
)
SET_TYPES_AMBIGUOUS = Blocker(
    "FSDP202-set-types-ambiguous",
    "which of several types of `set_state_dict_type` holds here",
    advice.SAY_TYPE,
)
TYPE_NOT_HEAD = Blocker(
    "FSDP202-type-not-head",
    "`state_dict_type` that is not the head of a `with`",
    advice.WITH_BLOCK,
)
RANK0_OF_GROUP = Blocker(
    "FSDP202-rank0-of-group",
    "`rank0_only`, for a group of ranks, is only known at run time",
    advice.WRITE_VALUE,
)
STATE_OF_DDP_TOO = Blocker(
    "FSDP202-state-of-ddp-too",
    "the state of a model that is DDP's in other configurations",
    advice.CHOOSE_WAY,
)
STATE_IN_CALLED_CODE = Blocker(
    "FSDP202-state-in-called-code",
    "the state is taken by code that this block calls",
    advice.TAKE_HERE,
)
STATE_DICT_ARGUMENTS = Blocker(
    "FSDP202-state-dict-arguments",
    "`state_dict` with arguments",
    advice.DROP_ARGUMENTS,
)
CONFIG_OF_TWO_KINDS = Blocker(
    "FSDP202-config-of-two-kinds",
    "this config is used for two kinds of state",
    advice.OWN_OBJECTS,
)
TRAINER_SAVES = Blocker(
    "FSDP202-trainer-saves",
    "`save_model` takes the state in the way that this block says",
    "Ask for Transformers {since} or later, whose `Trainer.save_model` takes the whole state "
    "by itself: then the block decides nothing, and is left out.",
)
PART_STATE = Blocker(
    "FSDP202-part-state",
    "the state of a part of the wrapped model, which FSDP1 does not certainly wrap by "
    "itself: it may be this rank's flat piece. Take the state of the whole model and pick "
    "the part's keys",
    advice.BY_HAND,
)
