"""Imports go down the layers only, function-level and typing-only imports included."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fsdplint"
# From the bottom to the top. A module may import modules of its own layer and of those before it.
LAYERS = (
    "version", "trace", "source", "syntax", "diagnostics", "config", "discovery", "interpreter",
    "edits", "registry", "fixes", "report", "migration", "comparison", "rules", "engine", "runtime", "server",
    "cli",
)  # fmt: skip
# What users of the package name: it may import everything.
FACES = ("__init__", "__main__", "api", "api_results", "rule", "shim")
# Within the runtime, from the bottom to the top: a recorded program must not load a session.
RUNTIME = (("recorder", "emulation", "simulation"), ("launch",), ("proof", "__main__"))

# Within the engine, from the bottom to the top: what checks files knows no session.
ENGINE = (
    "progress", "cache", "editable", "scope", "unused_suppressions", "filter", "group_result", "changes",
    "unseen_calls", "program_facts", "translation",
    "workers", "workspace", "requirements", "sharding_conditions", "check", "known_findings", "validation",
    "callers", "examine", "fix", "session", "cached", "summary",
    "isolation", "group_check", "checker", "recorded", "fixer", "migrator", "migration",
    "operations", "revisions", "comparing",
    "planning",
)  # fmt: skip


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted([*PACKAGE.rglob("*.py"), *(PACKAGE / "rules").glob("*.py")]):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(file: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in known or node.module in known:
                    yield whole if whole in known else node.module


@functools.cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imports(file, known)) for name, file in known.items()}


def layer(module: str) -> int:
    parts = module.split(".")
    if len(parts) < 2 or parts[1] in FACES:
        return len(LAYERS)
    return LAYERS.index(parts[1])


def test_every_module_has_a_layer() -> None:
    rooms = {module.split(".")[1] for module in modules() if "." in module}
    assert rooms == {*LAYERS, *FACES} - {"__init__"}


def test_imports_go_down() -> None:
    upward = [
        f"{module} -> {target}"
        for module, targets in graph().items()
        for target in targets
        if layer(target) > layer(module)
    ]
    assert upward == []


def room(module: str) -> int | None:
    """The number of a module's room within the runtime; None for all other modules."""
    parts = module.split(".")
    if parts[1:2] != ["runtime"] or len(parts) < 3:
        return None
    return next(number for number, names in enumerate(RUNTIME) if parts[2] in names)


def reachable(module: str) -> set[str]:
    """The modules that a module imports, directly or through others."""
    found: set[str] = set()
    pending = [*graph()[module]]
    while pending:
        target = pending.pop()
        if target not in found and target in graph():
            found.add(target)
            pending.extend(graph()[target])
    return found


def test_no_module_imports_itself_through_others() -> None:
    assert [module for module in graph() if module in reachable(module)] == []


def test_the_recorder_imports_no_session() -> None:
    upward = []
    for module, targets in graph().items():
        own = room(module)
        for target in targets if own is not None else ():
            other = room(target)
            above = layer(target) > LAYERS.index("config") if other is None else other > (own or 0)
            if above and (other is not None or own == 0):
                upward.append(f"{module} -> {target}")
    assert upward == []


def test_the_engine_calls_no_module_above() -> None:
    order = {f"fsdplint.engine.{name}": number for number, name in enumerate(ENGINE)}
    own = {module for module in graph() if module.startswith("fsdplint.engine.")}
    assert own == set(order)
    upward = [
        f"{module} -> {target}"
        for module in own
        for target in graph()[module] & own
        if order[target] > order[module]
    ]
    assert upward == []
