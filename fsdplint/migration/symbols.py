"""Every public name of FSDP1 and what becomes of it.

A use that no rewrite has accounted for blocks the migration; the reason is what stands here. A name
with a dot is an argument of a call or a member of a class. `tests/migration/test_symbols.py` has a
program for each.
"""

from __future__ import annotations

FSDP = "FullyShardedDataParallel"

BECOMES = {
    # The class and the arguments of its constructor
    FSDP: "`fully_shard` of the submodules and then of the model, in place",
    f"{FSDP}.module": "the first argument of `fully_shard`; as an attribute, the model itself",
    f"{FSDP}.process_group": "a `mesh` of the group; a tuple of groups is a mesh of two dimensions",
    f"{FSDP}.sharding_strategy": "`reshard_after_forward` and a `mesh`",
    f"{FSDP}.cpu_offload": "`offload_policy=CPUOffloadPolicy()`",
    f"{FSDP}.auto_wrap_policy": "a loop over the submodules that it picks",
    f"{FSDP}.backward_prefetch": "nothing: FSDP2 always prefetches as BACKWARD_PRE does",
    f"{FSDP}.mixed_precision": "`mp_policy=MixedPrecisionPolicy(...)`",
    f"{FSDP}.ignored_modules": "`ignored_params` of `fully_shard`",
    f"{FSDP}.param_init_fn": "memory after sharding on meta, and the initialisation",
    f"{FSDP}.device_id": "`torch.cuda.set_device`, or the device of the mesh",
    f"{FSDP}.sync_module_states": "a broadcast of rank 0's parameters and buffers",
    f"{FSDP}.forward_prefetch": "nothing: it only changes the order of communication",
    f"{FSDP}.limit_all_gathers": "nothing: FSDP2 needs no limit",
    f"{FSDP}.use_orig_params": "nothing: FSDP2 always has the original parameters",
    f"{FSDP}.ignored_states": "`ignored_params` of `fully_shard`",
    f"{FSDP}.device_mesh": "`mesh`",
    # Its methods and attributes
    f"{FSDP}.apply": "the same on sharded parameters, where the function needs no whole ones",
    f"{FSDP}.check_is_root": "nothing: the root is the module that the program calls",
    f"{FSDP}.clip_grad_norm_": "`torch.nn.utils.clip_grad_norm_`",
    f"{FSDP}.forward": "a call of the model",
    f"{FSDP}.fsdp_modules": "the modules that are an `FSDPModule`",
    f"{FSDP}.named_buffers": "the same: names have no prefixes to be taken off",
    f"{FSDP}.named_parameters": "the same: names have no prefixes to be taken off",
    f"{FSDP}.no_sync": "`set_requires_gradient_sync`",
    f"{FSDP}.register_comm_hook": "nothing of the kind: `set_custom_reduce_scatter` and "
    "`set_all_reduce_hook` replace single collectives",
    f"{FSDP}.summon_full_params": "`unshard()` and `reshard()` around what reads, `full_tensor()`, or "
    "writes to the sharded parameters",
    f"{FSDP}.state_dict_type": "the options of `get_model_state_dict` and `set_model_state_dict`",
    f"{FSDP}.set_state_dict_type": "the options of `get_model_state_dict` and its like",
    f"{FSDP}.get_state_dict_type": "nothing: states of FSDP2 have no type that is set; what the "
    "program asks it for is the options that it passes to `get_model_state_dict`",
    f"{FSDP}.full_optim_state_dict": "`get_optimizer_state_dict` with `full_state_dict=True`",
    f"{FSDP}.sharded_optim_state_dict": "`get_optimizer_state_dict`",
    f"{FSDP}.optim_state_dict": "`get_optimizer_state_dict`",
    f"{FSDP}.optim_state_dict_to_load": "`set_optimizer_state_dict`",
    f"{FSDP}.shard_full_optim_state_dict": "`set_optimizer_state_dict` with `full_state_dict=True`",
    f"{FSDP}.scatter_full_optim_state_dict": "`set_optimizer_state_dict` with "
    "`broadcast_from_rank0=True`",
    f"{FSDP}.flatten_sharded_optim_state_dict": "`set_optimizer_state_dict`",
    f"{FSDP}.rekey_optim_state_dict": "nothing: optimizer states of FSDP2 have the names of parameters "
    "as keys, and `set_optimizer_state_dict` takes them",
    f"{FSDP}.rank": "`get_rank` of the group",
    f"{FSDP}.world_size": "`get_world_size` of the group",
    f"{FSDP}.compute_device": "nothing: `next(model.parameters()).device`",
    f"{FSDP}._fsdp_wrapped_module": "the model itself",
    f"{FSDP}._handle": "nothing: there are no flat parameters",
    # Enums and configurations
    "ShardingStrategy": "the name of the strategy, and what `fully_shard` gets for it",
    "ShardingStrategy.FULL_SHARD": "the default of `fully_shard`",
    "ShardingStrategy.SHARD_GRAD_OP": "`reshard_after_forward=False`",
    "ShardingStrategy.NO_SHARD": "replicas: a mesh whose second dimension is 1",
    "ShardingStrategy.HYBRID_SHARD": "a mesh of two dimensions",
    "ShardingStrategy._HYBRID_SHARD_ZERO2": "a mesh of two dimensions, `reshard_after_forward=False`",
    "BackwardPrefetch": "nothing: FSDP2 always prefetches",
    "BackwardPrefetch.BACKWARD_PRE": "nothing: FSDP2 does this always",
    "BackwardPrefetch.BACKWARD_POST": "nothing: FSDP2 prefetches earlier, for more memory",
    "CPUOffload": "`CPUOffloadPolicy`",
    "CPUOffload.offload_params": "`CPUOffloadPolicy()` or nothing",
    "MixedPrecision": "`MixedPrecisionPolicy`",
    "MixedPrecision.param_dtype": "`param_dtype`",
    "MixedPrecision.reduce_dtype": "`reduce_dtype`, written out where it was `param_dtype`",
    "MixedPrecision.buffer_dtype": "a cast of the buffers after sharding",
    "MixedPrecision.keep_low_precision_grads": "nothing: gradients have the type of the parameters",
    "MixedPrecision.cast_forward_inputs": "`cast_forward_inputs` of the submodules' policy",
    "MixedPrecision.cast_root_forward_inputs": "`cast_forward_inputs` of the root's policy",
    "MixedPrecision._module_classes_to_ignore": "a policy of their own for modules of these classes",
    "StateDictType": "options of `get_model_state_dict`",
    "StateDictType.FULL_STATE_DICT": "`StateDictOptions(full_state_dict=True)`",
    "StateDictType.SHARDED_STATE_DICT": "`get_model_state_dict` without options",
    "StateDictType.LOCAL_STATE_DICT": "`get_model_state_dict` without options, where the program "
    "itself loads what it saves; nothing else, since FSDP2 has no flat parts of a state",
    "StateDictConfig": "`StateDictOptions`",
    "FullStateDictConfig": "`StateDictOptions(full_state_dict=True, cpu_offload=...)`",
    "ShardedStateDictConfig": "`StateDictOptions(cpu_offload=...)`",
    "LocalStateDictConfig": "nothing: FSDP2 has no flat parts of a state",
    "OptimStateDictConfig": "`StateDictOptions` of `get_optimizer_state_dict`",
    "FullOptimStateDictConfig": "`StateDictOptions(full_state_dict=True, cpu_offload=...)`",
    "ShardedOptimStateDictConfig": "`StateDictOptions(cpu_offload=...)`",
    "LocalOptimStateDictConfig": "nothing: FSDP2 has no flat parts of a state",
    "StateDictSettings": "nothing: the options are arguments of each call",
    "OptimStateKeyType": "nothing: optimizer states of FSDP2 have the names of parameters as keys",
    "FlatParameter": "nothing: each parameter is a DTensor with its own name",
    # torch.distributed.fsdp.wrap
    "ModuleWrapPolicy": "a loop over the submodules of these classes",
    "CustomPolicy": "a loop over the submodules that its function picks",
    "always_wrap_policy": "a loop over the submodules that have a forward",
    "lambda_auto_wrap_policy": "a loop over the submodules for which the function holds",
    "transformer_auto_wrap_policy": "a loop over the submodules of these classes",
    "size_based_auto_wrap_policy": "a function that counts parameters as FSDP1 does",
    "_or_policy": "one loop over what either picks",
    "_module_wrap_policy": "a loop over the submodules of these classes",
    "enable_wrap": "nothing: its arguments go to each `fully_shard` in the block",
    "wrap": "`fully_shard` with the arguments of the block around it",
    # The rest
    "ShardedGradScaler": "`torch.amp.GradScaler`",
    "ShardedGradScaler.process_group": "nothing: the scaler asks the ranks that hold the gradients",
}


def is_internal(name: str) -> bool:
    """Whether a name is none of FSDP1's public ones."""
    return name.partition(".")[0] not in BECOMES


def reason(name: str) -> str:
    """Why a reference that nothing has accounted for blocks, and what FSDP2 has for it."""
    parts = name.split(".")
    while parts and ".".join(parts) not in BECOMES:
        parts.pop()
    known = BECOMES.get(".".join(parts))
    if known is None:
        return f"`{name}` is a part of FSDP1's inside that FSDP2 does not have"
    return f"this use of `{name}` cannot be rewritten; in FSDP2 it is {known}"
