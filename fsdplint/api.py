"""Checking, fixing and proving from Python.

    import fsdplint

    for finding in fsdplint.check(["train.py"]).findings:
        print(finding.path, finding.line, finding.code, finding.message)

The settings of the project (`[tool.fsdplint]`) apply as on the command line. Arguments override
them. Only `Fixed.write` writes files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fsdplint.api_results import (
    Change,
    Checked,
    Condition,
    Edit,
    Finding,
    Fix,
    Fixed,
    FsdplintError,
    Note,
    Place,
    Problem,
    Proof,
    Proven,
    Related,
)

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Edit as _Edit
    from fsdplint.diagnostics.finding import Finding as _Finding
    from fsdplint.diagnostics.finding import Fix as _Fix
    from fsdplint.engine.session import Session
    from fsdplint.report.result import Result

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Selectors = str | Sequence[str]

__all__ = [
    "Change",
    "Checked",
    "Condition",
    "Edit",
    "Finding",
    "Fix",
    "Fixed",
    "FsdplintError",
    "Note",
    "Place",
    "Problem",
    "Proof",
    "Proven",
    "Related",
    "check",
    "fix",
    "prove",
]


# Checking and fixing ----------------------------------------------------------------------------


def check(
    paths: Paths = ".",
    *,
    select: Selectors = (),
    ignore: Selectors = (),
    extend_select: Selectors = (),
    target_torch: str | None = None,
    unsafe_fixes: bool | None = None,
    project: bool = False,
    texts: Mapping[str | os.PathLike[str], str] | None = None,
) -> Checked:
    """Check files and folders.

    Args:
        paths: a file or folder, or several; an empty list checks nothing.
        select: the enabled rules: codes, prefixes of codes or names; a string is one of them.
        ignore: the disabled rules.
        extend_select: further enabled rules.
        target_torch: the oldest torch that the program must run on, such as "2.6".
        unsafe_fixes: whether fixes that may change the program's behaviour are applicable.
        project: whether fixes may change files of the project that were not given.
        texts: texts to use instead of those on disk (unsaved files of an editor), by path.

    Raises:
        FsdplintError: the settings are wrong.
        TypeError: `paths` holds something that is not a path.
    """
    from fsdplint.engine.operations import check_files

    options = (select, ignore, extend_select, target_torch, unsafe_fixes, project)
    result = _by_cell(check_files(_session(paths, texts, *options)))
    return Checked(
        findings=_findings(result, result.findings),
        problems=_problems(result),
        warnings=tuple(result.warnings),
    )


def fix(
    paths: Paths = ".",
    *,
    select: Selectors = (),
    ignore: Selectors = (),
    extend_select: Selectors = (),
    target_torch: str | None = None,
    unsafe_fixes: bool | None = None,
    project: bool = False,
    texts: Mapping[str | os.PathLike[str], str] | None = None,
) -> Fixed:
    """Compute the fixed texts of files and folders; `Fixed.write` writes them.

    The arguments are those of `check`. Fixes of `texts` cannot be written.

    Raises:
        FsdplintError: the settings are wrong.
        TypeError: `paths` holds something that is not a path.
    """
    from fsdplint.edits.write import NewContent
    from fsdplint.engine.operations import fix_files

    options = (select, ignore, extend_select, target_torch, unsafe_fixes, project)
    changes = fix_files(_session(paths, texts, *options))
    result = _by_cell(changes.result)
    return Fixed(
        changes=tuple(
            Change(str(path), before, after) for path, (before, after) in changes.texts.items()
        ),
        fixed=_fixed_findings(changes.applied),
        remaining=_findings(result, result.findings),
        problems=_problems(result),
        _contents=tuple(
            NewContent(str(path), before, after)
            for path, (before, after) in changes.contents.items()
        ),
    )


def _session(
    paths: Paths,
    texts: Mapping[str | os.PathLike[str], str] | None,
    select: Selectors,
    ignore: Selectors,
    extend_select: Selectors,
    target_torch: str | None,
    unsafe_fixes: bool | None,
    project: bool,
) -> Session:
    from fsdplint.config.command_line import CommandLine
    from fsdplint.config.settings import SettingsError
    from fsdplint.edits.journal import Interrupted
    from fsdplint.engine.session import Session
    from fsdplint.source.files import missing

    names = _names(paths)
    given = [Path(name) for name in names if name]
    command_line = CommandLine(
        select=_several(select),
        ignore=_several(ignore),
        extend_select=_several(extend_select),
        unsafe_fixes=unsafe_fixes,
        target_torch=target_torch,
        project=project,
    )
    overlays = {Path(path): text for path, text in (texts or {}).items()}
    try:
        session = Session(given, command_line, overlays=overlays)
    except (SettingsError, Interrupted) as error:
        raise FsdplintError(str(error)) from error
    if len(given) < len(names):  # as a path, an empty text would be the current folder
        session.problems.append(missing(""))
    return session


def _names(paths: Paths) -> list[str]:
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    wrong: object = several
    if isinstance(several, Iterable) and not isinstance(several, bytes | bytearray):
        given = list(several)
        odd = [one for one in given if not isinstance(one, str | os.PathLike)]
        if not odd:
            return [os.fspath(one) for one in given]
        wrong = odd[0]
    raise TypeError(f"paths: a string or os.PathLike, or several of them, not {wrong!r}")


def _several(selectors: Selectors) -> tuple[str, ...]:
    return (selectors,) if isinstance(selectors, str) else tuple(selectors)


def _by_cell(result: Result) -> Result:
    """The result with the places in notebooks counted by cell."""
    from fsdplint.report.cells import translate_locations

    return translate_locations(result, "json")


def _fixed_findings(found: Iterable[_Finding]) -> tuple[Finding, ...]:
    """Findings in the original files, without the edits of their fixes."""
    from fsdplint.report.result import Result
    from fsdplint.source.source import NodeSite

    found = list(found)
    sites = [one.site for one in found if isinstance(one.site, NodeSite)]
    result = _by_cell(Result(findings=found, sources={one.path: one.source for one in sites}))
    return _findings(result, result.findings, edits=False)


def _findings(
    result: Result, found: Iterable[_Finding], *, edits: bool = True
) -> tuple[Finding, ...]:
    return tuple(_finding(result, one, edits) for one in found)


def _finding(result: Result, one: _Finding, edits: bool) -> Finding:
    from fsdplint.diagnostics.finding import group_of
    from fsdplint.report.cells import split
    from fsdplint.report.urls import page_of

    at = one.site.location()
    path, cell = split(at.path)
    related = tuple(
        Related(split(where.path)[0], where.line, where.column, word, split(where.path)[1])
        for where, word in ((site.location(), word) for site, word in one.related)
    )
    return Finding(
        code=one.rule.code,
        name=one.rule.name,
        severity=one.rule.severity.value,
        message=one.message,
        help=one.help,
        path=path,
        line=at.line,
        column=at.column,
        end_line=at.end_line or at.line,
        end_column=at.end_column or at.column,
        url=page_of(one.rule),
        related=related,
        configuration=tuple(Condition(guard.text, guard.holds) for guard in one.configuration),
        group=group_of(one),
        blocker=one.blocker,
        blocker_codes=one.blocker_codes,
        fix=_fix(result, one, edits),
        cell=cell,
    )


def _fix(result: Result, one: _Finding, edits: bool) -> Fix | None:
    if one.fix is None:
        return None
    found = _all_edits(result, one) if edits else ()
    return Fix(
        title=one.fix.title,
        safety=one.fix.safety.value,
        applicable=result.applicable(one) if edits else True,
        edits=tuple(_edit(result, edit) for edit in found if edit.path in result.sources),
        group=one.fix.group,
        notes=_notes(one.fix),
    )


def _notes(fix: _Fix) -> tuple[Note, ...]:
    from fsdplint.report.cells import split
    from fsdplint.report.notes import remarks

    return tuple(
        Note(
            note.text,
            note.detail,
            tuple(Place(split(x.path)[0], x.line, split(x.path)[1]) for x in note.places),
        )
        for note in remarks(fix)
    )


def _all_edits(result: Result, one: _Finding) -> tuple[_Edit, ...]:
    from fsdplint.edits.apply import BrokenFixError, complete

    assert one.fix is not None
    try:
        return complete(result.sources, one.fix)
    except (BrokenFixError, KeyError):
        return one.fix.edits


def _edit(result: Result, edit: _Edit) -> Edit:
    from fsdplint.report.cells import split

    source = result.sources[edit.path]
    path, cell = split(edit.path)
    places = (*source.position(edit.start), *source.position(edit.end))
    return Edit(path, *places, edit.text, cell)


def _problems(result: Result) -> tuple[Problem, ...]:
    return tuple(
        Problem(one.code, one.name, one.path, one.line, one.message, one.hint)
        for one in result.problems
    )


# Proving ----------------------------------------------------------------------------------------


def prove(
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    *,
    against: str | os.PathLike[str] | None = None,
    nproc_per_node: int = 2,
    steps: int | None = None,
    seed: int = 0,
    timeout: float = 600.0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    unsafe_fixes: bool = False,
    target_torch: str | None = None,
    oracle: bool = False,
    keep: str | os.PathLike[str] | None = None,
) -> Proof:
    """Run a program before and after its fixes on several ranks, as `fsdplint prove` does.

    The programs run in processes of their own, with the rights of this process.

    Args:
        script: the program.
        arguments: its arguments.
        against: a program to compare with, instead of fixing.
        nproc_per_node: the number of ranks.
        steps: end each run after this many optimizer steps.
        seed: the seed of torch, random and numpy.
        timeout: the time limit of each run, in seconds.
        device: "cpu" runs a program that was written for CUDA on the CPU.
        unsafe_fixes: whether fixes that may change the program's behaviour are applied.
        target_torch: the oldest torch that the fixes are for; None for that of the project.
        oracle: also compare with the program without sharding.
        keep: a new folder for the records.

    Raises:
        FsdplintError: the program cannot be read, fixed or started, or torch is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise FsdplintError("proving needs torch: pip install 'fsdplint[prove]'")
    from fsdplint.runtime.launch import workplace
    from fsdplint.runtime.proof import program_pair
    from fsdplint.runtime.proof.prove import prove as run_proof
    from fsdplint.runtime.proof.reports.data import as_json

    options = program_pair.Options(
        script=Path(script),
        args=tuple(arguments),
        against=None if against is None else Path(against),
        ranks=nproc_per_node,
        steps=steps,
        seed=seed,
        timeout=timeout,
        device=device,
        unsafe=unsafe_fixes,
        target_torch=target_torch,
        oracle=oracle,
        keep=None if keep is None else Path(keep),
    )
    try:
        proof = run_proof(options)
    except (program_pair.ProveError, workplace.WorkplaceError) as error:
        raise FsdplintError(str(error)) from error
    from fsdplint.report.result import Result

    nothing = Result()
    return Proof(
        holds=proof.holds,
        fixes=tuple(
            Proven(
                title=one.title,
                verdict=one.verdict.value,
                reasons=tuple(one.reasons),
                code=one.code,
                path=one.at.path if one.at else "",
                line=one.at.line if one.at else 0,
                before=one.before,
                after=one.after,
            )
            for one in proof.verdicts
        ),
        remaining=_findings(nothing, proof.remaining, edits=False),
        found=_findings(nothing, proof.found, edits=False),
        diff=proof.diff,
        data=as_json(proof),
    )
