"""Every blocker has a code of its own, an advice, and gets the fields of its templates."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdplint.migration import blockers, symbols
from fsdplint.migration.blockers import Blocker, advice

MIGRATION = Path(blockers.__file__).parents[1]
PACKAGE = "fsdplint.migration.blockers"
RULES = {path.name[4:7] for path in (MIGRATION.parent / "rules").glob("fsdp2*.py")}


def defined() -> dict[tuple[str, str], Blocker]:
    """All blockers, by module and name."""
    return {
        (module.name, name): value
        for module in pkgutil.iter_modules(blockers.__path__)
        for name, value in vars(importlib.import_module(f"{PACKAGE}.{module.name}")).items()
        if isinstance(value, Blocker)
    }


def fields(blocker: Blocker) -> set[str]:
    text = blocker.message + blocker.advice
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def calls() -> Iterator[tuple[str, Blocker, set[str]]]:
    """The places where a blocker gets its fields, outside of tables."""
    for file in MIGRATION.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        known: dict[str, Blocker] = {}
        modules: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                module = (node.module or "").removeprefix(PACKAGE).lstrip(".")
                for alias in node.names:
                    name = alias.asname or alias.name
                    if (module, alias.name) in defined():
                        known[name] = defined()[module, alias.name]
                    elif not module:
                        modules[name] = alias.name
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            func, found = node.func, None
            if isinstance(func, ast.Name):
                found = known.get(func.id)
            elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
                found = defined().get((modules.get(func.value.id, ""), func.attr))
            if found is not None and all(keyword.arg for keyword in node.keywords):
                names = {str(keyword.arg) for keyword in node.keywords}
                yield f"{file.name}:{node.lineno}", found, names


def test_codes_are_unique_and_stable_names() -> None:
    codes = Counter(blocker.code for blocker in defined().values())
    assert [code for code, count in codes.items() if count > 1] == []
    for code in codes:
        assert re.fullmatch(r"FSDP\d{3}(-[a-z0-9]+)+", code), code
        assert code[4:7] in RULES, code


def test_every_blocker_has_an_advice() -> None:
    for blocker in defined().values():
        assert blocker.advice == "{advice}" or blocker.advice.endswith("."), blocker.code
        assert blocker.message and not blocker.message.endswith("."), blocker.code
    for api in symbols.APIS.values():
        assert api.advice.endswith(".")


def test_every_advice_is_used() -> None:
    own = {name: text for name, text in vars(advice).items() if name.isupper()}
    used = {blocker.advice for blocker in defined().values()}
    used |= {api.advice for api in symbols.APIS.values()}
    assert [name for name, text in own.items() if text not in used] == []


def test_calls_fill_the_fields() -> None:
    found = list(calls())
    assert [(place, one.code) for place, one, names in found if names != fields(one)] == []
    blockers_of_members = {member.blocker for member in symbols.MEMBERS.values()}
    called = {one.code for _, one, _ in found} | {
        one.code for one in blockers_of_members if one is not None
    }
    never = {one.code for one in defined().values()} - called
    assert never <= {  # their fields come from a dict, or the blocker from a choice
        "FSDP201-refused",
        "FSDP201-error-brought",
        "FSDP201-error-turned",
        "FSDP201-fact-changed",
        "FSDP201-use-left",
        "FSDP201-weights-tied-in-units",
        "FSDP201-weights-perhaps-tied-in-units",
        "FSDP299-generate-outside-forward",
        "FSDP299-parts-outside-forward",
    }


def test_no_reason_is_a_bare_string() -> None:
    for file in MIGRATION.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Blocked":
                reason = node.args[2]
                assert not isinstance(reason, ast.Constant | ast.JoinedStr), f"{file}:{node.lineno}"


def test_a_field_that_is_missing_fails() -> None:
    with pytest.raises(KeyError):
        Blocker("FSDP201-example", "`{name}` is missing", advice.BY_HAND)()
