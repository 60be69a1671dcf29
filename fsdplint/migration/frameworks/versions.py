"""Which FSDP a framework is told to use, and whether the project's version of it knows FSDP2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.trace import FrameworkConfigured

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

ACCELERATE = "1.7"  # the first whose settings for FSDP2 are as they are written here
TRANSFORMERS = "5.10"  # the first whose TrainingArguments are those of FSDP2

# What only FSDP1 has, and what is there for it.
FSDP1_ONLY = {
    *("sharding_strategy", "backward_prefetch", "forward_prefetch", "limit_all_gathers"),
    *("sync_module_states", "use_orig_params", "param_init_fn"),
}


def is_fsdp1_plugin(options: Mapping[str, object]) -> bool:
    """Whether these are arguments of Accelerate's plugin for FSDP1.

    Where the version is not given, the environment decides, which has 1 by default: arguments that
    only FSDP1 has say that it is meant, and so does a policy of torch's with its own arguments:
    FSDP2 reads the plugin's names of classes instead.
    """
    version = options.get("fsdp_version")
    if version is not None:
        return version == 1
    strategy = options.get("reshard_after_forward")
    policy = options.get("auto_wrap_policy")
    if isinstance(policy, str) and policy.startswith("torch."):
        return True
    return any(key in options for key in FSDP1_ONLY) or isinstance(strategy, str)


def same_options(program: Program, event: FrameworkConfigured) -> dict[str, object]:
    """The options of a call, those that differ between the program's configurations unknown."""
    result = dict(event.options)
    for trace in program.traces:
        for other in trace.of(FrameworkConfigured):
            if other.site == event.site:
                for key in {*result, *other.options}:
                    if other.options.get(key, ...) != result.get(key, ...):
                        result[key] = ...
    return result


def version_obstacle(package: str, since: str, path: str) -> str | None:
    """Why a file's project can't have the settings of FSDP2, if its requirements say so."""
    from fsdplint.config.target_torch import too_old
    from fsdplint.source.folders import project_root

    old = too_old(package, since, Path(path), project_root(Path(path)))
    if old is None:
        return None
    name = package.capitalize()
    return f"FSDP2 is set up so since {name} {since}, and the project asks for less ({old})"
