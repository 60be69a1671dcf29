"""Migrates the configuration files of `accelerate launch`."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.diagnostics.finding import Edit
from fsdplint.edits.config_edits import MappingEdit
from fsdplint.migration.frameworks import texts
from fsdplint.migration.frameworks.accelerate import STRATEGIES, Translation, translate
from fsdplint.migration.frameworks.versions import ACCELERATE, version_obstacle
from fsdplint.source.config_source import ConfigSource, Entry, Mapping, Scalar, Sequence

PREFIX = "fsdp_"
OLD_NAMES = ("sharding_strategy", "fsdp_sharding_strategy", "sharding strategy", *STRATEGIES)
MESH_SINCE = "1.10"  # the first Accelerate with `parallelism_config`


@dataclass(frozen=True)
class FileTranslation:
    """The translation of a file, and its blockers, each with its entry of the file, if any."""

    translation: Translation
    blockers: tuple[tuple[Entry | None, str], ...]


def fsdp1_entry(config: ConfigSource) -> Entry | None:
    """The `fsdp_config` of a file that makes Accelerate use FSDP1."""
    top = config.mapping
    if top is None or _value(top, "distributed_type") != "FSDP":
        return None
    if _value(top, "compute_environment") not in (None, "LOCAL_MACHINE"):
        return None
    entry = top.get("fsdp_config")
    if entry is None or not isinstance(entry.value, Mapping) or not entry.value.entries:
        return None
    version = next((v for k, v in _settings(entry.value).items() if k == "version"), 1)
    return entry if str(version) == "1" else None


def _value(mapping: Mapping, key: str) -> object:
    entry = mapping.get(key)
    return entry.value.value if entry and isinstance(entry.value, Scalar) else None


def _settings(mapping: Mapping) -> dict[str, object]:
    """The settings without the prefix of their keys, which Accelerate adds where it is missing."""
    return {key_without_prefix(entry): _python_value(entry) for entry in mapping}


def key_without_prefix(entry: Entry) -> str:
    return entry.key.text.removeprefix(PREFIX)


def _python_value(entry: Entry) -> object:
    if isinstance(entry.value, Scalar):
        return entry.value.value
    if isinstance(entry.value, Sequence):
        return [item.value for item in entry.value.items if isinstance(item, Scalar)]
    return entry.value


def translate_file(config: ConfigSource, entry: Entry) -> FileTranslation:
    """Translate the settings of a file."""
    top, mapping = config.top, entry.value
    assert isinstance(mapping, Mapping)
    translation = translate(
        _settings(mapping),
        machines=_number(_value(top, "num_machines")),
        processes=_number(_value(top, "num_processes")),
        precision=str(_value(top, "mixed_precision")),
    )
    entries = {key_without_prefix(each): each for each in mapping}
    blockers: list[tuple[Entry | None, str]] = [
        (entries.get(key), reason) for key, reason in translation.blockers
    ]
    if len(entries) < len(mapping.entries):
        blockers.append((entry, texts.TWICE))
    if top.get("parallelism_config") is not None:
        blockers.append(
            (
                top.get("parallelism_config"),
                "Accelerate rejects a `parallelism_config` with FSDP1: choose one of the two",
            )
        )
    since = MESH_SINCE if translation.mesh else ACCELERATE
    old = version_obstacle("accelerate", since, config.path)
    if old:
        blockers.append((None, old))
    return FileTranslation(translation, tuple(blockers))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def edits_of(config: ConfigSource, entry: Entry, translation: Translation) -> tuple[Edit, ...]:
    """The edits of a translation.

    Raises:
        ConfigError: the text of the file cannot be edited.
    """
    mapping = entry.value
    assert isinstance(mapping, Mapping)
    file_keys = {key_without_prefix(each): each.key.text for each in mapping}
    prefixed = any(text.startswith(PREFIX) for text in file_keys.values())
    change = MappingEdit(config, mapping)
    for key in translation.removed_keys:
        change.drop(file_keys[key])
    for key, (name, value) in translation.renamed_keys.items():
        prefix = PREFIX if file_keys[key].startswith(PREFIX) else ""
        change.rename(file_keys[key], prefix + name, value, OLD_NAMES)
    for key, value in translation.new_values.items():
        # `version` always has its prefix: without it, it could be the version of the file.
        prefix = PREFIX if prefixed or key == "version" else ""
        change.set(file_keys.get(key, prefix + key), value)
    if translation.mesh is not None:
        change.after = _mesh(config, entry, translation.mesh)
    return change.edits()


def _mesh(config: ConfigSource, entry: Entry, sizes: tuple[int, int]) -> list[str]:
    """The lines of the `parallelism_config` after the `fsdp_config`, with its indentation."""
    mapping = entry.value
    assert isinstance(mapping, Mapping)
    names = ("parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size")
    start = config.line_start(mapping.entries[0].key.start)
    indent = config.text[start : mapping.entries[0].key.start]
    if not config.top.flow:
        if mapping.flow:
            indent = "  "
        pairs = [f"{indent}{name}: {size}" for name, size in zip(names, sizes, strict=True)]
        return ["parallelism_config:", *pairs]
    quote = entry.key.quote
    outer = config.text[config.line_start(entry.key.start) : entry.key.start]
    if indent.strip() or outer.strip():  # everything is on one line
        pairs = [f"{quote}{n}{quote}: {s}" for n, s in zip(names, sizes, strict=True)]
        return [f", {quote}parallelism_config{quote}: {{{', '.join(pairs)}}}"]
    inner = ",\n".join(f"{indent}{quote}{n}{quote}: {s}" for n, s in zip(names, sizes, strict=True))
    return [f",\n{outer}{quote}parallelism_config{quote}: {{\n{inner}\n{outer}}}"]
