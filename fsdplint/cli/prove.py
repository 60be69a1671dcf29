"""The commands that run programs: `fsdplint prove` and `fsdplint run`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from fsdplint.cli.options import (
    FILE_TO_WRITE,
    all_of,
    file_options,
    force_option,
    output_options,
    rule_options,
    target_option,
)
from fsdplint.cli.program_command import RunsProgram
from fsdplint.cli.streams import CLEAN, FAILED, FOUND, fail

if TYPE_CHECKING:
    from fsdplint.config.command_line import CommandLine
    from fsdplint.runtime.launch.machines import Nodes
    from fsdplint.runtime.proof.program_pair import Options
    from fsdplint.runtime.proof.run_once import RecordedRun

F = TypeVar("F", bound=Callable[..., Any])


_MACHINE_OPTIONS = (
    click.option(
        "--nproc-per-node",
        "ranks",
        type=click.IntRange(min=1),
        default=2,
        show_default=True,
        help="The number of ranks on each machine.",
    ),
    click.option(
        "--nnodes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="The number of machines. Run the same command on each, with a shared --keep.",
    ),
    click.option(
        "--node-rank", type=click.IntRange(min=0), default=0, help="The number of this machine."
    ),
    click.option(
        "--rdzv-endpoint",
        default="",
        metavar="HOST:PORT",
        help="The address where the machines meet.",
    ),
    click.option(
        "--rdzv-id",
        default="fsdplint",
        show_default=True,
        help="The name of the run for the machines.",
    ),
)


def _launch_options(seed: int | None) -> Callable[[F], F]:
    """The options of both commands about the run."""
    return all_of(*_MACHINE_OPTIONS, *_run_options(seed))


def _run_options(seed: int | None) -> list[Callable[[F], F]]:
    return [
        click.option(
            "--steps",
            type=click.IntRange(min=1),
            help="End each run after this many optimizer steps.",
        ),
        click.option(
            "--seed",
            type=int,
            default=seed,
            show_default=seed is not None,
            help="The seed of torch, random and numpy.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=1),
            default=600.0,
            show_default=True,
            help="The time limit of each run, in seconds.",
        ),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "cuda"]),
            default="auto",
            show_default=True,
            help="The device; cpu runs a program written for CUDA on the CPU.",
        ),
        click.option(
            "--keep",
            type=click.Path(path_type=Path, file_okay=False),
            help="Keep the records and copies in this new folder.",
        ),
        click.option(
            "--torchrun",
            "torchrun",
            multiple=True,
            metavar="OPTION",
            help="Pass an option to torchrun, such as --torchrun=--max-restarts=1.",
        ),
    ]


@click.command(
    "prove", cls=RunsProgram, short_help="Run a program before and after its fixes, and compare."
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="Compare with this program instead of fixing.",
)
@_launch_options(seed=0)
@click.option(
    "--unsafe-fixes",
    "unsafe",
    is_flag=True,
    help="Apply fixes that may change the program's behaviour too.",
)
@target_option
@click.option(
    "--json",
    "json_path",
    type=FILE_TO_WRITE,
    help="Write all data of the proof to this file, as JSON.",
)
@click.option(
    "--html",
    "html_path",
    type=FILE_TO_WRITE,
    help="Write a report to this file, as a self-contained page.",
)
@click.option(
    "--markdown",
    "markdown_path",
    type=FILE_TO_WRITE,
    help="Write a report to this file, as Markdown for a pull request.",
)
@force_option
@click.option(
    "--oracle",
    is_flag=True,
    help="Run the program without sharding too. Implied if the program fails before its fixes.",
)
@click.option(
    "--resume",
    metavar="ARGS",
    help="Resume from the checkpoints too. ARGS are all arguments of SCRIPT for that.",
)
@click.option(
    "--simulate",
    "simulated",
    is_flag=True,
    help="Run one rank of --world-size alone, without tensor values, and count bytes.",
)
@click.option("--world-size", type=click.IntRange(min=1), help="The number of ranks of --simulate.")
def prove_command(
    json_path: Path | None,
    html_path: Path | None,
    markdown_path: Path | None,
    force: bool,
    simulated: bool,
    world_size: int | None,
    resume: str | None,
    **values: Any,
) -> None:
    """Run SCRIPT before and after its fixes on several ranks and give a verdict for every fix.

    Arguments after `--` go to SCRIPT. Exit codes: 0 if every fix is proven; 1 if one is not; 2 if
    the job could not be done.
    """
    if simulated != (world_size is not None):
        raise click.UsageError("--simulate and --world-size need each other")
    if simulated and resume is not None:
        raise click.UsageError(
            "--resume cannot be used with --simulate, which writes no checkpoints"
        )
    require_torch("prove")
    from fsdplint.runtime.launch.workplace import WorkplaceError
    from fsdplint.runtime.proof.program_pair import Options, ProveError
    from fsdplint.runtime.proof.reports.page import PageError

    again = None if resume is None else arguments_of("--resume", resume)
    options = Options(simulate=world_size, resume=again, nodes=_nodes(values), **values)
    paths = {"json": json_path, "html": html_path, "markdown": markdown_path}
    files = {kind: path for kind, path in paths.items() if path}
    _prepare_files(files.values(), force)
    try:
        with cleanup_on_signals():
            if simulated:
                good = _simulate(options, files)
            else:
                good = _prove(options, files)
    except (ProveError, WorkplaceError, PageError) as error:
        fail(str(error))
    sys.exit(CLEAN if good else FOUND)


def arguments_of(option: str, text: str) -> tuple[str, ...]:
    """The arguments in the value of an option, split as a shell does."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise click.UsageError(f"{option} {text}: {str(error).lower()}") from error


