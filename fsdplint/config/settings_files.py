"""Settings files: `[tool.fsdplint]` of pyproject.toml, and fsdplint.toml."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

from fsdplint.config.options import CHECKPOINTS, FORMATS, FULL
from fsdplint.config.patterns import pattern_error
from fsdplint.config.run_settings import RunSettings, read_run_settings
from fsdplint.config.settings import Settings, SettingsError
from fsdplint.diagnostics.codes import ALL, Selection, resolve
from fsdplint.source import reading
from fsdplint.source.files import MAX_BYTES
from fsdplint.source.folders import leads_out

SHARED, OWN = "pyproject.toml", "fsdplint.toml"


def settings_in(folder: Path) -> Settings | None:
    """The settings in a folder: of its fsdplint.toml, or else of its pyproject.toml.

    Raises:
        SettingsError: see `read_settings`.
    """
    own = read_settings(folder / OWN)
    return own if own is not None else read_settings(folder / SHARED)


def read_settings(file: Path) -> Settings | None:
    """The settings in a file; None if it does not exist, or has none for this tool.

    A pyproject.toml has them in its table `[tool.fsdplint]`, any other file at its top level.

    Raises:
        SettingsError: the file is not TOML, or has an unknown key or an invalid value.
    """
    try:
        data = reading.read(file, reading.MAX_SETTINGS_BYTES)
        text = data.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{file}:{line}: not UTF-8, as TOML has to be") from error
    if file.name == SHARED and "fsdplint" not in text:
        return None
    table = _table(file, text)
    if table is None:
        return None
    for key in table:
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(KEYS)}"
            where = " in [tool.fsdplint]" if file.name == SHARED else ""
            raise SettingsError(f"{file}: unknown key {key!r}{where}; {hint}")
    values: dict[str, Any] = {}
    for key, read in KEYS.items():
        if key in table:
            try:
                values[key] = read(table[key])
            except ValueError as error:
                raise SettingsError(f"{file}: {_key(file, key)}: {error}") from error
    root = file.parent.absolute()
    return Settings(
        root=root,
        selection=Selection(
            (*values.get("select", (ALL,)), *values.get("extend-select", ())),
            (*values.get("ignore", ()), *values.get("extend-ignore", ())),
        ),
        exclude=(*values.get("exclude", ()), *values.get("extend-exclude", ())),
        max_file_size=values.get("max-file-size", MAX_BYTES),
        force_exclude=values.get("force-exclude", False),
        per_file_ignores=values.get("per-file-ignores", {}),
        target_torch=values.get("target-torch"),
        checkpoint=values.get("checkpoint", FULL),
        output_format=values.get("output-format", "full"),
        unsafe_fixes=values.get("unsafe-fixes", False),
        cache_dir=_path_inside(file, "cache-dir", values),
        baseline=_path_inside(file, "baseline", values),
        run=values.get("run", RunSettings()),
        file=file,
    )


def _path_inside(file: Path, key: str, values: Mapping[str, str]) -> Path | None:
    """The path that a key names, which must be in the folder of the settings."""
    if key not in values:
        return None
    root, name = file.parent.absolute(), PurePath(values[key])
    if name.anchor or ".." in name.parts or values[key].startswith("~"):
        why = f"must lie in the folder of this file, is {values[key]!r}"
    elif leads_out(root, root / name):
        why = f"must lie in the folder of this file; a link leads out of it: {values[key]!r}"
    else:
        return root / name
    raise SettingsError(
        f"{file}: {_key(file, key)}: {why}; --{key} on the command line names another place"
    )


def _key(file: Path, key: str) -> str:
    """A key as messages name it."""
    return f"[tool.fsdplint] {key}" if file.name == SHARED else key


def _table(file: Path, text: str) -> dict[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not a valid TOML file: {error}") from error
    except RecursionError as error:
        raise SettingsError(f"{file}: nested too deeply to be read") from error
    if file.name != SHARED:
        return document
    tools = document.get("tool")
    table = tools.get("fsdplint") if isinstance(tools, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SettingsError(f"{file}: [tool.fsdplint] must be a table")
    return table


# The values of the keys; each function raises ValueError ------------------------------------


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"must be a list of strings, is {value!r}")
    return tuple(value)


def _patterns(value: object) -> tuple[str, ...]:
    patterns = _strings(value)
    for pattern in patterns:
        refuse_pattern(pattern)
    return patterns


def refuse_pattern(pattern: str) -> None:
    """Refuse an invalid pattern. Raises ValueError."""
    reason = pattern_error(pattern)
    if reason is not None:
        raise ValueError(f"{pattern!r} is not a pattern: {reason}")


def _selectors(value: object) -> tuple[str, ...]:
    selectors = _strings(value)
    for selector in selectors:
        resolve(selector)
    return selectors


def _per_file(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table of patterns with lists of rules, is {value!r}")
    for pattern in value:
        refuse_pattern(str(pattern))
    return {str(pattern): _selectors(selectors) for pattern, selectors in value.items()}


def version(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\d+\.\d+(\.\d+)?", value):
        raise ValueError(f'must be a version such as "2.6", is {value!r}')
    return value


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"must be a number of bytes, is {value!r}")
    return value


def _file(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be the name of a file, is {value!r}")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, is {value!r}")
    return value


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, is {value!r}")
        return value

    return read


def _run(value: object) -> RunSettings:
    settings = read_run_settings(value)
    for pattern in settings.arguments:
        refuse_pattern(pattern)
    return settings


KEYS: dict[str, Callable[[object], Any]] = {
    "select": _selectors,
    "ignore": _selectors,
    "extend-select": _selectors,
    "extend-ignore": _selectors,
    "exclude": _patterns,
    "extend-exclude": _patterns,
    "max-file-size": _size,
    "force-exclude": _boolean,
    "per-file-ignores": _per_file,
    "target-torch": version,
    "checkpoint": _one_of(CHECKPOINTS),
    "output-format": _one_of(FORMATS),
    "unsafe-fixes": _boolean,
    "cache-dir": _file,
    "baseline": _file,
    "run": _run,
}
