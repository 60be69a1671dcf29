"""The settings file whose path a program gets when it starts: one of those of its repository.

A file fits if the program names most of its keys. What the file that fits best says is a default,
as in `fsdplint.interpreter.settings_files`; the texts of the other files are offered, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings_files import is_known, settings_in
from fsdplint.interpreter.values import Unknown

if TYPE_CHECKING:
    from fsdplint.source.config_source import Mapping

MIN_KEYS = 3  # at the top level
MIN_SHARE = 0.8  # of the keys, that the program names
MAX_OFFERED = 24  # files besides the one that fits best
_KEY = re.compile(r"^([A-Za-z_]\w*)[ \t]*:", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")


def possible_settings(run: Run, origin: str) -> Unknown | None:
    """The settings in the file of the repository that fits a program best; None if none fits.

    Args:
        run: the run; the files that it has executed are the program.
        origin: the name of the value that holds all settings.
    """
    files = dict(run.project.settings_files(run.source.path))
    words = {word for text in _texts(run) for word in _WORD.findall(text)} if files else set()
    fitting = {path: share for path, text in files.items() if (share := _share(text, words))}
    if not fitting:
        return None
    named = {path for path in fitting if any(path in text for text in _texts(run))}
    best = sorted(fitting, key=lambda path: (path not in named, -fitting[path], path))
    found = settings_in(run, best[0], origin)
    if found is not None:
        for path in best[: MAX_OFFERED + 1]:
            _offer(run, files[path], path, origin)
    return found


def _texts(run: Run) -> set[str]:
    return {scope.source.text for scope in run.module_scopes.values()}


def _share(text: str, words: set[str]) -> float:
    """The share of the keys of a file that are among some words; 0 if it does not fit."""
    keys = set(_KEY.findall(text))
    share = len(keys & words) / len(keys) if len(keys) >= MIN_KEYS else 0
    return share if share >= MIN_SHARE else 0


def _offer(run: Run, text: str, path: str, origin: str) -> None:
    from fsdplint.source.config_source import ConfigSource

    mapping = ConfigSource(path, text).mapping
    if mapping is not None:
        _offer_texts(run, mapping, origin)


def _offer_texts(run: Run, mapping: Mapping, origin: str) -> None:
    from fsdplint.source.config_source import Mapping, Scalar

    for entry in mapping:
        name, value = f"{origin}.{entry.key.text}", entry.value
        if isinstance(value, Mapping):
            _offer_texts(run, value, name)
        elif isinstance(value, Scalar) and is_known(value) and isinstance(value.value, str):
            known = run.offered_settings.get(name, ())
            if value.value not in known:
                run.offered_settings[name] = (*known, value.value)
