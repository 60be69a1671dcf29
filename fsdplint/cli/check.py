"""The work of `fsdplint check`; its options are in `fsdplint.cli.main`.

Exit codes: 0 if there are no findings (or all are fixed), 1 if there are findings or a diff, 2 if
the job could not be done.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsdplint.cli.caches import cache_of
from fsdplint.cli.output import emit, refuse_statistics, report, show_problems, show_warnings
from fsdplint.cli.overwriting import refuse_overwriting
from fsdplint.cli.progress import progress_line, stop_line
from fsdplint.cli.streams import CLEAN, FAILED, FOUND, fail
from fsdplint.config.command_line import CommandLine
from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.engine.cache import Cache
from fsdplint.engine.changes import Changes
from fsdplint.engine.operations import check_files, fix_files
from fsdplint.engine.session import Session
from fsdplint.engine.workers import processors
from fsdplint.report import writer
from fsdplint.report.result import Result, plural
from fsdplint.source.folders import leads_out, project_root

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding

BASELINE = "fsdplint-baseline.json"


@dataclass(frozen=True)
class Job:
    """The options of the command line, besides the settings.

    Attributes:
        paths: files and folders.
        stdin: the content of the only path, if it comes from standard input.
        output: the file for the report; None for standard output.
        jobs: the number of processes; None for one for each processor.
    """

    paths: Sequence[Path]
    command_line: CommandLine
    stdin: bytes | None = None
    fix: bool = False
    fix_only: bool = False
    diff: bool = False
    add_noqa: bool = False
    show_fixes: bool = False
    statistics: bool = False
    coverage: bool = False
    show_files: bool = False
    show_settings: bool = False
    output: Path | None = None
    colour: str = "auto"
    exit_zero: bool = False
    exit_non_zero_on_fix: bool = False
    no_cache: bool = False
    cache_dir: Path | None = None
    force: bool = False
    quiet: bool = False
    verbose: bool = False
    jobs: int | None = None


def do(job: Job) -> int:
    """Do a job; returns the exit code.

    Raises:
        SettingsError: the settings are wrong.
        Interrupted: an earlier run was killed while it wrote, and this run cannot complete the
            write.
        OverwriteError: the report would overwrite a file of another kind.
    """
    if job.output is not None:
        refuse_overwriting(job.output, _kind(job), force=job.force)
    with progress_line():
        return _do(job)


def _do(job: Job) -> int:
    # Trees and traces hold many long-lived cycles, so frequent garbage collection finds nothing.
    gc.set_threshold(100_000, 60, 20)
    cache = None if job.no_cache or job.stdin is not None else _cache(job)
    session = Session(job.paths, job.command_line, stdin=job.stdin, writes=_writes_sources(job))
    if job.show_files or job.show_settings or job.verbose:
        stop_line()
    if job.show_files:
        return _show_files(job, session)
    if job.show_settings:
        return _show_settings(job, session)
    if job.statistics:
        refuse_statistics(session.settings.output_format)
    if job.verbose:
        _show_work(job, session, cache)
    if job.coverage:
        return _coverage(job, session, cache)
    if job.add_noqa:
        code = _add_noqa(job, session, cache)
    elif job.diff:
        code = _diff(job, session, cache)
    elif job.fix:
        code = _fix(job, session, cache)
    else:
        result = _check(job, session, cache)
        _report(job, session, result)
        code = _exit_code(result.findings, result.problems)
    return CLEAN if job.exit_zero and code == FOUND else code


def _check(job: Job, session: Session, cache: Cache | None) -> Result:
    result = check_files(session, processes=_processes(job), cache=cache)
    stop_line()
    return result


def _processes(job: Job) -> int:
    return job.jobs or processors()


def _show_work(job: Job, session: Session, cache: Cache | None) -> None:
    """Write what the run works with to standard error."""
    lines = (
        f"Settings: {session.settings.file or 'defaults'}",
        f"Cache: {cache.folder if cache is not None else 'none'}",
        f"Files: {len(session.files)}",
        f"Processes: at most {_processes(job)}",
    )
    for line in lines:
        click.echo(line, err=True)


def _coverage(job: Job, session: Session, cache: Cache | None) -> int:
    """Report the coverage instead of the findings."""
    from fsdplint.report.coverage import coverage

    result = _check(job, session, cache)
    show_problems(result.problems)
    _emit(job, coverage(result, session.settings.output_format))
    return _exit_code((), result.problems)


def _kind(job: Job) -> str:
    """The kind of the report's file (see `fsdplint.cli.overwriting`)."""
    if job.show_files:
        return "file list"
    if job.show_settings:
        return "settings list"
    return "diff" if job.diff and not job.add_noqa else "report"


