"""The files of a workspace checked, together with those that import them where that matters."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.diagnostics.coverage import CoveredSite
from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.callers import Callers, callers_of_unreached
from fsdplint.engine.check import CheckedProgram, check, load_program
from fsdplint.engine.validation import without_harmful_fixes
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.meta_rules import CutShort
from fsdplint.registry.rule import Rule
from fsdplint.source.fsdp_words import names_fsdp1

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

MAX_WIDENINGS = 3  # times that further files are read, which turn out to be concerned


def examine(workspace: Workspace, rules: Sequence[Rule]) -> CheckedProgram:
    """Load files and check them.

    The fixes of a group (a migration) change several files together. They depend on the code that
    uses what the files define, so the files are checked with those that import them. So are files
    with functions that call the API of the contract and that no program among the files reaches:
    the programs that import them show with what they are called. A settings file is fixed for all
    programs of its project, because each may be launched with it.
    """
    program = load_program(workspace)
    checked = CheckedProgram(program, check(program, rules, workspace.options, workspace.effort))
    if workspace.projects is not None and workspace.effort.fixes:
        files = _grouped_files(workspace, checked, rules)
        callers = callers_of_unreached(workspace, program)
        launched = _launched_programs(workspace, checked)
        if files or callers.searched or launched:
            checked = _with_importers(workspace, checked, rules, files, callers, launched)
    return without_harmful_fixes(workspace, checked, rules)


def _grouped_files(
    workspace: Workspace, checked: CheckedProgram, rules: Sequence[Rule]
) -> set[str]:
    """The files that are fixed together with others."""
    grouped = {one.site.path for one in checked.found if one.rule.grouped}
    if any(rule.grouped for rule in rules):
        # A model that code in another file wraps is no finding yet.
        sources = checked.program.sources
        grouped |= {
            str(path)
            for path in workspace.paths
            if str(path) in sources and names_fsdp1(sources[str(path)].text)
        }
    return grouped


def _launched_programs(workspace: Workspace, checked: CheckedProgram) -> list[Path]:
    """The files that Accelerate may run with a settings file that can be fixed."""
    assert workspace.projects is not None
    configs = {one.site.path for one in checked.found if one.fix is not None}
    configs.intersection_update(checked.program.configs)
    words = (b"accelerate", b"prepare")
    return [
        path for one in sorted(configs) for path in workspace.projects.containing(Path(one), words)
    ]


def _with_importers(
    workspace: Workspace,
    checked: CheckedProgram,
    rules: Sequence[Rule],
    files: Collection[str],
    callers: Callers,
    launched: Sequence[Path],
) -> CheckedProgram:
    """The program with the files that import some of its files, with its callers, and with the
    programs that its settings files may launch."""
    assert workspace.projects is not None
    first = checked.program
    wanted = list(launched)
    if files:
        to_fix = sorted(first.files_to_fix)
        wanted += workspace.projects.importers([*map(Path, sorted(files)), *to_fix])
        wanted += to_fix
        wanted += _imported_for_fixes(workspace, rules, files)
    wanted += callers.files
    for _ in range(MAX_WIDENINGS):
        unread = _unread_files(checked.program, wanted, workspace.paths[0])
        if not unread:
            break
        importers = [*checked.importers, *unread]
        program = load_program(workspace, importers, earlier=checked.program)
        context = frozenset(program.sources) - frozenset(first.sources)
        found = check(program, rules, workspace.options, workspace.effort)
        checked = CheckedProgram(program, found, importers, context)
        wanted = sorted(program.files_to_fix)
        wanted = [*workspace.projects.importers(wanted), *wanted]
        wanted += _imported_for_fixes(workspace, rules, map(str, unread))
    searched = _unread_files(checked.program, callers.searched, workspace.paths[0])
    return replace(checked, searched=frozenset(map(str, searched)))


def _imported_for_fixes(
    workspace: Workspace, rules: Sequence[Rule], files: Iterable[str]
) -> list[Path]:
    """The files of FSDP1 that some files import, also by imports that no run reaches.

    A migration that leaves these files unchanged breaks the code that no run reaches.
    """
    if workspace.projects is None or not any(rule.grouped for rule in rules):
        return []
    return workspace.projects.imported_files(
        map(Path, sorted(files)), lambda data: names_fsdp1(data.decode("utf-8", "replace"))
    )


def _unread_files(program: Program, files: Iterable[Path], like: Path) -> list[Path]:
    """The files that were not read yet, relative to the current folder if `like` is relative."""
    real_paths = {os.path.realpath(path) for path in program.sources}
    result = []
    for path in files:
        if os.path.realpath(path) not in real_paths:
            real_paths.add(os.path.realpath(path))
            result.append(path if like.is_absolute() else Path(os.path.relpath(path)))
    return result


def check_alone(
    path: Path, overrides: Mapping[Path, str], rules: Sequence[Rule], max_bytes: int
) -> None:
    """Check one file without those of its group. Raises what a defect of fsdplint raises."""
    check(load([path], overrides, max_bytes=max_bytes), rules)


def reported_coverage(program: Program) -> list[CoveredSite]:
    """The sites of a program as they are reported."""
    return [
        CoveredSite(
            one.source.location(one.site.node),
            one.site.kind.value,
            one.site.name,
            one.gap.name.lower().replace("_", "-") if one.gap is not None else None,
            one.reason,
        )
        for one in program.coverage
    ]


def meta_findings(
    workspace: Workspace, program: Program, rules: Sequence[Rule], found: Sequence[Finding]
) -> list[Finding]:
    """Findings about programs that are too large, and about comments that suppress nothing.

    If a file or a rule failed, no comment is reported: it may have suppressed a finding of it.
    """
    if workspace.filter is None:
        return []
    cuts = CutShort.of(program)
    failed = any(rule.failure for rule in rules)
    if failed or program.problems or not workspace.complete:
        return cuts
    return [*cuts, *workspace.filter.unused_suppressions(found, program)]
