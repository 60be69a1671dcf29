"""The FSDP that a framework is configured for, and the versions of frameworks with FSDP2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ACCELERATE = "1.7"  # the first with these settings for FSDP2
LIGHTNING = "2.3"  # the first with a strategy for FSDP2
TRANSFORMERS = "5.10"  # the first whose TrainingArguments select FSDP2

# Arguments that only FSDP1 has.
FSDP1_ONLY = {
    *("sharding_strategy", "backward_prefetch", "forward_prefetch", "limit_all_gathers"),
    *("sync_module_states", "use_orig_params", "param_init_fn"),
}


def is_fsdp1_plugin(options: Mapping[str, object]) -> bool:
    """Whether these are arguments of Accelerate's plugin for FSDP1.

    Without a version, the environment decides, and its default is 1. Then arguments that only FSDP1
    has select FSDP1 here, and a policy of torch does, too: FSDP2 reads names of classes instead.
    """
    version = options.get("fsdp_version")
    if version is not None:
        return version == 1
    strategy = options.get("reshard_after_forward")
    policy = options.get("auto_wrap_policy")
    if isinstance(policy, str) and policy.startswith("torch."):
        return True
    return any(key in options for key in FSDP1_ONLY) or isinstance(strategy, str)


def version_obstacle(package: str, since: str, path: str) -> str | None:
    """Why the requirements of a file's project exclude the settings of FSDP2, or None."""
    from fsdplint.config.target_torch import too_old
    from fsdplint.source.folders import project_root

    old = too_old(package, since, Path(path), project_root(Path(path)))
    if old is None:
        return None
    name = package.capitalize()
    return (
        f"{name} has these settings of FSDP2 since {since}, and the project requires less ({old})"
    )
