"""Settings: constants of a program that code out of sight may replace.

A configurator sets attributes or entries by names that only the run of the program shows:
`setattr(config, key, value)`, `vars(config).update(...)`, `config.update(yaml.safe_load(...))`.
What the program assigned before is then the default of a setting.
"""

from __future__ import annotations

from fsdplint.interpreter.ranks import rank_default
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Instance,
    Namespace,
    ProjectModule,
    Scope,
    Unknown,
    Value,
)

MAX_DEPTH = 4  # of objects in objects
_SETTINGS = (bool, int, float, str, type(None))


def override_settings(scope: Scope, key: str | None = None) -> None:
    """Each setting of a scope, or the one of a name, may have got another value from outside."""
    _override(scope.names, "", key)


def override_attributes(holder: Value) -> None:
    """Any attribute of an object may have got another value, because its name was unknown."""
    if isinstance(holder, ProjectModule):
        override_settings(holder.scope)
    elif isinstance(holder, Class):
        for klass in holder.mro():
            _override(klass.attributes, f"{klass.name}.")
    elif isinstance(holder, Instance):
        holder.attributes_unknown = True
        of_classes = {
            name: value
            for klass in reversed(holder.cls.mro())
            for name, value in klass.attributes.items()
            if name not in holder.attributes and is_setting(name, value)
        }
        holder.attributes.update(of_classes)
        _override(holder.attributes, f"{holder.cls.name}.")


def override_entries(container: Dict | Namespace) -> None:
    """Any entry of a dict may have got another value, because its key was unknown."""
    if isinstance(container, Dict):
        container.may_have_more()
        _override(container.items, "")
    elif container.owner is not None:
        override_attributes(container.owner)
    else:
        override_settings(container.scope)


def copy_with_settings(holder: Instance, depth: int = 0) -> Instance:
    """A copy of an object whose constants, also those of objects in it, are settings."""
    copied = Instance(holder.cls, dict(holder.attributes), holder.attributes_unknown)
    _override(copied.attributes, f"{holder.cls.name}.")
    for name, value in copied.attributes.items():
        if isinstance(value, Instance) and depth < MAX_DEPTH:
            copied.attributes[name] = copy_with_settings(value, depth + 1)
    return copied


def is_setting(name: object, value: Value) -> bool:
    """Whether a value is a constant under a name that a configurator may set."""
    if not isinstance(name, str) or name.startswith("__"):
        return False
    return isinstance(value, Const) and isinstance(value.value, _SETTINGS)


def _override(names: dict[str, Value], prefix: str, key: str | None = None) -> None:
    for name, value in names.items():
        if key not in (None, name):
            continue
        if is_setting(name, value):
            named = f"{prefix}{name}"
            names[name] = rank_default(name, named, value) or Unknown(named, default=value)
        elif isinstance(value, Unknown) and value.is_default:
            names[name] = Unknown(value.origin, default=value.default)
