"""`TrainingArguments(fsdp=..., fsdp_config=...)` of Transformers: what becomes of them for
FSDP2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fsdplint.migration.frameworks.accelerate import (
    PREFETCHES,
    STATE_TYPES,
    STRATEGIES,
    named,
    truth,
)

GONE = (
    *("backward_prefetch", "forward_prefetch", "sync_module_states", "use_orig_params"),
    *("limit_all_gathers", "backward_prefetch_policy"),
)
REMOVED = ("fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap")

Put = Callable[[str, object], None]


@dataclass
class Wanted:
    """What becomes of the settings.

    Attributes:
        dropped: keys of `fsdp_config` that go, as they are spelled.
        values: keys, as they are spelled, and their new values, those of new ones among them.
    """

    dropped: list[str] = field(default_factory=list)
    values: dict[str, object] = field(default_factory=dict)
    blockers: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def words_of(options: Mapping[str, object]) -> list[str] | None:
    """The options in `fsdp`, None where they are not known or it is the newer truth value."""
    value = options.get("fsdp")
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return [str(one).rpartition(".")[2].lower() for one in value]
    return None


def settings_of(options: Mapping[str, object]) -> dict[str, object] | None:
    """The `fsdp_config`, None where it is not known."""
    config = options.get("fsdp_config")
    if config is None:
        return {}
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        return None
    return dict(config)


def plain(settings: Mapping[str, object]) -> dict[str, object]:
    return {key.removeprefix("fsdp_"): value for key, value in settings.items()}


def is_fsdp1(options: Mapping[str, object]) -> bool:
    """Whether these are arguments for FSDP1, as far as Transformers before 5.10 read them."""
    words, settings = words_of(options), settings_of(options)
    if settings is None or plain(settings).get("xla") not in (None, False):
        return False
    version = plain(settings).get("version")
    if version is not None:
        on = bool(words) or options.get("fsdp") is True
        return on and str(version) == "1"
    return bool(words) and any(named(word, STRATEGIES) for word in words or ())


def translate(options: Mapping[str, object]) -> Wanted:
    """What these arguments become."""
    result = Wanted()
    written = settings_of(options)
    assert written is not None
    settings, words = plain(written), words_of(options) or ["full_shard"]
    prefix = "fsdp_" if any(key.startswith("fsdp_") for key in written) else ""
    spelled = {key.removeprefix("fsdp_"): key for key in written}

    def put(key: str, value: object) -> None:
        result.values[spelled.get(key, prefix + key)] = value

    if len(spelled) < len(written):
        result.blockers.append("a setting is given twice, with and without `fsdp_`")
    put("version", 2)
    _strategy(result, words, settings, put)
    _others(result, settings, words)
    result.blockers += [
        f"`{key}` is gone in Transformers 5: say it in `fsdp_config`"
        for key in REMOVED
        if options.get(key)
    ]
    result.dropped += [spelled[key] for key in GONE if key in settings]
    return result


def _strategy(result: Wanted, words: list[str], settings: Mapping[str, object], put: Put) -> None:
    names = [name for word in words if (name := named(word, STRATEGIES))]
    given = settings.get("reshard_after_forward")
    if len(names) > 1:
        result.blockers.append("`fsdp` names several strategies")
    elif names and names[0] == "NO_SHARD":
        result.blockers.append(
            "`no_shard` is no FSDP2: without `fsdp` it is DistributedDataParallel"
        )
    elif names and names[0].startswith("HYBRID"):
        result.blockers.append(
            f"`{names[0].lower()}` is refused with FSDP2: its mesh has to come from Accelerate "
            "(`parallelism_config` of `accelerate launch`)"
        )
    elif truth(given) is None or given is None:
        put("reshard_after_forward", not names or names[0] == "FULL_SHARD")


def _others(result: Wanted, settings: Mapping[str, object], words: list[str]) -> None:
    size = settings.get("min_num_params", 0)
    if size != 0 or str(settings.get("auto_wrap_policy", "")).upper() == "SIZE_BASED_WRAP":
        result.blockers.append(
            "wrapping by size shards other modules in Accelerate's FSDP2, ModuleLists among them, "
            "which fails; name the layers in `transformer_layer_cls_to_wrap`"
        )
    elif "auto_wrap" not in words and "auto_wrap_policy" not in settings:
        result.notes.append("each layer is sharded by itself, without `auto_wrap` as well")
    if named(settings.get("state_dict_type"), STATE_TYPES) == "LOCAL_STATE_DICT":
        result.blockers.append(
            "FSDP2 has no LOCAL_STATE_DICT: choose SHARDED_STATE_DICT or FULL_STATE_DICT"
        )
    if settings.get("ignored_modules") is not None:
        result.blockers.append("Transformers doesn't pass `ignored_modules` on")
    loads = truth(settings.get("cpu_ram_efficient_loading", False)) is True
    if not loads and truth(settings.get("sync_module_states", True)) is not False:
        result.doubts.append(
            "rank 0's weights are no longer sent to the others: each rank has to build the same "
            "ones, or `cpu_ram_efficient_loading` has to send them"
        )
    if truth(settings.get("activation_checkpointing", False)) is not False:
        result.doubts.append(
            "checkpointed layers are recomputed with other random numbers, so that dropout in them "
            "gives wrong gradients"
        )
    if named(settings.get("backward_prefetch"), PREFETCHES) != "BACKWARD_PRE":
        result.notes.append("the next layer's weights are always prefetched in the backward")
    if truth(settings.get("forward_prefetch", False)):
        result.notes.append("no prefetch in the forward")
