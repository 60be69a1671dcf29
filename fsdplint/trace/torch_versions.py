"""The torch versions of the FSDP2 APIs, for rules and fixes, with the source of each fact.

The versions were read from the wheels of torch 2.4 to 2.15 (`torch/distributed/fsdp/` and, before
2.6, `torch/distributed/_composable/fsdp/`). The behaviour was observed on torch 2.13.0.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = "2.4"  # the first torch with FSDP2
PUBLIC = "2.6"  # the first torch with torch.distributed.fsdp.fully_shard
NEWEST = "2.15"  # the newest torch that was read for this file
ROOT_RESHARDED_SINCE = "2.8"  # `reshard_after_forward=True` frees the root's parameters, too
WHOLE_NORM_SINCE = "2.10"  # `clip_grad_norm_` of DTensors returns the norm over all ranks
WHOLE_ANY_SINCE = "2.14"  # `any` and `all` of a DTensor are reduced over the ranks
MESH_SETS_DEVICE_SINCE = "2.8"  # DeviceMesh sets the device by LOCAL_RANK

FSDP = "torch.distributed.fsdp"
COMPOSABLE = "torch.distributed._composable"
OLD = f"{COMPOSABLE}.fsdp"


@dataclass(frozen=True)
class Since:
    """The torch version that added an API.

    Attributes:
        version: the first torch that has it.
        label: its name in messages.
        before: the replacement in older versions, as advice; "" if there is none.
        source: the evidence for the version.
    """

    version: str
    label: str
    before: str = ""
    source: str = "read from the wheels of torch 2.4 to 2.15"


def _method(name: str, version: str, before: str = "") -> tuple[str, Since]:
    return name, Since(version, f"`FSDPModule.{name}`", before)


# Methods of FSDPModule that not every torch with FSDP2 has.
METHODS: dict[str, Since] = dict(
    (
        _method("set_modules_to_forward_prefetch", "2.5"),
        _method("set_modules_to_backward_prefetch", "2.5"),
        _method("set_post_optim_event", "2.5"),
        _method("set_reduce_scatter_divide_factor", "2.5"),
        _method("set_unshard_in_backward", "2.6"),
        _method("set_all_reduce_hook", "2.7"),
        _method("set_reshard_after_forward", "2.8"),
        _method("set_gradient_divide_factor", "2.8", "`set_reduce_scatter_divide_factor`"),
        _method("set_force_sum_reduction_for_comms", "2.8"),
        _method("set_custom_all_gather", "2.9"),
        _method("set_custom_reduce_scatter", "2.9"),
        _method("set_symm_mem_for_comm", "2.12"),
        _method("reset_iter_state", "2.13"),
        _method("set_reduce_scatter_unused_params", "2.13"),
        _method("set_reduce_scatter_max_input_buffers", "2.13"),
        _method("set_separate_reduce_scatter_group", "2.13"),
        _method("set_keep_unsharded_storage", "2.15"),
        _method("set_manual_backward_finalization", "2.15"),
        _method("finalize_backward", "2.15"),
    )
)

# Arguments of fully_shard that not every torch with FSDP2 has.
ARGUMENTS: dict[str, Since] = {
    "shard_placement_fn": Since("2.6", "`fully_shard(shard_placement_fn=...)`"),
    "ignored_params": Since("2.7", "`fully_shard(ignored_params=...)`"),
    "dp_mesh_dims": Since("2.12", "`fully_shard(dp_mesh_dims=...)`", "a mesh of one or two dims"),
}

# Names that torch.distributed.fsdp exports, of FSDP2 alone (FSDP1's have been there for long).
_OLD_HOME = f"`{OLD}`"
NAMES: dict[str, Since] = {
    name: Since(PUBLIC, f"`{FSDP}.{name}`", _OLD_HOME)
    for name in (
        "fully_shard",
        "FSDPModule",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "CPUOffloadPolicy",
        "UnshardHandle",
        "register_fsdp_forward_method",
    )
} | {
    "share_comm_ctx": Since("2.10", f"`{FSDP}.share_comm_ctx`"),
    "DataParallelMeshDims": Since("2.12", f"`{FSDP}.DataParallelMeshDims`"),
    "GradientReductionHandle": Since("2.15", f"`{FSDP}.GradientReductionHandle`"),
}


def _private(name: str, version: str) -> tuple[str, Since]:
    return name, Since(
        version, f"`{OLD}.{name}`", source="read from the wheels of torch 2.2 to 2.4"
    )


# The package that had these names before 2.6, and the names that it did not have from the start.
PRIVATE = Since("2.3", f"`{OLD}`", source="read from the wheels of torch 2.2 to 2.4")
PRIVATE_NAMES: dict[str, Since] = dict(
    (
        _private("FSDPModule", "2.4"),
        _private("register_fsdp_forward_method", "2.4"),
        _private("OffloadPolicy", "2.4"),
        _private("CPUOffloadPolicy", "2.4"),
    )
)

# The modules of the FSDP2 names before 2.6. Torch 2.13 keeps the first two as aliases; an import of
# another one raises ModuleNotFoundError.
ALIASES = (OLD, f"{OLD}.fully_shard")
HOMES: dict[str, tuple[str, ...]] = {
    OLD: (
        "fully_shard",
        "FSDPModule",
        "register_fsdp_forward_method",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "CPUOffloadPolicy",
        "UnshardHandle",
    ),
    f"{OLD}.fully_shard": (
        "fully_shard",
        "FSDPModule",
        "register_fsdp_forward_method",
        "UnshardHandle",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "CPUOffloadPolicy",
    ),
    f"{OLD}._fsdp_api": ("MixedPrecisionPolicy", "OffloadPolicy", "CPUOffloadPolicy"),
}
# Names that an alias no longer has.
GONE = {(OLD, "UnshardHandle")} | {
    (f"{OLD}.fully_shard", name)
    for name in ("MixedPrecisionPolicy", "OffloadPolicy", "CPUOffloadPolicy")
}


def as_numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version: (2, 6) of "2.6.1"."""
    major, _, rest = version.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def older(one: str, other: str) -> bool:
    """Whether a torch version is older than another, as far as the first two numbers go."""
    return as_numbers(one) < as_numbers(other)