def _writes_sources(job: Job) -> bool:
    """Whether the job changes the checked files."""
    if job.diff or job.show_files or job.show_settings:
        return False
    return job.fix or job.add_noqa


def _cache(job: Job) -> Cache:
    if job.cache_dir is not None:  # a shell does not expand ~ in an environment variable
        return Cache(Path(os.path.expanduser(job.cache_dir)))
    return cache_of(job.paths[0], job.command_line)


def _exit_code(found: Iterable[Finding], problems: Iterable[object]) -> int:
    if any(True for _ in problems):
        return FAILED
    return FOUND if any(one.rule.affects_exit_code for one in found) else CLEAN


# Output -------------------------------------------------------------------------------------------


def _emit(job: Job, lines: Iterable[str], *, err: bool = False) -> None:
    emit(job.output, lines, err=err)


def _report(
    job: Job, session: Session, result: Result, *, err: bool = False, before: Sequence[str] = ()
) -> None:
    result.quiet = job.quiet
    if not job.quiet:
        show_warnings(result)
    output_format = session.settings.output_format
    report(
        result,
        output_format,
        job.output,
        job.colour,
        counted=job.statistics,
        err=err,
        before=before,
    )


def _show_files(job: Job, session: Session) -> int:
    _emit(job, sorted(os.path.abspath(path) for path in session.files))
    return _problems(session)


def _show_settings(job: Job, session: Session) -> int:
    path = (session.files or list(job.paths))[0]
    _emit(job, session.settings_of(path).lines(path))
    return _problems(session)


def _problems(session: Session) -> int:
    show_problems(session.problems)
    return FAILED if session.problems else CLEAN


# Fixing -------------------------------------------------------------------------------------------


def _fix(job: Job, session: Session, cache: Cache | None) -> int:
    changes = fix_files(session, processes=_processes(job), cache=cache)
    stop_line()
    result = changes.result
    if session.stdin is not None:
        contents = [new for _, new in changes.contents.values()] or [session.stdin]
        sys.stdout.buffer.write(contents[0])
        sys.stdout.buffer.flush()
    else:
        _write(changes)
    err = session.stdin is not None
    before = _fixes(changes.applied) if job.show_fixes and _for_people(session) else []
    if job.fix_only:
        lines = [f"Fixed {plural(result.fixed, 'finding')}."] if result.fixed else []
        show_warnings(result)
        show_problems(result.problems)
        _emit(job, [*before, *lines] if _for_people(session) else [], err=err)
    else:
        _report(job, session, result, err=err, before=before)
    for line in _notes(changes):
        click.echo(line, err=True)
    code = _exit_code(() if job.fix_only else result.findings, result.problems)
    return FOUND if code == CLEAN and job.exit_non_zero_on_fix and result.fixed else code


def _notes(changes: Changes) -> Iterable[str]:
    """Notes on what the fixes change in behaviour or cost."""
    from fsdplint.report.notes import note_lines, remarks_on

    return note_lines(remarks_on(changes.applied))


def _for_people(session: Session) -> bool:
    return writer(session.settings.output_format).FOR_PEOPLE


def _write(changes: Changes) -> None:
    from fsdplint.edits.write import NewContent, WriteError, write

    try:
        write([NewContent(str(p), old, new) for p, (old, new) in changes.contents.items()])
    except WriteError as error:
        fail(error.strerror or str(error))


