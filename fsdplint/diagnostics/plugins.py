"""Rules of other packages: the entry points of a group, each a rule class or several of them.

    [project.entry-points."fsdplint.rules"]
    house = "house_rules:RULES"

A plug-in cannot end a run. An entry point that cannot be loaded, and a rule that raises, is left
out and reported as a problem.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any

from fsdplint.diagnostics.finding import RuleInfo, Severity
from fsdplint.source.debug import VARIABLE, debugging
from fsdplint.source.files import Problem

GROUP = "fsdplint.rules"
RESERVED = "FSDP"  # the prefix of the codes of fsdplint's rules

_CODE = re.compile(r"[A-Z]+[0-9]+")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")


@dataclass(frozen=True)
class Plugins:
    """The rules of other installed packages, and the problems with loading them."""

    rules: tuple[type[RuleInfo], ...] = ()
    problems: tuple[Problem, ...] = field(default=())


@lru_cache(maxsize=1)
def plugins() -> Plugins:
    """The plug-ins of this environment, loaded once."""
    rules: dict[str, type[RuleInfo]] = {}
    problems: list[Problem] = []
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda one: one.name)
    for point in points:
        label = f"{point.name} = {point.value}"
        try:
            found = _classes(point.load())
            for rule in found:
                _check(rule)
                if rule.code in rules and rules[rule.code] is not rule:
                    raise ValueError(f"another plug-in has the code {rule.code}")
        except (Exception, SystemExit) as error:
            if debugging():
                raise
            problems.append(plugin_problem(label, "cannot be loaded", error))
            continue
        for rule in found:
            rule.plugin = label
            rules[rule.code] = rule
    return Plugins(tuple(rules.values()), tuple(problems))


def plugin_problem(plugin: str, what: str, error: BaseException) -> Problem:
    """The problem of a broken plug-in."""
    return Problem(
        plugin,
        None,
        f"this plug-in {what}: {type(error).__name__}: {error}",
        f"a defect of the plug-in; {VARIABLE}=1 shows where",
        code="FSDP902",
        name="broken-plug-in",
    )


def _classes(loaded: Any) -> list[type[RuleInfo]]:
    """The rule classes that an entry point names: a class, several, or those of a module."""
    if isinstance(loaded, type):
        return [loaded]
    if isinstance(loaded, ModuleType):
        return rules_in(loaded)
    if isinstance(loaded, Iterable) and not isinstance(loaded, str):
        return list(loaded)
    raise TypeError(f"{loaded!r} is neither a rule nor a module or list of rules")


def rules_in(module: ModuleType) -> list[type[RuleInfo]]:
    """The rule classes that a module defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, RuleInfo)
        and value.__module__ == module.__name__
        and "code" in vars(value)
    ]


def _check(rule: Any) -> None:
    """Check that an object is a usable rule. Raises TypeError or ValueError."""
    if not (isinstance(rule, type) and issubclass(rule, RuleInfo)):
        raise TypeError(f"{rule!r} is no subclass of fsdplint.rule.Rule")
    missing = sorted(getattr(rule, "__abstractmethods__", ()))
    if missing:
        raise TypeError(f"{rule.__name__} lacks {', '.join(missing)}")
    code, name = getattr(rule, "code", None), getattr(rule, "name", None)
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        raise ValueError(f"{rule.__name__} needs a code of capitals and digits, has {code!r}")
    if code.startswith(RESERVED):
        raise ValueError(f"{rule.__name__}: codes that begin with {RESERVED} belong to fsdplint")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{rule.__name__} needs a name in lower case with hyphens, has {name!r}")
    if not isinstance(getattr(rule, "severity", None), Severity):
        raise ValueError(f"{rule.__name__} needs a severity (fsdplint.rule.Severity)")
