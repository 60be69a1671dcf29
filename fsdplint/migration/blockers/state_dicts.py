"""Blockers about state dicts of models and optimizers."""

from fsdplint.migration.blockers import Blocker, advice

LOCAL_STATE_ONE_WAY = Blocker(
    "FSDP202-local-state-one-way",
    "this is a state of flat parameters (LOCAL_STATE_DICT), and it is not {missing} here",
    advice.LOCAL_STATE,
)
SHARDED_FILES_NOT_WRITTEN = Blocker(
    "FSDP202-sharded-files-not-written",
    "this loads the parts of a sharded state that FSDP1 saved with `torch.save`, and the program "
    "writes no such files: FSDP2 cannot load FSDP1's ShardedTensors",
    advice.SHARDED_FILES,
)
INNER_STATE = Blocker(
    "FSDP207-inner-state",
    "this is the state of the module inside of FSDP1's wrapper, and so this rank's flat part",
    advice.STATE_OF_WRAPPED,
)
TYPE_OUTSIDE_BLOCK = Blocker(
    "FSDP202-type-outside-block",
    "`state_dict_type` is not the head of a `with` block",
    advice.WITH_BLOCK,
)
TYPE_UNDECIDED = Blocker(
    "FSDP202-type-undecided",
    "the type of this state is set by a call of `set_state_dict_type` that has no rewrite",
    "Decide first which type that call sets; then write `get_model_state_dict` or "
    "`set_model_state_dict` with the options for this type.",
)
OLD_CHECKPOINT = Blocker(
    "FSDP203-old-checkpoint",
    "this reads a checkpoint in the format of FSDP1",
    advice.READ_OLD_CHECKPOINT,
)
CONFIG_AT_RUN_TIME = Blocker(
    "FSDP202-config-at-run-time",
    "the config of this state is only known at run time",
    "Make the config in the function that takes the state, or write its values out.",
)
MODEL_UNKNOWN = Blocker(
    "FSDP202-model-unknown",
    "the model of this call cannot be read here",
    advice.WRITE_VALUE,
)
TYPE_IN_LONG_FUNCTION = Blocker(
    "FSDP202-type-in-long-function",
    "a function returns `state_dict_type` and does more than that",
    advice.WITH_BLOCK,
)
TYPE_IN_METHOD = Blocker(
    "FSDP202-type-in-method",
    "a method returns `state_dict_type`",
    advice.WITH_BLOCK,
)
HELPER_USED_OTHERWISE = Blocker(
    "FSDP202-helper-used-otherwise",
    "this context manager has another use here than the head of a `with` block",
    advice.OWN_OBJECTS,
)
INFERENCE_MODE = Blocker(
    "FSDP202-inference-mode",
    "a state may be taken under `torch.inference_mode` here, which is only known at run time",
    "FSDP2's states cannot be taken under `torch.inference_mode`: use `torch.no_grad` here.",
)
CONFIG_UNSEEN = Blocker(
    "FSDP202-config-unseen",
    "these files do not make this config",
    advice.WRITE_VALUE,
)
STATE_ARGUMENTS = Blocker(
    "FSDP202-state-arguments",
    "the arguments of this call cannot be read here",
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
OPTIMIZER_STATE_UNSEEN = Blocker(
    "FSDP203-optimizer-state-unseen",
    "the code does not show how this optimizer state is used",
    advice.NAME_CODE,
)
OPTIMIZER_STATE_ARGUMENTS = Blocker(
    "FSDP203-optimizer-state-arguments",
    "`{method}` has further arguments",
    advice.DROP_ARGUMENTS,
)
REKEY_TYPE = Blocker(
    "FSDP203-rekey-type",
    "whether the state gets names or numbers as keys is only known at run time",
    advice.WRITE_VALUE,
)
REKEY_WRAPPED = Blocker(
    "FSDP203-rekey-wrapped",
    "this numbers the parameters of a wrapped model, or of one that the code does not show: with "
    "FSDP1 they may be flat and have other numbers",
    "Decide which parameters the numbers are for. Give the call a model without FSDP, "
    "such as the one that loads the state later.",
)
OPTIM_INPUT = Blocker(
    "FSDP203-optim-input",
    "`{method}` has the argument `optim_input`",
    advice.DROP_ARGUMENTS,
)
OPTIMIZER_STATE_GROUP = Blocker(
    "FSDP203-optimizer-state-group",
    "`sharded_optim_state_dict` has a group",
    advice.DROP_ARGUMENTS,
)
STATE_WHILE_GATHERED = Blocker(
    "FSDP203-state-while-gathered",
    "FSDP2 may have parameters gathered here, and torch does not find them in the optimizer",
    "Take or load the state in a statement of its own, of a model that is in a variable. Then run "
    "this again.",
)
ONE_RANKS_STATE = Blocker(
    "FSDP203-one-ranks-state",
    "one rank's part of the optimizer's state is saved as if it were the whole state, and only "
    "that rank takes it",
    advice.ONE_RANKS_PART,
)
OPTIMIZER_MODEL_UNSEEN = Blocker(
    "FSDP203-optimizer-model-unseen",
    "this code does not have the model of the optimizer",
    advice.HAND_MODEL_OVER,
)
LOADED_BY_ONE_RANK = Blocker(
    "FSDP203-loaded-by-one-rank",
    "only one rank loads the optimizer's state",
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
    "`set_state_dict_type` sets several types, and the code does not show which one holds here",
    advice.SAY_TYPE,
)
TYPE_NOT_HEAD = Blocker(
    "FSDP202-type-not-head",
    "`state_dict_type` is not the head of a `with` block",
    advice.WITH_BLOCK,
)
RANK0_OF_GROUP = Blocker(
    "FSDP202-rank0-of-group",
    "`rank0_only`, for a group of ranks, is only known at run time",
    advice.WRITE_VALUE,
)
STATE_OF_DDP_TOO = Blocker(
    "FSDP202-state-of-ddp-too",
    "in some configurations this is the state of a model that DDP wraps",
    advice.CHOOSE_WAY,
)
STATE_IN_CALLED_CODE = Blocker(
    "FSDP202-state-in-called-code",
    "a function that this block calls takes the state",
    advice.TAKE_HERE,
)
STATE_DICT_ARGUMENTS = Blocker(
    "FSDP202-state-dict-arguments",
    "`state_dict` has arguments",
    advice.DROP_ARGUMENTS,
)
CONFIG_OF_TWO_KINDS = Blocker(
    "FSDP202-config-of-two-kinds",
    "this config is used for two kinds of state",
    advice.OWN_OBJECTS,
)
TRAINER_SAVES = Blocker(
    "FSDP202-trainer-saves",
    "`save_model` takes the state with the type that this block sets",
    "Require Transformers {since} or later: its `Trainer.save_model` takes the whole state by "
    "itself, and the migration removes the block.",
)
NO_STATE_TO_BROADCAST = Blocker(
    "FSDP203-no-state-to-broadcast",
    "this optimizer keeps no state (SGD without momentum), and torch refuses to broadcast one "
    "without tensors (seen with 2.13)",
    "Load only the `param_groups` of the optimizer, such as its learning rate, on every rank.",
)
PART_STATE = Blocker(
    "FSDP202-part-state",
    "this is the state of a part of the wrapped model, and FSDP1 may not wrap that part by "
    "itself: the state may be this rank's flat piece. Take the state of the whole model and pick "
    "the part's keys",
    advice.BY_HAND,
)
