"""The sharding plans of the programs under some paths, from their traces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fsdplint.comparison.unit_report import Layouts, ProgramLayouts
from fsdplint.comparison.unit_tree import layouts
from fsdplint.config.command_line import CommandLine
from fsdplint.engine.progress import PROGRESS
from fsdplint.engine.session import Session
from fsdplint.interpreter import load
from fsdplint.report.cells import in_cell
from fsdplint.report.result import problem_line
from fsdplint.source.files import PROGRAM_SUFFIXES
from fsdplint.trace import Trace


def plans(paths: Iterable[Path]) -> Layouts:
    """What each program shards. Functions that no program calls count where no program shards.

    Raises:
        SettingsError: the settings are wrong.
        Interrupted: an earlier run was killed while it wrote.
    """
    session = Session([*paths], CommandLine(no_baseline=True))
    result = Layouts()
    PROGRESS.begin("following", len(session.groups))
    for group in session.groups:
        files = [path for path in group if path.suffix in PROGRAM_SUFFIXES]
        program = load(files, max_bytes=session.settings.max_file_size, with_arguments=True)
        session.add_problems(program.problems)
        by_entry: dict[str | None, list[Trace]] = {}
        for trace in program.traces:
            if trace.shardings():
                by_entry.setdefault(trace.entry, []).append(trace)
        if len(by_entry) > 1:
            by_entry.pop(None, None)
        for entry, traces in by_entry.items():
            found = layouts(traces)
            models = (model for layout in found for model in layout.models)
            for unit in (one for model in models for one in model.all_units()):
                unit.at = None if unit.at is None else in_cell(program.sources, unit.at)
            result.programs.append(ProgramLayouts(entry, found))
        PROGRESS.advance()
    result.problems = [problem_line(one) for one in session.sorted_problems()]
    return result
