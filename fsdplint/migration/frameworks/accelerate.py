"""Translates Accelerate's settings for FSDP1 to those for FSDP2.

The keys stand without their prefix `fsdp_`. The behaviour of Accelerate was read in its source and
tested with Accelerate 1.15.0 on torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fsdplint.migration.frameworks import texts

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
PREFETCHES = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
STATE_TYPES = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")
DEFAULT_SIZE = 100_000_000  # the default of `accelerate launch` for SIZE_BASED_WRAP
# Settings that FSDP2 does not have: it always does this, never, or in another way.
REMOVED_SETTINGS = (
    *("backward_prefetch", "backward_prefetch_policy", "forward_prefetch"),
    *("sync_module_states", "use_orig_params", "limit_all_gathers"),
)


@dataclass
class Translation:
    """The changes to some settings.

    Attributes:
        removed_keys: keys to remove.
        renamed_keys: the new name and the new value of keys.
        new_values: the new values of keys, including new keys.
        mesh: the sizes (replicate, shard) of the device mesh that the settings have to request.
        blockers: keys with the reason why FSDP2 has no such setting.
        doubts: reasons why the program may behave differently.
        notes: changes in cost or in a detail.
    """

    removed_keys: list[str] = field(default_factory=list)
    renamed_keys: dict[str, tuple[str, object]] = field(default_factory=dict)
    new_values: dict[str, object] = field(default_factory=dict)
    mesh: tuple[int, int] | None = None
    blockers: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def setting_name(value: object, names: tuple[str, ...]) -> str | None:
    """The name of a setting in upper case, also from its number, which starts at 1; None if it is
    not among the names.
    """
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
    """The truth value of a setting, also from its text; None if it is not one."""
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
    """Translate the settings of an `fsdp_config` of `accelerate launch`.

    Args:
        settings: the values of the keys without their prefix.
        machines: the number of machines, if the file has it.
        processes: the number of processes on all machines, if the file has it.
        precision: the mixed precision of the training.
    """
    result = Translation()
    _strategy(result, settings, machines, processes)
    _wrapping(result, settings)
    _state_dicts(result, settings)
    _loading(result, settings)
    _prefetching(result, settings)
    _precision(result, precision)
    if truth(settings.get("activation_checkpointing", False)) is not False:
        result.doubts.append(texts.RECOMPUTED)
    if "use_orig_params" in settings and truth(settings["use_orig_params"]) is False:
        result.notes.append(texts.SEPARATE_PARAMETERS)
    result.removed_keys += [key for key in REMOVED_SETTINGS if key in settings]
    result.new_values["version"] = 2
    return result


def _strategy(
    result: Translation, settings: Mapping[str, object], machines: int | None, processes: int | None
) -> None:
    key = "sharding_strategy"
    if key not in settings:
        _reshard(result, settings)
        return
    name = setting_name(settings[key], STRATEGIES)
    if name is None:
        result.blockers.append((key, f"{settings[key]!r} is not a sharding strategy"))
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
        result.removed_keys.append(key)
        result.new_values["reshard_after_forward"] = value
    else:
        result.renamed_keys[key] = ("reshard_after_forward", value)


NO_SHARD = (
    "`NO_SHARD` replicates the model, which Accelerate's FSDP2 cannot: use DistributedDataParallel "
    "(`distributed_type: MULTI_GPU`, without `fsdp_config`), or choose to shard"
)


def _hybrid(machines: int | None, processes: int | None) -> str | None:
    """The reason why there is no mesh for `HYBRID_SHARD`, or None."""
    meaning = "`HYBRID_SHARD` shards within each machine and replicates across them: "
    if not machines or not processes:
        return meaning + (
            "FSDP2 needs the sizes, and `num_machines` and `num_processes` are not in this file"
        )
    if machines == 1:
        return meaning + (
            "on the one machine of this file this is `FULL_SHARD`, so write that, or write the "
            "`num_machines` and `num_processes` of the launch"
        )
    if processes % machines or processes == machines:
        return meaning + f"{processes} processes on {machines} machines do not form such groups"
    return None


def _reshard(result: Translation, settings: Mapping[str, object]) -> None:
    """Translate settings that give the strategy at FSDP2's key, which FSDP1 does not read."""
    key = "reshard_after_forward"
    if key not in settings:
        return
    value = settings[key]
    name = setting_name(value, STRATEGIES)
    flag = truth(value) if name is None else name == "FULL_SHARD"
    if flag is None or (name is not None and name not in STRATEGIES[:2]):
        result.blockers.append(
            (
                key,
                f"{value!r} is a strategy of FSDP1 at a key that only FSDP2 reads, so FSDP1 used "
                "FULL_SHARD; choose between true (FULL_SHARD) and this strategy",
            )
        )
        return
    result.new_values[key] = flag
    if not flag:
        result.doubts.append(
            "Accelerate's FSDP1 reads only `fsdp_sharding_strategy` and used FULL_SHARD, but with "
            f"`fsdp_{key}: false` of this file, gathered layers stay in memory"
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
                texts.SIZE_POLICY.format(
                    "with `TRANSFORMER_BASED_WRAP` and `fsdp_transformer_layer_cls_to_wrap`"
                ),
            )
        )


def _state_dicts(result: Translation, settings: Mapping[str, object]) -> None:
    key = "state_dict_type"
    value = settings.get(key)
    if value is None:
        result.new_values[key] = "FULL_STATE_DICT"  # the default of FSDP1, but not of FSDP2
    elif setting_name(value, STATE_TYPES) == "LOCAL_STATE_DICT":
        reason = f"{texts.NO_LOCAL_STATE}, and convert the checkpoints that are still needed"
        result.blockers.append((key, reason))


def _loading(result: Translation, settings: Mapping[str, object]) -> None:
    loading = truth(settings.get("cpu_ram_efficient_loading", True))
    ignored = settings.get("ignored_modules") is not None
    if loading is not False:
        if ignored:
            result.blockers.append(
                (
                    "ignored_modules",
                    "Accelerate's FSDP2 shards ignored modules, too, with "
                    "`fsdp_cpu_ram_efficient_loading`; set it to false if each rank builds the "
                    "same weights",
                )
            )
        return
    if ignored:
        result.doubts.append("clipped gradients of ignored modules differ slightly")
    if truth(settings.get("sync_module_states", True)) is not False:
        result.doubts.append(texts.WEIGHTS_NOT_SENT.format("fsdp_cpu_ram_efficient_loading: true"))


def _prefetching(result: Translation, settings: Mapping[str, object]) -> None:
    backward = settings.get("backward_prefetch")
    if setting_name(backward, PREFETCHES) != "BACKWARD_PRE":
        result.notes.append(texts.PREFETCHES_BACKWARD)
    if truth(settings.get("forward_prefetch", False)):
        result.notes.append(texts.NO_FORWARD_PREFETCH)


def _precision(result: Translation, precision: str | None) -> None:
    if precision in ("bf16", "fp16"):
        result.notes.append(f"the model's outputs are {precision} instead of float32")
    elif precision == "fp8":
        result.doubts.append("FSDP2 computes fp8 with other code")
