"""The command `fsdplint plan`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsdplint.cli.options import GivenPath, force_option, output_file_option
from fsdplint.cli.streams import CLEAN, FAILED, fail

if TYPE_CHECKING:
    from fsdplint.comparison.unit_report import Held, Layouts


@click.command("plan", short_help="Show what programs shard, without a run.")
@click.argument("paths", nargs=-1, type=GivenPath())
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "html", "svg"]),
    default="text",
    show_default=True,
    help="The format of the plan; html and svg draw it.",
)
@output_file_option("Write the plan to this file.")
@force_option
@click.option(
    "--simulate",
    "simulated",
    is_flag=True,
    help="Run one rank of --world-size alone, without tensor values, and show its bytes.",
)
@click.option("--world-size", type=click.IntRange(min=1), help="The number of ranks of --simulate.")
@click.option(
    "--arguments", metavar="ARGS", default="", help="All arguments of the program for --simulate."
)
def plan_command(
    paths: tuple[Path, ...],
    output_format: str,
    output_file: Path | None,
    force: bool,
    simulated: bool,
    world_size: int | None,
    arguments: str,
) -> None:
    """Show the sharding plan of the programs in files and folders (by default the current folder).

    The plan has the units as a tree: the class, the mesh and the placements, the options, which
    parameters each unit shards, and which stay in the root. The units of an FSDP1 program are those
    that FSDP2 would have. The programs are not run, except by --simulate, which needs torch.

    Exit codes: 0, or 2 if something could not be read or simulated.
    """
    from fsdplint.cli.output import emit
    from fsdplint.cli.overwriting import OverwriteError, refuse_overwriting
    from fsdplint.cli.progress import progress_line
    from fsdplint.config.settings import SettingsError
    from fsdplint.edits.journal import Interrupted
    from fsdplint.engine.planning import plans

    if simulated != (world_size is not None):
        raise click.UsageError("--simulate and --world-size need each other")
    if simulated and (len(paths) != 1 or not paths[0].is_file()):
        raise click.UsageError("--simulate needs exactly one program")
    try:
        if output_file is not None:
            refuse_overwriting(output_file, "plan", force=force)
        with progress_line():
            result = plans(paths or (Path(),))
    except (SettingsError, Interrupted, OverwriteError) as error:
        fail(str(error))
    if world_size is not None and result.programs:
        result.programs[0].held = _simulate_memory(paths[0], world_size, arguments)
    for problem in result.problems:
        click.echo(problem, err=True)
    emit(output_file, _write_plan(result, output_format))
    sys.exit(FAILED if result.problems else CLEAN)


def _write_plan(result: Layouts, output_format: str) -> Iterator[str]:
    from fsdplint.comparison import unit_pages, unit_report

    writers = {
        "text": unit_report.as_text,
        "json": unit_report.as_json,
        "html": unit_pages.as_page,
        "svg": unit_pages.as_svg,
    }
    return writers[output_format](result)


def _simulate_memory(script: Path, world_size: int, arguments: str) -> Held:
    """What one rank of the program holds, from a simulation. A failure ends the command."""
    from fsdplint.cli.prove import arguments_of, cleanup_on_signals, require_torch

    require_torch("plan --simulate")
    from fsdplint.comparison.unit_report import Held
    from fsdplint.runtime.launch.failures import failure_lines
    from fsdplint.runtime.launch.progress import OnStandardError
    from fsdplint.runtime.launch.workplace import WorkplaceError
    from fsdplint.runtime.proof.program_pair import Options, ProveError
    from fsdplint.runtime.proof.simulated_runs import STEPS, simulate_as_it_is, steps_of
    from fsdplint.runtime.proof.simulation_report import HELD

    words = arguments_of("--arguments", arguments)
    options = Options(script, words, simulate=world_size, steps=STEPS)
    try:
        with cleanup_on_signals():
            run = simulate_as_it_is(options, OnStandardError())
    except (ProveError, WorkplaceError) as error:
        fail(str(error))
    if not run.ok:
        fail("\n".join(failure_lines("The program", run)))
    if not steps_of(run):
        fail("the program made no optimizer step")
    last = steps_of(run)[-1]
    return Held(world_size, {name: last[name] for name in HELD}, last["held"])
