"""`fsdplint run`: runs a program once under the recorder, and checks its trace with all rules."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.config.command_line import CommandLine
from fsdplint.engine.recorded import check_run
from fsdplint.engine.session import Session
from fsdplint.report.result import Result, plural
from fsdplint.runtime.launch.failures import refused_arguments, refused_arguments_text
from fsdplint.runtime.launch.launcher import Launch, LaunchError, Run, launch
from fsdplint.runtime.launch.machines import Nodes
from fsdplint.runtime.launch.merge import merge
from fsdplint.runtime.launch.progress import Progress
from fsdplint.runtime.launch.script import refusal
from fsdplint.runtime.launch.workplace import workplace


@dataclass(frozen=True)
class Options:
    """The options of `fsdplint run`; see its `--help`."""

    script: Path
    args: tuple[str, ...] = ()
    ranks: int = 2
    steps: int | None = None
    seed: int | None = None
    timeout: float = 600.0
    device: str = "auto"
    keep: Path | None = None
    torchrun: tuple[str, ...] = ()
    nodes: Nodes = field(default_factory=Nodes)
    command_line: CommandLine = field(default_factory=CommandLine)


@dataclass
class RecordedRun:
    """A run and its findings."""

    run: Run
    result: Result
    output_format: str


def watch(options: Options, progress: Progress | None = None) -> RecordedRun:
    """Run the program in place and check its record.

    Raises:
        LaunchError: the program cannot be started, or rejects its arguments.
        SettingsError: the settings are invalid.
        WorkplaceError: there is no folder for the records.
    """
    reason = refusal(options.script)
    if reason:
        raise LaunchError(reason)
    session = Session([options.script], options.command_line)
    with workplace("run", options.keep, options.nodes.count > 1) as work:
        progress = progress or Progress()
        progress(f"running {options.script} on {plural(options.ranks, 'rank')}")
        job = Launch(
            target=os.path.abspath(options.script),
            folder=Path.cwd(),
            record=work,
            args=options.args,
            ranks=options.ranks,
            timeout=options.timeout,
            device=options.device,
            steps=options.steps,
            seed=options.seed,
            torchrun=options.torchrun,
            nodes=options.nodes,
            parameters=False,
        )
        try:
            run = launch(job, progress.follow(work, options.steps))
        finally:
            progress.finish()
    if not run.records:
        raise LaunchError(run.problem or "no rank was started")
    usage = refused_arguments(run)
    if usage:
        raise LaunchError(refused_arguments_text(options.script, usage))
    result = check_run(session, merge(run.records))
    result.unfinished = not run.ok
    return RecordedRun(run, result, session.settings.output_format)
