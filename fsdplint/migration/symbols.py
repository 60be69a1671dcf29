"""Every public name of FSDP1, its counterpart in FSDP2, and how the passes treat it.

To add an API of FSDP1, add an entry to `APIS`, or to `MEMBERS` for a method or attribute of the wrapper,
and a function that rewrites it:

* An enum, a config or another value: a function with `@rewrites("Name")` (`rewriters`).
* A method or attribute of the wrapper: a function with `@rewrites_member("name")`.
* An API with a pass of its own, such as `summon_full_params`: a pass in `passes.PASSES`.

If there is no faithful rewrite, the function raises `Blocked` with a blocker from `blockers`. A use that
no function has accounted for also blocks the migration, with a message from the table.
`tests/migration/test_symbols.py` has a program for each entry of `APIS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.migration.blockers import Blocker, Reason, advice, training
from fsdplint.migration.blockers import program as blockers
from fsdplint.migration.names import FSDP, STATIC_METHODS


@dataclass(frozen=True)
class Api:
    """A public name of FSDP1.

    Attributes:
        becomes: the counterpart in FSDP2, which ends the message on a use that is not rewritten.
        advice: what to do about such a use.
        step: the title of the step that rewrites a reference, if that is a step of its own.
        carried: whether the rewrite of another use accounts for it. If that use is blocked, this one
            is not reported.
    """

    becomes: str
    advice: str = advice.BY_HAND
    step: str = ""
    rewritten_with_other: bool = False


@dataclass(frozen=True)
class Member:
    """A method or attribute of an FSDP1 module.

    Attributes:
        same: whether it means the same in FSDP2.
        gone: the blocker, if FSDP2 has no counterpart.
        called: whether only calls of it are rewritten.
        private: whether only FSDP1's wrapper has it, so that it also blocks on unknown objects.
        common_name: whether other objects often have an attribute of this name.
    """

    unchanged: bool = False
    blocker: Blocker | None = None
    calls_only: bool = False
    private: bool = False
    common_name: bool = False


NOTHING = "nothing: "  # in `becomes`, before the reason why FSDP2 has no counterpart

# A name with a dot is an argument of a call or a member of a class.
APIS = {
    # The class and the arguments of its constructor
    FSDP: Api(
        "`fully_shard` of the submodules and then of the model, in place", rewritten_with_other=True
    ),
    f"{FSDP}.module": Api("the first argument of `fully_shard`; as an attribute, the model itself"),
    f"{FSDP}.process_group": Api(
        "a `mesh` of the group; a tuple of groups is a mesh of two dimensions",
        advice=advice.CHOOSE_MESH,
    ),
    f"{FSDP}.sharding_strategy": Api("`reshard_after_forward` and a `mesh`"),
    f"{FSDP}.cpu_offload": Api("`offload_policy=CPUOffloadPolicy()`"),
    f"{FSDP}.auto_wrap_policy": Api(
        "a loop over the submodules that it picks", advice=advice.WRITE_POLICY
    ),
    f"{FSDP}.backward_prefetch": Api("nothing: FSDP2 always prefetches as BACKWARD_PRE does"),
    f"{FSDP}.mixed_precision": Api("`mp_policy=MixedPrecisionPolicy(...)`"),
    f"{FSDP}.ignored_modules": Api("`ignored_params` of `fully_shard`", advice=advice.IGNORED),
    f"{FSDP}.param_init_fn": Api(
        "`to_empty` after sharding on the meta device, and then the initialisation",
        advice=advice.META_VALUES,
    ),
    f"{FSDP}.device_id": Api("`torch.cuda.set_device`, or the device of the mesh"),
    f"{FSDP}.sync_module_states": Api(
        "a broadcast of rank 0's parameters and buffers", advice=advice.SYNC_STATES
    ),
    f"{FSDP}.forward_prefetch": Api("nothing: it only changes the order of communication"),
    f"{FSDP}.limit_all_gathers": Api("nothing: FSDP2 needs no limit"),
    f"{FSDP}.use_orig_params": Api("nothing: FSDP2 always has the original parameters"),
    f"{FSDP}.ignored_states": Api("`ignored_params` of `fully_shard`", advice=advice.IGNORED),
    f"{FSDP}.device_mesh": Api("`mesh`"),
    # Its methods and attributes
    f"{FSDP}.apply": Api("`apply`, in a block with whole parameters if the function needs them"),
    f"{FSDP}.check_is_root": Api("nothing: the root is the module that the program calls"),
    f"{FSDP}.clip_grad_norm_": Api("`torch.nn.utils.clip_grad_norm_`"),
    f"{FSDP}.forward": Api("a call of the model"),
    f"{FSDP}.fsdp_modules": Api("the modules that are an `FSDPModule`", advice=advice.FSDP_MODULES),
    f"{FSDP}.named_buffers": Api("the same method: names have no prefixes to remove"),
    f"{FSDP}.named_parameters": Api("the same method: names have no prefixes to remove"),
    f"{FSDP}.no_sync": Api("`set_requires_gradient_sync`", advice=advice.NO_SYNC_BLOCK),
    f"{FSDP}.register_comm_hook": Api(
        "nothing: `set_custom_reduce_scatter` and `set_all_reduce_hook` replace single collectives",
        advice=advice.COMM_HOOK,
    ),
    f"{FSDP}.summon_full_params": Api(
        "`unshard()` and `reshard()` around the code, `full_tensor()`, or a write to the sharded "
        "parameters",
        advice=advice.WHOLE_PARAMETERS,
    ),
    f"{FSDP}.state_dict_type": Api(
        "the options of `get_model_state_dict` and `set_model_state_dict`",
        rewritten_with_other=True,
    ),
    f"{FSDP}.set_state_dict_type": Api(
        "the options of `get_model_state_dict` and its like", rewritten_with_other=True
    ),
    f"{FSDP}.get_state_dict_type": Api(
        "nothing: states of FSDP2 have no type; each `get_model_state_dict` takes its own options"
    ),
    f"{FSDP}.full_optim_state_dict": Api(
        "`get_optimizer_state_dict` with `full_state_dict=True`", rewritten_with_other=True
    ),
    f"{FSDP}.sharded_optim_state_dict": Api(
        "`get_optimizer_state_dict`", rewritten_with_other=True
    ),
    f"{FSDP}.optim_state_dict": Api("`get_optimizer_state_dict`", rewritten_with_other=True),
    f"{FSDP}.optim_state_dict_to_load": Api(
        "`set_optimizer_state_dict`", rewritten_with_other=True
    ),
    f"{FSDP}.shard_full_optim_state_dict": Api(
        "`set_optimizer_state_dict` with `full_state_dict=True`", rewritten_with_other=True
    ),
    f"{FSDP}.scatter_full_optim_state_dict": Api(
        "`set_optimizer_state_dict` with `broadcast_from_rank0=True`", rewritten_with_other=True
    ),
    f"{FSDP}.flatten_sharded_optim_state_dict": Api(
        "`set_optimizer_state_dict`", rewritten_with_other=True
    ),
    f"{FSDP}.rekey_optim_state_dict": Api(
        "nothing: optimizer states of FSDP2 have the names of parameters "
        "as keys, and `set_optimizer_state_dict` takes them",
        rewritten_with_other=True,
    ),
    f"{FSDP}.rank": Api("`get_rank` of the group"),
    f"{FSDP}.world_size": Api("`get_world_size` of the group"),
    f"{FSDP}.compute_device": Api("`next(model.parameters()).device`"),
    f"{FSDP}._fsdp_wrapped_module": Api("the model itself", advice=advice.LEAVE_STEP_OUT),
    f"{FSDP}._handle": Api("nothing: there are no flat parameters", advice=advice.FLAT_PARAMETERS),
    # Enums and configurations
    "ShardingStrategy": Api(
        "the name of the strategy, and what `fully_shard` gets for it",
        step="Name the strategy by a string",
    ),
    "ShardingStrategy.FULL_SHARD": Api("the default of `fully_shard`"),
    "ShardingStrategy.SHARD_GRAD_OP": Api("`reshard_after_forward=False`"),
    "ShardingStrategy.NO_SHARD": Api("a mesh whose second dimension is 1"),
    "ShardingStrategy.HYBRID_SHARD": Api("a mesh of two dimensions"),
    "ShardingStrategy._HYBRID_SHARD_ZERO2": Api(
        "a mesh of two dimensions, `reshard_after_forward=False`"
    ),
    "BackwardPrefetch": Api(
        "nothing: FSDP2 always prefetches",
        rewritten_with_other=True,
        step="Leave out what FSDP2 always does",
    ),
    "BackwardPrefetch.BACKWARD_PRE": Api("nothing: FSDP2 does this always"),
    "BackwardPrefetch.BACKWARD_POST": Api("nothing: FSDP2 prefetches earlier, for more memory"),
    "CPUOffload": Api(
        "`CPUOffloadPolicy`",
        rewritten_with_other=True,
        step="Set the offloading with CPUOffloadPolicy",
    ),
    "CPUOffload.offload_params": Api("`CPUOffloadPolicy()` or no policy"),
    "MixedPrecision": Api(
        "`MixedPrecisionPolicy`",
        rewritten_with_other=True,
        step="Set the precision with MixedPrecisionPolicy",
    ),
    "MixedPrecision.param_dtype": Api("`param_dtype`"),
    "MixedPrecision.reduce_dtype": Api("`reduce_dtype`, written out where it was `param_dtype`"),
    "MixedPrecision.buffer_dtype": Api(
        "a cast of the buffers after sharding", advice=advice.BUFFER_DTYPE
    ),
    "MixedPrecision.keep_low_precision_grads": Api(
        "nothing: gradients have the type of the parameters", advice=advice.LOW_PRECISION_GRADS
    ),
    "MixedPrecision.cast_forward_inputs": Api(
        "`cast_forward_inputs` of the submodules' policy", advice=advice.PRECISION_OPTION
    ),
    "MixedPrecision.cast_root_forward_inputs": Api(
        "`cast_forward_inputs` of the root's policy", advice=advice.PRECISION_OPTION
    ),
    "MixedPrecision._module_classes_to_ignore": Api(
        "a policy of their own for modules of these classes", advice=advice.PRECISION_OPTION
    ),
    "StateDictType": Api(
        "options of `get_model_state_dict`",
        rewritten_with_other=True,
        step="Name the kind of state by a string",
    ),
    "StateDictType.FULL_STATE_DICT": Api("`StateDictOptions(full_state_dict=True)`"),
    "StateDictType.SHARDED_STATE_DICT": Api("`get_model_state_dict` without options"),
    "StateDictType.LOCAL_STATE_DICT": Api(
        "`get_model_state_dict` without options, unless the program only loads such states or "
        "reads their shards",
        advice=advice.LOCAL_STATE,
    ),
    "StateDictConfig": Api("`StateDictOptions`"),
    "FullStateDictConfig": Api(
        "`StateDictOptions(full_state_dict=True, cpu_offload=...)`", rewritten_with_other=True
    ),
    "ShardedStateDictConfig": Api("`StateDictOptions(cpu_offload=...)`", rewritten_with_other=True),
    "LocalStateDictConfig": Api("`StateDictOptions(cpu_offload=...)`", rewritten_with_other=True),
    "OptimStateDictConfig": Api("`StateDictOptions` of `get_optimizer_state_dict`"),
    "FullOptimStateDictConfig": Api(
        "`StateDictOptions(full_state_dict=True, cpu_offload=...)`", rewritten_with_other=True
    ),
    "ShardedOptimStateDictConfig": Api(
        "`StateDictOptions(cpu_offload=...)`", rewritten_with_other=True
    ),
    "LocalOptimStateDictConfig": Api(
        "`StateDictOptions(cpu_offload=...)`", rewritten_with_other=True
    ),
    "StateDictSettings": Api("nothing: the options are arguments of each call"),
    "OptimStateKeyType": Api(
        "nothing: optimizer states of FSDP2 have the names of parameters as keys",
        rewritten_with_other=True,
    ),
    "FlatParameter": Api(
        "nothing: each parameter is a DTensor with its own name", advice=advice.FLAT_PARAMETERS
    ),
    # torch.distributed.fsdp.wrap
    "ModuleWrapPolicy": Api(
        "a loop over the submodules of these classes", rewritten_with_other=True
    ),
    "CustomPolicy": Api(
        "a loop over the submodules that its function picks",
        advice=advice.PREDICATE,
        rewritten_with_other=True,
    ),
    "always_wrap_policy": Api(
        "a loop over the submodules that have a forward",
        advice=advice.WRITE_POLICY,
        rewritten_with_other=True,
    ),
    "lambda_auto_wrap_policy": Api(
        "a loop over the submodules for which the function holds",
        advice=advice.WRITE_POLICY,
        rewritten_with_other=True,
    ),
    "transformer_auto_wrap_policy": Api(
        "a loop over the submodules of these classes",
        advice=advice.WRITE_POLICY,
        rewritten_with_other=True,
    ),
    "size_based_auto_wrap_policy": Api(
        "a function that counts parameters as FSDP1 does",
        advice=advice.WRITE_POLICY,
        rewritten_with_other=True,
    ),
    "_or_policy": Api(
        "one loop over the submodules that any of them picks",
        advice=advice.WRITE_POLICY,
        rewritten_with_other=True,
    ),
    "_module_wrap_policy": Api(
        "a loop over the submodules of these classes",
        advice=advice.WRITE_POLICY,
        rewritten_with_other=True,
    ),
    "enable_wrap": Api(
        "nothing: its arguments go to each `fully_shard` in the block",
        advice=advice.REPLACE_ENABLE_WRAP,
    ),
    "wrap": Api(
        "`fully_shard` with the arguments of the block around it", advice=advice.REPLACE_ENABLE_WRAP
    ),
    # The rest
    "ShardedGradScaler": Api("`torch.amp.GradScaler`", advice=advice.SCALER_ARGUMENT),
    "ShardedGradScaler.process_group": Api(
        "nothing: the scaler asks the ranks that hold the gradients", advice=advice.CHOOSE_MESH
    ),
}

SAME = Member(unchanged=True)
MEMBERS = {
    # Of nn.Module, and of the models of Transformers.
    "train": SAME,
    "eval": SAME,
    "parameters": SAME,
    "named_parameters": SAME,
    "modules": SAME,
    "named_modules": SAME,
    "children": SAME,
    "named_children": SAME,
    "buffers": SAME,
    "named_buffers": SAME,
    "zero_grad": SAME,
    "requires_grad_": SAME,
    "training": SAME,
    "get_submodule": SAME,
    "register_forward_hook": SAME,
    "register_forward_pre_hook": SAME,
    "__class__": SAME,
    "config": SAME,
    "device": SAME,
    "dtype": SAME,
    "to": SAME,
    "cuda": SAME,
    # Rewritten by a pass, or by a function with `@rewrites_member`.
    "state_dict": Member(calls_only=True),
    "load_state_dict": Member(calls_only=True),
    "clip_grad_norm_": Member(calls_only=True),
    "no_sync": Member(calls_only=True),
    "module": Member(),
    "forward": Member(),
    "summon_full_params": Member(),
    "_fsdp_wrapped_module": Member(),
    "fsdp_modules": Member(),
    "process_group": Member(),
    "rank": Member(),
    "world_size": Member(),
    "apply": Member(),
    # Without a counterpart in FSDP2.
    "register_comm_hook": Member(blocker=training.COMM_HOOK),
    "flat_param": Member(blocker=training.FLAT_PARAMETER, private=True),
    "_flat_param": Member(blocker=training.FLAT_PARAMETER, private=True),
    "_handle": Member(blocker=training.HANDLE, private=True, common_name=True),
    "_handles": Member(blocker=training.HANDLE, private=True, common_name=True),
    "check_is_root": Member(blocker=training.ROOT_ASKED, private=True),
    "_is_root": Member(blocker=training.ROOT_ASKED, private=True, common_name=True),
    "sharding_strategy": Member(blocker=training.STRATEGY_ASKED),
    "mixed_precision": Member(blocker=training.PRECISION_ASKED),
    "cpu_offload": Member(blocker=training.SETTING_ASKED),
    "backward_prefetch": Member(blocker=training.SETTING_ASKED),
    "forward_prefetch": Member(blocker=training.SETTING_ASKED),
    "limit_all_gathers": Member(blocker=training.SETTING_ASKED),
    "training_state": Member(blocker=training.TRAINING_STATE_ASKED),
    "compute_device": Member(blocker=training.DEVICE_ASKED),
    "set_state_dict_type": Member(blocker=training.SET_TYPE_OF_MODULE),
}
# The members with another meaning, or none, in FSDP2.
CHANGED = {name for name, member in MEMBERS.items() if not member.unchanged}

# Names within FSDP1 that are about its flat parameters.
FLAT_PARAMETER_NAMES = (
    "flat_param",
    "FlatParameter",
    "_get_fsdp_handles",
    "_runtime_utils",
    "_common_utils",
    "_traversal_utils",
    "_lazy_init",
)


def is_internal(name: str) -> bool:
    """Whether a name is not public."""
    return name.partition(".")[0] not in APIS


def is_rewritten_with_other(name: str) -> bool:
    """Whether the rewrite of another use accounts for a name."""
    head, _, member = name.partition(".")
    api = APIS.get(f"{FSDP}.{member}" if head == FSDP and member else head)
    return api is not None and api.rewritten_with_other


def api_of(name: str) -> Api | None:
    """The entry of a name, or of the API that it belongs to."""
    parts = name.split(".")
    while parts and ".".join(parts) not in APIS:
        parts.pop()
    return APIS.get(".".join(parts))


def advice_on(name: str) -> str:
    """The advice on a use of a name that is not rewritten."""
    api = api_of(name)
    return (api.advice if api is not None else advice.BY_HAND).format()


def _counterpart(api: Api) -> str:
    """The clause that names FSDP2's counterpart of an API, or says why there is none."""
    if api.becomes.startswith(NOTHING):
        return f"FSDP2 has no counterpart: {api.becomes.removeprefix(NOTHING)}"
    return f"its counterpart in FSDP2 is {api.becomes}"


def reason(name: str) -> Reason:
    """The reason for which a reference that no pass has accounted for blocks."""
    api = api_of(name)
    if api is not None:
        return blockers.API_USE(
            name=name, counterpart=_counterpart(api), advice=api.advice.format()
        )
    if any(part in name for part in FLAT_PARAMETER_NAMES):
        return blockers.FLAT_PARAMETER_INTERNAL(name=name)
    if name in STATIC_METHODS:
        return blockers.METHOD_AS_NAME(name=name)
    return blockers.INTERNAL(name=name)
