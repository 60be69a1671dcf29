"""Translates `TrainingArguments(fsdp=..., fsdp_config=...)` of Transformers to FSDP2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fsdplint.migration.frameworks import texts
from fsdplint.migration.frameworks.accelerate import (
    PREFETCHES,
    STATE_TYPES,
    STRATEGIES,
    setting_name,
    truth,
)

REMOVED_SETTINGS = (
    *("backward_prefetch", "forward_prefetch", "sync_module_states", "use_orig_params"),
    *("limit_all_gathers", "backward_prefetch_policy"),
)
REMOVED_ARGUMENTS = ("fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap")

SetValue = Callable[[str, object], None]


@dataclass
class ArgumentChanges:
    """The changes to the settings.

    Attributes:
        removed_keys: keys of `fsdp_config` to remove, as the program spells them.
        new_values: the new values of keys, including new keys.
        blockers: reasons why FSDP2 has no such settings.
        doubts: reasons why the program may behave differently.
        notes: changes in cost or in a detail.
    """

    removed_keys: list[str] = field(default_factory=list)
    new_values: dict[str, object] = field(default_factory=dict)
    blockers: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def words_of(options: Mapping[str, object]) -> list[str] | None:
    """The options in `fsdp`; None if they are unknown or `fsdp` is a truth value."""
    value = options.get("fsdp")
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return [str(one).rpartition(".")[2].lower() for one in value]
    return None


def settings_of(options: Mapping[str, object]) -> dict[str, object] | None:
    """The settings of `fsdp_config`, empty without it; None if they are unknown."""
    config = options.get("fsdp_config")
    if config is None:
        return {}
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        return None
    return dict(config)


def without_prefixes(settings: Mapping[str, object]) -> dict[str, object]:
    return {key.removeprefix("fsdp_"): value for key, value in settings.items()}


def is_fsdp1(options: Mapping[str, object]) -> bool:
    """Whether Transformers before 5.10 selects FSDP1 for these arguments."""
    words, settings = words_of(options), settings_of(options)
    if settings is None or without_prefixes(settings).get("xla") not in (None, False):
        return False
    version = without_prefixes(settings).get("version")
    if version is not None:
        uses_fsdp = bool(words) or options.get("fsdp") is True
        return uses_fsdp and str(version) == "1"
    return bool(words) and any(setting_name(word, STRATEGIES) for word in words or ())


def translate(options: Mapping[str, object]) -> ArgumentChanges:
    """Translate these arguments."""
    result = ArgumentChanges()
    config = settings_of(options)
    assert config is not None
    settings, words = without_prefixes(config), words_of(options) or ["full_shard"]
    prefix = "fsdp_" if any(key.startswith("fsdp_") for key in config) else ""
    full_keys = {key.removeprefix("fsdp_"): key for key in config}

    def set_value(key: str, value: object) -> None:
        result.new_values[full_keys.get(key, prefix + key)] = value

    if len(full_keys) < len(config):
        result.blockers.append(texts.TWICE)
    set_value("version", 2)
    _strategy(result, words, settings, set_value)
    _translate_rest(result, settings, words)
    result.blockers += [
        f"Transformers 5 does not have `{key}`: set it in `fsdp_config`"
        for key in REMOVED_ARGUMENTS
        if options.get(key)
    ]
    result.removed_keys += [full_keys[key] for key in REMOVED_SETTINGS if key in settings]
    return result


def _strategy(
    result: ArgumentChanges, words: list[str], settings: Mapping[str, object], set_value: SetValue
) -> None:
    names = [name for word in words if (name := setting_name(word, STRATEGIES))]
    given = settings.get("reshard_after_forward")
    if len(names) > 1:
        result.blockers.append("`fsdp` names several strategies")
    elif names and names[0] == "NO_SHARD":
        result.blockers.append(
            "FSDP2 has no `no_shard`: DistributedDataParallel does this without `fsdp`"
        )
    elif names and names[0].startswith("HYBRID"):
        result.blockers.append(
            f"FSDP2 rejects `{names[0].lower()}`: its mesh has to come from Accelerate "
            "(`parallelism_config` of `accelerate launch`)"
        )
    elif truth(given) is None or given is None:
        set_value("reshard_after_forward", not names or names[0] == "FULL_SHARD")


def _translate_rest(
    result: ArgumentChanges, settings: Mapping[str, object], words: list[str]
) -> None:
    size = settings.get("min_num_params", 0)
    if size != 0 or str(settings.get("auto_wrap_policy", "")).upper() == "SIZE_BASED_WRAP":
        result.blockers.append(texts.SIZE_POLICY.format("in `transformer_layer_cls_to_wrap`"))
    elif "auto_wrap" not in words and "auto_wrap_policy" not in settings:
        result.notes.append("each layer is sharded separately, also without `auto_wrap`")
    if setting_name(settings.get("state_dict_type"), STATE_TYPES) == "LOCAL_STATE_DICT":
        result.blockers.append(texts.NO_LOCAL_STATE)
    if settings.get("ignored_modules") is not None:
        result.blockers.append("Transformers does not pass on `ignored_modules`")
    loads = truth(settings.get("cpu_ram_efficient_loading", False)) is True
    if not loads and truth(settings.get("sync_module_states", True)) is not False:
        result.doubts.append(texts.WEIGHTS_NOT_SENT.format("cpu_ram_efficient_loading"))
    if truth(settings.get("activation_checkpointing", False)) is not False:
        result.doubts.append(texts.RECOMPUTED)
    if setting_name(settings.get("backward_prefetch"), PREFETCHES) != "BACKWARD_PRE":
        result.notes.append(texts.PREFETCHES_BACKWARD)
    if truth(settings.get("forward_prefetch", False)):
        result.notes.append(texts.NO_FORWARD_PREFETCH)