def _nodes(values: dict[str, Any]) -> Nodes:
    """The options about nodes; they are removed from `values`."""
    from fsdplint.runtime.launch.machines import Nodes

    names = ("nnodes", "node_rank", "rdzv_endpoint", "rdzv_id")
    nodes = Nodes(*(values.pop(name) for name in names))
    if nodes.rank >= nodes.count:
        raise click.UsageError(f"--node-rank {nodes.rank} must be less than --nnodes {nodes.count}")
    if nodes.count > 1 and not (nodes.endpoint and values["keep"]):
        raise click.UsageError("--nnodes needs --rdzv-endpoint, and a --keep that all machines see")
    return nodes


def _prepare_files(paths: Iterable[Path], force: bool) -> None:
    """Make the folders of the reports, and refuse to overwrite other files. An error ends the
    command before the program runs."""
    from fsdplint.cli.overwriting import OverwriteError, refuse_overwriting
    from fsdplint.edits.atomic_file import make_folder

    for path in paths:
        try:
            refuse_overwriting(path, "proof report", force=force)
            make_folder(path.parent)
        except OSError as error:
            fail(f"cannot write {path}: {error.strerror or error}")
        except OverwriteError as error:
            fail(str(error))


def _write(files: Mapping[str, Path], writers: Mapping[str, Callable[[], str]], text: str) -> None:
    """Write all reports that can be written. The text comes last: its reader may be gone."""
    from fsdplint.edits.atomic_file import save

    errors = []
    for kind, path in files.items():
        try:
            save(path, writers[kind]().encode())
        except OSError as error:
            errors.append(f"cannot write {path}: {error.strerror or error}")
    click.echo(text, nl=False)
    if errors:
        fail("; ".join(errors))


def _prove(options: Options, files: dict[str, Path]) -> bool:
    """Show a proof and write its reports; returns whether it holds."""
    from fsdplint.runtime.launch.progress import OnStandardError
    from fsdplint.runtime.proof.prove import prove
    from fsdplint.runtime.proof.reports.data import as_json
    from fsdplint.runtime.proof.reports.markdown import as_markdown
    from fsdplint.runtime.proof.reports.page import as_page, check_libraries
    from fsdplint.runtime.proof.reports.text import as_text

    if "html" in files:
        check_libraries()  # before the program runs
    proof = prove(options, OnStandardError())
    writers = {
        "json": lambda: json.dumps(as_json(proof), indent=2) + "\n",
        "html": lambda: as_page(proof),
        "markdown": lambda: as_markdown(proof),
    }
    _write(files, writers, as_text(proof))
    return proof.holds