def _fixes(applied: Sequence[Finding]) -> list[str]:
    """The number of fixed findings for each file and rule."""
    files: dict[str, dict[tuple[str, str], int]] = {}
    for one in applied:
        counts = files.setdefault(one.site.path, {})
        key = (one.rule.code, one.rule.name)
        counts[key] = counts.get(key, 0) + 1
    if not files:
        return []
    lines = [f"Fixed {plural(len(applied), 'finding')}:"]
    for path, counts in sorted(files.items()):
        lines.append(f"- {path}:")
        width = max(len(str(count)) for count in counts.values())
        for (code, name), count in sorted(counts.items(), key=lambda row: (-row[1], row[0])):
            lines.append(f"    {count:>{width}} \N{MULTIPLICATION SIGN} {code} ({name})")
    return [*lines, ""]


def _diff(job: Job, session: Session, cache: Cache | None) -> int:
    from fsdplint.report.unified_diff import unified_diff

    changes = fix_files(session, processes=_processes(job), cache=cache)
    stop_line()
    lines = [
        line
        for path, (old, new) in changes.texts.items()
        for line in unified_diff(str(path), old, new).removesuffix("\n").split("\n")
    ]
    _emit(job, lines)
    result = changes.result
    show_warnings(result)
    show_problems(result.problems)
    for line in [*_notes(changes), *_migration_blockers(result)]:
        click.echo(line, err=True)
    words = [f"would fix {plural(result.fixed, 'finding')}"] if result.fixed else []
    if result.findings:
        words.append(f"{plural(len(result.findings), 'finding')} would remain")
    if words:
        text = ", ".join(words)
        click.echo(f"{text[0].upper()}{text[1:]}.", err=True)
    return FOUND if changes.texts and not result.problems else _exit_code((), result.problems)


def _migration_blockers(result: Result) -> list[str]:
    """The reasons why migrations are not in the diff."""
    from fsdplint.report.result import waiting

    lines: dict[str, str] = {}  # all uses of FSDP1 in a program share one reason
    for one in result.findings:
        why = f"Not migrated: {one.blocker}." if one.blocker else ""
        if one.rule.grouped and one.fix is None:
            why = why or one.help
        if why:
            at = one.site.location()
            lines.setdefault(why, f"{at.path}:{at.line}: {one.rule.code} {why}")
    return [*lines.values(), *waiting(result)]


# Comments and the baseline ------------------------------------------------------------------------


def _add_noqa(job: Job, session: Session, cache: Cache | None) -> int:
    from fsdplint.edits.noqa import with_comments

    result = _check(job, session, cache)
    changes = Changes(result=result)
    added = 0
    for path, source in result.sources.items():
        found = [one for one in result.findings if one.site.path == path]
        if os.path.realpath(path) not in session.editable:
            found = []
        text, count, refused = with_comments(source, found)
        added += count
        for line in refused:
            click.echo(line, err=True)
        if text != source.text and os.path.realpath(path) in session.editable:
            contents = (source.to_bytes(source.text), source.to_bytes(text))
            changes.contents[Path(path)] = contents
    _write(changes)
    show_warnings(result)
    show_problems(result.problems)
    click.echo(f"Added {plural(added, 'noqa comment')}.", err=True)
    return _exit_code((), result.problems)


def record_baseline(job: Job) -> int:
    """Record the current findings in the baseline; returns the exit code.

    If a file cannot be checked, nothing is recorded: the file's known findings would be lost.

    Raises: see `do`.
    """
    from fsdplint.diagnostics.baseline import text_of
    from fsdplint.edits.atomic_file import save

    setting = SettingsFinder().of(job.paths[0]).baseline
    file = job.output or setting or Path(BASELINE)
    if job.output is None and leads_out(project_root(file), file):
        fail(
            f"{file}: a link leads out of the project, so nothing is recorded; name a file with -o"
        )
    refuse_overwriting(file, "baseline", force=job.force)
    result = _check(job, Session(job.paths, job.command_line), None)
    show_warnings(result)
    show_problems(result.problems)
    if result.problems:
        fail(f"nothing is recorded in {file}, because not everything could be checked")
    try:
        save(file, text_of(file, result.findings, result.sources).encode("utf-8"))
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror or error}")
    shown = os.path.relpath(file)
    click.echo(f"{plural(len(result.findings), 'finding')} recorded in {shown}.")
    if setting is None:
        click.echo(f"Checks use it with `--baseline {shown}`, or with the setting `baseline`.")
    return CLEAN
