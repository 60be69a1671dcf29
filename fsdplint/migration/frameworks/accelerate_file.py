"""A configuration file of `accelerate launch`, and what changes in its text."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.diagnostics.finding import Edit
from fsdplint.edits.config_edits import MappingEdit
from fsdplint.migration.frameworks.accelerate import Translation, translate
from fsdplint.migration.frameworks.versions import ACCELERATE, version_obstacle
from fsdplint.source.config_source import ConfigSource, Entry, Mapping, Scalar, Sequence

PREFIX = "fsdp_"
MESH_SINCE = "1.10"  # the Accelerate in which `parallelism_config` came


@dataclass(frozen=True)
class Translated:
    """A translation, and what is in its way with the key at which that stands, if at one."""

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
    """The keys without the prefix, which Accelerate puts before those that have none."""
    return {plain(entry): _plain_value(entry) for entry in mapping}


def plain(entry: Entry) -> str:
    return entry.key.text.removeprefix(PREFIX)


def _plain_value(entry: Entry) -> object:
    if isinstance(entry.value, Scalar):
        return entry.value.value
    if isinstance(entry.value, Sequence):
        return [item.value for item in entry.value.items if isinstance(item, Scalar)]
    return entry.value


def translated(config: ConfigSource, entry: Entry) -> Translated:
    """What the file's settings become."""
    top, mapping = config.top, entry.value
    assert isinstance(mapping, Mapping)
    wanted = translate(
        _settings(mapping),
        machines=_number(_value(top, "num_machines")),
        processes=_number(_value(top, "num_processes")),
        precision=str(_value(top, "mixed_precision")),
    )
    places = {plain(one): one for one in mapping}
    blockers: list[tuple[Entry | None, str]] = [
        (places.get(key), reason) for key, reason in wanted.blockers
    ]
    if len(places) < len(mapping.entries):
        blockers.append((entry, "a setting is given twice, with and without `fsdp_`"))
    if top.get("parallelism_config") is not None:
        blockers.append(
            (
                top.get("parallelism_config"),
                "Accelerate refuses a `parallelism_config` with FSDP1: say which of both is meant",
            )
        )
    since = MESH_SINCE if wanted.mesh else ACCELERATE
    old = version_obstacle("accelerate", since, config.path)
    if old:
        blockers.append((None, old))
    return Translated(wanted, tuple(blockers))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def edits_of(config: ConfigSource, entry: Entry, wanted: Translation) -> tuple[Edit, ...]:
    """The edits that carry a translation out. Raises ConfigError."""
    mapping = entry.value
    assert isinstance(mapping, Mapping)
    spelled = {plain(one): one.key.text for one in mapping}
    prefixed = any(text.startswith(PREFIX) for text in spelled.values())
    change = MappingEdit(config, mapping)
    for key in wanted.dropped:
        change.drop(spelled[key])
    for key, (name, value) in wanted.renamed.items():
        own = PREFIX if spelled[key].startswith(PREFIX) else ""
        change.rename(spelled[key], own + name, value)
    for key, value in wanted.values.items():
        # `version` has its prefix always: without it, it could be the file's own version.
        own = PREFIX if prefixed or key == "version" else ""
        change.set(spelled.get(key, own + key), value)
    if wanted.mesh is not None:
        change.after = _mesh(config, entry, wanted.mesh)
    return change.edits()


def _mesh(config: ConfigSource, entry: Entry, sizes: tuple[int, int]) -> list[str]:
    """The `parallelism_config` behind the `fsdp_config`, indented as that is."""
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
    if indent.strip() or outer.strip():  # all of it on one line
        pairs = [f"{quote}{n}{quote}: {s}" for n, s in zip(names, sizes, strict=True)]
        return [f", {quote}parallelism_config{quote}: {{{', '.join(pairs)}}}"]
    inner = ",\n".join(f"{indent}{quote}{n}{quote}: {s}" for n, s in zip(names, sizes, strict=True))
    return [f",\n{outer}{quote}parallelism_config{quote}: {{\n{inner}\n{outer}}}"]
