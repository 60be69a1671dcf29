"""Settings: constants of a program that code out of sight may replace."""

from __future__ import annotations

from fsdplint.interpreter.ranks import rank_default
from fsdplint.interpreter.values import Const, Scope, Unknown

_SETTINGS = (bool, int, float, str, type(None))


def override_settings(scope: Scope, key: str | None = None) -> None:
    """Each setting, or the one of a name, may have got another value from outside."""
    for name, value in scope.names.items():
        if key not in (None, name) or name.startswith("__"):
            continue
        if isinstance(value, Const) and isinstance(value.value, _SETTINGS):
            scope.names[name] = rank_default(name, name, value) or Unknown(name, default=value)
