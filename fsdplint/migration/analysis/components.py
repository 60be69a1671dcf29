"""Which files of a program belong to one migration."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.interpreter import Program
from fsdplint.interpreter.values import ModuleValue, OptimizerValue
from fsdplint.migration.analysis.passed_names import passed_names
from fsdplint.migration.context import attributes, is_fsdp1, uses_of_fsdp1
from fsdplint.migration.frameworks.fabric_names import configures_fabric
from fsdplint.migration.frameworks.framework_only_files import configures_frameworks_only
from fsdplint.migration.symbols import CHANGED
from fsdplint.migration.training import gradients, inner_names
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.trace import Trace


@dataclass(eq=False)
class Part(Program):
    """The part of a program that matters for the migration of some of its files."""

    full_program: Program = field(default_factory=Program)


def parts(program: Program) -> list[tuple[Part, list[Source]]]:
    """The files of each migration, with the part of the program that matters for them.

    A part leaves out the files and traces that belong only to another migration, because what one
    program does with its model says nothing about the model of another.
    """
    groups = components(program)
    imports = _imports(program)
    files_run_together: list[set[Source]] = [set() for _ in groups]
    for source in program.sources.values():
        together = set(_closure(imports, source))
        for group, found in zip(groups, files_run_together, strict=True):
            if not together.isdisjoint(group):
                found |= together
    result = []
    for group, found in zip(groups, files_run_together, strict=True):
        foreign = set().union(*files_run_together) - found
        own = {source.path for source in group}
        others = {source.path for other in groups if other is not group for source in other}
        part = Part(
            sources={path: s for path, s in program.sources.items() if s not in foreign},
            traces=[trace for trace in program.traces if _belongs_to(trace, own, others)],
            evaluations=program.evaluations,
            problems=program.problems,
            options=program.options,
            projects=program.projects,
            files_to_fix=program.files_to_fix,
            configs=program.configs,
            cuts={
                path: cut
                for path, cut in program.cuts.items()
                if not set(_closure(imports, cut.site.source)).isdisjoint(group)
            },
            full_program=program,
        )
        result.append((part, group))
    return result


def full_program(program: Program) -> Program:
    """The program that a part belongs to; a whole program itself."""
    return program.full_program if isinstance(program, Part) else program


def _belongs_to(trace: Trace, own: set[str], others: set[str]) -> bool:
    """Whether a trace reaches some files, or none of the others."""
    paths = {event.site.path for event in trace}
    return not paths.isdisjoint(own) or paths.isdisjoint(others)


def components(program: Program) -> list[list[Source]]:
    """Groups of files that use FSDP1 and that one file imports, directly or indirectly."""
    relevant = {source for source in program.sources.values() if _relevant(program, source)}
    imports = _imports(program)
    leader = {source: source for source in relevant}

    def find(source: Source) -> Source:
        while leader[source] is not source:
            source = leader[source]
        return source

    for source in program.sources.values():
        together = [other for other in _closure(imports, source) if other in relevant]
        for other in together[1:]:
            leader[find(other)] = find(together[0])
    groups: dict[Source, list[Source]] = {}
    for source in program.sources.values():
        if source in relevant:
            groups.setdefault(find(source), []).append(source)
    return [group for group in groups.values() if any(_has_fsdp1(program, one) for one in group)]


def _has_fsdp1(program: Program, source: Source) -> bool:
    """Whether a file uses FSDP1, not only another library's wrapper with the same attributes."""
    if (
        uses_of_fsdp1(source)
        or _gets_name(program, source)
        or gradients.sums_gradients(program, source)
        or configures_fabric(source)
    ):
        return True
    return any(
        is_fsdp1(value) or _of_fsdp1(value)
        for node in attributes(source)
        for value in program.values(node.value)
    )


def _gets_name(program: Program, source: Source) -> bool:
    """Whether a file uses a name of FSDP1 that it imports from another file of the project."""
    return any(one.is_fsdp1 and one.source is source and one.uses for one in passed_names(program))


def files_run_together(program: Program, source: Source) -> list[Source]:
    """The files that can run together with a file: those that one of its importers imports."""
    imports = _imports(program)
    found: dict[Source, None] = {source: None}
    for start in program.sources.values():
        closure = _closure(imports, start)
        if source in closure:
            found.update(dict.fromkeys(closure))
    return list(found)


def _relevant(program: Program, source: Source) -> bool:
    if uses_of_fsdp1(source) and not configures_frameworks_only(program, source):
        return True
    if _gets_name(program, source) or gradients.sums_gradients(program, source):
        return True
    if configures_fabric(source):
        return True
    if any(node.attr.value == inner_names.INNER for node in attributes(source)):
        return True
    wanted = CHANGED
    return any(
        node.attr.value in wanted
        and any(is_fsdp1(value) or _of_fsdp1(value) for value in program.values(node.value))
        for node in attributes(source)
    )


def _of_fsdp1(value: object) -> bool:
    return isinstance(value, OptimizerValue) and any(
        is_fsdp1(m) or _is_inner_wrapped(m) for m in value.modules
    )


def _is_inner_wrapped(module: ModuleValue) -> bool:
    return module.inner is not None and module.inner.wrapper == "fsdp1"


def _closure(imports: dict[Source, list[Source]], source: Source) -> list[Source]:
    """A file and all files that it imports, directly or indirectly."""
    seen = {source: None}
    todo = [source]
    while todo:
        for other in imports[todo.pop()]:
            if other not in seen:
                seen[other] = None
                todo.append(other)
    return list(seen)


def _imports(program: Program) -> dict[Source, list[Source]]:
    """The files of the program that each file imports, judged by their paths."""
    by_name: dict[str, list[tuple[str, Source]]] = {}
    for source in program.sources.values():
        stem = source.path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__")
        by_name.setdefault(stem.rpartition("/")[2], []).append((stem, source))
    result: dict[Source, list[Source]] = {}
    for source in program.sources.values():
        found: dict[Source, None] = {}
        for module in _modules(source):
            wanted = module.replace(".", "/")
            for stem, other in by_name.get(wanted.rpartition("/")[2], ()):
                if other is not source and (stem == wanted or stem.endswith("/" + wanted)):
                    found[other] = None
        result[source] = list(found)
    return result


def _modules(source: Source) -> set[str]:
    """The dotted names that a file imports, without the dots of relative imports."""
    modules: set[str] = set()
    for scope in bindings_of(source).scopes.values():
        for item in scope.imports:
            base = item.module.lstrip(".")
            modules.add(base)
            if item.name is not None:
                modules.add(f"{base}.{item.name}".lstrip("."))
        modules.update(star.lstrip(".") for star in scope.star)
    return modules - {""}
