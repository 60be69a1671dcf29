"""How `accelerate launch` configures FSDP for a program that does not do so itself.

A script or document of the project starts the program with options of the launcher or with a file
of its settings. They stand for the plugin that an Accelerator makes of them.
"""

from __future__ import annotations

import os
import re

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Unknown, constant
from fsdplint.source.config_source import Mapping, Scalar
from fsdplint.source.launch_commands import Launch

PLUGIN = "accelerate.utils.FullyShardedDataParallelPlugin"
_PREFIX = "fsdp_"
_OF_SHARDING = re.compile(r"fsdp|shard", re.IGNORECASE)
_SWITCHED_ON = "[switched on]"  # the part of a plugin with the flags of the program


def launched_plugin(run: Run) -> Unknown | None:
    """The plugin of a program that some command starts with FSDP; None if there is none."""
    main = run.module_scopes.get("__main__")
    path = main.source.path if main is not None else ""
    for launch in run.project.launches(path) if path else ():
        settings = _settings(run, launch, path)
        if settings is not None:
            made = _plugin(settings)
            flags = filter(_OF_SHARDING.search, launch.switched_on)
            made.parts[_SWITCHED_ON] = Const(frozenset(flags))
            return made
    return None


def is_launched_otherwise(run: Run, plugin: Unknown) -> bool:
    """Whether a run has decided a flag about sharding otherwise than the command gives it.

    Other flags leave the settings of the launcher as they are.
    """
    flags = constant(plugin.parts.get(_SWITCHED_ON)) or frozenset()
    return any(
        test.relation == "truth"
        and test.subject.rpartition(".")[2] in flags
        and not run.decisions.values_by_key[key]
        for key, test in run.decisions.conditions.items()
    )


def _plugin(settings: dict[str, object]) -> Unknown:
    parts = {name: settings[name] for name in ("use_orig_params",) if name in settings}
    version = str(settings.get("version") or 1)
    made = Unknown(library=PLUGIN)
    made.parts.update({name: Const(value) for name, value in parts.items() if version == "1"})
    strategies = ("sharding_strategy", "reshard_after_forward")
    made.parts.update({name: Const(settings[name]) for name in strategies if name in settings})
    made.parts["fsdp_version"] = Const(int(version) if version.isdigit() else None)
    return made


def _settings(run: Run, launch: Launch, path: str) -> dict[str, object] | None:
    """The settings of FSDP, without the prefix of their names; None if there are none."""
    if launch.option("use_fsdp") is not None:
        return {
            name.removeprefix(_PREFIX): _value(text)
            for name, text in launch.options
            if name.startswith(_PREFIX)
        }
    written = launch.option("config_file")
    if not written or "$" in written:
        return None
    beside = os.path.join(os.path.dirname(launch.file), written)
    config = run.project.config(written, path) or run.project.config(beside, path)
    return _of_file(config.mapping) if config is not None else None


def _of_file(top: Mapping | None) -> dict[str, object] | None:
    kind = top.get("distributed_type") if top is not None else None
    if top is None or kind is None or not isinstance(kind.value, Scalar):
        return None
    if kind.value.value != "FSDP":
        return None
    entry = top.get("fsdp_config")
    found = entry.value.values() if entry and isinstance(entry.value, Mapping) else {}
    return {name.removeprefix(_PREFIX): value for name, value in found.items()}


def _value(text: str) -> object:
    return {"true": True, "false": False}.get(text.lower(), text)
