"""Every event and every field of `fsdplint.trace` is recorded, or says why it is not."""

from __future__ import annotations

import ast
import dataclasses
from functools import cache
from pathlib import Path

import pytest

from fsdplint import trace
from fsdplint.runtime import recorder
from fsdplint.runtime.launch.event_schema import decode, schemas
from fsdplint.trace import Event, Layout
from fsdplint.trace.fields import Role, field_record

pytestmark = pytest.mark.whole

WRITERS = ("event", "prepare")
KINDS = {
    value.__name__: value
    for value in vars(trace).values()
    if isinstance(value, type) and issubclass(value, Event) and value is not Event
}


@cache
def sources() -> list[ast.Module]:
    files = Path(recorder.__file__).parent.rglob("*.py")
    return [ast.parse(file.read_text(encoding="utf-8")) for file in files]


@cache
def written() -> dict[str, set[str]]:
    """The fields that the recorder gives to events of each class when they happen."""
    found: dict[str, set[str]] = {}
    for tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                kind = node.args[0]
                if node.func.attr in WRITERS and isinstance(kind, ast.Name) and kind.id in KINDS:
                    found.setdefault(kind.id, set()).update(str(k.arg) for k in node.keywords)
    return found


@cache
def updated() -> set[str]:
    """The fields that the recorder sets on some event later: `entry.event.copy = name`."""
    targets = [
        target
        for tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    return {
        target.attr
        for target in targets
        if isinstance(target, ast.Attribute)
        and (
            (isinstance(target.value, ast.Attribute) and target.value.attr == "event")
            or (isinstance(target.value, ast.Name) and target.value.id == "taken")
        )
    }


def test_every_event_is_recorded_or_says_why_it_is_not() -> None:
    silent = {name for name, kind in KINDS.items() if not kind.static_only}
    assert silent == set(written())


@pytest.mark.parametrize("name", sorted(written()))
def test_every_field_is_recorded_or_says_why_it_is_not(name: str) -> None:
    own = vars(KINDS[name])["__annotations__"]
    fields = {spec.name: field_record(spec) for spec in dataclasses.fields(KINDS[name])}
    wanted = {
        field
        for field, how in fields.items()
        if field in own and how.role not in (Role.MERGED, Role.UNRECORDED) and not how.source
    }
    assert wanted <= written()[name] | updated()
    left_out = {field for field, how in fields.items() if how.role is Role.UNRECORDED}
    assert not left_out & written()[name]
    assert all(how.reason for how in fields.values() if how.role is Role.UNRECORDED)


def test_a_field_of_all_ranks_has_a_source_among_the_fields() -> None:
    for kind in KINDS.values():
        names = {spec.name for spec in dataclasses.fields(kind)}
        assert {field_record(spec).source for spec in dataclasses.fields(kind)} <= {"", *names}


def test_kinds_are_unique() -> None:
    assert len(schemas()) == len(KINDS) + 1


def test_what_json_makes_of_a_value_is_undone() -> None:
    assert decode(Layout, "full") is Layout.FULL
    assert decode(tuple[Layout, ...], ["full", "local"]) == (Layout.FULL, Layout.LOCAL)
    assert decode(Layout | None, None) is None
    assert decode(dict[int, dict[str, tuple[str, int]]], {"1": {"w": ["ignored", 3]}}) == {
        1: {"w": ("ignored", 3)}
    }
    assert decode(tuple[tuple[str, str], ...], [["w", "a scalar"]]) == (("w", "a scalar"),)
