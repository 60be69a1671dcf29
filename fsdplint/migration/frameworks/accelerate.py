"""What Accelerate's settings for FSDP1 are in its FSDP2.

The keys are named without their prefix `fsdp_`. What is said here of Accelerate was read in, and
tried with, Accelerate 1.15.0 on torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
PREFETCHES = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
STATE_TYPES = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")
DEFAULT_SIZE = 100_000_000  # of SIZE_BASED_WRAP, as `accelerate launch` has it
# What FSDP2 has no use for: it always does it, never, or in its own way.
GONE = (
    *("backward_prefetch", "backward_prefetch_policy", "forward_prefetch"),
    *("sync_module_states", "use_orig_params", "limit_all_gathers"),
)


@dataclass
class Translation:
    """What becomes of some settings.

    Attributes:
        dropped: keys that go.
        renamed: keys that get another name and value.
        values: keys that get a value; those that are not there yet are new.
        mesh: the sizes (replicate, shard) of the device mesh that has to be asked for.
        blockers: keys, and why what they say can't be said of FSDP2.
        doubts: why the program may not do the same.
        notes: what changes in cost or in a detail.
    """

    dropped: list[str] = field(default_factory=list)
    renamed: dict[str, tuple[str, object]] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)
    mesh: tuple[int, int] | None = None
    blockers: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def named(value: object, names: tuple[str, ...]) -> str | None:
    """The name that a setting means: itself in any case, or its number from 1."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
        number = int(value)
        return names[number - 1] if 1 <= number <= len(names) else None
    if not isinstance(value, str):
        return None
    name = value.upper().rpartition(".")[2]
    name = "HYBRID_SHARD_ZERO2" if name == "_HYBRID_SHARD_ZERO2" else name
    return name if name in names else None


def truth(value: object) -> bool | None:
    """A setting that is a truth value, as one or as text; None where it is not one."""
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in ("y", "yes", "t", "true", "on", "1"):
        return True
    return False if text in ("n", "no", "f", "false", "off", "0") else None


def translate(
    settings: Mapping[str, object],
    *,
    machines: int | None = None,
    processes: int | None = None,
    precision: str | None = None,
) -> Translation:
    """What the settings of an `fsdp_config` of `accelerate launch` become.

    Args:
        settings: keys without their prefix, and their values.
        machines: how many machines the program runs on, where the settings say it.
        processes: how many processes it has on all of them.
        precision: the mixed precision that it trains with.
    """
    result = Translation()
    _strategy(result, settings, machines, processes)
    _wrapping(result, settings)
    _states(result, settings)
    _loading(result, settings)
    _prefetching(result, settings)
    _precision(result, precision)
    if truth(settings.get("activation_checkpointing", False)) is not False:
        result.doubts.append(
            "checkpointed layers are recomputed with other random numbers, so that dropout in them "
            "gives wrong gradients"
        )
    if "use_orig_params" in settings and truth(settings["use_orig_params"]) is False:
        result.notes.append("the optimizer gets each parameter by itself, not flat ones")
    result.dropped += [key for key in GONE if key in settings]
    result.values["version"] = 2
    return result


