"""Which files of a program belong to one migration."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.bindings import bindings_of
from fsdplint.program import Program
from fsdplint.program.source import Source
from fsdplint.program.values import ModuleValue, OptimizerValue
from fsdplint.rules.migration import training
from fsdplint.rules.migration.context import attributes, is_fsdp1, uses_of_fsdp1


def components(program: Program) -> list[list[Source]]:
    """Files that use FSDP1 and are imported, however indirectly, by one and the same file."""
    relevant = {source for source in program.sources.values() if _relevant(program, source)}
    reach = {source: _closure(program, source) for source in program.sources.values()}
    leader = {source: source for source in relevant}

    def find(source: Source) -> Source:
        while leader[source] is not source:
            source = leader[source]
        return source

    for source in program.sources.values():
        together = [other for other in reach[source] if other in relevant]
        for other in together[1:]:
            leader[find(other)] = find(together[0])
    groups: dict[Source, list[Source]] = {}
    for source in program.sources.values():
        if source in relevant:
            groups.setdefault(find(source), []).append(source)
    return list(groups.values())


def _relevant(program: Program, source: Source) -> bool:
    if uses_of_fsdp1(source):
        return True
    wanted = training.HANDLED | set(training.GONE)
    return any(
        node.attr.value in wanted
        and any(is_fsdp1(value) or _of_fsdp1(value) for value in program.values(node.value))
        for node in attributes(source)
    )


def _of_fsdp1(value: object) -> bool:
    return isinstance(value, OptimizerValue) and any(
        is_fsdp1(m) or _parts_wrapped(m) for m in value.modules
    )


def _parts_wrapped(module: ModuleValue) -> bool:
    return module.inner is not None and module.inner.wrapper == "fsdp1"


def _closure(program: Program, source: Source) -> list[Source]:
    seen = [source]
    for current in seen:
        for other in _imported(program, current):
            if other not in seen:
                seen.append(other)
    return seen


def _imported(program: Program, source: Source) -> Iterator[Source]:
    """The files of the program that a file imports, judged by their paths."""
    modules: set[str] = set()
    bindings = bindings_of(source)
    for scope in bindings.scopes.values():
        for item in scope.imports:
            base = item.module.lstrip(".")
            modules.add(base)
            if item.name is not None:
                modules.add(f"{base}.{item.name}".lstrip("."))
        modules.update(star.lstrip(".") for star in scope.star)
    wanted = {module.replace(".", "/") for module in modules if module}
    for other in program.sources.values():
        stem = other.path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__")
        if other is not source and any(stem == w or stem.endswith("/" + w) for w in wanted):
            yield other
