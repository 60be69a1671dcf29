"""Find the rules: those in the folder `rules` by their file names, and those of plug-ins."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from fsdplint.diagnostics.plugins import plugins, rules_in
from fsdplint.registry.rule import Rule


@lru_cache(maxsize=1)
def all_rules() -> tuple[type[Rule], ...]:
    """Every rule class, by code: those of fsdplint, then those of plug-ins."""
    others = [rule for rule in plugins().rules if issubclass(rule, Rule)]
    return (*own_rules(), *sorted(others, key=lambda rule: rule.code))


@lru_cache(maxsize=1)
def own_rules() -> tuple[type[Rule], ...]:
    """The rule classes of fsdplint itself, by code.

    Raises:
        RuntimeError: two rules share a code or a name.
    """
    rules: dict[str, type[Rule]] = {}
    for name in _rule_modules():
        for rule in _rules_of(name):
            if rule.code in rules:
                raise RuntimeError(f"two rules have the code {rule.code}")
            rules[rule.code] = rule
    return tuple(rules[code] for code in sorted(rules))


@lru_cache(maxsize=1)
def _rule_modules() -> tuple[str, ...]:
    package = importlib.import_module("fsdplint.rules")
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    return tuple(name for name in names if name.startswith("fsdp"))


def _rules_of(name: str) -> list[type[Rule]]:
    rules = rules_in(importlib.import_module(f"fsdplint.rules.{name}"))
    return [rule for rule in rules if issubclass(rule, Rule)]


def documented_rules() -> tuple[type[Rule], ...]:
    """All rules that have a page, including those about the check itself."""
    from fsdplint.registry.meta_rules import META_RULES

    return (*all_rules(), *META_RULES)


def rule_by_code(code: str) -> type[Rule] | None:
    """The rule with this code or name, if there is one."""
    key = code.strip()
    # Importing one rule is several times faster than importing all; its module's name holds its
    # code.
    for name in _rule_modules():
        if name.startswith(f"{key.lower()}_"):
            return next((rule for rule in _rules_of(name) if rule.code == key.upper()), None)
    for rule in documented_rules():
        if key.upper() == rule.code or key.lower() == rule.name:
            return rule
    return None