def _simulate(options: Options, files: dict[str, Path]) -> bool:
    """Show a simulation and write its reports; returns whether both programs ended."""
    from fsdplint.runtime.launch.progress import OnStandardError
    from fsdplint.runtime.proof.reports.page import check_libraries
    from fsdplint.runtime.proof.reports.simulated import as_markdown, as_page
    from fsdplint.runtime.proof.simulated_runs import STEPS, simulate
    from fsdplint.runtime.proof.simulation_report import as_json, as_text

    if "html" in files:
        check_libraries()
    simulated = simulate(replace(options, steps=options.steps or STEPS), OnStandardError())
    writers = {
        "json": lambda: json.dumps(as_json(simulated), indent=2) + "\n",
        "html": lambda: as_page(simulated),
        "markdown": lambda: as_markdown(simulated),
    }
    _write(files, writers, as_text(simulated))
    return simulated.ok


def require_torch(command: str) -> None:
    """End the command with an error if torch is not installed."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        fail(f"fsdplint {command} needs torch: pip install 'fsdplint[prove]'")


_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


@contextmanager
def cleanup_on_signals() -> Iterator[None]:
    """Let a signal end the command's ranks and remove its folder."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # it is under nohup
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> NoReturn:
    """Exit. A second signal does not interrupt the cleanup."""
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    os.write(2, b"\nstopped; ending the ranks\n")
    sys.exit(128 + number)


@click.command("run", cls=RunsProgram, short_help="Run a program once, and check the recorded run.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@_launch_options(seed=None)
@rule_options
@output_options
@file_options
def run_command(
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    extend_ignore: tuple[str, ...],
    output_format: str | None,
    colour: str,
    exit_zero: bool,
    output_file: Path | None,
    force: bool,
    statistics: bool,
    **values: Any,
) -> None:
    """Run SCRIPT once on several ranks, without a copy, and check the recorded run.

    All rules check the record, including those that need a real run. Arguments after `--` go to
    SCRIPT. The output of SCRIPT is not shown. Exit codes: 0 if there are no findings; 1 if there
    are findings; 2 if the program could not be run, or failed and nothing was found.
    """
    require_torch("run")
    from fsdplint.config.command_line import CommandLine
    from fsdplint.diagnostics.codes import split

    command_line = CommandLine(
        select=split(select),
        ignore=split(ignore),
        extend_select=split(extend_select),
        extend_ignore=split(extend_ignore),
        output_format=output_format,
    )
    recorded = _record(command_line, output_file, force, statistics, values)
    _report(recorded, output_file, colour, statistics)
    if recorded.result.findings:
        sys.exit(CLEAN if exit_zero else FOUND)
    sys.exit(CLEAN if recorded.run.ok else FAILED)


def _record(
    command_line: CommandLine,
    output_file: Path | None,
    force: bool,
    statistics: bool,
    values: dict[str, Any],
) -> RecordedRun:
    """Run the program, unless the report cannot be written. Exits on an error."""
    from fsdplint.cli.output import refuse_statistics
    from fsdplint.cli.overwriting import OverwriteError, refuse_overwriting
    from fsdplint.config.settings import SettingsError
    from fsdplint.config.settings_finder import SettingsFinder
    from fsdplint.edits.journal import Interrupted
    from fsdplint.runtime.launch.launcher import LaunchError
    from fsdplint.runtime.launch.progress import OnStandardError
    from fsdplint.runtime.launch.workplace import WorkplaceError
    from fsdplint.runtime.proof.run_once import Options, watch

    try:
        if output_file is not None:
            refuse_overwriting(output_file, "report", force=force)
        if statistics:  # an error comes before the run
            refuse_statistics(SettingsFinder(command_line).of(values["script"]).output_format)
        with cleanup_on_signals():
            return watch(
                Options(command_line=command_line, nodes=_nodes(values), **values),
                OnStandardError(),
            )
    except (LaunchError, SettingsError, Interrupted, WorkplaceError, OverwriteError) as error:
        fail(str(error))


def _report(recorded: RecordedRun, output_file: Path | None, colour: str, statistics: bool) -> None:
    """Report the findings of a run, and its failure."""
    from fsdplint.cli.output import report, show_warnings
    from fsdplint.runtime.launch.failures import failure_lines

    show_warnings(recorded.result)
    report(recorded.result, recorded.output_format, output_file, colour, counted=statistics)
    if not recorded.run.ok:
        for line in failure_lines("The program", recorded.run):
            click.echo(line, err=True)