def _strategy(
    result: Translation, settings: Mapping[str, object], machines: int | None, processes: int | None
) -> None:
    key = "sharding_strategy"
    if key not in settings:
        _reshard(result, settings)
        return
    name = named(settings[key], STRATEGIES)
    if name is None:
        result.blockers.append((key, f"{settings[key]!r} is no sharding strategy"))
    elif name == "NO_SHARD":
        result.blockers.append((key, NO_SHARD))
    elif name.startswith("HYBRID"):
        problem = _hybrid(machines, processes)
        if problem:
            result.blockers.append((key, problem))
        else:
            assert machines is not None and processes is not None
            result.mesh = (machines, processes // machines)
    value = name in ("FULL_SHARD", "HYBRID_SHARD")
    if "reshard_after_forward" in settings:
        result.dropped.append(key)
        result.values["reshard_after_forward"] = value
    else:
        result.renamed[key] = ("reshard_after_forward", value)


NO_SHARD = (
    "`NO_SHARD` replicates the model, which Accelerate's FSDP2 can't: use DistributedDataParallel "
    "(`distributed_type: MULTI_GPU`, without `fsdp_config`), or decide to shard"
)


def _hybrid(machines: int | None, processes: int | None) -> str | None:
    """Why no mesh can be given for `HYBRID_SHARD`, if so."""
    wanted = "`HYBRID_SHARD` shards within each machine and replicates across them: "
    if not machines or not processes:
        return wanted + (
            "FSDP2 needs the sizes, and `num_machines` and `num_processes` are not in this file"
        )
    if machines == 1:
        return wanted + (
            "on the one machine of this file it is `FULL_SHARD`, so write that, or the "
            "`num_machines` and `num_processes` that it is launched with"
        )
    if processes % machines or processes == machines:
        return wanted + f"{processes} processes on {machines} machines leave no such groups"
    return None


def _reshard(result: Translation, settings: Mapping[str, object]) -> None:
    """Settings for FSDP1 that name their strategy by FSDP2's key. FSDP1 did not get it."""
    key = "reshard_after_forward"
    if key not in settings:
        return
    value = settings[key]
    name = named(value, STRATEGIES)
    flag = truth(value) if name is None else name == "FULL_SHARD"
    if flag is None or (name is not None and name not in STRATEGIES[:2]):
        result.blockers.append(
            (
                key,
                f"{value!r} stands for FSDP1 at a key that Accelerate reads for FSDP2 only, so that "
                "FULL_SHARD was used; decide between true (that) and what it says",
            )
        )
        return
    result.values[key] = flag
    if not flag:
        result.doubts.append(
            "Accelerate's FSDP1 reads `fsdp_sharding_strategy` only and used FULL_SHARD; with "
            f"`fsdp_{key}: false`, as the file says, gathered layers stay in memory"
        )


def _wrapping(result: Translation, settings: Mapping[str, object]) -> None:
    policy = settings.get("auto_wrap_policy")
    if str(policy).upper() != "SIZE_BASED_WRAP":
        return
    size = settings.get("min_num_params", DEFAULT_SIZE)
    if size != 0:
        result.blockers.append(
            (
                "auto_wrap_policy",
                "`SIZE_BASED_WRAP` shards other modules in Accelerate's FSDP2, ModuleLists among "
                "them, which fails; name the layers with `TRANSFORMER_BASED_WRAP` and "
                "`fsdp_transformer_layer_cls_to_wrap`",
            )
        )


def _states(result: Translation, settings: Mapping[str, object]) -> None:
    key = "state_dict_type"
    value = settings.get(key)
    if value is None:
        result.values[key] = "FULL_STATE_DICT"  # the default of FSDP1, and not of FSDP2
    elif named(value, STATE_TYPES) == "LOCAL_STATE_DICT":
        result.blockers.append(
            (
                key,
                "FSDP2 has no `LOCAL_STATE_DICT`: choose SHARDED_STATE_DICT or FULL_STATE_DICT, and "
                "convert the checkpoints that are to be read on",
            )
        )


def _loading(result: Translation, settings: Mapping[str, object]) -> None:
    loading = truth(settings.get("cpu_ram_efficient_loading", True))
    ignored = settings.get("ignored_modules") is not None
    if loading is not False:
        if ignored:
            result.blockers.append(
                (
                    "ignored_modules",
                    "Accelerate's FSDP2 shards ignored modules all the same with "
                    "`fsdp_cpu_ram_efficient_loading`; set that to false if every rank builds the "
                    "same weights",
                )
            )
        return
    if ignored:
        result.doubts.append("clipped gradients of ignored modules are not quite the same")
    if truth(settings.get("sync_module_states", True)) is not False:
        result.doubts.append(
            "rank 0's weights are no longer sent to the others: each rank has to build the same "
            "ones, or `fsdp_cpu_ram_efficient_loading: true` has to send them"
        )


def _prefetching(result: Translation, settings: Mapping[str, object]) -> None:
    backward = settings.get("backward_prefetch")
    if named(backward, PREFETCHES) != "BACKWARD_PRE":
        result.notes.append("the next layer's weights are always prefetched in the backward")
    if truth(settings.get("forward_prefetch", False)):
        result.notes.append("no prefetch in the forward")


def _precision(result: Translation, precision: str | None) -> None:
    if precision in ("bf16", "fp16"):
        result.notes.append(f"the model's outputs are {precision}, no longer float32")
    elif precision == "fp8":
        result.doubts.append("fp8 goes through other code with FSDP2")
