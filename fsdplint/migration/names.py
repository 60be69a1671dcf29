"""FSDP1's names, and which references are to them."""

from __future__ import annotations

from fsdplint.source.fsdp_words import FSDP2_PACKAGE, FSDP_PACKAGE
from fsdplint.syntax.qualified_names import FSDP1_HOMES, FSDP2

# Submodules that may stand between the package and a name.
SUBMODULES = frozenset(
    {
        "api",
        "wrap",
        "fully_sharded_data_parallel",
        "sharded_grad_scaler",
    }
)
PREFIX = FSDP_PACKAGE
FSDP = "FullyShardedDataParallel"
# The parameters of its constructor, in their order.
PARAMETERS = (
    "module",
    "process_group",
    "sharding_strategy",
    "cpu_offload",
    "auto_wrap_policy",
    "backward_prefetch",
    "mixed_precision",
    "ignored_modules",
    "param_init_fn",
    "device_id",
    "sync_module_states",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "ignored_states",
    "device_mesh",
)
# Those that leave parameters out, with the name that torch 2.0 had.
IGNORED = ("ignored_modules", "ignored_states", "ignored_parameters")
# What gets the arguments of the constructor.
WRAPPING = (FSDP, "enable_wrap", "wrap")
STRATEGIES = (
    "FULL_SHARD",
    "SHARD_GRAD_OP",
    "NO_SHARD",
    "HYBRID_SHARD",
    "_HYBRID_SHARD_ZERO2",
)


# Methods that only FSDP1's wrapper has.
WRAPPER_METHODS = {
    "check_is_root",
    "clip_grad_norm_",
    "fsdp_modules",
    "optim_state_dict_to_load",
    "register_comm_hook",
    "rekey_optim_state_dict",
    "scatter_full_optim_state_dict",
    "set_state_dict_type",
    "shard_full_optim_state_dict",
    "state_dict_type",
    "summon_full_params",
}


# The static methods of FSDP1's class: they get the model as an argument.
STATIC_METHODS = {
    "flatten_sharded_optim_state_dict",
    "fsdp_modules",
    "full_optim_state_dict",
    "get_state_dict_type",
    "optim_state_dict",
    "optim_state_dict_to_load",
    "rekey_optim_state_dict",
    "scatter_full_optim_state_dict",
    "set_state_dict_type",
    "shard_full_optim_state_dict",
    "sharded_optim_state_dict",
    "state_dict_type",
    "summon_full_params",
}


def fsdp1_name(full: str) -> str | None:
    """The FSDP1 name in a canonical dotted name: "ShardingStrategy.FULL_SHARD", "wrap", ...

    None for names of FSDP2 (its private modules too) and of anything that is not in torch's FSDP
    package.
    """
    if not full.startswith(PREFIX + ".") or f"{full}.".startswith(FSDP2_PACKAGE + "."):
        return None
    parts = full[len(PREFIX) + 1 :].split(".")
    place = next((n for n, part in enumerate(parts) if not part.islower()), 0)
    if parts[place] in FSDP1_HOMES and not any(part.startswith("_") for part in parts[:place]):
        parts = parts[place:]  # also from a module that does not have it
    while len(parts) > 1 and parts[0] in SUBMODULES:
        parts = parts[1:]
    if not parts or parts[0] in FSDP2:
        return None
    return ".".join(parts)


# Arguments of FSDP1's constructor that leave no text in the new code.
NO_COUNTERPART = ("use_orig_params", "limit_all_gathers", "forward_prefetch", "backward_prefetch")
